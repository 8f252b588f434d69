/*
 * The queue's system session, which is libpq's in the program: here it is up from the start, and
 * notifications of other proxies are steps of the dialogue. Who listens and what is done in it are those of the
 * program.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../src/queue/queue_int.h"
#include "../../src/queue/system.h"
#include "../../src/queue/registry.h"
#include "../../src/queue/wakes.h"
#include "program.h"

static bool down;
static bool says_asleep; /* by a lock that it holds */
static enum system_others others;
static char last_notify[QSTMT_QUEUE_MAX + 1];
static const struct system_listener *listeners[SYSTEM_LISTENERS_MAX];
static const struct system_chore *chores[SYSTEM_CHORES_MAX];
static size_t n_listeners, n_chores;

/* The program starts several times. */
void system_listen(const struct system_listener *l)
{
	for (size_t i = 0; i < n_listeners; i++)
		if (listeners[i] == l)
			return;
	ASSERT(n_listeners < ARRAY_LEN(listeners));
	listeners[n_listeners++] = l;
}

void system_add_chore(const struct system_chore *c)
{
	for (size_t i = 0; i < n_chores; i++)
		if (chores[i] == c)
			return;
	ASSERT(n_chores < ARRAY_LEN(chores));
	chores[n_chores++] = c;
}

void system_need(struct qdb *db, struct pool *pool)
{
	(void)db, (void)pool;
}

void system_free(struct qdb *db)
{
	(void)db;
	down = says_asleep = false;
	others = OTHERS_UNKNOWN;
	last_notify[0] = '\0';
}

void system_rest(struct qdb *db)
{
	(void)db;
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

const char *system_role(const struct qdb *db)
{
	(void)db;
	return NULL;
}

void system_looked(struct qdb *db, enum system_others seen, bool counts)
{
	(void)db, (void)counts;
	others = seen;
}

enum system_others system_others(const struct qdb *db)
{
	(void)db;
	return others;
}

const char *program_others(void)
{
	static const char *const words[] = {"unknown", "none", "asleep", "awake"};

	return words[others];
}

bool program_is_asleep(void)
{
	return says_asleep;
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

void system_notify_all(struct qdb *db, const char *event)
{
	system_notify(db, event);
}

const char *program_told(void)
{
	return last_notify;
}

static void hello(struct qdb *db)
{
	for (size_t i = 0; i < n_listeners; i++)
		if (listeners[i]->hello != NULL)
			listeners[i]->hello(db);
}

void program_awake(void)
{
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		for (size_t i = 0; i < n_listeners; i++)
			if (listeners[i]->awake != NULL)
				listeners[i]->awake(db);
}

/* What another proxy's NOTIFY does here. */
void program_notify(const char *queue)
{
	struct qdb *db, *tmp;

	HASH_ITER (hh, qdb_first(), db, tmp)
		if (queue[0] != '\0')
			waitq_wake(db, queue, 0);
		else
			hello(db);
}

/* --- who is there --- */

static void answer(const struct system_chore *c, struct qdb *db, const char *id, const char *own,
	const char *asleep)
{
	const char *cols[] = {id, "10", own, asleep};

	c->row(db, cols, ARRAY_LEN(cols));
}

/* The number that the statement locks is ours, and is to be had; the look sees it, and these (7s: it sleeps), up to one that says while
 * it is under way that it has come: looks after that one see all. */
static void do_step(const struct system_chore *c, struct qdb *db, char *ids)
{
	static char own[16];
	struct buf sql = BUF_INIT;
	const char *cols[] = {"t", ""}, *number;

	if (!c->step(db, &sql)) {
		buf_free(&sql);
		return;
	}
	number = strstr(buf_cstr(&sql), "_shared(");
	if (number != NULL && strstr(number, ASLEEP_CLASS) != NULL) {
		says_asleep = strstr(buf_cstr(&sql), "unlock") == NULL;
		c->row(db, cols, ARRAY_LEN(cols));
	} else if (number != NULL) {
		util_strlcpy(own, strchr(number, ',') + 2, sizeof(own));
		*strchr(own, ')') = '\0';
		c->row(db, cols, ARRAY_LEN(cols));
	} else {
		answer(c, db, own, "t", "f");
		for (char *at = ids; *at != '\0';) {
			char id[16];
			char *end;

			snprintf(id, sizeof(id), "%ld", strtol(at, &end, 10));
			answer(c, db, id, "f", *end == 's' ? "t" : "f");
			end += *end == 's';
			if (*end == '>') {
				*end = ',';
				hello(db);
				break;
			}
			at = *end != '\0' ? end + 1 : end;
		}
	}
	c->ended(db, false);
	buf_free(&sql);
}

/* The session is up and looks. */
void program_proxies(char *ids)
{
	struct qdb *db, *tmp;

	HASH_ITER (hh, qdb_first(), db, tmp) {
		for (size_t i = 0; i < n_listeners; i++)
			if (listeners[i]->hello != NULL && registry_stamp(db) == 0)
				listeners[i]->up(db);
		for (size_t i = 0; i < n_chores; i++) {
			if (chores[i]->due(db) == USEC_NEVER)
				continue; /* without memory nothing is kept of it */
			do
				do_step(chores[i], db, ids);
			while (chores[i]->due(db) <= loop_now());
		}
	}
}

void program_system(bool up)
{
	struct qdb *db, *tmp;

	down = !up;
	HASH_ITER (hh, qdb_first(), db, tmp)
		for (size_t i = 0; i < n_listeners; i++)
			if (!up && listeners[i]->down != NULL)
				listeners[i]->down(db);
			else if (up && listeners[i]->event_of_any != NULL)
				listeners[i]->event_of_any(db);
}

/* There are no other processes. */
void system_heard(struct qdb *db, const char *queue)
{
	for (size_t i = 0; i < n_listeners; i++)
		if (queue != NULL && listeners[i]->event != NULL)
			listeners[i]->event(db, queue);
		else if (queue == NULL && listeners[i]->event_of_any != NULL)
			listeners[i]->event_of_any(db);
}
