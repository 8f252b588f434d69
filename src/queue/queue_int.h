/*
 * The private face of the queue module.
 *
 *   qdb       a database: is the schema there, its wait queues, its system session
 *   qclient   what we keep of a client: leases, its request, what it waits for
 *   request   a statement on the merged path: the engine runs it and answers (engine.c)
 *   park      a client that waits without a server: deadline, signs of life, ends (park.h)
 *   waiter    a TAKE or POP: asks the database, parks, is woken (wait.c)
 *   awaiting  an AWAIT: the same for the end of a job (await.c)
 *   waitq     the waiters of one queue of one database
 *
 * Everything that ends a wait passes through leave() of its kind of park.
 */
#ifndef QB_QUEUE_INT_H
#define QB_QUEUE_INT_H

#include <utlist.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "conf/conf.h"
#include "net/loop.h"
#include "pool/intercept.h"
#include "pool/pool.h"
#include "pool/task.h"
#include "qlang/parse.h"
#include "qlang/refusal.h"
#include "qlang/rewrite.h"
#include "queue/queue.h"
#include "queue/stat.h"
#include "heap.h"
#include "token.h"

#define LIMIT_MAX 10000
/* At the entrances: is it one, and not freed? */
#define QDB_MAGIC     0x51db0047u
#define QCLIENT_MAGIC 0x51c10047u
#define CHECK_QDB(db)     INVARIANT_IS(db, QDB_MAGIC, "no database of queues, or a freed one")
#define CHECK_QCLIENT(qc) INVARIANT_IS(qc, QCLIENT_MAGIC, "no client of queues, or one that has left")

/* What was bound, for qvalue_eval(). The two structs are the same; each module has its own name for it. */
static inline struct qbind bind_read(const struct bind_values *b)
{
	_Static_assert(sizeof(struct qparam) == sizeof(struct bind_param), "same layout");
	return (struct qbind){.n = b->n_params, .params = (const struct qparam *)(const void *)b->params};
}

/* --- databases --- */

enum schema_state {
	SCHEMA_UNKNOWN,
	SCHEMA_ASKING,     /* a fetch or the installation is under way */
	SCHEMA_PRESENT,
	SCHEMA_ABSENT,     /* and could not be installed; asked about again after a while */
};

struct system;
struct registry;

/* agent.c: a role that has used queues here */
struct agent {
	UT_hash_handle hh;
	struct used *used; /* the queues that it has taken from: hash by name */
	unsigned n_used;
	/* registry.c: up to which of its scans it has looked for orphans */
	uint64_t scanned;
	usec_t again_at;
	bool scanning;
	/* maintain.c: the round in which it was asked, and in which it was there; then what the server says of it */
	uint64_t tried, maintained;
	bool is_super;
	uint64_t gauged;
	char role[64];
	char user[128]; /* as long as a client may say */
};

/* maintain.c */
struct maintenance {
	usec_t at;     /* of the next step */
	usec_t since;  /* queues are used; 0: not yet */
	usec_t ended_at; /* the last round */
	uint64_t round;
	int32_t after; /* the number of the queue that had its turn */
	bool in_round, busy, goes_on;
	bool succeeded; /* some role was there, in this round */
	bool warned, late; /* that is said */
	uint64_t of_round, denied; /* in this round: what it deleted, queues that it may not clean */
	int64_t skipped, told, left_out; /* queues that nobody is there for: as it is asked, as it was said, of the last round */
	uint64_t deleted;          /* since the start */
	char owner[64], example[QSTMT_QUEUE_MAX + 1];
	char why[160];
};

struct qdb {
	uint32_t magic;
	UT_hash_handle hh;
	enum schema_state schema;
	usec_t told_distrust;
	struct schema_failure *schema_failures; /* ABSENT: hash by role (schema.c) */
	usec_t asked_at;
	struct qclient *asking; /* clients whose statement waits for the answer */
	struct waitq *waitqs;     /* hash by name */
	struct head *heads;     /* hash by name (head.c) */
	struct system *system;  /* the LISTEN session; made with the first waiter */
	struct wakes *raised;   /* by the statement under way in it (wakes.c) */
	struct tally *tallies;  /* what happened in each queue (count.c) */
	struct gauge *gauges;   /* how full the queues are (gauge.c) */
	struct asked *gauging;  /* that is being asked now */
	struct agent *agents;   /* hash by user (agent.c) */
	usec_t prepared_at; /* a prepared transaction was committed, and those who wait looked */
	bool prepared_due;  /* another one was since */
	struct registry *registry; /* the proxies of this database */
	uint64_t fetches, served;
	uint64_t wakes; /* counts what was announced, of any queue */
	struct hist delivery; /* from the news of a job to its delivery to one who waited */
	struct maintenance maintenance;
	struct awaited *awaited; /* jobs that somebody waits for (await.c) */
	uint64_t ended_events;     /* counts jobs that ended through this proxy */
	char name[64];
};

