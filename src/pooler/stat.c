/*
 * Snapshots of the pool for those who only look.
 */
#include <string.h>
#include <time.h>

#include "pooler_int.h"

/* What its rows are called, by whichever of its names clients came. */
#define CONSOLE_DATABASE "pgbouncer"

/* Monotonic to wall clock, in microseconds since 1970. */
static usec_t wall(usec_t t)
{
	struct timespec ts;
	usec_t now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (usec_t)ts.tv_sec * USEC_SEC + (usec_t)ts.tv_nsec / 1000;
	return t == 0 ? 0 : now - (loop_now() - t);
}

static void add(struct pool_stats *to, const struct pool_stats *s)
{
	const uint64_t *from = (const uint64_t *)s;
	uint64_t *sum = (uint64_t *)to;

	_Static_assert(sizeof(*s) % sizeof(uint64_t) == 0, "only counters");
	for (size_t i = 0; i < sizeof(*s) / sizeof(uint64_t); i++)
		sum[i] += from[i];
}

static void subtract(struct pool_stats *from, const struct pool_stats *s)
{
	const uint64_t *less = (const uint64_t *)s;
	uint64_t *rest = (uint64_t *)from;

	for (size_t i = 0; i < sizeof(*s) / sizeof(uint64_t); i++)
		rest[i] -= less[i];
}

/* --- averages --- */

static struct {
	double seconds; /* how long the last period was; 0 before its end */
	struct pool_stats console_last, console_old; /* of the console, which has no pool */
} period;

void stat_console_query(void)
{
	count_console()->queries++;
	count_console()->xacts++;
}

void stat_end_period(usec_t length)
{
	period.seconds = (double)length / (double)USEC_SEC;
	period.console_last = *count_console();
	subtract(&period.console_last, &period.console_old);
	period.console_old = *count_console();
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			p->stats_last = p->stats;
			subtract(&p->stats_last, &p->stats_old);
			p->stats_old = p->stats;
		}
}

static uint64_t per_second(uint64_t n)
{
	return period.seconds > 0 ? (uint64_t)((double)n / period.seconds) : 0;
}

/* Of what happened in the last period, whatever number of pools it is the sum of. */
static struct pool_stats average(const struct pool_stats *last)
{
	struct pool_stats a = {.server_assignments = per_second(last->server_assignments),
		.xacts = per_second(last->xacts),
		.queries = per_second(last->queries),
		.bytes_in = per_second(last->bytes_in),
		.bytes_out = per_second(last->bytes_out),
		.client_parses = per_second(last->client_parses),
		.server_parses = per_second(last->server_parses),
		.binds = per_second(last->binds),
		.logins = per_second(last->logins),
		.wait_time = per_second(last->wait_time)};

	if (last->xacts > 0)
		a.xact_time = last->xact_time / last->xacts;
	if (last->queries > 0)
		a.query_time = last->query_time / last->queries;
	return a;
}

void stat_averages(struct pool_stats *ret)
{
	struct pool_stats last = {0};

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			add(&last, &p->stats_last);
	*ret = average(&last);
}

/* --- snapshots --- */

/* As pgbouncer: NULL where there is one host. */
static const char *balance_name(const struct database *db)
{
	if (db->host == NULL || strchr(db->host, ',') == NULL)
		return NULL;
	return db->balance == BALANCE_DISABLE ? "disable" : "round-robin";
}

