/*
 * A call on the client's own server, as a transaction is open there or others stand in the same
 * string: what the server gets in the place of the statement, and what follows from its answer.
 *
 * Entry point: run_in_place().
 */
#include <string.h>

#include "qlang/explain.h"
#include "qlang/refusal.h"
#include "count.h"
#include "engine.h"
#include "jobs.h"
#include "own_sql.h"
#include "queue_int.h"
#include "schema_int.h"
#include "types.h"

struct in_place {
	struct qstmt *q; /* borrowed: the statement outlives its execution */
	struct qdb *db;
	struct call call;
	struct replace *replace; /* borrowed: it owns this */
	bool describe;
	unsigned rows;
};

static void in_place_row(struct client *c, void *arg, const uint8_t *body, size_t len)
{
	struct in_place *ip = arg;

	(void)c;
	if (ip->replace->tag == REPLACE_TAG_TOLD) {
		if (partial_is_ok(body, len))
			ip->replace->told++;
		else if (ip->rows < (unsigned)ip->call.jobs.n)
			ip->call.jobs.tokens[ip->rows][0] = '\0';
		ip->rows++;
		return;
	}
	ip->rows++;
	call_row(&ip->call, body, len);
}

static void in_place_done(struct client *c, void *arg, bool ok, uint64_t n)
{
	struct in_place *ip = arg;
	struct qclient *qc = qclient_find(c);

	(void)n;
	if (qc == NULL || ip->describe)
		return;
	if (ok) {
		if (ip->replace->tag == REPLACE_TAG_TOLD)
			partial_ended(&ip->call.jobs);
		call_succeeded(&qc->taker, ip->q, &ip->call, ip->rows, true);
		names_free(&qc->then_names);
		qc->then_names = names_take(&ip->call.names);
	} else {
		count_failed(ip->q->verb->id);
		schema_doubt(qc->taker.db);
	}
}

/* 42804: of a queue that was dropped and made anew meanwhile, or in this transaction. */
static bool in_place_error(void *arg, const struct replace_error *e, struct pg_error *ret)
{
	const struct in_place *ip = arg;

	if (qstmt_own_server(ip->q) && own_sql_is_theirs(ip->call.queue, e))
		return false;
	if (strcmp(e->sqlstate, "42804") != 0) {
		pg_error_set(ret, e->sqlstate, "%s", e->message);
		pg_error_detail(ret, "%s", e->detail);
		pg_error_hint(ret, "%s", e->hint);
		return refusal_reword(ret, refusal_rights(ip->q)) ||
		       (e->place != REPLACE_THEIRS && explain_value(ret, ip->q->verb, ip->q));
	}
	if ((ip->q->verb->flags & QVERB_PAYLOAD) == 0 && !ip->q->bytes)
		return false;
	types_forget(ip->db, ip->q, NULL);
	types_changed(ret);
	return true;
}

static void in_place_free(void *arg)
{
	struct in_place *ip = arg;

	call_free(&ip->call);
	mem_free(ip);
}

/* Parameters that name a job go as the text of their token, the others as they came. */
static bool put_values(struct replace *r, const struct call *call)
{
	if (call->n_params == 0)
		return true;
	r->values = mem_zalloc(sizeof(*r->values));
	if (r->values == NULL)
		return false;
	for (int i = 0; i < call->n_params; i++) {
		build_i16(&r->formats, call->params[i].format);
		build_row_value(r->values, call->params[i].data, call->params[i].len);
	}
	return !buf_failed(r->values) && !buf_failed(&r->formats);
}

static enum replace_tag tag_kind(enum qverb_tag t)
{
	switch (t) {
	case QTAG_ROWS:
		return REPLACE_TAG_ROWS;
	case QTAG_VALUE:
		return REPLACE_TAG_VALUE;
	case QTAG_FIXED:
		break;
	}
	return REPLACE_TAG_FIXED;
}

enum exec_verdict run_in_place(
	struct exec *x, struct qstmt *q, struct qclient *qc, struct call *call)
{
	struct replace *r = mem_zalloc(sizeof(*r));
	struct in_place *ip = mem_zalloc(sizeof(*ip));
	bool ok = r != NULL && ip != NULL && (x->describe || put_values(r, call));
	int n_columns;

	CHECK_QCLIENT(qc);
	if (!ok)
		pg_error_set(&x->err, "53200", "out of memory");
	if (!ok || !own_sql_reads_as_prepared(x->client, q, &x->err) ||
		!(q->n_expressions > 0 && (x->describe || qstmt_own_server(q))
				? own_sql_put(r, &call->sql, q, &x->err)
				: call_sql(call, q, &x->err))) {
		mem_free(ip);
		replace_free(&r);
		return EXEC_ERROR;
	}
	ip->q = q;
	ip->db = qc->taker.db;
	ip->replace = r;
	ip->describe = x->describe;
	ip->call = *call;
	r->sql = ip->call.sql;
	r->oids = ip->call.oids;
	r->n_oids = ip->call.n_params;
	ip->call.sql = BUF_INIT;
	ip->call.oids = NULL;
	*call = (struct call){0};
	r->again = qstmt_then(q, QVERB_TAKE) && !x->describe;
	r->rows = qstmt_columns(q, &n_columns) != NULL && !r->again;
	r->tag = qstmt_has(q, QARG_PARTIAL) ? REPLACE_TAG_TOLD : tag_kind(qstmt_last(q)->tag);
	r->tag_text = qstmt_last(q)->tag_text;
	r->on_row = in_place_row;
	r->on_done = in_place_done;
	r->on_error = in_place_error;
	r->free_arg = in_place_free;
	r->arg = ip;
	x->replace = r;
	if (!x->describe)
		client_watch_tx(qc->client);
	return EXEC_REPLACE;
}
