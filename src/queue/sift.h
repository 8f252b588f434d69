/*
 * TAKE ... FOR with WHERE: the statements, and what is said of an event that the condition cannot bear (sift.c).
 */
#ifndef QB_QUEUE_SIFT_H
#define QB_QUEUE_SIFT_H

#include "where.h"

/* What a reader says, as texts; or NULL. */
struct sift {
	const struct take_args *args;
	const char *name, *least, *within, *lag, *proxy, *seed;
	const char *passed; /* lanes that have been looked at */
};

enum sift_column { SIFT_id, SIFT_fits, SIFT_COLUMNS };

/* fails: the one that finds the event at which the condition fails, which takes nothing. false: memory; freed all the same. */
MUST_CHECK bool sift_statement(const struct sift *s, bool fails, struct where_statement *ret);
/* May it be due to a single event? */
MUST_CHECK bool sift_blames(const struct pg_error *err);
/* The error, which names the event. */
void sift_error(struct pg_error *err, const char *stream, const char *event);

#endif
