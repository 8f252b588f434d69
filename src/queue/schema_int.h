/*
 * Is the schema there, and may it be trusted? (schema.c)
 */
#ifndef QB_QUEUE_SCHEMA_INT_H
#define QB_QUEUE_SCHEMA_INT_H

#include "queue_int.h"

/* true: present. false: the client is remembered and executed again later, or *ret_absent is set and err filled. */
bool schema_ready(struct qdb *db, struct client *c, bool *ret_absent, struct pg_error *err);
/* It was not found, and the client waits until that is asked again. */
void schema_wait(struct qdb *db, struct qclient *qc);
void schema_forget_client(struct qdb *db, struct qclient *qc);
void schema_free(struct qdb *db);
MUST_CHECK bool schema_start(void);
void schema_stop(void);
/* With the login of a pool, for the proxy itself: nothing is installed, and nobody who waits is told if it is not there.
 * done is called once, not from inside; err NULL: it is present. false: memory. */
MUST_CHECK bool schema_look(
	struct qdb *db, struct pool *pool, void (*done)(struct qdb *db, const struct pg_error *err));
static inline bool schema_is_present(const struct qdb *db)
{
	return db->schema == SCHEMA_PRESENT;
}
/* A statement failed with 3F000 or like it: ask again. */
void schema_suspect(struct qdb *db);
/* One failed, and why is not known here: ask again, but not each time. */
void schema_doubt(struct qdb *db);

#endif
