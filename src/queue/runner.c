/*
 * Jobs that run by themselves: of queues with a handler, or with run = sql. For each such queue there are slots; a slot
 * takes a job with the login of the queue's owner (worker.c), runs it there, as a task in which work and DONE are one
 * statement (queue._run_job), or for SQL several in one transaction (run_sql.c), and says FAIL when that was rolled
 * back. Which queues there are: run_queues.c. With
 * handler_batch it takes several, for one statement (queue._run_batch); when that was rolled back nobody is told, and
 * each is run by itself.
 *
 * Limits: so many slots of a queue, and so many jobs that run in this process (queue_run_pool_size). What is taken and
 * may not run yet waits in line, for a short time: then it is given back, as another proxy may have a place for it.
 *
 * Must not know: what a job does; the database runs it.
 *
 * Entry points: slots_add() and slots_end() for a queue, runs_start(), runs_stop().
 */
#include <stdio.h>
#include <string.h>

#include "wire/msg.h"
#include "wire/row.h"
#include "agent.h"
#include "queue_call.h"
#include "queue_int.h"
#include "run_slots.h"
#include "runner.h"

#define TAKE_FOR   (60 * USEC_SEC) /* then it is looked whether its login is still the same */
#define HOLD_FOR   (366 * 24 * 3600 * USEC_SEC)
#define REST       (5 * USEC_SEC) /* nobody can log in, or the database refuses */
#define IN_LINE    (2 * USEC_SEC)
#define END_AGAIN  USEC_SEC
#define SAID_AGAIN (60 * USEC_SEC)

static struct {
	struct loop_tick *tick;
	unsigned running; /* jobs of this process */
	uint64_t turns;
} all;

static void look_at(struct slot *s, usec_t at)
{
	s->at = at;
	loop_tick_at(all.tick, at);
}

static void alone_free(struct alone **p)
{
	struct alone *a = *p;

	*p = NULL;
	if (a == NULL)
		return;
	for (int i = 0; i < a->n; i++)
		mem_free(a->values[i].text);
	mem_free(a->sql);
	mem_free(a);
}

/* It has jobs, and waits for its turn with them. */
static void stand_in_line(struct slot *s)
{
	s->state = SLOT_HAS;
	s->turn = ++all.turns;
	s->at = loop_now() + IN_LINE;
	loop_tick_at(all.tick, loop_now());
}

/* What it was at has ended. If there are more jobs it goes on with these; not if something is wrong. */
static void rest(struct slot *s, usec_t time)
{
	s->state = SLOT_RESTS;
	s->batch.whole = false;
	s->token[0] = '\0';
	s->lost = s->started = s->late = s->plain = false;
	s->error[0] = '\0';
	s->outcome = OUTCOME_DONE;
	s->keep = KEEP_RESULT;
	s->began = s->ends_at = 0;
	told_nothing(&s->told);
	alone_free(&s->alone);
	run_sql_free(&s->script);
	there_free(&s->there);
	if (batch_left(&s->batch) > 0 && time == 0 && !s->leaves) {
		stand_in_line(s);
		return;
	}
	if (batch_left(&s->batch) > 0)
		worker_give_back_all(s->worker);
	batch_clear(&s->batch);
	look_at(s, loop_now() + time);
}

static bool has_place(void)
{
	return all.running < (unsigned)conf_current()->p.queue_run_pool_size;
}

static void stand_aside(struct slot *s)
{
	rest(s, REST);
	s->state = SLOT_ASIDE;
}

static void say(struct run_queue *q, const char *why)
{
	if (loop_now() < q->said_at)
		return;
	q->said_at = loop_now() + SAID_AGAIN;
	log_warning("%s: jobs of queue \"%s\" of role %s do not run: %s", q->db->name, q->name,
		q->owner, why);
}

/* --- a job runs --- */

static bool starts(void *arg, bool engine)
{
	struct slot *s = arg;

	(void)engine;
	s->started = true;
	s->began = loop_now();
	if (s->timeout > 0)
		look_at(s, loop_now() + s->timeout);
	return true;
}

