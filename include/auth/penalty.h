/*
 * Failed logins make the next answer to the same origin slower. Knows origins as text and time, no
 * sockets.
 */
#ifndef QB_AUTH_PENALTY_H
#define QB_AUTH_PENALTY_H

#include "base/util.h"

/* A login from there failed now: how long its answer is to be held back, at most `most`. Each
 * failure is forgotten after a while. */
usec_t penalty_failed(const char *origin, usec_t now, usec_t most);
/* How long an attempt from there is to wait before anybody looks at it: 0, or `most` when so many
 * have failed within `most` that somebody does not wait for his answers. Right and wrong ones wait
 * alike; nobody is turned away. */
MUST_CHECK usec_t penalty_deferral(const char *origin, usec_t now, usec_t most);
void penalty_free(void);

#endif
