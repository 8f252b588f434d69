/*
 * TAKE ... FOR: who reads streams, and waits for events (stream.c).
 */
#ifndef QB_QUEUE_STREAM_H
#define QB_QUEUE_STREAM_H

#include "queue_int.h"

#define SUBSCRIPTION_MAX 63 /* bytes of a name */

/* A delivery was done: "... <subscription> of <stream>". Nobody but who waits for this subscription wants to know. */
#define ENDED_EVENT "of no queue: ended for "

MUST_CHECK bool stream_start(void);
void stream_free(void);
/* May it be said of a stream? */
MUST_CHECK bool stream_takes(const struct qstmt *q, struct pg_error *err);
enum exec_verdict stream_take(struct exec *x, const struct qstmt *q, struct qclient *qc);
/* DONE ... THEN TAKE ... FOR: what it asks for. names: the streams, if the statement names none; or NULL. NULL: x->err. */
struct reader *stream_reader(struct exec *x, const struct qstmt *q, struct qclient *qc, const struct names *names);
void stream_reader_free(struct reader **p);
bool stream_reader_knows(const struct reader *w); /* of which stream */
MUST_CHECK bool stream_reader_of(struct reader *w, const struct names *names); /* false: memory */
/* When those are done: it is taken over. false: it is not. */
MUST_CHECK bool stream_begin_behind_done(struct reader **p, const struct names *names, struct pg_error *err);

#endif
