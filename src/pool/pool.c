/*
 * A pool: the servers of one database and user, who waits for them, and the hand-out. Longest
 * waiter first. Our own tasks have a small reserve beside the pool, so that clients in transactions
 * cannot starve them. How long anybody may wait or idle is the janitor's business.
 *
 * Entry points: pool_get() and its like; pool_mark_ready(), what brings those who wait together
 * with servers in pool_serve_ready(), the loop phase; pool_launch() for new servers.
 */
#include <limits.h>
#include <string.h>

#include "net/team.h"
#include "pool/demand.h"
#include "pool/places.h"
#include "pool/rooms.h"

#define LOGINS_AT_ONCE 8
/* A server that refuses connections is tried again after this. */
#define RETRY_FASTEST (1 * USEC_SEC)
/* ... or at once for who has come since, so often within that time: it may be back. */
#define FRESH_TRIES   5
#define HELD_LOOK     128 /* tasks that are looked at for a free server */
#define HELD_PERIOD   (2 * USEC_MSEC)
#define SHARED_PERIOD (20 * USEC_MSEC) /* ... for which no server was free */
#define TO_SERVE      (100 * USEC_MSEC) /* a server that has come is left so long to who waits for it */

static struct {
	struct loop_tick *held_tick; /* tasks that are held back are looked at again */
	uint64_t turn;               /* times that pools were served */
	uint64_t seen;               /* the one of which it is known what runs */
} own;

static struct pool *pool_new(struct database *db, struct istr *name)
{
	struct pool *p = mem_zalloc(sizeof(*p));

	if (p == NULL || (p->account = account_get(name)) == NULL) {
		mem_free(p);
		return NULL;
	}
	p->magic = POOL_MAGIC;
	p->db = db;
	p->user = istr_ref(name);
	p->idle_since = loop_now();
	p->next = db->pools;
	db->pools = p;
	return p;
}

static struct pool *get(struct database *db, const char *user, bool lookup)
{
	struct pool *p;
	struct istr *name = istr_get(user, strlen(user));

	if (name == NULL)
		return NULL;
	for (p = db->pools; p != NULL; p = p->next)
		if (p->user == name && p->lookup == lookup && p->startup == NULL)
			break;
	if (p == NULL && (p = pool_new(db, name)) != NULL)
		p->lookup = lookup;
	istr_drop(&name);
	return p;
}

struct pool *pool_get(struct database *db, const char *user)
{
	return get(db, user, false);
}

struct pool *pool_get_lookup(struct database *db, const char *user)
{
	return get(db, user, true);
}

struct pool *pool_new_replication(struct database *db, const char *user, struct istr *startup)
{
	struct istr *name = istr_get(user, strlen(user));
	struct pool *p = name != NULL ? pool_new(db, name) : NULL;

	CHECK_DATABASE(db);
	if (p != NULL)
		p->startup = istr_ref(startup);
	istr_drop(&name);
	return p;
}

void pool_keep(struct pool *p)
{
	CHECK_POOL(p);
	p->n_keepers++;
}

void pool_let_go(struct pool *p)
{
	CHECK_POOL(p);
	INVARIANT(p->n_keepers > 0, "a pool is let go by more than keep it");
	p->n_keepers--;
}

/* Only when nothing refers to it: no clients, servers, tasks. */
void pool_free(struct pool **pp)
{
	struct pool *p = *pp, **at = &p->db->pools;

	CHECK_POOL(p);
	INVARIANT(p->active.head == NULL && p->waiting.head == NULL && p->greeting.head == NULL,
		"a pool is freed that has clients");
	INVARIANT(p->tasks == NULL && pool_servers_total(p) == 0,
		"a pool is freed that has servers or tasks");
	*pp = NULL;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	pool_unmark_ready(p);
	affinity_free(p);
	vars_clear(&p->welcome);
	pool_forget_began(p);
	pool_forget_accepted(p);
	buf_free(&p->welcome_rest);
	istr_drop(&p->user);
	account_put(&p->account);
	istr_drop(&p->startup);
	secret_erase(&p->given);
	p->magic = 0;
	mem_free(p);
}

