/*
 * TAKE and POP with WHERE: the condition of a waiter, and the statement that asks with it. The condition is bytes of
 * the client's, between parentheses, in a statement that runs under its settings, never on a connection of the
 * engine's own; its values are bound. Must not know: what becomes of the answer, and when it is asked.
 *
 * Entry points: take_where_*, where_spec(), where_statement().
 */
#include <stdio.h>
#include <string.h>

#include "wire/array.h"
#include "wire/sqltext.h"
#include "own_sql.h"
#include "take.h"
#include "wait_int.h"
#include "where.h"

struct take_where {
	char *text; /* the condition */
	size_t len;
	bool touches; /* it may change something of its session */
	int n_params;
	struct bind_param *params; /* with their bytes behind them */
	uint32_t *oids;
};

void take_where_free(struct take_where **p)
{
	struct take_where *w = *p;

	*p = NULL;
	if (w == NULL)
		return;
	mem_free(w->text);
	mem_free(w->params);
	mem_free(w->oids);
	mem_free(w);
}

static bool copy_params(struct take_where *w, const struct qstmt *q, const struct bind_values *b)
{
	size_t n = (size_t)q->n_params, bytes = 0;
	uint8_t *at, *uses;

	for (int i = 0; i < b->n_params; i++)
		bytes += b->params[i].len > 0 ? (size_t)b->params[i].len : 0;
	w->n_params = q->n_params;
	w->oids = mem_alloc((n + 1) * sizeof(*w->oids));
	w->params = mem_zalloc((n + 1) * sizeof(*w->params) + bytes);
	if (w->oids == NULL || w->params == NULL || b->n_params != q->n_params)
		return false;
	at = (uint8_t *)(w->params + n + 1);
	ASSERT(qstmt_has(q, QARG_WHERE));
	uses = mem_alloc(n + 1);
	if (uses == NULL)
		return false;
	qstmt_param_uses(q, uses);
	if (n > 0)
		memcpy(w->oids, q->param_oids, n * sizeof(*w->oids));
	w->oids[n] = OID_TEXT_ARRAY;
	for (size_t i = 0; i < n; i++) {
		w->params[i] = b->params[i];
		/* a LIMIT, or the token of a DONE: conditions that differ in these are equal */
		if ((uses[i] & QPARAM_IN_SQL) == 0)
			w->params[i] = (struct bind_param){.len = -1, .oid = w->oids[i]};
		if (w->params[i].len <= 0)
			continue;
		memcpy(at, w->params[i].data, (size_t)w->params[i].len);
		w->params[i].data = at;
		at += w->params[i].len;
	}
	mem_free(uses);
	return true;
}

/* As a statement of its own would: SELECT, so that it is read as what it is. */
static bool touches(const struct client *c, const struct take_where *w, bool *ret)
{
	struct buf sql = BUF_INIT;
	struct sql_text t;

	buf_puts(&sql, "SELECT ");
	buf_put(&sql, w->text, w->len);
	if (buf_failed(&sql))
		return false;
	sql_text_init(&t, (const char *)sql.data, sql.len, client_dialect(c), SQL_OF_PARSE);
	*ret = sql_touches(&t) != 0;
	sql_text_free(&t);
	buf_free(&sql);
	return true;
}

struct take_where *take_where_new(const struct exec *x, const struct qstmt *q, struct pg_error *err)
{
	const struct qvalue *v = qstmt_one(q, QARG_WHERE);
	struct take_where *w;

	if (!own_sql_reads_as_prepared(x->client, q, err))
		return NULL;
	w = mem_zalloc(sizeof(*w));
	if (w == NULL)
		goto no_memory;
	w->len = v->src_len;
	w->text = mem_dup(v->src, w->len);
	if (w->text != NULL && copy_params(w, q, &x->bind) && touches(x->client, w, &w->touches))
		return w;
no_memory:
	take_where_free(&w);
	pg_error_set(err, "53200", "out of memory");
	return NULL;
}

void take_where_key(const struct take_where *w, struct buf *key)
{
	buf_put(key, &w->len, sizeof(w->len));
	buf_put(key, w->text, w->len);
	for (int i = 0; i < w->n_params; i++) {
		const struct bind_param *p = &w->params[i];

		buf_put(key, &w->oids[i], sizeof(w->oids[i]));
		buf_put(key, &p->format, sizeof(p->format));
		buf_put(key, &p->len, sizeof(p->len));
		if (p->len > 0)
			buf_put(key, p->data, (size_t)p->len);
	}
}

