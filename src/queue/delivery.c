/*
 * The rows of a delivery. Its token, and whatever else is the same of all its events, the database says once: in a row
 * without an id that stands before the others, and has the number of the stream. Clients get it with each event. Without
 * that number it has the token, and how long the lease lasts, and nothing else. If no event comes behind it, but another
 * such row, or one that tells that there is nothing, it was in vain.
 *
 * Must not know: who asks.
 */
#include "delivery.h"

#include <string.h>

#include "base/mem.h"

static const enum delivery_column common_columns[] = {
	DELIVERY_token, DELIVERY_queue, DELIVERY_attempt, DELIVERY_lease_until};

struct common {
	struct wire_col cols[ARRAY_LEN(common_columns)];
	uint8_t row[];
};

void delivery_free(struct delivery *d)
{
	buf_free(&d->rows);
	mem_free(d->common);
	d->common = NULL;
}

static void forget_common(struct delivery *d)
{
	mem_free(d->common);
	d->common = NULL;
	d->stream = 0;
	d->lasts = 0;
	d->all = false;
	d->token[0] = '\0';
}

void delivery_forget(struct delivery *d)
{
	forget_common(d);
	buf_reset(&d->rows);
	d->n = 0;
}

static bool read_row(const struct delivery *d, const uint8_t *row, size_t len,
	struct wire_col cols[SIFTED_COLUMNS])
{
	cols[DELIVERY_passed].len = -1;
	return wire_row_read(row, len, cols, d->sifted ? SIFTED_COLUMNS : DELIVERY_COLUMNS);
}

/* false: memory. */
static bool note_common(struct delivery *d, const uint8_t *row, size_t len)
{
	struct wire_col cols[SIFTED_COLUMNS];
	struct common *c = mem_alloc(sizeof(*c) + len);

	mem_free(d->common);
	d->common = c;
	if (c == NULL)
		return false;
	memcpy(c->row, row, len);
	if (!read_row(d, c->row, len, cols))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(common_columns); i++)
		c->cols[i] = cols[common_columns[i]];
	if (!wire_col_number(&cols[DELIVERY_due_ms], &d->stream))
		d->stream = 0;
	return true;
}

#define JSONB_VERSION 1 /* in binary it stands before the text */

static void put_jsonb(struct buf *b, const struct wire_col *text)
{
	build_i32(b, text->len + 1);
	buf_putc(b, JSONB_VERSION);
	buf_put(b, text->data, (size_t)text->len);
}

static void add_event(struct delivery *d, struct wire_col *cols)
{
	size_t row;

	for (size_t i = 0; d->common != NULL && i < ARRAY_LEN(common_columns); i++)
		cols[common_columns[i]] = d->common->cols[i];
	d->n++;
	row = build_row_begin(&d->rows, DELIVERY_due_ms);
	for (int i = 0; i < DELIVERY_due_ms; i++)
		if (i == DELIVERY_payload && d->as_jsonb && cols[i].len >= 0)
			put_jsonb(&d->rows, &cols[i]);
		else
			build_row_value(&d->rows, cols[i].data, cols[i].len);
	build_row_end(&d->rows, row);
}

int delivery_numbers(const struct wire_col *c, int64_t *ret, int max)
{
	const char *at = (const char *)c->data, *end = c->len > 0 ? at + c->len : at;
	int n = 0;

	while (n < max && at < end) {
		const char *space = memchr(at, ' ', (size_t)(end - at));
		size_t len = (size_t)((space != NULL ? space : end) - at);

		if (!util_parse_i64(at, len, &ret[n]))
			break;
		n++;
		at += len + 1;
	}
	return n;
}

/* How long its lease lasts, and if that was all what follows of MIN. */
static void note_out(struct delivery *d, const struct wire_col *c)
{
	int64_t numbers[1 + PATIENCE_NUMBERS];
	int n = delivery_numbers(c, numbers, (int)ARRAY_LEN(numbers));

	d->lasts = n > 0 ? numbers[0] : 0;
	d->all = n == (int)ARRAY_LEN(numbers);
	if (d->all)
		memcpy(d->more, numbers + 1, sizeof(d->more));
}

bool delivery_row(
	struct delivery *d, const uint8_t *body, size_t len, struct wire_col cols[SIFTED_COLUMNS])
{
	bool event;

	if (!read_row(d, body, len, cols)) {
		d->torn = true;
		return false;
	}
	event = cols[DELIVERY_id].len >= 0;
	if (!event && d->n == 0) /* nothing has come of what was said before */
		forget_common(d);
	if (!event && cols[DELIVERY_token].len < 0)
		return true;
	if (d->token[0] == '\0')
		wire_col_copy(&cols[DELIVERY_token], d->token, sizeof(d->token));
	if (event) {
		add_event(d, cols);
		return false;
	}
	note_out(d, &cols[DELIVERY_out]);
	if (cols[DELIVERY_due_ms].len >= 0 && !note_common(d, body, len))
		d->torn = true;
	return false;
}
