/*
 * A pool: the servers of one database and user, who waits for them, and the hand-out. Longest
 * waiter first. Our own tasks have a small reserve beside the pool, so that clients in transactions
 * cannot starve them.
 */
#include <string.h>

#include "pool_int.h"

#define LOGINS_AT_ONCE 8
#define SURPLUS_IDLE   (30 * USEC_SEC) /* servers beyond the pool's size are closed after this */
#define RETRY_FASTEST                                                                              \
	(1 * USEC_SEC) /* a server that refuses connections is tried again after this */

static struct pool *ready_head, **ready_tail = &ready_head;

static struct pool *get(struct database *db, const char *user, bool lookup)
{
	struct pool *p;
	struct istr *name = istr_get(user, strlen(user));

	if (name == NULL)
		return NULL;
	for (p = db->pools; p != NULL; p = p->next)
		if (p->user == name && p->lookup == lookup) {
			istr_drop(&name);
			return p;
		}
	p = mem_zalloc(sizeof(*p));
	if (p == NULL) {
		istr_drop(&name);
		return NULL;
	}
	p->db = db;
	p->user = name;
	p->lookup = lookup;
	p->idle_since = loop_now();
	p->next = db->pools;
	db->pools = p;
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

/* Only when nothing refers to it: no clients, servers, tasks. */
void pool_free(struct pool **pp)
{
	struct pool *p = *pp, **at = &p->db->pools;

	*pp = NULL;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->ready_marked) {
		for (at = &ready_head; *at != p;)
			at = &(*at)->ready_next;
		*at = p->ready_next;
		if (ready_tail == &p->ready_next)
			ready_tail = at;
	}
	vars_clear(&p->welcome);
	buf_free(&p->welcome_rest);
	istr_drop(&p->user);
	secret_erase(&p->given);
	mem_free(p);
}

unsigned pool_servers_total(const struct pool *p)
{
	unsigned n = 0;

	for (int i = 0; i < SERVER_DEAD; i++)
		n += p->servers[i].count;
	return n;
}

static unsigned servers_alive(const struct pool *p)
{
	return pool_servers_total(p) - p->servers[SERVER_LOGIN].count;
}

/* --- hand-out
 * ------------------------------------------------------------------------------------------ */

/* Servers that clients may use: the reserve is added once somebody has waited for too long. */
static unsigned client_limit(const struct pool *p, usec_t now)
{
	unsigned size = (unsigned)route_pool_size(p);
	const struct client *c = p->waiting.head;

	if (p->db->reserve_pool_size > 0 && c != NULL &&
		now - c->request_time > conf_current()->p.reserve_pool_timeout)
		size += (unsigned)p->db->reserve_pool_size;
	return size;
}

struct server *pool_take_idle(struct pool *p, bool for_client)
{
	struct server *s = p->servers[SERVER_IDLE].head, *next;

	if (route_paused(p->db))
		return NULL;
	if (for_client && p->servers[SERVER_ACTIVE].count >= client_limit(p, loop_now()))
		return NULL;
	for (; s != NULL; s = next) {
		next = s->next;
		if (!s->close_needed && s->conn != NULL)
			return s;
	}
	return NULL;
}

static void serve_greeting(struct pool *p)
{
	struct client *c, *tmp;

	if (!p->welcome_known || servers_alive(p) == 0)
		return;
	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		client_login_welcome(c);
}

static bool serve_tasks(struct pool *p)
{
	struct server *s;
	struct task *t;
	bool any = false;

	while ((t = p->tasks) != NULL && (s = pool_take_idle(p, false)) != NULL) {
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		task_start(t, s);
		any = true;
	}
	return any;
}

static bool serve_clients(struct pool *p, usec_t now)
{
	struct server *s;
	struct client *c;
	bool any = false;

	while ((c = p->waiting.head) != NULL && (s = pool_take_idle(p, true)) != NULL) {
		if (now > c->request_time) {
			p->stats.wait_time += now - c->request_time;
			hist_add(&p->times.wait, now - c->request_time);
		}
		c->request_time = now;
		client_move(c, CLIENT_ACTIVE);
		server_link(s, c);
		if (c->state != CLIENT_DEAD)
			client_resume(c);
		any = true;
	}
	return any;
}

void pool_mark_ready(struct pool *p)
{
	if (p->ready_marked)
		return;
	p->ready_marked = true;
	p->ready_next = NULL;
	*ready_tail = p;
	ready_tail = &p->ready_next;
}

