/*
 * The proxies of a database, and whose leases are (registry.c).
 */
#ifndef QB_QUEUE_REGISTRY_H
#define QB_QUEUE_REGISTRY_H

#include "queue_int.h"

void registry_start(void);
/* What a take writes into its leases: our number while the session holds its lock, else 0. */
int32_t registry_stamp(const struct qdb *db);
int32_t registry_number(struct qdb *db); /* the same, whether or not it does; 0: memory */
/* Our lock has been away for so long that others may take us for dead. */
bool registry_was_away(const struct qdb *db);
void registry_adopt(struct taker *t); /* writes our number into its leases that lack it */
/* Changes whose leases are: a proxy's, or nobody's (0). */
void registry_own(struct qdb *db, struct pool *pool, const char *const *tokens, int n, int32_t owner);
void registry_free(struct qdb *db);

#endif
