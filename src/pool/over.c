/*
 * More than there may be: limits were lowered while servers were in use, or more were had for a time (the reserve, those
 * of tasks). What is free goes until they hold. It is looked at by the clock, and while there is more, before anybody is
 * served.
 *
 * Must not know: who is served with what is left.
 */
#include "net/team.h"
#include "need.h"
#include "pool/places.h"

#define TASKS_USE (30 * USEC_SEC) /* servers for tasks are left to them for so long */
#define TELL_USE  (1 * USEC_SEC)  /* ... by other processes, too, which hear of it so often */

void over_task_began(struct pool *p, usec_t now)
{
	CHECK_POOL(p);
	if (team_self() != 0 && now - p->tasks_at >= TELL_USE) {
		places_task_began(p);
		p->tasks_at = now;
	} else if (team_self() == 0) {
		p->tasks_at = now;
	}
}

/* Has any begun of late, in any process? */
static bool has_tasks(const struct pool *p, usec_t now)
{
	usec_t at = team_self() != 0 ? places_tasks_at(p) : p->tasks_at;

	return p->n_tasks > 0 || (at != 0 && now < at + TASKS_USE);
}

/* For its size, with the reserve; where tasks run, with those that they may have. */
static unsigned may_have(const struct pool *p, usec_t now)
{
	unsigned most = (unsigned)route_pool_size(p) + (unsigned)route_reserve_size(p);
	unsigned linked = need_linked(p);
	unsigned beside = need_for_tasks(p); /* those of the engine's own are among them */

	if (linked > most)
		most = linked;
	if (!has_tasks(p, now))
		return most;
	return most + (beside > p->engines.n ? beside - p->engines.n : 0);
}

static struct server *idle_of_clients(const struct pool *p)
{
	struct server *s, *found = NULL;

	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (!s->use.engine && s != p->for_inspection &&
			(found == NULL || s->idle_since < found->idle_since))
			found = s;
	return found;
}

/* What runs jobs may do so for hours: the last server beside it is left to clients, though the limit does not hold yet. */
static bool is_last(const struct pool *p, bool of_db)
{
	unsigned others = 0, beside = 0;

	for (const struct database *db = route_first(); db != NULL; db = db->next)
		for (const struct pool *other = db->pools; other != NULL; other = other->next)
			if (of_db ? db == p->db : other->account == p->account) {
				others += pool_servers_counted(other);
				beside += pool_beside(other);
			}
	return beside > 0 && others <= 1;
}

/* Of a limit over several pools; what is only the engine's, or kept, goes first. */
static struct server *free_of_limit(const struct pool *p, bool of_db)
{
	struct server *s = engines_longest_idle(p);

	if (s == NULL)
		s = kept_longest_idle(p);
	if (s == NULL && !is_last(p, of_db))
		s = idle_of_clients(p);
	return s;
}

static struct server *too_many(const struct pool *p, usec_t now, const char **why)
{
	unsigned engines = (unsigned)conf_current()->p.queue_pool_size;

	if (pool_db_is_exceeded(p)) {
		*why = "beyond max_db_connections";
		return free_of_limit(p, true);
	}
	if (pool_user_is_exceeded(p)) {
		*why = "beyond max_user_connections";
		return free_of_limit(p, false);
	}
	if (p->engines.n >= engines) {
		*why = "beyond queue_pool_size";
		return engines_longest_idle(p);
	}
	if (p->startup == NULL && need_servers_there(p) > may_have(p, now)) {
		*why = "too many servers in the pool";
		return idle_of_clients(p);
	}
	*why = NULL;
	return NULL;
}

void over_look(struct pool *p, usec_t now)
{
	const char *why;
	struct server *s;

	CHECK_POOL(p);
	while ((s = too_many(p, now, &why)) != NULL)
		server_close(s, why, NULL);
	p->over_since = why != NULL ? now : 0;
}

void over_begin(struct database *db)
{
	CHECK_DATABASE(db);
	for (struct pool *p = db->pools; p != NULL; p = p->next) {
		p->over_since = loop_now();
		pool_mark_ready(p);
	}
}
