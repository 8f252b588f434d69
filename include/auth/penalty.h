/*
 * Failed logins make the next answer to the same address slower. Knows addresses as text and time,
 * no sockets.
 */
#ifndef QB_AUTH_PENALTY_H
#define QB_AUTH_PENALTY_H

#include "base/util.h"

/* A login from there failed now: how long its answer is to be held back, at most `most`. Each
 * failure is forgotten after a while. */
usec_t penalty_failed(const char *address, usec_t now, usec_t most);
/* Answers that are held back now count against an address: false when it has so many of them that
 * it gets no further attempt. */
MUST_CHECK bool penalty_may_try(const char *address, usec_t now);
void penalty_hold(const char *address);
void penalty_release(const char *address);
void penalty_free(void);

#endif
