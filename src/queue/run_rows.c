/*
 * The rows of the statements of a job, and what is kept of them: whole rows, until there is no room for the next one; all
 * are counted. JSON is made of them in the database (queue._run_rows), which knows their types: here they are the texts
 * of their values.
 *
 * Must not know: the statements.
 *
 * Entry points: run_rows_*.
 */
#include "run_rows.h"

#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "wire/build.h"
#include "wire/msg.h"

static void forget_statement(struct run_rows *r)
{
	mem_free(r->cols);
	r->cols = NULL;
	r->n_cols = 0;
	r->has_rows = r->full = false;
	r->n = 0;
	buf_free(&r->names);
	buf_free(&r->rows);
}

void run_rows_free(struct run_rows *r)
{
	forget_statement(r);
	buf_free(&r->outcomes);
	names_free(&r->format.forced);
}

/* --- format --- */

void run_rows_option(struct run_rows *r, const char *name, const struct wire_col *value)
{
	struct run_format *f = &r->format;
	char c = value->len > 0 ? (char)value->data[0] : '\0';

	if (strcmp(name, "format") == 0)
		f->form = wire_col_is(value, "csv")    ? RUN_CSV
			  : wire_col_is(value, "text") ? RUN_TEXT
						       : RUN_JSON;
	else if (strcmp(name, "header") == 0)
		f->header = wire_col_is(value, "true");
	else if (strcmp(name, "delimiter") == 0)
		f->delimiter = c;
	else if (strcmp(name, "quote") == 0)
		f->quote = c;
	else if (strcmp(name, "escape") == 0)
		f->escape = c;
	else if (strcmp(name, "null") == 0)
		(void)wire_col_copy(value, f->null, sizeof(f->null));
	else if (strcmp(name, "force_all") == 0)
		f->force_all = true;
	else if (strcmp(name, "force_quote") == 0)
		names_add_bytes(&f->forced, value->data, (size_t)value->len);
}

/* --- columns --- */

static bool malformed(struct pg_error *err)
{
	pg_error_set(err, "08P01", "the server sends a malformed description of its rows");
	return false;
}

static bool no_memory(struct pg_error *err)
{
	pg_error_set(err, "53200", "out of memory");
	return false;
}

/* Each is its name, where it is from (6 bytes), its type, and 8 bytes more. */
static bool read_columns(struct run_rows *r, const uint8_t *body, size_t len, struct pg_error *err)
{
	struct wire_reader rd;

	wire_reader_init(&rd, body, len);
	r->n_cols = wire_get_i16(&rd);
	if (r->n_cols < 0)
		return malformed(err);
	r->cols = mem_zalloc(((size_t)r->n_cols + 1) * sizeof(*r->cols));
	buf_put(&r->names, body, len);
	if (r->cols == NULL || buf_failed(&r->names))
		return no_memory(err);
	wire_reader_init(&rd, r->names.data, len);
	(void)wire_get_i16(&rd);
	for (int i = 0; i < r->n_cols; i++) {
		r->cols[i].name = wire_get_cstr(&rd, NULL);
		(void)wire_get_bytes(&rd, 6);
		r->cols[i].oid = (uint32_t)wire_get_i32(&rd);
		(void)wire_get_bytes(&rd, 8);
		r->cols[i].forced = r->format.force_all;
	}
	return wire_done(&rd) || malformed(err);
}

static bool force(struct run_rows *r, const char *name, struct pg_error *err)
{
	bool found = false;

	for (int i = 0; i < r->n_cols; i++)
		if (strcmp(r->cols[i].name, name) == 0)
			r->cols[i].forced = found = true;
	if (!found)
		pg_error_set(err, "42703", "force_quote: there is no column \"%s\"", name);
	return found;
}

bool run_rows_columns(struct run_rows *r, const uint8_t *body, size_t len, struct pg_error *err)
{
	INVARIANT(r->cols == NULL && r->n == 0, "a statement has columns twice");
	if (!read_columns(r, body, len, err))
		return false;
	NAMES_FOREACH (name, &r->format.forced)
		if (!force(r, name, err))
			return false;
	r->has_rows = true;
	r->full = r->left == 0;
	if (r->format.form == RUN_TEXT)
		r->full = !run_text_begin(r);
	else if (r->format.form == RUN_CSV && r->format.header)
		run_csv_header(r, &r->rows);
	return true;
}

/* --- rows --- */

/* The texts of its values as an array, and so many bytes as its members will be with their names. */
static size_t put_values(const struct run_rows *r, struct wire_row *row, struct buf *ret)
{
	size_t size = 4;

	buf_puts(ret, r->rows.len == 0 ? "[" : ", [");
	for (int i = 0; i < r->n_cols; i++) {
		struct wire_col c = wire_row_next(row);

		if (i > 0)
			buf_puts(ret, ", ");
		if (c.data == NULL)
			buf_puts(ret, "null");
		else
			json_quote(ret, (const char *)c.data, (size_t)c.len);
		size += strlen(r->cols[i].name) + (c.data != NULL ? (size_t)c.len : 4) + 6;
	}
	buf_putc(ret, ']');
	return size;
}

static bool add_text(struct run_rows *r, const uint8_t *body, size_t len)
{
	uint8_t size[4];

	if (!run_text_fits(r, body, len))
		return false;
	build_store_i32(size, (int64_t)len);
	buf_put(&r->rows, size, sizeof(size));
	buf_put(&r->rows, body, len);
	return true;
}

