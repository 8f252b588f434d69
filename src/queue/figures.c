/*
 * What happened to jobs through this proxy, by the minute: count.c adds it up for each queue, here it is written, as one
 * row for each queue in which something happened, every queue_figures and when the process ends. Each role that uses
 * queues here writes those of its queues (agent.c): the first one offers all, the next one what that may not write.
 *
 * Knows nothing of who reads them. Entry points: figures_*.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "wire/array.h"
#include "wire/row.h"
#include "agent.h"
#include "count.h"
#include "figures.h"
#include "known.h"
#include "queue_call.h"
#include "queue_int.h"
#include "registry.h"

#define ENDING_AGAIN (50 * USEC_MSEC) /* while the process ends */
#define FOLD_EVERY   3600             /* seconds: old rows are put together, and deleted */

struct entry {
	struct entry *next;
	struct figures f;
	int64_t nth; /* in the statement under way */
	char queue[QSTMT_QUEUE_MAX + 1];
	char subscription[SUBSCRIPTION_MAX + 1]; /* empty: of all */
};

/* What is being written of a database. */
struct figuring {
	struct qdb *db;
	struct entry *entries;
	struct agent *agent; /* who does it now */
	int64_t at;          /* when it happened: seconds since 1970 */
	bool folds;          /* this agent has not put old rows together for a while */
	bool failed;         /* one could not: what is left is counted once more */
};

static struct {
	struct loop_tick *tick;
	uint64_t number;
} rounds;

static bool is_empty(const struct figures *f)
{
	for (int i = 0; i < FIGURES; i++)
		if (f->n[i] != 0)
			return false;
	return true;
}

static int64_t wall_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec;
}

/* --- what is to be written --- */

static void entries_free(struct figuring *g)
{
	struct entry *e;

	while ((e = g->entries) != NULL) {
		g->entries = e->next;
		mem_free(e);
	}
}

/* Without memory it stays where it is, and is written later. */
static void collect_one(struct figuring *g, struct tally *t)
{
	const struct tally *whole = t->whole != NULL ? t->whole : t;
	struct entry *e = is_empty(&t->now) ? NULL : mem_zalloc(sizeof(*e));

	if (e == NULL)
		return;
	e->f = t->now;
	t->now = (struct figures){0};
	util_strlcpy(e->queue, whole->name, sizeof(e->queue));
	if (t != whole)
		util_strlcpy(e->subscription, t->name, sizeof(e->subscription));
	e->next = g->entries;
	g->entries = e;
}

static void collect(struct figuring *g)
{
	for (struct tally *t = g->db->tallies; t != NULL; t = t->hh.next) {
		collect_one(g, t);
		for (struct tally *part = t->parts; part != NULL; part = part->hh.next)
			collect_one(g, part);
	}
}

static void put_back(struct figuring *g)
{
	for (const struct entry *e = g->entries; e != NULL; e = e->next) {
		struct tally *t = count_get(g->db, e->queue);

		if (t != NULL && e->subscription[0] != '\0')
			t = count_part(t, e->subscription);
		if (t != NULL)
			figures_add(&t->now, &e->f);
	}
}

static void end(struct figuring *g)
{
	CHECK_QDB(g->db);
	if (g->failed)
		put_back(g);
	g->db->figuring = NULL;
	entries_free(g);
	mem_free(g);
}

/* --- writing --- */

/* A queue that was written, or of which no more is to be said. */
static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct figuring *g = arg;
	struct wire_col c = wire_row_value(body, len);
	int64_t nth;

	if (!wire_col_number(&c, &nth))
		return;
	for (struct entry **p = &g->entries; *p != NULL; p = &(*p)->next) {
		struct entry *e = *p;

		if (e->nth != nth)
			continue;
		*p = e->next;
		mem_free(e);
		return;
	}
}

static void write_next(struct figuring *g);

static void on_done(void *arg, const struct pg_error *err)
{
	struct figuring *g = arg;

	if (err != NULL)
		log_debug("%s: figures could not be written: %s", g->db->name, err->message);
	g->failed |= err != NULL;
	if (err == NULL && g->folds)
		g->agent->folded_at = loop_now();
	write_next(g);
}

static void put_entries(
	const struct figuring *g, struct buf *names, struct buf *subs, struct buf *figures)
{
	size_t at_names = array_begin(names, OID_TEXT, false);
	size_t at_subs = array_begin(subs, OID_TEXT, true);
	size_t at_figures = array_begin(figures, OID_INT8, false);
	int n = 0;

	for (struct entry *e = g->entries; e != NULL; e = e->next) {
		e->nth = ++n;
		array_put_text(names, e->queue);
		array_put_text(subs, e->subscription[0] != '\0' ? e->subscription : NULL);
		for (int i = 0; i < FIGURES; i++)
			array_put_i64(figures, e->f.n[i]);
	}
	array_end(names, at_names, n);
	array_end(subs, at_subs, n);
	array_end(figures, at_figures, n * FIGURES);
}

