/*
 * The hook by which other modules claim statements. The pool owns the protocol (simple and extended,
 * order of answers, skipping to Sync, portals); a claimant sees statements, values and verdicts. main
 * registers the queue (for ordinary databases) and the console (for its own database names).
 */
#ifndef QB_POOL_INTERCEPT_H
#define QB_POOL_INTERCEPT_H

#include "base/buf.h"
#include "wire/build.h"
#include "wire/sqltext.h"

struct client;
struct pool;
struct lstmt;

/* --- what the pool shows of a client --- */

enum client_tx {
	CLIENT_TX_IDLE,    /* no transaction block */
	CLIENT_TX_VIRTUAL, /* BEGIN was answered by us, no server has seen it */
	CLIENT_TX_OPEN,    /* block on a server */
	CLIENT_TX_FAILED,  /* aborted block, virtual or real */
};

enum client_end {
	CLIENT_END_TERMINATE, /* the client said Terminate */
	CLIENT_END_BROKEN,    /* EOF or reset without a goodbye */
	CLIENT_END_BY_US,     /* we closed it: error, KILL, shutdown */
};

enum client_tx client_tx(const struct client *c);
/* Has the client session state or a server of its own (session pooling, linked server)? */
bool client_is_linked(const struct client *c);
struct pool *client_pool(const struct client *c); /* NULL on the console */
const char *client_database(const struct client *c);
const char *client_user(const struct client *c);
unsigned client_dialect(const struct client *c); /* enum sql_dialect */
/* A client_encoding in which a byte of a quote or backslash may be part of another character. */
bool client_encoding_unsafe(const struct client *c);
uint64_t client_id(const struct client *c);
const char *client_address(const struct client *c); /* as SHOW CLIENTS names it */
void *client_slot(const struct client *c); /* the claimant's own data of this client */
void client_slot_set(struct client *c, void *data);
/* Is its socket still connected, as far as the kernel knows now? */
bool client_is_alive(const struct client *c);
/* Where the output for it ends now, and up to where the kernel has taken it. */
uint64_t client_output_end(const struct client *c);
uint64_t client_sent(const struct client *c);
/* statement_timeout as it was given at start-up, in microseconds; 0: none. */
usec_t client_statement_timeout(const struct client *c);
/* Console: may it run all commands (admin_users), or only look (stats_users)? */
bool client_is_admin(const struct client *c);
/* The descriptor of a client of our own unix user on the unix socket, to which nothing is being written; or -1. */
int client_own_fd(const struct client *c);
/* Says that it was refused something, if log_pooler_errors. */
void client_log_refusal(const struct client *c, const char *why);
void client_log(const struct client *c, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* --- statements --- */

enum claim {
	CLAIM_PASS, /* not mine: forward the untouched bytes */
	CLAIM_MORE, /* cannot tell yet */
	CLAIM_MINE,
};

struct stmt_shape {
	const uint32_t *param_oids;
	int n_params;
	const struct wire_field *fields; /* result columns; n_fields 0: no rows */
	int n_fields;
	bool barrier; /* runs only after everything before it in the pipeline ended without error */
	bool own_types;  /* the client's own server tells its parameter types */
	bool own_server; /* runs on the client's own server always */
	bool in_place; /* on the client's own server in a transaction, with a server, or when more follows before Sync */
	bool by_itself; /* an error in a transaction: what comes behind its Execute is waited for */
};

struct bind_param {
	const uint8_t *data;
	int32_t len; /* -1: NULL */
	int16_t format;
	uint32_t oid;
};

/* Values of a Bind message; borrowed for the duration of the call. */
struct bind_values {
	int n_params;
	const struct bind_param *params;
	int n_formats;
	const int16_t *formats;
};

/* How the tag of a replaced statement is made. */
enum replace_tag {
	REPLACE_TAG_KEEP,  /* the server's own */
	REPLACE_TAG_FIXED, /* tag_text */
	REPLACE_TAG_ROWS,  /* tag_text, a blank, the number of rows the server returned */
	REPLACE_TAG_VALUE, /* tag_text, a blank, the first column of the only row */
	REPLACE_TAG_TOLD,  /* tag_text, a blank, what the claimant has counted in its rows */
};

/* A stretch of the client's statement in the text of a replacement; in characters, from 1. */
struct replace_span {
	int ours, theirs, len;
};

/* Where an error of a replacement points. */
enum replace_place {
	REPLACE_NOWHERE, /* it has no position */
	REPLACE_OURS,    /* to what we wrote */
	REPLACE_THEIRS,  /* to what the client wrote */
};

/* What the server says; "" where it says nothing. */
struct replace_error {
	enum replace_place place;
	const char *sqlstate, *message, *detail, *hint, *context, *table, *column;
};

/* Runs on the client's own server, in its transaction, instead of the client's statement. Made by the claimant with
 * mem_zalloc, freed by the pool through replace_free(). */
struct replace {
	struct buf sql;
	uint32_t *oids; /* parameter types for the server; owned */
	int n_oids;
	struct buf *values; /* n_oids encoded values (int32 length + bytes) or NULL: as the client bound them */
	struct buf formats; /* with values: int16 parameter format codes, one each */
	bool rows; /* the client sees the rows */
	bool again; /* it is not answered: when it has succeeded, the statement is executed again */
	bool own_text; /* the client's own SQL stands in it, at the spans: it sees all of an error */
	bool copy;     /* asks the client for data */
	struct replace_span *spans; /* owned */
	int n_spans;
	enum replace_tag tag;
	const char *tag_text;
	uint64_t told;
	/* A row the server returned: body of DataRow. May be NULL. */
	void (*on_row)(struct client *c, void *arg, const uint8_t *body, size_t len);
	/* Called once: ok when the statement completed (not yet committed); n: the number in the
	 * server's own tag. May be NULL. */
	void (*on_done)(struct client *c, void *arg, bool ok, uint64_t n);
	/* An error of the server's; true: the client gets *ret instead. May be NULL. */
	bool (*on_error)(void *arg, const struct replace_error *e, struct pg_error *ret);
	void (*free_arg)(void *arg);
	void *arg;
	struct lstmt *held; /* of the pool: keeps the statement while it runs */
};
void replace_free(struct replace **p);

/* A complete answer. rows: DataRow messages in the formats that were asked for. */
struct answer {
	struct buf rows;
	int n_rows;
	const struct wire_field *fields; /* columns, when they are known only now (console); else NULL */
	int n_fields;
	struct buf notices; /* NoticeResponse messages that precede */
	char tag[64];
};
void answer_free(struct answer *a);
void answer_tag(struct answer *a, const char *word, int64_t n); /* of the word and the number */

enum exec_verdict {
	EXEC_REPLACE, /* x->replace is set */
	EXEC_ANSWER,  /* x->answer is filled */
	EXEC_PARK,    /* client_answer() or client_fail() comes later, once, unless the client ends before */
	EXEC_WAIT,    /* not yet: the statement is executed again after client_again(), from the start */
	EXEC_ERROR,   /* x->err is filled */
	EXEC_CLOSE,   /* the claimant closed the client */
};

struct exec {
	struct client *client;
	void *stmt;
	struct bind_values bind;
	int32_t max_rows;    /* of Execute; 0: no limit */
	bool first;          /* nothing of this client was executed before in the same implicit or real transaction */
	bool alone;          /* the only statement of its simple query, or an Execute */
	bool by_itself;      /* and of its transaction, which is not one of the client's own */
	bool again;          /* what it was replaced by has succeeded (replace.again) */
	bool forgets;        /* with EXEC_PARK: the statement is of no use any more, its answer says its columns itself */
	bool describe;       /* only asked for a replacement to describe, without values; own_server */
	struct replace *replace;
	struct answer answer;
	struct pg_error err;
};

/* SQLSTATE of notices that are the claimant's: no client sees them. */
#define INTERCEPT_EVENT "QB100"

struct interceptor {
	const char *name;
	/* Is the statement that begins here mine? Looks at the first word. */
	enum claim (*claim)(struct client *c, struct sql_text *t);
	/* Does a string of several statements hold one of mine? */
	bool (*claim_any)(struct client *c, struct sql_text *t);
	/* Parse. NULL: err says why. */
	void *(*stmt_new)(struct client *c, const char *sql, size_t len, const uint32_t *oids, int n_oids,
		struct pg_error *err);
	void (*stmt_free)(void *stmt);
	void (*stmt_shape)(const void *stmt, struct stmt_shape *ret);
	/* Is it known what stmt_shape() will tell? false: not yet, see EXEC_WAIT. bind: of the portal, NULL: of the
	 * statement. describes: the client is told now. May be NULL. */
	bool (*shape_ready)(struct client *c, void *stmt, const struct bind_values *bind, bool describes);
	enum exec_verdict (*execute)(struct exec *x);
	/* Asked before several statements of one string are executed. false: not yet, see EXEC_WAIT. May be NULL. */
	bool (*ready)(struct client *c);
	/* A new session is ready. */
	void (*client_begun)(struct client *c);
	/* The transaction in which something of ours ran has ended. */
	void (*tx_ended)(struct client *c, bool committed);
	/* It has said COMMIT PREPARED, of whosever transaction. May be NULL. */
	void (*prepared_committed)(struct client *c);
	/* An error that the server has for the client, without a HINT: one of the claimant's, by the routine of Postgres
	 * that raised it; static. NULL: none. May be NULL. */
	const char *(*hint)(const char *routine);
	/* The claimant's functions in the database say something (INTERCEPT_EVENT) in the client's transaction, which
	 * has not ended. tx: its number, NULL: not told; a statement may have several, one behind the other. May be NULL. */
	void (*event)(struct client *c, const char *text, const char *tx);
	/* The same of a statement of our own. *kept begins as NULL and is the claimant's; with the end of the
	 * statement, before its done(), it is to be freed. */
	void (*task_event)(struct pool *p, const char *text, const char *tx, void **kept);
	void (*task_event_end)(struct pool *p, void **kept, bool committed);
	/* The client asks to cancel its parked statement. The claimant calls client_fail(); client_refuse() of one that
	 * waits to be executed. */
	void (*cancel)(struct client *c);
	void (*drained)(struct client *c); /* it has read what was queued for it. May be NULL */
	/* May it go on in another process, where nothing is known of it? It is idle. NULL: it may. */
	bool (*may_move)(struct client *c);
	/* The text of a statement and its parameter types, from which stmt_new() makes the same. */
	const char *(*stmt_text)(const void *stmt, const uint32_t **ret_oids, int *ret_n);
	/* The session is over; free the slot. A parked statement is dropped. */
	void (*client_ended)(struct client *c, enum client_end how);
};

/* console: serves the databases "qbouncer" and "pgbouncer"; else all others. */
void intercept_register(const struct interceptor *i, bool console);

/* --- answers to parked statements --- */

/* Consumes the contents of a. */
void client_answer(struct client *c, struct answer *a);
/* Rows of the answer that follows, or an error in its place, go out before; they are taken out of a, whose n_rows have
 * come. FULL: it has not read those before, no more until drained(). */
enum part_taken { PART_REFUSED, PART_TAKEN, PART_FULL };
enum part_taken client_answer_part(struct client *c, struct answer *a);
void client_fail(struct client *c, const struct pg_error *err);
/* For EXEC_WAIT. The client may also be executed again for reasons of the pool. */
void client_again(struct client *c);
/* The same, but it fails with this instead; so does what waits for shape_ready(). */
void client_refuse(struct client *c, const struct pg_error *err);
/* In execute() and shape_ready(): it is not the first time for this message, it had to wait. */
bool client_repeats(const struct client *c);
/* Before it is answered: so long it wanted to wait, which is no part of the time that its query took. */
void client_waited(struct client *c, usec_t time);
/* An unchanged ParameterStatus, so that nothing on the way takes a waiting connection for dead. */
void client_heartbeat(struct client *c);
/* A parked client will wait for long: the beginning of its answer, which was kept back, is shown to it. */
void client_show_beginning(struct client *c);
void client_notice(struct client *c, const struct pg_error *notice);
/* When it is idle, at the latest behind the answer that follows, it is told to leave (57P01) and sent away. */
void client_send_away(struct client *c);
/* Is it to leave, for this or another reason? */
bool client_is_to_leave(const struct client *c);
/* Asks for tx_ended at the end of the transaction that is under way. */
void client_watch_tx(struct client *c);
/* In tx_ended, of a transaction that was committed: something in it was rolled back before (to a savepoint). */
bool client_tx_in_part(const struct client *c);

#endif
