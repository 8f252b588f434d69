/*
 * Jobs that are pushed by the clock (schedule.c).
 */
#ifndef QB_QUEUE_SCHEDULE_H
#define QB_QUEUE_SCHEDULE_H

#include "base/util.h"

struct qdb;
struct schedules;

/* What queue._tell() says of schedules: longer than the name of a queue can be. */
#define SCHEDULES_EVENT "of no queue: a schedule was made or changed"

/* runs: hears whether there are queues that run by themselves; when one is made or changed, that is asked at once. */
MUST_CHECK bool schedules_start(void (*runs)(struct qdb *db, bool any));
void schedules_stop(void);
void schedules_need(struct qdb *db);  /* there are queues */
void schedules_event(struct qdb *db); /* something may be due sooner */
void schedules_free(struct qdb *db);

#endif
