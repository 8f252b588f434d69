/*
 * A taker of the proxy's own (worker.h). What a client is told at once is kept until the next turn of the loop here, so
 * that nobody is called who has just called. Must not know: what the jobs are.
 *
 * Entry points: worker_*.
 */
#include <string.h>

#include "wire/msg.h"
#include "await.h"
#include "back.h"
#include "count.h"
#include "engine.h"
#include "lease.h"
#include "park.h"
#include "queue_call.h"
#include "queue_int.h"
#include "take.h"
#include "wakes.h"
#include "worker.h"

#define WORKER_NAME "qbouncer" /* as QUEUE WORKERS names it */

enum worker_state {
	WORKER_IDLE,
	WORKER_BUSY,
	WORKER_ENDED, /* what it did; that is to be told */
};

struct worker {
	struct taker taker;
	const struct worker_ops *ops;
	void *arg;
	struct loop_tick *tick;
	enum worker_state state;
	bool failed;
	struct answer answer; /* with jobs */
	struct pg_error err;
	struct names lost;
	/* of a DONE or FAIL: it, and its values */
	struct qstmt *q;
	struct task_settings *settings;
	char *values[2];
};

static struct worker *of_taker(const struct taker *t)
{
	return CONTAINER_OF(t, struct worker, taker);
}

/* --- what it hears --- */

static void forget_statement(struct worker *w)
{
	qstmt_free(&w->q);
	task_settings_free(&w->settings);
	for (size_t i = 0; i < ARRAY_LEN(w->values); i++) {
		mem_free(w->values[i]);
		w->values[i] = NULL;
	}
}

static void tell_soon(struct worker *w)
{
	loop_tick_at(w->tick, loop_now());
}

static void lost(struct taker *t, const char *token)
{
	struct worker *w = of_taker(t);

	/* without memory it finds out by what it says of the job next */
	names_add(&w->lost, token);
	tell_soon(w);
}

static void give_back_all(struct taker *t)
{
	struct lease *l;

	DL_FOREACH (t->leases, l)
		lost(t, l->token);
	lease_taker_ended(t, false, true);
	lease_free_all(t);
}

/* A job whose DONE is under way is not given back before that has ended. */
static void changed(struct taker *t)
{
	bool gone = !pooler_has_database(t->db->name);
	struct pg_error err;

	if (!gone && pooler_is_shutting_down() == SHUTDOWN_NONE)
		return;
	pg_error_set(&err, "57P01", "database removed");
	if (gone && t->park != NULL)
		park_fail(t->park, &err);
	if (t->request == NULL)
		give_back_all(t);
}

static void ended(struct worker *w)
{
	CHECK_TAKER(&w->taker);
	INVARIANT(w->state == WORKER_BUSY, "a worker ends what it has not begun");
	w->state = WORKER_ENDED;
	tell_soon(w);
}

static void answer(struct taker *t, struct answer *a)
{
	answer_free(a);
	ended(of_taker(t));
	changed(t);
}

/* A take is a transaction of its own. */
static void deliver(struct taker *t, struct answer *a)
{
	struct worker *w = of_taker(t);

	w->answer = *a;
	*a = (struct answer){0};
	lease_tx_ended(t, true, false);
	ended(w);
	changed(t);
}

static void fail(struct taker *t, const struct pg_error *err)
{
	struct worker *w = of_taker(t);

	w->err = *err;
	w->failed = true;
	ended(w);
	changed(t);
}

/* --- what it is --- */

static uint64_t no_id(const struct taker *t)
{
	(void)t;
	return 0;
}

static const char *its_user(const struct taker *t)
{
	return pool_user(t->pool);
}

static const char *its_address(const struct taker *t)
{
	(void)t;
	return NULL;
}

/* Those of a session of the role, but for how texts come: a payload or an error may hold any character. */
static struct task_settings *settings_of(const struct pool *p)
{
	struct task_settings *s = task_settings_of_pool(p);

	if (s != NULL && !task_settings_utf8(s))
		task_settings_free(&s);
	return s;
}

static struct task_settings *its_settings(const struct taker *t)
{
	return settings_of(t->pool);
}

static void speaks(const struct taker *t, struct task_spec *spec)
{
	spec->settings = of_taker(t)->settings;
}

static bool is_there(const struct taker *t)
{
	(void)t;
	return true;
}

