/*
 * Which queues there are whose jobs run by themselves: asked when schedules.c hears that there are some, by somebody who
 * can log in. Each has its slots (runner.c); and what of them is shown.
 *
 * Must not know: how a job is run.
 *
 * Entry points: runs_look(), runs_free(), queue_stat_each_run(), queue_stat_each_runs().
 */
#include <stdio.h>
#include <string.h>

#include "wire/row.h"
#include "agent.h"
#include "queue_call.h"
#include "queue_int.h"
#include "queue/stat.h"
#include "run_slots.h"
#include "runner.h"

static void queue_end(struct run_queue *q)
{
	session_ends(q);
	DL_DELETE(q->db->runs->queues, q);
	mem_free(q);
}

static struct run_queue *queue_of(struct qdb *db, const char *name)
{
	struct run_queue *q;

	DL_FOREACH (db->runs->queues, q)
		if (strcmp(q->name, name) == 0)
			return q;
	q = mem_zalloc(sizeof(*q));
	if (q == NULL)
		return NULL;
	q->db = db;
	util_strlcpy(q->name, name, sizeof(q->name));
	DL_APPEND(db->runs->queues, q);
	return q;
}

static bool read_payload(const struct wire_col *c, enum qpayload *ret)
{
	return c->data != NULL && qpayload_read((const char *)c->data, (size_t)c->len, ret);
}

static void runs_row(void *arg, const uint8_t *body, size_t len)
{
	struct qdb *db = arg;
	struct run_queue *q;
	struct wire_col col[10];
	enum qpayload payload = QPAYLOAD_JSONB;
	char name[QSTMT_QUEUE_MAX + 1];
	int64_t ms = 0, batch = 0;

	if (!wire_row_read(body, len, col, 10) || !read_payload(&col[6], &payload) ||
		!wire_col_copy(&col[0], name, sizeof(name)) || (q = queue_of(db, name)) == NULL) {
		db->runs->failed = true;
		return;
	}
	if (q->owner[0] != '\0' && !wire_col_is(&col[1], q->owner))
		slots_end(q); /* those that wait for jobs do so in another login */
	wire_col_copy(&col[1], q->owner, sizeof(q->owner));
	q->super = wire_col_is(&col[2], "t");
	q->timeout = wire_col_number(&col[3], &ms) && ms > 0 ? (usec_t)ms * USEC_MSEC : 0;
	q->payload = payload;
	q->sql = wire_col_is(&col[4], "sql");
	q->batch = wire_col_number(&col[5], &batch) && batch > 0 ? (int)batch : 1;
	session_of_queue(q, &col[7], &col[8], &col[9]);
	q->found = true;
}

static void runs_done(void *arg, const struct pg_error *err)
{
	struct qdb *db = arg;
	struct run_queue *q, *tmp;

	db->runs->asks = false;
	if (err != NULL || db->runs->failed) {
		db->runs->asker++; /* another one may be able to, when it is asked next */
		return;
	}
	DL_FOREACH_SAFE (db->runs->queues, q, tmp) {
		if (q->found) {
			slots_add(q);
		} else {
			session_ends(q);
			slots_end(q);
		}
		if (q->slots == NULL)
			queue_end(q);
	}
	if (db->runs->again)
		runs_look(db, true);
}

static bool ask(struct qdb *db)
{
	static const struct task_ops ops = {.row = runs_row, .done = runs_done};
	struct task_spec spec = {.ops = &ops,
		.arg = db,
		.sql = queue_calls[CALL_RUNS].sql,
		.prepare = true,
		.time = TASK_SLOW};
	struct pool *pool;

	agents_see(db);
	pool = agent_any_pool(db, db->runs->asker);
	return pool != NULL && task_submit(pool, &spec) != NULL;
}

/* --- entry points --- */

