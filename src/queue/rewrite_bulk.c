/*
 * The statement that a bulk push is. A query becomes the source of an INSERT into the queue's
 * table, COPY options those of a COPY into it: both run with the rights of the client, on its own
 * server, and their parameters, tags and errors are those of Postgres. Entry point: qbulk_sql.
 */
#include <string.h>

#include "rewrite.h"
#include "wire/sqllex.h"

#define PG "pg_catalog."

/*
 * name: of the client's column in our text, and of the table's where that takes the value as it is.
 * value: what becomes of it. target: where it goes, or several.
 */
static const struct column {
	const char *name, *value, *target;
} columns[QCOLUMN_COUNT] = {
	[QCOLUMN_PAYLOAD] = {"payload", "push.payload::" PG "text::" PG "jsonb", "payload"},
	[QCOLUMN_PRIORITY] = {"priority", "COALESCE(push.priority::" PG "int4, 0)", "priority"},
	[QCOLUMN_DELAY] = {"delay",
		"queue._bulk_start(" PG "clock_timestamp() OPERATOR(" PG "+) push.delay::" PG
		"interval) AS start",
		"state, run_at"},
	[QCOLUMN_AT] = {"run_at", "queue._bulk_start(push.run_at::" PG "timestamptz) AS start",
		"state, run_at"},
	[QCOLUMN_EXPIRES] = {"expires", "push.expires::" PG "interval", "expires_at"},
	[QCOLUMN_HEADERS] = {"headers", "queue._bulk_headers(push.headers::" PG "text)", "headers"},
	[QCOLUMN_ATTEMPTS] = {"max_attempts", "queue._bulk_attempts(push.max_attempts::" PG "int4)",
		"max_attempts"},
};

/* queue."q_<name>", for any name. */
static void put_table(struct buf *sql, const struct qvalue *name)
{
	buf_puts(sql, "queue.\"q_");
	for (size_t i = 0; i < name->text_len; i++) {
		if (name->text[i] == '"')
			buf_putc(sql, '"');
		buf_putc(sql, name->text[i]);
	}
	buf_putc(sql, '"');
}

static void put_names(struct buf *sql, const struct qbulk *b, bool targets)
{
	buf_putc(sql, '(');
	for (int i = 0; i < b->n_columns; i++) {
		const struct column *c = &columns[b->columns[i]];

		buf_printf(sql, "%s%s", i ? ", " : "", targets ? c->target : c->name);
	}
	buf_putc(sql, ')');
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
	bool start = false;

	for (int i = 0; i < b->n_columns; i++)
		start = start || b->columns[i] == QCOLUMN_DELAY || b->columns[i] == QCOLUMN_AT;
	for (int i = 0; i < b->n_columns; i++) {
		enum qcolumn c = b->columns[i];

		if (i)
			buf_puts(sql, ", ");
		if (c == QCOLUMN_DELAY || c == QCOLUMN_AT)
			buf_puts(sql, "queue._bulk_state(job.start), job.start");
		else if (c == QCOLUMN_EXPIRES)
			buf_printf(sql, "queue._bulk_expires(%s, job.expires)",
				start ? "job.start" : "NULL");
		else
			buf_printf(sql, "job.%s", columns[c].name);
	}
}

/*
 * Each step in a subquery of its own: what is volatile is computed once. The client's query ends
 * with a line, because it may end in a comment.
 *
 * More columns than are named would pass unnoticed: the VALUES of two lengths, which are never
 * made, are refused when they are parsed.
 */
static void put_query(const struct qstmt *q, struct buf *sql, struct qspan spans[QBULK_SPANS])
{
	const struct qbulk *b = &q->bulk;

	/* its WITH stands at the top, where it may also change data */
	if (b->with_len > 0) {
		put_theirs(q, sql, b->text, b->with_len, &spans[0]);
		buf_putc(sql, ' ');
	}
	buf_puts(sql, "INSERT INTO ");
	put_table(sql, qstmt_one(q, QARG_QUEUE));
	put_names(sql, b, true);
	buf_puts(sql, " SELECT ");
	put_job(sql, b);
	buf_puts(sql, " FROM (SELECT ");
	for (int i = 0; i < b->n_columns; i++) {
		const struct column *c = &columns[b->columns[i]];

		buf_printf(sql, "%s%s", i ? ", " : "", c->value);
		if (!strstr(c->value, " AS "))
			buf_printf(sql, " AS %s", c->name);
	}
	buf_puts(sql, " FROM (");
	put_theirs(q, sql, b->text + b->with_len, b->len - b->with_len, &spans[1]);
	buf_puts(sql, "\n) AS push");
	put_names(sql, b, false);
	buf_puts(sql, " WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (NULL");
	for (int i = 1; i < b->n_columns; i++)
		buf_puts(sql, ", NULL");
	buf_puts(sql, ")) AS columns)) AS job");
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
	put_table(sql, qstmt_one(q, QARG_QUEUE));
	put_names(sql, b, false);
	buf_puts(sql, " FROM STDIN ");
	put_theirs(q, sql, b->text, b->len, &spans[0]);
	return !buf_failed(sql);
}
