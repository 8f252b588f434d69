/*
 * New servers of a pool: when they are launched, for whom, and what becomes of those who wait when the server wants none
 * of them. Whether there is a place for one is known to room.c.
 *
 * Entry points: pool_launch(), pool_keep_minimum(), launch_engine(); pool_server_failed().
 */
#include <string.h>

#include "need.h"
#include "room.h"

/* Tried again at once for who has come since, so often within that time: it may be back. */
#define FRESH_TRIES 5

bool pool_unreachable(const struct pool *p, usec_t now)
{
	return !pool_has_server(p) && pool_holding_back(p, now);
}

static void fail_clients(struct pool *p, usec_t until)
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
}

/* Those who have waited since then, or longer; not whom a PAUSE has waiting. */
static void fail_waiting(struct pool *p, usec_t until)
{
	struct pg_error err = p->last_error;

	if (!route_stopped(p->db))
		fail_clients(p, until);
	if (!pool_has_server(p))
		pool_all.calls->tasks_fail(p, &err, until, pool_has_any_server(p, false));
}

/* Nobody shall hear what a server said that has been started again since. */
static bool may_try_again(struct pool *p, usec_t now)
{
	if (!pool_is_away(p) || pool_has_server(p) || p->servers[SERVER_LOGIN].count > 0)
		return false;
	if (now - p->tries_since >= POOL_RETRY_FASTEST) {
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
	if (!pool_has_server(p))
		fail_waiting(p, now);
}

/* All that there may be are in use, perhaps by those who are to be looked at. */
static void launch_for_inspection(struct pool *p, usec_t now)
{
	if (need_inspection(p) && p->for_inspection == NULL &&
		p->servers[SERVER_LOGIN].count == 0 && pool_take_idle(p, false) == NULL &&
		!pool_holding_back(p, now) && room_make(p))
		p->for_inspection = server_launch(p, 0, need_since(p));
}

/* Is the next one beyond the pool's size, and for a client? Those that come are. Tasks have theirs beside the pool. */
static bool takes_from_reserve(const struct pool *p, usec_t now)
{
	unsigned there;

	if (p->waiting.count <= need_logins(p) || route_stopped(p->db))
		return false;
	there = need_servers_there(p);
	return there >= (unsigned)route_pool_size(p) && there < need_client_limit(p, now);
}

void pool_launch(struct pool *p, usec_t now)
{
	unsigned n = need_servers(p);

	CHECK_POOL(p);
	if (pool_tasks_stopped(p))
		return;
	if (pool_holding_back(p, now)) {
		if (!pool_has_server(p) && p->servers[SERVER_LOGIN].count == 0)
			fail_waiting(p, pool_is_away(p) ? p->failed_at : now);
		n = need_servers(p) > 0 && may_try_again(p, now) ? 1 : 0;
	}
	for (; n > 0 && room_make(p); n--) {
		if (takes_from_reserve(p, now))
			log_write(LOG_LVL_WARNING, client_prefix(p->waiting.head),
				"taking connection from reserve_pool");
		if (server_launch(p, need_most(p), need_since(p)) == NULL)
			return;
	}
	launch_for_inspection(p, now);
}

void pool_keep_minimum(struct pool *p, usec_t now)
{
	int min = p->db->min_pool_size;

	CHECK_POOL(p);
	if (min <= 0 || p->lookup || p->startup != NULL || pool_holding_back(p, now) ||
		route_paused(p->db) || p->db->disabled || p->db->gone ||
		p->servers[SERVER_LOGIN].count > 0)
		return;
	if (p->active.count + p->waiting.count == 0 && p->db->user == NULL)
		return;
	if (need_servers_there(p) < (unsigned)min &&
		need_servers_there(p) < (unsigned)route_pool_size(p) && !pool_db_is_full(p) &&
		!pool_user_is_full(p))
		(void)!server_launch(p, (unsigned)route_pool_size(p), need_since(p));
}

/* Among those that tasks may have beside the pool, of which one is for what cannot run on the engine's own. */
static bool engine_has_place(const struct pool *p, usec_t now)
{
	unsigned all = pool_servers_total(p) - (p->for_inspection != NULL) - pool_beside(p);
	unsigned limit = need_client_limit(p, now) + (unsigned)conf_current()->p.queue_pool_size;

	return all + 1 < limit || (all < limit && engines_others(p) > need_client_limit(p, now));
}

/* Tasks have all that there may be beside the pool, and one of these is free at this moment. */
static void give_place_to_engine(struct pool *p, usec_t now)
{
	struct server *s =
		engines_others(p) > need_client_limit(p, now) + 1 ? pool_take_idle(p, false) : NULL;

	if (s != NULL)
		server_close(s, "makes room for the queue engine", NULL);
}

/* Nobody waits for it. */
void launch_engine(struct pool *p, usec_t now)
{
	if (!engines_pay(p, now) || route_stopped(p->db))
		return;
	p->engines.missed =
		0; /* where there is no room, as many have to do without before it is tried again */
	if (!engine_has_place(p, now))
		give_place_to_engine(p, now);
	if (engine_has_place(p, now) && !room_is_for_another(p) && engines_make_room(p, now))
		(void)!server_launch_engine(p);
}