void stat_each_database(void (*fn)(const struct stat_database *st, void *arg), void *arg)
{
	struct pool_stats last;

	for (struct database *db = route_first(); db != NULL; db = db->next) {
		struct stat_database st = {.name = db->name,
			.host = db->host,
			.dbname = db->dbname,
			.force_user = db->user,
			.port = db->port,
			.pool_size = db->pool_size,
			.min_pool_size = db->min_pool_size,
			.reserve_pool_size = db->reserve_pool_size,
			.max_connections = db->max_connections,
			.current_connections = (int)db->n_servers,
			.max_client_connections = db->max_client_connections,
			.current_client_connections = (int)db->n_clients,
			.server_lifetime = db->server_lifetime,
			.mode = db->mode,
			.load_balance_hosts = balance_name(db),
			.paused = route_paused(db),
			.disabled = db->disabled};

		if (db->gone || db->unproven)
			continue;
		memset(&last, 0, sizeof(last));
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			add(&st.total, &p->stats);
			add(&last, &p->stats_last);
			hist_merge(&st.times.wait, &p->times.wait);
			hist_merge(&st.times.query, &p->times.query);
			hist_merge(&st.times.transaction, &p->times.transaction);
		}
		st.avg = average(&last);
		fn(&st, arg);
	}
}

void stat_console_database(struct stat_database *ret)
{
	const struct params *p = &conf_current()->p;
	struct stat_database st = {.name = CONSOLE_DATABASE,
		.port = p->listen_port,
		.dbname = CONSOLE_DATABASE,
		.force_user = CONSOLE_DATABASE,
		.pool_size = 2,
		.max_client_connections = p->max_db_client_connections,
		.current_client_connections = (int)client_all.consoles.count,
		.server_lifetime = p->server_lifetime,
		.mode = POOL_MODE_STATEMENT,
		.total = *count_console(),
		.avg = average(&period.console_last)};

	*ret = st;
}

void stat_console_pool(struct stat_pool *ret)
{
	struct stat_pool st = {.database = CONSOLE_DATABASE,
		.user = CONSOLE_DATABASE,
		.cl_active = client_all.consoles.count,
		.mode = POOL_MODE_STATEMENT};

	*ret = st;
}

static unsigned count_parked(const struct pool *p)
{
	const struct client *c;
	unsigned n = 0;

	DL_FOREACH (p->active.head, c)
		n += c->state == CLIENT_PARKED;
	return n;
}

static unsigned count_cancelled(const struct pool *p)
{
	const struct server *s;
	unsigned n = p->servers[SERVER_CANCELLED].count;

	DL_FOREACH (p->servers[SERVER_ACTIVE].head, s)
		n += s->cancels > 0;
	return n;
}

/* Pools that clients share come first in what is told of a user; one that is not theirs has a row
 * only when there is no other, because monitoring takes database and user for a key. */
static bool is_second(const struct pool *p)
{
	bool own = p->lookup || p->startup != NULL, before = true;

	if (!own)
		return false;
	for (const struct pool *other = p->db->pools; other != NULL; other = other->next) {
		bool other_own = other->lookup || other->startup != NULL;

		if (other == p)
			before = false;
		else if (other->user == p->user && (!other_own || before))
			return true;
	}
	return false;
}

void stat_each_pool(void (*fn)(const struct stat_pool *st, void *arg), void *arg)
{
	usec_t now = loop_now();

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->unproven ? NULL : db->pools; p != NULL; p = p->next) {
			struct stat_pool st = {.database = db->name,
				.user = istr_text(p->user),
				.cl_active = p->active.count,
				.cl_waiting = p->waiting.count + p->greeting.count,
				.sv_active = p->servers[SERVER_ACTIVE].count +
					     p->servers[SERVER_TASK].count,
				.sv_being_canceled = count_cancelled(p),
				.sv_idle = p->servers[SERVER_IDLE].count,
				.sv_tested = p->servers[SERVER_FINISHING].count +
					     p->servers[SERVER_CLEANING].count,
				.sv_login = p->servers[SERVER_LOGIN].count,
				.cl_parked = count_parked(p),
				.sv_queue = p->servers[SERVER_TASK].count,
				.sv_engine = p->engines.n,
				.sv_kept = p->servers[SERVER_KEPT].count,
				.sv_pinned = p->n_pinned,
				.mode = route_pool_mode(p),
				.load_balance_hosts = balance_name(db)};

			if (is_second(p))
				continue;
			cancel_count(p, &st.cl_active_cancel_req, &st.sv_active_cancel);
			if (pool_client_waits_since(p) < now)
				st.maxwait = now - pool_client_waits_since(p);
			fn(&st, arg);
		}
}

