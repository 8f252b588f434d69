/*
 * A job of a slot is carried out, with the login of the queue's owner: as a task in which work and DONE are one
 * statement (queue._run_job), for SQL as several in one transaction (run_sql.c); or the look says that it runs elsewhere
 * (run_there.c) or outside of a transaction (run_alone.c), and that follows. With handler_batch several are one statement
 * (queue._run_batch); when that was rolled back each is run by itself.
 *
 * Must not know: what a job does; what becomes of it (run_outcome.c).
 *
 * Entry points: job_run(), job_stop().
 */
#include <string.h>

#include "queue_call.h"
#include "queue_int.h"
#include "run_int.h"

#define END_AGAIN USEC_SEC

static void run_done(void *arg, const struct pg_error *err);

/* The next task of what is not carried out where its DONE is; its time begins with it. */
static bool goes_on_with(struct slot *s, struct task *t)
{
	INVARIANT(s->task == NULL, "a job is carried out by two tasks");
	if (t == NULL)
		return false;
	s->task = t;
	s->at = USEC_NEVER;
	s->began = 0;
	slots_begin_one();
	return true;
}

/* DONE, with its rows, was refused, or is lost: it is said again, without them. A job that has been carried out is not
 * carried out once more for that. */
static void done_said(void *arg, const struct pg_error *err)
{
	struct slot *s = arg;

	if (err == NULL || s->alone == NULL || outcome_is_of_lease(err)) {
		run_done(s, err);
		return;
	}
	s->task = NULL;
	outcome_say_done(s);
	slots_end_one();
}

/* It is done, and cannot be ended any more. */
static bool submit_end(struct slot *s)
{
	static const struct task_ops ops = {.done = done_said};

	s->state = SLOT_FAILS;
	s->outcome = OUTCOME_DONE;
	return goes_on_with(s, run_sql_submit_done(s, &ops));
}

static bool go_there(struct slot *s)
{
	static const struct task_ops ops = {.row = run_sql_row,
		.columns = run_sql_columns,
		.tag = heard_step_tag,
		.next = run_sql_next,
		.done = run_done,
		.starts = heard_start,
		.notice = heard_notice,
		.error = heard_error};
	struct pg_error err;
	struct pool *pool;

	if (s->script == NULL) /* it was no queue of SQL when it was taken */
		return false;
	if (s->there->sent)
		return submit_end(s);
	pool = there_pool(s, &err);
	if (pool == NULL) {
		outcome_failed(s, &err);
		return true;
	}
	s->started = false;
	return goes_on_with(s, there_submit(s, pool, &ops));
}

static bool submit_alone(struct slot *s)
{
	static const struct task_ops ops = {.row = run_sql_row,
		.columns = run_sql_columns,
		.tag = heard_step_tag,
		.done = run_done,
		.starts = heard_start,
		.notice = heard_notice,
		.error = heard_error,
		.leaves = session_leaves};

	if (s->script == NULL) /* it was no queue of SQL when it was taken */
		return false;
	if (s->alone->sent)
		return submit_end(s);
	s->started = false;
	return goes_on_with(s, alone_submit(s, &ops));
}

static void run_succeeded(struct slot *s)
{
	struct pg_error ended;

	if (s->batch.whole) {
		outcome_of_batch(s);
		return;
	}
	switch (s->outcome) {
	case OUTCOME_DONE:
	case OUTCOME_FAILED:
	case OUTCOME_RELEASED:
		outcome_of_job(s, s->token, s->outcome);
		slot_rest(s, 0);
		return;
	case OUTCOME_ALONE:
		if ((s->there != NULL ? !s->there->sent : s->alone == NULL || !s->alone->sent) &&
			(s->lost || s->late)) {
			/* its end was asked for, and came too late for the look */
			pg_error_set(&ended, "57014", "not begun");
			outcome_failed(s, &ended);
			return;
		}
		if (s->there != NULL ? go_there(s) : submit_alone(s))
			return;
		break;
	case OUTCOME_UNREAD:
		break;
	}
	worker_give_back(s->worker, s->token);
	slot_rest(s, REST);
}

static void run_done(void *arg, const struct pg_error *err)
{
	struct slot *s = arg;

	s->task = NULL;
	if (s->began != 0)
		s->queue->ran += loop_now() - s->began;
	if (s->script != NULL && s->script->failed)
		err = &s->script->err;
	if (err == NULL)
		run_succeeded(s);
	else
		outcome_failed(s, err);
	slots_end_one();
}

