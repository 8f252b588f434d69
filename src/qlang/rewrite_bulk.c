/*
 * The statement that a bulk push is. A query becomes the source of an INSERT into the queue's
 * table, COPY options those of a COPY into it: both run with the rights of the client, on its own
 * server, and their parameters, tags and errors are those of Postgres. What a row alone does not
 * decide (a KEY, a GROUP), and what COPY cannot compute, goes to the queue's view, whose trigger
 * pushes row by row. Entry point: qbulk_sql.
 */
#include <string.h>

#include "qlang/rewrite.h"
#include "wire/sqllex.h"

#define PG "pg_catalog."

/*
 * name: of the client's column in our text, and of the table's where that takes the value as it is.
 * value: what becomes of it. target: where it goes, or several. type: of the view's.
 */
static const struct column {
	const char *name, *value, *target, *type;
} columns[QCOLUMN_COUNT] = {
	[QCOLUMN_PAYLOAD] = {"payload", NULL, "payload", NULL}, /* payload_types */
	[QCOLUMN_PRIORITY] = {"priority", "COALESCE(push.priority::" PG "int4, 0)", "priority",
		"int4"},
	[QCOLUMN_DELAY] = {"delay",
		"queue._bulk_start(" PG "clock_timestamp() OPERATOR(" PG "+) push.delay::" PG
		"interval) AS start",
		"state, run_at", "interval"},
	[QCOLUMN_AT] = {"run_at", "queue._bulk_start(push.run_at::" PG "timestamptz) AS start",
		"state, run_at", "timestamptz"},
	[QCOLUMN_EXPIRES] = {"expires", "push.expires::" PG "interval", "expires_at", "interval"},
	[QCOLUMN_HEADERS] = {"headers", "queue._bulk_headers(push.headers::" PG "text)", "headers",
		"text"},
	[QCOLUMN_ATTEMPTS] = {"max_attempts", "queue._bulk_attempts(push.max_attempts::" PG "int4)",
		"max_attempts", "int4"},
	[QCOLUMN_KEY] = {"key", NULL, NULL, "text"},
	[QCOLUMN_GROUP] = {"\"group\"", NULL, NULL, "text"},
	[QCOLUMN_BATCH] = {"batch", "queue._bulk_batch(push.batch::" PG "text)", "batch", "text"},
};

/* JSON may come as whatever has its text; bytes only as bytes, or as a literal of them. */
static const char *const payload_types[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = "text::" PG "jsonb",
	[QPAYLOAD_TEXT] = "text",
	[QPAYLOAD_BYTEA] = "bytea",
};

/* queue."q_<name>", for any name; the view is queue."b_<name>". */
static void put_table(struct buf *sql, const struct qvalue *name, bool view)
{
	buf_puts(sql, view ? "queue.\"b_" : "queue.\"q_");
	for (size_t i = 0; i < name->text_len; i++) {
		if (name->text[i] == '"')
			buf_putc(sql, '"');
		buf_putc(sql, name->text[i]);
	}
	buf_putc(sql, '"');
}

static void put_names(struct buf *sql, const struct qbulk *b, bool targets)
{
	for (int i = 0; i < b->n_columns; i++) {
		const struct column *c = &columns[b->columns[i]];

		buf_printf(sql, "%s%s", i ? ", " : "", targets ? c->target : c->name);
	}
}

static bool has_start(const struct qbulk *b)
{
	return qbulk_has(b, QCOLUMN_DELAY) || qbulk_has(b, QCOLUMN_AT);
}

/* Do its jobs become due by themselves? Then that is a column, too. */
static bool has_due(const struct qbulk *b)
{
	return has_start(b) || qbulk_has(b, QCOLUMN_EXPIRES);
}

static bool needs_view(const struct qbulk *b)
{
	static const enum qcolumn computed[] = {QCOLUMN_DELAY, QCOLUMN_AT, QCOLUMN_EXPIRES};

	for (size_t i = 0; i < ARRAY_LEN(computed); i++)
		if (b->kind == QBULK_COPY && qbulk_has(b, computed[i]))
			return true;
	return qbulk_has(b, QCOLUMN_KEY) || qbulk_has(b, QCOLUMN_GROUP);
}

