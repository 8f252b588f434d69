/*
 * Databases that are attended though no client has come: queue = 1 in [databases]. With the login of queue_user it is
 * found out whether queues are there. From then on that role is an agent like one whose clients have used QUEUE
 * (agent.c): the system session listens, what is due is looked for, what was kept long enough is deleted. Without the
 * entry the database rests, unless a client has been there since.
 *
 * Functions of the schema are called with that login, and a superuser's rights are not worth it: first it is asked
 * whether it is one, with a function of Postgres.
 *
 * Must not know: what is done there.
 *
 * Entry points: attend_*.
 */
#include <string.h>

#include "wire/row.h"
#include "agent.h"
#include "attend.h"
#include "queue_call.h"
#include "queue_int.h"
#include "schedule.h"
#include "schema_int.h"
#include "system.h"

#define LOOK       (1 * USEC_SEC)  /* at what the entries say */
#define AGAIN      (5 * USEC_SEC)  /* it cannot be reached, or nothing listens there yet */
#define SURE_AGAIN (60 * USEC_SEC) /* all is well: it is reached, by no superuser */
#define SAID_AGAIN (60 * USEC_SEC) /* another warning */

struct attendance {
	usec_t at;      /* of the next question */
	usec_t seen;    /* its entry, with queue = 1 */
	bool busy;      /* a statement is under way */
	bool on;        /* it is attended */
	bool super;     /* its role is a superuser: said by the statement under way */
	char user[128]; /* with whose login; of the statement under way, too */
	char why[160];  /* the last failure that was logged */
	usec_t said_at; /* when another one may be */
};

static struct loop_tick *tick;

/* --- what is said --- */

static void ended(struct attendance *a, usec_t again)
{
	a->busy = false;
	a->at = loop_now() + again;
	loop_tick_at(tick, a->at);
}

static void failed(struct qdb *db, const char *why, usec_t again)
{
	struct attendance *a = db->attendance;

	if (strncmp(a->why, why, sizeof(a->why) - 1) != 0 && loop_now() >= a->said_at) {
		util_strlcpy(a->why, why, sizeof(a->why));
		a->said_at = loop_now() + SAID_AGAIN;
		log_warning("%s: not attended as role %s (queue = 1): %s", db->name, a->user, why);
	}
	ended(a, again);
}

/* A client may be there as well: what he needs stays. */
static void rest(struct qdb *db)
{
	struct attendance *a = db->attendance;

	if (a->on && !db->had_clients) {
		schema_suspect(db);
		system_rest(db);
		log_info("%s: no longer attended", db->name);
	}
	a->on = false;
}

static void attended(struct qdb *db, struct pool *pool)
{
	struct attendance *a = db->attendance;

	if (agent_get(db, a->user) == NULL) {
		failed(db, "out of memory, or too many roles", AGAIN);
		return;
	}
	if (!a->on)
		log_info("%s: attended as role %s (queue = 1)", db->name, a->user);
	a->on = true;
	a->why[0] = '\0';
	system_need(db, pool);
	ended(a, system_is_up(db) ? SURE_AGAIN : AGAIN);
}

/* --- what is asked --- */

static void on_schema(struct qdb *db, const struct pg_error *err)
{
	struct attendance *a = db->attendance;
	struct pool *pool = pooler_find_pool(db->name, a->user);

	if (err != NULL || pool == NULL) {
		failed(db, err != NULL ? err->message : "out of memory", AGAIN);
		return;
	}
	if (!a->on)
		schedules_event(db); /* what became due meanwhile */
	attended(db, pool);
}

static void super_row(void *arg, const uint8_t *body, size_t len)
{
	struct qdb *db = arg;
	struct wire_col col = wire_row_value(body, len);

	db->attendance->super = !wire_col_is(&col, "off");
}

static void super_done(void *arg, const struct pg_error *err)
{
	struct qdb *db = arg;
	struct attendance *a = db->attendance;
	struct pool *pool = pooler_find_pool(db->name, a->user);

	if (err != NULL || pool == NULL) {
		failed(db, err != NULL ? err->message : "out of memory", AGAIN);
	} else if (a->super && !conf_current()->p.queue_user_superuser) {
		rest(db);
		failed(db, "it is a superuser, and queue_user_superuser = 0", SURE_AGAIN);
	} else if (a->on && schema_is_present(db)) {
		attended(db, pool);
	} else if (!schema_look(db, pool, on_schema)) {
		failed(db, "out of memory", AGAIN);
	}
}

static void ask(struct qdb *db)
{
	static const struct task_ops ops = {.row = super_row, .done = super_done};
	struct attendance *a = db->attendance;
	struct pool *pool = pooler_find_pool(db->name, a->user);
	struct task_spec spec = {.ops = &ops,
		.arg = db,
		.sql = queue_calls[CALL_IS_SUPER].sql,
		.prepare = true,
		.time = TASK_SLOW};

	a->super = true;
	if (pool == NULL || task_submit(pool, &spec) == NULL)
		failed(db, "out of memory", AGAIN);
	else
		a->busy = true;
}

/* --- which --- */

/* All connections of an entry with `user` are that role's. */
static const char *role_of(const struct conf_database *d)
{
	if (d->user != NULL)
		return d->user;
	return conf_queue_user(d->queue_user, NULL, NULL);
}

static void look_at_entry(const struct conf_database *d, usec_t now)
{
	struct qdb *db = qdb_get(d->name);
	struct attendance *a;

	if (db == NULL)
		return; /* the next time */
	if (db->attendance == NULL &&
		(db->attendance = mem_zalloc(sizeof(*db->attendance))) == NULL)
		return;
	a = db->attendance;
	a->seen = now;
	if (a->busy || now < a->at)
		return;
	util_strlcpy(a->user, role_of(d), sizeof(a->user));
	ask(db);
}

static usec_t on_tick(void *arg, usec_t now)
{
	bool any = false;

	(void)arg;
	for (const struct conf_database *d = conf_current()->databases; d != NULL; d = d->next)
		if (d->queue && strcmp(d->name, "*") != 0 && role_of(d)[0] != '\0') {
			look_at_entry(d, now);
			any = true;
		}
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		if (db->attendance == NULL || db->attendance->seen == now)
			continue;
		any = true;
		if (db->attendance->busy)
			continue; /* it is told soon */
		rest(db);
		attend_free(db);
	}
	return any ? now + LOOK : USEC_NEVER;
}

/* --- entry points --- */

bool attend_start(void)
{
	tick = loop_tick_new(on_tick, NULL, loop_now());
	return tick != NULL;
}

void attend_stop(void)
{
	loop_tick_free(&tick);
}

void attend_reloaded(void)
{
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->attendance != NULL) {
			db->attendance->at = 0;
			schedules_event(db); /* an owner may be able to log in now */
		}
	loop_tick_at(tick, loop_now());
}

void attend_free(struct qdb *db)
{
	mem_free(db->attendance);
	db->attendance = NULL;
}
