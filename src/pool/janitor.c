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

static void rate(uint64_t *avg, uint64_t now, uint64_t before, double seconds)
{
	*avg = (uint64_t)((double)(now - before) / seconds);
}

static void mean(uint64_t *avg, uint64_t sum, uint64_t sum_before, uint64_t n, uint64_t n_before)
{
	*avg = n > n_before ? (sum - sum_before) / (n - n_before) : 0;
}

static void average(struct pool *p, double seconds)
{
	struct pool_stats *s = &p->stats, *o = &p->stats_old, *a = &p->stats_avg;

	rate(&a->server_assignments, s->server_assignments, o->server_assignments, seconds);
	rate(&a->xacts, s->xacts, o->xacts, seconds);
	rate(&a->queries, s->queries, o->queries, seconds);
	rate(&a->bytes_in, s->bytes_in, o->bytes_in, seconds);
	rate(&a->bytes_out, s->bytes_out, o->bytes_out, seconds);
	rate(&a->client_parses, s->client_parses, o->client_parses, seconds);
	rate(&a->server_parses, s->server_parses, o->server_parses, seconds);
	rate(&a->binds, s->binds, o->binds, seconds);
	rate(&a->logins, s->logins, o->logins, seconds);
	rate(&a->wait_time, s->wait_time, o->wait_time, seconds);
	mean(&a->xact_time, s->xact_time, o->xact_time, s->xacts, o->xacts);
	mean(&a->query_time, s->query_time, o->query_time, s->queries, o->queries);
	*o = *s;
}

static void log_averages(void)
{
	uint64_t xacts = 0, queries = 0, in = 0, out = 0;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			xacts += p->stats_avg.xacts;
			queries += p->stats_avg.queries;
			in += p->stats_avg.bytes_in;
			out += p->stats_avg.bytes_out;
		}
	log_info("stats: %llu xacts/s, %llu queries/s, in %llu B/s, out %llu B/s, clients %u",
		(unsigned long long)xacts, (unsigned long long)queries, (unsigned long long)in,
		(unsigned long long)out, client_count());
}

static void averages(usec_t now)
{
	usec_t period = conf_current()->p.stats_period;

	if (stats_at == 0)
		stats_at = now;
	if (period == 0 || now - stats_at < period)
		return;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			average(p, (double)(now - stats_at) / (double)USEC_SEC);
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