static void noticed(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_notice n;

	wire_read_notice(body, len, &n);
	told_notice(&s->told, &n);
}

static void tagged(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;

	told_tag(&s->told, body, len);
}

static void errored(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_notice n;

	wire_read_notice(body, len, &n);
	told_error(&s->told, &n);
}

/* What the job is told to have failed with. */
static void keep_error(struct slot *s, const struct pg_error *err)
{
	if (s->late)
		(void)snprintf(s->error, sizeof(s->error),
			"timeout: the job ran longer than it may (%s)", err->sqlstate);
	else if (s->keep == KEEP_NONE)
		(void)snprintf(s->error, sizeof(s->error), "SQLSTATE %s", err->sqlstate);
	else
		(void)snprintf(s->error, sizeof(s->error), "%s (%s)%s%s%s%s", err->message,
			err->sqlstate, err->detail[0] != '\0' ? "\n" : "", err->detail,
			err->hint[0] != '\0' ? "\nHINT:  " : "", err->hint);
	if (s->keep != KEEP_NONE)
		told_put(&s->told, s->error, sizeof(s->error));
}

static bool is_of_lease(const struct pg_error *err)
{
	return strcmp(err->sqlstate, "QB001") == 0 || strcmp(err->sqlstate, "QB002") == 0;
}

/* One that was cancelled goes with its lease; of one that is somebody else's by now nothing is known here. */
static void let_go_of(void *arg, const char *token)
{
	const struct slot *s = arg;

	worker_give_back(s->worker, token);
}

/* All is as it was before; who is to blame is found when each is run by itself. */
static void batch_failed(struct slot *s, const struct pg_error *err)
{
	bool lost = batch_drop_lost(&s->batch, let_go_of, s) > 0;

	if (!lost && !s->started) {
		say(s->queue, err->message);
		rest(s, REST);
		return;
	}
	s->batch.each = !lost;
	rest(s, 0);
}

static void run_failed(struct slot *s, const struct pg_error *err)
{
	struct pg_error refused;

	if (s->batch.whole) {
		batch_failed(s, err);
		return;
	}
	if (s->lost) {
		let_go_of(s, s->token);
		rest(s, 0);
		return;
	}
	if (!s->started && s->there == NULL) { /* it was not tried */
		say(s->queue, err->message);
		worker_give_back(s->worker, s->token);
		rest(s, REST);
		return;
	}
	s->queue->failed++;
	/* whatever its SQLSTATE, which the job can choose: whether the lease is lost is said by FAIL */
	keep_error(s, err);
	s->state = SLOT_FAILS;
	if (!worker_fail(s->worker, s->token, s->error, &refused)) {
		worker_give_back(s->worker, s->token);
		rest(s, REST);
	}
}

/* The statement, and in the rows behind it its values. */
static bool alone_add(struct slot *s, const struct wire_col *col)
{
	struct alone *a = s->alone;
	char *text = NULL;

	if (col->len >= 0 && (text = mem_alloc((size_t)col->len + 1)) == NULL)
		return false;
	if (text != NULL) {
		memcpy(text, col->data, (size_t)col->len);
		text[col->len] = '\0';
	}
	if (a == NULL && text != NULL) {
		s->alone = a = mem_zalloc(sizeof(*a));
		if (a != NULL)
			a->sql = text;
	} else if (a != NULL && a->n < VALUES_MAX) {
		a->values[a->n].text = text;
		a->values[a->n++].len = text != NULL ? (size_t)col->len : 0;
	} else {
		a = NULL;
	}
	if (a == NULL)
		mem_free(text);
	return a != NULL;
}

/* How long it may run, whatever its queue says. */
static void hear_timeout(struct slot *s, const struct wire_col *c)
{
	int64_t ms;

	if (s->lost || s->late || !wire_col_number(c, &ms))
		return;
	s->timeout = (usec_t)ms * USEC_MSEC;
	look_at(s, s->began + s->timeout);
}

