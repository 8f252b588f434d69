/*
 * The proxy's own session in a database (system.c): who needs it, who hears of it, what is done in it. It knows
 * nobody: who wants to hear, or has statements for it, registers at start. Tables are static.
 */
#ifndef QB_QUEUE_SYSTEM_H
#define QB_QUEUE_SYSTEM_H

#include "base/buf.h"
#include "pooler/pooler.h"

#define SYSTEM_CHANNEL "qbouncer" /* of notifications; an empty one says that a proxy has come */
#define SYSTEM_AWAKE   "of no queue: a proxy takes again, and is to be told" /* (asleep.c) */

/* Who registers, twice as many as there are. */
#define SYSTEM_LISTENERS_MAX 16
#define SYSTEM_CHORES_MAX    8

struct qdb;

/* Each may be NULL. */
struct system_listener {
	/* It listens from now on, or does no more. Nobody knows what was said before. */
	void (*up)(struct qdb *db);
	void (*down)(struct qdb *db);
	/* Another session says that a queue has something new, or that any may have. */
	void (*event)(struct qdb *db, const char *queue);
	void (*event_of_any)(struct qdb *db);
	/* Another proxy has come; one that slept is awake. */
	void (*hello)(struct qdb *db);
	void (*awake)(struct qdb *db);
	/* What functions in the database raise, of a queue, while a statement runs, and its end. */
	void (*raised)(struct qdb *db, const char *queue, const char *tx);
	void (*statement_ended)(struct qdb *db, bool ok);
};
void system_listen(const struct system_listener *l);

/* Statements for the session, one after the other. The chore that was registered first goes first. */
struct system_chore {
	usec_t (*due)(const struct qdb *db); /* of the next one, while it is up; USEC_NEVER: none */
	bool (*step)(struct qdb *db, struct buf *sql); /* its text; false: none now */
	void (*row)(struct qdb *db, const char *const *cols, int n); /* as texts; NULL: NULL */
	void (*ended)(struct qdb *db, bool failed);
};
void system_add_chore(const struct system_chore *c);

void system_need(struct qdb *db, struct pool *pool); /* there is a waiter, or a push that others may wait for */
void system_free(struct qdb *db);
void system_rest(struct qdb *db); /* nobody needs it any more, until somebody does */
void system_moved(struct qdb *db); /* the database may be another one now */
bool system_is_up(const struct qdb *db);
bool system_is_named(const struct qdb *db); /* it is, and its role is that of the configuration */
const char *system_role(const struct qdb *db); /* which the configuration names; NULL: it is another one */
void system_work(struct qdb *db); /* a chore is due */
const char *system_state(const struct qdb *db);
void system_notify(struct qdb *db, const char *queue); /* tells other proxies, coalesced per turn */
void system_notify_all(struct qdb *db, const char *event); /* those who sleep, too */
void system_heard(struct qdb *db, const char *queue); /* as if another session had said so; NULL: of any */
void system_notify_any(struct qdb *db); /* of whichever queue */
/* Other proxies that have a session, too. While none is awake, or it is not known, what is to be told is kept. */
enum system_others { OTHERS_UNKNOWN, OTHERS_NONE, OTHERS_ASLEEP, OTHERS_AWAKE };
/* What registry.c has seen; and whether our lock counts with them. */
void system_looked(struct qdb *db, enum system_others others, bool counts);
enum system_others system_others(const struct qdb *db);

#endif
