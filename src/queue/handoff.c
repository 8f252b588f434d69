/*
 * Takers of what is being pushed (handoff.h). A waiter is chosen if the same statement can serve it:
 * its role and settings are those who push, its columns are wanted in the same formats as the first
 * one's. At the first that is not, choosing ends: who waits longer is not passed over. It knows
 * nothing of SQL.
 */
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "back.h"
#include "handoff.h"
#include "head.h"
#include "registry.h"

#define RECEIVERS_MAX 1000

struct receiver {
	struct waiter *waiter; /* NULL: has left, and the statement will be made without it */
	int jobs;              /* that it may get */
};

struct handoff {
	struct batch *batch;
	int n, at;  /* at: who gets the next one */
	int n_jobs; /* that are for somebody */
	struct buf row;
	struct receiver receivers[];
};

static bool same_settings(const struct waiter *w, const struct task_settings *settings)
{
	struct task_settings *its = w->taker->ops->settings(w->taker);
	struct buf a = BUF_INIT, b = BUF_INIT;
	bool same = false;

	if (its != NULL) {
		task_settings_key(its, &a);
		task_settings_key(settings, &b);
		same = !buf_failed(&a) && !buf_failed(&b) && a.len == b.len &&
		       memcmp(a.data, b.data, a.len) == 0;
	}
	task_settings_free(&its);
	buf_free(&a);
	buf_free(&b);
	return same;
}

/* A wait queue that has news lets its waiters ask: until then nobody knows what comes first. */
static bool waitqs_are_quiet(const struct waiter *w)
{
	for (int i = 0; i < w->args.n_queues; i++)
		if (w->members[i].waitq == NULL || w->members[i].waitq->credits > 0)
			return false;
	return true;
}

static bool fits(const struct waiter *w, struct pool *pool, enum qpayload payload,
	const struct task_settings *settings)
{
	return w->item == NULL && w->pool == pool && !w->args.pop && w->args.where == NULL &&
	       w->over == OVER_NOT && w->args.payload == payload && w->args.limit > 0 &&
	       waitqs_are_quiet(w) && w->taker->ops->is_there(w->taker) &&
	       same_settings(w, settings);
}

/* The statement has those of the first one. */
static bool same_formats(const struct merge_statement *st, const struct waiter *w)
{
	int16_t formats[MERGE_COLUMNS_MAX];

	taken_formats(w, formats);
	return memcmp(st->formats, formats, sizeof(formats)) == 0;
}

static void choose(struct handoff *h, struct merge_statement *st, struct waiter *w, int left)
{
	struct receiver *t = &h->receivers[h->n++];

	if (h->n == 1) {
		taken_formats(w, st->formats);
		st->n_formats = w->n_columns + HIDDEN_COLUMNS + 1;
	}
	CHECK_WAITER(w);
	INVARIANT(!waiter_is_busy(w) && w->members != NULL,
		"jobs are handed to one who does not wait");
	t->waiter = w;
	t->jobs = w->args.limit < left ? w->args.limit : left;
	INVARIANT(t->jobs > 0, "no job is handed over");
	w->handoff = h;
	w->handing = st->batch;
	w->event_at = loop_now();
	w->n_taken = 0;
	w->due_ms = DUE_UNKNOWN;
	for (int i = 0; i < w->args.n_queues; i++)
		w->members[i].gen = w->members[i].waitq->gen;
	w->stamp = registry_stamp(w->db);
	for (int i = 0; i < t->jobs; i++) {
		array_put_i32(&st->bytes[2], taken_proxy(w));
		array_put_text(&st->bytes[3], w->args.lease);
		array_put_text(&st->bytes[4], w->args.as);
	}
}

struct handoff *handoff_begin(
	struct qdb *db, struct pool *pool, const char *queue, int jobs, struct merge_statement *st)
{
	struct waitq *r = waitq_find(db, queue);
	int left = jobs, most = left < RECEIVERS_MAX ? left : RECEIVERS_MAX;
	enum qpayload payload;
	struct handoff *h;
	struct member *m;
	size_t start[3];

