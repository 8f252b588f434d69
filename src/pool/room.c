/*
 * Places of limits over several pools: whose claim to one goes before (demand.h), what makes room for a new server, and
 * which server is given up for a pool that waits elsewhere, here or in another process (places.h). Who of a pool is served
 * is none of its business.
 *
 * Entry points: room_*.
 */
#include "net/team.h"
#include "need.h"
#include "pool/demand.h"
#include "pool/places.h"
#include "room.h"

#define TO_SERVE (100 * USEC_MSEC) /* a server that has come is left so long to who waits for it */

/* Somebody waits for it, and nobody has had it yet: its login would have been for nothing. */
static bool is_to_serve(const struct server *s, usec_t now)
{
	return !s->use.served && s->idle_since + TO_SERVE > now &&
	       need_since(s->pool) != USEC_NEVER;
}

/* The idle server that nobody has used for longest, of a database or of a user; not of p. */
static struct server *longest_idle(const struct pool *p, bool of_db)
{
	static const enum server_state idle[] = {SERVER_IDLE, SERVER_KEPT};
	struct server *found = NULL, *s;
	usec_t now = loop_now();

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL; other = other->next) {
			if (other == p || (of_db ? db != p->db : other->account != p->account))
				continue;
			for (size_t i = 0; i < ARRAY_LEN(idle); i++)
				DL_FOREACH (other->servers[idle[i]].head, s)
					if ((found == NULL || s->idle_since < found->idle_since) &&
						!is_to_serve(s, now))
						found = s;
		}
	return found;
}

/* Between pools who has any waits for those, unless they stay in use. Those that run jobs beside it may do so for hours. */
static struct demand demand_of(const struct pool *p)
{
	return (struct demand){
		.since = pool_servers_counted(p) == 0 ? need_waits_since(p) : USEC_NEVER,
		.starves_since = need_starves(p) ? need_since(p) : USEC_NEVER,
	};
}

static struct place_need need_of(const struct pool *p, bool of_db)
{
	bool full = of_db ? pool_db_is_full(p) : pool_user_is_full(p);
	bool idle = full && longest_idle(p, of_db) != NULL;

	return (struct place_need){.is_idle = idle,
		.is_lacked = full && !idle &&
			     !demand_may_wait(need_in_vain_since(p), pool_limit_free_at(p, of_db),
				     loop_now())};
}

static bool lacks(const struct pool *p, bool of_db)
{
	return need_of(p, of_db).is_lacked;
}

/* ... that a place of p would not help. */
static bool lacks_more(const struct pool *other, const struct pool *p)
{
	return (other->db != p->db && lacks(other, true)) ||
	       (other->account != p->account && lacks(other, false));
}

/* The pool with a claim to a limit that it shares with p, and a use for a server, that has waited longest, and longer
 * than `since`. */
static struct pool *starving(const struct pool *p, bool of_db, bool of_user, usec_t since)
{
	struct pool *found = NULL;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL; other = other->next) {
			struct demand c;

			if (other == p || pool_waits_since(other) >= since ||
				!((of_db && db == p->db) ||
					(of_user && other->account == p->account)) ||
				pool_tasks_stopped(other) || pool_holding_back(other, loop_now()))
				continue;
			c = demand_of(other);
			if (!demand_goes_before(&c, since, 0) || need_servers(other) == 0 ||
				lacks_more(other, p))
				continue;
			found = other;
			since = c.starves_since < c.since ? c.starves_since : c.since;
		}
	return found;
}

/* The last place is for who waits longest, be it in another pool. */
bool room_is_for_another(struct pool *p)
{
	usec_t since = need_starves(p) ? need_since(p) : need_waits_since(p);
	struct pool *other;

	other = starving(p, pool_db_has_one_left(p), pool_user_has_one_left(p), since);
	if (other == NULL)
		return false;
	pool_mark_ready(other);
	return true;
}

/* It is told of the next one that is free (room_tell()). */
static bool finds_no_place(struct pool *p)
{
	p->missed_at = p->db->missed_at = p->account->missed_at = loop_now();
	return false;
}

/* A server of another pool that has nothing to do goes, when p may have no further one otherwise; first
 * one of its own that is only the engine's, or is kept for somebody. */
bool room_make(struct pool *p)
{
	bool full = pool_db_is_full(p) || pool_user_is_full(p);
	struct server *of_db = NULL, *of_user = NULL;
	struct server *s = full ? engines_longest_idle(p) : NULL;

	if (room_is_for_another(p))
		return finds_no_place(p);
	if (full && s == NULL)
		s = kept_longest_idle(p);
	if (s != NULL)
		server_close(s, "makes room for a client", NULL);
	if (pool_db_is_full(p) && (of_db = longest_idle(p, true)) == NULL)
		return finds_no_place(p);
	if (pool_user_is_full(p) && (of_user = longest_idle(p, false)) == NULL)
		return finds_no_place(p);
	if (of_db != NULL)
		server_close(of_db, "evicted: max_db_connections", NULL);
	if (of_user != NULL && of_user != of_db)
		server_close(of_user, "evicted: max_user_connections", NULL);
	return true;
}

