/*
 * Who takes jobs and holds them: the connection of a client (qclient.c), or what the proxy works off by itself. Common
 * to them are the database, the role whose login asks, and the ledger of leases. Whoever keeps leases, renews them and
 * gives them back knows takers alone; what kind one is of say its ops.
 */
#ifndef QB_QUEUE_TAKER_H
#define QB_QUEUE_TAKER_H

#include <stdint.h>

#include "base/check.h"
#include "qlang/parse.h"

struct taker;
struct qdb;
struct pool;

struct taker_ops {
	const char *kind; /* as the console names it */
	uint64_t (*id)(const struct taker *t);
	const char *(*user)(const struct taker *t);
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
	unsigned answers; /* with leases, that it was given; the last one may be on its way */
	uint64_t scans;   /* its role has looked for orphans up to this scan of the registry */
	struct taker *prev, *next;       /* all of them */
	char took[QSTMT_QUEUE_MAX + 1]; /* the last queue that it took from */
};

void taker_begin(struct taker *t, const struct taker_ops *ops, struct qdb *db, struct pool *pool);
void taker_end(struct taker *t); /* it holds nothing any more */
struct taker *takers(void);      /* all of them */

#endif
