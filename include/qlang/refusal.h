/*
 * Errors of a server's in the words of the QUEUE language.
 */
#ifndef QB_QLANG_REFUSAL_H
#define QB_QLANG_REFUSAL_H

#include "qlang/parse.h"

/* What QUEUE GRANT gives for this statement. */
const char *refusal_rights(const struct qstmt *q);
/* rights: what QUEUE GRANT gives. false: it is left as it is. */
bool refusal_reword(struct pg_error *err, const char *rights);

#endif
