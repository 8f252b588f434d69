/*
 * Who gets a server: clients and tasks that wait, and what the pool asks of the rooms above it. For the
 * rooms of the pooler only.
 */
#ifndef QB_POOL_HAND_OUT_H
#define QB_POOL_HAND_OUT_H

#include "pool/database.h"
#include "pool/task.h"
#include "wire/error.h"

/* At the entrances: is it one, and not freed? A dead one is one until the reaper has it. */
#define TASK_MAGIC 0x517a5c47u
#define CHECK_TASK(t) INVARIANT_IS(t, TASK_MAGIC, "no task, or one that has ended")

/* How the statement is sent that is under way, and whether another one follows it (task_go_on()). */
struct task_steps {
	bool describe;
	bool slow;
	bool undone;  /* by one that has followed: as if all had failed */
	bool goes_on; /* one follows */
	const char *before, *behind;
	size_t row_max;
};

struct task {
	uint32_t magic;
	struct task *prev, *next;
	struct pool *pool;
	struct server *server; /* NULL: waiting */
	const struct task_ops *ops; /* NULL: dropped */
	void *arg;
	struct pstmt *stmt;    /* not a script */
	char *script;
	struct buf bind;       /* Bind message behind the statement name: formats, values, result formats */
	bool prepare, failed, stays;
	struct task_steps steps;
	enum task_leaves leaves;
	uint64_t session;      /* task_spec.session */
	struct kept *kept;     /* kept.c: the one that it waits for, or runs in; or NULL */
	bool engine;           /* task_spec.engine, and no settings but those that are tracked */
	uint8_t together;      /* task_spec.together, where engine is true; 0 also when it was cancelled, or undone with others */
	struct task *after;    /* together.c: the next one in the same transaction */
	struct task *at;       /* together.c: of the first: whose answer comes; NULL: all have come */
	struct buf rows;       /* together.c: until they are committed: each as int32 length and body */
	bool first;            /* of its kind on its server */
	enum task_time time;
	bool is_inspection;          /* silent.c: asks for another one */
	struct silent_look *look; /* silent.c: what was asked about it; or NULL */
	usec_t heard_at; /* silent.c: it said that it waits; 0: no. USEC_NEVER: task_rest() */
	usec_t asked_at;       /* ... and was asked then; 0: it was not */
	int32_t lost_in;       /* task_lost_in() */
	struct vars vars;
	struct istr *extra;
	void *events;        /* of the claimant; or NULL */
	uint64_t kind;     /* 0: of none */
	usec_t held_since; /* it waits for a certain server, though another is free; 0: does not */
	usec_t since;
	uint64_t seq; /* in the order of task_submit() */
	struct pg_error err; /* when it has failed; not touched before: it is most of this */
};

/* pool.c */
struct pool *pool_get(struct database *db, const char *user);
struct pool *pool_get_lookup(struct database *db, const char *user); /* of lookup.c alone */
#define POOL_LOOKUP_SERVERS 2
struct pool *pool_new_replication(struct database *db, const char *user, struct istr *startup); /* of one client */
void pool_free(struct pool **p);
bool pool_serve_ready(void *arg, usec_t now); /* the loop phase */
/* What the pool asks of those who know it: the rooms above. Set by pool_start(). */
struct pool_calls {
	bool (*login)(struct server *s);   /* it is to connect and to log in; false: memory */
	void (*welcome)(struct client *c); /* GREETING: the pool knows its welcome now */
	void (*wake)(struct database *db); /* servers may be given away again */
	void (*check)(struct server *s);   /* is it still alive? */
	void (*idle)(struct client *c); /* is it, and to leave? Then nothing of it is begun any more */
	bool (*turns_away)(const struct client *c); /* it has come too late */
	void (*stranger)(int32_t pid, const uint8_t *key, size_t len); /* a cancel key that nobody has here */
	void (*fewer_logins)(void);
	bool (*task_starts)(struct task *t, const struct server *s); /* it is about to be; false: it has ended instead */
	void (*task_start)(struct task *t, struct server *s);
	/* has_engine: those that may run on the engine's own servers go on waiting for one. */
	void (*tasks_fail)(struct pool *p, const struct pg_error *err, usec_t until, bool has_engine);
	const struct dest *settings; /* for whom the SET of a client's settings is */
	const struct dest *unheard;  /* what goes with a statement of the client's, which hears nothing of it */
};
MUST_CHECK bool pool_start(const struct pool_calls *calls);
void pool_forget_began(struct pool *p);    /* settings that the last client began with */
void pool_forget_accepted(struct pool *p); /* settings that its servers have taken */
void pool_stop(void);

/* need.c: one that is idle; NULL: none, or none that may be given */
struct server *pool_take_idle(struct pool *p, bool for_client);

unsigned need_servers_there(const struct pool *p); /* that count, in all processes if its size holds over these */

