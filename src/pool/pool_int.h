/*
 * The private face of the pool: its structs and who may call what. Never leaves this folder.
 *
 *   database (route)  -> pool (database, user) -> servers, waiting clients, waiting tasks
 *   client  -- link --  server                    (at most one each)
 *
 * One FIFO keeps the order of answers: `expect`, of the server. An entry says what the server will
 * answer next and for whom. An answer that we give ourselves while the server still owes earlier ones
 * is an entry too (EXPECT_LOCAL): it leaves when it comes to the head. A client without a linked
 * server is owed nothing, so our answers go straight to its connection. A pending answer of ours (a
 * parked TAKE) stops the reading of the client's input, so nothing is ever behind it.
 */
#ifndef QB_POOL_INT_H
#define QB_POOL_INT_H

#include <utlist.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "auth/auth.h"
#include "conf/conf.h"
#include "net/conn.h"
#include "net/loop.h"
#include "pool/intercept.h"
#include "pool/pool.h"
#include "pool/stat.h"
#include "pool/task.h"
#include "wire/build.h"
#include "wire/msg.h"
#include "wire/sqllex.h"
#include "expect.h"
#include "parts.h"
#include "stmt.h"

/* At the entrances: is it one, and not freed? A dead one is one until the reaper has it. */
#define CLIENT_MAGIC   0x51c11e47u
#define SERVER_MAGIC   0x515e4e47u
#define TASK_MAGIC     0x517a5c47u
#define POOL_MAGIC     0x51b00147u
#define DATABASE_MAGIC 0x51da7a47u
#define CHECK_CLIENT(c)   INVARIANT_IS(c, CLIENT_MAGIC, "no client, or a freed one")
#define CHECK_SERVER(s)   INVARIANT_IS(s, SERVER_MAGIC, "no server, or a freed one")
#define CHECK_TASK(t)     INVARIANT_IS(t, TASK_MAGIC, "no task, or one that has ended")
#define CHECK_POOL(p)     INVARIANT_IS(p, POOL_MAGIC, "no pool, or a freed one")
#define CHECK_DATABASE(d) INVARIANT_IS(d, DATABASE_MAGIC, "no database, or a freed one")

#define STATEMENT_MAX (16 * 1024 * 1024) /* text of a statement that we have to look at as a whole */
#define SCAN_MAX      (1024 * 1024)      /* a simple query up to this size is searched for QUEUE behind the first statement */
#define INTERN_MAX    (64 * 1024)        /* an unnamed statement up to this size can be prepared again on another server */
#define CONTROL_MAX   (16 * 1024 * 1024) /* server messages that we read as a whole */
#define EXPECT_HIGH   4096 /* answers outstanding: the client is read no more until fewer than EXPECT_LOW are */
#define EXPECT_LOW    2048
#define PARKED_INPUT_MAX (64 * 1024)     /* pipelined input kept behind a parked statement */

/* --- what a server will answer: expect.h --- */

/* Statements of one simple query, or one Execute, some of them replaced. */
struct replaced {
	int n, at;            /* at: the statement whose answer is under way */
	bool simple;
	bool part; /* of a string: the rest follows, unless one of them fails */
	bool dropping_rows;
	uint64_t rows;        /* rows seen of it */
	int64_t value;        /* first column of the first row, as a number */
	struct replace **list; /* NULL entries: the client's own statements */
	bool failed; /* the server refused one of them */
};
/* c: told by on_done of those that are not told yet; may be NULL */
void replaced_free(struct replaced **p, struct client *c, bool ok);

/* --- client --- */

enum client_state {
	CLIENT_LOGIN,   /* in `logins`: not authenticated, or waiting for the pool's first server */
	CLIENT_ACTIVE,  /* in `active` of its pool (or of the console): reads its input */
	CLIENT_WAITING, /* in `waiting` of its pool: the message at the head of its input needs a server */
	CLIENT_BARRIER, /* in `active`: the statement at the head of its input waits for the server to finish */
	CLIENT_PARKED,  /* in `active`: a claimant will answer */
	CLIENT_LEAVING, /* in `client_leaving`: idle, read no more; told in this turn that we are shutting down */
	CLIENT_MOVING,  /* in `client_moving`: idle, read no more; on its way to another process */
	CLIENT_DEAD,    /* in `client_dead`, then in ends.c: freed by the reaper */
};

struct client_login;