static void hear_keep(struct slot *s, const struct wire_col *c)
{
	static const char *const words[] = {[KEEP_RESULT] = "result",
		[KEEP_ALWAYS] = "always",
		[KEEP_ERROR] = "error",
		[KEEP_NONE] = "none"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (wire_col_is(c, words[i]))
			s->keep = (enum keep)i;
}

/* A part of what the job is. false: no memory. */
static bool hear_part(struct slot *s, const char *what, const struct wire_col *value)
{
	if (strcmp(what, "timeout") == 0) {
		hear_timeout(s, value);
	} else if (strcmp(what, "keep") == 0) {
		hear_keep(s, value);
	} else if (strcmp(what, "database") == 0 ||
		   (s->there != NULL &&
			   (strcmp(what, "session") == 0 || strcmp(what, "before") == 0))) {
		s->outcome = OUTCOME_ALONE;
		return there_look(&s->there, what, value);
	} else if (strcmp(what, "session") == 0 && s->alone != NULL) {
		wire_col_copy(value, s->alone->name, sizeof(s->alone->name));
	} else if (strcmp(what, "alone") == 0 || s->alone != NULL) {
		s->outcome = OUTCOME_ALONE;
		return alone_add(s, value);
	} else {
		return s->script != NULL && run_sql_look(s->script, what, value);
	}
	return true;
}

static bool is_put_back(const struct wire_col *ended, enum outcome *ret)
{
	if (wire_col_is(ended, "failed"))
		*ret = OUTCOME_FAILED;
	else if (wire_col_is(ended, "released"))
		*ret = OUTCOME_RELEASED;
	else
		return false;
	return true;
}

/* Of one job of those that were done together. */
static void batch_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_col col[2];
	char token[TOKEN_MAX];
	struct batch_job *j;

	if (!wire_row_read(body, len, col, 2) || !wire_col_copy(&col[0], token, sizeof(token)) ||
		(j = batch_find(&s->batch, token)) == NULL)
		return;
	if (!is_put_back(&col[1], &j->outcome))
		j->outcome = OUTCOME_DONE;
}

static void ended_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_col col[3];
	char what[16];

	if (s->outcome == OUTCOME_UNREAD)
		return;
	if (!wire_row_read(body, len, col, 3) || !wire_col_copy(&col[1], what, sizeof(what)))
		s->outcome = OUTCOME_UNREAD;
	else if (is_put_back(&col[1], &s->outcome))
		return;
	else if (strcmp(what, "done") != 0 && !hear_part(s, what, &col[2]))
		s->outcome = OUTCOME_UNREAD;
}

static void script_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;

	if (s->script->step == STEP_LOOK)
		ended_row(s, body, len);
	else
		run_sql_row(s, body, len);
}

/* Those who take, or want to, are told. */
static void one_less(void)
{
	struct run_queue *q;
	struct slot *s;

	all.running--;
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				DL_FOREACH (q->slots, s)
					if (s->state == SLOT_ASIDE)
						s->at = loop_now();
	loop_tick_at(all.tick, loop_now());
}

static bool submit_alone(struct slot *s);
static void run_done(void *arg, const struct pg_error *err);

static void say_done(struct slot *s)
{
	struct buf result = BUF_INIT;
	struct pg_error refused;
	bool ok;

	s->state = SLOT_FAILS;
	told_result(&s->told, &result);
	ok = !buf_failed(&result) &&
	     worker_done(s->worker, s->token,
		     s->keep <= KEEP_ALWAYS ? (const char *)result.data : NULL, &refused);
	buf_free(&result);
	if (ok) {
		s->queue->done++;
		return;
	}
	worker_give_back(s->worker, s->token);
	rest(s, REST);
}

