/*
 * What the server asks of the system session's login, judged before libpq reads it: guard.c.
 */
#ifndef QB_QUEUE_GUARD_H
#define QB_QUEUE_GUARD_H

#include "base/util.h"

enum guard_state { GUARD_FIRST, GUARD_SCRAM, GUARD_OTHER, GUARD_FAILED, GUARD_PASSED };

enum guard_verdict {
	GUARD_LET,    /* libpq may read */
	GUARD_WAIT,   /* the message is not whole yet */
	GUARD_REFUSE, /* why says it */
};

struct guard {
	enum guard_state state; /* 0 when a connection begins */
	char why[160];
};

#define GUARD_BYTES 8192 /* a message of a login is shorter */

/* data: what libpq would read next, as far as it is there. */
enum guard_verdict guard_look(struct guard *g, const uint8_t *data, size_t len);

#endif
