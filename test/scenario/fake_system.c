/*
 * The queue's system session, which is libpq's in the program: here it is up from the start, and
 * notifications of other proxies are steps of the dialogue.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../src/queue/queue_int.h"
#include "program.h"

static bool down;
static char last_notify[QSTMT_QUEUE_MAX + 1];

void system_need(struct qdb *db, struct pool *pool)
{
	(void)db, (void)pool;
}

void system_free(struct qdb *db)
{
	(void)db;
	down = false;
	last_notify[0] = '\0';
}

void system_moved(struct qdb *db)
{
	(void)db;
}

bool system_is_up(const struct qdb *db)
{
	(void)db;
	return !down;
}

bool system_is_named(const struct qdb *db)
{
	(void)db;
	return false;
}

void system_work(struct qdb *db)
{
	(void)db;
}

const char *system_state(const struct qdb *db)
{
	return system_is_up(db) ? "up" : "down: as told";
}

void system_notify_any(struct qdb *db)
{
	system_notify(db, "*");
}

void system_notify(struct qdb *db, const char *queue)
{
	(void)db;
	util_strlcpy(last_notify, queue, sizeof(last_notify));
}

const char *program_told(void)
{
	return last_notify;
}

/* What another proxy's NOTIFY does here. */
void program_notify(const char *queue)
{
	struct qdb *db, *tmp;

	HASH_ITER (hh, qdb_first(), db, tmp)
		waitq_wake(db, queue, 0);
}

/* The session is up and looks: it sees itself and these. */
void program_proxies(const char *ids)
{
	struct qdb *db, *tmp;

	HASH_ITER (hh, qdb_first(), db, tmp) {
		char *end;

		if (registry_stamp(db) == 0)
			registry_up(db);
		registry_look(db);
		registry_see(db, registry_id(db), 10);
		for (const char *at = ids; *at != '\0'; at = *end ? end + 1 : end)
			registry_see(db, (int32_t)strtol(at, &end, 10), 10);
		registry_looked(db);
	}
}

void program_system(bool up)
{
	struct qdb *db, *tmp;

	down = !up;
	if (!up)
		HASH_ITER (hh, qdb_first(), db, tmp)
			registry_down(db);
	if (up)
		HASH_ITER (hh, qdb_first(), db, tmp)
			waitqs_wake_all(db);
}
