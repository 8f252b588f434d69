/*
 * Merging: requests of many clients that differ only in their values become one statement and one
 * commit. While one batch of a group is under way the next one gathers; there is no artificial delay.
 * A batch that fails is cut in two until the guilty request is alone.
 */
#ifndef QB_QUEUE_MERGE_H
#define QB_QUEUE_MERGE_H

#include "base/buf.h"
#include "pool/task.h"

#define MERGE_ITEMS_MAX 1000
#define MERGE_BYTES_MAX (4 * 1024 * 1024)
#define MERGE_NUMBER_MAX 24
#define MERGE_COLUMNS_MAX 24

struct merge_item;
struct merge_own;

/* A statement of which nobody knows what became: its connection was lost. */
struct merge_lost {
	int64_t seed;   /* its merge_seed(), or 0 */
	int32_t pid;    /* task_lost_in() */
	usec_t sent_at; /* when a server got it */
};

struct merge_ops {
	/* A row that belongs to the item: body of DataRow. Borrowed. len 0: no memory for it. */
	void (*row)(void *arg, const uint8_t *body, size_t len);
	/* The row that it has just got stands for something that was handed over to another, or that is
	 * nobody's news. Or NULL. */
	void (*handed)(void *arg);
	/* A row that belongs to all (merge_spec.is_common). first: how many rows those before it in the batch may get. */
	void (*common)(void *arg, const uint8_t *body, size_t len, int first);
	/* The batch failed after rows had come, and is sent again in pieces: forget them. */
	void (*again)(void *arg);
	/* It was given nothing, and this one of its kind is the first that gathers behind it: is it to ask with
	 * that, before it, in place of ending? Or NULL. */
	bool (*asks_on)(void *arg, const void *behind);
	/* Before the end, which is an error of the connection. Or NULL. */
	void (*lost)(void *arg, const struct merge_lost *lost);
	/* The end; the item is gone afterwards. err NULL: success. */
	void (*done)(void *arg, const struct pg_error *err);
};

/* A statement as it is about to be sent. What fill() leaves alone stays as the spec has it. */
struct merge_statement {
	struct buf text; /* or empty: the spec's sql */
	struct pstmt *known; /* task_spec.text, in place of it; or NULL */
	bool direct;     /* it may be refused with an undefined function, and then goes as the spec has it */
	const uint32_t *oids; /* static */
	int n_params;
	struct buf bytes[5]; /* for values of params; they last until it is sent */
	const struct task_settings *settings; /* in force while it runs */
	const struct buf *values; /* of the batch, each as int32 length and bytes; valid during fill() */
	int n_values;
	int n_formats;
	uint64_t kind; /* task_spec.kind */
	uint8_t together; /* task_spec.together */
	/* In: it is of one request, and is to run on a connection of the engine's own. */
	bool may_be_lone;
	bool lone;    /* it is a plain statement, which gives no row, or NULL, when it has done nothing (lone.h) */
	bool risky;   /* any refusal may be the fault of the shape: without it, it goes as the spec has it */
	void *flight; /* for row() and end(); NULL: they are not called */
	struct batch *batch; /* for merge_refill() */
	/* What is not used of these is not set. */
	int16_t formats[MERGE_COLUMNS_MAX];
	struct bind_param params[16];
	char small[5][MERGE_NUMBER_MAX];
};

/* What makes another statement of a batch that means the same. */
struct merge_shape {
	void (*fill)(void *arg, struct merge_statement *st);
	/* Each row, before its item gets it, who may be given another one (valid until the next). true:
	 * somebody else has got what it stands for, or nobody is to be told of it. */
	bool (*row)(void *flight, const uint8_t **body, size_t *len);
	void (*end)(void *flight, const struct pg_error *err);      /* frees flight; err NULL: success */
	void (*lost)(void *flight, const struct merge_lost *lost); /* as merge_ops.lost, before end(); or NULL */
	void (*sent)(void *flight); /* a server has it now; or NULL */
	void (*refused)(void *arg);
	void (*refused_lone)(void *arg); /* its plain statement; or NULL: it has none */
	void (*free)(void *arg);
	bool without_gone; /* a table that is gone (42P01) is none that it is about: once more it goes without that */
};

