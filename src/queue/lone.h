/*
 * Lone statements: PUSH, TAKE and DONE of one job as plain statements, on connections of the engine's own. Their texts
 * are the database's (sql/functions/lone.sql); each is refused there when it is not right any more, and asked for anew.
 * Knows nothing of who sends them.
 */
#ifndef QB_QUEUE_LONE_H
#define QB_QUEUE_LONE_H

#include "head_int.h"
#include "pool/task.h"

struct wire_col;

enum lone_verb { LONE_PUSH, LONE_TAKE, LONE_USUAL, LONE_DONE, LONE_VERBS }; /* USUAL: a take, most of them */

#define LONE_COLUMNS (LONE_VERBS + 1) /* their texts, and whether they need not survive a crash */
bool lone_is_wanted(void); /* there may be connections of the engine's own */
void lone_learn(struct head *l, const struct wire_col *cols); /* without memory there are none */
/* For task_spec.text; stays the head's. NULL: there is none, or it is not known yet: then it is asked for. */
struct pstmt *lone_text(struct head *l, struct pool *pool, enum lone_verb verb, int *n_params);
/* Which of them may share a transaction: those whose commit waits for the disk, and those whose does not (task_spec.together). */
uint8_t lone_together(const struct head *l, enum lone_verb verb);
void lone_forget(struct head *l);  /* they are of another queue */
void lone_refused(struct head *l); /* the database has others now */
void lone_free(struct head *l);

#endif
