/*
 * Rows as psql prints them (print_aligned_text() of PostgreSQL, with border 1): a header, values as wide as the widest of
 * their column, numbers to the right, a "+" where a value goes on in the next line. Knows nothing of where they come from.
 * Entry points: run_text_*.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "wire/build.h"
#include "wire/msg.h"
#include "wire/width.h"
#include "run_rows.h"

#define FOOTER 40 /* (n rows) */

enum {
	OID_OID = 26,
	OID_XID = 28,
	OID_CID = 29,
	OID_FLOAT4 = 700,
	OID_MONEY = 790,
	OID_XID8 = 5069
};

static bool is_number(uint32_t oid)
{
	switch (oid) {
	case OID_INT2:
	case OID_INT4:
	case OID_INT8:
	case OID_FLOAT4:
	case OID_FLOAT8:
	case OID_NUMERIC:
	case OID_OID:
	case OID_XID:
	case OID_XID8:
	case OID_CID:
	case OID_MONEY:
		return true;
	default:
		return false;
	}
}

/* --- lines of a value --- */

struct text {
	const uint8_t *at, *end; /* at NULL: there are no more lines */
};

static struct text text_of(const void *p, size_t len)
{
	return (struct text){.at = p, .end = (const uint8_t *)p + len};
}

static struct text text_of_col(const struct wire_col *c)
{
	return c->data != NULL ? text_of(c->data, (size_t)c->len) : text_of("", 0);
}

/* A character, or what stands for it, in this column. Returns its bytes, and adds to the width. */
static size_t put_character(const uint8_t *p, size_t n, uint32_t c, size_t *width, struct buf *ret)
{
	char text[16];
	int w = width_of(c);

	if (w >= 0) {
		if (ret != NULL)
			buf_put(ret, p, n);
		*width += (size_t)w;
		return n;
	}
	if (c == '\t')
		n = (size_t)snprintf(text, sizeof(text), "%*s", (int)(8 - *width % 8), "");
	else
		n = (size_t)snprintf(text, sizeof(text),
			c == '\r' ? "\\r"
			: n == 1  ? "\\x%02X"
				  : "\\u%04X",
			(unsigned)c);
	if (ret != NULL)
		buf_put(ret, text, n);
	*width += n;
	return n;
}

/* The next line of it, if there is one: put to ret (NULL: measured alone). Returns how wide it is, and adds to the bytes
 * that it has besides. */
static size_t put_line(struct text *t, size_t *more, struct buf *ret)
{
	size_t width = 0, bytes = 0;

	while (t->at < t->end && *t->at != '\n') {
		uint32_t c;
		size_t n = width_next(t->at, (size_t)(t->end - t->at), &c);

		bytes += put_character(t->at, n, c, &width, ret);
		t->at += n;
	}
	t->at = t->at < t->end ? t->at + 1 : NULL;
	if (more != NULL && bytes > width)
		*more += bytes - width;
	return width;
}

/* Returns its lines. */
static size_t measure(struct text t, size_t *width, size_t *more)
{
	size_t lines = 0;

	for (; t.at != NULL; lines++) {
		size_t w = put_line(&t, more, NULL);

		if (w > *width)
			*width = w;
	}
	return lines;
}

bool run_text_begin(struct run_rows *r)
{
	size_t lines = 1, line = 1;

	r->more = 0;
	for (int i = 0; i < r->n_cols; i++) {
		size_t n = measure(text_of(r->cols[i].name, strlen(r->cols[i].name)),
			&r->cols[i].width, &r->more);

		if (n > lines)
			lines = n;
		line += r->cols[i].width + 3;
	}
	r->lines = lines + 1; /* the rule */
	if (r->lines * line + r->more + FOOTER <= r->left)
		return true;
	r->lines = 0;
	return false;
}

bool run_text_fits(struct run_rows *r, const uint8_t *body, size_t len)
{
	struct wire_row row;
	size_t lines = 1, line = 1, more = r->more;

	INVARIANT(r->has_rows && r->lines > 1, "a row of a table without a header");
	(void)wire_row_begin(&row, body, len);
	for (int i = 0; i < r->n_cols; i++) {
		struct wire_col c = wire_row_next(&row);
		size_t n;

		r->cols[i].was = r->cols[i].width;
		n = measure(text_of_col(&c), &r->cols[i].width, &more);
		if (n > lines)
			lines = n;
		line += r->cols[i].width + 3;
	}
	if ((r->lines + lines) * line + more + FOOTER <= r->left) {
		r->lines += lines;
		r->more = more;
		return true;
	}
	for (int i = 0; i < r->n_cols; i++)
		r->cols[i].width = r->cols[i].was;
	return false;
}