/* A line of CSV, or of JSON, of which the room is counted at once. */
static bool add_line(struct run_rows *r, const uint8_t *body, size_t len)
{
	struct buf line = BUF_INIT;
	struct wire_row row;
	size_t size;
	bool fits;

	(void)wire_row_begin(&row, body, len);
	if (r->format.form == RUN_CSV) {
		run_csv_row(r, &row, &line);
		size = r->rows.len + line.len;
	} else {
		size = put_values(r, &row, &line);
	}
	fits = size <= r->left;
	if (fits)
		buf_put(&r->rows, line.data, line.len);
	if (fits && r->format.form == RUN_JSON)
		r->left -= size;
	r->rows.failed |= buf_failed(&line);
	buf_free(&line);
	return fits;
}

void run_rows_add(struct run_rows *r, const uint8_t *body, size_t len)
{
	if (!r->has_rows)
		return; /* the server has not said so */
	if (r->full) {
		r->n++;
		return;
	}
	if (body == NULL || len > r->left || buf_failed(&r->rows))
		r->full = true;
	else if (r->format.form == RUN_TEXT)
		r->full = !add_text(r, body, len);
	else
		r->full = !add_line(r, body, len);
	r->n++;
}

/* --- the end of a statement --- */

static void put_string(struct buf *ret, const char *name, const void *text, size_t len)
{
	buf_printf(ret, ", \"%s\": ", name);
	json_quote(ret, text, len);
}

static void put_as_text(struct run_rows *r, struct buf *ret)
{
	struct buf table = BUF_INIT;

	run_text_table(r, &table);
	put_string(ret, "text", table.data, table.len);
	r->left -= table.len < r->left ? table.len : r->left;
	ret->failed |= buf_failed(&table);
	buf_free(&table);
}

static void put_as_csv(struct run_rows *r, struct buf *ret)
{
	put_string(ret, "csv", r->rows.data, r->rows.len);
	r->left -= r->rows.len < r->left ? r->rows.len : r->left;
}

static void put_as_json(struct run_rows *r, struct buf *ret)
{
	size_t before = ret->len, told;

	buf_puts(ret, ", \"names\": [");
	for (int i = 0; i < r->n_cols; i++) {
		buf_puts(ret, i > 0 ? ", " : "");
		json_quote(ret, r->cols[i].name, strlen(r->cols[i].name));
	}
	buf_puts(ret, "], \"types\": [");
	for (int i = 0; i < r->n_cols; i++)
		buf_printf(ret, "%s%u", i > 0 ? ", " : "", r->cols[i].oid);
	told = ret->len - before; /* also of a statement without rows */
	r->left -= told < r->left ? told : r->left;
	buf_puts(ret, "], \"values\": [");
	buf_put(ret, r->rows.data, r->rows.len);
	buf_putc(ret, ']');
}

/* The number at the end of the tag: of the rows that were changed. */
static uint64_t count_of(const char *tag, uint64_t rows)
{
	const char *at = strrchr(tag, ' ');
	int64_t n;

	if (at != NULL && util_parse_i64(at + 1, strlen(at + 1), &n) && n >= 0)
		return (uint64_t)n;
	return rows;
}

static void put_rows(struct run_rows *r, struct buf *ret)
{
	if (r->format.form == RUN_TEXT)
		put_as_text(r, ret);
	else if (r->format.form == RUN_CSV)
		put_as_csv(r, ret);
	else
		put_as_json(r, ret);
	if (r->full) {
		buf_puts(ret, ", \"cut\": true");
		r->cut = true;
	}
	ret->failed |= buf_failed(&r->rows);
}

void run_rows_ended(struct run_rows *r, const char *tag)
{
	struct buf *ret = &r->outcomes;

	INVARIANT(r->left <= RUN_ROWS_MAX, "more is kept of rows than there is");
	INVARIANT(r->has_rows || r->n == 0, "rows that have no columns");
	r->count = count_of(tag, r->n);
	r->statements++;
	if (r->left == 0) {
		r->cut = true;
		forget_statement(r);
		return;
	}
	buf_puts(ret, ret->len > 0 ? ", {\"tag\": " : "{\"tag\": ");
	json_quote(ret, tag, strlen(tag));
	buf_printf(ret, ", \"count\": %llu", (unsigned long long)r->count);
	if (r->has_rows)
		put_rows(r, ret);
	buf_putc(ret, '}');
	/* what is told of one without rows counts too */
	r->left -= r->left < 64 ? r->left : 64;
	forget_statement(r);
}

void run_rows_outcome(const struct run_rows *r, struct buf *ret)
{
	const struct buf *all = &r->outcomes;

	INVARIANT(!r->has_rows, "an outcome before the last statement has ended");
	if (r->statements == 0) {
		buf_puts(ret, "{\"count\": 0");
	} else if (r->statements == 1) {
		buf_put(ret, all->data, all->len - 1); /* but its } */
	} else {
		buf_printf(
			ret, "{\"count\": %llu, \"statements\": [", (unsigned long long)r->count);
		buf_put(ret, all->data, all->len);
		buf_puts(ret, "]");
		if (r->cut)
			buf_puts(ret, ", \"cut\": true");
	}
	ret->failed |= buf_failed(all);
}
