/*
 * TAKE ... FOR: who reads streams, and waits for events (stream.c).
 */
#ifndef QB_QUEUE_STREAM_H
#define QB_QUEUE_STREAM_H

#include "queue_int.h"

#define SUBSCRIPTION_MAX 63 /* bytes of a name */

MUST_CHECK bool stream_start(void);
void stream_free(void);
/* May it be said of a stream? */
MUST_CHECK bool stream_takes(const struct qstmt *q, struct pg_error *err);
enum exec_verdict stream_take(struct exec *x, const struct qstmt *q, struct qclient *qc);

#endif
