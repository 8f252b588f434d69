/*
 * Databases, their pools and users, and what holds for them just now. For the rooms of the pooler only.
 */
#ifndef QB_POOL_DATABASE_H
#define QB_POOL_DATABASE_H

#include <stdbool.h>
#include <stdint.h>

#include "auth/auth.h"
#include "base/check.h"
#include "base/hash.h"
#include "conf/conf.h"
#include "pool/client.h"
#include "pool/counters.h"
#include "pool/server.h"

/* At the entrances: is it one, and not freed? A dead one is one until the reaper has it. */
#define POOL_MAGIC 0x51b00147u
#define CHECK_POOL(p) INVARIANT_IS(p, POOL_MAGIC, "no pool, or a freed one")
#define DATABASE_MAGIC 0x51da7a47u
#define CHECK_DATABASE(d) INVARIANT_IS(d, DATABASE_MAGIC, "no database, or a freed one")

struct affinity;
struct listener;
struct hosts;
struct task;

/* --- users --- */

/* What [users] says of a user, and what holds for everybody where it says nothing. */
struct account_limits {
	enum pool_mode pool_mode;                            /* UNSET: as the database */
	int pool_size, reserve_pool_size;                    /* -1: as the database */
	usec_t query_wait_timeout;                           /* USEC_NEVER: as the database */
	int max_clients, max_servers;                        /* 0: no limit */
	usec_t query_timeout, idle_transaction_timeout, transaction_timeout, client_idle_timeout; /* 0: none */
};

struct account {
	UT_hash_handle hh;
	struct istr *name;
	unsigned refs;             /* clients and pools */
	unsigned clients, servers; /* over all databases */
	unsigned beyond;           /* servers that count for no limit */
	unsigned generation;       /* of limits */
	struct account_limits limits;
	uint64_t runs_in;          /* need.c: when statements were last seen to run on those servers */
	usec_t free_at;            /* ... and when one of them was free that others could have had */
	usec_t missed_at;          /* ... and some pool has missed one; 0: all have been told of one that is free */
};
struct account *account_get(struct istr *name); /* a reference; NULL: memory */
struct account *account_find(const struct istr *name); /* borrowed; NULL: there is none */
void account_each(void (*fn)(const struct account *a, void *arg), void *arg);
void account_put(struct account **p);
const struct account_limits *account_limits(struct account *a);

/* --- pool, database --- */

struct pool {
	uint32_t magic;
	struct pool *next;      /* of its database */
	struct database *db;
	struct istr *user;
	struct account *account; /* of user */
	struct client_list active;  /* logged in, not waiting for a server */
	struct client_list waiting; /* wants a server; longest first */
	struct client_list greeting; /* authenticated; wait for the first server to learn the welcome */
	struct server_list servers[SERVER_STATES];
	struct task *tasks;     /* waiting for a server; longest first */
	unsigned n_tasks;
	unsigned n_claims;      /* those of them that wait for a session that is kept: kept.c */
	unsigned n_keepers;     /* who works through it without a client in it */
	struct server *for_inspection; /* beside what the pool may have; for nobody else (silent.c); or NULL */
	struct {
		unsigned n;       /* servers of the engine's own: use.engine */
		unsigned missed;  /* statements that ran elsewhere for want of one, since `since` */
		usec_t launched_at; /* the last one */
		usec_t since, failed_at; /* failed_at: the server wanted none; 0: it has not refused any since the last */
	} engines;
	struct affinity *affinities; /* hash by kind of task */
	usec_t first_call, later_call; /* what tasks take where their kind was not before, and where it was */
	unsigned n_pinned;      /* clients that keep their servers */
	bool moved;             /* what is known of it was sent to the process that takes over */
	bool ready_marked;      /* in the list that the pool phase serves */
	struct pool *ready_next;
	bool welcome_known;
	struct vars welcome;    /* tracked settings as a fresh session has them */
	struct buf welcome_rest; /* ParameterStatus messages of the others */
	struct {
		struct vars vars;
		struct istr *extra, *origin; /* origin NULL: nobody */
	} began; /* settings that the last client began with: the next one is mostly like it */
	struct istr *accepted[32]; /* settings of start-up packets: prove.c */
	unsigned n_accepted;
	struct secret given;    /* learnt from the login of a user that auth_query knows: for our logins as him */
	struct istr *startup;   /* of one replication client: name\0value\0 of its start-up packet; else NULL */
	bool lookup;            /* runs auth_query and nothing else; no client can enter it */
	struct pg_error last_error;
	usec_t tries_since;     /* ... was tried again for who came later, so often since then */
	unsigned tries;
	usec_t failed_at;       /* time of the last failed connect or login; 0: none since the last success */
	struct pool_stats stats;
	struct pool_stats stats_old;  /* at the end of the last stats_period */
	struct pool_stats stats_last; /* what happened in it */
	struct pool_times times;
	usec_t idle_since;
	usec_t served_at; /* somebody got a server that is not the engine's own */
	usec_t turn_before; /* beside.c: its first job goes before those of other pools that wait since then; 0: it does not */
	unsigned places_told; /* places.c: so many of its servers count */
	usec_t missed_at; /* it found no place for one more; 0: or has been told of one that is free, since */
	usec_t tasks_at; /* a task began; with several processes: others were told of one; 0: none yet */
	usec_t linked_until; /* need.c: tasks may have theirs beside all servers that clients have, in all processes */
	usec_t over_since; /* over.c: there are more servers than there may be, perhaps; 0: no */
	bool came_free, place_free; /* a server has become idle, or has gone, and nobody was told yet */
};