/* over.c: limits were lowered, perhaps */
void over_look(struct pool *p, usec_t now); /* what is free and too many goes */
void over_begin(struct database *db);
void over_task_began(struct pool *p, usec_t now);

/* launch.c */
void pool_launch(struct pool *p, usec_t now);
void pool_server_failed(struct server *s, const struct pg_error *err); /* it could not log in */
bool pool_unreachable(const struct pool *p, usec_t now);
void pool_keep_minimum(struct pool *p, usec_t now); /* min_pool_size */

/* engines.c: connections of the queue engine's own */
struct server *engines_idle(const struct pool *p);         /* one that is free; NULL: none, or nobody is given any */
struct server *engines_longest_idle(const struct pool *p); /* it may go; or NULL */
unsigned engines_others(const struct pool *p);             /* servers that are not */
void engines_missed(struct pool *p, usec_t now);           /* a statement runs elsewhere, for want of one */
bool engines_pay(const struct pool *p, usec_t now);        /* is one more worth it? */
bool engines_make_room(struct pool *p, usec_t now);        /* may there be one more? */
unsigned engines_shared(const struct pool *p, usec_t now); /* so many wait that need no connection but these */
void engines_failed(struct server *s, const struct pg_error *err); /* it did not come to stand */
/* What is said at its start: name, value, ...; the same as statements, behind a connect_query. */
void engines_pins(const char **pairs, int *n, int max); /* n, max: pairs */
void engines_pins_sql(struct buf *sql);

/* kept.c: sessions that one task leaves to the next */
void kept_claim(struct task *t);                   /* waits for one, if there is one */
struct server *kept_server(const struct task *t);  /* that one; NULL: not yet */
void kept_unclaim(struct task *t);                 /* it does not run */
void kept_begins(struct task *t, const struct server *s);
bool kept_leave(struct task *t, struct server *s); /* at its end. false: what is there is to be discarded */
bool kept_needs_tidying(const struct server *s);
void kept_is_tidy(struct server *s);
void kept_lost(struct server *s);                  /* what is there is nobody's any more */
bool kept_is_over(const struct server *s, usec_t now);
unsigned kept_free(void);                          /* that nobody has claimed */
struct server *kept_longest_idle(const struct pool *p); /* of these; p NULL: of all pools; or NULL */
/* The first of those that share the limit of its database, or of its user, is closed, if there is one. */
void kept_makes_room(struct pool *p, bool of_db);
unsigned kept_unused(const struct pool *p, bool of_db); /* those that could */
struct server *kept_of(uint64_t key);              /* one of these; or NULL */
const struct task_session *kept_session(const struct task *t);

/* affinity.c */
/* Some server is free. NULL: the task waits for a better one. */
struct server *affinity_choose(struct task *t, usec_t now);
bool affinity_waits(const struct task *t, usec_t now); /* for one of the engine's own, where it is at home or will be */
/* Those of its kind have undone what others did: they are alone for a while. */
void affinity_spoilt(const struct task *t, usec_t now);
bool affinity_may_share(const struct task *t, usec_t now);
bool affinity_follows(struct task *t, struct server *s, usec_t now); /* may it go there, too? */
void affinity_began(const struct task *leader, struct server *s);
void affinity_took(const struct task *leader, usec_t time); /* it has succeeded */
void affinity_lost(struct server *s); /* it is closed */
void affinity_free(struct pool *p);

/* intercept.c */
extern const struct interceptor *intercept_queue, *intercept_console;
/* INTERCEPT_EVENT on a server whose client has gone while its statement is carried out; until the server is at rest. */
void intercept_orphan_event(struct server *s, const char *text, const char *tx);
void intercept_orphan_events_end(struct server *s);

/* cancel.c */
bool cancel_server(struct server *s); /* asks the backend to stop; false: it cannot be asked */
void cancel_drop_asker(struct client *c); /* it has left */
/* `asker` is closed when the request has been carried out; NULL: nobody is. */
void cancel_by_key(int32_t pid, const uint8_t *key, size_t len, struct client *asker);

void cancel_forget_server(struct server *s); /* it is closed */
/* Requests for servers of a pool: those that clients wait for, and all. */
void cancel_count(const struct pool *p, unsigned *ret_asked, unsigned *ret_sent);
void cancel_tick(usec_t now);
void cancel_free(void);
void cancel_start(void); /* hears the other processes of the program */
unsigned cancel_count_peer(int peer); /* that a peer is being given */

/* count.c: queries, transactions and errors of clients */
struct pool_stats *count_console(void); /* of the console, which has no pool */
/* A client got its ReadyForQuery; and it ended a transaction, which began at its tx.start. */
void count_query(struct pool *p, const struct client *c);
void count_end_of_transaction(struct pool *p, struct client *c);
void count_error_of(const char *sqlstate); /* that a client gets */
void count_each_error(void (*fn)(const char *sqlstate, uint64_t count, void *arg), void *arg);

#endif
