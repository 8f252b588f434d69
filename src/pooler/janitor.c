/*
 * What happens by the clock: time limits, idle servers, averages. Every third of a second, as
 * pgbouncer; what must be sharper has a timer of its own. Entry point: janitor_tick().
 */
#include "pooler/move.h"
#include "pooler_int.h"

#define PERIOD       (333 * USEC_MSEC)
#define SURPLUS_IDLE (30 * USEC_SEC) /* servers beyond the pool's size are closed after this */

static struct {
	usec_t stats_at;
	bool limited; /* is_limited(), of this tick: with thousands of clients a look at each costs */
} janitor;

/* --- clients --- */

/* limit: the setting that says so; NULL: none does */
static void end_client(struct client *c, const char *sqlstate, const char *text, const char *limit)
{
	struct pg_error err;

	pg_error_set(&err, sqlstate, "%s", text);
	if (limit != NULL)
		pg_error_hint(&err, "The limit is %s.", limit);
	client_fatal(c, &err);
}

static bool is_over(usec_t limit, usec_t since, usec_t now)
{
	return limit > 0 && since != 0 && now > since && now - since > limit;
}

static void check_logins(usec_t now)
{
	usec_t limit = conf_current()->p.client_login_timeout;
	struct client *c, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (client_all.logins.head, c, tmp) {
		client_auth_tick(c, now);
		if (c->state != CLIENT_DEAD && limit > 0 && now - c->connect_time > limit) {
			pg_error_set(&err, "08P01", "client_login_timeout");
			pg_error_hint(
				&err, "The client did not log in within client_login_timeout.");
			client_fatal(c, &err);
		}
	}
}

static usec_t wait_limit(const struct pool *p, struct account *a)
{
	usec_t limit = account_limits(a)->query_wait_timeout;

	return limit != USEC_NEVER ? limit : p->db->query_wait_timeout;
}

/* true: the client was ended. */
static bool check_wait(struct pool *p, struct client *c, usec_t now)
{
	struct pg_error err;

	if (!is_over(wait_limit(p, c->account), c->request_time, now))
		return false;
	pg_error_set(&err, "53300", "query_wait_timeout");
	pool_explain_limit(p, &err);
	client_fatal(c, &err);
	return true;
}

static void check_waiting(struct pool *p, usec_t now)
{
	usec_t notify = conf_current()->p.query_wait_notify;
	struct client *c, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (p->waiting.head, c, tmp) {
		if (!check_wait(p, c, now) && is_over(notify, c->request_time, now) &&
			!c->head.wait_noticed) {
			c->head.wait_noticed = true;
			pg_error_set(&err, "00000",
				"No server connection available in postgres backend, client being queued");
			pg_error_severity(&err, "NOTICE");
			client_notice(c, &err);
		}
	}
}

static void check_greeting(struct pool *p, usec_t now)
{
	usec_t limit = conf_current()->p.client_login_timeout;
	struct client *c, *tmp;

	DL_FOREACH_SAFE (p->greeting.head, c, tmp)
		if (limit > 0 && now - c->connect_time > limit)
			end_client(c, "08006", "client_login_timeout (server down)", NULL);
		else
			(void)check_wait(p, c, now);
}

/* A block that no server knows of is one, and a statement outside of any. true: the client was
 * ended. */
static bool check_transaction(struct client *c, usec_t now)
{
	const struct account_limits *l = account_limits(c->account);
	bool owed = client_is_owed(c);
	usec_t since = c->tx.start == 0 && owed ? c->request_time : c->tx.start;

	if (client_tx(c) != CLIENT_TX_IDLE && c->state == CLIENT_ACTIVE && c->request_time == 0 &&
		!owed && is_over(l->idle_transaction_timeout, c->idle_since, now))
		end_client(c, "25P03", "idle transaction timeout", "idle_transaction_timeout");
	else if (is_over(l->transaction_timeout, since, now))
		end_client(c, "25P04", "transaction timeout", "transaction_timeout");
	return c->state == CLIENT_DEAD;
}

/* Of a client that has a server. */
static void check_active(struct server *s, struct client *c, usec_t now)
{
	const struct account_limits *l = account_limits(c->account);

	if (!check_transaction(c, now) && s->expect.count > 0 &&
		is_over(l->query_timeout, c->request_time, now))
		end_client(c, "57014", "query timeout", "query_timeout");
}