/* It was committed. */
static void job_ended(struct slot *s, const char *token, enum outcome outcome)
{
	if (outcome == OUTCOME_DONE) {
		s->queue->done++;
		worker_was_done(s->worker, token);
	} else if (outcome == OUTCOME_FAILED || outcome == OUTCOME_RELEASED) {
		s->queue->again++;
		worker_was_put_back(s->worker, token, outcome == OUTCOME_FAILED);
	} else {
		worker_give_back(s->worker, token);
	}
}

static void batch_succeeded(struct slot *s)
{
	const struct batch_job *j;

	BATCH_FOREACH (j, &s->batch)
		job_ended(s, j->token, j->outcome);
	batch_clear(&s->batch);
	rest(s, 0);
}

static void tagged_there(void *arg, const uint8_t *body, size_t len)
{
	tagged(arg, body, len);
	run_sql_tag(arg, body, len);
}

/* The next task of what is not carried out where its DONE is; its time begins with it. */
static bool goes_on_with(struct slot *s, struct task *t)
{
	INVARIANT(s->task == NULL, "a job is carried out by two tasks");
	if (t == NULL)
		return false;
	s->task = t;
	s->at = USEC_NEVER;
	s->began = 0;
	all.running++;
	return true;
}

/* It is done there, and cannot be ended any more. */
static bool submit_end(struct slot *s)
{
	static const struct task_ops ops = {.done = run_done};

	s->state = SLOT_FAILS;
	s->outcome = OUTCOME_DONE;
	return goes_on_with(s, there_submit_end(s, &ops));
}

static bool go_there(struct slot *s)
{
	static const struct task_ops ops = {.row = run_sql_row,
		.columns = run_sql_columns,
		.tag = tagged_there,
		.next = run_sql_next,
		.done = run_done,
		.starts = starts,
		.notice = noticed,
		.error = errored};
	struct pg_error err;
	struct pool *pool;

	if (s->script == NULL) /* it was no queue of SQL when it was taken */
		return false;
	if (s->there->sent && s->alone == NULL)
		return submit_end(s);
	if (s->there->sent) {
		say_done(s);
		return true;
	}
	pool = there_pool(s, &err);
	if (pool == NULL) {
		run_failed(s, &err);
		return true;
	}
	s->started = false;
	return goes_on_with(s, there_submit(s, pool, &ops));
}

static void run_succeeded(struct slot *s)
{
	struct pg_error ended;

	if (s->batch.whole) {
		batch_succeeded(s);
		return;
	}
	switch (s->outcome) {
	case OUTCOME_DONE:
	case OUTCOME_FAILED:
	case OUTCOME_RELEASED:
		job_ended(s, s->token, s->outcome);
		rest(s, 0);
		return;
	case OUTCOME_ALONE:
		if (s->alone != NULL && s->alone->sent) {
			say_done(s);
			return;
		}
		if ((s->there == NULL || !s->there->sent) && (s->lost || s->late)) {
			/* its end was asked for, and came too late for the look */
			pg_error_set(&ended, "57014", "not begun");
			run_failed(s, &ended);
			return;
		}
		if (s->there != NULL ? go_there(s) : submit_alone(s))
			return;
		break;
	case OUTCOME_UNREAD:
		break;
	}
	worker_give_back(s->worker, s->token);
	rest(s, REST);
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
		run_failed(s, err);
	one_less();
}

/* Its values are texts, as the statement wants them. */
static bool submit_alone(struct slot *s)
{
	static const struct task_ops ops = {.done = run_done,
		.starts = starts,
		.tag = tagged,
		.notice = noticed,
		.error = errored};
	static const uint32_t any[VALUES_MAX]; /* types: as the statement has them */
	struct alone *a = s->alone;
	struct bind_param params[VALUES_MAX];
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task_spec spec = {.ops = &ops,
		.arg = s,
		.settings = settings,
		.sql = a->sql,
		.oids = any,
		.n_params = a->n,
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.time = TASK_BESIDE,
		.stays = true};

	for (int i = 0; i < a->n; i++)
		params[i] = (struct bind_param){.data = (const uint8_t *)a->values[i].text,
			.len = a->values[i].text != NULL ? (int32_t)a->values[i].len : -1};
	if (settings != NULL && task_settings_utf8(settings) &&
		task_settings_name(settings, a->name))
		s->task = task_submit(s->pool, &spec);
	task_settings_free(&settings);
	if (s->task == NULL)
		return false;
	a->sent = true;
	s->started = false;
	s->at = USEC_NEVER; /* its time begins with the statement */
	s->began = 0;
	all.running++;
	return true;
}

