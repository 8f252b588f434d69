/*
 * What holds for a database and its pools just now: how many servers they may have and do have, in
 * which mode they are used, whether any is given to anybody, and whether a failure is held against
 * them. Also the list of pools that have something to be served with. Who enters the databases is
 * route.c, who serves the pools pool.c.
 */
#include <string.h>

#include "net/team.h"
#include "pool/places.h"
#include "pool/rooms.h"

struct pool_all pool_all = {.generation = 1, .ready_tail = &pool_all.ready_head};

/* --- databases --- */

struct database *route_first(void)
{
	return pool_all.databases;
}

/* --- what holds for a pool --- */

int route_pool_size(const struct pool *p)
{
	int own = account_limits(p->account)->pool_size;

	CHECK_POOL(p);
	if (p->lookup)
		return POOL_LOOKUP_SERVERS;
	if (p->startup != NULL)
		return 1;
	return own >= 0 ? own : p->db->pool_size;
}

int route_reserve_size(const struct pool *p)
{
	int own = account_limits(p->account)->reserve_pool_size;

	CHECK_POOL(p);
	return own >= 0 ? own : p->db->reserve_pool_size;
}

enum pool_mode route_pool_mode(const struct pool *p)
{
	enum pool_mode own = account_limits(p->account)->pool_mode;

	if (p->startup != NULL)
		return POOL_MODE_SESSION;
	return own != POOL_MODE_UNSET ? own : p->db->mode;
}

bool route_paused(const struct database *db)
{
	return db->paused || pool_all.paused;
}

bool route_stopped(const struct database *db)
{
	return route_paused(db) || pool_all.suspended;
}

static bool runs_jobs(const struct pool *p)
{
	const struct server *s;

	DL_FOREACH (p->servers[SERVER_TASK].head, s)
		if (s->task != NULL && s->task->time == TASK_BESIDE)
			return true;
	return false;
}

/* A PAUSE waits for transactions, which may wait for a statement of ours that needs another server; and for jobs, of
 * which the leases are to be extended. */
bool pool_tasks_stopped(const struct pool *p)
{
	return route_stopped(p->db) &&
	       (pool_all.suspended || (p->servers[SERVER_ACTIVE].count == 0 && !runs_jobs(p)));
}

enum pool_mode server_pool_mode(const struct server *s)
{
	return s->mode != POOL_MODE_UNSET ? (enum pool_mode)s->mode : route_pool_mode(s->pool);
}

enum pool_mode client_pool_mode(const struct client *c)
{
	return c->link != NULL ? server_pool_mode(c->link) : route_pool_mode(c->pool);
}

/* --- limits over several pools --- */

unsigned pool_servers_total(const struct pool *p)
{
	unsigned n = 0;

	for (int i = 0; i < SERVER_DEAD; i++)
		n += p->servers[i].count;
	return n - p->servers[SERVER_LISTENING].count;
}

/* In use by tasks that are none of the pool's, or kept for them. */
unsigned pool_beside(const struct pool *p)
{
	unsigned n = p->servers[SERVER_KEPT].count;
	const struct server *s;

	CHECK_POOL(p);
	DL_FOREACH (p->servers[SERVER_CLEANING].head, s)
		n += s->kept != NULL;
	DL_FOREACH (p->servers[SERVER_TASK].head, s)
		n += s->task != NULL && s->task->time == TASK_BESIDE;
	return n;
}

unsigned pool_servers_counted(const struct pool *p)
{
	unsigned aside = p->engines.n + (p->for_inspection != NULL) + pool_beside(p);
	unsigned total = pool_servers_total(p);

	CHECK_POOL(p);
	return total > aside ? total - aside : 0;
}

/* Of several processes all count. */
static unsigned db_used(const struct pool *p)
{
	return team_self() != 0 ? places_of_db(p) : p->db->n_servers - p->db->n_beyond;
}

static unsigned user_used(const struct pool *p)
{
	return team_self() != 0 ? places_of_user(p) : p->account->servers - p->account->beyond;
}

/* Would it be full with so many more? */
static bool db_is_full(const struct pool *p, unsigned more)
{
	unsigned max = p->db->max_connections > 0 ? (unsigned)p->db->max_connections : 0;

	return max > 0 && db_used(p) + more >= max;
}

