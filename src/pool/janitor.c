/*
 * What happens by the clock: time limits, idle servers, averages. Every third of a second, as
 * pgbouncer; what must be sharper has a timer of its own.
 */
#include "pool_int.h"

#define PERIOD (333 * USEC_MSEC)

static usec_t stats_at;

static void check_logins(usec_t now)
{
	usec_t limit = conf_current()->p.client_login_timeout;
	struct client *c, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (client_logins.head, c, tmp) {
		client_auth_tick(c, now);
		if (c->state != CLIENT_DEAD && limit > 0 && now - c->connect_time > limit) {
			pg_error_set(&err, "08P01", "client_login_timeout");
			pg_error_hint(
				&err, "The client did not log in within client_login_timeout.");
			client_fatal(c, &err);
		}
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

	if (stats_at == 0)
		stats_at = now;
	if (period == 0 || now - stats_at < period)
		return;
	stat_end_period(now - stats_at);
	stats_at = now;
	if (conf_current()->p.log_stats)
		log_averages();
}

static void kick_out(struct client *c, const char *sqlstate, const char *text)
{
	struct pg_error err;

	pg_error_set(&err, sqlstate, "%s", text);
	client_fatal(c, &err);
}

static void fail_tasks(struct pool *p)
{
	struct pg_error err;

	pg_error_set(&err, "57P01", "database removed");
	task_fail_waiting(p, &err);
}

static void end_gone(struct database *db)
{
	struct client *c, *tmp;

	for (struct pool *p = db->pools; p != NULL; p = p->next) {
		struct client_list *lists[] = {&p->active, &p->waiting, &p->greeting};

		for (size_t i = 0; i < ARRAY_LEN(lists); i++)
			DL_FOREACH_SAFE (lists[i]->head, c, tmp)
				kick_out(c, "57P01", "database removed");
		for (int i = 0; i < SERVER_DEAD; i++)
			while (p->servers[i].head != NULL)
				server_close(p->servers[i].head, "database removed", NULL);
		fail_tasks(p);
	}
}

usec_t janitor_tick(void *arg, usec_t now)
{
	(void)arg;
	check_logins(now);
	pooler_gate(now);
	if (suspend_tick(now))
		return now + PERIOD;
	for (struct database *db = route_first(); db != NULL; db = db->next) {
		if (db->gone)
			end_gone(db);
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			pool_tick(p, now);
	}
	cancel_tick(now);
	route_tick(now);
	averages(now);
	pooler_shutdown_tick();
	return now + PERIOD;
}
