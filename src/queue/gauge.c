/*
 * How full the queues are, for those who watch: asked of each database every
 * metrics_queue_interval, as long as somebody looks. The counts come from the indexes and end at
 * COUNT_MOST, so that a queue of millions costs what one of thousands does.
 *
 * Knows nothing of who shows it. Entry points: gauge_start, queue_stat_each_gauge.
 */
#include <stdio.h>
#include <string.h>

#include "wire/msg.h"
#include "queue_int.h"

#define COUNT_MOST     10000
#define LOOKED_AT_LAST (300 * USEC_SEC) /* nobody has looked for so long: nothing is asked */

struct gauge {
	struct gauge *next;
	char queue[QSTMT_QUEUE_MAX + 1];
	int64_t figure[GAUGE_FIGURES]; /* -1: NULL */
};

/* One answer of a database: replaces the last one when it is complete. */
struct asked {
	struct qdb *db;
	struct gauge *gauges;
	bool failed;
};

static struct loop_tick *tick;
static usec_t looked_at;

static void gauges_free(struct gauge **list)
{
	while (*list != NULL) {
		struct gauge *g = *list;

		*list = g->next;
		mem_free(g);
	}
}

void gauge_free(struct qdb *db)
{
	gauges_free(&db->gauges);
}

/* Columns: the queue's name and the figures, in text. */
static bool read_row(struct gauge *g, const uint8_t *body, size_t len)
{
	struct wire_reader rd;

	wire_reader_init(&rd, body, len);
	if (wire_get_i16(&rd) != GAUGE_FIGURES + 1)
		return false;
	for (int i = -1; i < GAUGE_FIGURES; i++) {
		int32_t n = wire_get_i32(&rd);
		const uint8_t *data = n >= 0 ? wire_get_bytes(&rd, (size_t)n) : NULL;

		if (n >= 0 && data == NULL)
			return false;
		if (i < 0)
			snprintf(g->queue, sizeof(g->queue), "%.*s", n > 0 ? (int)n : 0,
				n > 0 ? (const char *)data : "");
		else if (n < 0 || !util_parse_i64((const char *)data, (size_t)n, &g->figure[i]))
			g->figure[i] = -1;
	}
	return wire_done(&rd);
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct asked *a = arg;
	struct gauge *g = mem_zalloc(sizeof(*g));

	if (g == NULL || !read_row(g, body, len)) {
		mem_free(g);
		a->failed = true;
		return;
	}
	g->next = a->gauges;
	a->gauges = g;
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct asked *a = arg;

	a->db->gauging = false;
	if (err != NULL || a->failed) {
		log_debug("%s: the queues could not be counted: %s", a->db->name,
			err != NULL ? err->message : "unexpected answer");
	} else {
		struct gauge *old = a->db->gauges;

		a->db->gauges = a->gauges;
		a->gauges = old;
	}
	gauges_free(&a->gauges);
	mem_free(a);
}

static void ask(struct qdb *db)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct pool *pool = pooler_find_pool(db->name, NULL);
	struct asked *a;
	char sql[64];
	struct task_spec spec = {.ops = &ops, .sql = sql, .prepare = true};

	if (db->gauging || db->schema != SCHEMA_PRESENT || pool == NULL)
		return;
	a = mem_zalloc(sizeof(*a));
	if (a == NULL)
		return;
	a->db = db;
	spec.arg = a;
	snprintf(sql, sizeof(sql), "SELECT * FROM queue._gauges(%d)", COUNT_MOST);
	if (task_submit(pool, &spec) != NULL)
		db->gauging = true;
	else
		mem_free(a);
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	if (looked_at == 0 || now - looked_at > LOOKED_AT_LAST) {
		looked_at = 0;
		return USEC_NEVER;
	}
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		ask(db);
	return now + conf_current()->p.metrics_queue_interval;
}

bool gauge_start(void)
{
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return tick != NULL;
}

void gauge_stop(void)
{
	loop_tick_free(&tick);
	looked_at = 0;
}

void queue_stat_each_gauge(void (*fn)(const struct queue_stat_gauge *st, void *arg), void *arg)
{
	if (looked_at == 0)
		loop_tick_at(tick, loop_now());
	looked_at = loop_now();
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		for (const struct gauge *g = db->gauges; g != NULL; g = g->next) {
			struct queue_stat_gauge st = {.database = db->name, .queue = g->queue};

			memcpy(st.figure, g->figure, sizeof(st.figure));
			fn(&st, arg);
		}
}
