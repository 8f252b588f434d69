/*
 * SQL of the client's own in what runs instead of its statement (own_sql.c).
 */
#ifndef QB_QUEUE_OWN_SQL_H
#define QB_QUEUE_OWN_SQL_H

#include "qlang/rewrite.h"
#include "queue_int.h"

/* Where the client's text stands in that of the replacement. false: memory. */
MUST_CHECK bool own_sql_spans(struct replace *r, const struct qspan *spans, int n);
/* Appends the text of a statement with expressions. false: err is filled. */
MUST_CHECK bool own_sql_put(struct replace *r, struct buf *sql, const struct qstmt *q, struct pg_error *err);
/* Does a server read the text, or a literal of it, as it was read here when it was prepared? false: err is filled. */
MUST_CHECK bool own_sql_reads_as_prepared(const struct client *c, const struct qstmt *q, struct pg_error *err);
/* The table of the queue, not of what the client's own SQL speaks of? And a refusal of it? */
bool own_sql_is_table(const char *queue, const char *table);
bool own_sql_is_denied(const char *queue, const char *message);
/* Is it of an expression, or of what that speaks of? */
bool own_sql_is_theirs(const char *queue, const struct replace_error *e);

#endif
