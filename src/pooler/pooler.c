/*
 * The pooler as a whole: start and end, and what an operator may do to it.
 */
#include <string.h>

#include "auth/outside.h"
#include "auth/penalty.h"
#include "net/dns.h"
#include "net/listen.h"
#include "pool/places.h"
#include "move_int.h"

static void reap(void *arg)
{
	(void)arg;
	move_send();
	ends_reap();
}

/* Servers that were reached by a name that leads elsewhere now are closed when they are free. */
static void address_gone(const char *host, const char *addr)
{
	struct server *s;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			for (int i = SERVER_IDLE; i < SERVER_DEAD; i++)
				DL_FOREACH (p->servers[i].head, s)
					if (s->conn != NULL && s->host != NULL &&
						util_strcasecmp(istr_text(s->host), host) == 0 &&
						strcmp(conn_peer(s->conn)->host, addr) == 0)
						s->close_needed = true;
}

/* What the pool asks of those who know it. */
static const struct pool_calls calls = {
	.login = server_login_start,
	.welcome = client_login_welcome,
	.wake = listen_wake,
	.check = server_check,
	.idle = shutdown_client_ready,
	.turns_away = pooler_turns_away,
	.stranger = adopt_pass_on_cancel,
	.fewer_logins = pooler_gate_moved,
	.task_starts = task_starts,
	.task_start = task_start,
	.tasks_fail = task_fail_waiting,
	.settings = &dest_vars,
	.unheard = &dest_swallow,
};

static bool last_phase(void *arg, usec_t now)
{
	return (client_all.leaving.head != NULL && shutdown_say_goodbye(arg, now)) ||
	       ends_are_due();
}

bool pooler_start(void)
{
	shutdown_reset();
	pool_all.paused = false;
	loop_phase(LOOP_PHASE_POOLS, pool_serve_ready, NULL);
	loop_phase(LOOP_PHASE_ENDS, ends_phase, NULL);
	loop_phase(LOOP_PHASE_POOLS, last_phase, NULL);
	loop_reaper(reap, NULL);
	dns_on_gone(address_gone);
	if (!pooler_tick_start(janitor_tick) || !pool_start(&calls))
		return false;
	cancel_start();
	places_start();
	route_reload(conf_current());
	return true;
}

static void end_client(struct client *c, void *arg)
{
	(void)arg;
	client_close(c, CLIENT_END_BY_US, NULL);
}

static void end_servers(void)
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			for (int i = 0; i < SERVER_DEAD; i++)
				while (p->servers[i].head != NULL)
					server_close(p->servers[i].head, "shutdown", NULL);
}

void pooler_free(void)
{
	struct pg_error err;

	pg_error_set(&err, "57P01", "terminating connection due to administrator command");
	client_each(end_client, NULL);
	(void)ends_phase(NULL, loop_now());
	end_servers();
	(void)ends_phase(NULL, loop_now());
	pool_all.ends = true;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			task_fail_waiting(p, &err, USEC_NEVER, false);
	lookup_free_all();
	penalty_free();
	outside_free();
	cancel_free();
	ends_reap();
	route_free();
	pooler_tick_stop();
	pooler_gate_stop();
	places_stop();
	pool_stop();
	client_free_slabs();
	server_free_slabs();
}

void pooler_accept(int fd, const struct conn_addr *peer, void *unused)
{
	struct client *c = client_new(fd, peer, &client_login_ops);

	(void)unused;
	if (c == NULL)
		log_warning("out of memory: a connection was refused");
	else
		client_login_start(c);
	pooler_gate(loop_now());
	pooler_gate_even();
}

void pooler_on_moved(void (*fn)(const char *database))
{
	route_on_moved(fn);
}

void pooler_reloaded(void)
{
	route_reload(conf_current());
}

/* --- what the console does --- */

bool pooler_has_database(const char *name)
{
	struct database *db;

	for (db = route_first(); db != NULL; db = db->next)
		if (strcmp(db->name, name) == 0 && !db->gone)
			return true;
	return conf_find_database(conf_current(), name) != NULL;
}

bool pooler_is_disabled(const char *database)
{
	const struct database *db = route_find(database);

	return db != NULL && db->disabled;
}

static struct client *any_client(const struct pool *p)
{
	if (p->active.head != NULL)
		return p->active.head;
	return p->waiting.head != NULL ? p->waiting.head : p->greeting.head;
}

