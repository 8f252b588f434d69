/*
 * How full the queues and streams are, for those who watch: asked of each database every
 * metrics_queue_interval, as long as somebody looks. The counts come from the indexes and end at
 * COUNT_MOST, so that a queue of millions costs what one of thousands does. queue_user is asked, in
 * the system session; without it each role that uses queues here, for its own and those that it
 * takes from.
 *
 * Knows nothing of who shows it. Entry points: gauge_start, queue_stat_each_gauge.
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "wire/build.h"
#include "wire/row.h"
#include "agent.h"
#include "clean.h"
#include "queue_call.h"
#include "count.h"
#include "queue_int.h"
#include "stream.h"
#include "system.h"

#define COUNT_MOST     10000
#define STEP_MS        50   /* of a step in the system session, which has other things to hear */
#define ROLE_STEP_MS   1000 /* of one by a role: far from queue_silence */
#define RESTS          9 /* times what a round took: thousands of full queues are no tenth of a core */
#define RESTS_MOST     20               /* times metrics_queue_interval */
#define IDLE_MS        120000           /* Postgres may lose what it counts, or count it late */
#define LOOKED_AT_LAST (300 * USEC_SEC) /* nobody has looked for so long: nothing is asked */

struct gauged {
	char queue[QSTMT_QUEUE_MAX + 1];
	char subscription[SUBSCRIPTION_MAX + 1]; /* or empty */
};

struct gauge {
	UT_hash_handle hh;
	struct gauged of;
	int64_t figure[GAUGE_FIGURES]; /* -1: NULL */
};

/* The answers of a database: they replace the last ones when they are complete. */
struct asked {
	struct qdb *db;
	struct gauge *gauges; /* hash by what they are of */
	struct task *task;    /* in which it comes */
	unsigned rows;        /* that have come in it */
	struct agent *agent;  /* whose answer comes; NULL: that of the system session */
	usec_t began;
	uint64_t round; /* the next may be due before it ends */
	bool failed;
	bool sent;     /* to the system session */
	bool got;      /* a row of this step */
	int32_t after; /* the number of the last queue */
};

static struct {
	struct loop_tick *tick;
	uint64_t number;
	usec_t looked_at;
} rounds;

static void gauges_free(struct gauge **hash)
{
	struct gauge *g, *tmp;

	HASH_ITER (hh, *hash, g, tmp) {
		HASH_DEL(*hash, g);
		mem_free(g);
	}
}

static void asked_free(struct asked **p)
{
	gauges_free(&(*p)->gauges);
	mem_free(*p);
	*p = NULL;
}

void gauge_free(struct qdb *db)
{
	CHECK_QDB(db);
	gauges_free(&db->gauges);
	if (db->idle != NULL)
		clean_free(db->idle);
	mem_free(db->idle);
	db->idle = NULL;
	if (db->gauging != NULL)
		asked_free(&db->gauging); /* the pools are gone: nobody answers any more */
}

/* What is locked stays as it was. */
static bool figures_as_before(const struct asked *a, struct gauge *g)
{
	struct gauge *old;

	for (int i = 0; i < GAUGE_FIGURES; i++)
		if (g->figure[i] >= 0)
			return true;
	HASH_FIND(hh, a->db->gauges, &g->of, sizeof(g->of), old);
	if (old != NULL)
		memcpy(g->figure, old->figure, sizeof(g->figure));
	return old != NULL;
}

/* Two roles may both have looked. */
static void keep(struct asked *a, struct gauge *g)
{
	struct gauge *old;

	/* without a name: how far it came */
	if (g->of.queue[0] == '\0' || !figures_as_before(a, g)) {
		mem_free(g);
		return;
	}
	HASH_FIND(hh, a->gauges, &g->of, sizeof(g->of), old);
	if (old == NULL)
		HASH_ADD(hh, a->gauges, of, sizeof(g->of), g);
	if (old != NULL || g->hh.tbl == NULL)
		mem_free(g);
}

/* Where the figures stand in a row: behind the names of the queue and, in their midst, of the subscription. */
static int column_of(int figure)
{
	ASSERT(figure >= 0 && figure < GAUGE_FIGURES);
	return figure +
	       (figure < GAUGE_EVENTS ? GAUGES_queue + 1 : GAUGES_subscription + 1 - GAUGE_EVENTS);
}

/* Of a queue without a job: as long as nobody changes it, for a while. No memory: it is looked into again. */
static void note_idle(struct clean *idle, int64_t number, bool has_changes, int64_t changes)
{
	if (idle != NULL && number > 0 && number <= INT32_MAX)
		(void)!clean_keep(idle, (int32_t)number, changes, has_changes ? IDLE_MS : 0);
}

