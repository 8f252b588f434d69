/*
 * Between session.c, inspect.c and the others of the room: the state of a session beyond its
 * transactions.
 */
#ifndef QB_SESSION_INT_H
#define QB_SESSION_INT_H

#include "pool/answer.h"
#include "pool/settings.h"
#include "session/session.h"
#include "wire/sqltext.h"

/* session.c: names to ask for, of settings that no view lists. false: there are too many. */
MUST_CHECK bool session_add_custom(struct server *s, const struct buf *names);

#endif
