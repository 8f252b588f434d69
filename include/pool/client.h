/*
 * A client, and what may be done to it below its messages: its life and list, its cancel key, and that
 * it waits. For the rooms of the pooler only.
 */
#ifndef QB_POOL_CLIENT_H
#define QB_POOL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/util.h"
#include "net/conn.h"
#include "pool/intercept.h"
#include "pool/parts.h"
#include "pool/stmt.h"

/* At the entrances: is it one, and not freed? A dead one is one until the reaper has it. */
#define CLIENT_MAGIC 0x51c11e47u
#define CHECK_CLIENT(c) INVARIANT_IS(c, CLIENT_MAGIC, "no client, or a freed one")

struct account;
struct client_login;
struct listening;
struct pool;
struct pg_error;
struct server;

struct client_list {
	struct client *head;
	unsigned count;
};

enum client_state {
	CLIENT_LOGIN,   /* in `logins`: not authenticated, or waiting for the pool's first server */
	CLIENT_ACTIVE,  /* in `active` of its pool (or of the console): reads its input */
	CLIENT_WAITING, /* in `waiting` of its pool: the message at the head of its input needs a server */
	CLIENT_BARRIER, /* in `active`: the statement at the head of its input waits for the server to finish */
	CLIENT_PARKED,  /* in `active`: a claimant will answer */
	CLIENT_LEAVING, /* in `client_all.leaving`: idle, read no more; told in this turn that we are shutting down */
	CLIENT_MOVING,  /* in `client_all.moving`: idle, read no more; on its way to another process */
	CLIENT_DEAD,    /* in `client_all.dead`, then in ends.c: freed by the reaper */
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
	uint64_t key; /* cancel key: pid in the upper half; 0: none yet */
	struct client *next_key; /* in the same bucket of client_all.keys */
	usec_t connect_time, request_time; /* request_time: start of waiting or of the query; 0: idle */
	usec_t idle_since;
};

/* client.c */
void client_pin(struct client *c, unsigned pins); /* 0: it need not keep its server */
struct client_all {
	struct client_list logins, dead, consoles, leaving, moving;
	bool some_leave; /* only then pool_all.calls->idle() has anything to do */
	/* of client.c alone */
	struct slab *slab;
	unsigned count;
	uint64_t last_id;
	struct { /* by cancel key; a power of two, or 0 */
		struct client **buckets;
		unsigned size, used;
	} keys;
	char prefix[512]; /* of the last line of the log */
};
extern struct client_all client_all;
uint64_t client_next_id(void); /* of clients and servers, one row of numbers for both */
/* Of a cancel key: 16 bits say whose client it is, the last two how often the request may still be handed on; a
 * process id is positive. */
#define CLIENT_KEY_PEER(key) ((int)((key) >> 40 & 0xffff))
#define CLIENT_KEY_HOPS      3ULL
#define CLIENT_KEY_PROCESS(key) ((int)((key) >> 32 & 0xff)) /* one of several that are one program */
struct client *client_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops);
void client_move(struct client *c, enum client_state to);
void client_move_greeting(struct client *c);
void client_become_console(struct client *c);
void client_close(struct client *c, enum client_end how, const char *reason);
void client_fatal(struct client *c, const struct pg_error *err);
void client_fatal_because(struct client *c, const struct pg_error *err, const char *reason); /* reason: for the log */
void client_free(struct client *c); /* what is its own; its claimant and others have let it go */
void client_write(struct client *c, const struct buf *b);
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
void client_free_slabs(void);

/* --- its messages --- */

/* What has become of one. */
enum step {
	STEP_NEXT,   /* the message is done with */
	STEP_STREAM, /* what is here was forwarded; pass_left tells how much follows */
	STEP_MORE,   /* needs more bytes of the message */
	STEP_WAIT,   /* not touched: the client waits for a server, a barrier, or an answer */
	STEP_PARKED, /* done with, and the client is parked */
	STEP_END,    /* the client is closed */
};
/* barrier.c */
bool client_only_settings(struct server *s); /* it owes nothing else */
enum step client_wait_again(struct client *c); /* until client_again() */
bool client_barrier(struct client *c); /* true: nothing outstanding; false: waits */

/* client.c */
enum step client_protocol_error(struct client *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void client_no_server(struct client *c, const struct pg_error *err); /* the pool cannot give one */
bool client_is_owed(const struct client *c); /* answers of its server are outstanding */
void client_resume(struct client *c); /* look at its input again */

/* stmt.c: of what we answer; NULL: memory, or as err says */
struct lstmt *lstmt_claimed(struct client *c, const char *sql, size_t len, const uint32_t *oids, int n, struct pg_error *err);
struct lstmt *lstmt_tx(enum sql_tx tx, struct sql_text *t); /* takes what is known of it, as the next one */
struct lstmt *lstmt_session(struct sql_text *t);

#endif
