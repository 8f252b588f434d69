/*
 * Who waits in a pool and could use a server if there were one, since when, and how many servers there may be for them.
 * It looks, and changes nothing but when it is looked at again. Must not know where a place comes from (room.c).
 *
 * Entry points: need_*, pool_take_idle().
 */
#include "net/team.h"
#include "need.h"
#include "pool/demand.h"
#include "pool/places.h"

#define LOGINS_AT_ONCE 8
#define LINKED_HOLDS   USEC_SEC
#define SHARED_PERIOD  (20 * USEC_MSEC) /* tasks are looked at again for which no server was free */

static struct {
	struct loop_tick *tick; /* tasks that are held back are looked at again */
	uint64_t turn;          /* times that pools were served */
	uint64_t seen;          /* the one of which it is known what runs */
} need;

/* Servers that clients may use: the reserve is added once somebody has waited for too long. */
unsigned need_client_limit(const struct pool *p, usec_t now)
{
	unsigned size = (unsigned)route_pool_size(p);
	const struct client *c = p->waiting.head;
	usec_t patience = conf_current()->p.reserve_pool_timeout;

	if (patience > 0 && c != NULL && now - c->request_time > patience)
		size += (unsigned)route_reserve_size(p);
	return size;
}

/* Clients that could use a server: not where there are as many linked to clients as there may be. */
usec_t need_clients_since(const struct pool *p)
{
	return !route_stopped(p->db) &&
			       p->servers[SERVER_ACTIVE].count < need_client_limit(p, loop_now())
		       ? pool_client_waits_since(p)
		       : USEC_NEVER;
}

/* With an auth_query, who wants to log in waits as a client does; other statements of our own do not get the last
 * place before somebody's client. */
usec_t need_waits_since(const struct pool *p)
{
	return p->lookup ? pool_waits_since(p) : need_clients_since(p);
}

/* Since when the first task waits, before then, that could use a server if one were free; else then. */
usec_t need_tasks_since(const struct pool *p, usec_t since)
{
	unsigned left = HELD_LOOK;
	int held = -1; /* not known */

	for (const struct task *t = p->tasks; t != NULL && left > 0 && t->since < since;
		t = t->next) {
		if (t->kept != NULL || t->time != TASK_BESIDE)
			left--;
		else if (held < 0)
			held = beside_turn(p) == 0;
		if (t->kept == NULL && (t->time != TASK_BESIDE || !held))
			return t->since;
	}
	return since;
}

/* As pool_waits_since(), of those alone who could use a server if one were free. */
usec_t need_since(const struct pool *p)
{
	return need_tasks_since(p, need_clients_since(p));
}

/* Who could use a server of p has waited, and none was given to anybody, since then; USEC_NEVER: nobody waits. */
usec_t need_in_vain_since(const struct pool *p)
{
	usec_t usable = need_since(p);

	return usable != USEC_NEVER && p->served_at > usable ? p->served_at : usable;
}

static bool runs(const struct pool *p)
{
	const struct server *s;

	for (int i = SERVER_ACTIVE; i <= SERVER_TASK; i++)
		DL_FOREACH (p->servers[i].head, s)
			if (!s->use.engine && s->expect.count > 0)
				return true;
	return false;
}

/* Do servers that p may get run anything? All are looked at once while pools are served. */
static bool runs_beside(const struct pool *p)
{
	if (need.seen != need.turn) {
		need.seen = need.turn;
		for (struct database *db = route_first(); db != NULL; db = db->next)
			for (const struct pool *other = db->pools; other != NULL;
				other = other->next)
				if (runs(other))
					db->runs_in = other->account->runs_in = need.turn;
	}
	return p->db->runs_in == need.turn || p->account->runs_in == need.turn;
}

bool need_starves(const struct pool *p)
{
	usec_t since = need_in_vain_since(p), now = loop_now();

	return since != USEC_NEVER && demand_starves(since, false, now) &&
	       (demand_starves(since, true, now) || !runs_beside(p));
}

/* Tasks that could use a server if there were one: not those that are held back, nor those that wait for one that is
 * kept. */
unsigned need_usable_tasks(const struct pool *p)
{
	return p->n_tasks > 0 ? p->n_tasks - p->n_claims - beside_held(p) : 0;
}

unsigned need_for_tasks(const struct pool *p)
{
	return p->lookup ? 0 : (unsigned)conf_current()->p.queue_pool_size;
}

/* Clients may have more than they may by now, and wait for what is to run beside them. Those of other processes are asked
 * for only where tasks wait in vain. */
unsigned need_linked(const struct pool *p)
{
	return team_self() != 0 && p->linked_until > loop_now() ? places_linked(p)
								: p->servers[SERVER_ACTIVE].count;
}

void need_beside_linked(struct pool *p)
{
	if (need_starves(p))
		p->linked_until = loop_now() + LINKED_HOLDS;
}

