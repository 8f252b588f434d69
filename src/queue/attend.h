/*
 * Databases that are attended though no client has come (attend.c).
 */
#ifndef QB_QUEUE_ATTEND_H
#define QB_QUEUE_ATTEND_H

#include "base/util.h"

struct qdb;
struct attendance;

MUST_CHECK bool attend_start(void);
void attend_stop(void);
void attend_reloaded(void); /* the configuration may say it of others */
void attend_free(struct qdb *db);

#endif