/* --- the table --- */

static void put_blanks(struct buf *ret, size_t n)
{
	while (n-- > 0)
		buf_putc(ret, ' ');
}

static void put_header(const struct run_rows *r, struct text *at, struct buf *ret)
{
	int left = r->n_cols;

	for (int i = 0; i < r->n_cols; i++)
		at[i] = text_of(r->cols[i].name, strlen(r->cols[i].name));
	while (left > 0) {
		for (int i = 0; i < r->n_cols; i++) {
			struct text whole = at[i];
			bool has = whole.at != NULL;
			size_t blanks = r->cols[i].width - (has ? put_line(&whole, NULL, NULL) : 0);

			put_blanks(ret, 1 + blanks / 2);
			if (has)
				(void)put_line(&at[i], NULL, ret);
			put_blanks(ret, (blanks + 1) / 2);
			if (has && at[i].at == NULL)
				left--;
			buf_putc(ret, at[i].at != NULL ? '+' : ' ');
			if (i < r->n_cols - 1)
				buf_putc(ret, '|');
		}
		buf_putc(ret, '\n');
	}
}

static void put_rule(const struct run_rows *r, struct buf *ret)
{
	buf_putc(ret, '-');
	for (int i = 0; i < r->n_cols; i++) {
		for (size_t n = 0; n < r->cols[i].width; n++)
			buf_putc(ret, '-');
		if (i < r->n_cols - 1)
			buf_puts(ret, "-+-");
	}
	buf_puts(ret, "-\n");
}

/* One line of one value; and is there more of it? */
static bool put_cell(const struct run_rows *r, int i, struct text *t, struct buf *ret)
{
	const struct run_col *c = &r->cols[i];
	bool last = i == r->n_cols - 1, has = t->at != NULL;
	struct text whole = *t;
	size_t blanks = c->width - (has ? put_line(&whole, NULL, NULL) : 0);

	INVARIANT(blanks <= c->width, "a value that is wider than its column");
	buf_putc(ret, ' ');
	if (has && is_number(c->oid))
		put_blanks(ret, blanks);
	if (has)
		(void)put_line(t, NULL, ret);
	if (has ? !is_number(c->oid) && (!last || t->at != NULL) : !last)
		put_blanks(ret, blanks);
	if (t->at != NULL)
		buf_putc(ret, '+');
	else if (!last)
		buf_putc(ret, ' ');
	if (!last)
		buf_putc(ret, '|');
	return t->at != NULL;
}

static void put_row(
	const struct run_rows *r, struct wire_row *row, struct text *at, struct buf *ret)
{
	bool more = r->n_cols > 0;

	for (int i = 0; i < r->n_cols; i++) {
		struct wire_col c = wire_row_next(row);

		at[i] = text_of_col(&c);
	}
	while (more) {
		more = false;
		for (int i = 0; i < r->n_cols; i++)
			more |= put_cell(r, i, &at[i], ret);
		buf_putc(ret, '\n');
	}
}

void run_text_table(const struct run_rows *r, struct buf *ret)
{
	struct text *at = mem_zalloc((size_t)(r->n_cols + 1) * sizeof(*at));
	struct wire_reader rd;

	if (at == NULL) {
		ret->failed = true;
		return;
	}
	INVARIANT(r->format.form == RUN_TEXT && r->lines != 1, "a table that was not measured");
	INVARIANT(r->lines > 0 || r->rows.len == 0, "rows of a table without a header");
	if (r->lines > 0) {
		put_header(r, at, ret);
		put_rule(r, ret);
	}
	wire_reader_init(&rd, r->rows.data, r->rows.len);
	while (wire_left(&rd) > 0) {
		size_t len = (size_t)wire_get_i32(&rd);
		const uint8_t *body = wire_get_bytes(&rd, len);
		struct wire_row row;

		(void)wire_row_begin(&row, body, len);
		put_row(r, &row, at, ret);
	}
	buf_printf(ret, r->n == 1 ? "(%llu row)\n\n" : "(%llu rows)\n\n", (unsigned long long)r->n);
	mem_free(at);
}
