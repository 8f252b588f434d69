/*
 * What the payloads are that a statement gives or takes: jsonb, text or bytea, as its queue was
 * created. It decides the columns that a client is told, the functions that are called, and the
 * types of parameters that the client left open.
 *
 * It is found out by the names of the queues, from what heads know; what they don't know is asked,
 * and the client waits for the answer. Where no name can be told yet (a parameter, before Bind) it
 * is taken for jsonb. A queue that was dropped and made anew with other payloads shows as an error
 * of the functions, after which it is asked about again.
 */
#include <string.h>

#include "deferred.h"
#include "head.h"
#include "jobs.h"
#include "lease.h"
#include "queue_int.h"
#include "types.h"

/* --- names --- */

static bool text_of(const struct qvalue *v, const struct bind_values *b, struct buf *text)
{
	struct qbind qb = {0};

	if (b != NULL)
		qb = bind_read(b);
	return qvalue_eval(v, &qb, text) == QEVAL_OK && !buf_failed(text) && text->len > 0 &&
	       memchr(text->data, 0, text->len) == NULL;
}

struct queues {
	int n;
	char (*list)[QSTMT_QUEUE_MAX + 1];
	char one[1][QSTMT_QUEUE_MAX + 1]; /* that is the list, of a statement with one queue */
};

static void queues_free(struct queues *names)
{
	if (names->list != names->one)
		mem_free(names->list);
}

/* Where the jobs are from that this connection holds; each queue once in a row. */
struct of_jobs {
	struct qclient *qc;
	struct queues *names;
	bool failed;
};

static void add_name(struct queues *names, const char *name)
{
	util_strlcpy(names->list[names->n++], name, sizeof(names->list[0]));
}

static void queue_of_job(void *arg, const char *text, size_t len)
{
	struct of_jobs *o = arg;
	struct queues *names = o->names;
	const struct lease *l = lease_named(&o->qc->taker, text, len, NULL);
	void *more;

	if (l == NULL || (names->n > 0 && strcmp(names->list[names->n - 1], l->queue) == 0))
		return;
	more = mem_realloc(names->list, (size_t)(names->n + 1) * sizeof(names->list[0]));
	o->failed = o->failed || more == NULL;
	if (more == NULL)
		return;
	names->list = more;
	add_name(names, l->queue);
}

/* Those that can be told now; without qc, those that the statement names. THEN TAKE without a
 * queue: those of the jobs. */
static bool queues_read(
	struct qclient *qc, struct queues *ret, const struct qstmt *q, const struct bind_values *b)
{
	enum qarg_id id = qstmt_has(q, QARG_QUEUE) ? QARG_QUEUE : QARG_ON;
	int n = qstmt_count(q, id);
	struct of_jobs jobs = {.qc = qc, .names = ret};
	struct buf text = BUF_INIT;

	ret->n = 0;
	ret->list = n == 1 ? ret->one : mem_alloc((size_t)n * sizeof(ret->list[0]) + 1);
	if (ret->list == NULL)
		return false;
	for (int i = 0; n == 0 && qc != NULL && i < qstmt_count(q, QARG_JOB); i++)
		each_job(qstmt_value(q, QARG_JOB, i), b, queue_of_job, &jobs);
	for (int i = 0; i < n; i++) {
		buf_reset(&text);
		if (text_of(qstmt_value(q, id, i), b, &text) && text.len <= QSTMT_QUEUE_MAX)
			add_name(ret, buf_cstr(&text));
	}
	buf_free(&text);
	if (jobs.failed)
		queues_free(ret);
	return !jobs.failed;
}

/* --- parameters --- */

static bool is_open_param(const struct qstmt *q, const struct qvalue *v)
{
	return v->kind == QV_PARAM && q->param_free[v->param - 1];
}

/* Bytes are bound as bytes; everything else may be bound as a text. */
static void set_params(struct qstmt *q)
{
	for (int i = 0; i < qstmt_count(q, QARG_PAYLOAD); i++) {
		const struct qvalue *v = qstmt_value(q, QARG_PAYLOAD, i);

		if (is_open_param(q, v))
			q->param_oids[v->param - 1] =
				q->payload == QPAYLOAD_BYTEA ? OID_BYTEA : OID_TEXT;
	}
}

/* A push of texts needs nothing to be known. b NULL: its parameters are to be described. */
static bool push_needs_it(const struct qstmt *q, const struct bind_values *b)
{
	if (q->bulk.kind == QBULK_QUERY)
		return true;
	for (int i = 0; i < qstmt_count(q, QARG_PAYLOAD); i++) {
		const struct qvalue *v = qstmt_value(q, QARG_PAYLOAD, i);

		if (v->kind != QV_PARAM)
			continue;
		if (q->param_oids[v->param - 1] == OID_BYTEA)
			return true;
		if (is_open_param(q, v) &&
			(b == NULL ||
				(v->param <= b->n_params && b->params[v->param - 1].format == 1)))
			return true;
	}
	return false;
}

/* Said by the client; with b also: said by us, and in binary. What is a text is one in any queue.
 */
static bool binds_bytes(const struct qstmt *q, const struct bind_values *b)
{
	for (int i = 0; i < qstmt_count(q, QARG_PAYLOAD); i++) {
		const struct qvalue *v = qstmt_value(q, QARG_PAYLOAD, i);
		int n = v->param - 1;

		if (v->kind == QV_PARAM && q->param_oids[n] == OID_BYTEA &&
			(!q->param_free[n] ||
				(b != NULL && n < b->n_params && b->params[n].format == 1)))
			return true;
	}
	return false;
}

/* --- finding out --- */

struct found {
	enum qpayload payload;
	bool any, mixed;
};