static bool submit_run(struct slot *s)
{
	static const struct task_ops once = {.row = heard_look_row,
		.done = run_done,
		.starts = heard_start,
		.notice = heard_notice,
		.error = heard_error,
		.leaves = session_leaves};
	static const struct task_ops by_steps = {.row = heard_step_row,
		.columns = run_sql_columns,
		.tag = run_sql_tag,
		.next = run_sql_next,
		.done = run_done,
		.starts = heard_start,
		.notice = heard_notice,
		.error = heard_error,
		.leaves = session_leaves};
	struct bind_param params[LOOK_PARAMS];
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task_spec spec = {.ops = s->queue->sql ? &by_steps : &once,
		.arg = s,
		.settings = settings,
		.sql = queue_calls[CALL_RUN_JOB].sql,
		.before = s->queue->sql ? "BEGIN" : NULL,
		.slow = s->queue->sql, /* it looks what the job is */
		.oids = queue_calls[CALL_RUN_JOB].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.session = s->queue->session.key,
		.time = TASK_BESIDE,
		.stays = true};

	look_params(s, s->queue->sql, params);
	if (s->queue->sql)
		s->script = run_sql_new();
	if (settings != NULL && (!s->queue->sql || s->script != NULL) &&
		task_settings_utf8(settings))
		s->task = task_submit(s->pool, &spec);
	task_settings_free(&settings);
	return s->task != NULL;
}

static bool submit_batch(struct slot *s)
{
	static const struct task_ops ops = {.row = heard_batch_row,
		.done = run_done,
		.starts = heard_start,
		.notice = heard_notice,
		.error = heard_error,
		.leaves = session_leaves};
	struct buf sql = BUF_INIT, tokens = BUF_INIT, again = BUF_INIT;
	const uint8_t names = conf_current()->p.queue_run_superuser;
	struct bind_param params[] = {
		{.format = 1}, {.data = &names, .len = 1, .format = 1}, {.format = 1}};
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task_spec spec = {.ops = &ops,
		.arg = s,
		.settings = settings,
		.oids = queue_calls[CALL_RUN_BATCH].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.session = s->queue->session.key,
		.time = TASK_BESIDE,
		.stays = true};

	batch_begin(&s->batch, &sql, &tokens, &again);
	buf_puts(&sql, queue_calls[CALL_RUN_BATCH].sql);
	buf_putc(&sql, '\0');
	params[0].data = tokens.data;
	params[0].len = (int32_t)tokens.len;
	params[2].data = again.data;
	params[2].len = (int32_t)again.len;
	spec.sql = (const char *)sql.data;
	if (settings != NULL && task_settings_utf8(settings) && !buf_failed(&sql) &&
		!buf_failed(&tokens) && !buf_failed(&again))
		s->task = task_submit(s->pool, &spec);
	buf_free(&sql);
	buf_free(&tokens);
	buf_free(&again);
	task_settings_free(&settings);
	return s->task != NULL;
}

/* All that it has, or the first of them. false: nothing of it runs. */
static bool submit(struct slot *s)
{
	struct batch_job job;

	if (batch_left(&s->batch) > 1 && !s->batch.each && s->queue->batch > 1 &&
		loop_now() >= s->queue->each_until)
		return submit_batch(s);
	if (!batch_next(&s->batch, &job))
		return false;
	util_strlcpy(s->token, job.token, sizeof(s->token));
	s->attempt = job.attempt;
	if (outcome_had_failed(s))
		return false;
	if (submit_run(s))
		return true;
	worker_give_back(s->worker, s->token);
	return false;
}

void job_run(struct slot *s)
{
	(void)batch_drop_lost(&s->batch, outcome_let_go, s);
	if (batch_left(&s->batch) == 0) {
		slot_rest(s, 0);
		return;
	}
	s->state = SLOT_RUNS;
	s->at = USEC_NEVER;
	s->timeout = s->queue->timeout;
	if (!submit(s)) {
		if (s->state == SLOT_RUNS)
			slot_rest(s, REST);
		return;
	}
	slots_begin_one();
	slots_make_room();
}

/* What runs is to end: it is not wanted any more, or was not begun. Between two messages of a statement, where it is not
 * carried out yet, Postgres passes over a cancel: so it is asked again for as long as the statement lasts. A server that
 * does not answer to that is given up. */
void job_stop(struct slot *s)
{
	usec_t patience = conf_current()->p.queue_engine_timeout;
	struct pg_error err;
	struct task *t = s->task;

	s->at = USEC_NEVER;
	s->late = !s->lost;
	if (task_is_sent(t)) {
		if (s->ends_at == 0)
			s->ends_at = patience > 0 ? loop_now() + patience : USEC_NEVER;
		if (loop_now() >= s->ends_at) {
			task_abandon(t);
			return;
		}
		task_cancel(t);
		slot_look_at(s, loop_now() + END_AGAIN);
		return;
	}
	task_drop(&s->task);
	pg_error_set(&err, "57014", "not begun");
	run_done(s, &err);
}
