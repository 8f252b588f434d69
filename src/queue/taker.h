/*
 * Who takes jobs and holds them: the connection of a client (qclient.c), or what the proxy works off by itself. Common
 * to them are the database, the role whose login asks, the ledger of leases, the one statement that is under way, and
 * what its transaction has touched. Whoever asks, waits, leases, renews, finishes and gives back knows takers alone;
 * where an answer goes, and what else is different from kind to kind, say the ops.
 */
#ifndef QB_QUEUE_TAKER_H
#define QB_QUEUE_TAKER_H

#include "base/buf.h"
#include "base/check.h"
#include "base/names.h"
#include "pool/task.h"
#include "qlang/parse.h"

struct taker;
struct qdb;

struct taker_ops {
	const char *kind; /* as the console names it */
	uint64_t (*id)(const struct taker *t);
	const char *(*user)(const struct taker *t);
	const char *(*address)(const struct taker *t); /* where it connects from; NULL: nowhere */
	/* Those that are in force while its statements run. NULL: memory. */
	struct task_settings *(*settings)(const struct taker *t);
	/* The same for a statement that stands for it alone, whose text is read as its own. */
	void (*speaks)(const struct taker *t, struct task_spec *spec);
	usec_t (*statement_timeout)(const struct taker *t); /* 0: none; or NULL */
	/* Could it work on a job, as far as is known now? */
	bool (*is_there)(const struct taker *t);
	/* ... or would it be sent away with the job in its hands, as the process is about to end? */
	bool (*is_to_leave)(const struct taker *t);
	/* How what it waits for ends, exactly once, unless it has left before. The contents of a are taken. */
	void (*deliver)(struct taker *t, struct answer *a); /* with jobs, which it holds now */
	void (*answer)(struct taker *t, struct answer *a);
	/* Some rows of it go before, as client_answer_part(). Or NULL: all of it is wanted at once. */
	enum part_taken (*part)(struct taker *t, struct answer *a);
	uint64_t (*sent)(const struct taker *t); /* with part(): so many bytes it has read so far */
	void (*fail)(struct taker *t, const struct pg_error *err);
	/* It is to go elsewhere, behind the answer that follows. */
	void (*send_away)(struct taker *t);
	/* It has got leases that it gives back if its transaction is rolled back. Or NULL. */
	void (*leased)(struct taker *t);
	/* It is not to work on the job any more, as far as a renewal has said so, or since it was held for as long as it
	 * could be. Its leases are left alone. Or NULL: it finds out by what it says of the job next. */
	void (*lost)(struct taker *t, const char *token);
	/* The process is about to end, or its settings are others. Or NULL. */
	void (*changed)(struct taker *t);
	/* It is parked from now on, for as long as it takes. Or NULL. */
	void (*waits)(struct taker *t);
	/* It was parked, so long. Or NULL. */
	void (*waited)(struct taker *t, usec_t time);
	/* It is parked, and its connection may be taken for dead. Or NULL. */
	void (*heartbeat)(struct taker *t);
};

#define TAKER_MAGIC 0x51c10047u
#define CHECK_TAKER(t) INVARIANT_IS(t, TAKER_MAGIC, "nobody who takes jobs, or one that has left")

struct taker {
	uint32_t magic;
	const struct taker_ops *ops;
	struct qdb *db;
	struct pool *pool;
	struct lease *leases, *by_token;
	unsigned n_leases, n_cancelled;
	unsigned answers;        /* with leases, that it was given; the last one may be on its way */
	struct park *park;       /* what it waits for; or NULL */
	struct request *request; /* its statement on the merged path; or NULL */
	struct wakes *wakes;     /* queues that the transaction under way has touched */
	struct counted *counted; /* ... what it has done there (count.c) */
	struct buf ended;        /* jobs that end when that commits (await.c) */
	uint64_t scans;          /* its role has looked for orphans up to this scan of the registry */
	uint64_t consumer;       /* its name, where it may be the only one; 0: none yet */
	struct names consumes;   /* that it has asked for so: queues and its name, as a token */
	struct taker *prev, *next;      /* all of them */
	char took[QSTMT_QUEUE_MAX + 1]; /* the last queue that it took from */
};

void taker_begin(struct taker *t, const struct taker_ops *ops, struct qdb *db, struct pool *pool);
void taker_end(struct taker *t); /* it holds nothing, and waits for nothing any more */
struct taker *takers(void);      /* all of them */
void takers_changed(void);       /* tells them */

#endif
