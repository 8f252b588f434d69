/*
 * TAKE and POP: their arguments (take_args.c), their beginning (take.c, then.c), their wait (wait.c).
 */
#ifndef QB_QUEUE_TAKE_H
#define QB_QUEUE_TAKE_H

#include "base/names.h"
#include "queue_int.h"

struct take_args {
	int n_queues;
	char (*queues)[QSTMT_QUEUE_MAX + 1]; /* owned */
	int limit;
	int32_t rank; /* among those who wait: higher ones are served first */
	usec_t wait; /* 0: none */
	usec_t since; /* that it has been waiting; 0: now */
	char *lease; /* interval text or NULL; owned */
	char *as;    /* or NULL; owned */
	usec_t hold; /* 0: not held; else the longest time, and lease is that of queue_hold_lease */
	usec_t span; /* with hold: lease as a number */
	bool pop;
	bool grouped; /* of a group also the jobs behind its first */
	enum qpayload payload;
	struct take_where *where; /* owned; NULL: none */
	bool behind_done; /* what it fails by does not undo that */
	bool bare;      /* payloads and headers are not kept */
	bool described; /* the client was told so: nothing else will do */
};

/* where.c: a condition of the client's own, with its parameters. */
struct take_where;
struct merge_spec;
/* NULL: *err says why. */
MUST_CHECK struct take_where *take_where_new(const struct exec *x, const struct qstmt *q, struct pg_error *err);
void take_where_free(struct take_where **p);
bool take_where_equal(const struct take_where *a, const struct take_where *b);
void take_where_key(const struct take_where *w, struct buf *key);

/* take_args.c */
MUST_CHECK bool take_args_queues(struct take_args *a, const struct names *names); /* false: memory */
/* Held so long at most: leased for a short time, which is renewed. false: memory. */
MUST_CHECK bool take_args_hold(struct take_args *a, usec_t hold);
void take_args_free(struct take_args *a);
bool take_same_text(const char *a, const char *b); /* arguments that need not be given */
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

/* then.c: DONE ... THEN TAKE */
enum exec_verdict then_take(struct exec *x, struct qstmt *q, struct qclient *qc);

/* Takes the contents of args. false: memory. */
MUST_CHECK bool waiter_start(struct taker *t, struct take_args *args, const struct bind_values *bind, int n_columns);

#endif
