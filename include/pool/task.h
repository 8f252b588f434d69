/*
 * A statement of our own on a server of a pool: takes part in the hand-out of servers like a client,
 * with a small reserve beside the pool (queue_pool_size), and gives the server back at the end.
 */
#ifndef QB_POOL_TASK_H
#define QB_POOL_TASK_H

#include "base/buf.h"
#include "pool/intercept.h"

struct task;

/* A session that is kept: what one task has left there is for the next one with the same key (task_spec.session). */
struct task_session {
	uint64_t key;
	/* Of those who leave something there, to know when it is enough: so many have, since then. */
	unsigned jobs; /* 0: this one is the first */
	usec_t since;
	usec_t until; /* it is discarded then, though nobody has come; USEC_NEVER */
};

struct task_ops {
	/* A row: body of DataRow. Borrowed. NULL: one that is longer than task_spec.row_max, of so many bytes. */
	void (*row)(void *arg, const uint8_t *body, size_t len);
	/* The columns of its rows, where task_spec.describe asks for them: the body of RowDescription. Borrowed. Or NULL. */
	void (*columns)(void *arg, const uint8_t *body, size_t len);
	/* How its statement was completed: the body of CommandComplete. Borrowed. Or NULL. */
	void (*tag)(void *arg, const uint8_t *body, size_t len);
	/* The end; the task is gone afterwards. err NULL: success. A statement that the server refused
	 * has the server's fields; a server that could not be reached 08006 or 57P03. */
	void (*done)(void *arg, const struct pg_error *err);
	/* A server is there, perhaps one of the engine's own: the last moment for task_change(). false: no memory, which
	 * is its end. Or NULL. */
	bool (*starts)(void *arg, bool engine);
	/* A NoticeResponse of its statement: the body. Borrowed. Or NULL: nobody hears of it. */
	void (*notice)(void *arg, const uint8_t *body, size_t len);
	/* The ErrorResponse that done() will tell of: the body. Borrowed. Or NULL. */
	void (*error)(void *arg, const uint8_t *body, size_t len);
	/* Its statement has ended, err NULL: without error; the state of the transaction as ReadyForQuery has it. The server is
	 * the task's still: task_go_on() has another statement carried out there, and it is not done. Or NULL. */
	void (*next)(void *arg, char tx, const struct pg_error *err);
	/* It is over, without an error, and done() comes next. true: what is in its session stays there, for the next one with
	 * that key. Or NULL: it is discarded. */
	bool (*leaves)(void *arg, struct task_session *of);
};

/* The settings of a client (all but application_name), for statements that stand for many. */
struct task_settings;
MUST_CHECK struct task_settings *task_settings_of(const struct client *c); /* NULL without memory */
/* ... of one that asks for nothing else than what sessions of the pool have, as far as that is known: when a server has
 * logged in. */
MUST_CHECK struct task_settings *task_settings_of_pool(const struct pool *p);
/* application_name besides, while such a statement runs. false: no memory. */
MUST_CHECK bool task_settings_name(struct task_settings *s, const char *application_name);
/* Texts come and go in UTF8. false: no memory. */
MUST_CHECK bool task_settings_utf8(struct task_settings *s);
void task_settings_free(struct task_settings **p);
/* Bytes that are equal for equal settings, as long as both exist. */
void task_settings_key(const struct task_settings *s, struct buf *key);

/* A text that is used again and again, so that it need not be looked up for each task. NULL without memory. */
struct pstmt;
MUST_CHECK struct pstmt *task_text(const char *sql, size_t len, const uint32_t *oids, int n_oids);
void task_text_free(struct pstmt **p);

/* How long its answer may take: queue_engine_timeout, much longer, or whatever query_timeout says. The first two end
 * with 08007, unless the server says that the statement waits for a lock or for a standby. BESIDE: as UNLIMITED, and its
 * server is none of those that clients of its pool may have; where a limit is for several pools, one is left to clients. */
enum task_time { TASK_BRIEF, TASK_SLOW, TASK_UNLIMITED, TASK_BESIDE };

/* SQL of a client's is in it that may have left something in the session: what is there is discarded. */
enum task_leaves { TASK_LEAVES_NOTHING, TASK_LEAVES_SESSION };