bool pool_serve_ready(void *arg, usec_t now)
{
	struct pool *p, *list = ready_head;
	bool any = false;

	(void)arg;
	ready_head = NULL;
	ready_tail = &ready_head;
	while ((p = list) != NULL) {
		list = p->ready_next;
		p->ready_marked = false;
		serve_greeting(p);
		any |= serve_tasks(p);
		any |= serve_clients(p, now);
		if (p->n_tasks > 0 || p->waiting.count > 0 || p->greeting.count > 0)
			pool_launch(p, now);
	}
	return any;
}

/* --- new servers
 * ------------------------------------------------------------------------------------------- */

/* How long a failure is held against a server: one that refuses us knowingly longer than one that
 * is away. */
static usec_t retry_after(const struct pool *p)
{
	usec_t retry = conf_current()->p.server_login_retry;
	bool away = strncmp(p->last_error.sqlstate, "08", 2) == 0 ||
		    strncmp(p->last_error.sqlstate, "57", 2) == 0;

	return away && retry > RETRY_FASTEST ? RETRY_FASTEST : retry;
}

static bool holding_back(const struct pool *p, usec_t now)
{
	return p->failed_at != 0 && now - p->failed_at < retry_after(p);
}

bool pool_unreachable(const struct pool *p, usec_t now)
{
	return servers_alive(p) == 0 && holding_back(p, now);
}

static void fail_waiting(struct pool *p)
{
	struct client *c, *tmp;
	struct pg_error err = p->last_error;

	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		client_fatal(c, &err);
	DL_FOREACH_SAFE (p->waiting.head, c, tmp)
		client_no_server(c, &err);
	task_fail_waiting(p, &err);
}

void pool_server_failed(struct pool *p, const struct pg_error *err)
{
	usec_t now = loop_now();

	if (p->failed_at == 0 || strcmp(p->last_error.message, err->message) != 0 ||
		now - p->failed_at > 10 * USEC_SEC)
		log_write(LOG_LVL_WARNING, NULL, "%s/%s: server login failed: %s", p->db->name,
			istr_text(p->user), err->message);
	p->failed_at = now;
	p->last_error = *err;
	pg_error_severity(&p->last_error, "ERROR");
	if (err->hint[0] == '\0' && err->detail[0] == '\0')
		pg_error_detail(&p->last_error,
			"The proxy could not log in to the server of database \"%s\".",
			p->db->name);
	if (servers_alive(p) == 0)
		fail_waiting(p);
}

/* Servers that those who wait could use now. */
static unsigned wanted(const struct pool *p)
{
	unsigned size = client_limit(p, loop_now()), total = pool_servers_total(p);
	unsigned busy_or_coming = p->servers[SERVER_LOGIN].count;
	unsigned clients = p->waiting.count, tasks = p->n_tasks, room, want;

	if (!p->welcome_known && p->greeting.count > 0 && clients == 0)
		clients = 1;
	room = total < size ? size - total : 0;
	want = clients < room ? clients : room;
	if (tasks > 0) {
		unsigned limit =
			size + (p->lookup ? 0 : (unsigned)conf_current()->p.queue_pool_size);

		room = total + want < limit ? limit - total - want : 0;
		want += tasks < room ? tasks : room;
	}
	if (want == 0 && total == 0 && p->greeting.count > 0)
		want = 1;
	if (want > LOGINS_AT_ONCE)
		want = LOGINS_AT_ONCE;
	return want > busy_or_coming ? want - busy_or_coming : 0;
}

void pool_launch(struct pool *p, usec_t now)
{
	unsigned n = wanted(p);

	if (route_paused(p->db))
		return;
	if (holding_back(p, now)) {
		if (servers_alive(p) == 0 && p->servers[SERVER_LOGIN].count == 0)
			fail_waiting(p);
		return;
	}
	for (; n > 0; n--) {
		if (p->db->max_connections > 0 && !p->lookup &&
			p->db->n_servers >= (unsigned)p->db->max_connections)
			return;
		if (server_launch(p) == NULL)
			return;
	}
}

/* --- time
 * ------------------------------------------------------------------------------------------------------
 */

static void check_idle(struct pool *p, usec_t now)
{
	const struct params *pr = &conf_current()->p;
	usec_t lifetime = p->db->server_lifetime;
	unsigned total = pool_servers_total(p);
	struct server *s, *tmp;

	DL_FOREACH_SAFE (p->servers[SERVER_IDLE].head, s, tmp) {
		bool spare = total > (unsigned)p->db->min_pool_size;
		bool surplus = total > (unsigned)route_pool_size(
					       p); /* of the queue engine, or of the reserve */

		if (s->close_needed || route_paused(p->db))
			server_close(s, s->close_needed ? "close_needed" : "paused", NULL);
		else if (surplus && now - s->idle_since > SURPLUS_IDLE)
			server_close(s, "surplus server idle", NULL);
		else if (pr->server_idle_timeout > 0 && spare &&
			 now - s->idle_since > pr->server_idle_timeout)
			server_close(s, "server idle timeout", NULL);
		else if (lifetime > 0 && now - s->connect_time > lifetime)
			server_close(s, "server lifetime over", NULL);
		else
			continue;
		total--;
	}
}

