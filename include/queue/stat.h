/*
 * Snapshots of the queue for the console: SHOW QUEUES, WAITERS, LEASES, RUNNING. Strings are valid during the
 * call of fn.
 */
#ifndef QB_QUEUE_STAT_H
#define QB_QUEUE_STAT_H

#include "base/hist.h"
#include "base/util.h"
#include "qlang/parse.h"

/* One that is waited for, or was used since the start. */
struct queue_stat_queue {
	const char *database, *queue;
	const char *system; /* state of the LISTEN session: "up", "connecting", "down: why", "off" */
	const char *others; /* proxies of the database: "none", "asleep", "awake", "unknown" */
	bool asleep;        /* they need not tell us */
	unsigned waiters;
	unsigned fetching;   /* of them, asking the database now */
	int64_t next_due_us; /* from now; -1: nothing known to become due */
	/* since the start; served: jobs given to clients; handed: of these, leased by the push itself */
	uint64_t wakes, fetches, handed, served;
	uint64_t failed; /* attempts that FAIL reported through this proxy, since the start */
	uint64_t used;   /* statements about it, and jobs that were given */
};

struct queue_stat_waiter {
	const char *kind; /* "client", or "worker": the proxy itself, without an id */
	uint64_t client_id;
	const char *database, *user, *queues; /* names, separated by ", " */
	const char *state; /* "parked" or "asking"; "awaiting": the end of a job */
	int limit;
	usec_t waited_us;
	usec_t left_us;
	int32_t rank;
	const char *worker; /* what TAKE ... AS has said; NULL: nothing */
	const char *address; /* NULL: it has none */
	/* of those it waits for a job; of who waits for something else there are none */
	const char (*takes_from)[QSTMT_QUEUE_MAX + 1];
	int n_takes_from;
};

struct queue_stat_lease {
	const char *kind; /* as in queue_stat_waiter */
	uint64_t client_id;
	const char *database, *user, *queue;
	const char *address; /* NULL: it has none */
	const char *token;
	int64_t job_id;
	const char *policy; /* "auto", "release", "keep" */
	usec_t held_us;
	bool in_transaction; /* given back if its transaction rolls back */
};

/* A job that the proxy carries out itself. */
struct queue_stat_run {
	const char *database, *user, *queue;
	const char *job;   /* number of the queue and of the job: "3-17" */
	const char *state; /* "waiting" for its turn, "running", "ending", "failing": that is being said */
	int attempt;
	int32_t pid; /* of the server process; 0: none yet */
	usec_t running_us; /* 0: it has not begun */
	int64_t left_us;   /* of the queue's timeout; -1: it has none, or has not begun */
	const char *runs_in; /* the database, as the proxy calls it */
	int64_t before; /* jobs that were carried out in its session before it; -1: that is not kept */
};

/* Jobs of a queue that the proxy carries out itself: now, and since the proxy heard of the queue. */
struct queue_stat_runs {
	const char *database, *queue;
	unsigned running;
	uint64_t done, failed, again; /* again: by queue.retry(), whether the attempt counts or not */
	usec_t ran;                   /* all of them together */
};

/* How full a queue is, or a stream, or how far a reader of it has come, as of the last look at the database. Counts
 * end at 10 000. From GAUGE_EVENTS on: of streams, and of subscriptions, what is to come. */
enum {
	GAUGE_READY,
	GAUGE_LATER,
	GAUGE_LEASED,
	GAUGE_BLOCKED,
	GAUGE_DEAD,
	GAUGE_OLDEST_MS,
	GAUGE_EVENTS,
	GAUGE_BYTES,
	GAUGE_AGE_MS, /* of the oldest of these events */
	GAUGE_TOTAL,  /* that were ever pushed; or delivered */
	GAUGE_OUT,
	GAUGE_ATTEMPT,
	GAUGE_LOST,
	GAUGE_RETRIES,
	GAUGE_GIVEN_UP, /* dead events */
	GAUGE_FIGURES
};
struct queue_stat_gauge {
	const char *database, *queue, *subscription; /* or NULL */
	int64_t figure[GAUGE_FIGURES]; /* -1: none */
};

/* What was done by QUEUE statements since the start. */
struct queue_stat_verb {
	const char *verb; /* as the table has it: upper case */
	uint64_t statements; /* that succeeded */
	uint64_t jobs;       /* that they were about: rows given, pushed, finished */
	uint64_t failures;   /* statements that got an error */
};

/* Begins to ask the databases, when nobody has looked for a while: the first answer may be empty. */
void queue_stat_each_gauge(void (*fn)(const struct queue_stat_gauge *st, void *arg), void *arg);
void queue_stat_each_verb(void (*fn)(const struct queue_stat_verb *st, void *arg), void *arg);
/* Attempts that FAIL reported through this proxy; queues without one are missing. */
void queue_stat_each_failed(
	void (*fn)(const char *database, const char *queue, uint64_t failed, void *arg), void *arg);
/* Schedules of a database, as far as this proxy has fired them. */
struct queue_stat_schedules {
	const char *database;
	uint64_t jobs;   /* pushed */
	uint64_t failed; /* tries that failed */
	uint64_t alone;  /* times that an owner of something due had no login here */
};
void queue_stat_each_schedules(void (*fn)(const struct queue_stat_schedules *st, void *arg), void *arg);

struct queue_stat_maintenance {
	const char *database;
	uint64_t deleted;  /* jobs, since the start */
	uint64_t lost;     /* tables of streams that retain_max emptied before everybody had seen them */
	int64_t left_out;  /* queues that nobody was there for, in the last round */
	usec_t age_us;     /* since the last round has ended; 0: there is none */
};
void queue_stat_each_maintenance(void (*fn)(const struct queue_stat_maintenance *st, void *arg), void *arg);
/* How long it took, in microseconds, until a job of which the proxy had heard was given to a client that waited. */
void queue_stat_each_delivery(
	void (*fn)(const char *database, const struct hist *h, void *arg), void *arg);
/* How many statements of clients there were in each merged one. */
const struct hist *queue_stat_batches(void);
size_t queue_stat_answers(void); /* bytes that are kept of answers (queue_answers_max) */
void queue_stat_each_queue(void (*fn)(const struct queue_stat_queue *st, void *arg), void *arg);
void queue_stat_each_waiter(void (*fn)(const struct queue_stat_waiter *st, void *arg), void *arg);
void queue_stat_each_lease(void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg);
void queue_stat_each_run(void (*fn)(const struct queue_stat_run *st, void *arg), void *arg);
void queue_stat_each_runs(void (*fn)(const struct queue_stat_runs *st, void *arg), void *arg);

#endif
