/*
 * Schedules: when the next one is due, the proxy asks which roles have something due (anybody may ask that), and fires
 * it with a login of each of them (queue._fire). The transaction that pushes a job moves its schedule on, so several
 * proxies may be at it at once, and any of them may die. Between two times it sleeps; it is told when one is made.
 *
 * Must not know: what a schedule says; the database computes.
 *
 * Entry points: schedules_*.
 */
#include <string.h>

#include "queue/stat.h"
#include "wire/row.h"
#include "agent.h"
#include "back.h"
#include "queue_call.h"
#include "head.h"
#include "queue_int.h"
#include "schedule.h"
#include "system.h"

#define FIRST_AFTER   (1 * USEC_SEC) /* queues are used here */
#define LOOK_AGAIN_MS 60000          /* though nothing is due: the clocks of databases can be set */
#define BUSY_AGAIN    (1 * USEC_SEC) /* due, and another proxy is at it */
#define ALONE_AGAIN   (10 * USEC_SEC) /* due, and nobody here may fire it, or it failed */
#define SAID_AGAIN    (60 * USEC_SEC) /* another warning; several may alternate */
#define STEP          200             /* schedules fired in one transaction */
#define OWNERS_MAX    100             /* of one answer; the others have their turn in the next */

struct schedules {
	usec_t at;      /* when it is asked again */
	usec_t next;    /* when the next one is due, as the last answer says */
	unsigned asker; /* which of the agents asks: another one when it could not */
	bool busy;      /* a statement is under way */
	bool goes_on;   /* with the owner whose turn it is, before it asks again */
	bool asked_in_vain, changed;
	bool runs;           /* there are queues that run by themselves */
	bool fired;          /* by the statements since the last question */
	int n_owners, owner; /* whose turn it is */
	char owners[OWNERS_MAX][64];
	char alone[64];          /* the last owner of whom it was said that he has no login */
	char why[160];           /* the last failure that was logged */
	usec_t alone_at, why_at; /* since when something else may be said */
	struct queue_stat_schedules stat;
};

/* A statement under way. */
struct asking {
	struct qdb *db;
	usec_t since;
	struct names queues; /* that got jobs */
	struct head_mark mark;
	bool failed;
};

/* As far back as head_past() goes for sure. */
#define MARKED_FOR (50 * USEC_MSEC)

static struct {
	struct loop_tick *tick;
	void (*runs)(struct qdb *db, bool any);
} all;

static void look_at(struct schedules *s, usec_t at)
{
	s->at = at;
	loop_tick_at(all.tick, at);
}

static void step(struct qdb *db);

/* --- answers --- */

static void due_row(void *arg, const uint8_t *body, size_t len)
{
	struct asking *a = arg;
	struct schedules *s = a->db->schedules;
	struct wire_col col[2];
	int64_t ms;

	if (!wire_row_read(body, len, col, 2) || !wire_col_number(&col[1], &ms) || ms < 0) {
		a->failed = true;
		return;
	}
	if (col[0].len < 0)
		s->next =
			loop_now() + (usec_t)(ms < LOOK_AGAIN_MS ? ms : LOOK_AGAIN_MS) * USEC_MSEC;
	else if (col[0].len == 0)
		s->runs = true;
	else if (s->n_owners < OWNERS_MAX)
		wire_col_copy(&col[0], s->owners[s->n_owners++], sizeof(s->owners[0]));
}

/* Its jobs are ready when the transaction of the statement is committed, which is before done(). */
static void fired_row(void *arg, const uint8_t *body, size_t len)
{
	struct asking *a = arg;
	struct schedules *s = a->db->schedules;
	struct wire_col col[3];
	char queue[QSTMT_QUEUE_MAX + 1];
	int64_t jobs, failed;

	if (!wire_row_read(body, len, col, 3) || !wire_col_number(&col[2], &failed)) {
		a->failed = true;
		return;
	}
	if (wire_col_number(&col[1], &jobs)) {
		wire_col_copy(&col[0], queue, sizeof(queue));
		names_add(&a->queues, queue);
		head_mark_min(&a->mark, head_past(a->db, queue));
		s->stat.jobs += (uint64_t)jobs;
		s->fired = true;
	}
	s->stat.failed += (uint64_t)failed;
}

static void told(struct qdb *db, const char *whose, const char *why)
{
	struct schedules *s = db->schedules;

	if (strncmp(s->why, why, sizeof(s->why) - 1) == 0 || loop_now() < s->why_at)
		return;
	util_strlcpy(s->why, why, sizeof(s->why));
	s->why_at = loop_now() + SAID_AGAIN;
	log_warning("%s: schedules%s%s are not fired: %s", db->name,
		whose != NULL ? " of role " : "", whose != NULL ? whose : "", why);
}

static void due_done(void *arg, const struct pg_error *err)
{
	struct asking *a = arg;
	struct schedules *s = a->db->schedules;

	s->busy = false;
	if (err != NULL || a->failed) {
		told(a->db, NULL, err != NULL ? err->message : "unexpected answer");
		s->n_owners = 0;
		s->asker++;
		look_at(s, loop_now() + (s->asker < HASH_COUNT(a->db->agents) ? BUSY_AGAIN
									      : ALONE_AGAIN));
	} else {
		all.runs(a->db, s->runs);
		step(a->db);
	}
	mem_free(a);
}