struct client {
	uint32_t magic;
	uint8_t state;   /* enum client_state; client_move() is the only writer */
	uint8_t protocol_minor;
	uint8_t console;  /* enum console_user */
	uint8_t end;      /* DEAD: enum client_end */
	uint8_t told;     /* enum claimant_told: of it, to its claimant */
	uint8_t takeover; /* enum client_takeover; move.c is the only writer */
	uint8_t pins; /* enum sql_touch, PIN_UNKNOWN: why it keeps its server; client_pin() is the only writer */
	bool skip_to_sync : 1; /* an error in a batch: everything up to Sync is dropped */
	bool pass_discard : 1; /* pass_left bytes are dropped, not forwarded */
	bool greeting : 1;     /* LOGIN: in the pool's list `greeting` */
	bool counted : 1;      /* in the database's n_clients */
	bool proven : 1;       /* some server has accepted its settings */
	bool leaving : 1;      /* sent away when it is idle */
	uint32_t pass_left;    /* bytes of the message under way that go on as they come */
	struct conn *conn;
	struct client *prev, *next; /* the list of its state */
	struct pool *pool;
	struct account *account; /* of the user as logged in; set with pool */
	struct server *link;
	struct server *left; /* DEAD: what it had; ends.c sees to it */
	uint64_t sent;       /* DEAD: so far its output was sent */
	struct transaction tx;
	struct input_head head;
	struct parked parked;
	const struct interceptor *icpt;
	void *slot;
	struct client_login *login; /* only in CLIENT_LOGIN */
	struct cstmt *unconfirmed;  /* named statements whose Parse is under way, in its order */
	unsigned closing;           /* EXPECT_CLOSED entries */
	unsigned unsure;            /* statements that are pstmt.unsure, or were */
	struct cstmt *stmts;        /* named statements */
	struct cstmt *unnamed;
	struct portal *portals;     /* of local statements */
	struct vars vars;
	struct istr *extra;  /* settings that no server reports: settings.c */
	struct reading *reading; /* as the two were when it was last needed; and `extra` then */
	struct istr *reading_extra;
	struct istr *sqlprep; /* statements that it has prepared in SQL: sqlprep.c */
	struct listening *listening; /* LISTEN; NULL: to nothing */
	struct istr *origin; /* all settings that the session began with */
	struct istr *user; /* as logged in */
	struct istr *database;
	uint64_t id;
	uint64_t key; /* cancel key: pid in the upper half */
	usec_t connect_time, request_time; /* request_time: start of waiting or of the query; 0: idle */
	usec_t idle_since;
};

/* --- server --- */

enum server_state {
	SERVER_LOGIN,
	SERVER_IDLE,
	SERVER_ACTIVE,    /* linked to a client */
	SERVER_TASK,      /* runs a task */
	SERVER_FINISHING, /* its client has said goodbye behind statements that still run */
	SERVER_CLEANING,  /* reset query or rollback under way */
	SERVER_LISTENING, /* for all clients of the database that listen: listen.c */
	SERVER_CANCELLED, /* free, but a cancel request towards it is still on its way */
	SERVER_MOVING,    /* on its way to another process */
	SERVER_DEAD,
	SERVER_STATES
};

/* A statement as a server knows it. Between a Parse or Close and its answer what is there and what was sent differ. */
struct sprep {
	UT_hash_handle hh;
	struct sprep *prev, *next; /* least recently used first */
	struct pstmt *p;
	uint16_t batch;   /* of what was sent last */
	uint16_t pending; /* answers to come */
	bool sent;        /* it is there when all that was sent succeeds */
	bool stale;       /* its columns may have changed: prepared again before it is used */
	bool there;       /* as far as it is answered */
};

struct server_login;

struct server {
	uint32_t magic;
	uint8_t state; /* enum server_state; server_move() is the only writer */
	char tx;       /* status of the last ReadyForQuery: I T E */
	uint8_t mode;  /* enum pool_mode: of the link; UNSET when it has none */
	bool throttled : 1;    /* so much is outstanding that its client is not read */
	bool close_needed : 1; /* closed as soon as it is free */
	bool pass_discard : 1;
	bool last_resort : 1;  /* LOGIN: prefer-standby, and there is none */
	bool raw : 1;          /* of a replication client: bytes pass */
	bool fatal_seen : 1;   /* a FATAL was passed on to the client: nothing more to say to it */
	uint8_t cancels;       /* cancel requests under way */
	uint32_t pass_left;
	struct conn *conn;
	struct server *prev, *next;
	struct istr *host;     /* of several, the one that it goes to */
	uint32_t tried;        /* LOGIN: bits of the hosts it has been to */
	struct pool *pool;
	struct client *link;
	struct task *task;
	unsigned n_kinds; /* of tasks, whose affinity is to it: affinity.c */
	struct server_login *login;
	struct expect_ring expect;
	struct batch batch;
	struct use use;
	struct settings_doubt settings;
	struct trace trace;
	struct sets_prepared sets;
	struct inspect inspect;
	struct copy copy;
	struct pg_error *end;  /* DEAD: why, for who waits for it; owned; or NULL */
	const struct dest *unasked; /* for whom messages are that belong to no answer: the listener's, a copy's in doubt; or NULL */
	struct sprep *prepared;     /* hash by pstmt */
	struct sprep *prepared_lru;
	unsigned n_prepared;        /* those that are sent */
	struct unnamed unnamed;
	struct vars vars;
	struct istr *extra;         /* settings in force that are not reported */
	struct istr *sqlprep;       /* statements there that were prepared in SQL and can be moved */
	int32_t pid;
	uint8_t key_len;
	uint8_t key[256 - 3];
	uint64_t id;
	usec_t connect_time, request_time, idle_since;
};