bool take_where_equal(const struct take_where *a, const struct take_where *b)
{
	if (a->len != b->len || a->n_params != b->n_params || memcmp(a->text, b->text, a->len) != 0)
		return false;
	for (int i = 0; i < a->n_params; i++) {
		const struct bind_param *p = &a->params[i], *o = &b->params[i];

		if (a->oids[i] != b->oids[i] || p->format != o->format || p->len != o->len ||
			(p->len > 0 && memcmp(p->data, o->data, (size_t)p->len) != 0))
			return false;
	}
	return true;
}

/* The client's bytes are looked into by nobody: an @ in them is theirs. */
static char *statement(enum call_id id, const struct take_where *w)
{
	const char *sql = queue_calls[id].sql, *at = strstr(sql, "%s"), *p;
	struct buf b = BUF_INIT;
	char *ret;

	for (p = sql; *p != '\0'; p++) {
		if (p == at) {
			buf_putc(&b, '(');
			buf_put(&b, w->text, w->len);
			buf_puts(&b, "\n)"); /* a comment ends before */
			p++;
		} else if (*p == '@') {
			buf_printf(&b, "%d", w->n_params + 1);
		} else {
			buf_putc(&b, *p);
		}
	}
	ret = buf_failed(&b) ? NULL : mem_strdup(buf_cstr(&b));
	buf_free(&b);
	return ret;
}

/* What stands in sql/functions/where.sql, behind the number of jobs and the seed. */
static void put_said(struct merge_own *o, struct waiter *w, const char *proxy)
{
	struct buf *b = &o->array;

	array_put_text(b, w->args.pop ? "true" : "false");
	array_put_text(b, w->args.lease);
	array_put_text(b, w->args.as);
	array_put_text(b, proxy);
	for (int i = 0; i < w->args.n_queues; i++) {
		char low[MERGE_NUMBER_MAX];

		snprintf(low, sizeof(low), "%lld",
			(long long)(w->members != NULL ? w->members[i].asked_low : 0));
		array_put_text(b, w->args.queues[i]);
		array_put_text(b, low);
	}
	o->n_array = 4 + 2 * w->args.n_queues;
}

bool where_statement(
	const struct take_where *w, enum call_id id, struct buf *said, struct where_statement *ret)
{
	size_t n = (size_t)w->n_params;

	*ret = (struct where_statement){.sql = statement(id, w),
		.oids = w->oids,
		.params = mem_alloc((n + 1) * sizeof(*ret->params)),
		.n_params = w->n_params + 1,
		.leaves = w->touches ? TASK_LEAVES_SESSION : TASK_LEAVES_NOTHING,
		.said = *said};
	*said = BUF_INIT;
	if (ret->sql == NULL || ret->params == NULL || buf_failed(&ret->said))
		return false;
	memcpy(ret->params, w->params, n * sizeof(*ret->params));
	ret->params[n] = (struct bind_param){
		.data = ret->said.data, .len = (int32_t)ret->said.len, .format = 1};
	return true;
}

void where_statement_free(struct where_statement *st)
{
	mem_free(st->sql);
	mem_free(st->params);
	buf_free(&st->said);
	*st = (struct where_statement){0};
}

bool where_spec(struct waiter *w, const char *proxy, struct merge_spec *spec)
{
	static const enum call_id calls[QPAYLOAD_COUNT] = {
		[QPAYLOAD_JSONB] = CALL_TAKE_WHERE,
		[QPAYLOAD_TEXT] = CALL_TAKE_WHERE_TEXT,
		[QPAYLOAD_BYTEA] = CALL_TAKE_WHERE_BYTEA,
	};
	struct take_where *q = w->args.where;
	size_t n = (size_t)q->n_params + 1;
	struct merge_own *o = merge_own_new();

	CHECK_WAITER(w);
	ASSERT(q != NULL && w->args.n_queues > 0);
	if (o == NULL)
		return false;
	o->sql = statement(calls[w->args.payload], q);
	o->oids = mem_dup(q->oids, n * sizeof(*o->oids));
	o->leaves = q->touches ? TASK_LEAVES_SESSION : TASK_LEAVES_NOTHING;
	put_said(o, w, proxy);
	spec->own = o;
	spec->n_params = (int)n;
	spec->params = q->params;
	spec->array_param = spec->count_param = -1;
	return o->sql != NULL && o->oids != NULL && !buf_failed(&o->array);
}