/* One that is to be closed, such as those of an entry that was changed, is nothing to wait for. */
static bool has_any_server(const struct pool *p, bool for_client)
{
	const struct server *s;

	for (int i = 0; i < SERVER_DEAD; i++)
		if (i != SERVER_LOGIN && i != SERVER_LISTENING)
			DL_FOREACH (p->servers[i].head, s)
				if (!s->close_needed && i != SERVER_KEPT &&
					!(for_client && s->use.engine))
					return true;
	return false;
}

/* ... that clients may have. */
static bool has_server(const struct pool *p)
{
	return has_any_server(p, true);
}

/* --- room under limits over several pools --- */

static usec_t usable_since(const struct pool *p);

/* Somebody waits for it, and nobody has had it yet: its login would have been for nothing. */
static bool is_to_serve(const struct server *s, usec_t now)
{
	return !s->use.served && s->idle_since + TO_SERVE > now &&
	       usable_since(s->pool) != USEC_NEVER;
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

/* How long a failure is held against a server: one that refuses us knowingly longer than one that
 * is away. */
static bool is_away(const struct pool *p)
{
	return strncmp(p->last_error.sqlstate, "08", 2) == 0 ||
	       strncmp(p->last_error.sqlstate, "57", 2) == 0;
}

static usec_t retry_after(const struct pool *p)
{
	usec_t retry = conf_current()->p.server_login_retry;

	return is_away(p) && retry > RETRY_FASTEST ? RETRY_FASTEST : retry;
}

static bool holding_back(const struct pool *p, usec_t now)
{
	return p->failed_at != 0 && now - p->failed_at < retry_after(p);
}

static unsigned client_limit(const struct pool *p, usec_t now);

/* Clients that could use a server: not where there are as many linked to clients as there may be. */
static usec_t clients_since(const struct pool *p)
{
	return p->servers[SERVER_ACTIVE].count < client_limit(p, loop_now())
		       ? pool_client_waits_since(p)
		       : USEC_NEVER;
}

/* With an auth_query, who wants to log in waits as a client does; other statements of our own do not get the last
 * place before somebody's client. */
static usec_t waits_since(const struct pool *p)
{
	return p->lookup ? pool_waits_since(p) : clients_since(p);
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
	if (own.seen != own.turn) {
		own.seen = own.turn;
		for (struct database *db = route_first(); db != NULL; db = db->next)
			for (const struct pool *other = db->pools; other != NULL;
				other = other->next)
				if (runs(other))
					db->runs_in = other->account->runs_in = own.turn;
	}
	return p->db->runs_in == own.turn || p->account->runs_in == own.turn;
}

static unsigned beside_turn(const struct pool *p);

/* Since when the first task waits, before then, that could use a server if one were free; else then. */
static usec_t tasks_since(const struct pool *p, usec_t since)
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
static usec_t usable_since(const struct pool *p)
{
	return tasks_since(p, clients_since(p));
}

/* Who could use a server of p has waited, and none was given to anybody, since then; USEC_NEVER: nobody waits. */
static usec_t in_vain_since(const struct pool *p)
{
	usec_t usable = usable_since(p);

	return usable != USEC_NEVER && p->served_at > usable ? p->served_at : usable;
}

static bool starves(const struct pool *p)
{
	usec_t since = in_vain_since(p), now = loop_now();

	return since != USEC_NEVER && demand_starves(since, false, now) &&
	       (demand_starves(since, true, now) || !runs_beside(p));
}

/* Between pools who has any waits for those, unless they stay in use. Those that run jobs beside it may do so for hours. */
static struct demand demand_of(const struct pool *p)
{
	return (struct demand){
		.since = pool_servers_counted(p) == 0 ? waits_since(p) : USEC_NEVER,
		.starves_since = starves(p) ? usable_since(p) : USEC_NEVER,
	};
}

static unsigned wanted(struct pool *p);

static struct place_need need_of(const struct pool *p, bool of_db)
{
	bool full = of_db ? pool_db_is_full(p) : pool_user_is_full(p);
	bool idle = full && longest_idle(p, of_db) != NULL;

	return (struct place_need){.is_idle = idle,
		.is_lacked = full && !idle &&
			     !demand_may_wait(
				     in_vain_since(p), pool_limit_free_at(p, of_db), loop_now())};
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
				route_paused(db) || holding_back(other, loop_now()))
				continue;
			c = demand_of(other);
			if (!demand_goes_before(&c, since, 0) || wanted(other) == 0 ||
				lacks_more(other, p))
				continue;
			found = other;
			since = c.starves_since < c.since ? c.starves_since : c.since;
		}
	return found;
}

