/*
 * A job of SQL with DATABASE: its statements are carried out in another database, which is an entry of [databases] of this
 * proxy, and DONE follows. Which entries a role may name is said in the ini. The server there may have nothing of ours.
 *
 * Must not know: when it runs, and what becomes of the job (run_job.c); how its statements follow one another (run_sql.c).
 *
 * Entry points: there_*.
 */
#include <stdio.h>
#include <string.h>

#include "queue_call.h"
#include "queue_int.h"
#include "run_int.h"

void there_free(struct there **p)
{
	struct there *t = *p;

	*p = NULL;
	mem_free(t);
}

bool there_look(struct there **p, const char *name, const struct wire_col *value)
{
	if (*p == NULL && (*p = mem_zalloc(sizeof(**p))) == NULL)
		return false;
	INVARIANT(!(*p)->sent, "where a job runs is told when it is there");
	if (strcmp(name, "database") == 0)
		return wire_col_copy(value, (*p)->database, sizeof((*p)->database));
	return wire_col_copy(value, (*p)->session, sizeof((*p)->session));
}

/* role, or role@entry: of queues in the database of that entry. A role of the same name may be somebody else on another
 * server; one with @ in its name is always named with its entry. */
static bool is_listed(const char *list, const char *role, const char *entry)
{
	char one[160];

	if (strchr(role, '@') == NULL && conf_list_has(list, role))
		return true;
	(void)snprintf(one, sizeof(one), "%s@%s", role, entry);
	return strchr(entry, '@') == NULL && conf_list_has(list, one);
}

/* In the login that its owner would have as a client there. */
struct pool *there_pool(const struct slot *s, struct pg_error *err)
{
	const char *entry = s->there->database, *role = s->queue->owner;
	const struct conf_database *d = conf_find_database(conf_current(), entry);
	struct pool *pool;

	if (d == NULL) {
		pg_error_set(
			err, "3D000", "there is no database \"%s\" where jobs could run", entry);
		pg_error_hint(
			err, "DATABASE names an entry of [databases] in the ini of the proxy.");
		return NULL;
	}
	if (!is_listed(d->queue_run_roles, role, s->queue->db->name)) {
		pg_error_set(err, "42501", "jobs of role \"%s\" may not run in database \"%s\"",
			role, entry);
		pg_error_hint(err,
			"The ini of the proxy has to say that they may: queue_run_roles=%s@%s in the entry of \"%s\".",
			role, s->queue->db->name, entry);
		return NULL;
	}
	if (pooler_is_disabled(entry)) {
		pg_error_set(err, "57P03", "database \"%s\" is disabled", entry);
		pg_error_hint(err, "An operator has disabled it; ENABLE on the console ends that.");
		return NULL;
	}
	pool = pooler_find_pool(entry, d->user != NULL ? d->user : role);
	if (pool == NULL)
		pg_error_set(err, "53200", "out of memory");
	return pool;
}

/*
 * Said there before the job, in its session, which has its name already: whether its login may run jobs, and that an
 * earlier attempt at it is over. The database of the queue has no word in it: what is on the other server is not its
 * owner's to risk. Names are those of the system, whatever search_path the role has there.
 */
#define SAME_SESSION                                                                               \
	" FROM pg_catalog.pg_stat_activity AS a"                                                   \
	" WHERE a.application_name OPERATOR(pg_catalog.=)"                                         \
	" pg_catalog.current_setting('application_name')"                                          \
	" AND a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()"                           \
	" AND a.usename OPERATOR(pg_catalog.=) session_user"                                       \
	" AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
#define BEFORE(check)                                                                              \
	"DO $qbouncer$ DECLARE until CONSTANT pg_catalog.timestamptz :="                           \
	" pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) '10 s'::pg_catalog.interval;"        \
	" orphan pg_catalog.int4; BEGIN " check " LOOP SELECT a.pid INTO orphan" SAME_SESSION      \
	" LIMIT 1; EXIT WHEN NOT FOUND;"                                                           \
	" IF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) until THEN"                       \
	" RAISE EXCEPTION USING ERRCODE = '55006',"                                                \
	" MESSAGE = 'an earlier attempt at this job still runs', DETAIL ="                         \
	" pg_catalog.format('Process %s was told to end, and does not.', orphan); END IF;"         \
	" PERFORM pg_catalog.pg_terminate_backend(orphan); PERFORM pg_catalog.pg_sleep(0.02);"     \
	" PERFORM pg_catalog.pg_stat_clear_snapshot(); END LOOP; END $qbouncer$"
#define NO_SUPERUSER                                                                               \
	"IF EXISTS (SELECT FROM pg_catalog.pg_roles AS r"                                          \
	" WHERE r.rolname OPERATOR(pg_catalog.=) session_user AND r.rolsuper)"                     \
	" THEN RAISE EXCEPTION USING ERRCODE = '42501',"                                           \
	" MESSAGE = 'the login that the job would run in is a superuser', HINT ="                  \
	" 'Use another role there, or allow it with queue_run_superuser in the ini.'; END IF;"

static const char *said_before(void)
{
	return conf_current()->p.queue_run_superuser ? BEFORE("") : BEFORE(NO_SUPERUSER);
}

/* It waits for a server as long as a client would. */
struct task *there_submit(struct slot *s, struct pool *pool, const struct task_ops *ops)
{
	struct there *w = s->there;
	struct task_settings *settings = task_settings_of_pool(pool);
	struct task *t = NULL;
	struct task_spec spec = {.ops = ops,
		.arg = s,
		.settings = settings,
		.sql = said_before(),
		.slow = true,
		.leaves = TASK_LEAVES_SESSION,
		.time = TASK_BESIDE};

	INVARIANT(!w->sent && s->script != NULL, "a job is carried out twice");
	s->script->step = STEP_BEFORE;
	s->script->commits = false;
	s->script->tag[0] = '\0';
	if (w->session[0] != '\0' && (s->alone != NULL || s->script->is_sql) && settings != NULL &&
		task_settings_utf8(settings) && task_settings_name(settings, w->session))
		t = task_submit(pool, &spec);
	task_settings_free(&settings);
	w->sent = t != NULL;
	return t;
}
