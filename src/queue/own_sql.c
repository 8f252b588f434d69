/*
 * SQL of the client's own in what runs instead of its statement: where it stands, and which errors
 * are of it, and not of what we have put around it. Must not know what it means.
 *
 * Entry points: own_sql_* in own_sql.h.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "own_sql.h"
#include "queue_int.h"

bool own_sql_spans(struct replace *r, const struct qspan *spans, int n)
{
	r->own_text = true;
	r->spans = mem_alloc((size_t)n * sizeof(*r->spans));
	if (r->spans == NULL)
		return false;
	r->n_spans = n;
	for (int i = 0; i < n; i++)
		r->spans[i] = (struct replace_span){
			.ours = spans[i].ours, .theirs = spans[i].theirs, .len = spans[i].len};
	return true;
}

bool own_sql_put(struct replace *r, struct buf *sql, const struct qstmt *q, struct pg_error *err)
{
	struct qspan *spans = mem_alloc((size_t)q->n_expressions * sizeof(*spans));
	bool ok = spans != NULL && qstmt_expressions_sql(q, sql, spans, err) &&
		  own_sql_spans(r, spans, q->n_expressions);

	if (!ok)
		pg_error_set(err, "53200", "out of memory");
	mem_free(spans);
	return ok;
}

/* Quotes end elsewhere then: what was delimited as a value might be more than one. */
bool own_sql_reads_as_prepared(const struct client *c, const struct qstmt *q, struct pg_error *err)
{
	bool standard = (client_dialect(c) & SQL_STANDARD) != 0;
	struct sql_text t;

	if (standard == q->standard_strings && !client_encoding_unsafe(c))
		return true;
	sql_text_init(&t, q->text, q->text_len, client_dialect(c), SQL_OF_PARSE);
	if (client_encoding_unsafe(c) ? sql_is_plain(&t)
				      : memchr(q->text, '\\', q->text_len) == NULL)
		return true;
	pg_error_set(err, "0A000",
		"the QUEUE statement was prepared under another %s, in which its text means something else",
		standard == q->standard_strings ? "client_encoding"
						: "standard_conforming_strings");
	pg_error_hint(err, "Prepare it again.");
	return false;
}

bool own_sql_is_table(const char *queue, const char *table)
{
	return strncmp(table, "q_", 2) == 0 && strcmp(table + 2, queue) == 0;
}

bool own_sql_is_denied(const char *queue, const char *message)
{
	const char *table = strstr(message, " q_");

	return table != NULL && own_sql_is_table(queue, table + 1);
}

bool own_sql_is_theirs(const char *queue, const struct replace_error *e)
{
	return e->place == REPLACE_THEIRS ||
	       (strcmp(e->sqlstate, "42501") == 0 && !own_sql_is_denied(queue, e->message));
}
