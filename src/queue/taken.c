/*
 * The jobs of a waiter as they come: by its fetch, or handed over by a push. A row is kept without our
 * columns, which stand behind the client's; what is needed to lease its job is read from it. Must not
 * know who asked.
 *
 * Entry points: taken_row(), taken_reserve(), taken_free().
 */
#include <string.h>

#include "wire/msg.h"
#include "wait_int.h"

/* --- how its rows are asked for --- */

/* What its take writes into the leases. Negative: whatever on_disconnect of the queue is. */
int32_t taken_proxy(const struct waiter *w)
{
	return w->args.hold > 0 ? -w->stamp : w->stamp;
}

/* The client's, and ours behind them: the last three in binary. */
void taken_formats(const struct waiter *w, int16_t formats[20])
{
	CHECK_WAITER(w);
	memset(formats, 0, 20 * sizeof(formats[0]));
	for (int i = 0; i < w->n_columns && w->n_formats > 0; i++)
		formats[i] = w->formats[w->n_formats == 1 ? 0 : i];
	for (int i = w->n_columns + 2; i < w->n_columns + HIDDEN_COLUMNS; i++)
		formats[i] = 1;
}

/* --- rows --- */

struct column {
	const uint8_t *data;
	int32_t len; /* -1: NULL */
};

enum { COL_ID = 0, COL_TOKEN = 1, COL_QUEUE = 2, COL_KEY = 6 };

/* The first n columns; what somebody else has put behind them is left alone. */
static bool get_columns(struct wire_reader *rd, struct column *cols, int n)
{
	if (wire_get_i16(rd) < n)
		return false;
	for (int i = 0; i < n; i++) {
		cols[i].len = wire_get_i32(rd);
		cols[i].data = cols[i].len >= 0 ? wire_get_bytes(rd, (size_t)cols[i].len) : NULL;
	}
	return !rd->failed;
}

static void get_text(const struct column *c, char *dst, size_t size)
{
	size_t n = c->len > 0 ? (size_t)c->len : 0;

	if (n >= size)
		n = size - 1;
	if (n > 0)
		memcpy(dst, c->data, n);
	dst[n] = '\0';
}

static int64_t get_i64(const struct column *c)
{
	uint64_t v = 0;

	if (c->len != 8)
		return 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | c->data[i];
	return (int64_t)v;
}

static int64_t get_id(const struct waiter *w, const struct column *c)
{
	int64_t id;

	if (w->n_formats > 0 && w->formats[0] != 0)
		return get_i64(c);
	return util_parse_i64((const char *)c->data, (size_t)c->len, &id) ? id : 0;
}

static enum lease_policy get_policy(const struct column *c)
{
	if (c->len == 7 && memcmp(c->data, "release", 7) == 0)
		return LEASE_RELEASE;
	if (c->len == 4 && memcmp(c->data, "keep", 4) == 0)
		return LEASE_KEEP;
	return LEASE_AUTO;
}

static bool taken_grow(struct waiter *w, int cap)
{
	struct taken *t = mem_realloc(w->taken, (size_t)cap * sizeof(*t));

	if (t == NULL)
		return false;
	w->taken = t;
	w->cap_taken = cap;
	return true;
}

bool taken_reserve(struct waiter *w, int n)
{
	CHECK_WAITER(w);
	n = n < TAKEN_AHEAD ? n : TAKEN_AHEAD;
	return n <= w->cap_taken || taken_grow(w, n);
}

void taken_free(struct waiter *w)
{
	CHECK_WAITER(w);
	mem_free(w->taken);
	w->taken = NULL;
	w->n_taken = w->cap_taken = 0;
}

static struct taken *taken_add(struct waiter *w)
{
	if (w->n_taken == w->cap_taken && !taken_grow(w, w->cap_taken * 4 + 1))
		return NULL;
	return &w->taken[w->n_taken++];
}

/* Of a job: when its lease ends. Of no job: when there may be one. */
static void get_due(struct waiter *w, const struct column *c)
{
	int64_t ms;

	if (c->len > 0 && util_parse_i64((const char *)c->data, (size_t)c->len, &ms))
		w->due_ms = ms;
}

/* The row without our columns. */
static void keep_row(struct waiter *w, struct taken *t, const struct column *cols)
{
	struct buf *b = &w->answer.rows;
	size_t row = build_row_begin(b, w->n_columns);

	for (int i = 0; i < w->n_columns; i++) {
		if (i == COL_KEY)
			t->key_at = b->len + 4;
		build_row_value(b, cols[i].data, cols[i].len);
	}
	t->key_len = cols[COL_KEY].len;
	build_row_end(b, row);
	w->answer.n_rows++;
}

void taken_row(void *arg, const uint8_t *body, size_t len)
{
	struct waiter *w = arg;
	struct column cols[20];
	struct wire_reader rd;
	struct taken *t;

	wire_reader_init(&rd, body, len);
	if (!get_columns(&rd, cols, w->n_columns + HIDDEN_COLUMNS)) {
		log_error("%s: unexpected columns from queue._take()", w->db->name);
		return;
	}
	if (cols[COL_ID].len < 0) {
		w->due_ms = DUE_NEVER;
		get_due(w, &cols[w->n_columns + 1]);
		return;
	}
	if (w->n_taken == 0)
		w->taken_since = waiter_asks_since(w);
	t = taken_add(w);
	if (t == NULL) {
		w->answer.rows.failed = true; /* the whole answer fails, and its leases run out */
		return;
	}
	t->id = get_id(w, &cols[COL_ID]);
	t->place = get_i64(&cols[w->n_columns + 2]);
	get_text(&cols[COL_TOKEN], t->token, sizeof(t->token));
	get_text(&cols[COL_QUEUE], t->queue, sizeof(t->queue));
	t->policy = get_policy(&cols[w->n_columns]);
	get_due(w, &cols[w->n_columns + 1]);
	t->lease_ms = w->due_ms > 0 ? w->due_ms : 0;
	keep_row(w, t, cols);
}
