/*
 * Jobs that run by themselves: of queues with a handler, or with run = sql (run_queues.c). For each such queue there are
 * slots; a slot takes a job, or several with handler_batch, with the login of the queue's owner (worker.c), and when
 * there is a place for it, it runs (run_job.c).
 *
 * Limits: so many slots of a queue, and so many jobs that run in this process (queue_run_pool_size). What is taken and
 * may not run yet waits in line, for a short time: then it is given back, as another proxy may have a place for it.
 *
 * Must not know: how a job is carried out, and what becomes of it.
 *
 * Entry points: slots_add() and slots_end() for a queue, runs_start(), runs_stop().
 */
#include <string.h>

#include "agent.h"
#include "queue_call.h"
#include "queue_int.h"
#include "run_int.h"
#include "runner.h"

#define TAKE_FOR (60 * USEC_SEC) /* then it is looked whether its login is still the same */
#define HOLD_FOR (366 * 24 * 3600 * USEC_SEC)

/* --- what its worker hears --- */

static void on_job(void *arg, const struct wire_col *cols)
{
	struct slot *s = arg;
	struct batch_job job = {.lost = false};
	int64_t n = 0, takes = 0;

	wire_col_copy(&cols[TAKEN_token], job.token, sizeof(job.token));
	job.attempt = wire_col_number(&cols[TAKEN_attempt], &n) ? (int)n : 0;
	job.again = !wire_col_number(&cols[TAKEN_takes], &takes) || takes > 1;
	if (!batch_add(&s->batch, &job))
		worker_give_back(s->worker, job.token);
}

static void on_lost(void *arg, const char *token)
{
	struct slot *s = arg;

	struct batch_job *other = batch_find(&s->batch, token);

	if (other != NULL)
		other->lost = true;
	else if (s->token[0] != '\0' && strcmp(s->token, token) == 0)
		s->lost = true;
	else
		return;
	if (s->state == SLOT_RUNS && (other == NULL || s->batch.whole))
		slot_look_at(s, loop_now());
}

static void on_ended(void *arg, const struct pg_error *err)
{
	struct slot *s = arg;

	if (s->state == SLOT_TAKES && batch_left(&s->batch) > 0) {
		slot_stand_in_line(s);
		return;
	}
	if (s->state == SLOT_FAILS) {
		outcome_said(s, err);
		return;
	}
	if (err != NULL)
		slots_say(s->queue, err->message);
	slot_rest(s, err != NULL ? REST : 0);
}

static const struct worker_ops worker_ops = {
	.bare = true, .job = on_job, .lost = on_lost, .ended = on_ended};

/* --- slots --- */

static void let_go(struct slot *s)
{
	worker_free(&s->worker);
	s->pool = NULL;
}

static void slot_free(struct slot *s)
{
	struct run_queue *q = s->queue;

	if (s->task != NULL) {
		task_drop(&s->task);
		slots_end_one();
	}
	let_go(s);
	alone_free(&s->alone);
	run_sql_free(&s->script);
	there_free(&s->there);
	batch_free(&s->batch);
	DL_DELETE(q->slots, s);
	q->n_slots--;
	mem_free(s);
}

/* One at least: it looks whether there is a place since. */
static int slots_wanted(void)
{
	int n = conf_current()->p.queue_run_pool_size;

	return n > 0 ? n : 1;
}

void slots_add(struct run_queue *q)
{
	struct slot *s;

	DL_FOREACH (q->slots, s)
		s->leaves = false;
	while (q->n_slots < slots_wanted() && (s = mem_zalloc(sizeof(*s))) != NULL) {
		s->queue = q;
		DL_APPEND(q->slots, s);
		q->n_slots++;
		slot_rest(s, 0);
	}
}

