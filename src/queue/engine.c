/*
 * The engine: statements on the merged path. A request is one QUEUE statement of one client; it runs
 * on a server of the same database and role, beside the client's pool, and is answered after its
 * commit. Each request is a statement of its own here; merging them changes this file only.
 */
#include <stdio.h>
#include <string.h>

#include "queue_int.h"

/* --- jobs as they are now ------------------------------------------------------------------------------ */

static bool is_token(const char *text, size_t len)
{
	unsigned dashes = 0;

	if (len == 0 || len >= TOKEN_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');

		if (!hex && text[i] != '-')
			return false;
		dashes += text[i] == '-';
	}
	return dashes == 2;
}

static bool id_to_token(struct qclient *qc, int64_t id, char dst[TOKEN_MAX], struct pg_error *err)
{
	bool many;
	const char *token = lease_token(qc, id, &many);

	if (token != NULL) {
		util_strlcpy(dst, token, TOKEN_MAX);
		return true;
	}
	if (many) {
		pg_error_set(err, "22023", "job %lld is ambiguous on this connection", (long long)id);
		pg_error_detail(err, "It holds jobs with this id from several queues.");
	} else {
		pg_error_set(err, "22023", "job %lld is not held by this connection", (long long)id);
		pg_error_detail(err, "A bare id is accepted only on the connection that took the job and still holds its lease.");
	}
	pg_error_hint(err, "Pass the token that TAKE returned.");
	return false;
}

static bool job_resolve(struct qclient *qc, const struct qvalue *v, const struct bind_values *bind, char dst[TOKEN_MAX],
	struct pg_error *err)
{
	struct qbind qb = {.n = bind->n_params, .params = (const struct qparam *)(const void *)bind->params};
	struct buf text = BUF_INIT;
	bool ok = true;
	int64_t id;

	dst[0] = '\0';
	switch (qvalue_eval(v, &qb, &text)) {
	case QEVAL_NULL:
		pg_error_set(err, "22004", "a job must not be null");
		ok = false;
		break;
	case QEVAL_BAD:
		pg_error_set(err, "22023", "the value of a job cannot be read");
		pg_error_hint(err, "Bind the token as text.");
		ok = false;
		break;
	case QEVAL_OK:
		if (buf_failed(&text)) {
			pg_error_set(err, "53200", "out of memory");
			ok = false;
		} else if (util_parse_i64((const char *)text.data, text.len, &id)) {
			ok = id_to_token(qc, id, dst, err);
		} else if (is_token((const char *)text.data, text.len)) {
			util_strlcpy(dst, buf_cstr(&text), TOKEN_MAX);
		} else {
			pg_error_set(err, "22023", "\"%.60s\" is not a job", buf_cstr(&text));
			pg_error_hint(err, "Pass the token that TAKE returned.");
			ok = false;
		}
		break;
	}
	buf_free(&text);
	return ok;
}

bool jobs_resolve(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind, struct jobs *ret, struct pg_error *err)
{
	int n = qstmt_count(q, QARG_JOB);

	if (n == 0)
		return true;
	ret->tokens = mem_zalloc((size_t)n * sizeof(ret->tokens[0]));
	if (ret->tokens == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	ret->n = n;
	for (int i = 0; i < n; i++)
		if (!job_resolve(qc, qstmt_value(q, QARG_JOB, i), bind, ret->tokens[i], err))
			return false;
	return true;
}

void jobs_free(struct jobs *j)
{
	mem_free(j->tokens);
	*j = (struct jobs){0};
}

/* --- calls ----------------------------------------------------------------------------------------------- */

static const char *token_of(void *arg, int i, const char *text, size_t len)
{
	struct call *call = arg;

	(void)text;
	(void)len;
	return call->jobs.tokens[i];
}

/* Parameters as the client bound them; those that name a job become the text of the token. */
static bool call_params(struct call *ret, const struct qstmt *q, const struct bind_values *bind, struct pg_error *err)
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
	memcpy(ret->params, bind->params, (size_t)n * sizeof(*ret->params));
	for (int i = 0; i < ret->jobs.n; i++) {
		const struct qvalue *v = qstmt_value(q, QARG_JOB, i);

		if (v->kind == QV_PARAM)
			ret->params[v->param - 1] = (struct bind_param){.data = (const uint8_t *)ret->jobs.tokens[i],
				.len = (int32_t)strlen(ret->jobs.tokens[i]),
				.oid = OID_TEXT};
	}
	return true;
}

/* The name of the queue, to wake its waiters; "" when it cannot be told. */
static void call_queue(struct call *ret, const struct qstmt *q, const struct bind_values *bind)
{
	struct qbind qb = {.n = bind->n_params, .params = (const struct qparam *)(const void *)bind->params};
	const struct qvalue *v = qstmt_one(q, QARG_QUEUE);
	struct buf text = BUF_INIT;

	if (v != NULL && qvalue_eval(v, &qb, &text) == QEVAL_OK && !buf_failed(&text) && text.len <= QSTMT_QUEUE_MAX)
		util_strlcpy(ret->queue, buf_cstr(&text), sizeof(ret->queue));
	buf_free(&text);
}

bool call_make(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind, struct call *ret, struct pg_error *err)
{
	if (!jobs_resolve(qc, q, bind, &ret->jobs, err) || !call_params(ret, q, bind, err))
		return false;
	call_queue(ret, q, bind);
	if (!qstmt_sql(q, token_of, ret, &ret->sql, err))
		return false;
	if (!buf_failed(&ret->sql))
		return true;
	pg_error_set(err, "53200", "out of memory");
	return false;
}