static bool write_as(struct figuring *g, struct agent *agent)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct pool *pool = pooler_find_pool(g->db->name, agent->user);
	struct buf names = BUF_INIT, subs = BUF_INIT, figures = BUF_INIT;
	char at[24], proxy[16];
	struct bind_param params[6] = {{.data = (const uint8_t *)at},
		{.data = (const uint8_t *)proxy}, {.format = 1}, {.format = 1}, {.format = 1},
		{.len = 1}};
	struct task_spec spec = call_task(CALL_FIGURES, params, &ops, g);
	bool ok;

	spec.time = TASK_SLOW;
	g->folds = agent->folded_at == 0 || loop_now() - agent->folded_at >= FOLD_EVERY * USEC_SEC;
	params[0].len = snprintf(at, sizeof(at), "%lld", (long long)g->at);
	params[1].len = snprintf(proxy, sizeof(proxy), "%d", (int)registry_stamp(g->db));
	put_entries(g, &names, &subs, &figures);
	params[2].data = names.data;
	params[2].len = (int32_t)names.len;
	params[3].data = subs.data;
	params[3].len = (int32_t)subs.len;
	params[4].data = figures.data;
	params[4].len = (int32_t)figures.len;
	params[5].data = (const uint8_t *)(g->folds ? "t" : "f");
	g->agent = agent;
	ok = pool != NULL && !buf_failed(&names) && !buf_failed(&subs) && !buf_failed(&figures) &&
	     task_submit(pool, &spec) != NULL;
	buf_free(&names);
	buf_free(&subs);
	buf_free(&figures);
	return ok;
}

static void write_next(struct figuring *g)
{
	struct agent *agent;

	for (agent = g->db->agents; agent != NULL && g->entries != NULL; agent = agent->hh.next)
		if (agent->figured != rounds.number) {
			agent->figured = rounds.number;
			if (write_as(g, agent))
				return;
		}
	end(g);
}

static void begin(struct qdb *db)
{
	usec_t every = conf_current()->p.queue_figures;
	struct figuring *g;

	CHECK_QDB(db);
	if (db->figuring != NULL || db->schema != SCHEMA_PRESENT)
		return;
	g = mem_zalloc(sizeof(*g));
	if (g == NULL)
		return;
	g->db = db;
	g->at = wall_clock() -
		(every < 60 * USEC_SEC ? 0 : 30); /* it was in the minute that is over */
	db->figuring = g;
	collect(g);
	if (g->entries != NULL)
		agents_see(db);
	write_next(g);
}

static void write_all(void)
{
	rounds.number++;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		begin(db);
}

/* At the full minute, so that a row is of one. */
static usec_t next_at(usec_t now)
{
	usec_t every = conf_current()->p.queue_figures;
	usec_t wall = (usec_t)wall_clock() * USEC_SEC;

	if (pooler_is_shutting_down() >= SHUTDOWN_WAIT_SERVERS)
		return now + ENDING_AGAIN;
	return every < USEC_SEC ? now + every : now + every - wall % every;
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	if (conf_current()->p.queue_figures == 0)
		return now + 60 * USEC_SEC; /* it may be another one by then */
	write_all();
	return next_at(now);
}

void figures_ending(void)
{
	if (conf_current()->p.queue_figures != 0)
		loop_tick_at(rounds.tick, loop_now());
}

/* --- reading --- */

bool figures_put(const struct qdb *db, const char *queue, const char *subscription, struct buf *out)
{
	const struct tally *t = count_of(db, queue, subscription);
	struct figures f = t != NULL ? t->now : (struct figures){0};
	struct buf text = BUF_INIT;

	for (const struct entry *e = db->figuring != NULL ? db->figuring->entries : NULL; e != NULL;
		e = e->next)
		if (strcmp(e->queue, queue) == 0 &&
			strcmp(e->subscription, subscription != NULL ? subscription : "") == 0)
			figures_add(&f, &e->f);
	buf_printf(&text, "{%lld", (long long)wall_clock());
	for (int i = 0; i < FIGURES; i++)
		buf_printf(&text, ",%lld", (long long)f.n[i]);
	buf_putc(&text, '}');
	known_put_hex(out, &text);
	buf_free(&text);
	return !buf_failed(out);
}

bool figures_start(void)
{
	rounds.tick = loop_tick_new(on_tick, NULL, loop_now() + USEC_SEC);
	return rounds.tick != NULL;
}

void figures_stop(void)
{
	loop_tick_free(&rounds.tick);
}

void figures_free(struct qdb *db)
{
	CHECK_QDB(db);
	if (db->figuring == NULL)
		return;
	entries_free(db->figuring);
	mem_free(db->figuring);
	db->figuring = NULL;
}
