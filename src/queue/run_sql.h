/*
 * A job of SQL in a transaction: its statements one by one, and its DONE (run_sql.c).
 */
#ifndef QB_QUEUE_RUN_SQL_H
#define QB_QUEUE_RUN_SQL_H

#include "pool/intercept.h"
#include "run_rows.h"

#define VALUES_MAX 20 /* queue._check_params() */

struct run_value {
	char *text; /* or NULL */
	size_t len;
};

enum run_step {
	STEP_LOOK,       /* BEGIN, and what the job is */
	STEP_BEFORE,     /* elsewhere (run_there.c): an earlier attempt is ended */
	STEP_BEGIN,      /* elsewhere */
	STEP_STATEMENTS, /* one after the other */
	STEP_DONE,       /* and COMMIT */
	STEP_OVER,       /* ROLLBACK, or the COMMIT of what is no such job */
	STEP_ALONE,      /* its one statement, in no transaction of ours */
};

struct run_sql {
	enum run_step step;
	bool is_sql;    /* the look says so */
	bool is_handler; /* ... or that it has one by now, which was not called */
	bool commits;   /* the last step is to */
	bool failed;    /* err: with the first error */
	bool in_vain;   /* the look refuses what its payload says: no other attempt will do better; or its effect
	                 * stays, and would come again with it */
	char *sql;
	size_t pos;     /* of the statement that follows */
	int statement;  /* the one that is carried out, from 1 on */
	char tag[64];
	char began[32]; /* the time of the transaction, as queue._run_end() compares it */
	int n;
	struct run_value values[VALUES_MAX];
	struct run_rows rows;
	struct pg_error err;
};

struct slot;
struct task;
struct task_ops;

/* The values of the look (CALL_RUN_JOB). as_sql: a handler is not called by it. Borrowed from the slot. */
#define LOOK_PARAMS 4
void look_params(const struct slot *s, bool as_sql, struct bind_param ret[LOOK_PARAMS]);

struct run_sql *run_sql_new(void); /* NULL without memory */
void run_sql_free(struct run_sql **p);
/* What the look says of the job: a name, and its value. false: memory. */
MUST_CHECK bool run_sql_look(struct run_sql *r, const char *name, const struct wire_col *value);
/* What its statements say: the ops of its task (arg is the slot), but for the rows of the look. */
void run_sql_row(void *arg, const uint8_t *body, size_t len);
void run_sql_columns(void *arg, const uint8_t *body, size_t len);
void run_sql_tag(void *arg, const uint8_t *body, size_t len);
void run_sql_next(void *arg, char tx, const struct pg_error *err);
/* Its one statement, which is sent by itself: rows may come. */
void run_sql_alone(struct run_sql *r);
/* It was not carried out in the transaction of its DONE: that is said now, with its outcome. NULL: memory. */
struct task *run_sql_submit_done(struct slot *s, const struct task_ops *ops);

#endif
