/*
 * What passes between clients and servers, as the rooms above know it. For the rooms of the pooler
 * only.
 */
#ifndef QB_RELAY_RELAY_H
#define QB_RELAY_RELAY_H

#include "pool/rooms.h"

/* Messages of a session, and of a server that has logged in. */
extern const struct conn_ops client_ops;
extern const struct conn_ops server_ops;

/* Whose answers they are. */
extern const struct dest dest_client; /* forwarded */
extern const struct dest dest_local;  /* PARSED, CLOSED: arg is a struct cstmt, a reference */
extern const struct dest dest_swallow; /* ours; an error in it belongs to the client's statement all the same */
extern const struct dest dest_task;
extern const struct dest dest_replace; /* arg: struct replaced */
extern const struct dest dest_copy;    /* ours: which Syncs were answered of those in a copy that has failed */
extern const struct dest dest_fail;    /* makes the server's transaction fail as ours did; arg: struct buf, sent in its place */

/* cstmt.c */
/* Takes the reference of p or l. NULL: memory, the client is closed. */
struct cstmt *cstmt_add(struct client *c, const char *name, struct pstmt *p, struct lstmt *l);
void cstmt_confirm(struct client *c, struct cstmt *st);
void extq_free(struct client *c);

/* portal.c */
void portal_drop_all(struct client *c);

/* task.c */
bool task_starts(struct task *t, const struct server *s); /* it is about to be; false: it has ended instead */
void task_start(struct task *t, struct server *s);
void task_refuse_copy(struct server *s); /* its statement waits for data */
/* The connection of a server is lost, and with it what it ran. */
void together_end_all(struct task *leader, const struct pg_error *err, int32_t lost_in);
void task_end(struct task *t, const struct pg_error *err); /* frees it */
/* until: since when they wait, at most. has_engine: those that may run on the engine's own servers go on waiting. */
void task_fail_waiting(struct pool *p, const struct pg_error *err, usec_t until, bool has_engine);
void task_fail_late(struct pool *p, usec_t limit, usec_t now); /* that have waited for longer */

/* silent.c: statements of our own whose answer does not come */
void silent_tick(struct pool *p, usec_t now);
void silent_forget(struct task *t); /* it ends */

#endif
