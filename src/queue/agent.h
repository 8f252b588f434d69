/*
 * Roles that have used queues, with whose logins the proxy works by itself (agent.c).
 */
#ifndef QB_QUEUE_AGENT_H
#define QB_QUEUE_AGENT_H

#include "clean.h"
#include "queue_int.h"

struct agent {
	UT_hash_handle hh;
	struct used *used; /* the queues that it has taken from: hash by name */
	unsigned n_used;
	unsigned n_new; /* of them, not looked at yet */
	/* registry.c: up to which of its scans it has looked for orphans */
	uint64_t scanned;
	/* the one under way: which, where it goes on, what it has left */
	uint64_t scan;
	int32_t scan_after;
	struct names scan_left;
	struct names left; /* queues that the last one has left: they were locked */
	usec_t again_at;
	bool scanning;
	/* maintain.c: the round in which it was asked, and in which it was there; then what the server says of it */
	uint64_t tried, maintained;
	bool is_super;
	struct clean clean;
	size_t met; /* tables, in this round */
	/* gauge.c: the round in which it has counted; queues without a job */
	uint64_t gauged;
	struct clean idle;
	/* figures.c: the round in which it was asked to write, and when it has put old rows together */
	uint64_t figured;
	usec_t folded_at;
	/* system.c: what a session of its own was good for, when it was tried, and how long that is believed */
	enum agent_session { SESSION_SUPER, SESSION_FAILED, SESSION_SILENT, SESSION_UNTRIED } session;
	usec_t session_until;
	char role[64];
	char user[128]; /* as long as a client may say */
};

struct agent *agent_get(struct qdb *db, const char *user); /* makes it; NULL: memory, or too many */
struct agent *agent_find(struct qdb *db, const char *user); /* NULL: it is none */
void agent_took(struct taker *t, const char *queue);    /* a take from it has succeeded */
void agents_see(struct qdb *db);                           /* of all clients there are now */
void agent_put_used(struct buf *b, const struct agent *a); /* text[] in binary */
/* A look at the new ones begins; has ended, and if it has not come to all of them they are new again. */
void agent_asked(struct agent *a);
void agent_looked(struct agent *a, bool at_all);
void agent_put_asked(struct buf *b, const struct agent *a); /* text[] in binary: those it is to come to */
/* Those that were there in this round: their roles, and what they have used. */
void agents_put(struct buf *users, struct buf *used, const struct qdb *db, uint64_t round);
/* Where logins are of this role, if there may be any; the nth of those that there are. Or NULL. */
struct pool *agent_pool(struct qdb *db, const char *role);
struct pool *agent_any_pool(struct qdb *db, unsigned nth);
void agents_free(struct qdb *db);

#endif
