/*
 * The interceptor: claims QUEUE statements, decides which way each goes, and hears of the ends of
 * transactions and sessions. What runs where: in place on the client's server through `replace`,
 * merged through the engine, TAKE and POP (take.c) through the waiting room.
 */
#include <stdio.h>
#include <string.h>

#include "queue/queue.h"
#include "queue/stat.h"
#include "qlang/explain.h"
#include "wire/sqltext.h"
#include "agent.h"
#include "attend.h"
#include "await.h"
#include "back.h"
#include "consumer.h"
#include "count.h"
#include "deferred.h"
#include "engine.h"
#include "figures.h"
#include "head.h"
#include "held.h"
#include "jobs.h"
#include "lease.h"
#include "maintain.h"
#include "mark.h"
#include "park.h"
#include "publish.h"
#include "pooler/move.h"
#include "queue_int.h"
#include "registry.h"
#include "runner.h"
#include "schedule.h"
#include "schema_int.h"
#include "stream.h"
#include "system.h"
#include "take.h"
#include "types.h"
#include "wakes.h"

/* One of those that were prepared, here or elsewhere, is committed, and which queues it pushed to
 * is not known: one look into each that somebody waits for. */
static void prepared_committed(struct client *c)
{
	struct qdb *db = qdb_find(client_database(c));

	if (db == NULL)
		return;
	system_need(db, client_pool(c));
	wakes_prepared_wake(db);
}

static const char *hint(const char *routine)
{
	if (strcmp(routine, "AtPrepare_Notify") != 0)
		return NULL;
	return "Functions of schema queue notify. QUEUE PUSH does not, nor does queue.push(..., notify => false).";
}

/* --- claiming --- */

static enum claim claim(struct client *c, struct sql_text *t)
{
	(void)c;
	if (t->word == SQL_WORD_QUEUE)
		return CLAIM_MINE;
	return t->word == SQL_WORD_MORE ? CLAIM_MORE : CLAIM_PASS;
}

static bool claim_any(struct client *c, struct sql_text *t)
{
	(void)c;
	return sql_has_statement(t, SQL_WORD_QUEUE);
}

static void *stmt_new(struct client *c, const char *sql, size_t len, const uint32_t *oids,
	int n_oids, struct pg_error *err)
{
	if (client_encoding_unsafe(c)) {
		pg_error_set(
			err, "0A000", "QUEUE statements are not possible in this client_encoding");
		pg_error_hint(err,
			"SET client_encoding TO 'UTF8' (its characters may not hold the bytes of quotes).");
		return NULL;
	}
	return qstmt_parse(sql, len, client_dialect(c) & SQL_STANDARD, oids, n_oids, err);
}

static void stmt_free(void *stmt)
{
	struct qstmt *q = stmt;

	qstmt_free(&q);
}

/* In a transaction that failed nothing is asked: nothing will be done either. */
static bool shape_ready(
	struct client *c, void *stmt, const struct bind_values *bind, bool describes)
{
	struct qstmt *q = stmt;
	struct qclient *qc = qclient_get(c);
	struct pg_error err;
	bool absent = false;

	/* what is bound makes a difference for parameters only; what has the client's own SQL is
	 * described by a server */
	if (qc == NULL || qstmt_own_server(q) || !types_matter(q, bind) ||
		(!describes && qstmt_last(q)->id != QVERB_PUSH))
		return true;
	if (!deferred_is_over(qc)) {
		bool known = schema_ready(qc->taker.db, c, &absent, &err);

		if (known && describes)
			q->described = false;
		if (!absent && (!known || types_find(qc, q, bind, true, &err) == TYPES_ASKED)) {
			deferred_begin(qc, q, bind, bind != NULL);
			return false;
		}
	}
	/* what is not known by the end of its WAIT is not needed any more */
	if (!absent)
		q->described = describes || q->described;
	deferred_described(qc, q);
	return true;
}

static void stmt_shape(const void *stmt, struct stmt_shape *ret)
{
	const struct qstmt *q = stmt;

	ret->param_oids = q->param_oids;
	ret->n_params = q->n_params;
	ret->fields = qstmt_columns(q, &ret->n_fields);
	ret->barrier = (qstmt_last(q)->flags & QVERB_AUTONOMOUS) != 0;
	ret->in_place = (q->verb->flags & (QVERB_AUTONOMOUS | QVERB_LOCAL)) == 0;
	ret->by_itself = qstmt_has(q, QARG_PARTIAL);
	ret->own_types = qstmt_own_sql(q);
	ret->own_server = qstmt_own_server(q);
}

/* --- HELP --- */

