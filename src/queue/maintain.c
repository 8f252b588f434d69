/*
 * Maintenance: what queues have kept for long enough (retain_done, retain_dead), and what nobody
 * took in its time, is deleted every queue_maintenance. A round goes through the roles that use
 * queues here, each with its own login for its own queues and those that it takes from (agent.c);
 * it is made of short steps with pauses between them, so that the database is not kept busy. Last
 * it is asked which queues were left out. Several proxies may be at it at once: what one has locked
 * the others pass over. Queues that were clean and that nobody has changed since are passed over, too (clean.c).
 *
 * Entry points: maintain_*.
 */
#include <stdio.h>
#include <string.h>

#include "auth/auth.h"
#include "queue/stat.h"
#include "wire/row.h"
#include "agent.h"
#include "clean.h"
#include "queue_call.h"
#include "maintain.h"
#include "queue_int.h"

#define FIRST_AFTER     (5 * USEC_SEC)    /* queues are used here */
#define PAUSE           (100 * USEC_MSEC) /* between two steps of a round */
#define STEP_ROWS       500
#define STEP_MS         20
#define LOOK_AGAIN      (1 * USEC_SEC)
#define LATE_ROUNDS     3 /* so many periods without a round are worth a warning */
#define COLUMNS_MAX     7
#define TABLES_OF_QUEUE 2 /* its jobs, and its archive */

static struct loop_tick *tick;

/* A statement under way. */
struct step {
	struct qdb *db;
	struct agent *agent; /* NULL: the question what was left out */
	struct task *task;
	bool failed;
};

static usec_t period(void)
{
	return conf_current()->p.queue_maintenance;
}

/* --- the end of a round --- */

static void tell_left_out(struct qdb *db, struct maintenance *m)
{
	bool more = m->skipped > m->told;

	m->left_out = m->skipped;
	if (m->skipped == 0)
		m->told = 0;
	if (!more)
		return;
	m->told = m->skipped;
	if (m->owner[0] == '\0') {
		log_warning(
			"%s: maintenance leaves out %lld queues (one is \"%s\", whose owner was dropped): give it to another role "
			"with UPDATE queue.queues SET owner = '...'",
			db->name, (long long)m->skipped, m->example);
		return;
	}
	log_warning(
		"%s: maintenance leaves out %lld queues (one is \"%s\" of role %s): no role that owns them or takes from "
		"them has used QUEUE here; a superuser cleans his own only. Give the owner's password to auth_file",
		db->name, (long long)m->skipped, m->example, m->owner);
}

static void round_ended(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;

	if (m->of_round > 0)
		log_info("%s: maintenance deleted %llu jobs that had been kept long enough",
			db->name, (unsigned long long)m->of_round);
	if (m->denied > 0 && !m->warned)
		log_warning(
			"%s: maintenance may not clean %llu queues, or they are locked; the next round tries them again",
			db->name, (unsigned long long)m->denied);
	m->warned = m->denied > 0;
	if (m->succeeded) {
		tell_left_out(db, m);
		m->ended_at = loop_now();
		if (m->late)
			log_info("%s: maintenance goes on", db->name);
		m->late = false;
	}
	m->of_round = m->denied = 0;
	m->in_round = false;
	m->at = loop_now() + (m->found > 0 ? 0 : period());
	m->found = 0;
	loop_tick_at(tick, m->at);
}

/* It does not come to an end: whatever the cause, tables grow. */
static void look_whether_late(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;

	if (m->late || m->since == 0 || db->agents == NULL)
		return;
	if (loop_now() - (m->ended_at > m->since ? m->ended_at : m->since) <
		LATE_ROUNDS * period() + FIRST_AFTER)
		return;
	m->late = true;
	log_warning("%s: maintenance has not run for %d periods: %s", db->name, LATE_ROUNDS,
		m->why[0] != '\0' ? m->why : "its statements get no answer");
}

/* --- statements --- */

static int64_t number_of(const struct wire_col *c)
{
	int64_t n;

	return wire_col_number(c, &n) ? n : -1;
}

/* The same few tables in each round are no reason to end a session. */
static void note_met(struct step *s)
{
	size_t tables = TABLES_OF_QUEUE * s->agent->clean.visited, before = s->agent->met;

	s->agent->met += tables;
	if (s->agent->met >= TASK_MET_MOST)
		task_met(s->task, before < TASK_MET_MOST ? s->agent->met : tables);
}

