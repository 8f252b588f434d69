/*
 * The figures of several processes as one answer: the one that is asked asks the others, and puts what they
 * write family by family behind its own. A process that does not answer in time is left out. Must not know
 * what is measured. Entry points: gather_start(), gather_begin().
 */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "gather.h"
#include "net/loop.h"
#include "net/team.h"

#define PATIENCE USEC_SEC
#define FAMILY   "# HELP "

/* An answer comes in pieces, each behind this. An ask is this alone. */
struct piece {
	uint32_t number;
	uint8_t last;
};

static struct {
	void (*write)(struct buf *b);
	void (*done)(struct buf *text);
	uint32_t number;
	uint64_t awaited; /* a bit for each process */
	usec_t until;
	struct buf text[TEAM_MAX];
	uint8_t out[TEAM_TEXT_MAX]; /* that is sent */
	struct loop_tick *tick;
} all;

/* --- what the others say --- */

static void on_ask(int from, const uint8_t *text, size_t len)
{
	struct piece p;
	struct buf b = BUF_INIT;
	size_t at = 0, n;

	if (len != sizeof(p))
		return;
	memcpy(&p, text, sizeof(p));
	all.write(&b);
	while (!buf_failed(&b) && !p.last) {
		n = b.len - at;
		if (n > sizeof(all.out) - sizeof(p))
			n = sizeof(all.out) - sizeof(p);
		p.last = at + n == b.len;
		memcpy(all.out, &p, sizeof(p));
		memcpy(all.out + sizeof(p), b.data + at, n);
		(void)team_send(from, TEAM_FIGURES, all.out, sizeof(p) + n);
		at += n;
	}
	buf_free(&b);
}

/* --- one text of many --- */

/* A line that more than one process may write: what stands in the database is the same for all. */
struct series {
	UT_hash_handle hh;
	char name[];
};

static bool is_new(struct series **seen, const char *line, size_t len)
{
	const char *value = memrchr(line, ' ', len);
	size_t n = value != NULL ? (size_t)(value - line) : len;
	struct series *s = NULL;

	HASH_FIND(hh, *seen, line, n, s);
	if (s != NULL)
		return false;
	s = mem_alloc(sizeof(*s) + n);
	if (s == NULL)
		return true;
	memcpy(s->name, line, n);
	HASH_ADD(hh, *seen, name, n, s);
	if (s->hh.tbl == NULL)
		mem_free(s); /* no memory: it may come twice */
	return true;
}

static void forget(struct series **seen)
{
	struct series *s, *next;

	HASH_ITER (hh, *seen, s, next) {
		HASH_DEL(*seen, s);
		mem_free(s);
	}
}

static const char *line_end(const char *at, const char *end)
{
	const char *nl = memchr(at, '\n', (size_t)(end - at));

	return nl != NULL ? nl + 1 : end;
}

/* The lines behind a family's head, up to the next family; returns where that begins. */
static const char *put_lines(struct buf *b, struct series **seen, const char *at, const char *end)
{
	const char *next;

	for (; at < end && strncmp(at, FAMILY, strlen(FAMILY)) != 0; at = next) {
		next = line_end(at, end);
		if (is_new(seen, at, (size_t)(next - at)))
			buf_put(b, at, (size_t)(next - at));
	}
	return at;
}

/* The lines of the family with that head (HELP and TYPE) in the text of another process. */
static void put_same(
	struct buf *b, struct series **seen, struct buf *text, const char *head, size_t head_len)
{
	const char *end = (const char *)text->data + text->len;
	const char *at = text->len > 0 ? memmem(text->data, text->len, head, head_len) : NULL;

	if (at != NULL)
		(void)put_lines(b, seen, at + head_len, end);
}

static void merge(struct buf *b, const struct buf *own)
{
	const char *at = (const char *)own->data, *end = at + own->len, *head;
	struct series *seen = NULL;
	size_t head_len;

	while (at < end) {
		head = at;
		at = line_end(line_end(at, end), end);
		head_len = (size_t)(at - head);
		buf_put(b, head, head_len);
		at = put_lines(b, &seen, at, end);
		for (int i = 0; i < TEAM_MAX; i++)
			put_same(b, &seen, &all.text[i], head, head_len);
		forget(&seen);
	}
}

static void finish(void)
{
	struct buf own = BUF_INIT, b = BUF_INIT;

	for (int i = 0; i < TEAM_MAX; i++)
		if ((all.awaited & (1ULL << i)) != 0 || buf_failed(&all.text[i]))
			buf_free(&all.text[i]); /* a part of it would be wrong */
	all.awaited = 0;
	all.number++;
	all.write(&own);
	if (!buf_failed(&own))
		merge(&b, &own);
	buf_free(&own);
	for (int i = 0; i < TEAM_MAX; i++)
		buf_free(&all.text[i]);
	all.done(&b);
	buf_free(&b);
}

static void on_figures(int from, const uint8_t *text, size_t len)
{
	uint64_t bit = 1ULL << (from - 1);
	struct piece p;

	if (len < sizeof(p))
		return;
	memcpy(&p, text, sizeof(p));
	if (p.number != all.number || (all.awaited & bit) == 0)
		return;
	buf_put(&all.text[from - 1], text + sizeof(p), len - sizeof(p));
	if (!p.last)
		return;
	all.awaited &= ~bit;
	if (all.awaited == 0)
		finish();
}

static void on_gone(int from, const uint8_t *text, size_t len)
{
	uint64_t bit = 1ULL << (from - 1);

	(void)text, (void)len;
	if ((all.awaited & bit) == 0)
		return;
	buf_free(&all.text[from - 1]);
	all.awaited &= ~bit;
	if (all.awaited == 0)
		finish();
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	if (all.awaited != 0 && now >= all.until)
		finish();
	return all.awaited != 0 ? all.until : USEC_NEVER;
}

void gather_begin(void)
{
	struct piece ask;

	if (all.awaited != 0)
		return;
	memset(&ask, 0, sizeof(ask));
	ask.number = all.number;
	for (int i = 1; i <= team_size(); i++)
		if (i != team_self() && team_send(i, TEAM_FIGURES_ASK, &ask, sizeof(ask)))
			all.awaited |= 1ULL << (i - 1);
	all.until = loop_now() + PATIENCE;
	if (all.awaited == 0)
		finish();
	else
		loop_tick_at(all.tick, all.until);
}

bool gather_start(void (*write)(struct buf *b), void (*done)(struct buf *text))
{
	all.write = write;
	all.done = done;
	/* an answer to who had the place before us is not ours */
	util_random(&all.number, sizeof(all.number));
	all.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	team_hear(TEAM_FIGURES_ASK, on_ask);
	team_hear(TEAM_FIGURES, on_figures);
	team_hear_gone(on_gone);
	return all.tick != NULL;
}
