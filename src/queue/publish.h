/*
 * Publications on the merged path: what is known of topics, their statements, whose each row is (publish.c).
 */
#ifndef QB_QUEUE_PUBLISH_H
#define QB_QUEUE_PUBLISH_H

#include "merge.h"
#include "queue_int.h"

struct wire_col;

/* A topic by its first word is in use, though not by a statement of ours: its functions are looked at now and then. */
void topic_used(struct qdb *db, struct pool *pool, const char *name);
void topics_doubt(struct qdb *db);  /* something was bound, or is not any more: with the next use they are looked at */
void topics_forget(struct qdb *db); /* their numbers are others' now */
void topics_free(struct qdb *db);

/* The first word of what is published to. false: it is none, or cannot be one. */
MUST_CHECK bool topic_name(const struct buf *topic, char dst[QSTMT_QUEUE_MAX + 1]);

/* For merge_spec.shape_arg, with publish_shape; NULL: memory, or too many topics. */
void *publish_shape_new(struct qdb *db, struct pool *pool, const char *name);
extern const struct merge_shape publish_shape;

/* A row of CALL_PUBLISH, CALL_PUBLISH_DIRECT or CALL_PUBLISH_ONE: its jobs and events that are made of the n publications
 * from this place in the batch on. job NULL: an event. another: queue than before. */
typedef void published_fn(void *arg, const struct wire_col *queue, const char *job, bool another);
void published_row(const uint8_t *body, size_t len, int first, int n, published_fn *fn, void *arg);

#endif
