/*
 * Maintenance: what queues have kept for long enough (retain_done, retain_dead) is deleted through
 * the system session of each database, every queue_maintenance, by one proxy at a time. A round is
 * made of short steps with pauses between them, so that neither the database nor the session is
 * kept busy.
 *
 * Knows nothing of the session: system.c asks for a step when it has nothing else to do, sends it,
 * and says what came of it. Entry points: maintain_*.
 */
#include <stdio.h>

#include "queue_int.h"

#define FIRST_AFTER (5 * USEC_SEC)    /* the session came up */
#define PAUSE       (100 * USEC_MSEC) /* between two steps of a round */
#define STEP_ROWS   500
#define STEP_MS     20

void maintain_up(struct qdb *db)
{
	usec_t period = conf_current()->p.queue_maintenance;

	db->maintenance.at = loop_now() + (period < FIRST_AFTER ? period : FIRST_AFTER);
	db->maintenance.after = 0;
}

usec_t maintain_at(const struct qdb *db)
{
	return conf_current()->p.queue_maintenance > 0 ? db->maintenance.at : USEC_NEVER;
}

bool maintain_step(struct qdb *db, char *sql, size_t size)
{
	struct maintenance *m = &db->maintenance;

	m->goes_on = false;
	if (db->schema != SCHEMA_PRESENT) {
		m->at = loop_now() + conf_current()->p.queue_maintenance;
		return false;
	}
	snprintf(sql, size, "SELECT deleted, next, denied FROM queue._maintain_alone(%d, %d, %d)",
		m->after, STEP_ROWS, STEP_MS);
	return true;
}

void maintain_result(struct qdb *db, int64_t deleted, int64_t next, int64_t denied)
{
	struct maintenance *m = &db->maintenance;

	m->deleted += (uint64_t)deleted;
	m->of_round += (uint64_t)deleted;
	m->denied += (uint64_t)denied;
	m->goes_on = next >= 0;
	m->after = next >= 0 ? (int32_t)next : 0;
}

static void round_ended(struct qdb *db, struct maintenance *m)
{
	if (m->of_round > 0)
		log_info("%s: maintenance deleted %llu jobs that had been kept long enough",
			db->name, (unsigned long long)m->of_round);
	if (m->denied > 0 && !m->warned) {
		log_warning(
			"%s: maintenance may not clean all queues, %llu are left out: the role of the system "
			"session has no right to delete from them (queue_user)",
			db->name, (unsigned long long)m->denied);
		m->warned = true;
	}
	m->of_round = m->denied = 0;
}

void maintain_ended(struct qdb *db)
{
	struct maintenance *m = &db->maintenance;

	if (!m->goes_on)
		round_ended(db, m);
	m->at = loop_now() + (m->goes_on ? PAUSE : conf_current()->p.queue_maintenance);
}

void queue_stat_each_maintenance(
	void (*fn)(const char *database, uint64_t deleted, void *arg), void *arg)
{
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		fn(db->name, db->maintenance.deleted, arg);
}
