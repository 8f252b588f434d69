/*
 * AWAIT: waiting for the end of a job (await.c).
 */
#ifndef QB_QUEUE_AWAIT_H
#define QB_QUEUE_AWAIT_H

#include "queue_int.h"

MUST_CHECK bool await_start(void);
void await_free(void);
enum exec_verdict await_execute(struct exec *x, const struct qstmt *q, struct qclient *qc);
/* A job has ended, or may have: its token, "<queue number>-<id>" or its id. how: known state, or NULL. */
void await_event(struct qdb *db, const char *job, const char *how);
/* Now, or when the transaction under way commits. done: by DONE. */
void await_ended(struct taker *t, const char *job, bool done, bool in_tx);
void await_tx_ended(struct taker *t, bool committed, bool in_part);

#endif
