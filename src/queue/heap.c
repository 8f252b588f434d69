/*
 * The heap of deadlines.
 */
#include "base/mem.h"
#include "heap.h"

static void put(struct heap *h, unsigned pos, struct heap_node *n)
{
	h->nodes[pos - 1] = n;
	n->pos = pos;
}

static void up(struct heap *h, struct heap_node *n)
{
	unsigned pos = n->pos;

	while (pos > 1 && h->nodes[pos / 2 - 1]->when > n->when) {
		put(h, pos, h->nodes[pos / 2 - 1]);
		pos /= 2;
	}
	put(h, pos, n);
}

static void down(struct heap *h, struct heap_node *n)
{
	unsigned pos = n->pos;

	for (;;) {
		unsigned child = pos * 2;

		if (child > h->count)
			break;
		if (child < h->count && h->nodes[child]->when < h->nodes[child - 1]->when)
			child++;
		if (h->nodes[child - 1]->when >= n->when)
			break;
		put(h, pos, h->nodes[child - 1]);
		pos = child;
	}
	put(h, pos, n);
}

static bool grow(struct heap *h)
{
	unsigned cap = h->cap == 0 ? 64 : h->cap * 2;
	struct heap_node **nodes = mem_realloc(h->nodes, cap * sizeof(struct heap_node *));

	if (nodes == NULL)
		return false;
	h->nodes = nodes;
	h->cap = cap;
	return true;
}

bool heap_set(struct heap *h, struct heap_node *n, usec_t when)
{
	if (n->pos == 0) {
		if (h->count == h->cap && !grow(h))
			return false;
		n->when = when;
		h->count++;
		put(h, h->count, n);
		up(h, n);
		return true;
	}
	n->when = when;
	up(h, n);
	down(h, n);
	return true;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
	struct heap_node *last;

	if (n->pos == 0)
		return;
	last = h->nodes[h->count - 1];
	h->count--;
	if (last != n) {
		put(h, n->pos, last);
		up(h, last);
		down(h, last);
	}
	n->pos = 0;
}

struct heap_node *heap_first(const struct heap *h)
{
	return h->count > 0 ? h->nodes[0] : NULL;
}

usec_t heap_deadline(const struct heap *h)
{
	return h->count > 0 ? h->nodes[0]->when : USEC_NEVER;
}

void heap_free(struct heap *h)
{
	mem_free(h->nodes);
	*h = (struct heap){0};
}