struct database {
	uint32_t magic;
	struct database *next;
	char name[64];
	char *host, *dbname, *user, *password, *connect_query;
	int port, pool_size, min_pool_size, reserve_pool_size, max_connections, max_client_connections;
	enum pool_mode mode;
	usec_t server_lifetime, query_wait_timeout;
	struct hosts *hosts;    /* of host */
	enum target_attrs target;
	enum balance_hosts balance;
	struct vars defaults;   /* client_encoding, datestyle, timezone, application_name of the entry */
	char *queue_user, *queue_password;
	bool automatic;         /* made from "*" */
	bool unproven;          /* automatic, and nobody has logged in to it: only auth_query runs there; not shown */
	bool reached;           /* some server of it has let us in */
	bool paused, disabled, gone;
	unsigned generation;
	uint64_t runs_in;       /* as in struct account */
	usec_t free_at, missed_at;
	unsigned n_clients, n_servers;
	unsigned n_beyond; /* servers that count for no limit */
	struct pool *pools;
	struct listener *listener; /* NULL: nobody listens */
	usec_t idle_since;
};

/* limits.c: what holds just now */
struct pool_all {
	struct database *databases; /* route.c is the only writer */
	unsigned generation;        /* counts what route_reload() has seen */
	bool paused;                /* PAUSE without a name */
	bool suspended;             /* SUSPEND */
	bool ends;                  /* who hears that his task has failed gets no other one */
	const struct pool_calls *calls;
	struct pool *ready_head, **ready_tail; /* of limits.c alone */
};
extern struct pool_all pool_all;
struct database *route_first(void);
int route_pool_size(const struct pool *p);
int route_reserve_size(const struct pool *p);
enum pool_mode route_pool_mode(const struct pool *p);
/* A client keeps the mode in which it got its server as long as it has that. */
enum pool_mode server_pool_mode(const struct server *s);
static inline bool server_keeps_session(const struct server *s) /* session pooling */
{
	return server_pool_mode(s) == POOL_MODE_SESSION;
}
enum pool_mode client_pool_mode(const struct client *c);
bool route_paused(const struct database *db);
bool route_stopped(const struct database *db); /* no server is given to clients: paused or suspended */
bool pool_tasks_stopped(const struct pool *p); /* ... to tasks; those beside the clients wait as these do */
unsigned pool_servers_total(const struct pool *p);
unsigned pool_beside(const struct pool *p);
unsigned pool_servers_counted(const struct pool *p); /* as to its size: not the engine's own, nor what is beside it */
bool pool_db_is_full(const struct pool *p);
bool pool_user_is_full(const struct pool *p);
bool pool_db_is_exceeded(const struct pool *p); /* there are more: it was lowered */
bool pool_user_is_exceeded(const struct pool *p);
bool pool_db_has_one_left(const struct pool *p);
bool pool_user_has_one_left(const struct pool *p);
usec_t pool_limit_free_at(const struct pool *p, bool of_db);
/* Why the pool gets no further server, for those who wait: the limit and what to raise. */
void pool_explain_limit(const struct pool *p, struct pg_error *err);
static inline bool pool_may_use(const struct server *s) /* an idle one, for a task */
{
	return !s->close_needed && s->conn != NULL && s != s->pool->for_inspection;
}
/* One that clients may have, or any, is there: one that is to be closed is nothing to wait for. */
bool pool_has_server(const struct pool *p);
bool pool_has_any_server(const struct pool *p, bool for_client);
#define POOL_RETRY_FASTEST (1 * USEC_SEC) /* a server that refuses connections is tried again after this */
bool pool_is_away(const struct pool *p); /* its last failure: it is not one that refuses us knowingly */
bool pool_holding_back(const struct pool *p, usec_t now); /* a failure is held against it still */
void pool_mark_ready(struct pool *p);      /* has servers or clients that may be brought together */
/* Since when its first client, or with tasks whoever is first, waits for a server; USEC_NEVER: nobody does. */
usec_t pool_client_waits_since(const struct pool *p);
usec_t pool_waits_since(const struct pool *p);
struct pool *pool_take_ready(void);        /* all that are marked, by ready_next */
void pool_unmark_ready(struct pool *p);

/* route.c */
struct database *route_find(const char *name); /* makes one from "*" */
/* For auth_query where a client says so, who has proved nothing: a few of those are kept. */
struct database *route_find_unproven(const char *name);
/* For a client that has logged in. *ret_full: there are max_auto_databases, all in use. */
struct database *route_enter(const char *name, bool *ret_full);
void route_reload(const struct conf *c);
void route_free(void);
void route_reconnect(struct database *db); /* its servers are closed as they become free */
void route_tick(usec_t now);
void route_on_moved(void (*fn)(const char *database)); /* an entry leads elsewhere, or is new */

/* hosts.c */
struct hosts *hosts_new(const char *text); /* NULL: memory */
void hosts_free(struct hosts **p);
const char *hosts_next(struct server *s); /* borrowed; NULL: there is no further one */
/* true: there is another one for it; is_new: it was not known that this one is away. */
bool hosts_failed(struct server *s, const char *sqlstate, bool *is_new);
bool hosts_left(const struct server *s);
/* Do they take the setting qbouncer.tell at start-up? One has refused it: s tries its hosts once more; true: it is news. */
bool hosts_take_tell(const struct database *db);
bool hosts_refused_tell(struct server *s);
enum hosts_verdict { HOSTS_GOOD, HOSTS_NEXT, HOSTS_NONE };
enum hosts_verdict hosts_judge(struct server *s, int standby);
void hosts_role_changed(struct server *s, const char *value); /* in_hot_standby */

#endif
