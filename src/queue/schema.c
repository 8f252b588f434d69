/*
 * Is the queue schema in the database? Asked once, with the first QUEUE statement; installed then
 * if the role may and queue_auto_install allows it. Statements wait for the answer; they are
 * executed again when it is there.
 */
#include <stdio.h>
#include <string.h>

#include "net/loop.h"
#include "queue/schema.h"
#include "queue_int.h"

#define ASK_AGAIN      (1 * USEC_SEC) /* an absent schema is looked for again after this */
#define VERSION_NEEDED 1

struct ask {
	struct qdb *db;
	struct pool *pool;
	int64_t number; /* the answer of the query under way: a count, or the version */
	void (*done)(void *arg, const struct pg_error *err); /* INSTALL of the console */
	void *done_arg;
};

static struct loop_tick *tick;

static void join(struct qdb *db, struct qclient *qc)
{
	if (qc->asking_schema)
		return;
	qc->asking_schema = true;
	qc->asking_next = db->asking;
	db->asking = qc;
}

static void all_again(struct qdb *db)
{
	struct qclient *qc, *list = db->asking;

	db->asking = NULL;
	while ((qc = list) != NULL) {
		list = qc->asking_next;
		qc->asking_schema = false;
		client_again(qc->client);
	}
}

static void finish(struct qdb *db, enum schema_state state, const struct pg_error *err)
{
	db->schema = state;
	if (err != NULL)
		db->schema_error = *err;
	db->asked_at = loop_now();
	all_again(db);
}

static void absent_error(struct pg_error *err, const struct qdb *db, const struct pg_error *why)
{
	pg_error_set(
		err, "3F000", "the queue schema is not installed in database \"%s\"", db->name);
	if (why != NULL)
		pg_error_detail(err, "Installing it as this role failed: %s", why->message);
	else
		pg_error_detail(err, "queue_auto_install is off.");
	pg_error_hint(err,
		"As a role that may create schemas: qbouncer --print-schema | psql -d %s, or INSTALL %s on the console.",
		db->name, db->name);
}

static bool is_absent(const struct pg_error *err)
{
	return strcmp(err->sqlstate, "3F000") == 0 || strcmp(err->sqlstate, "42883") == 0;
}

static void install_done(void *arg, const struct pg_error *err)
{
	struct ask *a = arg;
	struct pg_error absent;

	if (err != NULL) {
		if (err->sqlstate[0] == '0' && err->sqlstate[1] == '8')
			absent = *err;
		else
			absent_error(&absent, a->db, err);
		log_warning("%s: the queue schema could not be installed: %s", a->db->name,
			err->message);
		finish(a->db, SCHEMA_ABSENT, &absent);
	} else {
		log_info("%s: the queue schema is installed (as role %s)", a->db->name,
			pool_user(a->pool));
		finish(a->db, SCHEMA_PRESENT, NULL);
	}
	if (a->done != NULL)
		a->done(a->done_arg, err);
	mem_free(a);
}

static bool install(struct ask *a)
{
	static const struct task_ops ops = {.done = install_done};
	struct task_spec spec = {.ops = &ops, .arg = a, .sql = queue_install_sql, .script = true};

	return task_submit(a->pool, &spec) != NULL;
}

static void number_row(void *arg, const uint8_t *body, size_t len)
{
	struct ask *a = arg;

	/* one column, text: count, length, digits */
	if (len > 6 && !util_parse_i64((const char *)body + 6, len - 6, &a->number))
		a->number = 0;
}

/* It ended without an installation. */
static void asked(struct ask *a, enum schema_state state, const struct pg_error *err)
{
	finish(a->db, state, err);
	mem_free(a);
}

static void absent(struct ask *a)
{
	struct pg_error err;

	if (!conf_current()->p.queue_auto_install) {
		absent_error(&err, a->db, NULL);
		asked(a, SCHEMA_ABSENT, &err);
	} else if (!install(a)) {
		pg_error_set(&err, "53200", "out of memory");
		asked(a, SCHEMA_ABSENT, &err);
	}
}

static void version_done(void *arg, const struct pg_error *err)
{
	struct ask *a = arg;

	if (err != NULL && !is_absent(err))
		asked(a, SCHEMA_ABSENT, err);
	else if (err == NULL && a->number >= VERSION_NEEDED)
		asked(a, SCHEMA_PRESENT, NULL);
	else
		absent(a);
}