/* Servers that count and that there may be while tasks wait: those for clients, and a few. */
unsigned need_task_limit(const struct pool *p)
{
	unsigned clients = need_client_limit(p, loop_now()), are = need_linked(p);

	return (are > clients ? are : clients) + need_for_tasks(p);
}

/* Those for clients; once more than that, where tasks of another process have them all. */
static unsigned client_servers(const struct pool *p)
{
	unsigned size = need_client_limit(p, loop_now());

	return team_self() != 0 && p->waiting.count + p->greeting.count > 0 && places_may_exceed(p)
		       ? need_task_limit(p)
		       : size;
}

/* ... for those who wait now. */
unsigned need_most(const struct pool *p)
{
	return need_usable_tasks(p) > 0 ? need_task_limit(p) : client_servers(p);
}

/* Those of the engine's own are for nobody who waits. */
unsigned need_logins(const struct pool *p)
{
	const struct server *s;
	unsigned n = 0;

	DL_FOREACH (p->servers[SERVER_LOGIN].head, s)
		n += !s->use.engine;
	return n;
}

/* Those that count, of a pool with a size of its own in all processes. */
unsigned need_servers_there(const struct pool *p)
{
	bool all = team_self() != 0 && !p->lookup && p->startup == NULL;

	return all ? places_of_pool(p) : pool_servers_counted(p);
}

/* Of a statement that is silent: it goes first (silent.c). */
bool need_inspection(const struct pool *p)
{
	return p->tasks != NULL && p->tasks->is_inspection;
}

struct server *pool_take_idle(struct pool *p, bool for_client)
{
	struct server *s = p->servers[SERVER_IDLE].head, *next;

	CHECK_POOL(p);
	if (for_client ? route_stopped(p->db) : pool_tasks_stopped(p))
		return NULL;
	if (for_client && p->servers[SERVER_ACTIVE].count >= need_client_limit(p, loop_now()))
		return NULL;
	for (; s != NULL; s = next) {
		next = s->next;
		if (s->use.engine)
			continue;
		if (!pool_may_use(s)) {
			if (for_client && s->close_needed)
				server_close(s, "obsolete connection", NULL);
			continue;
		}
		if (!for_client || !server_is_stale(s))
			return s;
		/* one for each who waits, and no more */
		if (p->servers[SERVER_CLEANING].count <= p->waiting.count)
			pool_all.calls->check(s);
	}
	return NULL;
}

/* Of so many that wait: those that go to the engine's own connections, several at once. They are looked at again. One
 * server is for what cannot run there. */
static unsigned without_shared(const struct pool *p, unsigned tasks, bool first)
{
	unsigned n = engines_shared(p, loop_now());

	if (n > 0)
		loop_tick_at(need.tick, loop_now() + SHARED_PERIOD);
	return n < tasks ? tasks - n : first;
}

/* Tasks that need one more server: none is free, nor will one of the engine's own do. */
unsigned need_tasks(struct pool *p)
{
	unsigned tasks = pool_take_idle(p, false) == NULL ? need_usable_tasks(p) : 0;

	return tasks > 0 ? without_shared(p, tasks, need_servers_there(p) == 0) : 0;
}

/* Servers that those who wait could use now. */
unsigned need_servers(struct pool *p)
{
	unsigned size = client_servers(p);
	unsigned total = need_servers_there(p), all = total + p->engines.n;
	unsigned busy_or_coming = need_logins(p);
	unsigned tasks = need_tasks(p);
	bool stopped = route_stopped(p->db); /* for clients */
	bool greets = p->greeting.count > 0 && !stopped;
	unsigned clients = !stopped ? p->waiting.count : 0, room, want;

	/* those of other processes greet nobody here */
	if (greets && clients == 0 && (!p->welcome_known || !pool_has_server(p)))
		clients = 1;
	room = total < size ? size - total : 0;
	want = clients < room ? clients : room;
	if (tasks > 0) {
		unsigned limit = need_task_limit(p);

		room = all + want < limit ? limit - all - want : 0;
		want += tasks < room ? tasks : room;
	}
	if (want == 0 && total == 0 && greets)
		want = 1;
	if (want > LOGINS_AT_ONCE)
		want = LOGINS_AT_ONCE;
	return want > busy_or_coming ? want - busy_or_coming : 0;
}

void tasks_look_again(void)
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			if (p->n_tasks > 0)
				pool_mark_ready(p);
}

static usec_t on_held_tick(void *arg, usec_t now)
{
	(void)arg;
	(void)now;
	tasks_look_again();
	return USEC_NEVER;
}

void need_look_again(usec_t when)
{
	loop_tick_at(need.tick, when);
}

void need_new_turn(void)
{
	need.turn++;
}

bool need_start(void)
{
	need.tick = loop_tick_new(on_held_tick, NULL, USEC_NEVER);
	return need.tick != NULL;
}

void need_stop(void)
{
	loop_tick_free(&need.tick);
}