/* Its queues, as far as they are known. Moves those that are not to the front. */
static int sort_out(struct qclient *qc, const struct queues *names, struct found *ret)
{
	int unknown = 0;

	for (int i = 0; i < names->n; i++) {
		enum qpayload p;

		if (!head_payload(qc->taker.db, names->list[i], &p)) {
			if (head_is_absent(qc->taker.db, names->list[i]))
				continue;
			if (unknown != i)
				memcpy(names->list[unknown], names->list[i],
					sizeof(names->list[0]));
			unknown++;
			continue;
		}
		ret->mixed = ret->mixed || (ret->any && p != ret->payload);
		ret->payload = p;
		ret->any = true;
	}
	return unknown;
}

static enum types of_queues(struct qclient *qc, const struct qstmt *q,
	const struct bind_values *bind, struct found *ret)
{
	enum types t = TYPES_KNOWN;
	struct queues names;
	int unknown;

	if (!queues_read(qc, &names, q, bind))
		return TYPES_ERROR;
	unknown = sort_out(qc, &names, ret);
	if (unknown > 0 && !qc->asked)
		t = heads_ask(qc, (const char(*)[QSTMT_QUEUE_MAX + 1]) names.list, unknown,
			    deferred_answered)
			    ? TYPES_ASKED
			    : TYPES_ERROR;
	queues_free(&names);
	return t;
}

static enum types of_job(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind,
	bool alone, struct found *ret)
{
	const struct qvalue *v = qstmt_one(q, QARG_REF);
	struct buf text = BUF_INIT;
	enum types t = TYPES_KNOWN;
	const struct lease *l;

	if (v != NULL && text_of(v, bind, &text)) {
		l = lease_named(&qc->taker, buf_cstr(&text), text.len, NULL);
		if (l != NULL) { /* a bare id is that of a job that this connection holds */
			buf_reset(&text);
			buf_puts(&text, l->token);
		}
		if (!alone)
			; /* each of several would ask again for the others */
		else if (qc->asked)
			*ret = (struct found){.payload = qc->job_payload, .any = true};
		else
			t = heads_ask_job(qc, buf_cstr(&text), deferred_answered) ? TYPES_ASKED
										  : TYPES_ERROR;
	}
	buf_free(&text);
	return t;
}

bool types_matter(const struct qstmt *q, const struct bind_values *b)
{
	const struct qverb *last = qstmt_last(q);

	return (last->flags & QVERB_PAYLOAD) != 0 || qstmt_has(q, QARG_WHERE) ||
	       (last->id == QVERB_PUSH && push_needs_it(q, b));
}

/* A push needs nothing to be known of its queue. But what it costs when nothing is, in a session that has not seen the
 * queue, is a multiple of the question; where statements may be plain ones (lone.h) that is asked first. */
static enum types of_push(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind)
{
	struct found f = {0};
	enum types t;

	if (q->verb->id != QVERB_PUSH || bind == NULL || client_is_linked(qc->client) ||
		!pool_has_engine(client_pool(qc->client), NULL))
		return TYPES_KNOWN;
	t = of_queues(qc, q, bind, &f);
	if (t == TYPES_KNOWN)
		qc->asked = false;
	return t;
}

enum types types_find(struct qclient *qc, struct qstmt *q, const struct bind_values *bind,
	bool alone, struct pg_error *err)
{
	struct found f = {.payload = QPAYLOAD_JSONB};
	enum types t;

	CHECK_QCLIENT(qc);
	q->bytes = false;
	if (qc->question != NULL)
		return TYPES_ASKED;
	if (!types_matter(q, bind)) {
		t = alone ? of_push(qc, q, bind) : TYPES_KNOWN;
		if (t == TYPES_ERROR)
			pg_error_set(err, "53200", "out of memory");
		return t;
	}
	t = q->verb->id == QVERB_JOB && !qstmt_has(q, QARG_ON) ? of_job(qc, q, bind, alone, &f)
							       : of_queues(qc, q, bind, &f);
	if (t == TYPES_ERROR)
		pg_error_set(err, "53200", "out of memory");
	if (t != TYPES_KNOWN)
		return t;
	qc->asked = false;
	q->differs = f.mixed || (f.any && q->described && q->payload != f.payload) ||
		     (f.any && binds_bytes(q, NULL) && f.payload != QPAYLOAD_BYTEA);
	if (!q->described)
		q->payload = f.payload;
	set_params(q);
	q->bytes = binds_bytes(q, bind);
	return TYPES_KNOWN;
}

/* --- errors --- */

void types_changed(struct pg_error *err)
{
	pg_error_set(err, "0A000", "cached plan must not change result type");
	pg_error_detail(err, "The payloads of the queue are not of the type that was described.");
	pg_error_hint(err,
		"Prepare the statement anew; with the name of the queue in it, it can be described before it is bound.");
}

void types_differ(const struct qstmt *q, struct pg_error *err)
{
	if (binds_bytes(q, NULL)) {
		pg_error_set(err, "42804", "the payload is bytea, but those of the queue are not");
		pg_error_hint(err, "QUEUE LIST shows what the payloads of each queue are.");
	} else if (q->described && qstmt_count(q, QARG_QUEUE) <= 1) {
		types_changed(err);
	} else {
		pg_error_set(err, "42804", "these queues have payloads of different types");
		pg_error_hint(err,
			"Take from each type of queue by a statement of its own; QUEUE LIST shows the types.");
	}
}

void types_forget(struct qdb *db, const struct qstmt *q, const struct bind_values *bind)
{
	struct queues names;

	CHECK_QDB(db);
	if (!queues_read(NULL, &names, q, bind))
		return;
	for (int i = 0; i < names.n; i++)
		head_forget(db, names.list[i]);
	queues_free(&names);
}