/* Of a line of [users]. */
static bool is_time(usec_t limit)
{
	return limit > 0 && limit != USEC_NEVER;
}

/* Whether anybody has a limit of those that hold for clients without a server. */
static bool is_limited(void)
{
	const struct params *p = &conf_current()->p;

	if (p->idle_transaction_timeout > 0 || p->transaction_timeout > 0 ||
		p->client_idle_timeout > 0)
		return true;
	for (const struct conf_user *u = conf_current()->users; u != NULL; u = u->next)
		if (is_time(u->idle_transaction_timeout) || is_time(u->transaction_timeout) ||
			is_time(u->client_idle_timeout))
			return true;
	return false;
}

static void check_clients(struct pool *p, usec_t now)
{
	struct server *s, *tmp;
	struct client *c, *ctmp;

	DL_FOREACH_SAFE (p->servers[SERVER_ACTIVE].head, s, tmp)
		if (s->link != NULL)
			check_active(s, s->link, now);
	if (!janitor.limited)
		return;
	DL_FOREACH_SAFE (p->waiting.head, c, ctmp)
		(void)check_transaction(c, now);
	DL_FOREACH_SAFE (p->active.head, c, ctmp)
		if (c->link == NULL && !check_transaction(c, now) && c->state == CLIENT_ACTIVE &&
			c->tx.virtual == VTX_NONE &&
			is_over(account_limits(c->account)->client_idle_timeout, c->idle_since,
				now))
			end_client(c, "57P05", "client_idle_timeout", "client_idle_timeout");
}

/* --- servers --- */

static void check_server_logins(struct pool *p, usec_t now)
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
			server_login_give_up(s, &err, "connect timeout");
		}
}

static void check_idle(struct pool *p, usec_t now)
{
	const struct params *pr = &conf_current()->p;
	usec_t lifetime = p->db->server_lifetime;
	struct server *s, *tmp;

	DL_FOREACH_SAFE (p->servers[SERVER_IDLE].head, s, tmp) {
		bool engine = s->use.engine;
		unsigned there = need_servers_there(p);
		bool spare = engine || there > (unsigned)p->db->min_pool_size;
		/* of the queue engine, or of the reserve; one of the engine's own stays as the others do */
		bool surplus = engine ? p->engines.n > 1 : there > (unsigned)route_pool_size(p);

		if (s->close_needed || route_paused(p->db))
			server_close(s,
				s->close_needed ? "database configuration changed" : "pause mode",
				NULL);
		else if (surplus && now - s->idle_since > SURPLUS_IDLE)
			server_close(s, "surplus server idle", NULL);
		else if (pr->server_idle_timeout > 0 && spare &&
			 now - s->idle_since > pr->server_idle_timeout)
			server_close(s, "server idle timeout", NULL);
		else if (lifetime > 0 && now - s->connect_time > lifetime)
			server_close(s, "server lifetime over", NULL);
	}
}

/* Kept for the next job: until its time is over, and not when the process is to end, or another one has it. */
static void check_kept(struct pool *p, usec_t now)
{
	usec_t lifetime = p->db->server_lifetime, idle = conf_current()->p.server_idle_timeout;
	bool ends = pooler_is_shutting_down() != SHUTDOWN_NONE || move_is_begun();
	struct server *s, *tmp;

	DL_FOREACH_SAFE (p->servers[SERVER_KEPT].head, s, tmp)
		if (s->close_needed || route_paused(p->db))
			server_close(s,
				s->close_needed ? "database configuration changed" : "pause mode",
				NULL);
		else if (idle > 0 && now - s->idle_since > idle)
			server_close(s, "server idle timeout", NULL);
		else if (lifetime > 0 && now - s->connect_time > lifetime)
			server_close(s, "server lifetime over", NULL);
		else if (ends || kept_is_over(s, now))
			server_forsake(s);
}

/* Never free. What is notified where it should be by now it does not hear: whoever listens loses
 * its connection, as when it breaks. */
static void check_listening(struct pool *p)
{
	struct server *s, *tmp;

	DL_FOREACH_SAFE (p->servers[SERVER_LISTENING].head, s, tmp)
		if (s->close_needed)
			server_close(s, "database configuration changed", NULL);
}

/* Of sessions that say nothing just now. */
static void check_fast_close(struct pool *p)
{
	struct server *s, *tmp;

	DL_FOREACH_SAFE (p->servers[SERVER_ACTIVE].head, s, tmp)
		if (server_wants_fast_close(s))
			server_close_fast(s);
}