static void end_all_clients(struct database *db)
{
	struct client *c;
	struct pg_error err;

	pg_error_set(&err, "57P01", "terminating connection due to administrator command");
	pg_error_detail(&err, "KILL on the console of the pooler.");
	for (struct pool *p = db->pools; p != NULL; p = p->next) {
		/* always the first: the end of one may move another */
		while ((c = any_client(p)) != NULL)
			client_fatal(c, &err);
		(void)ends_phase(NULL, loop_now());
		for (int i = 0; i < SERVER_DEAD; i++)
			while (p->servers[i].head != NULL)
				server_close(p->servers[i].head, "admin forced disconnect", NULL);
	}
}

static void wake(struct database *db)
{
	for (struct pool *p = db->pools; p != NULL; p = p->next)
		pool_mark_ready(p);
}

static enum pooler_result command_one(enum pooler_command cmd, struct database *db)
{
	switch (cmd) {
	case POOLER_PAUSE:
		if (db->paused)
			return POOLER_ALREADY_PAUSED;
		db->paused = true;
		break;
	case POOLER_RESUME:
		if (!db->paused)
			return POOLER_NOT_PAUSED;
		db->paused = false;
		wake(db);
		break;
	case POOLER_DISABLE:
		db->disabled = true;
		break;
	case POOLER_ENABLE:
		db->disabled = false;
		break;
	case POOLER_KILL:
		db->paused = true;
		end_all_clients(db);
		break;
	case POOLER_RECONNECT:
		route_reconnect(db);
		break;
	case POOLER_SUSPEND:
		break;
	}
	return POOLER_OK;
}

static enum pooler_result suspend(void)
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		if (db->paused)
			return POOLER_SOME_PAUSED;
	suspend_begin();
	return POOLER_OK;
}

static enum pooler_result command_all(enum pooler_command cmd)
{
	struct database *db;

	bool suspended = pooler_is_suspended() != SUSPENDED_NO;

	if ((cmd == POOLER_PAUSE || cmd == POOLER_SUSPEND) && (pool_all.paused || suspended))
		return POOLER_ALREADY_PAUSED;
	if (cmd == POOLER_RESUME && !pool_all.paused && !suspended)
		return POOLER_NOT_PAUSED;
	if (cmd == POOLER_SUSPEND)
		return suspend();
	if (cmd == POOLER_RESUME || cmd == POOLER_KILL)
		suspend_end();
	if (cmd == POOLER_PAUSE || cmd == POOLER_KILL)
		pool_all.paused = true;
	if (cmd == POOLER_RESUME)
		pool_all.paused = false;
	for (db = route_first(); db != NULL; db = db->next) {
		if (cmd == POOLER_KILL)
			end_all_clients(db);
		else if (cmd == POOLER_RESUME)
			wake(db);
		else if (cmd != POOLER_PAUSE)
			command_one(cmd, db);
	}
	return POOLER_OK;
}

enum pooler_result pooler_command(enum pooler_command cmd, const char *database)
{
	struct database *db;

	if (database == NULL || database[0] == '\0')
		return command_all(cmd);
	db = route_find(database);
	return db != NULL ? command_one(cmd, db) : POOLER_NO_DATABASE;
}

static bool database_at_rest(struct database *db)
{
	struct pool *p;

	for (p = db->pools; p != NULL; p = p->next)
		if (pool_servers_total(p) > 0)
			return false;
	return true;
}

bool pooler_is_paused(const char *database)
{
	struct database *db;

	for (db = route_first(); db != NULL; db = db->next) {
		if (database != NULL && strcmp(db->name, database) != 0)
			continue;
		if (!route_paused(db) || !database_at_rest(db))
			return false;
	}
	return true;
}

bool pooler_pause_holds(const char *database)
{
	const struct database *db;

	for (db = route_first(); db != NULL && database != NULL; db = db->next)
		if (strcmp(db->name, database) == 0 && db->paused)
			return true;
	return pool_all.paused;
}

bool pooler_all_paused(void)
{
	return pool_all.paused;
}

struct find_id {
	uint64_t id;
	struct client *found;
};

static void match_id(struct client *c, void *arg)
{
	struct find_id *f = arg;

	if (c->id == f->id && c->state != CLIENT_DEAD)
		f->found = c;
}

bool pooler_kill_client(uint64_t id)
{
	struct find_id f = {.id = id};
	struct pg_error err;

	client_each(match_id, &f);
	if (f.found == NULL)
		return false;
	pg_error_set(&err, "57P01", "admin forced disconnect");
	client_fatal(f.found, &err);
	return true;
}

struct pool *pooler_find_pool(const char *database, const char *user)
{
	struct database *db = route_find(database);

	if (db == NULL)
		return NULL;
	if (user == NULL) {
		struct pool *p = db->pools;

		while (p != NULL && (p->lookup || p->startup != NULL))
			p = p->next;
		return p;
	}
	return pool_get(db, user);
}