/* The last place is for who waits longest, be it in another pool. */
static bool place_is_for_another(struct pool *p)
{
	usec_t since = starves(p) ? usable_since(p) : waits_since(p);
	struct pool *other;

	other = starving(p, pool_db_has_one_left(p), pool_user_has_one_left(p), since);
	if (other == NULL)
		return false;
	pool_mark_ready(other);
	return true;
}

/* It is told of the next one that is free (tell_others()). */
static bool finds_no_place(struct pool *p)
{
	p->missed_at = p->db->missed_at = p->account->missed_at = loop_now();
	return false;
}

/* A server of another pool that has nothing to do goes, when p may have no further one otherwise; first
 * one of its own that is only the engine's, or is kept for somebody. */
static bool make_room(struct pool *p)
{
	bool full = pool_db_is_full(p) || pool_user_is_full(p);
	struct server *of_db = NULL, *of_user = NULL;
	struct server *s = full ? engines_longest_idle(p) : NULL;

	if (place_is_for_another(p))
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

static unsigned held_back(const struct pool *p);

/* Tasks that could use a server if there were one: not those that are held back, nor those that wait for one that is
 * kept. */
static unsigned usable_tasks(const struct pool *p)
{
	return p->n_tasks > 0 ? p->n_tasks - p->n_claims - held_back(p) : 0;
}

/* Servers that count and that there may be while tasks wait: those for clients, and a few. */
static unsigned task_limit(const struct pool *p)
{
	return client_limit(p, loop_now()) +
	       (p->lookup ? 0 : (unsigned)conf_current()->p.queue_pool_size);
}

/* ... for those who wait now. */
static unsigned most_servers(const struct pool *p)
{
	return usable_tasks(p) > 0 ? task_limit(p) : client_limit(p, loop_now());
}

/* The server that is free here makes room there. */
static bool gives_way(struct pool *p, struct server *s, usec_t since)
{
	bool db_full = pool_db_is_full(p), user_full = pool_user_is_full(p);
	usec_t first = waits_since(p);
	struct pool *other = NULL;

	if (!s->use.served)
		return false;
	p->db->free_at = p->account->free_at = loop_now();
	/* who goes before the first client of its pool would get the place again */
	since = first < since ? first : since;
	if (team_self() != 0 && places_claimed() && places_wanted(s, since, most_servers(p))) {
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

/* Those of the engine's own are for nobody who waits. */
static unsigned logins(const struct pool *p)
{
	const struct server *s;
	unsigned n = 0;

	DL_FOREACH (p->servers[SERVER_LOGIN].head, s)
		n += !s->use.engine;
	return n;
}

/* Does a task wait that may only run where clients do, and nothing of that kind is free or to come? Its client may be
 * the one that has what there is. */
static bool other_task_waits(struct pool *p)
{
	unsigned left = HELD_LOOK;

	if (logins(p) > 0 || pool_take_idle(p, false) != NULL)
		return false;
	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next, left--)
		if (!t->engine && t->kept == NULL)
			return true;
	return false;
}

/* The engine's server that is free here makes room for those who have none at all. */
static bool engine_gives_way(struct pool *p, struct server *s)
{
	bool clients = engines_others(p) == 0 && p->waiting.count + p->greeting.count > 0;

	if (!s->use.engine || (!pool_db_is_full(p) && !pool_user_is_full(p)) ||
		(!clients && !other_task_waits(p)))
		return false;
	server_close(s, "makes room for a client", NULL);
	return true;
}

/* --- hand-out --- */

/* Servers that clients may use: the reserve is added once somebody has waited for too long. */
static unsigned client_limit(const struct pool *p, usec_t now)
{
	unsigned size = (unsigned)route_pool_size(p);
	const struct client *c = p->waiting.head;
	usec_t patience = conf_current()->p.reserve_pool_timeout;

	if (patience > 0 && c != NULL && now - c->request_time > patience)
		size += (unsigned)route_reserve_size(p);
	return size;
}

/* Of a statement that is silent: it goes first (silent.c). */
static bool inspection_waits(const struct pool *p)
{
	return p->tasks != NULL && p->tasks->is_inspection;
}

static bool is_free(const struct server *s)
{
	return s != NULL && s->state == SERVER_IDLE && !s->close_needed && s->conn != NULL;
}

struct server *pool_take_idle(struct pool *p, bool for_client)
{
	struct server *s = p->servers[SERVER_IDLE].head, *next;

	CHECK_POOL(p);
	if (route_stopped(p->db))
		return NULL;
	if (for_client && p->servers[SERVER_ACTIVE].count >= client_limit(p, loop_now()))
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

static void serve_greeting(struct pool *p)
{
	struct client *c, *tmp;

	if (p->greeting.count == 0 || !p->welcome_known || !has_server(p))
		return;
	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		pool_all.calls->welcome(c);
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

/* Has a job there waited for long, and for longer, that could run in place of those of p? */
static bool goes_first_beside(const struct pool *other, const struct pool *p, usec_t since)
{
	bool of_db = p->db->max_connections > 1 && other->db == p->db;
	bool of_user = account_limits(p->account)->max_servers > 1 && other->account == p->account;
	const struct task *t = other != p && (of_db || of_user) ? first_beside(other) : NULL;

	return t != NULL && t->since < since && demand_starves(t->since, false, loop_now()) &&
	       !route_stopped(other->db) && !holding_back(other, loop_now()) &&
	       beside_room(other) > 0;
}

/* ... for those of p now. Its next job would be there before those of other pools, each time. */
static unsigned beside_turn(const struct pool *p)
{
	unsigned room = beside_room(p);
	const struct task *t = room > 0 && room < UINT_MAX ? first_beside(p) : NULL;

	if (t == NULL)
		return room;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *other = db->pools; other != NULL && room > 0; other = other->next)
			if (goes_first_beside(other, p, t->since)) {
				pool_mark_ready(other);
				room--;
			}
	return room;
}

/* Tasks that are not to run beside the clients now, though servers were free. */
static unsigned held_back(const struct pool *p)
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
static bool is_held_back(struct pool *p)
{
	bool held = false;

	for (int of_db = 0; of_db < 2; of_db++)
		if (leaves_none(p, of_db != 0)) {
			kept_makes_room(p, of_db != 0);
			held = true;
		}
	return held;
}

/* The longest waiting task that can have a server now, and that server; NULL: none. Of those up to
 * `seen` it is known that they wait for theirs. */
static struct task *next_task(struct pool *p, usec_t now, uint64_t *seen, struct server **ret)
{
	struct server *any = pool_take_idle(p, false), *engine = engines_idle(p);
	unsigned left = HELD_LOOK;
	struct task *t;

	if (any == NULL && inspection_waits(p) && is_free(p->for_inspection) &&
		!route_stopped(p->db)) {
		*ret = p->for_inspection;
		return p->tasks;
	}
	if (any == NULL && engine == NULL &&
		(p->servers[SERVER_KEPT].count == 0 || route_stopped(p->db)))
		return NULL;
	for (t = p->tasks; t != NULL && left > 0; t = t->next, left--) {
		struct server *one = t->engine && engine != NULL ? engine : any;

		if (t->seq <= *seen)
			continue;
		kept_claim(t);
		if (t->kept != NULL) {
			one = kept_server(t);
		} else if (t->time == TASK_BESIDE && (is_held_back(p) || beside_turn(p) == 0)) {
			left++; /* there are few of them */
			continue;
		}
		if (one == NULL && (t->kept != NULL || engine == NULL))
			continue;
		*ret = one != NULL && t->kind != 0 ? affinity_choose(t, now) : one;
		if (*ret != NULL)
			return t;
		if (t->together != 0 && t->held_since == now)
			engines_missed(p, now);
		*seen = t->seq;
	}
	return NULL;
}

static bool serve_tasks(struct pool *p, usec_t now)
{
	struct server *s;
	struct task *t;
	uint64_t seen = 0;
	bool any = false;

	while ((t = next_task(p, now, &seen, &s)) != NULL) {
		if (t->kept == NULL && gives_way(p, s, t->since))
			continue;
		if (engine_gives_way(p, s))
			continue;
		if (t->engine && !s->use.engine)
			engines_missed(p, now);
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		if (!s->use.engine)
			p->served_at = now;
		any = true;
		if (pool_all.calls->task_starts(t, s))
			pool_all.calls->task_start(t, s);
	}
	if (seen > 0)
		loop_tick_at(own.held_tick, now + HELD_PERIOD);
	if (is_free(p->for_inspection) && !inspection_waits(p))
		server_close(p->for_inspection, "not needed any more", NULL);
	return any;
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

bool pool_start(const struct pool_calls *calls)
{
	pool_all.calls = calls;
	pool_all.ends = false;
	own.held_tick = loop_tick_new(on_held_tick, NULL, USEC_NEVER);
	return own.held_tick != NULL;
}

void pool_stop(void)
{
	loop_tick_free(&own.held_tick);
}

/* Those who have waited for longer than that. */
static bool serve_clients(struct pool *p, usec_t now, usec_t since)
{
	struct server *s;
	struct client *c;
	bool any = false;

	while ((c = p->waiting.head) != NULL && c->request_time < since &&
		(s = pool_take_idle(p, true)) != NULL) {
		if (gives_way(p, s, c->request_time))
			continue;
		if (now > c->request_time) {
			p->stats.wait_time += now - c->request_time;
			hist_add(&p->times.wait, now - c->request_time);
		}
		p->served_at = c->request_time = now;
		client_move(c, CLIENT_ACTIVE);
		server_link(s, c);
		if (c->state != CLIENT_DEAD)
			client_resume(c);
		any = true;
	}
	return any;
}

/* Among those that tasks may have beside the pool, of which one is for what cannot run on the engine's own. */
static bool engine_has_place(const struct pool *p, usec_t now)
{
	unsigned all = pool_servers_total(p) - (p->for_inspection != NULL) - pool_beside(p);
	unsigned limit = client_limit(p, now) + (unsigned)conf_current()->p.queue_pool_size;

	return all + 1 < limit || (all < limit && engines_others(p) > client_limit(p, now));
}

/* Tasks have all that there may be beside the pool, and one of these is free at this moment. */
static void give_place_to_engine(struct pool *p, usec_t now)
{
	struct server *s =
		engines_others(p) > client_limit(p, now) + 1 ? pool_take_idle(p, false) : NULL;

	if (s != NULL)
		server_close(s, "makes room for the queue engine", NULL);
}

/* Nobody waits for it. */
static void launch_engine(struct pool *p, usec_t now)
{
	if (!engines_pay(p, now) || route_stopped(p->db))
		return;
	p->engines.missed =
		0; /* where there is no room, as many have to do without before it is tried again */
	if (!engine_has_place(p, now))
		give_place_to_engine(p, now);
	if (engine_has_place(p, now) && !place_is_for_another(p) && engines_make_room(p, now))
		(void)!server_launch_engine(p);
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
static void give_to_others(struct pool *p, usec_t now)
{
	bool tasks = usable_tasks(p) > 0;
	usec_t since = tasks ? usable_since(p) : USEC_NEVER;
	unsigned most = tasks ? task_limit(p) : 0;
	struct server *s;

	while ((s = unused(p, now)) != NULL && places_wanted(s, since, most))
		server_close(s, "makes room for another process", NULL);
	while ((s = kept_longest_idle(p)) != NULL && places_wanted(s, USEC_NEVER, 0))
		server_close(s, "makes room for another process", NULL);
}

/* Those that count, of a pool with a size of its own in all processes. */
static unsigned servers_there(const struct pool *p)
{
	bool all = team_self() != 0 && !p->lookup && p->startup == NULL;

	return all ? places_of_pool(p) : pool_servers_counted(p);
}

/* Of so many that wait: those that go to the engine's own connections, several at once. They are looked at again. One
 * server is for what cannot run there. */
static unsigned without_shared(const struct pool *p, unsigned tasks, bool first)
{
	unsigned n = engines_shared(p, loop_now());

	if (n > 0)
		loop_tick_at(own.held_tick, loop_now() + SHARED_PERIOD);
	return n < tasks ? tasks - n : first;
}

/* Tasks that need one more server: none is free, nor will one of the engine's own do. */
static unsigned needy_tasks(struct pool *p)
{
	unsigned tasks = pool_take_idle(p, false) == NULL ? usable_tasks(p) : 0;

	return tasks > 0 ? without_shared(p, tasks, servers_there(p) == 0) : 0;
}

/* Nothing more can be had here. */
static void want_of_others(struct pool *p)
{
	usec_t of_clients = clients_since(p);
	unsigned tasks = needy_tasks(p);
	struct place_want w = {.since = tasks > 0 ? tasks_since(p, of_clients) : of_clients,
		.starves = starves(p),
		.for_clients = of_clients != USEC_NEVER ? client_limit(p, loop_now()) : 0,
		.for_tasks = tasks > 0 ? task_limit(p) : 0};

	if (w.since == USEC_NEVER || p->servers[SERVER_LOGIN].count > 0 ||
		holding_back(p, loop_now()) || route_stopped(p->db))
		return;
	if (p->db->max_connections > 0 && account_limits(p->account)->max_servers > 0) {
		w.db = need_of(p, true);
		w.user = need_of(p, false);
	}
	places_want(p, &w);
}

/* A server of p has nothing to do, or has gone: who has found no place of its limits looks again. false: there is
 * nobody. */
static bool tell_others(struct pool *p)
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

bool pool_serve_ready(void *arg, usec_t now)
{
	struct pool *p, *list = pool_take_ready();
	bool any = false;

	(void)arg;
	own.turn++;
	while ((p = list) != NULL) {
		CHECK_POOL(p);
		INVARIANT(p->ready_marked, "a pool is served that is not marked");
		list = p->ready_next;
		p->ready_marked = false;
		p->missed_at = 0;
		serve_greeting(p);
		pool_all.calls->wake(p->db);
		launch_engine(p, now);
		if (p->n_tasks > 0 && p->waiting.count > 0 && !inspection_waits(p))
			any |= serve_clients(p, now, tasks_since(p, USEC_NEVER));
		any |= serve_tasks(p, now);
		any |= serve_clients(p, now, USEC_NEVER);
		if (team_self() != 0)
			places_count_pool(p);
		if (p->n_tasks > 0 || p->waiting.count > 0 || p->greeting.count > 0) {
			pool_launch(p, now);
			if (team_self() != 0)
				want_of_others(p);
		}
		if (team_self() != 0 && places_claimed())
			give_to_others(p, now);
		any |= tell_others(p);
	}
	return any;
}

/* --- new servers --- */

bool pool_unreachable(const struct pool *p, usec_t now)
{
	return !has_server(p) && holding_back(p, now);
}

/* Those who have waited since then, or longer. */
static void fail_waiting(struct pool *p, usec_t until)
{
	struct client *c, *tmp;
	struct pg_error err = p->last_error;

	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		if (c->request_time <= until)
			client_fatal_because(
				c, &err, p->startup != NULL ? "login failed" : err.message);
	DL_FOREACH_SAFE (p->waiting.head, c, tmp)
		if (c->request_time <= until)
			client_no_server(c, &err);
	if (!has_server(p))
		pool_all.calls->tasks_fail(p, &err, until, has_any_server(p, false));
}

/* Nobody shall hear what a server said that has been started again since. */
static bool may_try_again(struct pool *p, usec_t now)
{
	if (!is_away(p) || has_server(p) || p->servers[SERVER_LOGIN].count > 0)
		return false;
	if (now - p->tries_since >= RETRY_FASTEST) {
		p->tries_since = now;
		p->tries = 0;
	}
	return p->tries++ < FRESH_TRIES;
}

void pool_server_failed(struct server *s, const struct pg_error *err)
{
	struct pool *p = s->pool;
	usec_t now = loop_now();

	CHECK_POOL(p);
	if (s->use.engine) {
		engines_failed(s, err);
		return;
	}
	if (p->failed_at == 0 || strcmp(p->last_error.message, err->message) != 0 ||
		now - p->failed_at > 10 * USEC_SEC)
		log_write(LOG_LVL_WARNING, NULL, "%s/%s: server login failed: %s%s", p->db->name,
			istr_text(p->user), strcmp(err->severity, "FATAL") == 0 ? "FATAL " : "",
			err->message);
	p->failed_at = now;
	p->last_error = *err;
	pg_error_severity(&p->last_error, "ERROR");
	if (err->hint[0] == '\0')
		pg_error_detail(&p->last_error,
			"%s%sserver login failed: the proxy could not log in to the server of database \"%s\".",
			err->detail, err->detail[0] != '\0' ? "\n" : "", p->db->name);
	if (!has_server(p))
		fail_waiting(p, now);
}

/* Servers that those who wait could use now. */
static unsigned wanted(struct pool *p)
{
	unsigned size = client_limit(p, loop_now());
	unsigned total = servers_there(p), all = total + p->engines.n;
	unsigned busy_or_coming = logins(p);
	unsigned tasks = needy_tasks(p);
	unsigned clients = p->waiting.count, room, want;

	if (!p->welcome_known && p->greeting.count > 0 && clients == 0)
		clients = 1;
	room = total < size ? size - total : 0;
	want = clients < room ? clients : room;
	if (tasks > 0) {
		unsigned limit = task_limit(p);

		room = all + want < limit ? limit - all - want : 0;
		want += tasks < room ? tasks : room;
	}
	if (want == 0 && total == 0 && p->greeting.count > 0)
		want = 1;
	if (want > LOGINS_AT_ONCE)
		want = LOGINS_AT_ONCE;
	return want > busy_or_coming ? want - busy_or_coming : 0;
}

/* All that there may be are in use, perhaps by those who are to be looked at. */
static void launch_for_inspection(struct pool *p, usec_t now)
{
	if (inspection_waits(p) && p->for_inspection == NULL &&
		p->servers[SERVER_LOGIN].count == 0 && pool_take_idle(p, false) == NULL &&
		!holding_back(p, now) && make_room(p))
		p->for_inspection = server_launch(p, 0, usable_since(p));
}

void pool_launch(struct pool *p, usec_t now)
{
	unsigned n = wanted(p);

	CHECK_POOL(p);
	if (route_stopped(p->db))
		return;
	if (holding_back(p, now)) {
		if (!has_server(p) && p->servers[SERVER_LOGIN].count == 0)
			fail_waiting(p, is_away(p) ? p->failed_at : now);
		n = wanted(p) > 0 && may_try_again(p, now) ? 1 : 0;
	}
	for (; n > 0 && make_room(p); n--) {
		const struct client *c = p->waiting.head;

		if (c != NULL && p->n_tasks == 0 &&
			engines_others(p) >= (unsigned)route_pool_size(p))
			log_write(LOG_LVL_WARNING, client_prefix(c),
				"taking connection from reserve_pool");
		if (server_launch(p, most_servers(p), usable_since(p)) == NULL)
			return;
	}
	launch_for_inspection(p, now);
}

void pool_keep_minimum(struct pool *p, usec_t now)
{
	int min = p->db->min_pool_size;

	CHECK_POOL(p);
	if (min <= 0 || p->lookup || p->startup != NULL || holding_back(p, now) ||
		route_paused(p->db) || p->db->disabled || p->db->gone ||
		p->servers[SERVER_LOGIN].count > 0)
		return;
	if (p->active.count + p->waiting.count == 0 && p->db->user == NULL)
		return;
	if (servers_there(p) < (unsigned)min && servers_there(p) < (unsigned)route_pool_size(p) &&
		!pool_db_is_full(p) && !pool_user_is_full(p))
		(void)!server_launch(p, (unsigned)route_pool_size(p), usable_since(p));
}

void pool_forget_accepted(struct pool *p)
{
	CHECK_POOL(p);
	for (size_t i = 0; i < ARRAY_LEN(p->accepted); i++)
		istr_drop(&p->accepted[i]);
}

void pool_forget_began(struct pool *p)
{
	CHECK_POOL(p);
	vars_clear(&p->began.vars);
	istr_drop(&p->began.extra);
	istr_drop(&p->began.origin);
}