/* --- task --- */

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
	bool first;            /* of its kind on its server */
	enum task_time time;
	bool is_inspection;          /* silent.c: asks for another one */
	struct silent_look *look; /* silent.c: what was asked about it; or NULL */
	usec_t heard_at;       /* silent.c: the server has said that it waits for something; 0: it has not */
	usec_t asked_at;       /* ... and was asked then; 0: it was not */
	int32_t lost_in;       /* task_lost_in() */
	struct vars vars;
	struct istr *extra;
	struct pg_error err;
	void *events;        /* of the claimant; or NULL */
	uint64_t kind;     /* 0: of none */
	usec_t held_since; /* it waits for a certain server, though another is free; 0: does not */
	usec_t since;
	uint64_t seq; /* in the order of task_submit() */
};

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
	unsigned generation;       /* of limits */
	struct account_limits limits;
};
struct account *account_get(struct istr *name); /* a reference; NULL: memory */
struct account *account_find(const struct istr *name); /* borrowed; NULL: there is none */
void account_each(void (*fn)(const struct account *a, void *arg), void *arg);
void account_put(struct account **p);
const struct account_limits *account_limits(struct account *a);

/* --- pool, database --- */

struct client_list {
	struct client *head;
	unsigned count;
};

struct server_list {
	struct server *head;
	unsigned count;
};

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
	struct server *for_inspection; /* beside what the pool may have; for nobody else (silent.c); or NULL */
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
	unsigned n_clients, n_servers;
	struct pool *pools;
	struct listener *listener; /* NULL: nobody listens */
	usec_t idle_since;
};

/* limits.c: what holds just now */
extern struct database *route_list; /* route.c is the only writer */
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
extern bool pooler_paused_all; /* PAUSE without a name */
extern enum pooler_suspended suspend_state;
bool route_paused(const struct database *db);
bool route_stopped(const struct database *db); /* no server is given to anybody: paused or suspended */
unsigned pool_servers_total(const struct pool *p);
bool pool_db_is_full(const struct pool *p);
bool pool_user_is_full(const struct pool *p);
/* Why the pool gets no further server, for those who wait: the limit and what to raise. */
void pool_explain_limit(const struct pool *p, struct pg_error *err);
bool pool_may_use(const struct server *s); /* an idle one, for a task */
void pool_mark_ready(struct pool *p);      /* has servers or clients that may be brought together */
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
extern unsigned route_generation;          /* counts what route_reload() has seen */
void route_reconnect(struct database *db); /* its servers are closed as they become free */
void route_tick(usec_t now);

/* pool.c */
struct pool *pool_get(struct database *db, const char *user);
struct pool *pool_get_lookup(struct database *db, const char *user); /* of lookup.c alone */
#define POOL_LOOKUP_SERVERS 2
struct pool *pool_new_replication(struct database *db, const char *user, struct istr *startup); /* of one client */
void pool_free(struct pool **p);
bool pool_serve_ready(void *arg, usec_t now); /* the loop phase */
struct server *pool_take_idle(struct pool *p, bool for_client);
/* What the pool asks of those who know it: the rooms above. Set by pool_start(). */
struct pool_calls {
	bool (*login)(struct server *s);   /* it is to connect and to log in; false: memory */
	void (*welcome)(struct client *c); /* GREETING: the pool knows its welcome now */
	void (*wake)(struct database *db); /* servers may be given away again */
	void (*check)(struct server *s);   /* is it still alive? */
	void (*idle)(struct client *c); /* is it, and to leave? Then nothing of it is begun any more */
	bool (*turns_away)(const struct client *c); /* it has come too late */
	void (*stranger)(int32_t pid, const uint8_t *key,
		size_t len); /* a cancel key that nobody has here */
	void (*fewer_logins)(void);
	bool (*task_starts)(struct task *t); /* it is about to be; false: it has ended instead */
	void (*task_start)(struct task *t, struct server *s);
	void (*tasks_fail)(struct pool *p, const struct pg_error *err, usec_t until);
	const struct dest *settings; /* for whom the SET of a client's settings is */
};
extern const struct pool_calls *pool_calls;
MUST_CHECK bool pool_start(const struct pool_calls *calls);
void pool_forget_began(struct pool *p);    /* settings that the last client began with */
void pool_forget_accepted(struct pool *p); /* settings that its servers have taken */
void pool_stop(void);
void pool_launch(struct pool *p, usec_t now);
void pool_server_failed(struct pool *p, const struct pg_error *err);
bool pool_unreachable(const struct pool *p, usec_t now);
void pool_keep_minimum(struct pool *p, usec_t now); /* min_pool_size */