static void step_row(void *arg, const uint8_t *body, size_t len)
{
	struct step *s = arg;
	struct maintenance *m = &s->db->maintenance;
	struct wire_col col[COLUMNS_MAX];
	char lost[500];
	int64_t next;

	if (!wire_row_read(body, len, col, 7) || number_of(&col[0]) < 0) {
		s->failed = true;
		return;
	}
	next = number_of(&col[1]);
	m->deleted += (uint64_t)number_of(&col[0]);
	m->of_round += (uint64_t)number_of(&col[0]);
	m->denied += number_of(&col[2]) > 0 ? (uint64_t)number_of(&col[2]) : 0;
	m->goes_on = next >= 0;
	m->after = next >= 0 ? (int32_t)next : 0;
	s->agent->is_super = wire_col_is(&col[3], "t");
	wire_col_copy(&col[4], s->agent->role, sizeof(s->agent->role));
	wire_col_copy(&col[5], lost, sizeof(lost));
	s->failed = col[6].len < 0 ||
		    !clean_note(&s->agent->clean, (const char *)col[6].data, (size_t)col[6].len);
	note_met(s);
	if (lost[0] == '\0')
		return;
	m->lost++;
	log_warning(
		"%s: retain_max has removed events that were not seen by: %s (stream/subscription)",
		s->db->name, lost);
}

static void left_row(void *arg, const uint8_t *body, size_t len)
{
	struct step *s = arg;
	struct maintenance *m = &s->db->maintenance;
	struct wire_col col[COLUMNS_MAX];
	char owner[64];

	if (!wire_row_read(body, len, col, 4) || number_of(&col[2]) < 0) {
		s->failed = true;
		return;
	}
	wire_col_copy(&col[0], owner, sizeof(owner));
	/* one who can log in has his turn in a round that begins at once; a superuser only if he comes himself */
	if (wire_col_is(&col[1], "f") && auth_user_find(owner) != NULL &&
		agent_find(s->db, owner) == NULL && agent_get(s->db, owner) != NULL) {
		m->found++;
		return;
	}
	m->skipped += number_of(&col[2]);
	util_strlcpy(m->owner, owner, sizeof(m->owner));
	wire_col_copy(&col[3], m->example, sizeof(m->example));
}

static void step_done(void *arg, const struct pg_error *err)
{
	struct step *s = arg;
	struct qdb *db = s->db;
	struct maintenance *m = &db->maintenance;

	m->busy = false;
	if (err != NULL || s->failed) {
		util_strlcpy(
			m->why, err != NULL ? err->message : "unexpected answer", sizeof(m->why));
		log_debug("%s: a step of the maintenance failed: %s", db->name, m->why);
		m->goes_on = false;
		m->after = 0;
		if (s->agent != NULL)
			s->agent->maintained = 0; /* the queues are counted as left out */
		else
			m->succeeded = false;
	} else if (s->agent != NULL) {
		m->succeeded = true;
	}
	if (s->agent == NULL) {
		round_ended(db);
	} else {
		m->at = loop_now() + PAUSE;
		if (!m->goes_on) {
			s->agent->tried = m->round;
			m->at = loop_now();
		}
		loop_tick_at(tick, m->at);
	}
	mem_free(s);
}

static bool submit(struct qdb *db, struct agent *a, struct pool *pool, struct task_spec *spec,
	struct bind_param *params)
{
	struct step *s = mem_zalloc(sizeof(*s));

	if (s == NULL)
		return false;
	s->db = db;
	s->agent = a;
	spec->arg = s;
	spec->params = params;
	spec->prepare = true;
	spec->time = TASK_SLOW;
	s->task = task_submit(pool, spec);
	if (s->task == NULL) {
		mem_free(s);
		return false;
	}
	db->maintenance.busy = true;
	return true;
}

