/*
 * Jobs that run by themselves: of queues with a handler, or with run = sql (run_queues.c, runner.c).
 */
#ifndef QB_QUEUE_RUNNER_H
#define QB_QUEUE_RUNNER_H

#include "base/util.h"

struct qdb;
struct runs;

MUST_CHECK bool runs_start(void);
/* Before the pools are freed: nobody takes any more. */
void runs_stop(void);
/* Some queue of the database has something to run, or none has; which ones is asked. */
void runs_look(struct qdb *db, bool any);
void runs_free(struct qdb *db);
void runs_reloaded(void); /* queue_run_pool_size may be another */

#endif