/* The statement of a group; its parameter `array_param` is the text[] of all values of the batch,
 * `count_param` (or -1) the sum of what the items want. */
struct merge_spec {
	const char *sql; /* static */
	const uint32_t *oids; /* static */
	int n_params, array_param, count_param;
	int seed_param; /* its merge_seed(), where it goes as it is here; 0: none */
	const struct bind_param *params; /* the others; equal for all of a group (they are in its key) */
	int n_formats;
	const int16_t *formats;
	struct task_settings *settings; /* in force while it runs; taken over by merge_add() */
	const struct merge_shape *shape; /* or NULL */
	void *shape_arg;                 /* taken over by merge_add() */
	uint64_t kind;      /* task_spec.kind */
	bool one_at_a_time; /* whatever queue_batches says: the order of the items matters */
	bool in_order;      /* it matters even when one takes long: nothing goes beside it */
	bool split; /* an error may be the fault of one item */
	const char *bounded; /* its rows are kept until its end (bound.h): what may be done when they are too many; or NULL */
	/* It does not wait long for locks (55P03), and who has to is alone and waits with this one, beside the
	 * batches; static; or NULL */
	const char *patient_sql;
	struct merge_own *own; /* or NULL; taken over by merge_add(). sql, oids, array_param, count_param and shape are not. */
	bool (*is_common)(const uint8_t *body, size_t len); /* or NULL */
};

/* A statement that is not one of few: SQL of a client's stands in it. It runs on no connection of the engine's own, is
 * not kept prepared, and its last parameter is an array: how many are wanted, merge_seed(), and what is in `array`. */
struct merge_own {
	char *sql;      /* owned */
	uint32_t *oids; /* owned */
	struct buf array; /* elements, each as int32 length and bytes */
	int n_array;
	enum task_leaves leaves;
};
struct merge_own *merge_own_new(void); /* NULL: memory */
void merge_own_free(struct merge_own **p);

void merge_spec_free(struct merge_spec *spec); /* what merge_add() has not taken */
/* Its parameters with their bytes behind them, and how much memory that is. */
size_t merge_spec_size(const struct merge_spec *spec);
void merge_spec_put(const struct merge_spec *spec, struct bind_param *p);

/*
 * Adds a request to the group with this key (which must hold everything that makes statements
 * differ, and begin with the pool). values: elements of the array, each as int32 length and bytes; their buffer is taken.
 * (Without an array n_values is a number that the shape understands, and values is empty.)
 * n: rows that the item may get. Never calls back before it returns. NULL: memory.
 */
MUST_CHECK struct merge_item *merge_add(struct pool *pool, const struct buf *key, struct merge_spec *spec,
	struct buf *values, int n_values, int n, const struct merge_ops *ops, void *arg);
/* true: no server has it, it is forgotten, and done() is not called. false: it is under way; rows go to
 * others if possible, and done() comes. */
bool merge_drop(struct merge_item *i);
bool merge_is_running(const struct merge_item *i); /* a server has it */
usec_t merge_sent_at(const struct merge_item *i);  /* since when; 0: none has it */
usec_t merge_batch_sent_at(const struct batch *b);
/* The statement of the item is to be stopped. If it is, all of its batch fail with 57P03, and may ask again. */
void merge_cancel(struct merge_item *i);
/* A random number of this sending of the batch, which tells what it has done from what others have; during fill(). */
int64_t merge_seed(struct batch *b);
/* What its shape has made of it is not right any more: fill() is called again before it is sent, and end() before
 * that. false: a server has it. */
MUST_CHECK bool merge_refill(struct batch *b);

/* Others' transactions were in its way, and nothing is left of it: what is a transaction of its own goes once more. tries:
 * how often it has already. */
bool merge_may_repeat(const struct pg_error *err, int tries);

MUST_CHECK bool merge_start(void);
void merge_stop(void);

#endif
