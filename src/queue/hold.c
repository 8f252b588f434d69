/*
 * Leases that are held (TAKE ... HOLD): short ones, renewed while their connection lives. At half
 * of their time those of a role are renewed by one statement, as that role, together with all that
 * are a quarter old. A renewal that fails is tried again; the job is nobody else's before the lease
 * ends.
 *
 * Giving back when the connection ends is lease_end.c's matter.
 */
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "wire/sqllex.h"
#include "queue_call.h"
#include "lease.h"
#include "queue_int.h"
#include "system.h"
#include "token.h"

#define TRY_AGAIN (1 * USEC_SEC)
#define BATCH_MAX 10000 /* tokens of one statement */

struct lost {
	UT_hash_handle hh;
	bool cancelled;
	char token[TOKEN_MAX];
};

/* The leases of one role that are renewed together. */
struct renewal {
	struct renewal *next; /* while it is gathered */
	struct qdb *db;
	struct pool *pool;
	unsigned number;
	usec_t sent_at, span;
	struct buf values;
	int n;
	struct lost *lost;
};

static struct {
	struct loop_tick *tick;
	unsigned last_number;
} renewals;

static usec_t on_tick(void *arg, usec_t now);

/* --- what is held --- */

static usec_t due_at(const struct lease *l)
{
	usec_t at = l->renewed_at + l->span / 2;

	if (l->again_at > at)
		at = l->again_at;
	return l->hold_until < at ? l->hold_until : at;
}

void hold_begin(struct lease *l, usec_t since, usec_t hold, usec_t span)
{
	l->policy = LEASE_HOLD;
	l->renewed_at = since;
	l->span = span;
	l->hold_until = loop_now() + hold;
	loop_tick_at(renewals.tick, due_at(l));
}

/* An EXTEND may have moved its end nearer than the next renewal; one that is not committed yet has
 * locked it. */
void hold_extended(struct lease *l, bool in_tx)
{
	if (l->policy != LEASE_HOLD)
		return;
	l->renewed_at = loop_now() > l->span / 2 ? loop_now() - l->span / 2 : 0;
	l->again_at = in_tx ? loop_now() + TRY_AGAIN : 0;
	loop_tick_at(renewals.tick, due_at(l));
}

/* As if half of its time were over. */
static void renew_soon(struct lease *l)
{
	l->renewed_at = loop_now() > l->span / 2 ? loop_now() - l->span / 2 : 0;
	l->again_at = 0;
	l->look = false;
	loop_tick_at(renewals.tick, due_at(l));
}

/* Those of the queue that it names may be cancelled: they are renewed now. */
static void on_event(struct qdb *db, const char *event)
{
	size_t len = strlen(CANCELLED_EVENT), n = strlen(event);
	struct taker *t;
	struct lease *l;

	if (strncmp(event, CANCELLED_EVENT, len) != 0)
		return;
	event += len;
	n -= len;
	DL_FOREACH (takers(), t) {
		if (t->db != db)
			continue;
		DL_FOREACH (t->leases, l) {
			if (l->policy != LEASE_HOLD || l->cancelled ||
				strncmp(l->token, event, n) != 0 || l->token[n] != '-')
				continue;
			if (l->renewal != 0)
				l->look = true; /* what is under way may not have seen it */
			else
				renew_soon(l);
		}
	}
}

/* --- the end of a renewal --- */

static void renewal_free(struct renewal *r)
{
	struct lost *x, *tmp;

	HASH_ITER (hh, r->lost, x, tmp) {
		HASH_DEL(r->lost, x);
		mem_free(x);
	}
	buf_free(&r->values);
	mem_free(r);
}

/* Two texts: the token, and "lost" or "cancelled". */
static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct renewal *r = arg;
	struct lost *x = mem_zalloc(sizeof(*x));
	struct wire_col cols[2];

	if (x == NULL)
		return; /* found to be lost next time */
	if (!wire_row_read(body, len, cols, 2) || cols[0].len <= 0 || cols[1].len <= 0 ||
		!wire_col_copy(&cols[0], x->token, sizeof(x->token)))
		goto bad;
	x->cancelled = wire_col_is(&cols[1], "cancelled");
	HASH_ADD_STR(r->lost, token, x);
	if (x->hh.tbl != NULL)
		return;
bad:
	mem_free(x);
}