/* qdb.c */
struct qdb *qdb_get(const char *name); /* makes it; NULL without memory */
struct qdb *qdb_find(const char *name); /* NULL: nothing is known of it */
struct qdb *qdb_first(void);
void qdb_free(struct qdb *db); /* itself alone: what hangs on it has been freed */

/* schema.c: true: present. false: the client is remembered and executed again later, or
 * *ret_absent is set and err filled. */
bool schema_ready(struct qdb *db, struct client *c, bool *ret_absent, struct pg_error *err);
/* It was not found, and the client waits until that is asked again. */
void schema_wait(struct qdb *db, struct qclient *qc);
void schema_forget_client(struct qdb *db, struct qclient *qc);
void schema_free(struct qdb *db);
MUST_CHECK bool schema_start(void);
void schema_stop(void);
/* A statement failed with 3F000 or like it: ask again. */
void schema_suspect(struct qdb *db);
/* One failed, and why is not known here: ask again, but not each time. */
void schema_doubt(struct qdb *db);

/* --- leases --- */

enum lease_policy { LEASE_AUTO, LEASE_RELEASE, LEASE_KEEP, LEASE_HOLD };

struct lease {
	UT_hash_handle hh; /* by token */
	struct lease *prev, *next;
	int64_t id;
	int64_t place;   /* its position in the queue; 0: not known */
	bool in_tx;      /* taken in the transaction under way */
	bool finishing;  /* finished in the transaction under way */
	bool by_done;    /* and by DONE, which may be repeated after the commit */
	bool stamped;    /* our number is in it: other proxies give it back when we are gone */
	bool cancelled;  /* HOLD: a renewal said so */
	unsigned answer; /* which answer it came with */
	enum lease_policy policy;
	usec_t taken_at, until; /* until: the lease does not end before; 0: not known, EXTEND may have moved it */
	/* HOLD: when it was renewed for how long, when it ends for good; the renewal under way, or 0 */
	usec_t renewed_at, span, hold_until, again_at;
	unsigned renewal;
	char *key; /* or NULL */
	char token[TOKEN_MAX];
	char queue[QSTMT_QUEUE_MAX + 1];
};

/* --- clients --- */

#define HEAD_UNMARKED (-1)

/* How far a queue had been read: the highest position, and the time until which nothing was due
 * (head.h). 0: the ground. */
struct head_mark {
	int64_t place, since;
};
extern const struct head_mark head_unmarked; /* not known */
void head_mark_min(struct head_mark *mark, struct head_mark to);

/* Queues to be woken when the transaction under way commits. */
struct wakes {
	struct wakes *next;
	bool locks;     /* takes may have passed over what it has locked: a rollback is news */
	bool makes_ready; /* a commit is, too */
	struct head_mark mark; /* nothing that it made ready lies below */
	unsigned jobs; /* made ready; 0: unknown */
	char queue[];
};

struct qclient {
	uint32_t magic;
	struct client *client;
	struct qdb *db;
	struct lease *leases, *by_token;
	unsigned n_leases, n_cancelled;
	unsigned answers; /* answers with leases that were written; the last one may be under way */
	uint64_t answer_end; /* of the client's output, behind the last of them */
	struct wakes *wakes;
	struct request *request;
	struct park *park; /* what it waits for; or NULL */
	struct deferred *deferred; /* its statement cannot be executed yet (deferred.c); or NULL */
	struct buf ended; /* jobs that end when the transaction under way commits (await.c) */
	struct names then_names; /* DONE ... THEN TAKE, between the two: the queues of the jobs that are done */
	char took[QSTMT_QUEUE_MAX + 1]; /* the last queue that it took from */
	uint64_t scans; /* its role has looked for orphans up to this scan of the registry */
	bool asking_schema;
	struct question *question; /* about queues, whose answer it waits for (head.c) */
	struct qclient *question_next;
	bool asked; /* that was answered: what is not known now will not be */
	enum qpayload job_payload;
	struct qclient *asking_next;
	struct qclient *prev, *next; /* all of them */
};

