/*
 * Regular expressions of an operator's rules and maps, matched with names that clients choose: the
 * advanced regular expressions of Postgres, as far as PCRE2 has the same meaning for them. What it
 * has not is an error. A match is bounded in time and memory, whatever the name.
 */
#ifndef QB_AUTH_PATTERN_H
#define QB_AUTH_PATTERN_H

#include "base/util.h"

struct pattern;

/* What the first group matched: a part of the name. text NULL: nothing. */
struct pattern_group {
	const char *text;
	size_t len;
};

/* UNDECIDED: it would cost more than a name is worth. Who asks has to take the safe side. */
enum pattern_fit { PATTERN_NO, PATTERN_YES, PATTERN_UNDECIDED };

/* NULL: err says why. */
MUST_CHECK struct pattern *pattern_new(const char *text, char *err, size_t err_size);
void pattern_free(struct pattern **p);
MUST_CHECK bool pattern_has_group(const struct pattern *p);
/* ret_group may be NULL; it is written with PATTERN_YES only. */
MUST_CHECK enum pattern_fit pattern_match(
	struct pattern *p, const char *name, struct pattern_group *ret_group);

#endif
