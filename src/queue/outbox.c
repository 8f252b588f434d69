/*
 * A set of names that is bounded (outbox.h). Must not know: who is told, and when.
 */
#include <string.h>

#include "base/mem.h"
#include "outbox.h"

static bool add_entry(struct outbox *o, const char *queue, size_t len)
{
	struct outbox_entry *e = mem_zalloc(sizeof(*e) + len + 1);

	if (e == NULL)
		return false;
	memcpy(e->queue, queue, len);
	HASH_ADD_STR(o->queues, queue, e);
	if (e->hh.tbl != NULL)
		return true;
	mem_free(e);
	return false;
}

void outbox_add(struct outbox *o, const char *queue, unsigned most)
{
	size_t len = strnlen(queue, OUTBOX_NAME_MAX);
	struct outbox_entry *e;

	HASH_FIND(hh, o->queues, queue, len, e);
	if (e != NULL)
		return;
	if (o->n < most && add_entry(o, queue, len))
		o->n++;
	else
		o->any = true;
}

bool outbox_is_empty(const struct outbox *o)
{
	return o->queues == NULL && !o->any;
}

void outbox_take(struct outbox *o, struct outbox *from, unsigned most)
{
	struct outbox_entry *e, *tmp;

	HASH_ITER (hh, from->queues, e, tmp)
		outbox_add(o, e->queue, most);
	o->any |= from->any;
	o->urgent |= from->urgent;
	outbox_clear(from);
}

void outbox_take_first(struct outbox *o, struct outbox *from, unsigned n)
{
	struct outbox_entry *e, *tmp;
	unsigned most = o->n + n;

	HASH_ITER (hh, from->queues, e, tmp) {
		if (n-- == 0)
			break;
		outbox_add(o, e->queue, most);
		HASH_DEL(from->queues, e);
		mem_free(e);
		from->n--;
	}
	o->any |= from->any;
	o->urgent |= from->urgent;
	from->any = false;
	from->urgent &= from->n > 0;
}

void outbox_clear(struct outbox *o)
{
	struct outbox_entry *e, *tmp;

	HASH_ITER (hh, o->queues, e, tmp) {
		HASH_DEL(o->queues, e);
		mem_free(e);
	}
	*o = (struct outbox){0};
}