static bool read_row(
	struct agent *agent, struct gauge *g, int32_t *after, const uint8_t *body, size_t len)
{
	struct wire_col cols[GAUGES_COLUMNS];
	int64_t number, changes = 0;
	bool has_changes;

	if (!wire_row_read(body, len, cols, GAUGES_COLUMNS))
		return false;
	wire_col_copy(&cols[GAUGES_queue], g->of.queue, sizeof(g->of.queue));
	wire_col_copy(&cols[GAUGES_subscription], g->of.subscription, sizeof(g->of.subscription));
	for (int i = 0; i < GAUGE_FIGURES; i++)
		if (!wire_col_number(&cols[column_of(i)], &g->figure[i]))
			g->figure[i] = -1;
	has_changes = wire_col_number(&cols[GAUGES_changes], &changes);
	if (!wire_col_number(&cols[GAUGES_number], &number) || number <= 0 || number > INT32_MAX)
		return false;
	*after = (int32_t)number;
	note_idle(&agent->idle, number, has_changes, changes);
	return true;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct asked *a = arg;
	struct gauge *g = mem_zalloc(sizeof(*g));

	a->got = true;
	/* the same few each time are no reason to end a session */
	if (++a->rows % TASK_MET_MOST == 0)
		task_met(a->task, TASK_MET_MOST);
	if (g == NULL || !read_row(a->agent, g, &a->after, body, len)) {
		mem_free(g);
		a->failed = true;
		return;
	}
	keep(a, g);
}

static void complete(struct asked *a)
{
	struct qdb *db = a->db;
	struct gauge *old = db->gauges;
	const usec_t most = RESTS_MOST * conf_current()->p.metrics_queue_interval;
	usec_t rest = RESTS * (loop_now() - a->began);

	if (rest > most)
		rest = most;
	db->gauges = a->gauges;
	a->gauges = old;
	db->gauging = NULL;
	db->gauges_rest = loop_now() + rest;
	asked_free(&a);
}

static bool ask_as(struct asked *a, struct agent *agent);
static void ask_next(struct asked *a);

static void on_done(void *arg, const struct pg_error *err)
{
	struct asked *a = arg;

	if (err != NULL || a->failed)
		log_debug("%s: the queues could not be counted: %s", a->db->name,
			err != NULL ? err->message : "unexpected answer");
	/* the last step has no row */
	if (err == NULL && !a->failed && a->got && ask_as(a, a->agent))
		return;
	a->failed = false;
	a->rows = 0;
	a->after = 0;
	ask_next(a);
}

static bool ask_as(struct asked *a, struct agent *agent)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	const struct queue_call *call = &queue_calls[CALL_GAUGES];
	struct pool *pool = pooler_find_pool(a->db->name, agent->user);
	struct buf used = BUF_INIT, known = BUF_INIT;
	uint8_t after[4];
	struct bind_param params[3] = {
		{.format = 1}, {.format = 1}, {.data = after, .len = 4, .format = 1}};
	char sql[300];
	struct task_spec spec = {.ops = &ops,
		.arg = a,
		.sql = sql,
		.prepare = true,
		.time = TASK_SLOW,
		.oids = call->oids,
		.n_params = call->n_params,
		.params = params};

	call_print(sql, sizeof(sql), CALL_GAUGES, COUNT_MOST, ROLE_STEP_MS);
	build_store_i32(after, a->after);
	agent_put_used(&used, agent);
	params[0].data = used.data;
	params[0].len = (int32_t)used.len;
	clean_put(&known, &agent->idle, a->after, SIZE_MAX);
	params[1].data = known.data;
	params[1].len = (int32_t)known.len;
	a->agent = agent;
	a->got = false;
	a->task = pool != NULL && !buf_failed(&used) && !buf_failed(&known)
			  ? task_submit(pool, &spec)
			  : NULL;
	buf_free(&used);
	buf_free(&known);
	return a->task != NULL;
}

/* Each role for its own queues and those that it takes from (agent.c). */
static void ask_next(struct asked *a)
{
	struct agent *agent;

	for (agent = a->db->agents; agent != NULL; agent = agent->hh.next)
		if (agent->gauged != a->round) {
			agent->gauged = a->round;
			if (ask_as(a, agent))
				return;
		}
	complete(a);
}

