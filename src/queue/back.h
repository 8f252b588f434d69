/*
 * Giving jobs back through the pool of their role (back.c).
 */
#ifndef QB_QUEUE_BACK_H
#define QB_QUEUE_BACK_H

#include "base/names.h"
#include "queue_int.h"
#include "mark.h"

/* tokens: array of n texts; none of them lies below the place. error NULL: not delivered; empty: a goodbye;
 * neither is counted. Those before an empty token were not delivered, whatever the error says. */
void give_back(struct qdb *db, struct pool *pool, const char *const *tokens, int n, int64_t place,
	const char *error);
/* Is this token being given back? */
bool back_has(const struct qdb *db, const char *token);
/* Of a statement whose answer was lost: what it has leased, if it was carried out, is looked for and given back, as
 * soon as there is a connection, and until its process is gone. More than one may say the same. */
struct lost_jobs {
	const char (*names)[QSTMT_QUEUE_MAX + 1]; /* of the queues */
	int n_names;
	const char *lease; /* of the statement; NULL: that of the queue */
	int64_t seed;      /* merge_seed(); 0: none, and nothing can be found */
	int32_t pid;       /* task_lost_in() */
	usec_t sent_at;    /* when a server got the statement */
	int handed;        /* a push that hands over: to so many at most; 0: a take */
};
void back_lost(struct qdb *db, struct pool *pool, const struct lost_jobs *lost);
MUST_CHECK bool back_start(void);
void back_stop(void);
/* The wait queues of these names, here and elsewhere. mark: as for touch_from. */
void wake_queues(struct qdb *db, const struct names *names, struct head_mark mark);

#endif