static bool is_to_leave(const struct taker *t)
{
	(void)t;
	return pooler_is_shutting_down() != SHUTDOWN_NONE;
}

/* The answer that follows is all that it is told. */
static void send_away(struct taker *t)
{
	(void)t;
}

static const struct taker_ops taker_ops = {.kind = "worker",
	.id = no_id,
	.user = its_user,
	.address = its_address,
	.settings = its_settings,
	.speaks = speaks,
	.is_there = is_there,
	.is_to_leave = is_to_leave,
	.deliver = deliver,
	.answer = answer,
	.fail = fail,
	.send_away = send_away,
	.lost = lost,
	.changed = changed};

/* --- what its owner hears --- */

/* Each row is a message. */
static void tell_jobs(struct worker *w, const struct answer *a)
{
	struct wire_col cols[TAKEN_COLUMNS];
	struct wire_reader r;

	wire_reader_init(&r, a->rows.data, a->rows.len);
	while (wire_left(&r) > 0) {
		size_t len;
		const uint8_t *body;

		(void)wire_get_u8(&r);
		len = (size_t)wire_get_i32(&r) - 4;
		body = wire_get_bytes(&r, len);
		INVARIANT(body != NULL && wire_row_read(body, len, cols, TAKEN_COLUMNS),
			"jobs are kept in other rows than they are read from");
		w->ops->job(w->arg, cols);
	}
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct worker *w = arg;
	struct names gone = names_take(&w->lost);
	struct answer a = w->answer;
	struct pg_error err = w->err;
	bool failed = w->failed;

	(void)now;
	w->answer = (struct answer){0};
	if (w->state == WORKER_ENDED)
		tell_jobs(w, &a);
	answer_free(&a);
	NAMES_FOREACH (token, &gone)
		w->ops->lost(w->arg, token);
	names_free(&gone);
	if (w->state != WORKER_ENDED)
		return USEC_NEVER;
	forget_statement(w);
	w->state = WORKER_IDLE;
	w->failed = false;
	w->ops->ended(w->arg, failed ? &err : NULL);
	return USEC_NEVER;
}

/* --- what it does --- */

bool worker_take(struct worker *w, const char *queue, enum qpayload payload, int limit, usec_t wait,
	usec_t hold)
{
	const struct bind_values none = {0};
	struct take_args a = {
		.limit = limit, .wait = wait, .payload = payload, .bare = w->ops->bare};
	struct names names = {0};
	bool ok;

	CHECK_TAKER(&w->taker);
	INVARIANT(w->state == WORKER_IDLE, "a worker does two things at once");
	INVARIANT(limit > 0 && limit <= LIMIT_MAX && hold > 0, "a worker takes what nobody can");
	names_add(&names, queue);
	ok = take_args_queues(&a, &names) && take_args_hold(&a, hold) &&
	     (a.as = mem_strdup(WORKER_NAME)) != NULL;
	w->state = WORKER_BUSY;
	ok = ok && waiter_start(&w->taker, &a, &none, TAKEN_COLUMNS);
	if (!ok)
		w->state = WORKER_IDLE;
	names_free(&names);
	take_args_free(&a);
	return ok;
}

/* The bytes stay until it has ended: it may be sent again. */
static bool keep_value(struct worker *w, int i, const char *text, struct bind_param *p)
{
	*p = (struct bind_param){.len = -1};
	if (text == NULL)
		return true;
	w->values[i] = mem_strdup(text);
	*p = (struct bind_param){
		.data = (const uint8_t *)w->values[i], .len = (int32_t)strlen(text)};
	return w->values[i] != NULL;
}

static bool submit(struct worker *w, const struct bind_values *bind, struct pg_error *err)
{
	struct call call = {0};
	bool ok;

	ok = call_make(&w->taker, w->q, bind, &call, err) &&
	     engine_submit(&w->taker, w->q, &call, bind, NULL, err);
	call_free(&call);
	return ok;
}

static bool finish(struct worker *w, const char *sql, const char *token, const char *text,
	struct pg_error *err)
{
	struct bind_param params[2];
	const struct bind_values bind = {.n_params = 2, .params = params};