struct qclient *qclient_get(struct client *c); /* makes it; NULL without memory */
struct qclient *qclient_find(struct client *c);
struct qclient *qclients(void); /* all of them */
void qclient_free(struct qclient *qc); /* itself alone */
/* lease.c */
/* NULL without memory. */
struct lease *lease_add(struct qclient *qc, int64_t id, const char *token, const char *queue, enum lease_policy policy,
	bool in_tx);
void lease_drop(struct qclient *qc, struct lease *l);
void lease_cancelled(struct qclient *qc, struct lease *l);
struct lease *lease_find(struct qclient *qc, const char *token);
void lease_finish(struct qclient *qc, const char *token, bool by_done, bool in_tx);
void lease_free_all(struct qclient *qc);
void lease_each(struct qclient *qc, void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg);
/* lease_end.c */
void lease_tx_ended(struct qclient *qc, bool committed);
void lease_client_ended(struct qclient *qc, enum client_end how);
/* Held ones whose longest time is over are given back. */
void lease_hold_over(struct qclient *qc, usec_t now);
/* done.c: the memory of tokens that were finished: a repeated DONE is not an error. */
void done_remember(const char *token);
bool done_known(const char *token);
void done_forget_all(void);
/* back.c: gives jobs back through the pool's role; tokens: array of n texts; none of them lies below the
 * place. error NULL: not counted. */
void give_back(struct qdb *db, struct pool *pool, const char *const *tokens, int n, int64_t place,
	const char *error);
/* Of a statement whose answer was lost: what it has leased, if it was carried out, is looked for and given back, as
 * soon as there is a connection, and until its process is gone. More than one may say the same. */
struct lost_jobs {
	const char (*names)[QSTMT_QUEUE_MAX + 1]; /* of the queues */
	int n_names;
	const char *lease; /* of the statement; NULL: that of the queue */
	int64_t seed;      /* merge_seed(); 0: none, and nothing can be found */
	int32_t pid;       /* task_lost_in() */
	usec_t sent_at;    /* when a server got the statement */
	int handed;        /* a push that hands over: to so many at most; 0: a take */
};
void back_lost(struct qdb *db, struct pool *pool, const struct lost_jobs *lost);
MUST_CHECK bool back_start(void);
void back_stop(void);
/* The wait queues of these names, here and elsewhere. mark: as for touch_from. */
void wake_queues(struct qdb *db, const struct names *names, struct head_mark mark);

/* hold.c: leases that are renewed while their connection lives */
MUST_CHECK bool hold_start(void);
void hold_free(void);
void hold_begin(struct lease *l, usec_t hold, usec_t span); /* held so long at most, leased for span now */
void hold_extended(struct lease *l, bool in_tx);

/* wakes.c */
void touch(struct qclient *qc, const char *queue, unsigned jobs); /* remembers for the commit */
void touch_from(struct qclient *qc, const char *queue, unsigned jobs, struct head_mark mark, bool locks);
void touch_locked(struct qclient *qc, const char *queue); /* news only if it is rolled back */
void wakes_wake(struct qclient *qc);
/* It was rolled back: what it had locked, and takes have passed over, is there again. A plain push has locked
 * nothing. */
void wakes_let_go(struct qclient *qc);
void wakes_drop(struct qclient *qc);
/* What the database says of a queue, in a transaction that has not ended (a list of those), and its end. */
void wakes_event(struct qdb *db, struct wakes **list, const char *queue);
void wakes_event_end(struct qdb *db, struct wakes **list, bool committed);
/* interceptor.event and the others */
void wakes_event_of_client(struct client *c, const char *queue);
void wakes_task_event(struct pool *pool, const char *queue, void **kept);
void wakes_task_end(struct pool *pool, void **kept, bool committed);
/* One that was prepared, here or elsewhere, is committed: all who wait look, at other proxies too. */
void wakes_prepared_wake(struct qdb *db);
MUST_CHECK bool wakes_start(void);
void wakes_stop(void);

/* types.c: what the payloads are that a statement is about */
enum types { TYPES_KNOWN, TYPES_ASKED, TYPES_ERROR };
/* Has a statement payloads, or parameters, whose type depends on the queue? b NULL: it is to be described. */
MUST_CHECK bool types_matter(const struct qstmt *q, const struct bind_values *b);
/* Fills in q->payload, the types of parameters, q->differs. ASKED: the client is executed again when more is
 * known. ERROR: err is filled. */