/* A key's column of the view tells what happens to one that is there. returns: whose id it tells.
 */
static void put_view_names(struct buf *sql, const struct qbulk *b, bool returns)
{
	static const char *const keys[QDUP_COUNT] = {
		[QDUP_IGNORE] = "key",
		[QDUP_REPLACE] = "key_replace",
		[QDUP_RERUN] = "key_rerun",
		[QDUP_ERROR] = "key_error",
	};

	buf_putc(sql, '(');
	for (int i = 0; i < b->n_columns; i++)
		buf_printf(sql, "%s%s", i ? ", " : "",
			b->columns[i] == QCOLUMN_KEY ? keys[b->duplicate]
						     : columns[b->columns[i]].name);
	buf_puts(sql, returns ? ", with_old)" : ")");
}

static int chars(const char *from, size_t len)
{
	return len > 0 ? sql_char_position(from, from + len) - 1 : 0;
}

/* The client's own bytes. */
static void put_theirs(
	const struct qstmt *q, struct buf *sql, const char *text, size_t len, struct qspan *span)
{
	if (buf_failed(sql))
		return;
	*span = (struct qspan){.ours = chars((const char *)sql->data, sql->len) + 1,
		.theirs = chars(q->text, (size_t)(text - q->text)) + 1,
		.len = chars(text, len)};
	buf_put(sql, text, len);
}

/* What goes into the targets, from the values of one job. */
static void put_job(struct buf *sql, const struct qbulk *b)
{
	for (int i = 0; i < b->n_columns; i++) {
		enum qcolumn c = (enum qcolumn)b->columns[i];

		if (i)
			buf_puts(sql, ", ");
		if (c == QCOLUMN_DELAY || c == QCOLUMN_AT)
			buf_puts(sql, "queue._bulk_state(job.start) AS state, job.start AS run_at");
		else if (c == QCOLUMN_EXPIRES)
			buf_printf(sql, "queue._bulk_expires(%s, job.expires) AS expires_at",
				has_start(b) ? "job.start" : "NULL");
		else
			buf_printf(sql, "job.%s", columns[c].name);
	}
}

/*
 * The client's query, which ends with a line, because it may end in a comment. More columns than
 * are named would pass unnoticed: the VALUES of two lengths, which are never made, are refused when
 * they are parsed.
 */
static void put_source(const struct qstmt *q, struct buf *sql, struct qspan *span)
{
	const struct qbulk *b = &q->bulk;

	buf_puts(sql, " FROM (");
	put_theirs(q, sql, b->text + b->with_len, b->len - b->with_len, span);
	buf_puts(sql, "\n) AS push(");
	put_names(sql, b, false);
	buf_puts(sql, ") WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (NULL");
	for (int i = 1; i < b->n_columns; i++)
		buf_puts(sql, ", NULL");
	buf_puts(sql, ")) AS columns)");
}

/* With its type. */
static void put_value(struct buf *sql, const struct qstmt *q, const struct column *c)
{
	buf_printf(
		sql, "push.%s::" PG "%s", c->name, c->type ? c->type : payload_types[q->payload]);
}

