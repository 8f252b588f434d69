/*
 * Heads: what is known of a queue of a database that makes its statements cheap. Its number, so that
 * the functions made for it are called directly; and where its head is, so that a take need not
 * begin at the front (under a transaction that is held open, everything that was taken since is
 * still there to be read).
 *
 * A low mark is a promise: below this position nothing of this priority is ready. Positions are drawn
 * in order, so a job that is pushed later lies above every position that a take, or a job that was
 * handed over, has told until now.
 * Whoever makes jobs ready notes the highest of these before (head_now), and lowers the low marks to it
 * when it is committed (head_lower); who changes jobs that stay where they are notes the lowest low mark
 * instead (head_lowest); who gives jobs back to their places lowers them to these. A
 * notification says nothing of places: it lowers them to where they were a moment ago, as most
 * transactions are short, and to the ground as soon as that can be afforded (head_event). What cannot
 * say so and may not wait lowers them to the ground. Now and then a take begins at the front
 * whatever the low marks say.
 */
#ifndef QB_QUEUE_HEAD_H
#define QB_QUEUE_HEAD_H

#include "mark.h"
#include "merge.h"
#include "queue_int.h"

struct head_mark head_now(struct qdb *db, const char *queue);
struct head_mark head_lowest(struct qdb *db, const char *queue); /* below it nothing is ready now */
struct head_mark head_past(struct qdb *db, const char *queue); /* some 100 ms ago */
struct head_mark head_now_number(struct qdb *db, int64_t number); /* by the number in tokens */
/* What task_spec.kind is of a verb (a letter) on a queue. */
uint64_t head_kind(char verb, const char *queue);
int64_t head_number(struct qdb *db, const char *queue); /* of the queue; 0: not known */
/* The number of a stream that has these payloads, which its deliveries tell; 0: not known. */
int64_t head_stream(struct qdb *db, const char *stream, enum qpayload payload);
void head_stream_is(struct qdb *db, const char *stream, int64_t number, enum qpayload payload);
struct tally *head_tally(struct qdb *db, int64_t number); /* count.c; NULL: it is not known */
void head_lower(struct qdb *db, const char *queue, struct head_mark to);
void head_lower_number(struct qdb *db, int64_t number, struct head_mark to);
/* This place was there: what is pushed from now on lies above. No low mark is moved. */
void head_saw(struct qdb *db, const char *queue, int64_t number, int64_t place);
/* Another session has committed something. */
void head_event(struct qdb *db, const char *queue);
/* That may be meant by it, whatever it is in another encoding. */
void heads_event_spelt(struct qdb *db, const char *queue);
/* To the ground: of one queue with the next take, of all not more often than can be afforded. */
void head_suspect(struct qdb *db, const char *queue);
void head_suspect_all(struct qdb *db);
/* Nobody has told us for a while: all of them, at once. */
void heads_to_ground(struct qdb *db);
/* When the next take may begin at the front that somebody waits for; USEC_NEVER: nobody does. */
usec_t head_look_at(struct qdb *db, const char *queue);
void heads_free(struct qdb *db);

/* What its payloads are. false: not known, and *ret is left alone. */
MUST_CHECK bool head_payload(struct qdb *db, const char *queue, enum qpayload *ret);
/* It was asked about a moment ago, and is not there (or nobody could tell). */
bool head_is_absent(struct qdb *db, const char *queue);
/* What was asked at that time has ended (err: in vain): does the client still want to know, or has its statement
 * ended? AGAIN: the question was not its own, and it asks once more. */
enum head_answered { HEAD_ANSWERED, HEAD_AGAIN, HEAD_NOBODY };
typedef enum head_answered head_answered_fn(struct qclient *qc, const struct pg_error *err, usec_t asked_at);
/* Asks what is not known of these queues; the client is executed again when that is known, or cannot be known
 * (qc->asked). false: memory. */
MUST_CHECK bool heads_ask(struct qclient *qc, const char (*queues)[QSTMT_QUEUE_MAX + 1], int n,
	head_answered_fn *answered);
/* The same for the queue of a job; its payload will be qc->job_payload. */
MUST_CHECK bool heads_ask_job(struct qclient *qc, const char *job, head_answered_fn *answered);
void heads_forget_client(struct qclient *qc);
/* It was dropped, and perhaps made anew. */
void head_forget(struct qdb *db, const char *queue);
void heads_forget(struct qdb *db); /* all of them */
/* Is this the refusal of payloads of another type (queue._check_payload)? Which are they? */
MUST_CHECK bool head_is_refusal(const struct pg_error *err, enum qpayload *ret);
/* Of a statement that has rows with payloads: the same, but the function had read what the queue was before it was made
 * anew, and then found the other table. What they are now is not said. */
MUST_CHECK bool head_is_torn(const struct pg_error *err);

/* For merge_spec.shape_arg; NULL without memory, then the statement stays as it is. */
struct shape *shape_take(
	struct qdb *db, struct pool *pool, const char *queue, enum qpayload payload);
/* Pushes of jobs that are ready at once: of nothing but payloads and a priority; with options, in the parameters of
 * queue._push; those of queue._push_keys. */
enum shape_push { SHAPE_PLAIN, SHAPE_OPTIONS, SHAPE_KEYED };
struct shape *shape_push(struct qdb *db, struct pool *pool, const char *queue, enum shape_push push);
struct shape *shape_done(struct qdb *db, struct pool *pool, int number);
extern const struct merge_shape head_take, head_push, head_done, head_done_results;

#endif