static void check_logins(struct pool *p, usec_t now)
{
	usec_t limit = conf_current()->p.server_connect_timeout;
	struct server *s, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (p->servers[SERVER_LOGIN].head, s, tmp)
		if (limit > 0 && now - s->connect_time > limit) {
			pg_error_set(&err, "08006",
				"connection to server at \"%s\", port %d failed: connect timeout",
				p->db->host, p->db->port);
			pg_error_hint(&err, "The limit is server_connect_timeout.");
			pool_server_failed(p, &err);
			server_close(s, "connect timeout", &err);
		}
}

static void check_waiting(struct pool *p, usec_t now)
{
	usec_t limit = p->db->query_wait_timeout, notify = conf_current()->p.query_wait_notify;
	struct client *c, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (p->waiting.head, c, tmp) {
		usec_t waited = now - c->request_time;

		if (limit > 0 && waited > limit) {
			pg_error_set(&err, "53300", "query_wait_timeout");
			pg_error_detail(&err,
				"No server connection became free in %llu s; the pool has %u of at most %d.",
				(unsigned long long)(limit / USEC_SEC), pool_servers_total(p),
				route_pool_size(p));
			pg_error_hint(&err,
				"Raise default_pool_size or pool_size, or shorten the transactions that hold them.");
			client_fatal(c, &err);
		} else if (notify > 0 && waited > notify && !c->queued_notified) {
			c->queued_notified = true;
			pg_error_set(&err, "00000",
				"No server connection available in postgres backend, client being queued");
			pg_error_severity(&err, "NOTICE");
			client_notice(c, &err);
		}
	}
	limit = conf_current()->p.client_login_timeout;
	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		if (limit > 0 && now - c->connect_time > limit) {
			pg_error_set(&err, "08006", "client_login_timeout (server down)");
			client_fatal(c, &err);
		}
}

static void check_clients(struct pool *p, usec_t now)
{
	const struct params *pr = &conf_current()->p;
	struct server *s, *tmp;
	struct client *c, *ctmp;
	struct pg_error err;

	DL_FOREACH_SAFE (p->servers[SERVER_ACTIVE].head, s, tmp) {
		c = s->link;
		if (c == NULL)
			continue;
		if (pr->idle_transaction_timeout > 0 && s->tx != 'I' && s->expect.count == 0 &&
			c->request_time == 0 &&
			now - c->idle_since > pr->idle_transaction_timeout) {
			pg_error_set(&err, "25P03", "idle transaction timeout");
			pg_error_hint(&err, "The limit is idle_transaction_timeout.");
			client_fatal(c, &err);
		} else if (pr->transaction_timeout > 0 && c->tx_start != 0 &&
			   now - c->tx_start > pr->transaction_timeout) {
			pg_error_set(&err, "25P04", "transaction timeout");
			client_fatal(c, &err);
		} else if (pr->query_timeout > 0 && s->expect.count > 0 && c->request_time != 0 &&
			   now - c->request_time > pr->query_timeout) {
			pg_error_set(&err, "57014", "query timeout");
			client_fatal(c, &err);
		}
	}
	if (pr->client_idle_timeout > 0)
		DL_FOREACH_SAFE (p->active.head, c, ctmp)
			if (c->state == CLIENT_ACTIVE && c->link == NULL && c->idle_since != 0 &&
				now - c->idle_since > pr->client_idle_timeout) {
				pg_error_set(&err, "57P05", "client_idle_timeout");
				client_fatal(c, &err);
			}
}

static void keep_minimum(struct pool *p, usec_t now)
{
	int min = p->db->min_pool_size;

	if (min <= 0 || p->lookup || holding_back(p, now) || route_paused(p->db) ||
		p->servers[SERVER_LOGIN].count > 0)
		return;
	if (p->active.count + p->waiting.count == 0 && p->db->user == NULL)
		return;
	if (pool_servers_total(p) < (unsigned)min &&
		pool_servers_total(p) < (unsigned)route_pool_size(p))
		(void)!server_launch(p);
}

void pool_tick(struct pool *p, usec_t now)
{
	check_logins(p, now);
	check_idle(p, now);
	check_waiting(p, now);
	check_clients(p, now);
	keep_minimum(p, now);
	if (p->waiting.count > 0 || p->n_tasks > 0 || p->greeting.count > 0)
		pool_mark_ready(p);
}
