/*
 * Tasks that share a transaction: statements of one class (task_spec.together) that waited for the same connection of
 * the engine's own go there as one pipeline with one Sync, and so have one commit. Nothing of an answer is told before
 * it: the rows are kept. When one of them fails, all are undone, wait again in their places, and each goes alone; so
 * none has to do with the fault of another. Those whose fault it was share nothing for a while. They wait for locks only for a short time, as others wait for their commit.
 *
 * Entry points: together_gather(), together_send(), together_end_all().
 */
#include <limits.h>
#include <string.h>

#include "pool/reading.h"
#include "wire/row.h"
#include "task_int.h"

#define MOST 32
#define LOOK 128 /* waiting tasks that are looked at */

/* --- who --- */

static bool goes_with(const struct task *t, const struct task *leader)
{
	return t->together == leader->together && t->ops != NULL &&
	       memcmp(t->vars.v, leader->vars.v, sizeof(t->vars.v)) == 0;
}

void together_gather(struct task *leader, struct server *s, usec_t now)
{
	struct pool *p = leader->pool;
	struct task **last = &leader->after, *t, *next;
	unsigned n = 1, left = LOOK;

	CHECK_TASK(leader);
	INVARIANT(leader->after == NULL && leader->server == NULL, "a task gathers others twice");
	for (t = p->tasks; t != NULL && n < MOST && left > 0; t = next, left--) {
		next = t->next;
		if (!goes_with(t, leader) || !affinity_follows(t, s, now))
			continue;
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		if (!task_starts(t, s))
			return; /* no memory: its end may have changed what waits */
		if (t->together != leader->together) {
			/* it was made anew, and is another statement now */
			DL_PREPEND(p->tasks, t);
			p->n_tasks++;
			continue;
		}
		*last = t;
		last = &t->after;
		n++;
	}
}

/* --- sending --- */

static const struct dest dest_together;

static bool put_execute(struct server *s, struct buf *b, const struct pstmt *stmt,
	const struct buf *values, bool final)
{
	char name[PSTMT_NAME_SIZE];

	return task_put_execute(s, b, pstmt_name(stmt, name), values, &dest_together, final);
}

/* For this transaction. */
static bool send_patience(struct server *s)
{
	static const char sql[] = "SELECT pg_catalog.set_config('lock_timeout', '50ms', true)";
	static const struct task_spec none = {0};
	struct buf b = BUF_INIT, values = BUF_INIT;
	struct sql_text text;
	struct pstmt *stmt;
	bool ok;

	sql_text_init(&text, sql, sizeof(sql) - 1, SQL_STANDARD, SQL_OF_PARSE);
	stmt = pstmt_get(NULL, &text, NULL, 0);
	task_put_values(&values, &none);
	ok = stmt != NULL && extq_server_prepare(s, stmt, &dest_together) &&
	     put_execute(s, &b, stmt, &values, false) && server_send(s, &b);
	if (!ok)
		buf_free(&b);
	buf_free(&values);
	pstmt_drop(&stmt);
	return ok;
}

bool together_send(struct task *leader, struct server *s, struct buf *b)
{
	struct task *t;

	if (!send_patience(s))
		return false;
	for (t = leader; t != NULL; t = t->after)
		if (!extq_server_prepare(s, t->stmt, &dest_together))
			return false;
	for (t = leader; t != NULL; t = t->after)
		if (!put_execute(s, b, t->stmt, &t->bind, true))
			return false;
	build_simple(b, 'S');
	if (!server_expect(s, EXPECT_SYNC, &dest_together, NULL))
		return false;
	expect_at(&s->expect, s->expect.count - 1u)->final = true;
	leader->at = leader;
	return true;
}

/* --- answers --- */

static void keep_row(struct task *t, const struct wire_msg *m)
{
	if (t != NULL && t->ops != NULL && t->ops->row != NULL)
		build_row_value(&t->rows, m->body, (int32_t)m->have);
}

static enum relay_step answer(struct relay *r, const struct wire_msg *m, struct expect *e, bool end)
{
	struct task *leader = r->s->task;
	bool executed = end && e->kind == EXPECT_EXECUTE && e->final;

