/*
 * Asking the database: the take of a waiter, merged with those that are alike, and its rows. Knows
 * nothing of wait queues but that they count.
 */
#include <stdio.h>
#include <string.h>

#include "wire/msg.h"
#include "head.h"
#include "wait_int.h"

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

void fetch_row(void *arg, const uint8_t *body, size_t len)
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

/* --- asking --- */

static void put_queues(struct buf *b, const struct take_args *a)
{
	build_i32(b, 1);
	build_i32(b, 0);
	build_i32(b, OID_TEXT);
	build_i32(b, a->n_queues);
	build_i32(b, 1);
	for (int i = 0; i < a->n_queues; i++)
		build_row_value(b, a->queues[i], (int32_t)strlen(a->queues[i]));
}

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){
		.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

/* The row that says what will become due has no id. */
static bool is_due_row(const uint8_t *body, size_t len)
{
	return len >= 6 && memcmp(body + 2, "\xff\xff\xff\xff", 4) == 0;
}

static void put_key_text(struct buf *key, const char *s)
{
	buf_putc(key, s != NULL ? 't' : 'n');
	if (s != NULL)
		buf_put(key, s, strlen(s) + 1);
}

/* Takes that are alike in everything but how many jobs they want become one. */
static void put_key(struct buf *key, const struct waiter *w, const struct task_settings *settings,
	const int16_t *formats, int n_formats)
{
	buf_put(key, &w->pool, sizeof(w->pool));
	buf_putc(key, w->args.pop ? 'p' : 't');
	task_settings_key(settings, key);
	buf_put(key, formats, (size_t)n_formats * sizeof(*formats));
	put_key_text(key, w->args.lease);
	put_key_text(key, w->args.as);
	buf_putc(key, w->args.hold > 0 ? 'h' : 'l');
	buf_putc(key, (char)('0' + w->args.payload));
	buf_put(key, &w->stamp, sizeof(w->stamp));
	for (int i = 0; i < w->args.n_queues; i++)
		put_key_text(key, w->args.queues[i]);
}

#define TAKE_SQL(suffix)                                                                            \
	"SELECT id, token, queue, attempt, payload, headers, key, \"group\", priority, pushed_at, " \
	"lease_until, policy, due_ms, place, edge, priority FROM "                                  \
	"pg_catalog.set_config('qbouncer.autonomous', 'on', true) AS own, "                         \
	"pg_catalog.set_config('qbouncer.proxy', $6, true) AS proxy, "                              \
	"pg_catalog.set_config('qbouncer.tell', 'here', true) AS tell, "                            \
	"pg_catalog.set_config('qbouncer.seed', $7, true) AS seed, "                                \
	"LATERAL queue._take" suffix                                                                \
	"($1, $2, $3, $4, $5 AND own IS NOT NULL AND proxy IS NOT NULL AND tell IS NOT NULL "       \
	"AND seed IS NOT NULL)"

static const char *const take_sql[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = TAKE_SQL(""),
	[QPAYLOAD_TEXT] = TAKE_SQL("_text"),
	[QPAYLOAD_BYTEA] = TAKE_SQL("_bytea"),
};

static struct merge_item *ask(
	struct waiter *w, const struct bind_param *params, const int16_t *formats)
{
	static const struct merge_ops ops = {.row = fetch_row,
		.common = fetch_row,
		.again = waiter_asks_again,
		.lost = waiter_lost,
		.done = waiter_asked};
	static const uint32_t oids[] = {
		OID_TEXT_ARRAY, OID_INT4, OID_INTERVAL, OID_TEXT, OID_BOOL, OID_TEXT, OID_TEXT};
	struct merge_spec spec = {.sql = take_sql[w->args.payload],
		.oids = oids,
		.n_params = 7,
		.array_param = -1,
		.count_param = 1,
		.seed_param = 6,
		.one_at_a_time = true,
		.params = params,
		.n_formats = w->n_columns + HIDDEN_COLUMNS,
		.formats = formats,
		.settings = task_settings_of(w->qc->client),
		.is_common = is_due_row};
	struct buf key = BUF_INIT, none = BUF_INIT;
	struct merge_item *i = NULL;

	/* the head of one queue is known, those of several are not */
	if (w->args.n_queues == 1)
		spec.kind = head_kind('T', w->args.queues[0]);
	if (w->args.n_queues == 1 && w->args.limit > 0)
		spec.shape_arg = shape_take(w->db, w->pool, w->args.queues[0], w->args.payload);
	spec.shape = spec.shape_arg != NULL ? &head_take : NULL;
	if (spec.settings != NULL) {
		put_key(&key, w, spec.settings, formats, spec.n_formats);
		/* who waits counts as a value (shape.c) */
		i = merge_add(
			w->pool, &key, &spec, &none, w->args.wait > 0, w->args.limit, &ops, w);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	return i;
}

/* What its take writes into the leases. Negative: whatever on_disconnect of the queue is. */
int32_t fetch_proxy(const struct waiter *w)
{
	return w->args.hold > 0 ? -w->stamp : w->stamp;
}

/* The client's, and ours behind them: the last three in binary. */
void fetch_formats(const struct waiter *w, int16_t formats[20])
{
	CHECK_WAITER(w);
	memset(formats, 0, 20 * sizeof(formats[0]));
	for (int i = 0; i < w->n_columns && w->n_formats > 0; i++)
		formats[i] = w->formats[w->n_formats == 1 ? 0 : i];
	for (int i = w->n_columns + 2; i < w->n_columns + HIDDEN_COLUMNS; i++)
		formats[i] = 1;
}

/* Never calls back before it returns. false: memory. */
bool fetch_start(struct waiter *w)
{
	int16_t formats[20];
	struct buf queues = BUF_INIT;
	struct bind_param params[7];
	char proxy[16] = "";

	CHECK_WAITER(w);
	put_queues(&queues, &w->args);
	params[0] =
		(struct bind_param){.data = queues.data, .len = (int32_t)queues.len, .format = 1};
	params[1] = text_param(NULL); /* how many: the sum of the batch */
	params[2] = text_param(w->args.lease);
	params[3] = text_param(w->args.as);
	params[4] = text_param(w->args.pop ? "t" : "f");
	w->stamp = w->args.pop ? 0 : registry_stamp(w->db);
	snprintf(proxy, sizeof(proxy), "%.0d", fetch_proxy(w)); /* 0: empty */
	params[5] = text_param(proxy);
	params[6] = text_param(NULL); /* of each batch its own */
	fetch_formats(w, formats);
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		w->members[i].gen = w->members[i].waitq->gen;
		w->members[i].waitq->n.fetches++;
	}
	w->n_taken = 0;
	w->due_ms = DUE_UNKNOWN;
	w->wakes = w->db->wakes;
	w->db->fetches++;
	if (!buf_failed(&queues) && taken_reserve(w, w->args.limit))
		w->item = ask(w, params, formats);
	buf_free(&queues);
	return w->item != NULL;
}
