/*
 * What SHOW shows of the pooler: one filler for each row of shows.h. Reads snapshots only.
 * Entry points: show.h.
 */
#include "show.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/version.h"
#include "conf/conf.h"
#include "net/dns.h"
#include "net/listen.h"
#include "pool/pool.h"
#include "pool/stat.h"

void show_nothing(struct show_rows *r)
{
	(void)r;
}

/* --- the program --- */

void show_version(struct show_rows *r)
{
	char text[128];

	snprintf(text, sizeof(text), "qbouncer %s (%s)", version_number, version_commit);
	row_begin(r);
	row_text(r, text);
	row_end(r);
}

static void pair(struct show_rows *r, const char *key, const char *value)
{
	row_begin(r);
	row_text(r, key);
	row_text(r, value);
	row_end(r);
}

void show_state(struct show_rows *r)
{
	bool paused = pooler_all_paused(), suspended = pooler_is_suspended() != SUSPENDED_NO;

	pair(r, "active", paused || suspended ? "no" : "yes");
	pair(r, "paused", paused ? "yes" : "no");
	pair(r, "suspended", suspended ? "yes" : "no");
}

static void one_param(const char *name, const char *value, const char *def, bool reloadable,
	const char *help, void *arg)
{
	struct show_rows *r = arg;

	(void)help;
	row_begin(r);
	row_text(r, name);
	row_text(r, value);
	row_text(r, def);
	row_text(r, reloadable ? "yes" : "no");
	row_end(r);
}

void show_config(struct show_rows *r)
{
	conf_each_param(&conf_current()->p, one_param, r);
}

static void one_slab(const struct slab_stat *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	row_int(r, (int64_t)st->size);
	row_int(r, (int64_t)st->used);
	row_int(r, (int64_t)st->free);
	row_int(r, (int64_t)st->total);
	row_end(r);
}

void show_mem(struct show_rows *r)
{
	slab_each(one_slab, r);
}

static void item(struct show_rows *r, const char *name, unsigned n)
{
	row_begin(r);
	row_text(r, name);
	row_int(r, n);
	row_end(r);
}

static unsigned count_peers(void)
{
	unsigned n = 0;

	for (const struct conf_peer *p = conf_current()->peers; p != NULL; p = p->next)
		n++;
	return n;
}

void show_peers(struct show_rows *r)
{
	for (const struct conf_peer *p = conf_current()->peers; p != NULL; p = p->next) {
		row_begin(r);
		row_int(r, p->id);
		row_text(r, p->host);
		row_int(r, p->port > 0 ? p->port : 6432);
		row_int(r, p->pool_size > 0 ? p->pool_size : conf_current()->p.default_pool_size);
		row_end(r);
	}
}

void show_peer_pools(struct show_rows *r)
{
	for (const struct conf_peer *p = conf_current()->peers; p != NULL; p = p->next) {
		row_begin(r);
		row_int(r, p->id);
		row_int(r, stat_peer_cancels(p->id));
		row_int(r, 0);
		row_int(r, stat_peer_cancels(p->id));
		row_int(r, 0);
		row_end(r);
	}
}

void show_lists(struct show_rows *r)
{
	struct stat_totals t;
	struct dns_totals d;

	stat_totals(&t);
	dns_count(&d);
	item(r, "databases", t.databases + 1); /* the console's */
	item(r, "users", t.users);
	item(r, "peers", count_peers());
	item(r, "pools", t.pools + 1);
	item(r, "peer_pools", count_peers());
	item(r, "free_clients", t.free_clients);
	item(r, "used_clients", t.used_clients);
	item(r, "login_clients", t.login_clients);
	item(r, "free_servers", t.free_servers);
	item(r, "used_servers", t.used_servers);
	item(r, "dns_names", d.names);
	item(r, "dns_zones", d.zones);
	item(r, "dns_queries", d.queries);
	item(r, "dns_pending", d.pending);
}

/* --- databases, users, pools --- */

static void one_database(const struct stat_database *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	row_text(r, st->host);
	row_int(r, st->port);
	row_text(r, st->dbname);
	row_text(r, st->force_user);
	row_int(r, st->pool_size);
	row_int(r, st->min_pool_size);
	row_int(r, st->reserve_pool_size);
	row_int(r, (int64_t)(st->server_lifetime / USEC_SEC));
	row_text(r, pool_mode_name(st->mode));
	row_text(r, st->load_balance_hosts);
	row_int(r, st->max_connections);
	row_int(r, st->current_connections);
	row_int(r, st->max_client_connections);
	row_int(r, st->current_client_connections);
	row_bool(r, st->paused);
	row_bool(r, st->disabled);
	row_end(r);
}

void show_databases(struct show_rows *r)
{
	struct stat_database console;

	stat_each_database(one_database, r);
	stat_console_database(&console);
	one_database(&console, r);
}

/* Empty when nothing is said of it. */
static void optional_number(struct show_rows *r, int v)
{
	char text[16] = "";

	if (v >= 0)
		snprintf(text, sizeof(text), "%d", v);
	row_text(r, text);
}

static void one_user(const struct stat_user *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	optional_number(r, st->pool_size);
	optional_number(r, st->reserve_pool_size);
	row_text(r, pool_mode_name(st->mode));
	row_int(r, st->max_user_connections);
	row_int(r, st->connections);
	row_int(r, st->max_user_client_connections);
	row_int(r, st->client_connections);
	row_end(r);
}

void show_users(struct show_rows *r)
{
	stat_each_user(one_user, r);
}

/* Whole seconds, and the microseconds beyond them. */
static void duration(struct show_rows *r, usec_t t)
{
	row_int(r, (int64_t)(t / USEC_SEC));
	row_int(r, (int64_t)(t % USEC_SEC));
}

