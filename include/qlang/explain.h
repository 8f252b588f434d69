/*
 * What to do about a value that a statement of the QUEUE language cannot have.
 */
#ifndef QB_QLANG_EXPLAIN_H
#define QB_QLANG_EXPLAIN_H

#include "qlang/parse.h"

/* Gives a HINT to an error that has none. q: the statement, if it is there still. false: it is left as it is. */
bool explain_value(struct pg_error *err, const struct qverb *verb, const struct qstmt *q);

#endif