static void help_row(void *arg, const char *verb, const char *usage, const char *help)
{
	struct answer *a = arg;
	size_t row = build_row_begin(&a->rows, 3);

	build_row_text(&a->rows, verb);
	build_row_text(&a->rows, usage);
	build_row_text(&a->rows, help);
	build_row_end(&a->rows, row);
	a->n_rows++;
}

static void put_literal(struct buf *b, const char *s, const char *behind)
{
	buf_puts(b, "'");
	for (; *s != '\0'; s++) {
		if (*s == '\'')
			buf_putc(b, '\'');
		buf_putc(b, *s);
	}
	buf_puts(b, "'");
	buf_puts(b, behind);
}

static void help_values(void *arg, const char *verb, const char *usage, const char *help)
{
	struct buf *sql = arg;

	buf_puts(sql, sql->len == 0 ? "SELECT * FROM (VALUES (" : ", (");
	put_literal(sql, verb, ", ");
	put_literal(sql, usage, ", ");
	put_literal(sql, help, ")");
}

/* Among other statements of a string the server gives the rows, each at its place: what is said
 * before them and what fails is its business. */
static enum exec_verdict help_in_place(struct exec *x, const char *verb)
{
	struct replace *r = mem_zalloc(sizeof(*r));

	if (r != NULL) {
		qverb_help(verb, verb != NULL ? strlen(verb) : 0, help_values, &r->sql);
		buf_puts(&r->sql, ") AS h (verb, usage, description)");
	}
	if (r == NULL || buf_failed(&r->sql)) {
		replace_free(&r);
		pg_error_set(&x->err, "53200", "out of memory");
		return EXEC_ERROR;
	}
	r->rows = true;
	r->tag = REPLACE_TAG_ROWS;
	r->tag_text = "SELECT";
	x->replace = r;
	return EXEC_REPLACE;
}

static enum exec_verdict help_alone(struct exec *x, const char *verb)
{
	qverb_help(verb, verb != NULL ? strlen(verb) : 0, help_row, &x->answer);
	snprintf(x->answer.tag, sizeof(x->answer.tag), "SELECT %d", x->answer.n_rows);
	return EXEC_ANSWER;
}

/* NULL is no verb: that is all of them. */
static enum exec_verdict help(struct exec *x, const struct qstmt *q)
{
	const struct qvalue *v = qstmt_one(q, QARG_VERB);
	enum exec_verdict ret = EXEC_ERROR;
	char *verb = NULL;

	if (v != NULL && v->kind == QV_PARAM && x->describe)
		v = NULL;
	if (!take_text(&verb, v, &x->bind, &x->err, "the verb"))
		return EXEC_ERROR;
	if (verb != NULL && qverb_find(verb, strlen(verb)) == NULL)
		qverb_unknown(verb, strlen(verb), &x->err);
	else
		ret = x->alone ? help_alone(x, verb) : help_in_place(x, verb);
	mem_free(verb);
	return ret;
}

/* --- execution --- */

static enum exec_verdict nothing_to_do(struct exec *x, const struct qstmt *q, int n)
{
	snprintf(x->answer.tag, sizeof(x->answer.tag), "%s %d", qstmt_last(q)->tag_text,
		qstmt_then_pushes(q) ? 0 : n);
	return EXEC_ANSWER;
}

static bool formats_fit(const struct exec *x, int n_columns)
{
	return x->bind.n_formats <= 1 || x->bind.n_formats == n_columns;
}

static enum exec_verdict run(struct exec *x, struct qstmt *q, struct qclient *qc)
{
	struct call call = {0};
	enum exec_verdict v = EXEC_ERROR;
	int n_columns;

	qstmt_columns(q, &n_columns);
	if (!formats_fit(x, n_columns)) {
		pg_error_set(&x->err, "08P01",
			"bind message has %d result formats but query has %d columns",
			x->bind.n_formats, n_columns);
		return EXEC_ERROR;
	}
	if (qstmt_has(q, QARG_READER) && !stream_takes(q, &x->err))
		return EXEC_ERROR;
	if ((q->verb->flags & QVERB_AUTONOMOUS) != 0 && !x->describe)
		return q->verb->id == QVERB_AWAIT  ? await_execute(x, q, qc)
		       : qstmt_has(q, QARG_READER) ? stream_take(x, q, qc)
						   : take(x, q, qc);
	if (qstmt_then(q, QVERB_TAKE) && !(x->describe && qstmt_own_sql(q)))
		return then_take(x, q, qc);
	if (qstmt_then(q, QVERB_TAKE)) {
		if (call_describe(q, &call, &x->err))
			v = run_in_place(x, q, qc, &call);
		goto out;
	}
	if (!call_make(&qc->taker, q, &x->bind, &call, &x->err))
		goto out;
	if (qstmt_has(q, QARG_PARTIAL) && !x->by_itself) {
		pg_error_set(
			&x->err, "25001", "QUEUE DONE ... PARTIAL cannot run in a transaction");
		pg_error_hint(&x->err, "In a transaction all of the jobs are done, or none.");
	} else if (x->by_itself && !qstmt_has(q, QARG_PARTIAL) && all_done_before(q, &call)) {
		v = nothing_to_do(x, q, (int)jobs_distinct(&call.jobs));
	} else if (client_is_linked(x->client) || !x->alone || qstmt_own_sql(q)) {
		v = run_in_place(x, q, qc, &call);
	} else if (engine_submit(&qc->taker, q, &call, &x->bind, NULL, &x->err)) {
		v = EXEC_PARK;
	}
out:
	call_free(&call);
	return v;
}