/* affinity.c */
/* Some server is free. NULL: the task waits for a better one. */
struct server *affinity_choose(struct task *t, usec_t now);
void affinity_took(const struct task *t, usec_t time); /* it has succeeded */
void affinity_lost(struct server *s); /* it is closed */
void affinity_free(struct pool *p);

/* intercept.c */
extern const struct interceptor *intercept_queue, *intercept_console;

/* client.c */
void client_pin(struct client *c, unsigned pins); /* 0: it need not keep its server */
extern struct client_list client_logins, client_dead, client_consoles, client_leaving,
	client_moving;
extern bool client_some_leave; /* only then pool_calls->idle() has anything to do */
uint64_t client_next_id(void); /* of clients and servers, one row of numbers for both */
/* Of a cancel key: 16 bits say whose client it is, the last two how often the request may still be handed on; a
 * process id is positive. */
#define CLIENT_KEY_PEER(key) ((int)((key) >> 40 & 0xffff))
#define CLIENT_KEY_HOPS      3ULL
struct client *client_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops);
void client_move(struct client *c, enum client_state to);
void client_move_greeting(struct client *c);
void client_become_console(struct client *c);
void client_close(struct client *c, enum client_end how, const char *reason);
void client_fatal(struct client *c, const struct pg_error *err);
void client_fatal_because(struct client *c, const struct pg_error *err, const char *reason); /* reason: for the log */
void client_free(struct client *c); /* what is its own; its claimant and others have let it go */
void client_write(struct client *c, const struct buf *b);
/* Bytes for the client in the order of answers: at once, or behind what its server still owes. Takes
 * the contents of b. */
void client_emit(struct client *c, struct buf *b);
char client_status(const struct client *c);
const char *client_prefix(const struct client *c); /* static buffer, for logs */
void client_each(void (*fn)(struct client *c, void *arg), void *arg);
unsigned client_count(void);
struct client *client_by_key(uint64_t key);
void client_key_forget(struct client *c);
bool client_key_adopt(struct client *c, uint64_t key); /* of another process; another one if it is in use */
/* Of another process; not yet in a list of its own. NULL: memory, and fd is closed. */
struct client *client_adopt(int fd, const struct conn_addr *peer, const void *input, size_t len,
	const struct conn_ops *ops);
bool client_key_assign(struct client *c);
bool client_out_of_memory(struct client *c); /* closes; returns false, for chaining */

/* client_login.c */
extern const struct conn_ops client_login_ops;
void client_login_start(struct client *c);
void client_login_free(struct client *c);
void client_auth_tick(struct client *c, usec_t now); /* answers that are held back */
usec_t client_login_slow_since(const struct client *c);
void client_auth_closing(struct client *c);
void client_login_welcome(struct client *c); /* the pool knows its welcome now */

/* stat.c */
/* A client got its ReadyForQuery; and it ended a transaction, which began at tx_start. */
void stat_query(struct pool *p, const struct client *c);
void stat_transaction(struct pool *p, struct client *c);
void stat_console_login(void);
void stat_end_period(usec_t length); /* a stats_period is over, and was that long */

/* hosts.c */
struct hosts;
struct hosts *hosts_new(const char *text); /* NULL: memory */
void hosts_free(struct hosts **p);
const char *hosts_next(struct server *s); /* borrowed; NULL: there is no further one */
/* true: there is another one for it; is_new: it was not known that this one is away. */
bool hosts_failed(struct server *s, const char *sqlstate, bool *is_new);
bool hosts_left(const struct server *s);
enum hosts_verdict { HOSTS_GOOD, HOSTS_NEXT, HOSTS_NONE };
enum hosts_verdict hosts_judge(struct server *s, int standby);
void hosts_role_changed(struct server *s, const char *value); /* in_hot_standby */

