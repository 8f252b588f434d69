/*
 * A call: what a QUEUE statement that is not a TAKE asks of the database, made of the statement and
 * the values that are bound to it: its jobs by their tokens, the SQL text and its parameters, and
 * what follows when it has succeeded. It knows no servers: engine.c and the pool run it.
 *
 * Entry points: call_* in engine.h, jobs_* in jobs.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "wire/row.h"
#include "await.h"
#include "count.h"
#include "engine.h"
#include "head.h"
#include "jobs.h"
#include "known.h"
#include "lease.h"
#include "mark.h"
#include "publish.h"
#include "queue_int.h"
#include "schedule.h"
#include "take.h"
#include "token.h"
#include "wakes.h"

/* --- calls --- */

/* The token in the place of a bare id, and what only the proxy knows. */
static const char *call_token(void *arg, int i, const char *text, size_t len)
{
	struct call *call = arg;

	(void)text;
	(void)len;
	if (i == QTOKEN_KNOWN)
		return call->known.len > 0 ? buf_cstr(&call->known) : NULL;
	return jobs_text(&call->jobs, i);
}

/* What only the condition of the TAKE behind it knows: the DONE has no such value. false: memory. */
static bool leave_params(struct call *ret, const struct qstmt *q)
{
	uint8_t *uses = mem_alloc((size_t)q->n_params);

	ASSERT(qstmt_then(q, QVERB_TAKE) && q->n_params == ret->n_params);
	if (uses == NULL)
		return false;
	qstmt_param_uses(q, uses);
	for (int i = 0; i < q->n_params; i++) {
		if (ret->oids[i] != 0 || (uses[i] & QPARAM_VALUE) != 0)
			continue;
		ret->params[i] = (struct bind_param){.len = -1, .oid = OID_TEXT};
		ret->oids[i] = OID_TEXT;
	}
	mem_free(uses);
	return true;
}

static void name_param(struct call *ret, const struct qvalue *v, const char *text)
{
	if (v->kind != QV_PARAM || text == NULL)
		return;
	ret->params[v->param - 1] = (struct bind_param){
		.data = (const uint8_t *)text, .len = (int32_t)strlen(text), .oid = OID_TEXT};
	ret->oids[v->param - 1] = OID_TEXT;
}

/* Parameters as the client bound them; those that name a job become the text of the token. */
static bool call_params(struct call *ret, const struct qstmt *q, const struct bind_values *bind,
	struct pg_error *err)
{
	int n = q->n_params;

	ret->n_params = n;
	if (n == 0)
		return true;
	ret->oids = mem_alloc((size_t)n * sizeof(*ret->oids));
	ret->params = mem_alloc((size_t)n * sizeof(*ret->params));
	if (ret->oids == NULL || ret->params == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	qstmt_server_oids(q, ret->oids);
	memset(ret->params, 0, (size_t)n * sizeof(*ret->params));
	if (bind->n_params > 0) /* it is not only described */
		memcpy(ret->params, bind->params, (size_t)n * sizeof(*ret->params));
	if (bind->n_params > 0 && q->n_expressions > 0 && qstmt_then(q, QVERB_TAKE) &&
		!leave_params(ret, q)) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	for (int i = 0; i < qstmt_count(q, QARG_JOB); i++)
		name_param(ret, qstmt_value(q, QARG_JOB, i), jobs_text(&ret->jobs, i));
	for (int i = 0; i < qstmt_count(q, QARG_REF); i++)
		name_param(ret, qstmt_value(q, QARG_REF, i), jobs_text(&ret->jobs, i));
	return true;
}

/* The name of the queue, to wake its waiters; "" when it cannot be told. */
static void call_queue(
	struct taker *t, struct call *ret, const struct qstmt *q, const struct bind_values *bind)
{
	struct qbind qb = bind_read(bind);
	const struct qvalue *v = qstmt_one(q, QARG_QUEUE);
	struct buf text = BUF_INIT;