static enum exec_verdict execute_known(struct exec *x, struct qstmt *q, struct qclient *qc)
{
	bool absent = false;

	if (!x->again && !schema_ready(qc->taker.db, x->client, &absent, &x->err)) {
		if (absent && !deferred_waits_on(qc, q, &x->bind, x->alone, &x->err))
			return EXEC_ERROR;
		if (absent)
			schema_wait(qc->taker.db, qc);
		return EXEC_WAIT;
	}
	/* known when it was executed first */
	if (x->again)
		return run(x, q, qc);
	switch (types_find(qc, q, x->describe ? NULL : &x->bind, x->alone, &x->err)) {
	case TYPES_KNOWN:
		break;
	case TYPES_ASKED:
		return EXEC_WAIT;
	case TYPES_ERROR:
		return EXEC_ERROR;
	}
	if (q->differs) {
		types_differ(q, &x->err);
		types_forget(qc->taker.db, q, &x->bind);
		return EXEC_ERROR;
	}
	return q->bulk.kind != QBULK_NONE ? bulk_execute(x, q, qc) : run(x, q, qc);
}

static enum exec_verdict execute(struct exec *x)
{
	struct qstmt *q = x->stmt;
	enum exec_verdict v;
	struct qclient *qc;

	if ((q->verb->flags & QVERB_LOCAL) != 0)
		return help(x, q);
	qc = qclient_get(x->client);
	if (qc == NULL) {
		pg_error_set(&x->err, "53200", "out of memory");
		return EXEC_ERROR;
	}
	v = deferred_is_over(qc) ? deferred_answer(x, q) : execute_known(x, q, qc);
	if (v == EXEC_ERROR)
		(void)explain_value(&x->err, q->verb, q);
	if (v == EXEC_WAIT)
		deferred_begin(qc, q, &x->bind, x->alone);
	else
		deferred_end(qc);
	return v;
}

/* Several statements in one string are executed at once: what may have to wait, waits before. */
static bool ready(struct client *c)
{
	struct qclient *qc = qclient_get(c);
	struct pg_error err;
	bool absent = false;

	return qc == NULL || schema_ready(qc->taker.db, c, &absent, &err) || absent;
}

/* --- events --- */

static void tx_ended(struct client *c, bool committed)
{
	struct qclient *qc = qclient_find(c);
	bool in_part;

	if (qc == NULL)
		return;
	in_part = committed && client_tx_in_part(c);
	lease_tx_ended(&qc->taker, committed, in_part);
	for (struct wakes *t = qc->taker.wakes; t != NULL && in_part; t = t->next) {
		t->mark.place = HEAD_UNMARKED; /* a part of it was rolled back */
		t->makes_ready |= t->locks;
	}
	await_tx_ended(&qc->taker, committed, in_part);
	count_tx_ended(&qc->taker, committed);
	if (committed)
		wakes_wake(&qc->taker);
	else
		wakes_let_go(&qc->taker);
}

static void cancel(struct client *c)
{
	struct qclient *qc = qclient_find(c);

	if (qc == NULL)
		return;
	if (qc->taker.park != NULL)
		park_cancel(&qc->taker);
	else if (qc->taker.request != NULL)
		engine_cancel(&qc->taker);
	else if (qc->deferred != NULL || qc->asking_schema) /* or several in one string: ready() */
		deferred_cancel(qc);
}

static void drained(struct client *c)
{
	struct qclient *qc = qclient_find(c);
	struct park *p = qc != NULL ? qc->taker.park : NULL;

	if (p != NULL && p->kind->drained != NULL)
		p->kind->drained(p);
}

static void client_ended(struct client *c, enum client_end how)
{
	struct qclient *qc = qclient_find(c);

	if (qc == NULL)
		return;
	if (qc->asking_schema)
		schema_forget_client(qc->taker.db, qc);
	heads_forget_client(qc);
	deferred_end(qc);
	park_taker_ended(&qc->taker);
	engine_taker_ended(&qc->taker);
	lease_taker_ended(&qc->taker, how == CLIENT_END_BROKEN, qc->answer_end <= client_sent(c));
	lease_free_all(&qc->taker);
	wakes_drop(&qc->taker);
	INVARIANT(qc->deferred == NULL, "a client leaves and waits on");
	names_free(&qc->then_names);
	qclient_free(qc);
}