static void fired_done(void *arg, const struct pg_error *err)
{
	struct asking *a = arg;
	struct qdb *db = a->db;
	struct schedules *s = db->schedules;

	s->busy = false;
	if (err == NULL)
		wake_queues(db, &a->queues,
			loop_now() - a->since < MARKED_FOR ? a->mark : head_unmarked);
	names_free(&a->queues);
	if (err != NULL || a->failed) {
		told(db, s->owners[s->owner], err != NULL ? err->message : "unexpected answer");
		s->asked_in_vain = true;
		s->stat.failed++;
		s->goes_on = true;
	} else if (loop_now() >= s->why_at) {
		s->why[0] = '\0';
	}
	s->owner++;
	mem_free(a);
	if (s->goes_on) /* not from here: the pools may be ending, one after the other */
		look_at(s, loop_now());
	else
		step(db);
}

/* --- statements --- */

static bool submit(
	struct qdb *db, struct pool *pool, const struct task_ops *ops, enum call_id id, int n)
{
	struct asking *a = mem_zalloc(sizeof(*a));
	char sql[200];
	struct task_spec spec = {
		.ops = ops, .arg = a, .sql = sql, .prepare = true, .time = TASK_SLOW};

	if (a == NULL)
		return false;
	a->db = db;
	a->since = loop_now();
	a->mark = (struct head_mark){INT64_MAX, INT64_MAX};
	call_print(sql, sizeof(sql), id, n);
	if (task_submit(pool, &spec) == NULL) {
		mem_free(a);
		return false;
	}
	db->schedules->busy = true;
	return true;
}

static bool fire(struct qdb *db, const char *owner)
{
	static const struct task_ops ops = {.row = fired_row, .done = fired_done};
	struct schedules *s = db->schedules;
	struct pool *pool = agent_pool(db, owner);

	if (pool != NULL)
		return submit(db, pool, &ops, CALL_FIRE, STEP);
	s->stat.alone++;
	if (strcmp(s->alone, owner) != 0 && loop_now() >= s->alone_at) {
		log_warning(
			"%s: schedules of role %s are due, and nobody here can log in as this role: give its password to auth_file",
			db->name, owner);
		util_strlcpy(s->alone, owner, sizeof(s->alone));
		s->alone_at = loop_now() + SAID_AGAIN;
	}
	return false;
}

/* Through the pool of whoever is here. Who cannot (he was dropped, his settings are odd) is passed
 * over the next time. */
static bool ask(struct qdb *db)
{
	static const struct task_ops ops = {.row = due_row, .done = due_done};
	struct schedules *s = db->schedules;
	const struct agent *a;
	struct pool *pool;
	unsigned n;

	agents_see(db);
	s->n_owners = s->owner = 0;
	s->fired = s->asked_in_vain = s->changed = s->goes_on = s->runs = false;
	s->next = loop_now() + LOOK_AGAIN_MS * USEC_MSEC;
	n = HASH_COUNT(db->agents);
	a = db->agents;
	if (n > 0)
		for (unsigned i = s->asker %= n; i > 0; i--)
			a = a->hh.next;
	for (; n > 0; n--) {
		pool = pooler_find_pool(db->name, a->user);
		if (pool != NULL && submit(db, pool, &ops, CALL_SCHEDULES_DUE, 0))
			return true;
		s->asker++;
		a = a->hh.next != NULL ? a->hh.next : db->agents;
	}
	return false;
}

/* The next owner has his turn; behind the last it is known when to ask again. */
static void step(struct qdb *db)
{
	struct schedules *s = db->schedules;
	usec_t now = loop_now(), at = s->next;

	s->goes_on = false;
	for (; s->owner < s->n_owners; s->owner++) {
		if (fire(db, s->owners[s->owner]))
			return;
		s->asked_in_vain = true;
	}
	if (s->changed || s->fired)
		at = now; /* there may be more of it */
	else if (s->n_owners > 0)
		at = now + (s->asked_in_vain ? ALONE_AGAIN : BUSY_AGAIN);
	look_at(s, at < s->next ? at : s->next);
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER;

	(void)arg;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		struct schedules *s = db->schedules;

		if (s == NULL || s->busy)
			continue;
		if (now >= s->at && db->schema == SCHEMA_PRESENT && s->goes_on)
			step(db);
		else if (now >= s->at && (db->schema != SCHEMA_PRESENT || !ask(db)))
			s->at = now + ALONE_AGAIN;
		if (!s->busy && s->at < next)
			next = s->at;
	}
	return next;
}

/* --- entry points --- */

static void on_event(struct qdb *db, const char *queue)
{
	if (strcmp(queue, SCHEDULES_EVENT) == 0)
		schedules_event(db);
}

bool schedules_start(void (*runs)(struct qdb *db, bool any))
{
	static const struct system_listener listener = {.up = schedules_event, .event = on_event};

	system_listen(&listener);
	all.runs = runs;
	all.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return all.tick != NULL;
}

void schedules_stop(void)
{
	loop_tick_free(&all.tick);
}

void schedules_free(struct qdb *db)
{
	mem_free(db->schedules);
	db->schedules = NULL;
}

void schedules_need(struct qdb *db)
{
	CHECK_QDB(db);
	if (db->schedules != NULL)
		return;
	db->schedules = mem_zalloc(sizeof(*db->schedules));
	if (db->schedules == NULL)
		return; /* when a client comes next */
	db->schedules->stat.database = db->name;
	look_at(db->schedules, loop_now() + FIRST_AFTER);
}

void schedules_event(struct qdb *db)
{
	CHECK_QDB(db);
	if (db->schedules == NULL)
		return;
	db->schedules->changed = true;
	if (!db->schedules->busy)
		look_at(db->schedules, loop_now());
}

void queue_stat_each_schedules(
	void (*fn)(const struct queue_stat_schedules *st, void *arg), void *arg)
{
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->schedules != NULL)
			fn(&db->schedules->stat, arg);
}