	/* one that no queue can have is not cut short: Postgres refuses it */
	if (v != NULL && qvalue_eval(v, &qb, &text) == QEVAL_OK && !buf_failed(&text) &&
		text.len <= QSTMT_QUEUE_MAX &&
		(text.len == 0 || memchr(text.data, 0, text.len) == NULL))
		util_strlcpy(ret->queue, buf_cstr(&text), sizeof(ret->queue));
	/* a job that is there keeps its place, and is locked meanwhile */
	ret->mark = qstmt_has(q, QARG_DUPLICATE) ? head_lowest(t->db, ret->queue)
						 : head_now(t->db, ret->queue);
	buf_free(&text);
}

/* FAIL gives a job another place, RELEASE gives it back to its own. The lowest of those of several
 * queues does for each. Known of the jobs that this connection holds. */
static void call_jobs_mark(struct taker *t, struct call *ret, const struct qstmt *q)
{
	bool releases = q->verb->id == QVERB_RELEASE;
	struct head_mark mark = {INT64_MAX, INT64_MAX};
	int64_t number, last = 0;

	ret->jobs_mark = head_unmarked;
	if ((q->verb->flags & QVERB_RETURNS) == 0)
		return;
	for (int i = 0; i < ret->jobs.n; i++) {
		const struct lease *l = releases ? lease_find(t, ret->jobs.tokens[i]) : NULL;

		if (releases && l == NULL)
			return;
		if (l != NULL)
			head_mark_min(&mark, (struct head_mark){l->place, INT64_MAX});
		number = token_number(ret->jobs.tokens[i]);
		if (number != last)
			head_mark_min(&mark, head_now_number(t->db, number));
		last = number;
	}
	ret->jobs_mark = mark;
}

/* FAIL, RELEASE and EXTEND move the ends of their leases: from now on nobody knows how far they go,
 * be they answered or not. */
static void call_moves_leases(struct taker *t, const struct call *call, const struct qstmt *q)
{
	if ((q->verb->flags & QVERB_MOVES) == 0)
		return;
	for (int i = 0; i < call->jobs.n; i++) {
		struct lease *l = lease_find(t, call->jobs.tokens[i]);

		doubt_forget(call->jobs.tokens[i]);
		if (l != NULL)
			l->until = 0;
	}
}

static bool fits(const struct qvalue *v, const struct bind_values *bind, const char *what,
	struct pg_error *err)
{
	int64_t max = conf_current()->p.queue_max_payload, len = (int64_t)v->text_len;

	if (v->kind == QV_PARAM)
		len = v->param <= bind->n_params ? bind->params[v->param - 1].len : 0;
	if (len <= max)
		return true;
	pg_error_set(err, "54000", "%s is too long", what);
	pg_error_detail(
		err, "It has %lld bytes, the limit is %lld.", (long long)len, (long long)max);
	pg_error_hint(err,
		"The limit is queue_max_payload; large data is better kept in a table, and its key here.");
	return false;
}

static bool payloads_fit(
	const struct qstmt *q, const struct bind_values *bind, struct pg_error *err)
{
	const struct qvalue *result = qstmt_one(q, QARG_RESULT);
	const struct qvalue *progress = qstmt_one(q, QARG_PROGRESS);
	const struct qvalue *sql = qstmt_one(q, QARG_STATEMENT);

	for (int i = 0; i < qstmt_count(q, QARG_PAYLOAD); i++)
		if (!fits(qstmt_value(q, QARG_PAYLOAD, i), bind, "payload", err))
			return false;
	return (result == NULL || fits(result, bind, "result", err)) &&
	       (sql == NULL || fits(sql, bind, "statement", err)) &&
	       (progress == NULL || fits(progress, bind, "progress", err));
}

/* Verbs on jobs return the name of the queue of each: one text column. Wanted when they wake, and
 * for the take behind a done. */
static bool names_queues(const struct qstmt *q)
{
	if (q->verb->id == QVERB_PUBLISH)
		return true;
	return qstmt_count(q, QARG_JOB) + qstmt_count(q, QARG_REF) + qstmt_count(q, QARG_BY_KEY) >
		       0 &&
	       ((q->verb->flags & (QVERB_WAKES | QVERB_DELETES)) != 0 || qstmt_then(q, QVERB_TAKE));
}

static void call_topic(struct call *ret, const struct qstmt *q, const struct bind_values *bind)
{
	const struct qvalue *v = q->verb->id == QVERB_PUBLISH ? qstmt_one(q, QARG_TOPIC) : NULL;
	struct qbind qb = bind_read(bind);
	struct buf text = BUF_INIT;

	if (v == NULL || v->cast || qvalue_eval(v, &qb, &text) != QEVAL_OK ||
		!topic_name(&text, ret->topic))
		ret->topic[0] = '\0';
	buf_free(&text);
}

/* What is not written yet: the database knows the rest. */
static bool call_figures(struct taker *t, const struct qstmt *q, const struct bind_values *bind,
	struct call *ret, struct pg_error *err)
{
	char *reader;
	bool ok;

