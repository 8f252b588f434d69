/*
 * A typed field of a struct and its text: one row describes it, and reading, bounds, units,
 * printing and comparing follow from the row. Parameters, entries of [databases] and of [users] all
 * use it.
 */
#ifndef QB_CONF_FIELD_INT_H
#define QB_CONF_FIELD_INT_H

#include "conf/conf.h"

enum field_kind { FIELD_STR, FIELD_INT, FIELD_BOOL, FIELD_TIME, FIELD_SIZE, FIELD_ENUM };

struct field_word {
	const char *word; /* NULL ends the list */
	int value;
};

/* Room for the text of any value that is not a string. */
enum { FIELD_TEXT = 48 };
/* A field that is read and reported, but stored nowhere. */
#define FIELD_NOWHERE SIZE_MAX

struct field;
union field_value {
	char *str; /* owned */
	int i;     /* INT and ENUM */
	bool b;
	usec_t time;
	int64_t size;
};

struct field {
	const char *name;
	enum field_kind kind;
	unsigned flags;                 /* enum conf_flag */
	size_t offset;                  /* in the struct, or FIELD_NOWHERE */
	int64_t min, max;               /* of strings: of the length */
	const char *def;                /* as text; NULL: unset (-1, NULL, USEC_NEVER) */
	const struct field_word *words; /* of ENUM */
	int unset;                      /* of ENUM: the value that stands for "not given" */
	/* Refuses a value that is within bounds: NULL, or why. */
	const char *(*check)(const union field_value *v);
	const char *help;
};

struct field_error {
	char text[320];
};

MUST_CHECK bool field_parse(
	const struct field *f, const char *text, union field_value *ret, struct field_error *err);
/* Exchanges the value in the struct with v; cannot fail. */
void field_swap(const struct field *f, void *base, union field_value *v);
void field_drop(const struct field *f, union field_value *v);
/* parse, swap, drop: on an error the struct is unchanged. */
MUST_CHECK bool field_set(
	const struct field *f, void *base, const char *text, struct field_error *err);
/* Frees what the field of the struct owns and leaves the state of a zeroed struct. */
void field_clear(const struct field *f, void *base);
/* For fields without default. */
void field_unset(const struct field *f, void *base);
MUST_CHECK bool field_equal(
	const struct field *f, const union field_value *a, const union field_value *b);

/* A copy of the field that does not own: not to be dropped. */
union field_value field_peek(const struct field *f, const void *base);
/* Text as one would write it in the file. Strings: the string itself, *** for secrets. */
const char *field_text(const struct field *f, const union field_value *v, char text[FIELD_TEXT]);
/* The default in the same form, so that the two can be compared by eye. */
const char *field_default(const struct field *f, char text[FIELD_TEXT]);

const char *field_word(const struct field_word *words, int value);
const struct field *field_find(const struct field *fields, size_t n, const char *name);
/* The field whose name is most like `name`, or NULL. */
const struct field *field_nearest(const struct field *fields, size_t n, const char *name);

#endif