static void exists_done(void *arg, const struct pg_error *err)
{
	static const struct task_ops ops = {.row = number_row, .done = version_done};
	struct ask *a = arg;
	struct task_spec spec = {.ops = &ops, .arg = a, .sql = "SELECT queue.version()"};
	struct pg_error memory;

	if (err != NULL) {
		asked(a, SCHEMA_ABSENT, err);
	} else if (a->number == 0) {
		absent(a);
	} else if (task_submit(a->pool, &spec) == NULL) {
		pg_error_set(&memory, "53200", "out of memory");
		asked(a, SCHEMA_ABSENT, &memory);
	}
}

/*
 * A look at the catalogue before the function is called: a call of what is not there leaves it in
 * that session's memory that there is no such schema, and in a transaction that has begun by then
 * Postgres goes on believing it after the installation.
 */
static bool ask(struct qdb *db, struct pool *pool)
{
	static const struct task_ops ops = {.row = number_row, .done = exists_done};
	struct ask *a = mem_zalloc(sizeof(*a));
	struct task_spec spec = {.ops = &ops,
		.arg = a,
		.sql = "SELECT count(*) FROM pg_catalog.pg_proc AS p"
		       " JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace"
		       " WHERE n.nspname = 'queue' AND p.proname = 'version'"};

	if (a == NULL)
		return false;
	a->db = db;
	a->pool = pool;
	if (task_submit(pool, &spec) == NULL) {
		mem_free(a);
		return false;
	}
	db->schema = SCHEMA_ASKING;
	return true;
}

bool schema_ready(struct qdb *db, struct client *c, bool *ret_absent, struct pg_error *err)
{
	struct qclient *qc = qclient_find(c);

	if (db->schema == SCHEMA_PRESENT)
		return true;
	if (db->schema == SCHEMA_ABSENT && loop_now() - db->asked_at < ASK_AGAIN) {
		*err = db->schema_error;
		pg_error_severity(err, "ERROR");
		*ret_absent = true;
		return false;
	}
	if (db->schema != SCHEMA_ASKING && !ask(db, client_pool(c))) {
		pg_error_set(err, "53200", "out of memory");
		*ret_absent = true;
		return false;
	}
	join(db, qc);
	return false;
}

void schema_wait(struct qdb *db, struct qclient *qc)
{
	join(db, qc);
	loop_tick_at(tick, db->asked_at + ASK_AGAIN);
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER;

	(void)arg;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->schema == SCHEMA_ABSENT && db->asking != NULL) {
			if (now - db->asked_at >= ASK_AGAIN)
				all_again(db);
			else if (db->asked_at + ASK_AGAIN < next)
				next = db->asked_at + ASK_AGAIN;
		}
	return next;
}

bool schema_start(void)
{
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return tick != NULL;
}

void schema_stop(void)
{
	loop_tick_free(&tick);
}

void schema_forget_client(struct qdb *db, struct qclient *qc)
{
	struct qclient **at = &db->asking;

	while (*at != NULL && *at != qc)
		at = &(*at)->asking_next;
	if (*at != NULL)
		*at = qc->asking_next;
	qc->asking_schema = false;
}

void schema_suspect(struct qdb *db)
{
	if (db->schema == SCHEMA_PRESENT)
		db->schema = SCHEMA_UNKNOWN;
}

/* A statement failed for whatever reason. */
void schema_doubt(struct qdb *db)
{
	if (loop_now() - db->asked_at >= ASK_AGAIN)
		schema_suspect(db);
}

bool queue_install(const char *database, const char *user,
	void (*done)(void *arg, const struct pg_error *err), void *arg)
{
	struct pool *pool = pooler_find_pool(database, user);
	struct qdb *db = pool != NULL ? qdb_get(pool_database(pool)) : NULL;
	struct ask *a;

	if (db == NULL || (a = mem_zalloc(sizeof(*a))) == NULL)
		return false;
	a->db = db;
	a->pool = pool;
	a->done = done;
	a->done_arg = arg;
	if (!install(a)) {
		mem_free(a);
		return false;
	}
	return true;
}