	if (!qstmt_by_time(q))
		return true;
	if (!take_text(&reader, qstmt_one(q, QARG_WHOSE), bind, err, "FOR"))
		return false;
	ok = figures_put(t->db, ret->queue, reader, &ret->known);
	mem_free(reader);
	if (!ok)
		pg_error_set(err, "53200", "out of memory");
	return ok;
}

bool call_make(struct taker *t, const struct qstmt *q, const struct bind_values *bind,
	struct call *ret, struct pg_error *err)
{
	CHECK_TAKER(t);
	if (!payloads_fit(q, bind, err))
		return false;
	if (!jobs_resolve(t, q, bind, &ret->jobs, err) || !call_params(ret, q, bind, err))
		return false;
	call_queue(t, ret, q, bind);
	call_topic(ret, q, bind);
	call_jobs_mark(t, ret, q);
	call_moves_leases(t, ret, q);
	ret->in_rows = names_queues(q);
	ret->no_ends = q->verb->id == QVERB_PUBLISH;
	ret->fails = q->verb->id == QVERB_FAIL;
	if (q->verb->id == QVERB_WORKERS && !known_put(t, ret->queue, &ret->known)) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	return call_figures(t, q, bind, ret, err);
}

bool call_describe(const struct qstmt *q, struct call *ret, struct pg_error *err)
{
	struct bind_values none = {0};

	ASSERT(qstmt_then(q, QVERB_TAKE) && qstmt_own_sql(q));
	if (!call_params(ret, q, &none, err))
		return false;
	for (int i = 0; i < ret->n_params; i++)
		ret->oids[i] = q->param_oids[i]; /* as the client said */
	return true;
}

bool call_sql(struct call *call, const struct qstmt *q, struct pg_error *err)
{
	return call->sql.len > 0 || qstmt_sql(q, call_token, call, &call->sql, err);
}

bool call_ask_queues(struct call *call, const struct qstmt *q, struct pg_error *err)
{
	buf_reset(&call->sql);
	call->only_names = true;
	return qstmt_names_sql(q, call_token, call, &call->sql, err);
}

void call_free(struct call *c)
{
	buf_free(&c->sql);
	buf_free(&c->known);
	mem_free(c->oids);
	mem_free(c->params);
	names_free(&c->names);
	names_free(&c->ends);
	names_free(&c->dead);
	jobs_free(&c->jobs);
	*c = (struct call){0};
}

/* A repeated DONE of tokens whose DONE succeeded: nothing to do, and nothing to push. Not where it
 * is in a transaction: what else is in there was done in the first one, and must not be again. */
bool all_done_before(const struct qstmt *q, const struct call *call)
{
	if (q->verb->id != QVERB_DONE || call->jobs.n == 0 || call->jobs.elsewhere)
		return false;
	for (int i = 0; i < call->jobs.n; i++)
		if (!done_known(call->jobs.tokens[i]))
			return false;
	return true;
}

/* The queue of a job, and behind it of CANCEL the job, of FAIL the queue of one that is dead now. */
void call_row(struct call *call, const uint8_t *body, size_t len)
{
	struct names *const to[] = {&call->names, call->fails ? &call->dead : &call->ends};
	struct wire_row row;
	int n;

	if (!call->in_rows)
		return;
	n = wire_row_begin(&row, body, len);
	for (int i = 0; i < n && i < (int)ARRAY_LEN(to); i++) {
		struct wire_col c = wire_row_next(&row);

		if (c.len <= 0 || c.len > QSTMT_QUEUE_MAX || (i > 0 && call->no_ends))
			return;
		names_add_bytes(to[i], c.data, (size_t)c.len);
	}
}

/* It is sent once more. */
void call_forget_rows(struct call *call)
{
	if (!call->in_rows)
		return;
	names_reset(&call->names);
	names_reset(&call->ends);
	names_reset(&call->dead);
}

/* jobs: so many of each at most. */
static void touch_names(
	struct taker *t, const struct names *names, unsigned jobs, struct head_mark mark)
{
	/* without memory the periodic look finds the jobs */
	NAMES_FOREACH (at, names)
		touch_from(t, at, jobs, mark, true);
}

/* What is ready and is deleted in a transaction is passed over by takes. */
static void touch_deleted(struct taker *t, const struct qstmt *q, const struct call *call)
{
	if ((q->verb->flags & QVERB_DELETES) == 0)
		return;
	if (call->queue[0] != '\0')
		touch_locked(t, call->queue);
	NAMES_FOREACH (at, &call->names)
		touch_locked(t, at);
}

/* A token counts once, also when several requests of a batch name it: rows do not tell whose it
 * was. Their order changes. */
unsigned jobs_distinct(struct jobs *j)
{
	unsigned n = j->n > 0;

	/* as those of one TAKE nearly always are */
	if (tokens_ascend(j->tokens, j->n))
		return (unsigned)j->n;
	if (j->n > 1)
		qsort(j->tokens, (size_t)j->n, sizeof(j->tokens[0]), token_order);
	for (int i = 1; i < j->n; i++)
		n += strcmp(j->tokens[i - 1], j->tokens[i]) != 0;
	return n;
}

/* The attempt at a job has ended. How long it ran is known of the leases that its connection held. */
static void count_ended(struct taker *t, const char *token, const struct qstmt *q, bool in_tx)
{
	bool done = q->verb->id == QVERB_DONE;
	usec_t since = 0;
	struct tally *tally = lease_finish(t, token, done, in_tx, &since);

	if (tally == NULL && done && since == 0)
		tally = head_tally(t->db, token_number(token));
	if (q->verb->id == QVERB_RELEASE)
		return;
	for (; tally != NULL; tally = tally->whole) {
		struct figures *f = count_in(t, tally, in_tx);

		f->n[FIGURE_DONE] += done;
		if (tally->whole != NULL && q->verb->id == QVERB_FAIL)
			f->n[FIGURE_FAILED]++; /* those of the stream: count_jobs_failed() */
		if (since != 0)
			figures_ran(f, (int64_t)(loop_now() - since));
	}
}

/* Does it change which queues run by themselves? Perhaps: the words are looked for as the names of options. */
static bool may_change_runs(const struct taker *t, const struct qstmt *q)
{
	static const char *const words[] = {"handler", "run", "timeout"};

	if ((q->verb->flags & QVERB_DEFINITION) == 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(words) && t->db->runs == NULL; i++)
		for (size_t at = 0; at + strlen(words[i]) <= q->text_len; at++)
			if (strncasecmp(q->text + at, words[i], strlen(words[i])) == 0)
				return true;
	return t->db->runs != NULL;
}

void call_succeeded(
	struct taker *t, const struct qstmt *q, struct call *call, unsigned rows, bool in_tx)
{
	unsigned flags = q->verb->flags;
	bool finishes = (flags & (QVERB_ENDS | QVERB_RETURNS)) != 0;
	bool may_end = (flags & QVERB_ENDS) != 0;
	bool by_done = may_end && (flags & QVERB_RETURNS) == 0;
	const struct qverb *last = qstmt_last(q);