void runs_look(struct qdb *db, bool any)
{
	struct run_queue *q;

	CHECK_QDB(db);
	if (db->runs == NULL && !any)
		return;
	if (db->runs == NULL && (db->runs = mem_zalloc(sizeof(*db->runs))) == NULL)
		return; /* when it is heard of next */
	db->runs->again = db->runs->asks;
	if (db->runs->asks)
		return;
	DL_FOREACH (db->runs->queues, q)
		q->found = false;
	db->runs->failed = false;
	db->runs->asks = ask(db);
}

void runs_free(struct qdb *db)
{
	if (db->runs == NULL)
		return;
	while (db->runs->queues != NULL)
		queue_end(db->runs->queues);
	mem_free(db->runs);
	db->runs = NULL;
}

/* --- shown --- */

static bool runs(const struct slot *s)
{
	return s->state == SLOT_RUNS && s->began != 0;
}

static const char *state_of(const struct slot *s, bool now)
{
	if (s->state == SLOT_HAS || !now || (s->state == SLOT_RUNS && s->began == 0))
		return "waiting";
	if (s->state == SLOT_FAILS)
		return "failing";
	return s->late || s->lost ? "ending" : "running";
}

/* The token is the number of its queue, its own, and a secret. */
static void put_job(char *ret, size_t size, const char *token)
{
	const char *end = strrchr(token, '-');

	(void)snprintf(ret, size, "%.*s", end != NULL ? (int)(end - token) : 0, token);
}

static int64_t jobs_before(const struct slot *s)
{
	const struct task_session *of = s->task != NULL ? task_session_of(s->task) : NULL;

	return of != NULL ? of->jobs : 0;
}

/* Of a batch, or carried out by itself; now, or it waits for its turn. */
static void one_run(const struct slot *s, const char *token, int attempt, bool of_batch, bool now,
	void (*fn)(const struct queue_stat_run *st, void *arg), void *arg)
{
	char job[TOKEN_MAX];
	struct queue_stat_run st = {.database = s->queue->db->name,
		.user = s->queue->owner,
		.queue = s->queue->name,
		.job = job,
		.state = state_of(s, now),
		.runs_in = !of_batch && s->there != NULL ? s->there->database : s->queue->db->name,
		.attempt = attempt,
		.pid = now && s->task != NULL ? task_backend_pid(s->task) : 0,
		.running_us = now && s->began != 0 ? loop_now() - s->began : 0,
		.left_us = -1,
		.before = -1};

	put_job(job, sizeof(job), token);
	if (now && s->there == NULL && s->queue->session.key != 0)
		st.before = jobs_before(s);
	if (now && runs(s) && s->timeout > 0)
		st.left_us = (int64_t)(s->began + s->timeout) - (int64_t)loop_now();
	fn(&st, arg);
}

static void runs_of(
	const struct slot *s, void (*fn)(const struct queue_stat_run *st, void *arg), void *arg)
{
	int together = batch_together(&s->batch);
	const struct batch_job *j;

	if (s->token[0] != '\0')
		one_run(s, s->token, s->attempt, false, true, fn, arg);
	BATCH_FOREACH (j, &s->batch)
		one_run(s, j->token, j->attempt, true, together-- > 0, fn, arg);
}

void queue_stat_each_run(void (*fn)(const struct queue_stat_run *st, void *arg), void *arg)
{
	struct run_queue *q;
	struct slot *s;

	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				DL_FOREACH (q->slots, s)
					runs_of(s, fn, arg);
}

void queue_stat_each_runs(void (*fn)(const struct queue_stat_runs *st, void *arg), void *arg)
{
	struct run_queue *q;
	struct slot *s;

	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		if (db->runs == NULL)
			continue;
		DL_FOREACH (db->runs->queues, q) {
			struct queue_stat_runs st = {.database = db->name,
				.queue = q->name,
				.done = q->done,
				.failed = q->failed,
				.again = q->again,
				.ran = q->ran};

			DL_FOREACH (q->slots, s)
				if (runs(s))
					st.running += s->batch.whole
							      ? (unsigned)batch_together(&s->batch)
							      : 1;
			fn(&st, arg);
		}
	}
}