/* replication.c */
bool replication_start(struct client *c); /* from the greeting on; false: there is no server */
void replication_parameters(const struct pool *p, const char **pairs, int *n, int max);

/* prove.c */

/* lookup.c */
void lookup_forget(const char *user);
void lookup_free_all(void);

/* client_msg.c: the messages of a session */
extern const struct conn_ops client_ops;
enum step {
	STEP_NEXT,   /* the message is done with */
	STEP_STREAM, /* what is here was forwarded; pass_left tells how much follows */
	STEP_MORE,   /* needs more bytes of the message */
	STEP_WAIT,   /* not touched: the client waits for a server, a barrier, or an answer */
	STEP_PARKED, /* done with, and the client is parked */
	STEP_END,    /* the client is closed */
};
bool client_only_settings(struct server *s);   /* it owes nothing else */
bool client_barrier(struct client *c);         /* true: nothing outstanding; false: waits */
bool client_ask_for_answers(struct client *c); /* those that are kept back until Flush or Sync */
enum step client_refuse_pin(struct client *c, bool simple);
enum step local_aborted(struct client *c, bool simple); /* the block is */
enum step client_error(struct client *c, const struct pg_error *err, bool simple);
enum step client_protocol_error(struct client *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
enum step client_query(struct client *c, const struct wire_msg *m); /* client_query.c */
enum step client_function(struct client *c, const struct wire_msg *m);
enum step client_forward(struct client *c, const struct wire_msg *m); /* the message as it is, to the linked server */
void client_no_server(struct client *c, const struct pg_error *err); /* the pool cannot give one */
bool client_is_owed(const struct client *c); /* answers of its server are outstanding */
bool client_get_server(struct client *c);
/* true: linked and ready for its message; false: waits, or closed */
static inline bool client_need_server(struct client *c)
{
	const struct server *s = c->link;

	/* as it was for the message before this one */
	if (s != NULL && s->extra == c->extra && s->sqlprep == c->sqlprep && !s->settings.settling &&
		!s->settings.vars_stale && c->tx.virtual != VTX_OPEN)
		return true;
	return client_get_server(c);
}
bool client_expect(struct client *c, enum expect_kind kind, const struct dest *dest, void *arg);
enum step client_bad_message(struct client *c, const struct wire_msg *m);
void client_resume(struct client *c);            /* look at its input again */
void client_ready(struct client *c, bool local); /* after ReadyForQuery went to it */

/* extq.c: Parse, Bind, Describe, Execute, Close */
enum step extq_parse(struct client *c, const struct wire_msg *m);
enum step extq_bind(struct client *c, const struct wire_msg *m);
enum step extq_describe(struct client *c, const struct wire_msg *m);
enum step extq_execute(struct client *c, const struct wire_msg *m);
enum step extq_close(struct client *c, const struct wire_msg *m);
struct cstmt *extq_find(struct client *c, const char *name);
void extq_forget(struct client *c, struct cstmt **p);
/* There is no statement of that name. */
enum step extq_refuse_unknown(struct client *c, const char *name, bool simple);
/* This batch has failed; at_parse: in the Parse of the unnamed statement, which ends the one before. */
void extq_forget_unconfirmed(struct client *c, uint16_t batch, bool at_parse);
void extq_forget_all(struct client *c); /* DEALLOCATE ALL, DISCARD ALL: not what was parsed behind it */
void extq_confirm(struct client *c, struct pstmt *p, bool unnamed);
void extq_local_done(struct server *s, struct expect *e, bool ok); /* PARSED, CLOSED: takes the reference */
void extq_free(struct client *c);
bool extq_server_prepare(struct server *s, struct pstmt *p, const struct dest *dest); /* sends Parse if needed */

/* local.c: statements that we answer */
enum step local_simple(struct client *c, const char *sql, size_t len);
enum step local_simple_many(struct client *c, const char *sql, size_t len);
enum step local_deallocate_string(struct client *c, const char *sql, size_t len);
#define STRING_FAILED UINT32_MAX /* in string_at: the rest is dropped */
enum step local_string_rest(struct client *c, const char *sql, size_t len);
enum step local_tx_simple(struct client *c, enum sql_tx tx, const char *sql, size_t len);
enum step local_execute(struct client *c, struct portal *p, int32_t max_rows);
/* Describe of a statement that only the server can describe. */
enum step local_describe(struct client *c, struct lstmt *l);
struct portal *portal_search(struct client *c, const char *name);
/* Nearly always there are none of ours. */
static inline struct portal *portal_find(struct client *c, const char *name)
{
	return c->portals != NULL ? portal_search(c, name) : NULL;
}
void portal_free(struct portal **p);
void portal_drop(struct client *c, struct portal *p); /* p may be NULL */
void portal_drop_all(struct client *c);
void portal_drop_synced(struct client *c);
void portal_synced(struct client *c);
struct lstmt *lstmt_claimed(struct client *c, const char *sql, size_t len, const uint32_t *oids, int n, struct pg_error *err);
struct lstmt *lstmt_tx(enum sql_tx tx, const char *sql, size_t len);
struct lstmt *lstmt_session(const char *sql, size_t len);
enum step client_wait_again(struct client *c); /* until client_again() */

/* session.c: state beyond transactions. PIN_UNKNOWN: beside enum sql_touch. */
#define PIN_UNKNOWN 128u /* a setting whose name is not known */
struct inspection;
bool session_begin(struct client *c); /* its settings are complete; false: memory */
bool session_add_setting(struct istr **list, const char *name, const char *value);
/* Tracked settings go back to what they were at the beginning: all or only one, without those in kept. */
void session_restore_vars(struct client *c, const char *only, const struct istr *kept, struct buf *status);
bool session_add_origin(const struct client *c, struct istr **list);
bool session_restore_all(struct client *c, bool identity); /* identity: role and authorization too */
/* A text with these effects is sent to the client's server. */
/* enum sql_touch, of all statements of a text that the client's server is to get. */
unsigned session_touches(const struct client *c, const char *sql, size_t len);
/* The same of one that is refused when it is several. */
unsigned session_touches_prepared(const struct client *c, const char *sql, size_t len);
void session_touch(struct client *c, const char *sql, size_t len, unsigned touches);
void session_touch_call(struct client *c, const struct wire_msg *m); /* FunctionCall */
/* false: the client waits until it is known what its text means. */
bool session_reads(struct client *c, const char *sql, size_t len);
/* A simple query is about to be sent. What it sets, a reference; NULL: nothing that is known now. */
struct istr *session_effect(struct client *c, const char *sql, size_t len, bool single);
void session_apply(struct server *s, const struct istr *effect);
/* As many servers of its pool as may be are kept by others, and this text would make the client keep one more. */
unsigned session_pin_limit(const struct pool *p);
bool session_pin_refused(const struct client *c, const char *sql, size_t len);
const char *session_pin_names(unsigned pins); /* static buffer */
bool session_holds(struct server *s); /* at the end of a transaction: its client keeps it, or it is asked first */
bool session_is_dirty(struct server *s);
void session_discarded(struct server *s);
void session_released(struct server *s);
void session_touch_again(struct server *s); /* Bind of the unnamed statement that is sent as it comes */
void session_ask_again(struct server *s);
/* Session pooling: a statement with a name that may change settings is parsed; one with a name is bound. */
void session_prepared(struct server *s, const char *name, const char *sql, size_t len);
void session_bound(struct server *s, const char *name);
void session_forget_prepared(struct server *s);
void session_restore_discarded(struct server *s);
bool session_sync(struct client *c); /* puts the client's settings in force where they differ; false: closed */

/* sqlprep.c: PREPARE in SQL */
/* A PREPARE or DEALLOCATE is about to be sent, as a statement of its own; NULL: the server has to be asked. */
struct istr *sqlprep_effect(struct client *c, const char *sql, size_t len);
bool sqlprep_is_effect(const struct istr *effect);
/* What the text executes by SQL is known, and changes nothing of the session. */
bool sqlprep_is_all_known(struct client *c, const char *sql, size_t len);
void sqlprep_apply(struct server *s, const struct istr *effect); /* it has been carried out */
bool sqlprep_sync(struct client *c); /* the client's in the place of those on its server; false: closed */
void sqlprep_forget(struct client *c, struct server *s); /* either may be NULL: those of the other are gone */
bool sqlprep_known(const struct server *s, const char *name, const char *sql);
/* Of those that are known only the ones in seen (names with their terminators) are left. */
bool sqlprep_keep(struct server *s, const struct buf *seen);

/* listen.c */
bool listen_is_ours(const struct client *c);
/* name: of a channel that has to be listened to before it counts, or NULL. WAITS: client_again() follows. */
enum listen_ready { LISTEN_READY, LISTEN_WAITS, LISTEN_NO_MEMORY };
enum listen_ready listen_prepare(struct client *c, const char *name);
/* Said in the transaction under way; behind listen_prepare(). name NULL: all. false: closed. */
bool listen_change(struct client *c, const char *name, bool listen);
bool listen_unlisten_all(struct client *c);           /* as UNLISTEN *; false: closed */
void listen_tx_end(struct client *c, bool committed); /* of a client that has `listening` */
void listen_flush(struct client *c);
void listen_end(struct client *c);
void listen_wake(struct database *db); /* may have been paused or suspended */
void listen_free(struct database *db);

/* inspect.c */
bool inspect_begin(struct server *s);
unsigned inspect_asks(const struct server *s); /* enum sql_touch: of the question under way */
/* Its answer may put settings of the start-up packet in force again: what comes next waits for it. */
bool inspect_may_restore(const struct server *s);
void inspect_free(struct server *s);
/* For a statement that runs beside the client's server, at rest: under which settings? The last question may have failed. */
enum inspect_known { INSPECT_KNOWN, INSPECT_ASKED, INSPECT_UNKNOWN } inspect_insist(struct client *c);

/* local_session.c */
enum step local_session_simple(struct client *c, const char *sql, size_t len); /* STEP_MORE: forward it */
bool local_session_is(const struct client *c, const char *sql, size_t len);
enum step local_session_execute(struct client *c, const char *sql);

/* server.c */
extern struct server_list server_dead;
struct server *server_launch(struct pool *p);
struct server *server_launch_for(struct pool *p, const struct dest *unasked); /* it belongs to that row for good */
struct server *server_adopt(struct pool *p); /* of another process: LOGIN, without a connection yet; NULL: memory */
void server_move(struct server *s, enum server_state to);
void server_close(struct server *s, const char *reason, const struct pg_error *for_client);
/* server_fast_close: it is to be closed, and its session says nothing just now. */
bool server_wants_fast_close(const struct server *s);
void server_close_fast(struct server *s);
void server_link(struct server *s, struct client *c);
bool server_is_stale(const struct server *s); /* unused for so long that it has to show that it is alive */
void server_check(struct server *s);          /* asks it to */
void server_release(struct server *s); /* nothing outstanding: to the next one, or idle */
void server_unlink_abandoned(struct server *s, bool said_goodbye); /* its client is gone */
void server_free(struct server *s); /* what is its own; it has left who knew it */
const char *server_prefix(const struct server *s);
bool server_send(struct server *s, struct buf *b); /* writes and empties b; false: memory, server closed */
void server_expect_failed(struct server *s, enum expect_kind kind, const struct dest *dest, void *arg);
/* query.c: statements of ours, each answer for dest. Takes sql. false: the server was closed. */
bool server_query(struct server *s, struct buf *sql, const struct dest *dest);
/* What it will answer to what is sent now. Takes arg. false: the server was closed. */
static inline bool server_expect(struct server *s, enum expect_kind kind, const struct dest *dest, void *arg)
{
	if (!expect_push(&s->expect, kind, dest, arg)) {
		server_expect_failed(s, kind, dest, arg);
		return false;
	}
	s->batch.sent = (uint16_t)(s->batch.sent + (kind == EXPECT_SYNC));
	if (kind < EXPECT_LOCAL)
		s->batch.unsynced = kind >= EXPECT_PARSE && kind <= EXPECT_CLOSE;
	return true;
}
/* What was sent without a Sync ends: with a Query that is about to be sent. */
static inline void server_batch_ends(struct server *s)
{
	s->batch.unsynced = false;
}
/* ... goes on: what was sent behind it does not end it. */
static inline void server_batch_goes_on(struct server *s)
{
	s->batch.unsynced = true;
}
void server_plans_stale(struct database *db);      /* the columns of some statement have changed */
void server_forget_prepared(struct server *s);     /* what is there; not what was sent behind */
void server_forget_all_prepared(struct server *s); /* it ends */
void server_drop_unnamed(struct server *s);
void server_unnamed_is_raw(struct server *s, unsigned touches);
static inline bool server_has_raw_unnamed(const struct server *s)
{
	return s->unnamed.state == UNNAMED_RAW;
}
void server_drop_raw_unnamed(struct server *s); /* if it is one */
/* Is it there when what is sent now is read? An error in an earlier batch would skip its Parse. */
bool server_has_unnamed(const struct server *s, const struct pstmt *p);
bool server_has_prepared(struct server *s, struct pstmt *p);
bool server_expect_unnamed(struct server *s, struct pstmt *p, const struct dest *dest); /* its Parse is sent */
void server_put_settings(struct server *s, const struct vars *v, struct istr *extra, const struct dest *dest);
void server_expect_free(struct server *s, struct expect *e, bool ok);

/* server_login.c */
extern const struct conn_ops server_login_ops;
bool server_login_start(struct server *s);
/* This host, or altogether; the reason is for the log. */
void server_login_give_up(struct server *s, const struct pg_error *err, const char *reason);
void server_login_free(struct server *s);

/* stat.c: an error that a client gets */
void stat_error(const char *sqlstate);

/* relay.c: what a server says */
extern const struct conn_ops server_ops; /* messages of a server that has logged in */
/* dest.c */
void relay_settle(struct server *s);     /* the client has sent the rest of a message */

/* copy.c: which Syncs a server answers that was sent them in a COPY FROM STDIN */
/* One has failed, or may have: how many Syncs were answered since is being asked for. */
static inline bool copy_is_doubted(const struct server *s)
{
	return s->unasked == &dest_copy;
}
static inline bool copy_takes_data(const struct server *s)
{
	return s->copy.state == COPY_DATA;
}
static inline void copy_forget(struct server *s) /* it is given to somebody else */
{
	s->copy.state = COPY_NONE;
	s->unasked = NULL;
}
void copy_began(struct server *s); /* CopyInResponse */
void copy_done(struct server *s);  /* CommandComplete of COPY, if there is one */
void copy_failed(struct server *s); /* it was so; the statement is off `expect`, unless it is a Query */
bool copy_holds(struct client *c, uint8_t type); /* the message may not be sent now: the client waits, or is dead */
enum step copy_sync(struct client *c, const struct wire_msg *m);
enum step copy_message(struct client *c, const struct wire_msg *m); /* CopyData, CopyDone, CopyFail; something is outstanding */

/* task.c */
bool task_starts(struct task *t); /* it is about to be; false: it has ended instead */
void task_start(struct task *t, struct server *s);
void task_end(struct task *t, const struct pg_error *err); /* frees it */
void task_fail_waiting(struct pool *p, const struct pg_error *err, usec_t until); /* since when they wait, at most */
void task_fail_late(struct pool *p, usec_t limit, usec_t now); /* that have waited for longer */

/* silent.c: statements of our own whose answer does not come */
void silent_tick(struct pool *p, usec_t now);
void silent_forget(struct task *t); /* it ends */

/* server_tls.c: *why is set with FAILED */
struct tls_ctx *server_tls_rules(const struct database *db); /* borrowed for the turn; NULL: plain text */
enum server_tls { SERVER_TLS_MORE, SERVER_TLS_READY, SERVER_TLS_FAILED };
/* The connection stands. MORE: an answer, or on_secure, will come. */
enum server_tls server_tls_start(struct conn *conn, struct tls_ctx *ctx, const char **why);
/* The first bytes from the server after MORE, before on_secure; one byte is consumed. */
enum server_tls server_tls_answer(struct conn *conn, struct tls_ctx *ctx, const uint8_t *data,
	size_t len, const char **why);

/* cancel.c */
void cancel_server(struct server *s);     /* asks the backend to stop */
void cancel_drop_asker(struct client *c); /* it has left */
/* `asker` is closed when the request has been carried out; NULL: nobody is. */
void cancel_by_key(int32_t pid, const uint8_t *key, size_t len, struct client *asker);

void cancel_forget_server(struct server *s); /* it is closed */
/* Requests for servers of a pool: those that clients wait for, and all. */
void cancel_count(const struct pool *p, unsigned *ret_asked, unsigned *ret_sent);
void cancel_tick(usec_t now);
void cancel_free(void);

/* tick.c */
MUST_CHECK bool pooler_tick_start(usec_t (*fn)(void *arg, usec_t now));
void pooler_tick_stop(void);
void pooler_tick_at(usec_t when); /* the janitor comes then, or earlier */

/* ends.c */
bool ends_phase(void *arg, usec_t now);   /* of the loop, the first of all */
bool ends_are_due(void *arg, usec_t now); /* of the loop, the last: then it has to be run again */
void ends_reap(void);

/* pooler.c */
void pooler_gate(usec_t now); /* how many may be there that have not logged in */
void pooler_gate_moved(void);
void client_free_slabs(void);
void server_free_slabs(void);

/* move.c */
extern bool move_is_on;           /* another process takes over */
bool adopt_goes_on(void);         /* and we do from a third one */
bool move_take(struct client *c); /* it is idle: true: it goes */
void move_send(void); /* behind the flush of a turn */

/* shutdown.c */
void shutdown_client_ready(struct client *c); /* is it idle, and to leave? Then nothing of it is begun any more */
bool shutdown_say_goodbye(void *arg, usec_t now); /* of the loop phase */
bool pooler_turns_away(const struct client *c); /* it has come too late */
usec_t shutdown_tick(usec_t now); /* when to be called again */
void shutdown_reset(void);

/* suspend.c */
void suspend_begin(void);
void suspend_end(void);
bool suspend_tick(usec_t now); /* true: nothing else is to be done by the clock */

/* janitor.c */
usec_t janitor_tick(void *arg, usec_t now);

#endif
