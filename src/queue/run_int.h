/*
 * How a job runs: between the files that take it (runner.c), carry it out and end it.
 */
#ifndef QB_QUEUE_RUN_INT_H
#define QB_QUEUE_RUN_INT_H

#include "pool/task.h"
#include "run_slots.h"

#define REST (5 * USEC_SEC) /* nobody can log in, or the database refuses */

/* run_slot.c. The clock of all slots; and it is looked at them now. */
MUST_CHECK bool slots_clock_start(usec_t (*fn)(void *arg, usec_t now));
void slots_clock_stop(void);
void slots_look(void);
/* Of the places of this process; when one is free again, those who take, or want to, are told. */
bool slots_have_place(void);
void slots_begin_one(void);
void slots_end_one(void);
void slots_make_room(void); /* for those that run, where sessions are kept */
void slot_look_at(struct slot *s, usec_t at);
/* It has jobs, and waits for its turn with them. */
void slot_stand_in_line(struct slot *s);
/* What it was at has ended. If there are more jobs it goes on with these; not if something is wrong. */
void slot_rest(struct slot *s, usec_t time);
void slot_stand_aside(struct slot *s);
void slots_say(struct run_queue *q, const char *why);

/* run_session.c. No more are kept than there are places for, beside those who run. */
void sessions_make_room(unsigned running);
/* Op of the tasks of a job: does what it leaves stay? */
bool session_leaves(void *arg, struct task_session *of);

/* run_job.c. Its turn has come. What runs is to end. */
void job_run(struct slot *s);
void job_stop(struct slot *s);

/* run_heard.c. Ops of the tasks of a job; arg is the slot. Rows: of one job of those that were done together; of the
 * look; of that and of the statements behind it. */
bool heard_start(void *arg, bool engine);
void heard_notice(void *arg, const uint8_t *body, size_t len);
void heard_error(void *arg, const uint8_t *body, size_t len);
void heard_step_tag(void *arg, const uint8_t *body, size_t len);
void heard_batch_row(void *arg, const uint8_t *body, size_t len);
void heard_look_row(void *arg, const uint8_t *body, size_t len);
void heard_step_row(void *arg, const uint8_t *body, size_t len);

/* run_outcome.c. One that was cancelled goes with its lease; of one that is somebody else's by now nothing is known
 * here. */
void outcome_let_go(void *arg, const char *token);
/* Its transaction was committed, in which it ended so; and those of all of a batch. */
void outcome_of_job(struct slot *s, const char *token, enum outcome outcome);
void outcome_of_batch(struct slot *s);
/* It was done, and that is still to be said; what is known of its rows is not. */
void outcome_say_done(struct slot *s);
/* The lease is gone. */
bool outcome_is_of_lease(const struct pg_error *err);
void outcome_failed(struct slot *s, const struct pg_error *err);
/* The answer to DONE or FAIL. */
void outcome_said(struct slot *s, const struct pg_error *err);
/* Its job has been here, at this very attempt, and it could not be said that it had failed: that is said now. */
bool outcome_had_failed(struct slot *s);

/* run_alone.c. A row of the look: the statement, and behind it its values. false: memory. */
MUST_CHECK bool alone_add(struct alone **p, const struct wire_col *col);
void alone_free(struct alone **p);
struct task *alone_submit(struct slot *s, const struct task_ops *ops); /* NULL: memory */

/* run_there.c. What the look says of where it is carried out: a name, and its value. false: memory. */
MUST_CHECK bool there_look(struct there **p, const char *name, const struct wire_col *value);
void there_free(struct there **p);
/* In which pool; NULL: err says why it cannot be. */
struct pool *there_pool(const struct slot *s, struct pg_error *err);
/* Its statements are carried out there. NULL: memory. */
struct task *there_submit(struct slot *s, struct pool *pool, const struct task_ops *ops);

#endif
