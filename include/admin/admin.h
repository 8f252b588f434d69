/*
 * The console: the databases "qbouncer" and "pgbouncer", where an operator looks and commands.
 */
#ifndef QB_ADMIN_ADMIN_H
#define QB_ADMIN_ADMIN_H

#include "pooler/pooler.h"
#include "wire/error.h"

/* What the console asks of the program as a whole. */
struct admin_hooks {
	/* Reads configuration and users again, all or nothing. false: err says why. */
	bool (*reload)(struct pg_error *err);
	/* A parameter was changed by SET. */
	void (*changed)(void);
	void (*shutdown)(enum pooler_shutdown how);
	/* A process of our own unix user, at the other end of this unix socket, takes over; -1: of somebody else. false: err says why not. */
	bool (*takeover)(int fd, uint64_t version, struct pg_error *err);
};

/* Registers the console with the pool. hooks is kept. */
MUST_CHECK bool admin_start(const struct admin_hooks *hooks);
void admin_free(void);

#endif
