/*
 * Fillers of what is no list of records, and the records that several make one list of. Reads
 * snapshots only. Entry points: show_int.h.
 */
#include "show_int.h"

#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "conf/conf.h"
#include "net/dns.h"
#include "net/listen.h"
#include "pooler/pooler.h"

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

/* --- records --- */

void each_database(void (*fn)(const struct stat_database *st, void *arg), void *arg)
{
	struct stat_database console;

	stat_each_database(fn, arg);
	stat_console_database(&console);
	fn(&console, arg);
}

void each_pool(void (*fn)(const struct stat_pool *st, void *arg), void *arg)
{
	struct stat_pool console;

	stat_each_pool(fn, arg);
	stat_console_pool(&console);
	fn(&console, arg);
}

void each_peer(void (*fn)(const struct conf_peer *st, void *arg), void *arg)
{
	for (const struct conf_peer *p = conf_current()->peers; p != NULL; p = p->next)
		fn(p, arg);
}

struct put_short put_socket_state(const struct stat_session *st)
{
	struct put_short ret;
	const char *name = st->state;
	bool client = st->type[0] == 'C';

	if (client && strcmp(name, "idle") == 0)
		name = "active";
	else if (!client && strcmp(name, "new") == 0)
		name = "login";
	snprintf(ret.text, sizeof(ret.text), "%s_%s", client ? "cl" : "sv", name);
	return ret;
}

void each_socket(void (*fn)(const struct stat_session *st, void *arg), void *arg)
{
	stat_each_client(fn, arg);
	stat_each_server(fn, arg);
}

struct active {
	void (*fn)(const struct stat_session *st, void *arg);
	void *arg;
};

static void one_active(const struct stat_session *st, void *arg)
{
	const struct active *a = arg;

	if (strcmp(st->state, "idle") != 0)
		a->fn(st, a->arg);
}

void each_active_socket(void (*fn)(const struct stat_session *st, void *arg), void *arg)
{
	struct active a = {fn, arg};

	each_socket(one_active, &a);
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
	while (r->column < r->n_fields - (r->process != 0))
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
