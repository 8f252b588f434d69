/*
 * What runs jobs beside the clients, for however long: so much of the limits of a database and a user is left to clients,
 * and pools take turns with the rest. Must not know who is given a server.
 */
#include <limits.h>

#include "net/team.h"
#include "need.h"
#include "pool/demand.h"

/* What runs beside the clients, for however long, leaves them one of the servers that there may be of the database, or of
 * the user: so many more of it there may be. Each process has its part; one server alone is for all. */
static unsigned beside_left(const struct pool *p, bool of_db, unsigned unused)
{
	int max = of_db ? p->db->max_connections : account_limits(p->account)->max_servers;
	unsigned n = 0, part;

	if (max <= 1)
		return UINT_MAX;
	part = (unsigned)(max - 1) / (unsigned)team_size();
	if (part == 0)
		part = 1;
	for (const struct database *db = route_first(); db != NULL; db = db->next)
		for (const struct pool *other = db->pools; other != NULL; other = other->next)
			if (of_db ? db == p->db : other->account == p->account)
				n += pool_beside(other);
	return n < part + unused ? part + unused - n : 0;
}

static bool leaves_none(const struct pool *p, bool of_db)
{
	return beside_left(p, of_db, 0) == 0;
}

/* ... where those that are only kept make room. */
static unsigned beside_room(const struct pool *p)
{
	unsigned of_db = beside_left(p, true, kept_unused(p, true));
	unsigned of_user = beside_left(p, false, kept_unused(p, false));

	return of_db < of_user ? of_db : of_user;
}

/* The first one that waits to run beside the clients. */
static const struct task *first_beside(const struct pool *p)
{
	unsigned left = HELD_LOOK;

	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next)
		if (t->kept == NULL && t->time == TASK_BESIDE)
			return t;
		else
			left--;
	return NULL;
}

static bool any_idle(const struct pool *p, bool of_db)
{
	for (const struct database *db = route_first(); db != NULL; db = db->next)
		for (const struct pool *other = db->pools; other != NULL; other = other->next)
			if ((of_db ? db == p->db : other->account == p->account) &&
				other->servers[SERVER_IDLE].count +
						other->servers[SERVER_KEPT].count >
					0)
				return true;
	return false;
}

static bool is_full_of_busy(const struct pool *p, bool of_db)
{
	return (of_db ? pool_db_is_full(p) : pool_user_is_full(p)) && !any_idle(p, of_db);
}

/* Is there a server for a job of it, or comes one, or may one be made? */
static bool may_have_one(const struct pool *p)
{
	const struct server *s;

	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (!s->use.engine && pool_may_use(s))
			return true;
	if (need_logins(p) > 0)
		return true;
	return !is_full_of_busy(p, true) && !is_full_of_busy(p, false) &&
	       need_servers_there(p) + p->engines.n < need_task_limit(p);
}

/* Has a job there waited for long, and for longer, that could run now? */
static bool goes_first_beside(const struct pool *other, usec_t since)
{
	const struct task *t = first_beside(other);

	return t != NULL && t->since < since && demand_starves(t->since, false, loop_now()) &&
	       !route_stopped(other->db) && !pool_holding_back(other, loop_now()) &&
	       beside_room(other) > 0 && may_have_one(other);
}

/* ... for those of p now. Its next job would be there before those of other pools, each time; they count where the limit is
 * theirs, too. */
unsigned beside_turn(const struct pool *p)
{
	unsigned of_db = beside_left(p, true, kept_unused(p, true));
	unsigned of_user = beside_left(p, false, kept_unused(p, false));
	const struct task *t = (of_db < UINT_MAX || of_user < UINT_MAX) && of_db > 0 && of_user > 0
				       ? first_beside(p)
				       : NULL;

	if (t == NULL)
		return of_db < of_user ? of_db : of_user;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL && of_db > 0 && of_user > 0;
			other = other->next) {
			bool its_db = of_db < UINT_MAX && db == p->db;
			bool its_user = of_user < UINT_MAX && other->account == p->account;

			if (other == p || !(its_db || its_user) ||
				!goes_first_beside(other, t->since))
				continue;
			pool_mark_ready(other);
			of_db -= its_db;
			of_user -= its_user;
		}
	return of_db < of_user ? of_db : of_user;
}

/* Tasks that are not to run beside the clients now, though servers were free. */
unsigned beside_held(const struct pool *p)
{
	unsigned n = 0, left = HELD_LOOK, room;

	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next)
		if (t->kept == NULL && t->time == TASK_BESIDE)
			n++;
		else
			left--;
	if (n == 0)
		return 0;
	room = beside_turn(p);
	return n > room ? n - room : 0;
}

/* What is only kept under that limit makes room. */
bool beside_is_held(struct pool *p)
{
	bool held = false;

	for (int of_db = 0; of_db < 2; of_db++)
		if (leaves_none(p, of_db != 0)) {
			kept_makes_room(p, of_db != 0);
			held = true;
		}
	return held;
}
