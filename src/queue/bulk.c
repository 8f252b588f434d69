/*
 * PUSH of a query or a copy: the client's own server runs what the rewriter made of it, in the
 * client's transaction; what is left to do here is to wake those who wait when it is committed.
 * Must not know what the client's text means. Entry point: bulk_execute.
 */
#include <limits.h>
#include <string.h>

#include "qlang/refusal.h"
#include "count.h"
#include "engine.h"
#include "own_sql.h"
#include "queue_int.h"
#include "schema_int.h"
#include "wakes.h"

struct bulk {
	bool query, describe;
	bool replaces; /* jobs with that key */
	enum qpayload payload;
	char queue[QSTMT_QUEUE_MAX + 1];
};

static void bulk_done(struct client *c, void *arg, bool ok, uint64_t n)
{
	const struct bulk *b = arg;
	struct qclient *qc = qclient_find(c);

	if (qc == NULL || b->describe)
		return;
	if (!ok)
		schema_doubt(qc->taker.db);
	else if (n > 0) {
		struct tally *t = count_used(qc->taker.db, b->queue, false);

		count_in(&qc->taker, t, true)->n[FIGURE_PUSHED] += (int64_t)n;
		touch(&qc->taker, b->queue, n < UINT_MAX ? (unsigned)n : UINT_MAX);
	}
}

/* As the push of a value says it. Of a copy: in which line. */
static void no_payload(const struct bulk *b, const struct replace_error *e, struct pg_error *ret)
{
	pg_error_set(ret, "22004", "the payload must not be null");
	if (!b->query)
		pg_error_detail(ret, "%.*s", (int)strcspn(e->context, "\n"), e->context);
	pg_error_hint(ret, b->payload == QPAYLOAD_JSONB ? "The JSON value null is written 'null'."
							: "An empty payload is written ''.");
}

/* What Postgres says about what the client did not write, in the client's words. */
static bool bulk_error(void *arg, const struct replace_error *e, struct pg_error *ret)
{
	const struct bulk *b = arg;
	const char *sqlstate = e->sqlstate;
	enum replace_place place = e->place;

	if (!strcmp(sqlstate, "23502") && own_sql_is_table(b->queue, e->table) &&
		!strcmp(e->column, "payload")) {
		no_payload(b, e, ret);
		return true;
	}
	if (!strcmp(sqlstate, "42501") && e->hint[0] == '\0' &&
		own_sql_is_denied(b->queue, e->message)) {
		pg_error_set(ret, sqlstate, "%s", e->message);
		return refusal_reword(ret, b->replaces ? "PUSH, TAKE" : "PUSH");
	}
	/* COPY gives no position, but names no other table either */
	if (!strcmp(sqlstate, "42P01") && place == (b->query ? REPLACE_OURS : REPLACE_NOWHERE)) {
		pg_error_set(ret, sqlstate, "queue \"%s\" does not exist", b->queue);
		pg_error_hint(ret, "Create it with: QUEUE CREATE \"%s\";", b->queue);
		return true;
	}
	/* a table "push", which is ours, has fewer columns than we named */
	if (!strcmp(sqlstate, "42P10") && place != REPLACE_THEIRS) {
		pg_error_set(ret, sqlstate, "the query has fewer columns than the push names");
		pg_error_hint(ret,
			"The columns of the push are those in parentheses behind the queue; the query has one for each.");
		return true;
	}
	if (!strcmp(sqlstate, "42601") && place == REPLACE_OURS) {
		pg_error_set(ret, sqlstate, "the query has more columns than the push");
		pg_error_hint(ret,
			"Name them: QUEUE PUSH q (payload, priority, ...) SELECT ... QUEUE HELP PUSH shows what there is.");
		return true;
	}
	return false;
}

static bool fill(struct replace *r, struct bulk *b, const struct qstmt *q, bool describe)
{
	const struct qvalue *name = qstmt_one(q, QARG_QUEUE);
	struct qspan spans[QBULK_SPANS];

	if (!qbulk_sql(q, &r->sql, spans) || !own_sql_spans(r, spans, QBULK_SPANS))
		return false;
	if (q->n_params > 0) {
		r->oids = mem_dup(q->param_oids, (size_t)q->n_params * sizeof(*r->oids));
		if (r->oids == NULL)
			return false;
	}
	r->n_oids = q->n_params;
	r->copy = q->bulk.kind == QBULK_COPY;
	r->rows = qstmt_has(q, QARG_RETURNING);
	r->tag = REPLACE_TAG_KEEP;
	r->tag_text = "";
	r->on_done = bulk_done;
	r->on_error = bulk_error;
	b->query = q->bulk.kind == QBULK_QUERY;
	b->describe = describe;
	b->payload = q->payload;
	b->replaces = q->bulk.duplicate == QDUP_REPLACE || q->bulk.duplicate == QDUP_RERUN;
	memcpy(b->queue, name->text, name->text_len);
	return true;
}

enum exec_verdict bulk_execute(struct exec *x, const struct qstmt *q, struct qclient *qc)
{
	struct replace *r;
	struct bulk *b;

	CHECK_QCLIENT(qc);
	if (!own_sql_reads_as_prepared(x->client, q, &x->err))
		return EXEC_ERROR;
	r = mem_zalloc(sizeof(*r));
	b = mem_zalloc(sizeof(*b));
	if (r != NULL) {
		r->arg = b;
		r->free_arg = mem_free;
	}
	if (r == NULL || b == NULL || !fill(r, b, q, x->describe)) {
		if (r == NULL)
			mem_free(b);
		replace_free(&r);
		pg_error_set(&x->err, "53200", "out of memory");
		return EXEC_ERROR;
	}
	x->replace = r;
	if (!x->describe)
		client_watch_tx(qc->client);
	return EXEC_REPLACE;
}
