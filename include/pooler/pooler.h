/*
 * The pooler as main and the console see it: start, stop, and what an operator may do to it.
 */
#ifndef QB_POOLER_POOLER_H
#define QB_POOLER_POOLER_H

#include "conf/conf.h"
#include "net/conn.h"

struct database;

MUST_CHECK bool pooler_start(void);
void pooler_free(void);
/* A connection was accepted. Owns fd. */
void pooler_accept(int fd, const struct conn_addr *peer, void *unused);
/* The configuration in force has changed. */
void pooler_reloaded(void);

enum pooler_shutdown { SHUTDOWN_NONE, SHUTDOWN_WAIT_CLIENTS, SHUTDOWN_WAIT_SERVERS, SHUTDOWN_NOW };
void pooler_shutdown(enum pooler_shutdown how);
/* WAIT_CLIENTS is not wanted any more. Who was told to go has gone. */
void pooler_shutdown_undo(void);
enum pooler_shutdown pooler_is_shutting_down(void);
/* Called when the shutdown is complete. */
void pooler_on_stopped(void (*fn)(void));
/* Claimants are told to end their waits. */
void pooler_on_shutdown(void (*fn)(void));
/* The entry of a database leads elsewhere, or is new. */
void pooler_on_moved(void (*fn)(const char *database));

/* What the console commands do. NULL name: all databases. false: no such database. */
enum pooler_command {
	POOLER_PAUSE,
	POOLER_RESUME,
	POOLER_DISABLE,
	POOLER_ENABLE,
	POOLER_KILL,
	POOLER_RECONNECT,
	POOLER_SUSPEND, /* of all databases only */
};
enum pooler_result {
	POOLER_OK,
	POOLER_NO_DATABASE,
	POOLER_NOT_PAUSED,
	POOLER_ALREADY_PAUSED,
	POOLER_SOME_PAUSED, /* SUSPEND: a single database is */
};
enum pooler_result pooler_command(enum pooler_command cmd, const char *database);
/* true when a PAUSE of it is complete: no server is in use. */
bool pooler_is_paused(const char *database);
/* Is it, or a larger one, in force? */
bool pooler_pause_holds(const char *database);
bool pooler_all_paused(void);
enum pooler_suspended { SUSPENDED_NO, SUSPENDED_SOON, SUSPENDED_YES }; /* SOON: output is not written yet */
enum pooler_suspended pooler_is_suspended(void);
MUST_CHECK bool pooler_kill_client(uint64_t id);
bool pooler_has_database(const char *name);
bool pooler_is_disabled(const char *database); /* by DISABLE on the console */
/* A pool of the database, for work of the proxy itself: the one with that user, or of any user. NULL. */
struct pool *pooler_find_pool(const char *database, const char *user);

#endif
