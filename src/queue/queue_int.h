/*
 * The private face of the queue module: databases and clients. What is kept of them, and by whom, is in headers of
 * their own.
 *
 *   qdb       a database: is the schema there, its wait queues, its system session
 *   taker     who takes jobs: its leases, whose login asks (taker.h)
 *   qclient   what we keep of a client, which is a taker: what its statement needs to know first
 *   request   a statement on the merged path: the engine runs it and answers (engine.c)
 *   park      one who waits without a server: deadline, signs of life, ends (park.h)
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
#include "base/hist.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "conf/conf.h"
#include "net/loop.h"
#include "pool/intercept.h"
#include "pooler/pooler.h"
#include "pool/task.h"
#include "qlang/parse.h"
#include "qlang/rewrite.h"
#include "asleep.h"
#include "maintain.h"
#include "taker.h"

#define LIMIT_MAX 10000
/* At the entrances: is it one, and not freed? */
#define QDB_MAGIC     0x51db0047u
#define CHECK_QDB(db)     INVARIANT_IS(db, QDB_MAGIC, "no database of queues, or a freed one")
#define CHECK_QCLIENT(qc) CHECK_TAKER(&(qc)->taker)

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

/* News of any queue (wakes.c). */
struct any_news {
	usec_t at; /* the last time that it was acted upon */
	bool due;  /* there was more since */
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
	uint64_t last_waiter;   /* the number of whoever came last (wait.c) */
	struct head *heads;     /* hash by name (head.c) */
	struct head *heads_by_number; /* those whose number is known */
	struct system *system;  /* the LISTEN session; made with the first waiter */
	struct wakes *raised;   /* by the statement under way in it (wakes.c) */
	struct tally *tallies;  /* what happened in each queue (count.c) */
	struct gauge *gauges;   /* how full the queues are (gauge.c) */
	struct asked *gauging;  /* that is being asked now */
	struct clean *idle;     /* queues without a job, as the system session has found */
	usec_t gauges_rest;     /* until then nothing is asked */
	struct figuring *figuring; /* what is being written (figures.c) */
	struct agent *agents;   /* hash by user (agent.c) */
	struct any_news prepared; /* here prepared transactions were committed ... */
	struct any_news heard;    /* ... and elsewhere, as others say: all who wait look */
	struct registry *registry; /* the proxies of this database */
	struct asleep asleep;   /* need they tell us? */
	uint64_t fetches, served;
	uint64_t wakes; /* counts what was announced, of any queue */
	struct hist delivery; /* from the news of a job to its delivery to one who waited */
	struct maintenance maintenance;
	struct held *held; /* who holds back vacuum (held.c) */
	struct schedules *schedules; /* when something is due (schedule.c) */
	struct attendance *attendance; /* queue = 1 (attend.c) */
	bool had_clients; /* who have used QUEUE */
	struct alone *alone; /* queues with a single consumer (consumer.c) */
	struct runs *runs; /* queues that run by themselves (runner.c) */
	struct topic *topics; /* that are published to, hash by name (publish.c) */
	struct streamed *streams; /* that somebody waits for, hash by name (stream.c) */
	struct awaited *awaited; /* jobs that somebody waits for (await.c) */
	uint64_t ended_events;     /* counts jobs that ended through this proxy */
	bool spelt; /* there were names that are no UTF-8 (spelling.h) */
	char name[64];
};

struct qdb *qdb_get(const char *name); /* makes it; NULL without memory */
struct qdb *qdb_find(const char *name); /* NULL: nothing is known of it */
struct qdb *qdb_first(void);
void qdb_free(struct qdb *db); /* itself alone: what hangs on it has been freed */
void qdb_is_spelt(struct qdb *db, const char *name); /* a name of those who take */
/* News under this name may be for who takes under another one. */
bool qdb_may_be_spelt(const struct qdb *db, const char *name);

/* --- clients --- */

struct qclient {
	struct taker taker;
	struct client *client;
	uint64_t answer_end; /* of the client's output, behind the last answer with leases */
	struct deferred *deferred; /* its statement cannot be executed yet (deferred.c); or NULL */
	struct names then_names; /* DONE ... THEN TAKE, between the two: the queues of the jobs that are done */
	bool asking_schema;
	struct question *question; /* about queues, whose answer it waits for (head.c) */
	struct qclient *question_next;
	bool asked; /* that was answered: what is not known now will not be */
	enum qpayload job_payload;
	struct qclient *asking_next;
};

struct qclient *qclient_get(struct client *c); /* makes it; NULL without memory */
struct qclient *qclient_find(struct client *c);
void qclient_free(struct qclient *qc); /* itself alone */

#endif