/* The login may have become another one: the entry of the database was changed, or is gone. */
static bool has_login(struct slot *s)
{
	struct run_queue *q = s->queue;
	struct pool *pool = agent_pool(q->db, q->owner);

	if (pool != s->pool) {
		if (s->pool != NULL && q->session.key != 0)
			task_sessions_end(q->session.key);
		let_go(s);
	}
	if (q->super && !conf_current()->p.queue_run_superuser)
		slots_say(q,
			"it is a superuser: give the queue to another role, or set queue_run_superuser");
	else if (pool == NULL)
		slots_say(q, "nobody here can log in as this role: give its password to auth_file");
	else if (s->worker == NULL &&
		 (s->worker = worker_new(q->db->name, pool_user(pool), &worker_ops, s)) != NULL)
		s->pool = pool;
	return s->worker != NULL && (!q->super || conf_current()->p.queue_run_superuser);
}

static void take(struct slot *s)
{
	if (!slots_have_place()) {
		slot_stand_aside(s);
		return;
	}
	slots_add(s->queue); /* there may be more by now */
	if (pooler_is_shutting_down() != SHUTDOWN_NONE || s->queue->db->schema != SCHEMA_PRESENT ||
		!has_login(s) ||
		!worker_take(s->worker, s->queue->name, s->queue->payload, s->queue->batch,
			TAKE_FOR, HOLD_FOR)) {
		slot_rest(s, REST);
		return;
	}
	s->state = SLOT_TAKES;
	s->at = USEC_NEVER;
}

static void slot_due(struct slot *s)
{
	switch (s->state) {
	case SLOT_RESTS:
	case SLOT_ASIDE:
		if (s->leaves || s->queue->n_slots > slots_wanted())
			slot_free(s);
		else
			take(s);
		break;
	case SLOT_HAS:
		slot_stand_aside(s);
		break;
	case SLOT_RUNS:
		job_stop(s);
		break;
	case SLOT_TAKES:
	case SLOT_FAILS:
		s->at = USEC_NEVER;
	}
}

static struct slot *longest_waiting(void)
{
	struct slot *found = NULL, *s;
	struct run_queue *q;

	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				DL_FOREACH (q->slots, s)
					if (s->state == SLOT_HAS &&
						(found == NULL || s->turn < found->turn))
						found = s;
	return found;
}

static void run_next(void)
{
	struct slot *s;

	while (slots_have_place() && (s = longest_waiting()) != NULL)
		job_run(s);
}

static usec_t serve(struct qdb *db, usec_t now)
{
	usec_t next = USEC_NEVER;
	struct run_queue *q;
	struct slot *s, *tmp;

	DL_FOREACH (db->runs->queues, q)
		DL_FOREACH_SAFE (q->slots, s, tmp)
			if (s->at <= now)
				slot_due(s);
	DL_FOREACH (db->runs->queues, q)
		DL_FOREACH (q->slots, s)
			if (s->at < next)
				next = s->at;
	return next;
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER, at;

	(void)arg;
	run_next();
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL && (at = serve(db, now)) < next)
			next = at;
	return next;
}

/* Those that run end first. */
void slots_end(struct run_queue *q)
{
	struct slot *s, *tmp;

	DL_FOREACH_SAFE (q->slots, s, tmp)
		if (s->state == SLOT_RUNS || s->state == SLOT_FAILS)
			s->leaves = true;
		else
			slot_free(s);
}

/* --- entry points --- */

bool runs_start(void)
{
	return slots_clock_start(on_tick);
}

/* There may be places now, or a password. A queue that is about to go has no slot that stays. */
void runs_reloaded(void)
{
	struct run_queue *q;
	struct slot *s;

	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q) {
				bool stays = false;

				DL_FOREACH (q->slots, s) {
					if (s->state == SLOT_RESTS || s->state == SLOT_ASIDE)
						s->at = loop_now();
					stays = stays || !s->leaves;
				}
				if (stays)
					slots_add(q);
			}
	slots_make_room();
	slots_look();
}

void runs_stop(void)
{
	struct run_queue *q;

	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				while (q->slots != NULL)
					slot_free(q->slots);
	slots_clock_stop();
}