MUST_CHECK enum types types_find(
	struct qclient *qc, struct qstmt *q, const struct bind_values *bind, bool alone, struct pg_error *err);
/* q->differs, in words. */
void types_differ(const struct qstmt *q, struct pg_error *err);
/* The payloads are of another type than was thought: how that is told to a client that was told so. */
void types_changed(struct pg_error *err);
/* To a client that was told nothing it need not be told: the statement is sent again, so often at most. Once, as it met
 * the other table (head_is_torn), and once, as the function said what that is. */
#define SENT_AGAIN_MAX 2
void types_forget(struct qdb *db, const struct qstmt *q, const struct bind_values *bind);

/* bulk.c: PUSH of a query or a copy, on the client's own server */
enum exec_verdict bulk_execute(struct exec *x, const struct qstmt *q, struct qclient *qc);

/* own_sql.c: where the client's text stands in that of the replacement. false: memory. */
MUST_CHECK bool own_sql_spans(struct replace *r, const struct qspan *spans, int n);
/* Appends the text of a statement with expressions. false: err is filled. */
MUST_CHECK bool own_sql_put(struct replace *r, struct buf *sql, const struct qstmt *q, struct pg_error *err);
/* Does a server read the text, or a literal of it, as it was read here when it was prepared? false: err is filled. */
MUST_CHECK bool own_sql_reads_as_prepared(const struct client *c, const struct qstmt *q, struct pg_error *err);
/* The table of the queue, not of what the client's own SQL speaks of? And a refusal of it? */
bool own_sql_is_table(const char *queue, const char *table);
bool own_sql_is_denied(const char *queue, const char *message);
/* Is it of an expression, or of what that speaks of? */
bool own_sql_is_theirs(const char *queue, const struct replace_error *e);

/* --- the engine: statements on the merged path --- */

/* Job arguments as they are at the moment of execution. */
struct jobs {
	int n, cap;
	char (*tokens)[TOKEN_MAX]; /* of the leases */
	char **texts; /* what stands for each value, with arrays among them; or NULL, each may be NULL */
	int n_texts;
	bool elsewhere; /* the database has to say whether they are of the queue that ON names */
};
unsigned jobs_distinct(struct jobs *j); /* sorts their tokens */

/* doubt.c: a DONE of which nobody knows whether it was committed. qc: whose leases they are, or may be. NULL: its
 * client has left. */
void doubt_remember(struct qclient *qc, const struct jobs *jobs);
/* One that says the same is refused, as the jobs are gone: was it that DONE that ended them? */
bool doubt_is_over(const struct jobs *jobs);
void doubt_forget(const char *token); /* this lease may end, or has ended, otherwise than by its time or a DONE */
void doubt_forget_all(void);

/* name.c: how jobs are named */
MUST_CHECK bool jobs_resolve(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind, struct jobs *ret,
	struct pg_error *err);
const char *jobs_text(const struct jobs *j, int i); /* in the place of value i; NULL: what the client wrote */
void jobs_free(struct jobs *j);
/* A job that this connection holds, by whatever names it; terminated. queue: of an id, or NULL. NULL: none, or several. */
struct lease *lease_named(struct qclient *qc, const char *text, size_t len, const char *queue);
/* The jobs of a value, which may be an array of them; nothing where it cannot be read. */
typedef void each_job_fn(void *arg, const char *text, size_t len);
void each_job(const struct qvalue *v, const struct bind_values *b, each_job_fn *fn, void *arg);

/* partial.c: DONE ... PARTIAL */
/* Row i of the database, as the client gets it; a job that is not done loses its token. */
void partial_row(
	struct qclient *qc, struct jobs *j, int i, const uint8_t *body, size_t len, struct buf *rows);
void partial_ended(struct jobs *j); /* leaves those that are done */
bool partial_is_ok(const uint8_t *body, size_t len);

/* What both paths run: SQL text, types, values. */
struct call {
	struct buf sql;
	uint32_t *oids;
	struct bind_param *params;
	int n_params;
	struct jobs jobs;
	char queue[QSTMT_QUEUE_MAX + 1]; /* PUSH, ALTER ...: evaluated name, "" when it has none */
	struct names ends;  /* CANCEL: its jobs as its rows name them */
	struct names names; /* the queues of the jobs, as its rows name them */
	bool in_rows;     /* its rows do, and somebody wants to know */
	bool only_names;  /* the jobs were done before: nothing else is asked for */
	struct head_mark mark;           /* of that queue, before it is sent */
	struct head_mark jobs_mark;      /* of the queue of its jobs */
	unsigned handed;                 /* of the jobs that it pushed: leased already */
};
MUST_CHECK bool call_make(struct qclient *qc, const struct qstmt *q, const struct bind_values *bind, struct call *ret,
	struct pg_error *err);