static bool submit_run(struct slot *s)
{
	static const struct task_ops once = {.row = ended_row,
		.done = run_done,
		.starts = starts,
		.notice = noticed,
		.error = errored};
	static const struct task_ops by_steps = {.row = script_row,
		.columns = run_sql_columns,
		.tag = run_sql_tag,
		.next = run_sql_next,
		.done = run_done,
		.starts = starts,
		.notice = noticed,
		.error = errored};
	const char *names = conf_current()->p.queue_run_superuser ? "t" : "f";
	const struct bind_param params[] = {
		{.data = (const uint8_t *)s->token, .len = (int32_t)strlen(s->token)},
		{.data = (const uint8_t *)names, .len = 1},
		{.data = (const uint8_t *)s->queue->db->name,
			.len = (int32_t)strlen(s->queue->db->name)}};
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task_spec spec = {.ops = s->queue->sql ? &by_steps : &once,
		.arg = s,
		.settings = settings,
		.sql = queue_calls[CALL_RUN_JOB].sql,
		.before = s->queue->sql ? "BEGIN" : NULL,
		.oids = queue_calls[CALL_RUN_JOB].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.time = TASK_BESIDE,
		.stays = true};

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
	static const struct task_ops ops = {.row = batch_row,
		.done = run_done,
		.starts = starts,
		.notice = noticed,
		.error = errored};
	struct buf tokens = BUF_INIT;
	const uint8_t names = conf_current()->p.queue_run_superuser;
	struct bind_param params[] = {{.format = 1}, {.data = &names, .len = 1, .format = 1}};
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task_spec spec = {.ops = &ops,
		.arg = s,
		.settings = settings,
		.sql = queue_calls[CALL_RUN_BATCH].sql,
		.oids = queue_calls[CALL_RUN_BATCH].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.time = TASK_BESIDE,
		.stays = true};

	batch_begin(&s->batch, &tokens);
	params[0].data = tokens.data;
	params[0].len = (int32_t)tokens.len;
	if (settings != NULL && task_settings_utf8(settings) && !buf_failed(&tokens))
		s->task = task_submit(s->pool, &spec);
	buf_free(&tokens);
	task_settings_free(&settings);
	return s->task != NULL;
}

/* All that it has, or the first of them. */
static bool submit(struct slot *s)
{
	struct batch_job job;

	if (batch_left(&s->batch) > 1 && !s->batch.each && s->queue->batch > 1)
		return submit_batch(s);
	if (!batch_next(&s->batch, &job))
		return false;
	util_strlcpy(s->token, job.token, sizeof(s->token));
	s->attempt = job.attempt;
	if (submit_run(s))
		return true;
	worker_give_back(s->worker, s->token);
	return false;
}

static void run(struct slot *s)
{
	(void)batch_drop_lost(&s->batch, let_go_of, s);
	if (batch_left(&s->batch) == 0) {
		rest(s, 0);
		return;
	}
	s->state = SLOT_RUNS;
	s->at = USEC_NEVER;
	s->timeout = s->queue->timeout;
	if (submit(s))
		all.running++;
	else
		rest(s, REST);
}

/* --- what its worker hears --- */

static void on_job(void *arg, const struct wire_col *cols)
{
	struct slot *s = arg;
	struct batch_job job = {.lost = false};
	int64_t n = 0;

	wire_col_copy(&cols[TAKEN_token], job.token, sizeof(job.token));
	job.attempt = wire_col_number(&cols[TAKEN_attempt], &n) ? (int)n : 0;
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
		look_at(s, loop_now());
}