static int fd_of(const struct conn *conn)
{
	return conn != NULL ? conn_fd(conn) : -1;
}

static void put_settings(struct stat_session *st, const struct vars *v)
{
	st->application_name = istr_text(v->v[VAR_APPLICATION_NAME]);
	st->client_encoding = istr_text(v->v[VAR_CLIENT_ENCODING]);
	st->std_strings = istr_text(v->v[VAR_STANDARD_STRINGS]);
	st->datestyle = istr_text(v->v[VAR_DATESTYLE]);
	st->timezone = istr_text(v->v[VAR_TIMEZONE]);
}

static void put_addresses(struct stat_session *st, const struct conn *conn)
{
	const struct conn_addr *a;

	st->fd = fd_of(conn);
	st->addr = st->local_addr = st->tls = "";
	if (conn == NULL)
		return;
	st->unread = conn_pending_input(conn);
	st->unsent = conn_pending_output(conn);
	a = conn_peer(conn);
	st->addr = a->is_unix ? "unix" : a->host;
	st->port = a->port;
	a = conn_local(conn);
	st->local_addr = a->is_unix ? "unix" : a->host;
	st->local_port = a->port;
	st->tls = conn_tls_text(conn);
}

static const char *client_state_name(const struct client *c)
{
	switch ((enum client_state)c->state) {
	case CLIENT_WAITING:
	case CLIENT_LOGIN:
		return "waiting";
	case CLIENT_PARKED:
		return "parked";
	case CLIENT_ACTIVE:
	case CLIENT_BARRIER:
	case CLIENT_LEAVING:
	case CLIENT_MOVING:
	case CLIENT_DEAD:
		break;
	}
	return c->link != NULL ? "active" : "idle";
}

struct each {
	void (*fn)(const struct stat_session *st, void *arg);
	void *arg;
};

static void one_client(struct client *c, void *arg)
{
	const struct each *e = arg;
	struct stat_session st = {.type = "C",
		.user = istr_text(c->user),
		.database = istr_text(c->database),
		.state = client_state_name(c),
		.connect_time_us = wall(c->connect_time),
		.request_time_us = wall(c->request_time != 0 ? c->request_time : c->idle_since),
		.pinned = session_pin_names(c->pins),
		.prepared_statements = (int)HASH_COUNT(c->stmts),
		.id = c->id,
		.link_id = c->link != NULL ? c->link->id : 0};

	if (c->state == CLIENT_LOGIN && c->user == NULL)
		return;
	if (c->state == CLIENT_WAITING && loop_now() > c->request_time)
		st.wait = loop_now() - c->request_time;
	st.remote_pid = c->conn != NULL ? conn_peer_pid(c->conn) : 0;
	st.link_fd = c->link != NULL ? fd_of(c->link->conn) : -1;
	put_settings(&st, &c->vars);
	put_addresses(&st, c->conn);
	e->fn(&st, e->arg);
}

void stat_each_client(void (*fn)(const struct stat_session *st, void *arg), void *arg)
{
	struct each e = {fn, arg};

	client_each(one_client, &e);
}

static const char *const server_state_names[SERVER_STATES] = {[SERVER_LOGIN] = "new",
	[SERVER_IDLE] = "idle",
	[SERVER_ACTIVE] = "active",
	[SERVER_TASK] = "active",
	[SERVER_FINISHING] = "tested",
	[SERVER_CLEANING] = "tested",
	[SERVER_KEPT] = "kept",
	[SERVER_LISTENING] = "active",
	[SERVER_CANCELLED] = "being_canceled",
	[SERVER_DEAD] = "dead"};

