/*
 * Rows as COPY writes them with FORMAT csv (CopyAttributeOutCSV() of PostgreSQL). Knows nothing of where they come from.
 * Entry points: run_csv_*.
 */
#include <string.h>

#include "base/check.h"
#include "run_rows.h"

static bool needs_quotes(const struct run_rows *r, const char *p, size_t len)
{
	const struct run_format *f = &r->format;

	if (len == strlen(f->null) && memcmp(p, f->null, len) == 0)
		return true;
	if (r->n_cols == 1 && len == 2 && memcmp(p, "\\.", 2) == 0)
		return true;
	for (size_t i = 0; i < len; i++)
		if (p[i] == f->delimiter || p[i] == f->quote || p[i] == '\n' || p[i] == '\r')
			return true;
	return false;
}

static void put(const struct run_rows *r, bool forced, const char *p, size_t len, struct buf *ret)
{
	const struct run_format *f = &r->format;

	if (!forced && !needs_quotes(r, p, len)) {
		buf_put(ret, p, len);
		return;
	}
	buf_putc(ret, f->quote);
	for (size_t i = 0; i < len; i++) {
		if (p[i] == f->quote || p[i] == f->escape)
			buf_putc(ret, f->escape);
		buf_putc(ret, p[i]);
	}
	buf_putc(ret, f->quote);
}

void run_csv_header(const struct run_rows *r, struct buf *ret)
{
	INVARIANT(r->rows.len == 0, "a header behind a row");
	for (int i = 0; i < r->n_cols; i++) {
		if (i > 0)
			buf_putc(ret, r->format.delimiter);
		put(r, false, r->cols[i].name, strlen(r->cols[i].name), ret);
	}
	buf_putc(ret, '\n');
}

void run_csv_row(const struct run_rows *r, struct wire_row *row, struct buf *ret)
{
	INVARIANT(r->has_rows && r->format.form == RUN_CSV, "a line of CSV of what has no columns");
	for (int i = 0; i < r->n_cols; i++) {
		struct wire_col c = wire_row_next(row);

		if (i > 0)
			buf_putc(ret, r->format.delimiter);
		if (c.data == NULL)
			buf_puts(ret, r->format.null);
		else
			put(r, r->cols[i].forced, (const char *)c.data, (size_t)c.len, ret);
	}
	buf_putc(ret, '\n');
}
