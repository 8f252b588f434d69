/*
 * Lone statements: PUSH, TAKE and DONE of one job as plain statements, on connections of the engine's own. Their texts
 * are the database's (sql/functions/lone.sql); each is refused there when it is not right any more, and asked for anew.
 * Knows nothing of who sends them.
 */
#ifndef QB_QUEUE_LONE_H
#define QB_QUEUE_LONE_H

#include "head_int.h"
#include "pool/task.h"

enum lone_verb { LONE_PUSH, LONE_TAKE, LONE_DONE, LONE_VERBS };

/* NULL: there is none, or it is not known yet. It is asked for when it would have been used some times. */
const char *lone_text(struct head *l, struct pool *pool, enum lone_verb verb);
const uint32_t *lone_oids(enum lone_verb verb, int *n_params);
void lone_forget(struct head *l);  /* they are of another queue */
void lone_refused(struct head *l); /* the database has others now */
void lone_free(struct head *l);

#endif
