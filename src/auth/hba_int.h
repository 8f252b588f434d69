/*
 * What the rules and the maps share: names that are literal, a keyword, or a regular expression.
 */
#ifndef QB_AUTH_HBA_INT_H
#define QB_AUTH_HBA_INT_H

#include "auth/hba.h"
#include "fields.h"
#include "pattern.h"

enum name_kind { NAME_TEXT, NAME_ALL, NAME_SAMEUSER, NAME_REPLICATION, NAME_REGEX };

struct name {
	enum name_kind kind;
	char *text; /* TEXT, REGEX */
	struct pattern *re; /* REGEX */
};

/* Fills *ret from a token: `/…` is a regular expression. false: fields_fail() was called. */
MUST_CHECK bool name_read(struct name *ret, struct field_reader *r, const struct field_token *t);
void name_clear(struct name *n);
/* Does the regular expression of a name fit? ret_group may be NULL. */
MUST_CHECK enum pattern_fit name_match(
	const struct name *n, const char *text, struct pattern_group *ret_group);

struct ident;
/* What could be read. NULL: out of memory, as err says. *ret_ok false: err has more lines. */
MUST_CHECK struct ident *ident_read(const char *path, bool *ret_ok, char *err, size_t err_size);
void ident_free(struct ident **p);
MUST_CHECK bool ident_has_map(const struct ident *i, const char *map);
MUST_CHECK bool ident_allows(
	const struct ident *i, const char *map, const char *system_name, const char *user);

#endif
