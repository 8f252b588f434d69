/*
 * What can be shown of the pooler and the queue: tables of named and typed columns, filled from
 * snapshots. The console answers SHOW with them; whoever else shows something takes it from here.
 * All of it comes from one list, include/show/list.h.
 */
#ifndef QB_SHOW_SHOW_H
#define QB_SHOW_SHOW_H

#include <stddef.h>

#include "base/util.h"
#include "wire/build.h"

enum who { WHO_ADMIN, WHO_STATS };

enum show_id {
#define SHOW(id, filler, who, help, columns)                    SHOW_##id,
#define SHOW_EACH(id, record, each, who, help, columns) SHOW_##id,
#include "show/list.h"
	SHOW_COUNT
};

/* SHOW_COLUMN(POOLS, maxwait): which column it is. */
#define COL(type, name, ...) char name;
#define SHOW_EACH(id, record, each, who, help, columns)                                            \
	struct columns_##id {                                                                      \
		columns                                                                            \
	};
#include "show/list.h"
#define SHOW_COLUMN(id, name) offsetof(struct columns_##id, name)

/* A column of a record that a SHOW_EACH goes through, as a number; 0: a text, or SQL NULL. */
double show_number(enum show_id id, size_t column, const void *record);

struct show_rows;

struct show {
	const char *name, *help;
	enum who who;
	const struct wire_field *fields; /* and one more: see show_fields() */
	int n_fields;
	void (*fill)(struct show_rows *r);
};
extern const struct show shows[SHOW_COUNT];

/* With several processes: has each of them rows of its own? */
bool show_is_of_each(enum show_id id);
/* Then with the column `process`, the last one. */
const struct wire_field *show_fields(enum show_id id, int *ret_n);

/* --- rows --- */

/* Where they go, and in which formats. `formats` as in Bind: none, one for all, or one for each. */
struct show_rows {
	struct buf *out; /* DataRow messages */
	const struct wire_field *fields;
	int n_fields;
	const int16_t *formats;
	int n_formats;
	int n_rows;
	int process;  /* which one, in the last column, which row_end() writes; 0: there is none */
	int column;   /* next */
	size_t start; /* of the row under way */
};

/* A row is begun, gets one value for each column, in their order, and is ended. */
void row_begin(struct show_rows *r);
void row_end(struct show_rows *r);
void row_text(struct show_rows *r, const char *s); /* NULL: SQL NULL */
void row_null(struct show_rows *r);
void row_int(struct show_rows *r, int64_t v); /* in the type of the column */
/* A text, "t" or "f", or a digit, in the type of the column */
void row_constant(struct show_rows *r, const char *text);

#endif
