/* Which queues, streams and subscriptions have series of their own, and what all the others come to. */
#ifndef QB_HTTP_CHOICE_H
#define QB_HTTP_CHOICE_H

#include "base/buf.h"
#include "base/util.h"

/* Before the families are written: at most so many are named. */
void choice_make(unsigned most);
/* subscription: NULL: the queue or stream itself. What was not there at choice_make() is not named. */
bool choice_names(const char *database, const char *queue, const char *subscription);
void choice_stop(void);

/* What the others of each database come to in one family: a line that has their labels but the names. */
struct rest;
enum rest_way {
	REST_SUM,
	REST_MOST,
};
/* label, value: one label more, or NULL. */
void rest_add(struct rest **all, enum rest_way way, const char *database, const char *label,
	const char *value, double v);
/* Writes the lines, and forgets them. */
void rest_write(struct rest **all, struct buf *b, const char *name);
/* How many of each database are not named. */
void rest_add_unnamed(struct rest **all);

#endif
