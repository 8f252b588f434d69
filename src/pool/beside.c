/*
 * What runs jobs beside the clients, for however long: so much of the limits of a database and a user is left to clients,
 * and pools take turns with the rest. Must not know who is given a server.
 */
#include <limits.h>

#include "net/team.h"
#include "need.h"
#include "pool/demand.h"

static struct {
	bool turns; /* some job waits for one of another pool that goes first (struct pool, turn_before) */
} beside;

/* Of what runs there without an end, something is left to clients. */
static bool is_limited(const struct pool *p)
{
	return p->db->max_connections > 1 || account_limits(p->account)->max_servers > 1;
}

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

/* Would any make room for one of p (room.c)? */
static bool any_idle(const struct pool *p, bool of_db)
{
	for (const struct database *db = route_first(); db != NULL; db = db->next)
		for (const struct pool *other = db->pools; other != NULL; other = other->next)
			if (other != p && (of_db ? db == p->db : other->account == p->account) &&
				other->servers[SERVER_IDLE].count +
						other->servers[SERVER_KEPT].count >
					0)
				return true;
	return engines_longest_idle(p) != NULL || kept_longest_idle(p) != NULL;
}

/* Those of a limit that is full are all busy, and none is likely to come free soon. */
static bool is_full_of_busy(const struct pool *p, bool of_db, usec_t since)
{
	return (of_db ? pool_db_is_full(p) : pool_user_is_full(p)) && !any_idle(p, of_db) &&
	       !demand_may_wait(since, pool_limit_free_at(p, of_db), loop_now());
}

/* Does a server come for that job of it? Who has waited longer has theirs first; one that has not come for so long is
 * nothing to leave a place to. */
static bool comes_one(const struct pool *p, const struct task *job)
{
	const struct client *c = need_clients_since(p) < job->since ? p->waiting.head : NULL;
	const struct server *s;
	unsigned n = 0;

	DL_FOREACH (p->servers[SERVER_LOGIN].head, s)
		n += !s->use.engine && s != p->for_inspection &&
		     !demand_starves(s->connect_time, false, loop_now());
	for (; n > 0 && c != NULL && c->request_time < job->since; c = c->next)
		n--;
	for (const struct task *t = p->tasks; n > 0 && t != job; t = t->next)
		n -= t->kept == NULL;
	return n > 0;
}

/* Is there a server for that job of it, or comes one soon, or may one be made? */
static bool may_have_one(const struct pool *p, const struct task *job)
{
	const struct server *s;

	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (!s->use.engine && pool_may_use(s))
			return true;
	if (need_logins(p) > 0)
		return comes_one(p, job);
	return !is_full_of_busy(p, true, job->since) && !is_full_of_busy(p, false, job->since) &&
	       need_servers_there(p) + p->engines.n < need_task_limit(p);
}

/* Has a job there waited for long, and for longer, that could run now? */
static bool goes_first(const struct pool *other, usec_t since)
{
	const struct task *t = first_beside(other);

	return t != NULL && t->since < since && demand_starves(t->since, false, loop_now()) &&
	       !route_stopped(other->db) && !pool_holding_back(other, loop_now()) &&
	       beside_room(other) > 0 && may_have_one(other, t);
}

/* Its next job would be there before those of other pools, each time; they count where the limit is theirs, too. They are
 * told; or NULL. */
static unsigned turn(const struct pool *p, void (*tell)(struct pool *other, usec_t before))
{
	unsigned of_db = beside_left(p, true, kept_unused(p, true));
	unsigned of_user = beside_left(p, false, kept_unused(p, false));
	const struct task *t = of_db > 0 && of_user > 0 ? first_beside(p) : NULL;

	if (t == NULL)
		return of_db < of_user ? of_db : of_user;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL && of_db > 0 && of_user > 0;
			other = other->next) {
			bool its_db = of_db < UINT_MAX && db == p->db;
			bool its_user = of_user < UINT_MAX && other->account == p->account;

			if (other == p || !(its_db || its_user) || !goes_first(other, t->since))
				continue;
			if (tell != NULL)
				tell(other, t->since);
			of_db -= its_db;
			of_user -= its_user;
		}
	return of_db < of_user ? of_db : of_user;
}

/* ... for those of p now. A PAUSE holds them, though other tasks go on. */
unsigned beside_turn(const struct pool *p)
{
	if (route_stopped(p->db))
		return 0;
	return is_limited(p) ? turn(p, NULL) : UINT_MAX;
}

static void has_its_turn(struct pool *other, usec_t before)
{
	if (other->turn_before < before)
		other->turn_before = before;
	beside.turns = true;
	pool_mark_ready(other);
}

void beside_gives_turn(const struct pool *p)
{
	if (is_limited(p))
		(void)turn(p, has_its_turn);
}

bool beside_tell(void)
{
	bool over = false;

	if (!beside.turns)
		return false;
	beside.turns = false;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			if (p->turn_before == 0)
				continue;
			if (goes_first(p, p->turn_before)) {
				beside.turns = true;
				continue;
			}
			p->turn_before = 0;
			over = true;
		}
	if (over)
		tasks_look_again();
	return over;
}

/* Tasks that are not to run beside the clients now, though servers were free. */
unsigned beside_held(const struct pool *p)
{
	unsigned n = 0, left = is_limited(p) || route_stopped(p->db) ? HELD_LOOK : 0, room;

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
