/*
 * The queue: claims QUEUE statements of the clients of all databases.
 */
#ifndef QB_QUEUE_QUEUE_H
#define QB_QUEUE_QUEUE_H

#include "wire/error.h"

/* Registers with the pool. Call before pooler_start(). */
MUST_CHECK bool queue_start(void);
/* Before the pools are freed. */
void queue_stop(void);
/* After that. */
void queue_free(void);
/* Settings may have changed. */
void queue_reloaded(void);

/*
 * Installs or upgrades the queue schema in a database, as the role `user` (NULL: of any pool of it).
 * done is called once, not from inside, with the role that it was; err NULL: installed. false: no such database, or memory.
 */
MUST_CHECK bool queue_install(const char *database, const char *user,
	void (*done)(void *arg, const char *role, const struct pg_error *err), void *arg);

#endif
