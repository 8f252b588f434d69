/*
 * Who need not be told. What other proxies push is news for those who wait here, and for takes, which begin at low marks:
 * a job with an earlier place may be committed late. A proxy in which nobody has taken or waited for a while needs neither.
 * It says so with a second advisory lock of its system session (a chore of system.h), which others see beside the one of
 * its number (registry.c): so nobody can say it for another one. A lone push is spared the transaction of its NOTIFY.
 *
 * The first take wakes it: the lock is given up and all are told, in one statement beside that take. What others have
 * left unsaid until they hear that they tell then (outbox.h). So what the first takes may not have seen is told, and what
 * was remembered before is forgotten.
 *
 * Must not know: who the others are.
 *
 * Entry points: taking_begins(), taking_ended(), asleep_start().
 */
#include "asleep.h"
#include "head.h"
#include "queue_int.h"
#include "registry.h"
#include "system.h"

#define WAKE_AGAIN (1 * USEC_SEC) /* it could not be said */

static void wake_up(struct qdb *db)
{
	db->asleep.on = false;
	heads_to_ground(db);
	system_work(db);
}

void taking_begins(struct qdb *db)
{
	CHECK_QDB(db);
	db->asleep.takers++;
	if (db->asleep.on)
		wake_up(db);
}

void taking_ended(struct qdb *db)
{
	CHECK_QDB(db);
	INVARIANT(db->asleep.takers > 0, "more takes have ended than begun");
	if (--db->asleep.takers == 0)
		db->asleep.since = loop_now();
}

/* --- in the system session --- */

/* Where nobody else is nobody can be spared anything; and who is not seen by others is not told. */
static usec_t may_sleep_at(const struct qdb *db)
{
	const struct asleep *a = &db->asleep;
	usec_t after = conf_current()->p.queue_sleep_after, at = a->since + after;

	if (a->takers > 0 || after == 0 || registry_stamp(db) == 0 ||
		system_others(db) < OTHERS_ASLEEP)
		return USEC_NEVER;
	return at > a->next_sleep ? at : a->next_sleep;
}

static usec_t due(const struct qdb *db)
{
	const struct asleep *a = &db->asleep;

	if (!a->said)
		return may_sleep_at(db);
	return !a->on || conf_current()->p.queue_sleep_after == 0 ? a->next_wake : USEC_NEVER;
}

static bool step(struct qdb *db, struct buf *sql)
{
	struct asleep *a = &db->asleep;
	int id = registry_number(db);

	if (due(db) > loop_now())
		return false;
	a->wakes = a->said;
	a->locked = false;
	if (a->wakes) {
		if (a->on)
			wake_up(db);
		buf_printf(sql,
			"SELECT pg_catalog.pg_advisory_unlock_shared(" ASLEEP_CLASS
			", %d), pg_catalog.pg_notify('" SYSTEM_CHANNEL "', '" SYSTEM_AWAKE "')",
			id);
		return true;
	}
	a->said = a->on = true;
	buf_printf(sql, "SELECT pg_catalog.pg_try_advisory_lock_shared(" ASLEEP_CLASS ", %d)", id);
	return true;
}

static void row(struct qdb *db, const char *const *cols, int n)
{
	if (!db->asleep.wakes)
		db->asleep.locked = n > 0 && cols[0] != NULL && cols[0][0] == 't';
}

/* What has failed may have been done all the same: locks of a session outlive that. */
static void ended(struct qdb *db, bool failed)
{
	struct asleep *a = &db->asleep;

	if (a->wakes) {
		a->said = failed;
		a->next_wake = failed ? loop_now() + WAKE_AGAIN : 0;
		return;
	}
	if (a->locked && !failed)
		return;
	/* or somebody else has locked our number alone */
	a->said = failed;
	a->next_sleep = loop_now() + conf_current()->p.queue_sleep_after;
	if (a->on)
		wake_up(db);
}

static void session_up(struct qdb *db)
{
	struct asleep *a = &db->asleep;

	a->said = false;
	a->next_sleep = a->next_wake = 0;
	a->since = loop_now();
}

/* Its locks have ended with it. What is pushed meanwhile nobody tells. */
static void session_down(struct qdb *db)
{
	CHECK_QDB(db);
	db->asleep.said = db->asleep.locked = false;
}

void asleep_start(void)
{
	static const struct system_listener listener = {.up = session_up, .down = session_down};
	static const struct system_chore chore = {
		.due = due, .step = step, .row = row, .ended = ended};

	system_listen(&listener);
	system_add_chore(&chore);
}