/* Of clients that did not stay for the answer, or of many at once. */
static void check_without_client(struct pool *p, enum server_state state, usec_t now)
{
	usec_t limit = account_limits(p->account)->query_timeout;
	struct server *s, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (p->servers[state].head, s, tmp)
		if (is_over(limit, s->request_time, now)) {
			/* whether it was carried out is not known, as when the connection breaks */
			pg_error_set(&err, "08006", "query timeout");
			pg_error_hint(&err, "The limit is query_timeout.");
			cancel_server(s);
			server_close(s, "query timeout", &err);
		}
}

/* --- a pool, a database, all --- */

static void check_tasks(struct pool *p, usec_t now)
{
	usec_t limit = wait_limit(p, p->account);

	if (limit > 0)
		task_fail_late(p, limit, now);
}

static void tick_pool(struct pool *p, usec_t now)
{
	check_server_logins(p, now);
	check_idle(p, now);
	over_look(p, now);
	check_kept(p, now);
	check_listening(p);
	if (conf_current()->p.server_fast_close)
		check_fast_close(p);
	check_waiting(p, now);
	check_tasks(p, now);
	check_greeting(p, now);
	check_clients(p, now);
	check_without_client(p, SERVER_FINISHING, now);
	check_without_client(p, SERVER_TASK, now);
	silent_tick(p, now);
	pool_keep_minimum(p, now);
	if (p->waiting.count > 0 || p->n_tasks > 0 || p->greeting.count > 0)
		pool_mark_ready(p);
}

static void fail_tasks(struct pool *p)
{
	struct pg_error err;

	pg_error_set(&err, "57P01", "database removed");
	task_fail_waiting(p, &err, USEC_NEVER, false);
}

static void end_gone(struct database *db)
{
	struct client *c, *tmp;

	for (struct pool *p = db->pools; p != NULL; p = p->next) {
		struct client_list *lists[] = {&p->active, &p->waiting, &p->greeting};

		for (size_t i = 0; i < ARRAY_LEN(lists); i++)
			DL_FOREACH_SAFE (lists[i]->head, c, tmp)
				end_client(c, "57P01", "database removed", NULL);
		(void)ends_phase(NULL, loop_now());
		for (int i = 0; i < SERVER_DEAD; i++)
			while (p->servers[i].head != NULL)
				server_close(p->servers[i].head, "database removed", NULL);
		fail_tasks(p);
	}
}

/* The words of pgbouncer, which programs that read logs know; what is ours comes last. */
static void log_averages(void)
{
	struct pool_stats avg, *a = &avg;

	stat_averages(&avg);
	log_info("stats: %llu xacts/s, %llu queries/s, in %llu B/s, out %llu B/s, "
		 "xact %llu us, query %llu us, wait %llu us, clients %u",
		(unsigned long long)a->xacts, (unsigned long long)a->queries,
		(unsigned long long)a->bytes_in, (unsigned long long)a->bytes_out,
		(unsigned long long)a->xact_time, (unsigned long long)a->query_time,
		(unsigned long long)a->wait_time, client_count());
}

static void averages(usec_t now)
{
	usec_t period = conf_current()->p.stats_period;

	if (janitor.stats_at == 0)
		janitor.stats_at = now;
	if (period == 0 || now - janitor.stats_at < period)
		return;
	stat_end_period(now - janitor.stats_at);
	janitor.stats_at = now;
	if (conf_current()->p.log_stats)
		log_averages();
}

usec_t janitor_tick(void *arg, usec_t now)
{
	usec_t end;

	(void)arg;
	janitor.limited = is_limited();
	check_logins(now);
	pooler_gate(now);
	if (suspend_tick(now))
		return now + PERIOD;
	for (struct database *db = route_first(); db != NULL; db = db->next) {
		if (db->gone)
			end_gone(db);
		else if (db->user != NULL && db->min_pool_size > 0 && !db->automatic)
			(void)!pool_get(db, db->user); /* has its servers before the first client */
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			tick_pool(p, now);
	}
	cancel_tick(now);
	(void)ends_phase(NULL, now); /* before pools go that those were in */
	route_tick(now);
	averages(now);
	end = shutdown_tick(now);
	return end < now + PERIOD ? end : now + PERIOD;
}