/* The database does not have the characters of what it was told; those of ASCII each one has. A job that is given back
 * for that would be carried out again and again. */
static bool say_plainly(struct slot *s, const struct pg_error *err)
{
	struct pg_error refused;

	if (s->plain ||
		(strcmp(err->sqlstate, "22P05") != 0 && strcmp(err->sqlstate, "22021") != 0))
		return false;
	s->plain = true;
	if (s->error[0] != '\0') {
		told_in_ascii(s->error);
		return worker_fail(s->worker, s->token, s->error, &refused);
	}
	told_in_ascii(s->told.notices);
	s->queue->done--; /* it is counted by what follows */
	say_done(s);
	return true;
}

static void on_ended(void *arg, const struct pg_error *err)
{
	struct slot *s = arg;

	if (s->state == SLOT_TAKES && batch_left(&s->batch) > 0) {
		stand_in_line(s);
		return;
	}
	if (err != NULL && s->state == SLOT_FAILS && is_of_lease(err)) {
		/* cancelled; or somebody else has ended it, or it was done */
		let_go_of(s, s->token);
		err = NULL;
	} else if (err != NULL && s->state == SLOT_FAILS && say_plainly(s, err)) {
		return;
	} else if (err != NULL && s->state == SLOT_FAILS) {
		worker_give_back(s->worker, s->token);
	}
	if (err != NULL)
		say(s->queue, err->message);
	rest(s, err != NULL ? REST : 0);
}

static const struct worker_ops worker_ops = {.job = on_job, .lost = on_lost, .ended = on_ended};

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
		all.running--;
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
		rest(s, 0);
	}
}

/* The login may have become another one: the entry of the database was changed, or is gone. */
static bool has_login(struct slot *s)
{
	struct run_queue *q = s->queue;
	struct pool *pool = agent_pool(q->db, q->owner);

	if (pool != s->pool)
		let_go(s);
	if (q->super && !conf_current()->p.queue_run_superuser)
		say(q, "it is a superuser: give the queue to another role, or set queue_run_superuser");
	else if (pool == NULL)
		say(q, "nobody here can log in as this role: give its password to auth_file");
	else if (s->worker == NULL &&
		 (s->worker = worker_new(q->db->name, pool_user(pool), &worker_ops, s)) != NULL)
		s->pool = pool;
	return s->worker != NULL && (!q->super || conf_current()->p.queue_run_superuser);
}

static void take(struct slot *s)
{
	if (!has_place()) {
		stand_aside(s);
		return;
	}
	slots_add(s->queue); /* there may be more by now */
	if (pooler_is_shutting_down() != SHUTDOWN_NONE || s->queue->db->schema != SCHEMA_PRESENT ||
		!has_login(s) ||
		!worker_take(s->worker, s->queue->name, s->queue->payload, s->queue->batch,
			TAKE_FOR, HOLD_FOR)) {
		rest(s, REST);
		return;
	}
	s->state = SLOT_TAKES;
	s->at = USEC_NEVER;
}

/* What runs is to end: it is not wanted any more, or was not begun. Between two messages of a statement, where it is not
 * carried out yet, Postgres passes over a cancel: so it is asked again for as long as the statement lasts. A server that
 * does not answer to that is given up. */
static void end_run(struct slot *s)
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
		look_at(s, loop_now() + END_AGAIN);
		return;
	}
	task_drop(&s->task);
	pg_error_set(&err, "57014", "not begun");
	run_done(s, &err);
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
		stand_aside(s);
		break;
	case SLOT_RUNS:
		end_run(s);
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

	while (has_place() && (s = longest_waiting()) != NULL)
		run(s);
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
	all.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return all.tick != NULL;
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
	loop_tick_at(all.tick, loop_now());
}

void runs_stop(void)
{
	struct run_queue *q;

	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				while (q->slots != NULL)
					slot_free(q->slots);
	loop_tick_free(&all.tick);
}