/* What it holds, waits for or has begun is known here alone. */
static bool may_move(struct client *c)
{
	const struct qclient *qc = qclient_find(c);

	return qc == NULL ||
	       (qc->taker.leases == NULL && qc->taker.wakes == NULL && qc->taker.request == NULL &&
		       qc->taker.park == NULL && qc->deferred == NULL && !qc->asking_schema &&
		       qc->question == NULL && qc->taker.ended.len == 0);
}

static bool pool_works(const struct pool *p)
{
	struct qdb *db = qdb_find(pool_database(p));

	return db != NULL && schema_is_present(db) && agent_find(db, pool_user(p)) != NULL;
}

static void on_inherited(struct qdb *db, const struct pg_error *err)
{
	struct pool *pool = err == NULL && schema_is_present(db) ? agent_any_pool(db, 0) : NULL;

	if (pool != NULL)
		system_need(db, pool);
}

/* As if its clients had used QUEUE here. If that cannot be looked at now, the next one who does wakes the database. */
static void pool_inherited(struct pool *p)
{
	struct qdb *db = qdb_get(pool_database(p));

	if (db == NULL || !schema_look(db, p, on_inherited))
		return;
	db->had_clients = true;
}

static const struct move_work move_work = {.works = pool_works, .inherited = pool_inherited};

static const char *stmt_text(const void *stmt, const uint32_t **ret_oids, int *ret_n)
{
	const struct qstmt *q = stmt;

	*ret_oids = q->param_oids;
	*ret_n = q->n_params;
	return q->text;
}

static const struct interceptor interceptor = {
	.name = "queue",
	.claim = claim,
	.claim_any = claim_any,
	.stmt_new = stmt_new,
	.stmt_free = stmt_free,
	.stmt_shape = stmt_shape,
	.shape_ready = shape_ready,
	.execute = execute,
	.ready = ready,
	.tx_ended = tx_ended,
	.prepared_committed = prepared_committed,
	.hint = hint,
	.event = wakes_event_of_client,
	.task_event = wakes_task_event,
	.task_event_end = wakes_task_end,
	.cancel = cancel,
	.drained = drained,
	.may_move = may_move,
	.stmt_text = stmt_text,
	.client_ended = client_ended,
};

void queue_stat_each_lease(void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg)
{
	struct taker *t;

	DL_FOREACH (takers(), t)
		lease_each(t, fn, arg);
}

/* Its entry leads to another database, or may: the numbers of queues are others there. */
static void moved(const char *database)
{
	struct qdb *db = qdb_find(database);

	if (db == NULL)
		return;
	schema_suspect(db);
	heads_forget(db);
	topics_forget(db);
	doubt_forget_all();
	system_moved(db);
}

/* What is held is given back first: who holds jobs may go on waiting for others. */
static void ends_soon(void)
{
	takers_changed();
	parks_shutdown();
	figures_ending();
}

bool queue_start(void)
{
	move_hear_of_work(&move_work);
	adopt_hear_of_work(&move_work);
	intercept_register(&interceptor, false);
	pooler_on_shutdown(ends_soon);
	pooler_on_moved(moved);
	registry_start();
	asleep_start();
	held_start();
	return wakes_start() && merge_start() && back_start() && park_start() && waitq_start() &&
	       await_start() && stream_start() && hold_start() && gauge_start() &&
	       figures_start() && maintain_start() && schedules_start(runs_look) && runs_start() &&
	       schema_start() && attend_start();
}

void queue_reloaded(void)
{
	parks_reloaded();
	runs_reloaded();
	takers_changed();
	attend_reloaded();
}

void queue_stop(void)
{
	runs_stop();
}

void queue_free(void)
{
	struct qdb *db;

	wakes_stop();
	merge_stop();
	back_stop();
	park_free();
	waitq_stop();
	await_free();
	stream_free();
	hold_free();
	gauge_stop();
	figures_stop();
	maintain_stop();
	schedules_stop();
	schema_stop();
	attend_stop();
	done_forget_all();
	doubt_forget_all();
	while ((db = qdb_first()) != NULL) {
		system_free(db);
		registry_free(db);
		consumers_free(db);
		schema_free(db);
		heads_free(db);
		topics_free(db);
		gauge_free(db);
		figures_free(db);
		held_free(db);
		agents_free(db);
		schedules_free(db);
		attend_free(db);
		runs_free(db);
		count_free(db);
		qdb_free(db);
	}
}