/* Its text, which a merged one does not need. */
MUST_CHECK bool call_sql(struct call *call, const struct qstmt *q, struct pg_error *err);
/* THEN TAKE of jobs that were done before: asks for nothing but their queues. */
MUST_CHECK bool call_ask_queues(struct call *call, const struct qstmt *q, struct pg_error *err);
/* DONE: nothing but jobs whose DONE succeeded before. */
bool all_done_before(const struct qstmt *q, const struct call *call);
void call_free(struct call *c);
/* A row that the call returned: body of DataRow. */
void call_row(struct call *call, const uint8_t *body, size_t len);
/* After success: leases, memory of done, queues to wake. in_tx: at the commit. */
void call_succeeded(struct qclient *qc, const struct qstmt *q, struct call *call, unsigned rows, bool in_tx);

/* What comes after a request, and answers its client: it has been committed. */
struct then;
typedef void then_fn(struct qclient *qc, struct then *then, const struct names *names); /* frees it */
struct then {
	then_fn *go_on; /* names: the queues of the jobs, if it needs them */
	void (*free)(struct then *then);
	bool needs_names, cancelled;
};
/* Takes the contents of call, and then (or NULL) if it succeeds. */
MUST_CHECK bool engine_submit(struct qclient *qc, struct qstmt *q, struct call *call, const struct bind_values *bind,
	struct then *then, struct pg_error *err);
void engine_cancel(struct qclient *qc);
void engine_client_ended(struct qclient *qc);

/* The queue that a row of names or a touched list speaks of has news. */
void waitq_wake(struct qdb *db, const char *queue, unsigned jobs);
/* ... and nothing of it lies below the mark, if it is one. */
void waitq_wake_from(struct qdb *db, const char *queue, unsigned jobs, struct head_mark mark);
void waitqs_wake_all(struct qdb *db); /* LISTEN was set up anew: anything may have happened */

/* --- waiting --- */

struct take_args {
	int n_queues;
	char (*queues)[QSTMT_QUEUE_MAX + 1]; /* owned */
	int limit;
	usec_t wait; /* 0: none */
	usec_t since; /* that it has been waiting; 0: now */
	char *lease; /* interval text or NULL; owned */
	char *as;    /* or NULL; owned */
	usec_t hold; /* 0: not held; else the longest time, and lease is that of queue_hold_lease */
	usec_t span; /* with hold: lease as a number */
	bool pop;
	enum qpayload payload;
	bool described; /* the client was told so: nothing else will do */
};

/* take_args.c */
MUST_CHECK bool take_args_queues(struct take_args *a, const struct names *names); /* false: memory */
void take_args_free(struct take_args *a);
/* The text of an argument; NULL: it is not given, or NULL. */
MUST_CHECK bool take_text(char **ret, const struct qvalue *v, const struct bind_values *b, struct pg_error *err,
	const char *what);
/* WAIT, or what counts without it. */
MUST_CHECK bool take_wait(
	struct take_args *a, const struct qvalue *v, const struct bind_values *b, struct pg_error *err);
/* Reads its arguments and checks whether it is possible now. names: the queues when the statement names none; may be
 * NULL. */
MUST_CHECK bool take_check(
	const struct exec *x, const struct qstmt *q, const struct names *names, struct take_args *ret, struct pg_error *err);
/* take.c: also that of THEN */
enum exec_verdict take(struct exec *x, const struct qstmt *q, struct qclient *qc);

/* in_place.c */
enum exec_verdict run_in_place(struct exec *x, struct qstmt *q, struct qclient *qc, struct call *call);

/* deferred.c: statements that cannot be executed yet */
/* It waits from now on, unless it does already: for EXEC_WAIT. b: NULL if not known. may_wait: for its WAIT. */
void deferred_begin(struct qclient *qc, const struct qstmt *q, const struct bind_values *b, bool may_wait);
/* It may wait until what was asked for can be had: its WAIT is not over, and a server may be back by then. */
bool deferred_waits_on(struct qclient *qc, const struct qstmt *q, const struct bind_values *b, bool may_wait,
	const struct pg_error *err);