/* Each step in a subquery of its own: what is volatile is computed once. */
static void put_rows(const struct qstmt *q, struct buf *sql, struct qspan *span)
{
	const struct qbulk *b = &q->bulk;

	buf_putc(sql, '(');
	put_names(sql, b, true);
	buf_puts(sql, has_due(b) ? ", due) SELECT made.*" : ") SELECT ");
	if (has_due(b))
		buf_printf(sql, ", queue._due(%s, NULL, %s, %s) FROM (SELECT ",
			has_start(b) ? "made.state" : "'ready'",
			has_start(b) ? "made.run_at" : "NULL",
			qbulk_has(b, QCOLUMN_EXPIRES) ? "made.expires_at" : "NULL");
	put_job(sql, b);
	buf_puts(sql, " FROM (SELECT ");
	for (int i = 0; i < b->n_columns; i++) {
		const struct column *c = &columns[b->columns[i]];

		buf_puts(sql, i ? ", " : "");
		if (c->value)
			buf_puts(sql, c->value);
		else
			put_value(sql, q, c);
		if (!c->value || !strstr(c->value, " AS "))
			buf_printf(sql, " AS %s", c->name);
	}
	put_source(q, sql, span);
	buf_puts(sql, has_due(b) ? ") AS job) AS made" : ") AS job");
}

static void put_view_rows(const struct qstmt *q, struct buf *sql, struct qspan *span)
{
	const struct qbulk *b = &q->bulk;
	bool returns = qstmt_has(q, QARG_RETURNING);

	put_view_names(sql, b, returns);
	buf_puts(sql, " SELECT ");
	for (int i = 0; i < b->n_columns; i++) {
		buf_puts(sql, i ? ", " : "");
		put_value(sql, q, &columns[b->columns[i]]);
	}
	buf_puts(sql, returns ? ", true" : "");
	put_source(q, sql, span);
}

/* The view's trigger knows the name of a job; of a row of the table it is put together. */
static void put_job_name(const struct qstmt *q, struct buf *sql, bool view)
{
	const struct qvalue *queue = qstmt_one(q, QARG_QUEUE);

	if (view) {
		buf_puts(sql, "job");
		return;
	}
	buf_puts(sql, PG "concat((SELECT queue._bulk_number(");
	qsql_put_quoted(sql, queue->text, queue->text_len);
	buf_puts(sql, ")), '-', id) AS job");
}

/* The rows come in the order in which they are inserted, which is that of the query. */
static void put_returning(const struct qstmt *q, struct buf *sql, bool view)
{
	bool job_first = q->returning == QRETURN_JOB || q->returning == QRETURN_JOB_ID;

	buf_puts(sql, " RETURNING ");
	if (job_first)
		put_job_name(q, sql, view);
	if (q->returning != QRETURN_JOB)
		buf_puts(sql, job_first ? ", id" : "id");
	if (q->returning == QRETURN_ID_JOB) {
		buf_puts(sql, ", ");
		put_job_name(q, sql, view);
	}
}

static void put_query(const struct qstmt *q, struct buf *sql, struct qspan spans[QBULK_SPANS])
{
	const struct qbulk *b = &q->bulk;
	bool view = needs_view(b);

	/* its WITH stands at the top, where it may also change data */
	if (b->with_len > 0) {
		put_theirs(q, sql, b->text, b->with_len, &spans[0]);
		buf_putc(sql, ' ');
	}
	buf_puts(sql, "INSERT INTO ");
	put_table(sql, qstmt_one(q, QARG_QUEUE), view);
	if (view)
		put_view_rows(q, sql, &spans[1]);
	else
		put_rows(q, sql, &spans[1]);
	if (qstmt_has(q, QARG_RETURNING))
		put_returning(q, sql, view);
}

bool qbulk_sql(const struct qstmt *q, struct buf *sql, struct qspan spans[QBULK_SPANS])
{
	const struct qbulk *b = &q->bulk;

	memset(spans, 0, QBULK_SPANS * sizeof(*spans));
	if (b->kind == QBULK_QUERY) {
		put_query(q, sql, spans);
		return !buf_failed(sql);
	}
	buf_puts(sql, "COPY ");
	put_table(sql, qstmt_one(q, QARG_QUEUE), needs_view(b));
	if (needs_view(b))
		put_view_names(sql, b, false);
	else {
		buf_putc(sql, '(');
		put_names(sql, b, false);
		buf_putc(sql, ')');
	}
	buf_puts(sql, " FROM STDIN ");
	put_theirs(q, sql, b->text, b->len, &spans[0]);
	return !buf_failed(sql);
}