struct task_spec {
	const struct task_ops *ops;
	void *arg;
	struct client *client; /* its settings are put in force on the server; or NULL. Borrowed for the call. */
	const struct task_settings *settings; /* in place of client; borrowed for the call */
	const char *sql;
	struct pstmt *text;    /* in place of sql and oids; borrowed for the call; or NULL */
	bool script;           /* simple protocol, several statements, no parameters */
	bool describe;         /* its columns are asked for */
	size_t row_max;        /* longer rows are not gathered; 0: all are */
	bool slow;             /* of BESIDE: it is one of ours, its answer may take as long as one of SLOW */
	/* Sent with it, before and behind, each one statement without values or rows; or NULL. When one fails, those behind
	 * it are not carried out. */
	const char *before, *behind;
	/* Where one of the same kind has run before, this one is cheaper: it goes there if it can without
	 * waiting long. Kinds that happen to be equal do no harm. 0: anywhere. */
	uint64_t kind;
	bool prepare;          /* keep prepared on the server: the text is one of few */
	/* Its text means the same whatever the settings of the role, the database and the session are: it may
	 * run on a connection of the engine's own, and does if there is one. */
	bool engine;
	/* On a connection of the engine's own it may share a transaction with others of the same class, whose outcome is told
	 * when that is committed; it is worth waiting for one. 0: it runs alone. */
	uint8_t together;
	enum task_leaves leaves;
	/* It runs in a session that another one with this key has left, if there is one that is free. What is there is as that
	 * one has left it, but for what the proxy needs (session/release.c). 0: in any, where nothing was left. */
	uint64_t session;
	bool stays;            /* nobody waits for it: query_wait_timeout does not end it */
	enum task_time time;
	const uint32_t *oids;
	int n_params;
	const struct bind_param *params; /* copied */
	int n_formats;
	const int16_t *formats; /* of the result */
};

/* NULL without memory: done() is not called then. Never calls back before it returns. */
MUST_CHECK struct task *task_submit(struct pool *pool, const struct task_spec *spec);
/* One of BESIDE has ended: another one, of whatever pool, may have its place. */
void tasks_look_again(void);
/* Not interested any more: no further callback. A statement that already runs ends by itself.
 * Returns true when it was never sent. */
bool task_drop(struct task **p);
bool task_is_sent(const struct task *t);
usec_t task_sent_at(const struct task *t); /* 0: it was not */
int32_t task_backend_pid(const struct task *t); /* 0: none yet */
/* In row() or tag(): it has been to so many tables by the way, and Postgres keeps what a session has seen of each. One that
 * has seen hundreds ends when it is free. */
#define TASK_MET_MOST 200 /* of each Postgres keeps 100 kB: mostly a queue's indexes */
void task_met(struct task *t, size_t tables);
/* In next(): how its server reads SQL now (enum sql_dialect). */
unsigned task_dialect(const struct task *t);
/* Asks the server to stop it. What becomes of it is told as ever. false: it runs nowhere, or cannot be asked. */
bool task_cancel(struct task *t);
bool task_is_cancelled(const struct task *t); /* a cancel request of its server is under way */
/* In row(), or after it: who gets the rows has enough of them for now, and its server is not read. Or it goes on. Either
 * says that the server has answered. */
void task_rest(struct task *t, bool rests);
/* At most half of queue_pool_size do, but one may: the others are for who reads. */
MUST_CHECK bool task_may_rest(const struct task *t);
/* Of one that was sent: its server does not answer, not even to that. The connection is closed, and its end is told. */
void task_abandon(struct task *t);
/* For done(): the process that was carrying it out when its connection was lost, so that its outcome is not known. 0: the
 * server has said how it ended, or it was never sent. -1: which one is not known. */
int32_t task_lost_in(const struct task *t);
/* Another statement, with its values, takes the place of one that was not sent: it waits on where it is. false:
 * memory, and it is as it was. */
MUST_CHECK bool task_change(struct task *t, const struct task_spec *spec);
/* In next(): another statement follows on the same server, with its values. undoes: what those before it have done does not
 * count, whatever becomes of it. false: memory. */
MUST_CHECK bool task_go_on(struct task *t, const struct task_spec *spec, bool undoes);

/* The session that it runs in, or waits for. NULL: none that was kept. */
const struct task_session *task_session_of(const struct task *t);
/* So many are kept and wait for nobody yet. */
unsigned task_sessions(void);
/* The one of them that has been idle for longest is discarded (false: there is none); all with a key are. */
bool task_sessions_end_one(void);
void task_sessions_end(uint64_t key);

/* Is there a connection of the engine's own, where statements with these settings (NULL: whatever they are) may run? */
bool pool_has_engine(const struct pool *p, const struct task_settings *s);
/* Whoever works through a pool without a client in it keeps it until it lets go. */
void pool_keep(struct pool *p);
void pool_let_go(struct pool *p);
/* The database a pool belongs to, and its role. */
const char *pool_database(const struct pool *p);
const char *pool_user(const struct pool *p);
/* Where the proxy's own libpq session of the database connects: host, port, dbname. */
struct pool_target {
	const char *host, *dbname;
	const char *hosts; /* as they are configured, host may be one of them */
	int port;
	char address[64]; /* of a server that the pool is connected to, when host is a name; else "" */
	const char *queue_user, *queue_password; /* of the database entry; NULL: not given */
	const char *force_user, *force_password;
};
void pool_target(const struct pool *p, struct pool_target *ret);

/* Bytes of answers that all clients have not read yet: what each has beyond that which is held of what passes through, and
 * what row limits have left. */
size_t client_all_unread(void);

#endif