static bool user_is_full(const struct pool *p, unsigned more)
{
	int limit = account_limits(p->account)->max_servers;
	unsigned max = limit > 0 ? (unsigned)limit : 0;

	return max > 0 && user_used(p) + more >= max;
}

bool pool_db_is_full(const struct pool *p)
{
	return db_is_full(p, 0);
}

bool pool_user_is_full(const struct pool *p)
{
	return user_is_full(p, 0);
}

bool pool_db_has_one_left(const struct pool *p)
{
	return db_is_full(p, 1);
}

bool pool_user_has_one_left(const struct pool *p)
{
	return user_is_full(p, 1);
}

bool pool_db_is_exceeded(const struct pool *p)
{
	return p->db->max_connections > 0 && db_used(p) > (unsigned)p->db->max_connections;
}

bool pool_user_is_exceeded(const struct pool *p)
{
	int limit = account_limits(p->account)->max_servers;

	return limit > 0 && user_used(p) > (unsigned)limit;
}

/* When a server that has a place of it was free, and others could have had that; 0: not yet. */
usec_t pool_limit_free_at(const struct pool *p, bool of_db)
{
	usec_t here = of_db ? p->db->free_at : p->account->free_at, all;

	if (team_self() == 0)
		return here;
	/* the others say it only while somebody claims */
	all = of_db ? places_db_free_at(p) : places_user_free_at(p);
	return all > here ? all : here;
}

void pool_explain_limit(const struct pool *p, struct pg_error *err)
{
	unsigned total = pool_servers_total(p);

	CHECK_POOL(p);
	if (pool_db_is_full(p)) {
		pg_error_detail(err, "Database \"%s\" has %u server connections of at most %d.",
			p->db->name, db_used(p), p->db->max_connections);
		pg_error_hint(err, "The limit is max_db_connections.");
	} else if (pool_user_is_full(p)) {
		pg_error_detail(err, "User \"%s\" has %u server connections of at most %d.",
			istr_text(p->user), user_used(p), account_limits(p->account)->max_servers);
		pg_error_hint(err, "The limit is max_user_connections.");
	} else {
		pg_error_detail(err, "The pool has %u server connections of at most %d.", total,
			route_pool_size(p));
		pg_error_hint(err,
			"Raise default_pool_size or pool_size, or shorten the transactions that hold them.");
	}
}

/* --- its servers --- */

/* One that is to be closed, such as those of an entry that was changed, is nothing to wait for. */
bool pool_has_any_server(const struct pool *p, bool for_client)
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
bool pool_has_server(const struct pool *p)
{
	return pool_has_any_server(p, true);
}

/* How long a failure is held against a server: one that refuses us knowingly longer than one that
 * is away. */
bool pool_is_away(const struct pool *p)
{
	return strncmp(p->last_error.sqlstate, "08", 2) == 0 ||
	       strncmp(p->last_error.sqlstate, "57", 2) == 0;
}

static usec_t retry_after(const struct pool *p)
{
	usec_t retry = conf_current()->p.server_login_retry;

	return pool_is_away(p) && retry > POOL_RETRY_FASTEST ? POOL_RETRY_FASTEST : retry;
}

bool pool_holding_back(const struct pool *p, usec_t now)
{
	return p->failed_at != 0 && now - p->failed_at < retry_after(p);
}

/* --- pools that may be served --- */

void pool_mark_ready(struct pool *p)
{
	if (p->ready_marked)
		return;
	p->ready_marked = true;
	p->ready_next = NULL;
	*pool_all.ready_tail = p;
	pool_all.ready_tail = &p->ready_next;
}

struct pool *pool_take_ready(void)
{
	struct pool *list = pool_all.ready_head;

	pool_all.ready_head = NULL;
	pool_all.ready_tail = &pool_all.ready_head;
	return list;
}

void pool_unmark_ready(struct pool *p)
{
	struct pool **at;

	if (!p->ready_marked)
		return;
	for (at = &pool_all.ready_head; *at != p;)
		at = &(*at)->ready_next;
	*at = p->ready_next;
	if (pool_all.ready_tail == &p->ready_next)
		pool_all.ready_tail = at;
	p->ready_marked = false;
}
