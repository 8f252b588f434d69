/*
 * Between task.c (one statement of our own), together.c (several in one transaction), task_life.c (what happens to each)
 * and silent.c (a server that does not answer).
 */
#ifndef QB_RELAY_TASK_INT_H
#define QB_RELAY_TASK_INT_H

#include "relay_int.h"

/* silent.c: what was asked about a task; task_life.c forgets it. */
struct silent_look {
	struct task *about; /* NULL: it has ended meanwhile */
	bool waits;
};

/* task_life.c */
void task_free(struct task *t);
void task_end_events(struct task *t, bool committed);
void task_put_values(struct buf *b, const struct task_spec *spec); /* the Bind message behind the names */
/* Bind and Execute of this statement, with what is expected of them. final: of the Execute. false: as server_expect(). */
bool task_put_execute(struct server *s, struct buf *b, const char *name, const struct buf *values,
	const struct dest *dest, bool final);
void task_note_error(struct task *t, const uint8_t *body, size_t len); /* the first one counts */

/* together.c. Those that wait, and may go with it, which is about to be sent to s. */
void together_gather(struct task *leader, struct server *s, usec_t now);
/* false: memory, or the server is closed. What is left to be sent is in b. */
bool together_send(struct task *leader, struct server *s, struct buf *b);

#endif