/* The server that is free here makes room there. */
bool room_gives_way(struct pool *p, struct server *s, usec_t since)
{
	bool db_full = pool_db_is_full(p), user_full = pool_user_is_full(p);
	usec_t first = need_waits_since(p);
	struct pool *other = NULL;

	if (!s->use.served)
		return false;
	p->db->free_at = p->account->free_at = loop_now();
	/* who goes before the first client of its pool would get the place again */
	since = first < since ? first : since;
	if (team_self() != 0 && places_claimed() && places_wanted(s, since, need_most(p))) {
		server_close(s, "makes room for another process", NULL);
		return true;
	}
	if (db_full || user_full)
		other = starving(p, db_full, user_full, since);
	if (other == NULL)
		return false;
	server_close(s, "makes room for one who waits longer", NULL);
	pool_mark_ready(other);
	return true;
}

/* Does a task wait that may only run where clients do, and nothing of that kind is free or to come? Its client may be
 * the one that has what there is. */
static bool other_task_waits(struct pool *p)
{
	unsigned left = HELD_LOOK;

	if (need_logins(p) > 0 || pool_take_idle(p, false) != NULL)
		return false;
	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next, left--)
		if (!t->engine && t->kept == NULL)
			return true;
	return false;
}

/* The engine's server that is free here makes room for those who have none at all. */
bool room_engine_gives_way(struct pool *p, struct server *s)
{
	bool clients = engines_others(p) == 0 && p->waiting.count + p->greeting.count > 0;

	if (!s->use.engine || (!pool_db_is_full(p) && !pool_user_is_full(p)) ||
		(!clients && !other_task_waits(p)))
		return false;
	server_close(s, "makes room for a client", NULL);
	return true;
}

/* Idle, and left for nobody. */
static struct server *unused(const struct pool *p, usec_t now)
{
	struct server *s;

	if (!route_stopped(p->db))
		DL_FOREACH (p->servers[SERVER_IDLE].head, s)
			if (!s->use.engine && pool_may_use(s) && !is_to_serve(s, now))
				return s;
	return engines_longest_idle(p);
}

/* What nobody here could use may be wanted elsewhere: clients that wait have been served, or their pool has all it may.
 * A task may wait for a certain one. */
void room_give(struct pool *p, usec_t now)
{
	bool tasks = need_usable_tasks(p) > 0;
	usec_t since = tasks ? need_since(p) : USEC_NEVER;
	unsigned most = tasks ? need_task_limit(p) : 0;
	struct server *s;

	while ((s = unused(p, now)) != NULL && places_wanted(s, since, most))
		server_close(s, "makes room for another process", NULL);
	while ((s = kept_longest_idle(p)) != NULL && places_wanted(s, USEC_NEVER, 0))
		server_close(s, "makes room for another process", NULL);
}

/* Nothing more can be had here. */
void room_want(struct pool *p)
{
	usec_t of_clients = need_clients_since(p);
	unsigned tasks = need_tasks(p);
	struct place_want w;

	if (tasks > 0)
		need_beside_linked(p);
	w = (struct place_want){.since = tasks > 0 ? need_tasks_since(p, of_clients) : of_clients,
		.starves = need_starves(p),
		.for_clients = of_clients != USEC_NEVER ? need_client_limit(p, loop_now()) : 0,
		.for_tasks = tasks > 0 ? need_task_limit(p) : 0,
		.most = need_task_limit(p)};

	if (w.since == USEC_NEVER || p->servers[SERVER_LOGIN].count > 0 ||
		pool_holding_back(p, loop_now()) || pool_tasks_stopped(p))
		return;
	if (p->db->max_connections > 0 && account_limits(p->account)->max_servers > 0) {
		w.db = need_of(p, true);
		w.user = need_of(p, false);
	}
	places_want(p, &w);
}

/* A server of p has nothing to do, or has gone: who has found no place of its limits looks again. false: there is
 * nobody. */
bool room_tell(struct pool *p)
{
	bool missed = p->db->missed_at != 0 || p->account->missed_at != 0;
	bool idle = p->servers[SERVER_IDLE].count + p->servers[SERVER_KEPT].count > 0;
	bool news = p->place_free || (p->came_free && idle);

	p->place_free = p->came_free = false;
	if (!missed || !news)
		return false;
	p->db->missed_at = p->account->missed_at = p->missed_at;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL; other = other->next)
			if (other != p && other->missed_at != 0 &&
				(db == p->db || other->account == p->account)) {
				other->missed_at = 0;
				pool_mark_ready(other);
			}
	return true;
}