	CHECK_QDB(db);
	if (r == NULL || r->credits > 0 || left == 0 || !head_payload(db, queue, &payload))
		return NULL;
	h = mem_alloc(sizeof(*h) + (size_t)most * sizeof(h->receivers[0]));
	if (h == NULL)
		return NULL;
	*h = (struct handoff){.batch = st->batch, .row = BUF_INIT};
	for (int i = 0; i < 3; i++)
		start[i] = array_begin(&st->bytes[2 + i], i == 0 ? OID_INT4 : OID_TEXT, true);
	DL_FOREACH (r->members, m) {
		struct waiter *w = m->waiter;

		if (w->handoff != NULL || waiter_is_stuck(w))
			continue;
		if (left == 0 || h->n == most || !fits(w, pool, payload, st->settings) ||
			(w->args.grouped && jobs > 1) || /* some may be of one group: he asks */
			(h->n > 0 && !same_formats(st, w)) || !taken_reserve(w, w->args.limit))
			break;
		choose(h, st, w, left);
		left -= h->receivers[h->n - 1].jobs;
	}
	for (int i = 0; i < 3; i++)
		array_end(&st->bytes[2 + i], start[i], jobs - left);
	h->n_jobs = jobs - left;
	if (h->n > 0)
		return h;
	mem_free(h);
	for (int i = 2; i < 5; i++)
		buf_reset(&st->bytes[i]);
	return NULL;
}

bool handoff_leave(struct waiter *w)
{
	struct handoff *h = w->handoff;

	CHECK_WAITER(w);
	if (!merge_refill(h->batch))
		return false;
	for (int i = 0; i < h->n; i++)
		if (h->receivers[i].waiter == w)
			h->receivers[i].waiter = NULL;
	w->handoff = NULL;
	return true;
}

/* --- rows --- */

/* Where the columns end that a receiver knows, and the id that we know: the last column, as text. Is
 * there a token? Is it behind others of its group? false: not such a row. */
static bool last_column(
	const uint8_t *body, size_t len, size_t *ret_at, bool *ret_taken, bool *ret_blocked)
{
	struct wire_row row;
	int n = wire_row_begin(&row, body, len);

	for (int i = 0; i < n - 1; i++) {
		struct wire_col c = wire_row_next(&row);

		if (i == TAKEN_token)
			*ret_taken = c.len > 0;
		if (i == n - 1 - HIDDEN_COLUMNS + HIDDEN_policy)
			*ret_blocked = wire_col_is(&c, "blocked");
	}
	if (row.failed)
		return false;
	*ret_at = (size_t)(row.pos - body);
	return n > 2 && *ret_at < len;
}

static void one_column(struct buf *b, const uint8_t *p, size_t len)
{
	buf_reset(b);
	build_i16(b, 1);
	build_bytes(b, p, len);
}

bool handoff_row(void *arg, const uint8_t **body, size_t *len)
{
	struct handoff *h = arg;
	struct receiver *t = h->at < h->n ? &h->receivers[h->at] : NULL;
	bool taken = false, blocked = false;
	size_t at = 0;

	if (!last_column(*body, *len, &at, &taken, &blocked))
		return false;
	taken = taken && t != NULL;
	if (taken) {
		INVARIANT(t->waiter != NULL && t->jobs > 0, "a job is handed to one who has left");
		taken_row(t->waiter, *body, *len);
		if (--t->jobs == 0)
			h->at++;
	}
	one_column(&h->row, *body + at, *len - at);
	if (buf_failed(&h->row)) {
		*len = 0;
		return taken || blocked;
	}
	*body = h->row.data;
	*len = h->row.len;
	return taken || blocked;
}

/* Each kind of lease is looked for: the end of a lease tells where in the table its job is. */
void handoff_lost(void *arg, const char *queue, const struct merge_lost *lost)
{
	const struct handoff *h = arg;
	char name[1][QSTMT_QUEUE_MAX + 1];
	struct lost_jobs jobs = {.names = (const char(*)[QSTMT_QUEUE_MAX + 1]) name,
		.n_names = 1,
		.seed = lost->seed,
		.pid = lost->pid,
		.sent_at = lost->sent_at,
		.handed = h->n_jobs};

	util_strlcpy(name[0], queue, sizeof(name[0]));
	for (int i = 0; i < h->n; i++) {
		struct waiter *w = h->receivers[i].waiter;

		if (w == NULL)
			continue;
		jobs.lease = w->args.lease;
		back_lost(w->db, w->pool, &jobs);
	}
}

/* Longest waiter first: their answers leave in the order in which they came. */
void handoff_end(void *arg, const struct pg_error *err)
{
	struct handoff *h = arg;

	for (int i = 0; i < h->n; i++)
		if (h->receivers[i].waiter != NULL)
			h->receivers[i].waiter->ops->handed(h->receivers[i].waiter, err == NULL);
	buf_free(&h->row);
	mem_free(h);
}