static void one_server(const struct server *s, const struct each *e)
{
	struct stat_session st = {.type = "S",
		.user = istr_text(s->pool->user),
		.database = s->pool->db->name,
		.state = server_state_names[s->state],
		.connect_time_us = wall(s->connect_time),
		.request_time_us = wall(s->request_time),
		.remote_pid = s->pid,
		.pinned = "",
		.prepared_statements = (int)s->n_prepared,
		.close_needed = s->close_needed,
		.engine = s->use.engine,
		.id = s->id,
		.link_id = s->link != NULL ? s->link->id : 0};

	st.link_fd = s->link != NULL ? fd_of(s->link->conn) : -1;
	put_settings(&st, &s->vars);
	put_addresses(&st, s->conn);
	e->fn(&st, e->arg);
}

void stat_each_server(void (*fn)(const struct stat_session *st, void *arg), void *arg)
{
	struct each e = {fn, arg};
	const struct server *s;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			for (int i = 0; i < SERVER_DEAD; i++)
				DL_FOREACH (p->servers[i].head, s)
					one_server(s, &e);
}

struct each_user {
	void (*fn)(const struct stat_user *st, void *arg);
	void *arg;
};

/* Connections of a user over all databases: clients by the name that they came with, whoever the
 * server knows them as. */
static void count_user(struct stat_user *st)
{
	struct istr *name = istr_get(st->name, strlen(st->name));
	const struct account *a = name != NULL ? account_find(name) : NULL;

	istr_drop(&name);
	if (a == NULL)
		return;
	st->connections = a->servers;
	st->client_connections = a->clients;
}

static int either(int own, int fallback)
{
	return own >= 0 ? own : fallback;
}

static void put_user_settings(struct stat_user *st)
{
	const struct conf_user *cu = conf_find_user(conf_current(), st->name);

	st->mode = POOL_MODE_UNSET;
	st->pool_size = st->reserve_pool_size = -1;
	st->max_user_connections = either(
		cu != NULL ? cu->max_user_connections : -1, conf_current()->p.max_user_connections);
	st->max_user_client_connections = either(cu != NULL ? cu->max_user_client_connections : -1,
		conf_current()->p.max_user_client_connections);
	if (cu == NULL)
		return;
	st->mode = cu->pool_mode;
	st->pool_size = cu->pool_size;
	st->reserve_pool_size = cu->reserve_pool_size;
}

static void one_user(const char *name, const struct each_user *e)
{
	struct stat_user st = {.name = name};

	put_user_settings(&st);
	count_user(&st);
	e->fn(&st, e->arg);
}

static void one_of_file(const struct auth_user *u, void *arg)
{
	one_user(u->name, arg);
}

/* Of those that neither has: auth_query knows them, or nobody needs to. */
static void one_account(const struct account *a, void *arg)
{
	const char *name = istr_text(a->name);

	if (auth_user_find(name) == NULL && conf_find_user(conf_current(), name) == NULL)
		one_user(name, arg);
}

void stat_each_user(void (*fn)(const struct stat_user *st, void *arg), void *arg)
{
	struct each_user e = {fn, arg};

	auth_each_user(one_of_file, &e);
	for (const struct conf_user *u = conf_current()->users; u != NULL; u = u->next)
		if (auth_user_find(u->name) == NULL && strcmp(u->name, "*") != 0)
			one_user(u->name, &e);
	account_each(one_account, &e);
}

static void count_one(const struct stat_user *st, void *arg)
{
	(void)st;
	++*(unsigned *)arg;
}

void stat_totals(struct stat_totals *ret)
{
	memset(ret, 0, sizeof(*ret));
	stat_each_user(count_one, &ret->users);
	for (struct database *db = route_first(); db != NULL; db = db->next) {
		ret->databases += !db->gone && !db->unproven;
		for (struct pool *p = db->unproven ? NULL : db->pools; p != NULL; p = p->next) {
			ret->pools++;
			ret->used_servers += pool_servers_total(p);
		}
	}
	ret->login_clients = client_all.logins.count;
	ret->used_clients = client_count() - client_all.logins.count;
}

void stat_each_error(void (*fn)(const char *sqlstate, uint64_t count, void *arg), void *arg)
{
	count_each_error(fn, arg);
}

unsigned stat_peer_cancels(int peer)
{
	return cancel_count_peer(peer);
}
