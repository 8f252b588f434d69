/*
 * Lists of settings that no server reports. For the rooms of the pooler only.
 */
#ifndef QB_POOL_SETTINGS_H
#define QB_POOL_SETTINGS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/util.h"
#include "pool/stmt.h"

/* settings.c */
struct setting {
	const char *name, *value;
};
/* at: into the text of a list, which ends at end. */
bool settings_next(const char **at, const char *end, struct setting *ret);
const char *settings_find(const struct istr *list, const char *name); /* NULL: not in it */
/* value NULL: takes it out. false: memory, or too much of it; nothing is changed. */
MUST_CHECK bool settings_set(struct istr **list, const char *name, const char *value);
/* A list of the pairs in b, which may come in any order. */
MUST_CHECK bool settings_sorted(struct buf *pairs, struct istr **ret);
void settings_put_literal(struct buf *b, const char *s);
void settings_put_set(struct buf *sql, const char *name, const char *value);
bool settings_identity_differs(const struct istr *a, const struct istr *b); /* role, session_authorization */
void settings_diff_sql(const struct istr *server, const struct istr *client, bool all, struct buf *sql);

#endif