static void ask(struct qdb *db)
{
	struct asked *a;

	CHECK_QDB(db);
	if (db->gauging != NULL || db->schema != SCHEMA_PRESENT || loop_now() < db->gauges_rest)
		return;
	a = mem_zalloc(sizeof(*a));
	if (a == NULL)
		return;
	a->db = db;
	a->began = loop_now();
	a->round = rounds.number;
	db->gauging = a;
	if (system_is_named(db)) {
		system_work(db);
		return;
	}
	agents_see(db);
	ask_next(a);
}

/* --- by the system session, when it is queue_user's --- */

static usec_t step_due(const struct qdb *db)
{
	return db->gauging != NULL && db->gauging->agent == NULL ? 0 : USEC_NEVER;
}

static bool step(struct qdb *db, struct buf *sql)
{
	struct asked *a = db->gauging;
	struct buf known = BUF_INIT;
	char *text = NULL;
	size_t size;

	if (a == NULL || a->agent != NULL)
		return false;
	if (db->idle == NULL)
		db->idle = mem_zalloc(sizeof(*db->idle)); /* without memory all are looked into */
	if (db->idle != NULL)
		clean_put_text(&known, db->idle, a->after, CLEAN_STEP);
	else
		buf_puts(&known, "{}");
	buf_putc(&known, '\0');
	size = known.len + 300;
	if (!buf_failed(&known) && (text = mem_alloc(size)) != NULL) {
		a->got = false;
		call_print(text, size, CALL_GAUGES_STEP, COUNT_MOST, a->after, STEP_MS,
			(const char *)known.data);
		buf_puts(sql, text);
	}
	buf_free(&known);
	if (text == NULL) { /* no memory: in the next round */
		db->gauging = NULL;
		asked_free(&a);
		return false;
	}
	mem_free(text);
	return true;
}

static int64_t figure_of(const char *text)
{
	int64_t n;

	return text != NULL && util_parse_i64(text, strlen(text), &n) ? n : -1;
}

static void copy(char *to, const char *from, size_t size)
{
	util_strlcpy(to, from != NULL ? from : "", size);
}

static void step_row(struct qdb *db, const char *const *cols, int n)
{
	struct asked *a = db->gauging;
	struct gauge *g = a != NULL && n == GAUGES_COLUMNS ? mem_zalloc(sizeof(*g)) : NULL;

	CHECK_QDB(db);
	if (g == NULL)
		return;
	copy(g->of.queue, cols[GAUGES_queue], sizeof(g->of.queue));
	copy(g->of.subscription, cols[GAUGES_subscription], sizeof(g->of.subscription));
	for (int i = 0; i < GAUGE_FIGURES; i++)
		g->figure[i] = figure_of(cols[column_of(i)]);
	a->got = true;
	a->after = (int32_t)figure_of(cols[GAUGES_number]);
	note_idle(
		db->idle, a->after, cols[GAUGES_changes] != NULL, figure_of(cols[GAUGES_changes]));
	keep(a, g);
}

/* The last step has no row. */
static void step_ended(struct qdb *db, bool failed)
{
	struct asked *a = db->gauging;

	if (a == NULL || a->agent != NULL)
		return;
	if (failed) {
		db->gauging = NULL;
		asked_free(&a);
	} else if (!a->got) {
		complete(a);
	}
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	if (rounds.looked_at == 0 || now - rounds.looked_at > LOOKED_AT_LAST) {
		rounds.looked_at = 0;
		return USEC_NEVER;
	}
	rounds.number++;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		ask(db);
	return now + conf_current()->p.metrics_queue_interval;
}

bool gauge_start(void)
{
	static const struct system_chore chore = {
		.due = step_due, .step = step, .row = step_row, .ended = step_ended};

	system_add_chore(&chore);
	rounds.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return rounds.tick != NULL;
}

void gauge_stop(void)
{
	loop_tick_free(&rounds.tick);
	rounds.looked_at = 0;
}

void queue_stat_each_gauge(void (*fn)(const struct queue_stat_gauge *st, void *arg), void *arg)
{
	if (rounds.looked_at == 0)
		loop_tick_at(rounds.tick, loop_now());
	rounds.looked_at = loop_now();
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		for (const struct gauge *g = db->gauges; g != NULL; g = g->hh.next) {
			struct queue_stat_gauge st = {.database = db->name,
				.queue = g->of.queue,
				.subscription =
					g->of.subscription[0] != '\0' ? g->of.subscription : NULL};

			memcpy(st.figure, g->figure, sizeof(st.figure));
			fn(&st, arg);
		}
}