void call_free(struct call *c)
{
	buf_free(&c->sql);
	mem_free(c->oids);
	mem_free(c->params);
	jobs_free(&c->jobs);
	*c = (struct call){0};
}

/* Verbs on jobs return the name of the queue of each: one text column. */
void call_row(struct qclient *qc, const struct qstmt *q, const struct call *call, const uint8_t *body, size_t len)
{
	char name[QSTMT_QUEUE_MAX + 1];
	size_t n = len > 6 ? len - 6 : 0;

	if ((q->verb->flags & QVERB_WAKES) == 0 || call->jobs.n == 0 || n == 0 || n > QSTMT_QUEUE_MAX)
		return;
	memcpy(name, body + 6, n);
	name[n] = '\0';
	touch(qc, name, 1);
}

void call_succeeded(struct qclient *qc, const struct qstmt *q, const struct call *call, unsigned rows, bool in_tx)
{
	bool finishes = q->verb->id != QVERB_EXTEND;

	for (int i = 0; i < call->jobs.n; i++) {
		if (finishes)
			lease_finish(qc, call->jobs.tokens[i], in_tx);
		if (!in_tx && q->verb->id == QVERB_DONE)
			done_remember(call->jobs.tokens[i]);
	}
	if ((q->verb->flags & QVERB_WAKES) != 0 && call->queue[0] != '\0')
		touch(qc, call->queue, rows);
	if (!in_tx)
		touched_wake(qc);
}

/* --- requests ------------------------------------------------------------------------------------------------ */

struct request {
	struct qclient *qc; /* NULL: the client is gone */
	struct qstmt *q;    /* borrowed while the client is parked */
	struct call call;
	struct task *task;
	struct answer answer;
	unsigned rows;
	bool keeps_rows;
	int64_t value;
	struct qdb *db;
};

static void request_free(struct request *r)
{
	if (r->qc != NULL)
		r->qc->request = NULL;
	call_free(&r->call);
	answer_free(&r->answer);
	mem_free(r);
}

static void note_value(struct request *r, const uint8_t *body, size_t len)
{
	if (len > 6 && !util_parse_i64((const char *)body + 6, len - 6, &r->value))
		r->value = 0;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct request *r = arg;

	if (r->rows++ == 0 && !r->keeps_rows)
		note_value(r, body, len);
	if (r->qc != NULL)
		call_row(r->qc, r->q, &r->call, body, len);
	if (!r->keeps_rows)
		return;
	build_u8(&r->answer.rows, 'D');
	build_i32(&r->answer.rows, (int64_t)len + 4);
	build_bytes(&r->answer.rows, body, len);
	r->answer.n_rows++;
}

static void put_tag(struct request *r)
{
	const struct qverb *v = r->q->verb;
	char *tag = r->answer.tag;
	size_t size = sizeof(r->answer.tag);

	switch (v->tag) {
	case QTAG_FIXED:
		snprintf(tag, size, "%s", v->tag_text);
		break;
	case QTAG_ROWS:
		snprintf(tag, size, "%s %u", v->tag_text, r->rows);
		break;
	case QTAG_VALUE:
		snprintf(tag, size, "%s %lld", v->tag_text, (long long)r->value);
		break;
	}
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct request *r = arg;
	struct qclient *qc = r->qc;
	struct client *c = qc != NULL ? qc->client : NULL;
	struct answer answer;

	r->task = NULL;
	if (err != NULL && strcmp(err->sqlstate, "3F000") == 0)
		schema_suspect(r->db);
	if (qc == NULL) {
		request_free(r);
		return;
	}
	if (err != NULL) {
		struct pg_error copy = *err;

		touched_drop(qc);
		request_free(r);
		client_fail(c, &copy);
		return;
	}
	call_succeeded(qc, r->q, &r->call, r->rows, false);
	put_tag(r);
	answer = r->answer;
	r->answer = (struct answer){0};
	request_free(r);
	client_answer(c, &answer);
}

bool engine_submit(struct qclient *qc, struct qstmt *q, struct call *call, const struct bind_values *bind, struct pg_error *err)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct request *r = mem_zalloc(sizeof(*r));
	struct task_spec spec = {.ops = &ops, .arg = r, .client = qc->client};
	int n_columns;

	if (r == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	r->qc = qc;
	r->db = qc->db;
	r->q = q;
	r->call = *call;
	*call = (struct call){0};
	r->keeps_rows = qstmt_columns(q, &n_columns) != NULL;
	spec.sql = buf_cstr(&r->call.sql);
	spec.prepare = q->n_params > 0;
	spec.oids = r->call.oids;
	spec.n_params = r->call.n_params;
	spec.params = r->call.params;
	spec.n_formats = r->keeps_rows ? bind->n_formats : 0;
	spec.formats = bind->formats;
	qc->request = r;
	r->task = task_submit(client_pool(qc->client), &spec);
	if (r->task != NULL)
		return true;
	request_free(r);
	pg_error_set(err, "53200", "out of memory");
	return false;
}

/* One that is on its way is too late to be cancelled: it ends as it ends, within a commit. */
void engine_cancel(struct qclient *qc)
{
	struct request *r = qc->request;
	struct pg_error err;

	if (r->task == NULL || task_is_sent(r->task))
		return;
	task_drop(&r->task);
	request_free(r);
	pg_error_set(&err, "57014", "canceling statement due to user request");
	client_fail(qc->client, &err);
}

void engine_client_ended(struct qclient *qc)
{
	struct request *r = qc->request;

	if (r == NULL)
		return;
	qc->request = NULL;
	r->qc = NULL;
	/* what was sent runs on; what was not is forgotten */
	if (r->task != NULL && !task_is_sent(r->task)) {
		task_drop(&r->task);
		request_free(r);
	}
}
