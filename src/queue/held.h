/*
 * Who holds back vacuum (held.c).
 */
#ifndef QB_QUEUE_HELD_H
#define QB_QUEUE_HELD_H

struct qdb;

void held_start(void);
void held_free(struct qdb *db);

#endif