static void one_pool(const struct stat_pool *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->database);
	row_text(r, st->user);
	row_int(r, st->cl_active);
	row_int(r, st->cl_waiting);
	row_int(r, st->cl_active_cancel_req);
	row_int(r, 0);
	row_int(r, st->sv_active);
	row_int(r, st->sv_active_cancel);
	row_int(r, st->sv_being_canceled);
	row_int(r, st->sv_idle);
	row_int(r, st->sv_used);
	row_int(r, st->sv_tested);
	row_int(r, st->sv_login);
	duration(r, st->maxwait);
	row_text(r, pool_mode_name(st->mode));
	row_text(r, st->load_balance_hosts);
	row_int(r, st->sv_pinned);
	row_end(r);
}

void show_pools(struct show_rows *r)
{
	struct stat_pool console;

	stat_each_pool(one_pool, r);
	stat_console_pool(&console);
	one_pool(&console, r);
}

/* --- clients and servers --- */

/* Where pgbouncer has an address in memory: the number again, so that it can be looked for. */
static void object(struct show_rows *r, uint64_t id)
{
	char text[32] = "";

	if (id != 0)
		snprintf(text, sizeof(text), "0x%llx", (unsigned long long)id);
	row_text(r, text);
}

static void session(struct show_rows *r, const struct stat_session *st, const char *state)
{
	row_text(r, st->type);
	row_text(r, st->user);
	row_text(r, st->database);
	row_text(r, "none");
	row_text(r, state);
	row_text(r, st->addr);
	row_int(r, st->port);
	row_text(r, st->local_addr);
	row_int(r, st->local_port);
	row_time(r, st->connect_time_us);
	row_time(r, st->request_time_us);
	duration(r, st->wait);
	row_bool(r, st->close_needed);
	object(r, st->id);
	object(r, st->link_id);
	row_int(r, st->remote_pid);
	row_text(r, st->tls);
	row_text(r, st->application_name);
	row_int(r, st->prepared_statements);
	row_int(r, (int64_t)st->id);
}

static void one_session(const struct stat_session *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	session(r, st, st->state);
	if (r->column < r->n_fields)
		row_text(r, st->pinned);
	row_end(r);
}

/* The state with the side in front, in pgbouncer's words for this list; positions in buffers, which
 * nobody here has; and how much is kept that was not looked at, and not written. */
static void one_socket(const struct stat_session *st, void *arg)
{
	struct show_rows *r = arg;
	const char *name = st->state;
	bool client = st->type[0] == 'C';
	char state[32];

	if (client && strcmp(name, "idle") == 0)
		name = "active";
	else if (!client && strcmp(name, "new") == 0)
		name = "login";
	snprintf(state, sizeof(state), "%s_%s", client ? "cl" : "sv", name);
	row_begin(r);
	session(r, st, state);
	while (r->column < r->n_fields - 2)
		row_int(r, 0);
	row_int(r, (int64_t)st->unread);
	row_int(r, (int64_t)st->unsent);
	row_end(r);
}

static void one_active(const struct stat_session *st, void *arg)
{
	if (strcmp(st->state, "idle") != 0)
		one_socket(st, arg);
}

void show_clients(struct show_rows *r)
{
	stat_each_client(one_session, r);
}

void show_servers(struct show_rows *r)
{
	stat_each_server(one_session, r);
}

void show_sockets(struct show_rows *r)
{
	stat_each_client(one_socket, r);
	stat_each_server(one_socket, r);
}

void show_active_sockets(struct show_rows *r)
{
	stat_each_client(one_active, r);
	stat_each_server(one_active, r);
}

/* --- descriptors --- */

static void fd_begin(struct show_rows *r, int fd, const char *task, const struct stat_session *st)
{
	row_begin(r);
	row_int(r, fd);
	row_text(r, task);
	row_text(r, st != NULL ? st->user : NULL);
	row_text(r, st != NULL ? st->database : NULL);
}

/* What follows the settings are secrets. */
static void fd_end(struct show_rows *r)
{
	while (r->column < r->n_fields)
		row_null(r);
	row_end(r);
}

static void fd_listening(int fd, const struct conn_addr *a, void *arg)
{
	struct show_rows *r = arg;

	fd_begin(r, fd, "pooler", NULL);
	row_text(r, a->is_unix ? "unix" : a->host);
	row_int(r, a->port);
	row_int(r, 0);
	row_int(r, 0);
	fd_end(r);
}

static void fd_session(const struct stat_session *st, void *arg)
{
	struct show_rows *r = arg;

	if (st->fd < 0)
		return;
	fd_begin(r, st->fd, st->type[0] == 'C' ? "client" : "server", st);
	row_text(r, st->addr);
	row_int(r, st->port);
	row_int(r, 0);
	row_int(r, st->link_fd >= 0 ? st->link_fd : 0);
	row_text(r, st->client_encoding);
	row_text(r, st->std_strings);
	row_text(r, st->datestyle);
	row_text(r, st->timezone);
	fd_end(r);
}

void show_fds(struct show_rows *r)
{
	listen_each(fd_listening, r);
	stat_each_client(fd_session, r);
	stat_each_server(fd_session, r);
}

/* --- names of hosts --- */

static void one_host(const struct dns_host_stat *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->host);
	row_int(r, (int64_t)(st->ttl / USEC_SEC));
	row_text(r, st->addrs);
	row_end(r);
}

void show_dns_hosts(struct show_rows *r)
{
	dns_each_host(one_host, r);
}

static void one_zone(const char *zone, unsigned hosts, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, zone);
	row_int(r, 0);
	row_int(r, hosts);
	row_end(r);
}

void show_dns_zones(struct show_rows *r)
{
	dns_each_zone(one_zone, r);
}
