/*
 * Passwords that somebody else checks: PAM and LDAP. Their libraries block, so they run in a few
 * threads of their own, which know nothing but their job. The loop gives jobs and gets verdicts.
 */
#ifndef QB_AUTH_OUTSIDE_H
#define QB_AUTH_OUTSIDE_H

#include "conf/conf.h"

struct outside_request {
	enum auth_type type; /* AUTH_PAM or AUTH_LDAP */
	const char *user, *password;
	const char *address; /* of the client; "" for a unix socket */
	const char *options; /* of the rule, a line each; "" for none */
};

enum outside_verdict {
	OUTSIDE_GOOD,
	OUTSIDE_WRONG,  /* the password, or the user */
	OUTSIDE_FAILED, /* it could not be checked */
	OUTSIDE_CROWDED, /* it waited, and its address had more waiting than any other */
};
/* note: what happened, for the log. Never called from inside outside_start(). */
typedef void outside_fn(void *arg, enum outside_verdict v, const char *note);

/* What a job's owner holds until the verdict comes. */
struct outside;
/* NULL: too many wait already, or no memory. All of the request is copied, and erased behind the
 * verdict. */
MUST_CHECK struct outside *outside_start(const struct outside_request *r, outside_fn *fn, void *arg);
/* No verdict will come. Clears *p. What a thread has begun it ends, for nobody. */
void outside_drop(struct outside **p);

/* Can the options of a rule be used? false: err says why not. */
MUST_CHECK bool outside_check(enum auth_type t, const char *options, char *err, size_t err_size);
/* auth_ldap_options, blanks between and quotes around, as the lines of a rule; for outside_options_free().
 * NULL: memory. */
MUST_CHECK char *outside_lines(const char *text);

/* Options may have a password: *p is erased before it is freed, and cleared. Of mem.h; NULL is fine. */
void outside_options_free(char **p);

void outside_free(void);

#endif
