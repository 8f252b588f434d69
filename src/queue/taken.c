/*
 * The jobs of a waiter as they come: by its fetch, or handed over by a push. A row is kept without our
 * columns, which stand behind the client's; what is needed to lease its job is read from it. Must not
 * know who asked.
 *
 * Entry points: taken_row(), taken_reserve(), taken_free().
 */
#include <string.h>

#include "wire/row.h"
#include "consumer.h"
#include "figures.h"
#include "lease.h"
#include "wait_int.h"

/* --- how its rows are asked for --- */

/* What its take writes into the leases. Negative: whatever on_disconnect of the queue is. */
int32_t taken_proxy(const struct waiter *w)
{
	return w->args.hold > 0 ? -w->stamp : w->stamp;
}

/* The client's, and ours behind them: the last three in binary. */
void taken_formats(const struct waiter *w, int16_t formats[MERGE_COLUMNS_MAX])
{
	CHECK_WAITER(w);
	memset(formats, 0, MERGE_COLUMNS_MAX * sizeof(formats[0]));
	for (int i = 0; i < w->n_columns && w->n_formats > 0; i++)
		formats[i] = w->formats[w->n_formats == 1 ? 0 : i];
	for (int i = w->n_columns + HIDDEN_place; i < w->n_columns + HIDDEN_COLUMNS; i++)
		formats[i] = 1;
}

/* --- rows --- */

static int64_t get_id(const struct waiter *w, const struct wire_col *c)
{
	bool binary = w->n_formats > 0 && w->formats[0] != 0;
	int64_t id;

	return (binary ? wire_col_int(c, 8, &id) : wire_col_number(c, &id)) ? id : 0;
}

static enum lease_policy get_policy(const struct wire_col *c)
{
	if (wire_col_is(c, "release"))
		return LEASE_RELEASE;
	if (wire_col_is(c, "keep"))
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
static void get_due(struct waiter *w, const struct wire_col *c)
{
	int64_t ms;

	if (wire_col_number(c, &ms))
		w->due_ms = ms;
}

/* ... with a condition: what there was to look at (functions/where.sql). */
static void get_looked(struct waiter *w, const struct wire_col *ours)
{
	int64_t seen = 0;

	if (!wire_col_int(&ours[HIDDEN_place], 8, &w->saw))
		w->saw = 0;
	(void)!wire_col_int(&ours[HIDDEN_edge], 8, &seen);
	w->cut = (seen & 1) != 0;
	w->looked_in_part = (seen & (2 | 8)) != 0;
	w->look_again = (seen & (2 | 4)) != 0;
}

#define ROW_HEAD 7 /* of the message: its type, its length, how many columns */

/* ... and without what may be large. */
static void keep_bare(struct waiter *w, struct wire_col *cols)
{
	size_t row = build_row_begin(&w->answer.rows, w->n_columns);

	for (int i = 0; i < w->n_columns; i++)
		build_row_value(&w->answer.rows, cols[i].data, cols[i].len);
	build_row_end(&w->answer.rows, row);
}

/* The row without our columns. */
static void keep_row(struct waiter *w, struct taken *t, struct wire_col *cols, const uint8_t *body)
{
	struct buf *b = &w->answer.rows;

	if (w->args.bare)
		cols[TAKEN_payload].len = cols[TAKEN_headers].len = -1;
	t->key_at = b->len + ROW_HEAD + wire_row_size(cols, TAKEN_key) + 4;
	t->key_len = cols[TAKEN_key].len;
	if (w->args.bare)
		keep_bare(w, cols);
	else
		build_row_first(b, body, cols, w->n_columns);
	w->answer.n_rows++;
}

void taken_row(void *arg, const uint8_t *body, size_t len)
{
	struct waiter *w = arg;
	struct wire_col cols[MERGE_COLUMNS_MAX];
	struct taken *t;

	if (!wire_row_read_first(body, len, cols, w->n_columns + HIDDEN_COLUMNS)) {
		log_error("%s: unexpected columns from queue._take()", w->db->name);
		return;
	}
	if (cols[TAKEN_id].len < 0) {
		w->due_ms = DUE_NEVER;
		get_due(w, &cols[w->n_columns + HIDDEN_due_ms]);
		if (w->alone)
			consumer_is(w, cols[w->n_columns + HIDDEN_policy].data,
				cols[w->n_columns + HIDDEN_policy].len);
		if (w->args.where != NULL)
			get_looked(w, &cols[w->n_columns]);
		return;
	}
	if (w->n_taken == 0)
		w->taken_since = waiter_asks_since(w);
	t = taken_add(w);
	if (t == NULL) {
		w->answer.rows.failed = true; /* the whole answer fails, and its leases run out */
		return;
	}
	t->id = get_id(w, &cols[TAKEN_id]);
	if (!wire_col_int(&cols[w->n_columns + HIDDEN_place], 8, &t->place))
		t->place = 0;
	wire_col_copy(&cols[TAKEN_token], t->token, sizeof(t->token));
	wire_col_copy(&cols[TAKEN_queue], t->queue, sizeof(t->queue));
	t->policy = get_policy(&cols[w->n_columns + HIDDEN_policy]);
	get_due(w, &cols[w->n_columns + HIDDEN_due_ms]);
	t->lease_ms = w->due_ms > 0 ? w->due_ms : 0;
	t->waited = waited_us(cols, w->formats, w->n_formats);
	keep_row(w, t, cols, body);
}
