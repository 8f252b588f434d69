/*
 * A pool: the servers of one database and user, who waits for them, and the hand-out. Longest
 * waiting first, clients and tasks alike. Our own tasks have a small reserve beside the pool, so that clients in
 * transactions cannot starve them. How long anybody may wait or idle is the janitor's business; who waits and could use a
 * server need.c's, what makes room for a new one room.c's, and new ones are launch.c's.
 *
 * Entry points: pool_get() and its like; pool_mark_ready(), what brings those who wait together
 * with servers in pool_serve_ready(), the loop phase.
 */
#include <string.h>

#include "net/team.h"
#include "need.h"
#include "pool/places.h"
#include "room.h"

#define HELD_PERIOD (2 * USEC_MSEC) /* tasks that wait for their server are looked at again */

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

/* --- hand-out --- */

static bool is_free(const struct server *s)
{
	return s != NULL && s->state == SERVER_IDLE && !s->close_needed && s->conn != NULL;
}

static void serve_greeting(struct pool *p)
{
	struct client *c, *tmp;

	if (p->greeting.count == 0 || !p->welcome_known || !pool_has_server(p))
		return;
	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		pool_all.calls->welcome(c);
}

/* The longest waiting task that can have a server now, and that server; NULL: none. Of those up to
 * `seen` it is known that they wait for theirs. */
static struct task *next_task(struct pool *p, usec_t now, uint64_t *seen, struct server **ret)
{
	struct server *any = pool_take_idle(p, false), *engine = engines_idle(p);
	unsigned left = HELD_LOOK;
	struct task *t;

	if (any == NULL && need_inspection(p) && is_free(p->for_inspection) &&
		!pool_tasks_stopped(p)) {
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
		} else if (t->time == TASK_BESIDE && (beside_is_held(p) || beside_turn(p) == 0)) {
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
		if (t->kept == NULL && room_gives_way(p, s, t->since))
			continue;
		if (room_engine_gives_way(p, s))
			continue;
		if (t->engine && !s->use.engine)
			engines_missed(p, now);
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		if (!s->use.engine) {
			p->served_at = now;
			over_task_began(p, now);
		}
		any = true;
		if (pool_all.calls->task_starts(t, s))
			pool_all.calls->task_start(t, s);
	}
	if (seen > 0)
		need_look_again(now + HELD_PERIOD);
	if (is_free(p->for_inspection) && !need_inspection(p))
		server_close(p->for_inspection, "not needed any more", NULL);
	return any;
}

/* Those who have waited for longer than that. */
static bool serve_clients(struct pool *p, usec_t now, usec_t since)
{
	struct server *s;
	struct client *c;
	bool any = false;

	while ((c = p->waiting.head) != NULL && c->request_time < since &&
		(s = pool_take_idle(p, true)) != NULL) {
		if (room_gives_way(p, s, c->request_time))
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

bool pool_serve_ready(void *arg, usec_t now)
{
	struct pool *p, *list = pool_take_ready();
	bool any = false, looks = list != NULL;

	(void)arg;
	need_new_turn();
	while ((p = list) != NULL) {
		CHECK_POOL(p);
		INVARIANT(p->ready_marked, "a pool is served that is not marked");
		list = p->ready_next;
		p->ready_marked = false;
		p->missed_at = 0;
		if (p->over_since != 0)
			over_look(p, now);
		serve_greeting(p);
		pool_all.calls->wake(p->db);
		launch_engine(p, now);
		if (p->n_tasks > 0 && p->waiting.count > 0 && !need_inspection(p))
			any |= serve_clients(p, now, need_tasks_since(p, USEC_NEVER));
		any |= serve_tasks(p, now);
		any |= serve_clients(p, now, USEC_NEVER);
		if (team_self() != 0)
			places_count_pool(p);
		if (p->n_tasks > 0 || p->waiting.count > 0 || p->greeting.count > 0) {
			pool_launch(p, now);
			beside_gives_turn(p);
			if (team_self() != 0)
				room_want(p);
		}
		if (team_self() != 0 && places_claimed())
			room_give(p, now);
		any |= room_tell(p);
	}
	if (looks)
		any |= beside_tell();
	return any;
}

bool pool_start(const struct pool_calls *calls)
{
	pool_all.calls = calls;
	pool_all.ends = false;
	return need_start();
}

void pool_stop(void)
{
	need_stop();
}
