/*
 * Clean queues, see clean.h. Ten thousand queues of which ten are used cost a round of the maintenance as much as ten.
 *
 * Entry points: clean_note(), clean_keep(), clean_put(), clean_free().
 */
#include <string.h>

#include "wire/array.h"
#include "clean.h"

#define HOLDS     (3600 * USEC_SEC) /* then it has its turn whatever is known of it */
#define OF_ONE    3                 /* numbers of the text */
#define FIRST_CAP 64

struct clean_queue {
	int32_t number;
	int64_t changes;
	usec_t until; /* 0: it is not clean */
};

/* The place of the first one with this number or a greater one. */
static size_t place_of(const struct clean *c, int64_t number)
{
	size_t low = 0, high = c->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (c->list[mid].number < number)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool set(struct clean *c, const struct clean_queue *q)
{
	size_t at = place_of(c, q->number);

	if (at == c->n || c->list[at].number != q->number) {
		if (q->until == 0)
			return true;
		if (c->n == c->cap) {
			size_t cap = c->cap > 0 ? 2 * c->cap : FIRST_CAP;
			void *list = mem_realloc(c->list, cap * sizeof(*q));

			if (list == NULL)
				return false;
			c->list = list;
			c->cap = cap;
		}
		memmove(&c->list[at + 1], &c->list[at], (c->n - at) * sizeof(*q));
		c->n++;
	}
	c->list[at] = *q;
	return true;
}

static usec_t how_long(uint64_t ms)
{
	return ms < HOLDS / USEC_MSEC ? ms * USEC_MSEC : HOLDS;
}

bool clean_note(struct clean *c, const char *text, size_t len)
{
	struct names numbers = {0};
	const char *at = NULL;
	int64_t v[OF_ONE];
	int n = 0;
	bool null = false, ok = array_read(text, len, &numbers, &n, &null) && !null;

	if (ok && n > 0)
		at = names_first(&numbers);
	ok = ok && n % OF_ONE == 0;
	c->visited = ok ? (size_t)n / OF_ONE : 0;
	for (int i = 0; ok && i < n; i += OF_ONE) {
		struct clean_queue q = {0};

		for (int k = 0; k < OF_ONE; k++, at = at != NULL ? names_next(&numbers, at) : NULL)
			ok = ok && at != NULL && util_parse_i64(at, strlen(at), &v[k]);
		if (!ok || v[0] < 0 || v[0] > INT32_MAX) {
			ok = false;
			break;
		}
		q.number = (int32_t)v[0];
		q.changes = v[1];
		if (v[2] > 0)
			q.until = loop_now() + how_long((uint64_t)v[2]);
		ok = set(c, &q);
	}
	names_free(&numbers);
	return ok;
}

static void drop_what_is_over(struct clean *c)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->n; i++)
		if (c->list[i].until > loop_now())
			c->list[kept++] = c->list[i];
	c->n = kept;
}

bool clean_keep(struct clean *c, int32_t number, int64_t changes, uint64_t ms)
{
	ASSERT(number > 0);
	size_t at = place_of(c, number);
	struct clean_queue q = {.number = number,
		.changes = changes,
		.until = ms > 0 ? loop_now() + how_long(ms) : 0};

	/* Who was told of it has not looked: then it is known no longer than it was. */
	if (ms > 0 && at < c->n && c->list[at].number == number && c->list[at].until > 0 &&
		c->list[at].changes == changes)
		return true;
	return set(c, &q);
}

/* The place of the first that is clean, from this one on; c->n: none. */
static size_t next_clean(const struct clean *c, size_t at)
{
	while (at < c->n && c->list[at].until <= loop_now())
		at++;
	return at;
}

static size_t first_clean(struct clean *c, int32_t after)
{
	if (after == 0)
		drop_what_is_over(c);
	return next_clean(c, place_of(c, (int64_t)after + 1));
}

void clean_put(struct buf *b, struct clean *c, int32_t after, size_t most)
{
	size_t start = array_begin(b, OID_INT8, false);
	size_t n = 0;

	for (size_t i = first_clean(c, after); i < c->n && n < most; i = next_clean(c, i + 1)) {
		array_put_i64(b, c->list[i].number);
		array_put_i64(b, c->list[i].changes);
		n++;
	}
	array_end(b, start, (int)(2 * n));
}

void clean_put_text(struct buf *b, struct clean *c, int32_t after, size_t most)
{
	size_t n = 0;

	buf_putc(b, '{');
	for (size_t i = first_clean(c, after); i < c->n && n < most; i = next_clean(c, i + 1))
		buf_printf(b, "%s%d,%lld", n++ > 0 ? "," : "", (int)c->list[i].number,
			(long long)c->list[i].changes);
	buf_putc(b, '}');
}

void clean_free(struct clean *c)
{
	mem_free(c->list);
	*c = (struct clean){0};
}