	if (leader != NULL && m->type == 'D' && e->final)
		keep_row(leader->at, m);
	if (end)
		relay_pop(r, true);
	if (executed && leader != NULL && leader->at != NULL)
		leader->at = leader->at->after;
	return RELAY_DROP;
}

/* Of a trigger that fires at the commit it is the first one's: they are one transaction. */
static void event(struct server *s, const char *text, const char *tx)
{
	struct task *t = s->task != NULL && s->task->at != NULL ? s->task->at : s->task;

	if (t != NULL && intercept_queue != NULL && intercept_queue->task_event != NULL)
		intercept_queue->task_event(t->pool, text, tx, &t->events);
}

static enum relay_step error(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	bool batch = relay_in_batch(e);
	struct task *leader = r->s->task;

	if (leader != NULL) {
		task_note_error(leader, m->body, m->have);
		if (leader->at != NULL)
			affinity_spoilt(leader->at, loop_now());
	}
	if (batch)
		relay_batch_failed(r);
	return RELAY_DROP;
}

/* Each is gone behind it, so the next one is told by who calls. Without memory for its rows it is as if they had been
 * lost with the connection. */
static void tell(struct task *t, int32_t pid)
{
	bool ok = !buf_failed(&t->rows);
	struct wire_row rows;
	struct pg_error err;

	wire_row_values(&rows, t->rows.data, ok ? t->rows.len : 0, INT_MAX);
	while (rows.pos != rows.end && t->ops != NULL) {
		struct wire_col row = wire_row_next(&rows);

		INVARIANT(row.data != NULL, "a row that was kept is cut");
		t->ops->row(t->arg, row.data, (size_t)row.len);
	}
	if (!ok)
		t->lost_in = pid;
	task_end_events(t, true);
	task_end(t, ok ? NULL : pg_error_set(&err, "53200", "out of memory"));
}

/* Nothing has happened. */
static void wait_again(struct task *t)
{
	struct pool *p = t->pool;

	task_end_events(t, false);
	silent_forget(t);
	buf_free(&t->rows);
	t->at = NULL;
	t->server = NULL;
	t->failed = false;
	t->together = 0;
	t->heard_at = t->asked_at = 0;
	DL_PREPEND(p->tasks, t);
	p->n_tasks++;
}

static void undone(struct task *leader)
{
	struct task *all[MOST], *t, *next;
	struct pg_error err = leader->err;
	unsigned n = 0;

	for (t = leader; t != NULL; t = next) {
		next = t->after;
		t->after = NULL;
		all[n++] = t;
	}
	pool_mark_ready(leader->pool);
	for (unsigned i = n; i-- > 0;)
		if (all[i]->ops != NULL && all[i]->together != 0) { /* nor cancelled */
			wait_again(all[i]);
			all[i] = NULL;
		}
	for (unsigned i = 0; i < n; i++)
		if (all[i] != NULL)
			task_end(all[i], &err);
}

static void ready(struct relay *r, bool last)
{
	struct server *s = r->s;
	struct task *leader = s->task, *t, *next;
	int32_t pid = s->pid;

	if (leader == NULL || !last)
		return;
	s->task = NULL;
	if (!leader->failed)
		affinity_took(leader, loop_now() - s->request_time);
	if (s->tx != 'I')
		server_close(s, "transaction left open by a task", NULL);
	else
		server_release(s);
	if (leader->failed) {
		undone(leader);
		return;
	}
	for (t = leader; t != NULL; t = next) {
		next = t->after;
		tell(t, pid);
	}
}

static const struct dest dest_together = {
	.tells = true, .event = event, .answer = answer, .ready = ready, .error = error};

void together_end_all(struct task *leader, const struct pg_error *err, int32_t lost_in)
{
	struct task *t, *next;
	struct pg_error own = leader->failed ? leader->err : *err; /* the leader goes first */

	for (t = leader; t != NULL; t = next) {
		next = t->after;
		t->lost_in = lost_in;
		task_end(t, &own);
	}
}