	CHECK_TAKER(t);
	if (call->only_names)
		return;
	if (qstmt_then_pushes(q))
		count_done(QVERB_DONE, jobs_distinct(&call->jobs));
	count_done(qstmt_then(q, QVERB_TAKE) ? q->verb->id : last->id, rows);
	if (call->queue[0] != '\0') {
		struct tally *tally = count_used(t->db, call->queue, q->verb->id == QVERB_DROP);

		if (last->id == QVERB_PUSH || last->id == QVERB_MOVE || last->id == QVERB_RUN)
			count_in(t, tally, in_tx)->n[FIGURE_PUSHED] += rows;
	}
	if ((flags & QVERB_NUMBERS) != 0)
		head_forget(t->db, call->queue);
	if (q->verb->id == QVERB_BIND || q->verb->id == QVERB_UNBIND)
		topics_doubt(t->db);
	if (in_tx && call->topic[0] != '\0')
		topic_used(t->db, t->pool, call->topic);
	if (may_change_runs(t, q))
		wakes_event(t->db, t->pool, &t->wakes, SCHEDULES_EVENT, NULL);
	if (q->verb->id == QVERB_FAIL)
		count_jobs_failed(t, &call->names, &call->dead, in_tx);
	for (int i = 0; i < call->jobs.n; i++) {
		struct lease *l = finishes ? NULL : lease_find(t, call->jobs.tokens[i]);

		if (l != NULL)
			hold_extended(l, in_tx);
		if (finishes)
			count_ended(t, call->jobs.tokens[i], q, in_tx);
		if (!in_tx && by_done)
			done_remember(call->jobs.tokens[i]);
		if (may_end)
			await_ended(t, call->jobs.tokens[i], by_done, in_tx);
	}
	NAMES_FOREACH (job, &call->ends)
		await_ended(t, job, false, in_tx);
	/* what was handed over is nobody's news */
	if ((last->flags & QVERB_WAKES) != 0 && call->queue[0] != '\0' &&
		(call->handed == 0 || call->handed < rows))
		touch_from(t, call->queue, last->tag == QTAG_ROWS ? rows - call->handed : 0,
			call->mark,
			(last->id != QVERB_PUSH && last->id != QVERB_MOVE) ||
				qstmt_has(q, QARG_KEY) || qstmt_has(q, QARG_GROUP));
	if ((last->flags & QVERB_WAKES) != 0)
		touch_names(t, &call->names,
			last->id == QVERB_PUBLISH ? (unsigned)qstmt_count(q, QARG_PAYLOAD) : 1,
			call->jobs_mark);
	if (in_tx)
		touch_deleted(t, q, call);
	else
		wakes_wake(t);
}