static bool clean(struct qdb *db, struct agent *a, struct pool *pool)
{
	static const struct task_ops ops = {.row = step_row, .done = step_done};
	const struct queue_call *call = &queue_calls[CALL_MAINTAIN];
	struct maintenance *m = &db->maintenance;
	uint8_t after[4] = {(uint8_t)((uint32_t)m->after >> 24),
		(uint8_t)((uint32_t)m->after >> 16), (uint8_t)((uint32_t)m->after >> 8),
		(uint8_t)m->after};
	char sql[300];
	struct buf used = BUF_INIT, known = BUF_INIT;
	struct bind_param params[3] = {
		{.format = 1}, {.data = after, .len = 4, .format = 1}, {.format = 1}};
	struct task_spec spec = {
		.ops = &ops, .sql = sql, .oids = call->oids, .n_params = call->n_params};
	bool ok;

	call_print(sql, sizeof(sql), CALL_MAINTAIN, STEP_ROWS, STEP_MS);
	if (m->after == 0)
		a->met = 0;
	agent_put_used(&used, a);
	params[0].data = used.data;
	params[0].len = (int32_t)used.len;
	clean_put(&known, &a->clean, m->after, CLEAN_STEP);
	params[2].data = known.data;
	params[2].len = (int32_t)known.len;
	a->maintained = m->round;
	ok = !buf_failed(&used) && !buf_failed(&known) && submit(db, a, pool, &spec, params);
	buf_free(&used);
	buf_free(&known);
	return ok;
}

/* Through a role that has just been there. */
static bool ask_left_out(struct qdb *db, struct pool *pool)
{
	static const struct task_ops ops = {.row = left_row, .done = step_done};
	const struct queue_call *call = &queue_calls[CALL_UNATTENDED];
	struct buf users = BUF_INIT, used = BUF_INIT;
	struct bind_param params[2] = {{.format = 1}, {.format = 1}};
	struct task_spec spec = {
		.ops = &ops, .sql = call->sql, .oids = call->oids, .n_params = call->n_params};
	bool ok;

	agents_put(&users, &used, db, db->maintenance.round);
	params[0].data = users.data;
	params[0].len = (int32_t)users.len;
	params[1].data = used.data;
	params[1].len = (int32_t)used.len;
	db->maintenance.skipped = 0;
	ok = !buf_failed(&users) && !buf_failed(&used) && submit(db, NULL, pool, &spec, params);
	buf_free(&users);
	buf_free(&used);
	return ok;
}

/* --- rounds --- */

static struct agent *next_agent(struct qdb *db)
{
	struct agent *a = db->agents;

	while (a != NULL && a->tried == db->maintenance.round)
		a = a->hh.next;
	return a;
}

static struct agent *who_was_there(struct qdb *db)
{
	struct agent *a = db->agents;

	while (a != NULL && a->maintained != db->maintenance.round)
		a = a->hh.next;
	return a;
}

static void begin_round(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;

	agents_see(db);
	m->round++;
	m->in_round = true;
	m->succeeded = false;
	m->after = 0;
}

static void on_step(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;
	struct agent *a;
	struct pool *pool;

	if (db->schema != SCHEMA_PRESENT) {
		m->in_round = false;
		m->at = loop_now() + period();
		return;
	}
	if (!m->in_round)
		begin_round(db);
	while ((a = next_agent(db)) != NULL) {
		pool = pooler_find_pool(db->name, a->user);
		if (pool != NULL && clean(db, a, pool))
			return;
		a->tried = m->round;
	}
	a = who_was_there(db);
	pool = a != NULL ? pooler_find_pool(db->name, a->user) : NULL;
	if (pool == NULL || !ask_left_out(db, pool))
		round_ended(db);
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER;

	(void)arg;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		struct maintenance *m = &db->maintenance;

		if (m->since == 0)
			continue;
		if (now + LOOK_AGAIN < next)
			next = now + LOOK_AGAIN; /* the setting may be another one by then */
		if (period() == 0)
			continue;
		if (m->at > now + period())
			m->at = now + period();
		look_whether_late(db);
		if (!m->busy && now >= m->at)
			on_step(db);
		if (!m->busy && m->at < next)
			next = m->at;
	}
	return next;
}

bool maintain_start(void)
{
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return tick != NULL;
}

void maintain_stop(void)
{
	loop_tick_free(&tick);
}

void maintain_need(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;

	CHECK_QDB(db);
	if (m->since != 0)
		return;
	m->since = loop_now();
	m->at = loop_now() + (period() < FIRST_AFTER ? period() : FIRST_AFTER);
	loop_tick_at(tick, m->at);
}

void queue_stat_each_maintenance(
	void (*fn)(const struct queue_stat_maintenance *st, void *arg), void *arg)
{
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		const struct maintenance *m = &db->maintenance;
		struct queue_stat_maintenance st = {.database = db->name,
			.deleted = m->deleted,
			.lost = m->lost,
			.left_out = m->left_out};
		usec_t last = m->ended_at > m->since ? m->ended_at : m->since;

		st.age_us = m->since > 0 && period() > 0 ? loop_now() - last : 0;
		fn(&st, arg);
	}
}
