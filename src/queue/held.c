/*
 * Who holds back vacuum in a database that has queues: under an old snapshot every take reads past the
 * dead rows of all jobs since. Looked for once a minute, in the system session, and told in the log
 * once for each holder; QUEUE HEALTH shows all of them at any time.
 *
 * Must not know: what a queue is. Entry points: held_start(), held_free().
 */
#include "held.h"

#include <stdio.h>
#include <string.h>

#include "mark.h"
#include "queue_call.h"
#include "queue_int.h"
#include "system.h"

#define LOOK_FIRST (1 * USEC_SEC)
#define LOOK_AGAIN (60 * USEC_SEC)

struct held {
	usec_t next_at;
	char told[128]; /* the holder that was; "": nobody holds */
	bool seen;      /* somebody, by the look under way */
};

static void on_up(struct qdb *db)
{
	CHECK_QDB(db);
	/* without memory nobody looks until it comes up again */
	if (db->held == NULL)
		db->held = mem_zalloc(sizeof(*db->held));
	if (db->held != NULL)
		db->held->next_at = loop_now() + LOOK_FIRST;
}

static usec_t step_due(const struct qdb *db)
{
	return db->held != NULL ? db->held->next_at : USEC_NEVER;
}

static bool step(struct qdb *db, struct buf *sql)
{
	db->held->seen = false;
	buf_puts(sql, queue_calls[CALL_HELD].sql);
	return true;
}

/* What it is, its name, for how long, the statement that ends it. Not what it says: that may be secret. */
static void step_row(struct qdb *db, const char *const *cols, int n)
{
	struct held *h = db->held;
	char holder[sizeof(h->told)];

	if (n != 4 || cols[0] == NULL || cols[1] == NULL)
		return;
	h->seen = true;
	(void)snprintf(holder, sizeof(holder), "%s %s", cols[0], cols[1]);
	if (strcmp(holder, h->told) == 0)
		return;
	(void)util_strlcpy(h->told, holder, sizeof(h->told));
	log_warning(
		"%s: %s holds back vacuum, %s: takes read past the dead rows of all jobs since. "
		"QUEUE HEALTH shows it; to end it: %s",
		db->name, holder, cols[2] != NULL ? cols[2] : "", cols[3] != NULL ? cols[3] : "");
}

static void step_ended(struct qdb *db, bool failed)
{
	struct held *h = db->held;

	h->next_at = loop_now() + LOOK_AGAIN;
	if (failed || h->seen || h->told[0] == '\0')
		return;
	log_info("%s: %s does not hold back vacuum any more", db->name, h->told);
	h->told[0] = '\0';
}

void held_start(void)
{
	static const struct system_listener listener = {.up = on_up};
	static const struct system_chore chore = {
		.due = step_due, .step = step, .row = step_row, .ended = step_ended};

	system_listen(&listener);
	system_add_chore(&chore);
}

void held_free(struct qdb *db)
{
	CHECK_QDB(db);
	mem_free(db->held);
	db->held = NULL;
}
