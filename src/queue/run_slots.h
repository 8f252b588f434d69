/*
 * A queue whose jobs run by themselves, and its slots: between run_queues.c, which knows what queues there are, and
 * runner.c, under which their jobs run.
 */
#ifndef QB_QUEUE_RUN_SLOTS_H
#define QB_QUEUE_RUN_SLOTS_H

#include "wire/error.h"
#include "qlang/parse.h"
#include "run_batch.h"
#include "run_sql.h"
#include "run_told.h"
#include "token.h"
#include "worker.h"

enum slot_state {
	SLOT_RESTS, /* until its time has come */
	SLOT_ASIDE, /* until that, or a job of this process ends: there is no place */
	SLOT_TAKES,
	SLOT_HAS, /* jobs, and waits for its turn */
	SLOT_RUNS,
	SLOT_FAILS, /* says so; or that it is done, where the job did not say so itself */
};

/* What is kept of its outcome. */
enum keep { KEEP_RESULT, KEEP_ALWAYS, KEEP_ERROR, KEEP_NONE };

/* A statement that is not part of the transaction of its DONE, with its values. */
struct alone {
	bool sent;
	char *sql;
	char name[64]; /* of its session, by which it is found if we are gone (queue._end_orphans) */
	int n;
	struct run_value values[VALUES_MAX];
};

struct pool;
struct task;
struct task_ops;

/* Where a job is carried out that has named another database (run_there.c). */
struct there {
	bool sent;
	char database[64]; /* the entry of the proxy */
	char session[64];  /* its application_name */
};

struct slot {
	struct slot *prev, *next;
	struct run_queue *queue;
	struct worker *worker; /* or NULL */
	struct pool *pool;     /* that its worker is of */
	struct task *task;
	enum slot_state state;
	bool started; /* a server has got the task */
	bool lost;    /* the job is not its own any more */
	enum keep keep;
	bool late;    /* it ran longer than it may */
	bool plain;   /* what became of it is said in ASCII */
	bool leaves;  /* when the job has ended */
	enum outcome outcome;
	usec_t at; /* SLOT_RESTS, SLOT_ASIDE, SLOT_HAS: until then; SLOT_RUNS: it may run so long */
	uint64_t turn;
	int attempt;
	usec_t timeout;        /* of its job; 0: none */
	usec_t ends_at;        /* it was told to end, and is given up then; 0: it was not */
	usec_t began;          /* that is when a server has got it; 0: none has */
	char token[TOKEN_MAX]; /* of the job that it carries out by itself; or "" */
	struct run_batch batch; /* the other ones that it has */
	struct alone *alone;   /* its job is one; or NULL */
	struct run_sql *script; /* its job is one of SQL; or NULL */
	struct there *there;   /* its job is not carried out here; or NULL */
	struct run_told told;
	char error[sizeof(struct pg_error) + sizeof(struct run_told)];
};

/* An attempt that has failed, and that could not be said: its server fell with it. */
struct fallen {
	char job[TOKEN_MAX]; /* or "" */
	int attempt;
};
#define FALLEN_MAX 16 /* of a queue: the last ones */

/* What a job leaves in its session is there for the next one of its queue (run_session.c). */
struct run_session {
	uint64_t key;  /* task_spec.session; 0: nothing stays */
	unsigned jobs; /* for so many; 0: any number */
	usec_t time;   /* so long; 0: any time */
	char of[512];  /* changes with whatever makes it another one's */
};

struct run_queue {
	struct run_queue *prev, *next;
	struct qdb *db;
	struct slot *slots;
	int n_slots;
	bool found; /* by the last look */
	bool super;
	bool sql; /* run = sql */
	enum qpayload payload;
	usec_t timeout; /* 0: none */
	int batch;      /* so many jobs are done together */
	usec_t each_until; /* not until then, as the server was lost with some that were */
	struct fallen fallen[FALLEN_MAX];
	unsigned n_fallen; /* since ever */
	struct run_session session;
	usec_t said_at;
	uint64_t done, failed, again; /* attempts that have ended */
	usec_t ran;
	char name[QSTMT_QUEUE_MAX + 1];
	char owner[64];
};

struct runs {
	struct run_queue *queues;
	unsigned asker;
	bool asks, again, failed;
};

/* As the catalogue says: whose session it is, for how many jobs, for how long. What is kept for others ends. */
void session_of_queue(struct run_queue *q, const struct wire_col *of, const struct wire_col *jobs, const struct wire_col *ms);
void session_ends(struct run_queue *q);

/* As many as this process may have; those that were to leave stay. */
void slots_add(struct run_queue *q);
/* Those that run end first. */
void slots_end(struct run_queue *q);

#endif