bool deferred_is_over(struct qclient *qc); /* its WAIT: to be answered with nothing */
enum exec_verdict deferred_answer(struct exec *x, const struct qstmt *q);
void deferred_cancel(struct qclient *qc);
void deferred_end(struct qclient *qc); /* it waits no more; harmless when it did not */
/* The end of a Describe: an Execute that comes with it has been waiting since that began. */
void deferred_described(struct qclient *qc, struct qstmt *q);
usec_t deferred_since(const struct qclient *qc, const struct qstmt *q); /* 0: it has not waited */

/* then.c: DONE ... THEN TAKE */
enum exec_verdict then_take(struct exec *x, struct qstmt *q, struct qclient *qc);

MUST_CHECK bool waitq_start(void);
void waitq_stop(void);
/* Takes the contents of args. false: memory. */
MUST_CHECK bool waiter_start(struct qclient *qc, struct take_args *args, const struct bind_values *bind, int n_columns);

/* park.c: what TAKE, POP and AWAIT have in common while they wait; more in park.h */
void park_cancel(struct qclient *qc);
void park_client_ended(struct qclient *qc);
/* We are about to end: its client goes elsewhere to wait. One that holds jobs stays: it finishes them here. */
bool park_must_leave(const struct qclient *qc);

/* --- AWAIT (await.c) --- */

MUST_CHECK bool await_start(void);
void await_free(void);
enum exec_verdict await_execute(struct exec *x, const struct qstmt *q, struct qclient *qc);
/* A job has ended, or may have: its token, "<queue number>-<id>" or its id. how: known state, or NULL. */
void await_event(struct qdb *db, const char *job, const char *how);
/* Now, or when the transaction under way commits. done: by DONE. */
void await_ended(struct qclient *qc, const char *job, bool done, bool in_tx);
void await_tx_ended(struct qclient *qc, bool committed);

/* --- what the proxy does on its own account --- */

/* agent.c */
struct agent *agent_get(struct qdb *db, const char *user); /* makes it; NULL: memory, or too many */
void agent_took(struct qclient *qc, const char *queue);    /* a take from it has succeeded */
void agents_see(struct qdb *db);                           /* of all clients there are now */
void agent_put_used(struct buf *b, const struct agent *a); /* text[] in binary */
/* Those that were there in this round: their roles, and what they have used. */
void agents_put(struct buf *users, struct buf *used, const struct qdb *db, uint64_t round);
void agents_free(struct qdb *db);

/* maintain.c */
MUST_CHECK bool maintain_start(void);
void maintain_stop(void);
void maintain_need(struct qdb *db); /* there are queues */

/* --- counting --- */

/* gauge.c */
MUST_CHECK bool gauge_start(void);
void gauge_stop(void);
void gauge_free(struct qdb *db);

/* What happened to those who waited for a queue. */
struct waitq_counts {
	uint64_t wakes, fetches, handed;
};

/* What is known of a queue since the start. */
struct tally {
	UT_hash_handle hh;
	uint64_t failed;
	uint64_t served;          /* jobs that were given to clients */
	struct waitq_counts waitqs;   /* of those that have ended */
	bool dropped;
	char queue[QSTMT_QUEUE_MAX + 1];
};

/* count.c: what was done */
void count_done(int verb, unsigned jobs);
void count_failed(int verb);
/* A FAIL that succeeded: the queue of each of its jobs. */
void count_jobs_failed(struct qdb *db, const struct names *names);
/* A statement about the queue has succeeded; the last was to drop it. */
void count_used(struct qdb *db, const char *queue, bool dropped);
void count_served(struct qdb *db, const char *queue, unsigned jobs);
void count_waitq_ended(struct qdb *db, const char *queue, const struct waitq_counts *n);
const struct tally *count_of(const struct qdb *db, const char *queue); /* NULL: nothing happened */
void count_free(struct qdb *db);

/* --- the proxies of a database (registry.c) --- */

void registry_start(void);
/* What a take writes into its leases: our number while the session holds its lock, else 0. */
int32_t registry_stamp(const struct qdb *db);
/* Our lock has been away for so long that others may take us for dead. */
bool registry_was_away(const struct qdb *db);
void registry_adopt(struct qclient *qc); /* writes our number into its leases that lack it */
/* Changes whose leases are: a proxy's, or nobody's (0). */
void registry_own(struct qdb *db, struct pool *pool, const char *const *tokens, int n, int32_t owner);
void registry_free(struct qdb *db);

#endif
