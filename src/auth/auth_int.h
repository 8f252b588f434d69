/*
 * What the conversation asks of the user table beyond auth.h.
 */
#ifndef QB_AUTH_AUTH_INT_H
#define QB_AUTH_AUTH_INT_H

#include "auth/auth.h"

/*
 * The verifier of a user whose secret is PLAIN. Made once and kept with the user, because it costs
 * milliseconds: reconnecting clients must not hold up the loop. NULL: no such user, or no memory.
 */
MUST_CHECK const struct scram_verifier *auth_user_verifier(const char *name, int iterations);
/* Do most secrets of the file ask for SCRAM under auth_type = md5? Unknown users get the same. */
MUST_CHECK bool auth_file_prefers_scram(void);

#endif