static void settle(struct renewal *r, struct taker *t, struct lease *l, bool ok)
{
	struct lost *x;

	l->renewal = 0;
	if (!ok) {
		l->again_at = loop_now() + TRY_AGAIN;
		return;
	}
	HASH_FIND_STR(r->lost, l->token, x);
	if (x == NULL) {
		l->renewed_at = r->sent_at;
		l->span = r->span;
		if (l->look)
			renew_soon(l);
	} else if (x->cancelled) {
		lease_cancelled(t, l);
	} else {
		lease_lost(t, l);
		lease_drop(t, l);
	}
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct renewal *r = arg;
	struct taker *t;
	struct lease *l, *tmp;

	if (err != NULL)
		log_warning("%s: %d held jobs could not be renewed, trying again: %s", r->db->name,
			r->n, err->message);
	DL_FOREACH (takers(), t) {
		if (t->db != r->db)
			continue;
		DL_FOREACH_SAFE (t->leases, l, tmp)
			if (l->renewal == r->number)
				settle(r, t, l, err == NULL);
	}
	renewal_free(r);
	loop_tick_at(renewals.tick, loop_now());
}

/* --- renewing --- */

static bool send(struct renewal *r)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	char lease[40];
	struct buf array = BUF_INIT;
	struct bind_param params[2] = {{.format = 1}, {.data = (const uint8_t *)lease}};
	struct task_spec spec = call_task(CALL_RENEW, params, &ops, r);
	size_t start;
	bool ok;

	params[1].len = (int32_t)sql_interval_text(lease, sizeof(lease), (int64_t)r->span);
	start = array_begin(&array, OID_TEXT, false);
	buf_put(&array, r->values.data, r->values.len);
	array_end(&array, start, r->n);
	params[0].data = array.data;
	params[0].len = (int32_t)array.len;
	ok = !buf_failed(&array) && !buf_failed(&r->values) && task_submit(r->pool, &spec) != NULL;
	buf_free(&array);
	return ok;
}

static struct renewal *renewal_for(struct renewal **list, struct taker *t, usec_t now)
{
	struct pool *pool = t->pool;
	struct renewal *r;

	for (r = *list; r != NULL; r = r->next)
		if (r->pool == pool && r->n < BATCH_MAX)
			return r;
	r = mem_zalloc(sizeof(*r));
	if (r == NULL)
		return NULL;
	r->db = t->db;
	r->pool = pool;
	r->sent_at = now;
	r->span = conf_current()->p.queue_hold_lease;
	r->values = BUF_INIT;
	r->number = ++renewals.last_number != 0 ? renewals.last_number : ++renewals.last_number;
	r->next = *list;
	*list = r;
	return r;
}

/* Everything that is a quarter old, when something is half. */
static void gather(struct renewal **list, struct taker *t, usec_t now)
{
	struct lease *l;

	DL_FOREACH (t->leases, l) {
		struct renewal *r;

		if (l->policy != LEASE_HOLD || l->renewal != 0 || l->cancelled || l->finishing ||
			now < l->renewed_at + l->span / 4 || now < l->again_at)
			continue;
		r = renewal_for(list, t, now);
		if (r == NULL) {
			l->again_at = now + TRY_AGAIN;
			continue;
		}
		build_row_value(&r->values, l->token, (int32_t)strlen(l->token));
		r->n++;
		l->renewal = r->number;
	}
}

static void send_all(struct renewal *list)
{
	while (list != NULL) {
		struct renewal *r = list;
		struct pg_error err;

		list = r->next;
		if (send(r))
			continue;
		pg_error_set(&err, "53200", "out of memory");
		on_done(r, &err);
	}
}

/* --- time --- */

/* When the next one is due, of those that can be. One whose DONE is not committed is looked at
 * again after a while. */
static usec_t next_due(usec_t now)
{
	usec_t next = USEC_NEVER;
	struct taker *t;
	struct lease *l;

	DL_FOREACH (takers(), t) {
		DL_FOREACH (t->leases, l) {
			usec_t at;

			if (l->policy != LEASE_HOLD || l->renewal != 0 || l->cancelled)
				continue;
			at = due_at(l);
			if (l->finishing && at < now + TRY_AGAIN)
				at = now + TRY_AGAIN;
			next = at < next ? at : next;
		}
	}
	return next;
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct renewal *list = NULL;
	struct taker *t;

	(void)arg;
	DL_FOREACH (takers(), t)
		if (t->leases != NULL)
			lease_hold_over(t, now);
	if (next_due(now) <= now) {
		DL_FOREACH (takers(), t)
			gather(&list, t, now);
		send_all(list);
	}
	return next_due(now);
}

bool hold_start(void)
{
	static const struct system_listener listener = {.event = on_event};

	system_listen(&listener);
	renewals.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return renewals.tick != NULL;
}

void hold_free(void)
{
	loop_tick_free(&renewals.tick);
}
