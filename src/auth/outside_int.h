/*
 * Between the threads and the libraries they call. Whatever is here runs in a thread: no logging, no
 * memory of ours, nothing of the configuration.
 */
#ifndef QB_AUTH_OUTSIDE_INT_H
#define QB_AUTH_OUTSIDE_INT_H

#include "auth/outside.h"

#define OUTSIDE_NOTE 256

struct outside_job {
	enum auth_type type;
	char *user, *password, *address, *options, *pam_dir;
	char note[OUTSIDE_NOTE];
};

enum outside_verdict pam_check(struct outside_job *j);
enum outside_verdict ldap_check(struct outside_job *j);
/* NULL: they can be used. */
const char *ldap_check_options(const char *options, char *err, size_t err_size);

#endif
