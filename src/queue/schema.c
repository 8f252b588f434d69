/*
 * Is the queue schema in the database? Asked once, with the first QUEUE statement; installed then
 * if the role may and queue_auto_install allows it. Statements wait for the answer; they are
 * executed again when it is there.
 *
 * Who has installed the schema, or may put functions into it, has his code run by whoever says
 * QUEUE. So it has to be somebody who could have that anyway: a superuser, the owner of the
 * database (or a member of that role), or the one whom the operator has named, queue_user.
 */
#include <stdio.h>
#include <string.h>

#include "net/loop.h"
#include "queue/queue.h"
#include "queue/schema.h"
#include "wire/row.h"
#include "agent.h"
#include "queue_call.h"
#include "maintain.h"
#include "queue_int.h"
#include "schedule.h"
#include "schema_int.h"

#define ASK_AGAIN      (1 * USEC_SEC) /* an absent schema is looked for again after this */
#define TELL_AGAIN     (3600 * USEC_SEC)
#define VERSION_NEEDED 1

struct ask {
	struct qdb *db;
	struct pool *pool;
	int64_t number; /* the version */
	char found;     /* of enum found */
	char who[64];   /* the role that it is about */
	bool again;     /* the first server that was asked was silent */
	void (*done)(void *arg, const char *role,
		const struct pg_error *err); /* INSTALL of the console */
	void *done_arg;
	void (*looked)(struct qdb *db, const struct pg_error *err); /* schema_look() */
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

/* --- failures: of one role, which says nothing of what another may --- */

struct schema_failure {
	UT_hash_handle hh; /* by user */
	usec_t at;
	struct pg_error err;
	char user[64];
};

static const struct schema_failure *failure_of(struct qdb *db, const char *user)
{
	struct schema_failure *f;

	HASH_FIND_STR(db->schema_failures, user, f);
	return f != NULL && loop_now() - f->at < ASK_AGAIN ? f : NULL;
}

/* Those that are old go, too. keep: or all. */
static void failures_drop(struct qdb *db, bool keep)
{
	struct schema_failure *f, *tmp;

	HASH_ITER (hh, db->schema_failures, f, tmp)
		if (!keep || loop_now() - f->at >= ASK_AGAIN) {
			HASH_DEL(db->schema_failures, f);
			mem_free(f);
		}
}

/* Without memory it is asked about again at once. */
static void failed(struct qdb *db, const char *user, const struct pg_error *err)
{
	struct schema_failure *f;

	failures_drop(db, true);
	HASH_FIND_STR(db->schema_failures, user, f);
	if (f == NULL) {
		if ((f = mem_zalloc(sizeof(*f))) == NULL)
			return;
		util_strlcpy(f->user, user, sizeof(f->user));
		HASH_ADD_STR(db->schema_failures, user, f);
		if (f->hh.tbl == NULL) {
			mem_free(f);
			return;
		}
	}
	f->at = loop_now();
	f->err = *err;
}

void schema_free(struct qdb *db)
{
	failures_drop(db, false);
}

static void finish(
	struct qdb *db, enum schema_state state, struct pool *pool, const struct pg_error *err)
{
	db->schema = state;
	if (state == SCHEMA_PRESENT) {
		/* a client may have gone before anything is asked with its login */
		(void)agent_get(db, pool_user(pool));
		maintain_need(db);
		schedules_need(db);
	}
	db->asked_at = loop_now();
	if (err != NULL)
		failed(db, pool_user(pool), err);
	else
		failures_drop(db, false);
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

/* They are letters in the query. */
enum found {
	FOUND_NOTHING = 'n',  /* and this role may install it */
	FOUND_STRANGER = 's', /* nothing, and only the owner of the database would */
	FOUND_PRESENT = 'p',
	FOUND_OWNER = 'o',   /* somebody who is not trusted owns it, or a part of it */
	FOUND_CREATOR = 'c', /* ... may put functions into it */
};

static void distrust_error(struct pg_error *err, const struct ask *a)
{
	if (a->found == FOUND_OWNER) {
		pg_error_set(err, "42501",
			"the queue schema of database \"%s\" belongs to role \"%s\", which is not trusted",
			a->db->name, a->who);
		pg_error_hint(err,
			"If it may be trusted: queue_user = %s in the configuration of the proxy.",
			a->who);
	} else {
		pg_error_set(err, "42501",
			"role \"%s\" may put functions into the queue schema of database \"%s\"",
			a->who, a->db->name);
		pg_error_hint(
			err, "REVOKE CREATE ON SCHEMA queue FROM %s; nobody needs it.", a->who);
	}
	pg_error_detail(err,
		"What is in the schema runs with the rights of whoever says QUEUE. Superusers, the "
		"owner of the database and queue_user are trusted with that.");
}

static void stranger_error(struct pg_error *err, const struct ask *a)
{
	pg_error_set(
		err, "3F000", "the queue schema is not installed in database \"%s\"", a->db->name);
	pg_error_detail(err,
		"It is installed by itself for a superuser, the owner of the database (\"%s\") and "
		"queue_user only, not for \"%s\": whoever installs it is trusted by all who use it.",
		a->who, pool_user(a->pool));
	pg_error_hint(err,
		"As the owner of the database: any QUEUE statement, or qbouncer --print-schema | psql -d %s, or INSTALL %s AS %s on the console.",
		a->db->name, a->db->name, a->who);
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
		finish(a->db, SCHEMA_ABSENT, a->pool, &absent);
	} else {
		log_info("%s: the queue schema is installed (as role %s)", a->db->name,
			pool_user(a->pool));
		/* the operator may have named a role that is not trusted: then it is found out */
		finish(a->db, a->done != NULL ? SCHEMA_UNKNOWN : SCHEMA_PRESENT, a->pool, NULL);
	}
	if (a->done != NULL)
		a->done(a->done_arg, pool_user(a->pool), err);
	mem_free(a);
}

static bool install(struct ask *a)
{
	static const struct task_ops ops = {.done = install_done};
	struct task_spec spec = {
		.ops = &ops, .arg = a, .sql = queue_install_sql, .script = true, .time = TASK_SLOW};

	return task_submit(a->pool, &spec) != NULL;
}

static void number_row(void *arg, const uint8_t *body, size_t len)
{
	struct ask *a = arg;
	struct wire_col number = wire_row_value(body, len);

	if (number.len > 0 && !wire_col_number(&number, &a->number))
		a->number = 0;
}

/* One column, text: a letter and a name. */
static void found_row(void *arg, const uint8_t *body, size_t len)
{
	struct ask *a = arg;
	struct wire_col found = wire_row_value(body, len), who = found;

	if (found.len <= 0)
		return;
	a->found = (char)found.data[0];
	who.data++;
	who.len--;
	wire_col_copy(&who, a->who, sizeof(a->who));
}

/* It ended without an installation. */
static void asked(struct ask *a, enum schema_state state, const struct pg_error *err)
{
	if (a->looked == NULL || (err == NULL && a->db->schema != SCHEMA_PRESENT))
		finish(a->db, state, a->pool, err);
	if (a->looked != NULL)
		a->looked(a->db, err);
	mem_free(a);
}

static void absent(struct ask *a)
{
	struct pg_error err;

	if (!conf_current()->p.queue_auto_install || a->looked != NULL) {
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

static void exists_done(void *arg, const struct pg_error *err);

/* What Postgres' own roles own, from 16384 on they are somebody's; 10 is the first superuser. */
#define PINNED(table, prefix)                                                                      \
	" UNION SELECT x." prefix "owner FROM s JOIN pg_catalog." table " AS x ON x." prefix       \
	"namespace = s.oid WHERE x." prefix "owner < 16384 AND x." prefix "owner <> 10"            \
	" AND EXISTS (SELECT FROM pg_catalog.pg_auth_members AS m JOIN t ON t.oid = m.member"      \
	" WHERE m.roleid < 16384 AND m.roleid <> 10 AND m.member >= 16384 AND NOT t.trusted)"
#define PINNED_OF_ALL PINNED("pg_proc", "pro") PINNED("pg_class", "rel") PINNED("pg_type", "typ")

/*
 * A look at the catalogue before the function is called: a call of what is not there leaves it in
 * that session's memory that there is no such schema, and in a transaction that has begun by then
 * Postgres goes on believing it after the installation. And what is there may be somebody's own.
 */
static bool ask_exists(struct ask *a)
{
	static const struct task_ops ops = {.row = found_row, .done = exists_done};
	static const char look[] =
		"WITH s AS (SELECT n.oid, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'queue'),"
		" t AS (SELECT r.oid, r.rolname AS name, pg_catalog.pg_has_role(r.oid, d.datdba, 'MEMBER') OR r.rolname = $1 AS trusted,"
		" pg_catalog.pg_get_userbyid(d.datdba) AS dba FROM pg_catalog.pg_roles AS r, pg_catalog.pg_database AS d"
		" WHERE d.datname = pg_catalog.current_database()),"
		/* what those own who are not trusted: what the schema has is two hundred thousand functions with ten thousand
		 * queues. A subquery for each class: an EXISTS may become a scan */
		" o AS (SELECT s.nspowner AS oid FROM s"
		" UNION SELECT t.oid FROM s, t JOIN pg_catalog.pg_shdepend AS h ON h.refobjid = t.oid AND h.deptype = 'o'"
		" AND h.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND h.dbid ="
		" (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())"
		" WHERE NOT t.trusted AND s.oid = CASE h.classid"
		" WHEN 'pg_catalog.pg_proc'::pg_catalog.regclass"
		" THEN (SELECT p.pronamespace FROM pg_catalog.pg_proc AS p WHERE p.oid = h.objid)"
		" WHEN 'pg_catalog.pg_class'::pg_catalog.regclass"
		" THEN (SELECT c.relnamespace FROM pg_catalog.pg_class AS c WHERE c.oid = h.objid)"
		" WHEN 'pg_catalog.pg_type'::pg_catalog.regclass"
		" THEN (SELECT y.typnamespace FROM pg_catalog.pg_type AS y WHERE y.oid = h.objid) END"
		/* of what belongs to one of Postgres' own roles there is nothing; read where somebody may have become one */
		PINNED_OF_ALL "),"
		" c AS (SELECT a.grantee AS oid FROM s, LATERAL pg_catalog.aclexplode(s.nspacl) AS a WHERE a.privilege_type = 'CREATE')"
		" SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_proc AS p, s"
		" WHERE p.pronamespace = s.oid AND p.proname = 'version')"
		" THEN (SELECT CASE WHEN t.trusted THEN 'n' ELSE 's' END || t.dba FROM t WHERE t.name = current_user)"
		" ELSE coalesce((SELECT 'o' || pg_catalog.min(t.name::text) FROM o JOIN t ON t.oid = o.oid WHERE NOT t.trusted),"
		" (SELECT 'c' || pg_catalog.min(coalesce(t.name::text, 'PUBLIC')) FROM c LEFT JOIN t ON t.oid = c.oid WHERE t.trusted IS NOT TRUE),"
		" 'p') END";
	static const uint32_t oids[] = {OID_TEXT};
	struct pool_target target;
	const char *user;
	struct bind_param params[1];
	struct task_spec spec = {
		.ops = &ops, .arg = a, .sql = look, .oids = oids, .n_params = 1, .params = params};

	pool_target(a->pool, &target);
	user = conf_queue_user(target.queue_user, NULL, NULL);
	params[0] =
		(struct bind_param){.data = (const uint8_t *)user, .len = (int32_t)strlen(user)};
	a->found = FOUND_NOTHING;
	return task_submit(a->pool, &spec) != NULL;
}

static void exists_done(void *arg, const struct pg_error *why)
{
	static const struct task_ops ops = {.row = number_row, .done = version_done};
	struct ask *a = arg;
	struct task_spec spec = {.ops = &ops, .arg = a, .sql = queue_calls[CALL_VERSION].sql};
	struct pg_error err;

	if (why != NULL && strcmp(why->sqlstate, "08007") == 0 && !a->again) {
		a->again = true;
		if (!ask_exists(a))
			asked(a, SCHEMA_ABSENT, why);
	} else if (why != NULL) {
		asked(a, SCHEMA_ABSENT, why);
	} else if (a->found == FOUND_NOTHING) {
		absent(a);
	} else if (a->found == FOUND_STRANGER) {
		if (conf_current()->p.queue_auto_install)
			stranger_error(&err, a);
		else
			absent_error(&err, a->db, NULL);
		asked(a, SCHEMA_ABSENT, &err);
	} else if (a->found != FOUND_PRESENT) {
		distrust_error(&err, a);
		if (loop_now() - a->db->told_distrust >= TELL_AGAIN || a->db->told_distrust == 0) {
			log_warning("%s: queues are not used: %s", a->db->name, err.message);
			a->db->told_distrust = loop_now();
		}
		asked(a, SCHEMA_ABSENT, &err);
	} else if (task_submit(a->pool, &spec) == NULL) {
		pg_error_set(&err, "53200", "out of memory");
		asked(a, SCHEMA_ABSENT, &err);
	}
}

bool schema_look(
	struct qdb *db, struct pool *pool, void (*done)(struct qdb *db, const struct pg_error *err))
{
	struct ask *a = mem_zalloc(sizeof(*a));

	CHECK_QDB(db);
	if (a == NULL)
		return false;
	a->db = db;
	a->pool = pool;
	a->looked = done;
	if (ask_exists(a))
		return true;
	mem_free(a);
	return false;
}

static bool ask(struct qdb *db, struct pool *pool)
{
	if (!schema_look(db, pool, NULL))
		return false;
	db->schema = SCHEMA_ASKING;
	return true;
}

bool schema_ready(struct qdb *db, struct client *c, bool *ret_absent, struct pg_error *err)
{
	const struct schema_failure *failure;
	struct qclient *qc = qclient_find(c);

	CHECK_QDB(db);
	if (db->schema == SCHEMA_PRESENT)
		return true;
	failure = db->schema == SCHEMA_ABSENT ? failure_of(db, pool_user(client_pool(c))) : NULL;
	if (failure != NULL) {
		*err = failure->err;
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
	CHECK_QDB(db);
	CHECK_QCLIENT(qc);
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

	CHECK_QDB(db);
	CHECK_QCLIENT(qc);
	while (*at != NULL && *at != qc)
		at = &(*at)->asking_next;
	if (*at != NULL)
		*at = qc->asking_next;
	qc->asking_schema = false;
}

void schema_suspect(struct qdb *db)
{
	CHECK_QDB(db);
	if (db->schema == SCHEMA_PRESENT)
		db->schema = SCHEMA_UNKNOWN;
}

/* A statement failed for whatever reason. */
void schema_doubt(struct qdb *db)
{
	CHECK_QDB(db);
	if (loop_now() - db->asked_at >= ASK_AGAIN)
		schema_suspect(db);
}

bool queue_install(const char *database, const char *user,
	void (*done)(void *arg, const char *role, const struct pg_error *err), void *arg)
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