	CHECK_TAKER(&w->taker);
	INVARIANT(w->state == WORKER_IDLE, "a worker does two things at once");
	w->state = WORKER_BUSY;
	pg_error_set(err, "53200", "out of memory");
	w->settings = settings_of(w->taker.pool);
	if (w->settings != NULL && keep_value(w, 0, token, &params[0]) &&
		keep_value(w, 1, text, &params[1]) &&
		(w->q = qstmt_parse(sql, strlen(sql), true, NULL, 0, err)) != NULL &&
		submit(w, &bind, err))
		return true;
	forget_statement(w);
	w->state = WORKER_IDLE;
	return false;
}

bool worker_done(struct worker *w, const char *token, const char *result, struct pg_error *err)
{
	return finish(w, "QUEUE DONE $1 RESULT $2", token, result, err);
}

bool worker_fail(
	struct worker *w, const char *token, const char *error, bool final, struct pg_error *err)
{
	return finish(w, final ? "QUEUE FAIL $1 ERROR $2 FINAL" : "QUEUE FAIL $1 ERROR $2", token,
		error, err);
}

void worker_was_done(struct worker *w, const char *token)
{
	usec_t since = 0;
	struct tally *tally = lease_finish(&w->taker, token, true, false, &since);
	struct figures *f = tally != NULL ? count_in(&w->taker, tally, false) : NULL;

	CHECK_TAKER(&w->taker);
	count_done(QVERB_DONE, 1);
	if (f != NULL)
		f->n[FIGURE_DONE]++;
	if (f != NULL && since != 0)
		figures_ran(f, (int64_t)(loop_now() - since));
	done_remember(token);
	await_ended(&w->taker, token, true, false);
}

void worker_was_put_back(struct worker *w, const char *token, bool failed)
{
	usec_t since = 0;
	struct tally *tally = lease_finish(&w->taker, token, false, false, &since);

	CHECK_TAKER(&w->taker);
	count_done(failed ? QVERB_FAIL : QVERB_RELEASE, 1);
	if (failed && tally != NULL) {
		struct figures *f = count_in(&w->taker, tally, false);

		f->n[FIGURE_FAILED]++;
		if (since != 0)
			figures_ran(f, (int64_t)(loop_now() - since));
	}
	await_ended(&w->taker, token, false, false);
}

void worker_give_back(struct worker *w, const char *token)
{
	const struct lease *l = lease_find(&w->taker, token);
	usec_t since;

	CHECK_TAKER(&w->taker);
	if (l == NULL)
		return;
	give_back(w->taker.db, w->taker.pool, &token, 1, l->place, "");
	(void)lease_finish(&w->taker, token, false, false, &since);
}

bool worker_holds(struct worker *w, const char *token)
{
	const struct lease *l = lease_find(&w->taker, token);

	CHECK_TAKER(&w->taker);
	return l != NULL && !l->cancelled && loop_now() < l->renewed_at + l->span;
}

void worker_give_back_all(struct worker *w)
{
	CHECK_TAKER(&w->taker);
	lease_taker_ended(&w->taker, false, true);
	lease_free_all(&w->taker);
}

void worker_cancel(struct worker *w)
{
	CHECK_TAKER(&w->taker);
	if (w->taker.park != NULL)
		park_cancel(&w->taker);
	else if (w->taker.request != NULL)
		engine_cancel(&w->taker);
}

/* --- life --- */

struct worker *worker_new(
	const char *database, const char *user, const struct worker_ops *ops, void *arg)
{
	struct pool *pool = pooler_find_pool(database, user);
	struct qdb *db = pool != NULL ? qdb_get(database) : NULL;
	struct worker *w = db != NULL ? mem_zalloc(sizeof(*w)) : NULL;

	if (w == NULL)
		return NULL;
	w->ops = ops;
	w->arg = arg;
	w->tick = loop_tick_new(on_tick, w, USEC_NEVER);
	if (w->tick == NULL) {
		mem_free(w);
		return NULL;
	}
	pool_keep(pool);
	db->had_clients = true;
	taker_begin(&w->taker, &taker_ops, db, pool);
	return w;
}

void worker_free(struct worker **p)
{
	struct worker *w = *p;

	*p = NULL;
	if (w == NULL)
		return;
	park_taker_ended(&w->taker);
	engine_taker_ended(&w->taker);
	lease_taker_ended(&w->taker, false, true);
	lease_free_all(&w->taker);
	wakes_drop(&w->taker);
	taker_end(&w->taker);
	pool_let_go(w->taker.pool);
	forget_statement(w);
	answer_free(&w->answer);
	names_free(&w->lost);
	loop_tick_free(&w->tick);
	mem_free(w);
}
