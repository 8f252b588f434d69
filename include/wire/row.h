/*
 * Reading the columns of a DataRow. Pure: a column borrows the body. Format: PostgreSQL documentation,
 * chapter "Frontend/Backend Protocol", section "Message Formats".
 */
#ifndef QB_WIRE_ROW_H
#define QB_WIRE_ROW_H

#include "base/util.h"

struct wire_col {
	const uint8_t *data; /* NULL: SQL NULL */
	int32_t len;         /* -1: SQL NULL */
};

/* A reader with a sticky error: behind the end of the row, or of its bytes, every column is NULL; check `failed` once. */
struct wire_row {
	const uint8_t *pos, *end;
	int left; /* columns that were not read */
	bool failed;
};

int wire_row_begin(struct wire_row *r, const uint8_t *body, size_t len); /* how many columns it has */
/* The same of n values without their count: the elements of an array. */
void wire_row_values(struct wire_row *r, const uint8_t *values, size_t len, int n);
struct wire_col wire_row_next(struct wire_row *r);
void wire_row_skip(struct wire_row *r, int n); /* the same as so many times, but of what is there nothing is told */
/* true when nothing failed, and all columns and bytes were taken */
MUST_CHECK bool wire_row_done(const struct wire_row *r);

/* All at once. false: it has another number of columns, or is cut. */
MUST_CHECK bool wire_row_read(const uint8_t *body, size_t len, struct wire_col *cols, int n);
/* The first n; what is behind them is left alone. false: there are fewer. */
MUST_CHECK bool wire_row_read_first(const uint8_t *body, size_t len, struct wire_col *cols, int n);
/* So many columns in a row: their lengths and their bytes. */
size_t wire_row_size(const struct wire_col *cols, int n);
/* The value of a row of one column; NULL also when it is none. */
struct wire_col wire_row_value(const uint8_t *body, size_t len);
/* Its first column is there and NULL. */
bool wire_row_is_null(const uint8_t *body, size_t len);

/* A number in text; false: NULL, or no number, and *ret is left alone. */
MUST_CHECK bool wire_col_number(const struct wire_col *c, int64_t *ret);
/* An integer in binary, of so many bytes: 4 or 8; false: NULL, or of another size, and *ret is left alone. */
MUST_CHECK bool wire_col_int(const struct wire_col *c, int size, int64_t *ret);
bool wire_col_is(const struct wire_col *c, const char *text);
/* With a terminator. false: it is NULL, and dst is empty; or is longer, and was cut. */
bool wire_col_copy(const struct wire_col *c, char *dst, size_t size);

#endif
