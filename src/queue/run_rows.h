/*
 * The rows of the statements of a job that runs by itself, and what is kept of them: as JSON, as CSV, as text. Bounded.
 * Between run_rows.c (what is kept), run_csv.c and run_text.c (how it is written).
 */
#ifndef QB_QUEUE_RUN_ROWS_H
#define QB_QUEUE_RUN_ROWS_H

#include "base/names.h"
#include "wire/error.h"
#include "wire/row.h"

#define RUN_ROWS_MAX 1000000 /* bytes, of all statements of a job */

enum run_form { RUN_JSON, RUN_CSV, RUN_TEXT };

/* How they are written; but for the form, of CSV. */
struct run_format {
	enum run_form form;
	bool header, force_all;
	char delimiter, quote, escape;
	char null[32];
	struct names forced; /* columns */
};

struct run_col {
	const char *name; /* in run_rows.names */
	uint32_t oid;
	bool forced;
	size_t width, was; /* of the widest line; and without the last row */
};

struct run_rows {
	struct run_format format;
	size_t left; /* of RUN_ROWS_MAX */
	bool cut;    /* something was left out */
	int statements;
	struct buf outcomes; /* of those that have ended: JSON objects, with commas between */
	uint64_t count;      /* of the last of them */
	/* of the one that runs */
	bool has_rows;
	bool full; /* nothing more of it is kept */
	int n_cols;
	struct run_col *cols;
	struct buf names;
	uint64_t n;      /* rows that have come */
	struct buf rows; /* that are kept: as in the outcome; of text, each as int32 length and body */
	size_t lines, more; /* of text: lines (0: there is no room for a header), and bytes beyond their widths */
};

void run_rows_free(struct run_rows *r);
/* What the job says of its format: the name of an option, and its value. */
void run_rows_option(struct run_rows *r, const char *name, const struct wire_col *value);
/* A statement has rows: the body of RowDescription. false: err is filled, it is not to go on. */
MUST_CHECK bool run_rows_columns(struct run_rows *r, const uint8_t *body, size_t len, struct pg_error *err);
/* The body of a DataRow. NULL: one that is too long. */
void run_rows_add(struct run_rows *r, const uint8_t *body, size_t len);
/* The statement has ended, with this tag. */
void run_rows_ended(struct run_rows *r, const char *tag);
/* All have: what is kept, as a JSON object without its end. Memory may have failed there. */
void run_rows_outcome(const struct run_rows *r, struct buf *ret);

/* run_csv.c: a line of CSV. */
void run_csv_header(const struct run_rows *r, struct buf *ret);
void run_csv_row(const struct run_rows *r, struct wire_row *row, struct buf *ret);

/* run_text.c: the columns are known; is there room for them? And for a row? Then it is to be kept. */
MUST_CHECK bool run_text_begin(struct run_rows *r);
bool run_text_fits(struct run_rows *r, const uint8_t *body, size_t len);
/* The table of the rows that are kept. */
void run_text_table(const struct run_rows *r, struct buf *ret);

#endif
