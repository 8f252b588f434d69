/*
 * What of a delivery its client has got while it comes (shown.c).
 */
#ifndef QB_QUEUE_SHOWN_H
#define QB_QUEUE_SHOWN_H

#include "stream_int.h"

/* What has come, and was not shown yet. */
struct answer shown_rest(const struct reader *w);
/* A row has come: is it time to show some? */
void shown_row(struct reader *w);
/* Its client has read on. */
void shown_goes_on(struct park *p);
/* Nothing of it was read for long, or its lease is over: it fails. */
void shown_is_over(struct reader *w);

#endif
