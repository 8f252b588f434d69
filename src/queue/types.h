/*
 * What the payloads are that a statement is about (types.c).
 */
#ifndef QB_QUEUE_TYPES_H
#define QB_QUEUE_TYPES_H

#include "queue_int.h"

enum types { TYPES_KNOWN, TYPES_ASKED, TYPES_ERROR };
/* Has a statement payloads, or parameters, whose type depends on the queue? b NULL: it is to be described. */
MUST_CHECK bool types_matter(const struct qstmt *q, const struct bind_values *b);
/* Fills in q->payload, the types of parameters, q->differs. ASKED: the client is executed again when more is
 * known. ERROR: err is filled. */
MUST_CHECK enum types types_find(
	struct qclient *qc, struct qstmt *q, const struct bind_values *bind, bool alone, struct pg_error *err);
/* q->differs, in words. */
void types_differ(const struct qstmt *q, struct pg_error *err);
/* The payloads are of another type than was thought: how that is told to a client that was told so. */
void types_changed(struct pg_error *err);
/* To a client that was told nothing it need not be told: the statement is sent again, so often at most. Once, as it met
 * the other table (head_is_torn), and once, as the function said what that is. */
#define SENT_AGAIN_MAX 2
void types_forget(struct qdb *db, const struct qstmt *q, const struct bind_values *bind);

#endif
