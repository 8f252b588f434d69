/*
 * Lines of pg_hba.conf and pg_ident.conf as fields of tokens: blanks part fields, commas part
 * tokens, quotes take away the meaning of a keyword, @file puts a file's tokens in its place, a
 * backslash at the end joins lines, include, include_if_exists and include_dir read
 * other files. The format is
 * that of the chapter "Client Authentication" of the Postgres documentation.
 */
#ifndef QB_AUTH_FIELDS_H
#define QB_AUTH_FIELDS_H

#include "base/buf.h"

struct field_token {
	const char *text;
	bool quoted;
};

struct field_line {
	const char *file;
	int number;
	struct field_token *tokens;
	size_t *first;    /* of each field: index of its first token; [n_fields] is the number of tokens */
	size_t n_fields;
};

struct field_reader {
	/* false: it has added to err by fields_fail(). What the line has is borrowed. */
	bool (*line)(struct field_reader *r, const struct field_line *l);
	void *arg;
	char *err; /* each mistake is a line of it; the text before is kept */
	size_t err_size;
	/* private */
	const char *file;
	int number;
	int depth;
	bool full; /* err is: the rest is not read */
};

/* All lines are read, also behind a mistake. false: r->err says "file:line: why" of each. */
MUST_CHECK bool fields_read(struct field_reader *r, const char *path);
/* For line(): adds where and why. Returns false. */
bool fields_fail(struct field_reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

static inline size_t fields_count(const struct field_line *l, size_t field)
{
	return l->first[field + 1] - l->first[field];
}
static inline const struct field_token *fields_token(const struct field_line *l, size_t field)
{
	return &l->tokens[l->first[field]];
}

#endif
