/*
 * The other processes of this program, each a proxy of its own: what is pushed here they hear without a
 * notification, and what one that has died held is given back at once (siblings.c).
 */
#ifndef QB_QUEUE_SIBLINGS_H
#define QB_QUEUE_SIBLINGS_H

#include "queue_int.h"

/* Who knows whose leases are. */
struct siblings_ops {
	int32_t (*number)(struct qdb *db, int process, int32_t id); /* that of a process; ours; 0: it is not drawn */
	void (*gone)(struct qdb *db, int process);
};
void siblings_start(const struct siblings_ops *ops);
/* A queue has something new; NULL: any may have. */
void siblings_tell(const struct qdb *db, const char *queue);
/* The number of our leases in a database, which was drawn just now: they say theirs. */
void siblings_number(const struct qdb *db, int32_t id);

#endif
