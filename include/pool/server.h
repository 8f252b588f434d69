/*
 * A server, and what may be done to it below what it says: its life and list, what is sent to it and
 * expected of it, and what is prepared there. For the rooms of the pooler only.
 */
#ifndef QB_POOL_SERVER_H
#define QB_POOL_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/util.h"
#include "net/conn.h"
#include "pool/expect.h"
#include "pool/parts.h"
#include "pool/stmt.h"

/* At the entrances: is it one, and not freed? A dead one is one until the reaper has it. */
#define SERVER_MAGIC 0x515e4e47u
#define CHECK_SERVER(s) INVARIANT_IS(s, SERVER_MAGIC, "no server, or a freed one")

struct client;
struct database;
struct pool;
struct server_login;
struct task;
struct tls_ctx;

struct server_list {
	struct server *head;
	unsigned count;
};

enum server_state {
	SERVER_LOGIN,
	SERVER_IDLE,
	SERVER_ACTIVE,    /* linked to a client */
	SERVER_TASK,      /* runs a task */
	SERVER_FINISHING, /* its client has said goodbye behind statements that still run */
	SERVER_CLEANING,  /* reset query or rollback under way */
	SERVER_KEPT,      /* idle, for the next task with the key of the last one: kept.c */
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
	struct kept *kept; /* its session is kept, or is to be: kept.c; or NULL */
	size_t tables;    /* that its tasks have met by the way (task_met) */
	unsigned n_kinds; /* of tasks, whose affinity is to it: affinity.c */
	usec_t usual; /* affinity.c: what runs there is waited for so long, if that is longer than for others */
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
	void *events;               /* INTERCEPT_EVENT, said when nobody was linked any more: the interceptor's */
	int32_t pid;
	uint8_t key_len;
	uint8_t key[256 - 3];
	uint64_t id;
	usec_t connect_time, request_time, idle_since;
};

/* server.c */
struct server_all {
	struct server_list dead;
	/* of server.c alone */
	struct slab *slab;
	char prefix[512]; /* of the last line of the log */
};
extern struct server_all server_all;
/* Over several processes there may be so many (most; 0: any number), and somebody waits since then. */
struct server *server_launch(struct pool *p, unsigned most, usec_t since);
struct server *server_launch_engine(struct pool *p); /* one of the engine's own */
struct server *server_launch_for(struct pool *p, const struct dest *unasked); /* it belongs to that row for good */
struct server *server_adopt(struct pool *p); /* of another process: LOGIN, without a connection yet; NULL: memory */
void server_move(struct server *s, enum server_state to);
void server_close(struct server *s, const char *reason, const struct pg_error *for_client);
/* server_fast_close: it is to be closed, and its session says nothing just now. */
bool server_wants_fast_close(const struct server *s);
void server_close_fast(struct server *s);
void server_link(struct server *s, struct client *c);
bool server_is_stale(const struct server *s); /* unused for so long that it has to show that it is alive */
void server_free(struct server *s); /* what is its own; it has left who knew it */
const char *server_prefix(const struct server *s);
bool server_send(struct server *s, struct buf *b); /* writes and empties b; false: memory, server closed */
void server_expect_failed(struct server *s, enum expect_kind kind, const struct dest *dest, void *arg);
void server_free_slabs(void);

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

/* A COPY FROM STDIN; copy.c */
static inline bool copy_takes_data(const struct server *s)
{
	return s->copy.state == COPY_DATA;
}
static inline void copy_forget(struct server *s) /* it is given to somebody else */
{
	s->copy.state = COPY_NONE;
	s->unasked = NULL;
}

bool extq_server_prepare(struct server *s, struct pstmt *p, const struct dest *dest); /* sends Parse if needed */

/* server_tls.c: *why is set with FAILED */
struct tls_ctx *server_tls_rules(const struct database *db); /* borrowed for the turn; NULL: plain text */
enum server_tls { SERVER_TLS_MORE, SERVER_TLS_READY, SERVER_TLS_FAILED };
/* The connection stands. MORE: an answer, or on_secure, will come. */
enum server_tls server_tls_start(struct conn *conn, struct tls_ctx *ctx, const char **why);
/* The first bytes from the server after MORE, before on_secure; one byte is consumed. */
enum server_tls server_tls_answer(struct conn *conn, struct tls_ctx *ctx, const uint8_t *data,
	size_t len, const char **why);

#endif
