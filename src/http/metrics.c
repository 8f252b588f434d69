/*
 * What is measured: figures of the pool, of the queue and of the process, from their snapshots.
 * Names follow Prometheus' conventions: seconds, bytes, _total for what only grows. Entry point:
 * metrics_write().
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "http_int.h"
#include "pooler/pooler.h"
#include "pooler/stat.h"
#include "queue/stat.h"

#define COUNTER "counter"
#define GAUGE   "gauge"
#define MICRO   1e-6

/* One row of a table: a member of a snapshot as a metric. */
struct member {
	const char *name, *type, *help;
	size_t offset;
	double scale;
};

/* What is passed through stat_each_*(): all rows of one family, then of the next. */
struct pass {
	struct buf *b;
	const struct member *m;
};

/* --- databases --- */

#define TOTAL(name, member, scale, help)                                                           \
	{                                                                                          \
		name, COUNTER, help, offsetof(struct pool_stats, member), scale                    \
	}
static const struct member totals[] = {
	TOTAL("server_assignments_total", server_assignments, 1,
		"Server connections given to clients."),
	TOTAL("transactions_total", xacts, 1, "Transactions that have ended."),
	TOTAL("queries_total", queries, 1, "Queries, or batches up to Sync."),
	TOTAL("received_bytes_total", bytes_in, 1, "Bytes that came from clients."),
	TOTAL("sent_bytes_total", bytes_out, 1, "Bytes that were sent to clients."),
	TOTAL("client_parses_total", client_parses, 1,
		"Statements that clients have prepared under a name."),
	TOTAL("server_parses_total", server_parses, 1, "Named statements prepared on servers."),
	TOTAL("binds_total", binds, 1, "Uses of named statements by clients."),
	TOTAL("client_logins_total", logins, 1, "Logins of clients."),
	TOTAL("session_pins_total", pins, 1, "How often a client got to keep its server."),
	TOTAL("session_looks_total", looks, 1,
		"How often a server was asked for the settings of its client."),
	TOTAL("session_replays_total", replays, 1,
		"How often what a client has set was set on another server."),
	TOTAL("session_resets_total", resets, 1, "How often a server was cleaned."),
};

static void one_total(const struct stat_database *st, void *arg)
{
	struct pass *p = arg;
	struct label label = {"database", st->name};
	uint64_t v = *(const uint64_t *)((const char *)&st->total + p->m->offset);

	metric_value(p->b, p->m->name, &label, 1, p->m->scale * (double)v);
}

#define TIMES(name, member, help)                                                                  \
	{                                                                                          \
		name, "histogram", help, offsetof(struct pool_times, member), MICRO                \
	}
static const struct member times[] = {
	TIMES("client_wait_seconds", wait,
		"How long clients waited for a server connection, of those that waited."),
	TIMES("query_seconds", query, "From a query to the end of its answer."),
	TIMES("transaction_seconds", transaction,
		"From the first query of a transaction to its end."),
};

/* Buckets from 2^6 us = 64 us. */
#define TIMES_FIRST 6

static void one_times(const struct stat_database *st, void *arg)
{
	struct pass *p = arg;
	struct label label = {"database", st->name};

	metric_hist(p->b, p->m->name, &label, 1,
		(const struct hist *)(const void *)((const char *)&st->times + p->m->offset),
		p->m->scale, TIMES_FIRST);
}

#define STATE(name, member, help)                                                                  \
	{                                                                                          \
		name, GAUGE, help, offsetof(struct stat_database, member), 1                       \
	}
static const struct member databases[] = {
	STATE("database_connections", current_connections, "Server connections of the database."),
	STATE("database_connections_max", max_connections,
		"Limit of the server connections of the database; 0 is none."),
	STATE("database_client_connections", current_client_connections,
		"Clients of the database."),
	STATE("pool_size_max", pool_size, "Server connections that each pool may have."),
};

static void one_database(const struct stat_database *st, void *arg)
{
	struct pass *p = arg;
	struct label label = {"database", st->name};
	int v = *(const int *)(const void *)((const char *)st + p->m->offset);

	metric_value(p->b, p->m->name, &label, 1, v > 0 ? v : 0);
}

static void one_paused(const struct stat_database *st, void *arg)
{
	struct pass *p = arg;
	struct label label = {"database", st->name};

	metric_value(p->b, "database_paused", &label, 1, st->paused);
}

static void write_databases(struct buf *b)
{
	struct pass p = {.b = b};

	for (size_t i = 0; i < ARRAY_LEN(totals); i++) {
		p.m = &totals[i];
		metric_family(b, p.m->name, p.m->type, p.m->help);
		stat_each_database(one_total, &p);
	}
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		p.m = &times[i];
		metric_family(b, p.m->name, p.m->type, p.m->help);
		stat_each_database(one_times, &p);
	}
	for (size_t i = 0; i < ARRAY_LEN(databases); i++) {
		p.m = &databases[i];
		metric_family(b, p.m->name, p.m->type, p.m->help);
		stat_each_database(one_database, &p);
	}
	metric_family(b, "database_paused", GAUGE, "Is the database paused?");
	stat_each_database(one_paused, &p);
}

/* --- pools --- */

struct pool_state {
	const char *state;
	size_t offset;
};
#define IN(state, member)                                                                          \
	{                                                                                          \
		state, offsetof(struct stat_pool, member)                                          \
	}
static const struct pool_state clients[] = {IN("active", cl_active), IN("waiting", cl_waiting),
	IN("parked", cl_parked), IN("active_cancel_req", cl_active_cancel_req)};
static const struct pool_state servers[] = {IN("active", sv_active), IN("idle", sv_idle),
	IN("used", sv_used), IN("tested", sv_tested), IN("login", sv_login),
	IN("active_cancel", sv_active_cancel), IN("being_canceled", sv_being_canceled),
	IN("queue", sv_queue)};

static void put_states(struct buf *b, const char *name, const struct stat_pool *st,
	const struct pool_state *states, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct label labels[] = {
			{"database", st->database}, {"user", st->user}, {"state", states[i].state}};
		unsigned v = *(const unsigned *)(const void *)((const char *)st + states[i].offset);

		metric_value(b, name, labels, 3, v);
	}
}

static void one_pool_clients(const struct stat_pool *st, void *arg)
{
	put_states(arg, "pool_clients", st, clients, ARRAY_LEN(clients));
}

static void one_pool_servers(const struct stat_pool *st, void *arg)
{
	put_states(arg, "pool_servers", st, servers, ARRAY_LEN(servers));
}

static void one_pool_wait(const struct stat_pool *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"user", st->user}};

	metric_value(arg, "pool_wait_max_seconds", labels, 2, MICRO * (double)st->maxwait);
}

static void one_pool_pinned(const struct stat_pool *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"user", st->user}};

	metric_value(arg, "pool_servers_pinned", labels, 2, st->sv_pinned);
}

static void write_pools(struct buf *b)
{
	metric_family(b, "pool_clients", GAUGE,
		"Clients by state; those parked in a QUEUE statement are active too.");
	stat_each_pool(one_pool_clients, b);
	metric_family(b, "pool_servers", GAUGE,
		"Server connections by state; those that work for the queue are active too.");
	stat_each_pool(one_pool_servers, b);
	metric_family(b, "pool_servers_pinned", GAUGE,
		"Server connections that clients keep beyond their transactions; active too.");
	stat_each_pool(one_pool_pinned, b);
	metric_family(b, "pool_wait_max_seconds", GAUGE,
		"How long the client that waits longest has waited for a server.");
	stat_each_pool(one_pool_wait, b);
}

/* --- errors --- */

static void one_error(const char *sqlstate, uint64_t count, void *arg)
{
	struct label label = {"sqlstate", sqlstate};

	metric_value(arg, "errors_total", &label, 1, (double)count);
}

static void write_errors(struct buf *b)
{
	metric_family(b, "errors_total", COUNTER,
		"Errors that clients got, from servers and from the proxy.");
	stat_each_error(one_error, b);
}

/* --- the queue --- */

static void verb_value(
	struct buf *b, const char *name, const struct queue_stat_verb *st, uint64_t v)
{
	char verb[16];
	struct label label = {"verb", verb};
	size_t i;

	for (i = 0; st->verb[i] != '\0' && i < sizeof(verb) - 1; i++)
		verb[i] = util_lower(st->verb[i]);
	verb[i] = '\0';
	metric_value(b, name, &label, 1, (double)v);
}

static void one_verb_statements(const struct queue_stat_verb *st, void *arg)
{
	verb_value(arg, "queue_statements_total", st, st->statements);
}

static void one_verb_failures(const struct queue_stat_verb *st, void *arg)
{
	verb_value(arg, "queue_failures_total", st, st->failures);
}

static void one_verb_jobs(const struct queue_stat_verb *st, void *arg)
{
	verb_value(arg, "queue_jobs_total", st, st->jobs);
}

static void write_verbs(struct buf *b)
{
	metric_family(b, "queue_statements_total", COUNTER, "QUEUE statements that succeeded.");
	queue_stat_each_verb(one_verb_statements, b);
	metric_family(b, "queue_failures_total", COUNTER, "QUEUE statements that got an error.");
	queue_stat_each_verb(one_verb_failures, b);
	metric_family(b, "queue_jobs_total", COUNTER, "Rows or jobs of these statements.");
	queue_stat_each_verb(one_verb_jobs, b);
	metric_family(b, "queue_batch_statements", "histogram",
		"How many statements of clients went to the database as one.");
	metric_hist(b, "queue_batch_statements", NULL, 0, queue_stat_batches(), 1, 0);
}

static void one_waiters(const struct queue_stat_queue *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"queue", st->queue}};

	if (st->waiters > 0)
		metric_value(arg, "queue_waiters", labels, 2, st->waiters);
}

/* How the figures of a gauge are called; a figure that is not known is left out. */
static const struct {
	int figure;
	const char *state; /* NULL: a metric of its own */
} gauges[] = {{GAUGE_READY, "ready"}, {GAUGE_LATER, "later"}, {GAUGE_LEASED, "leased"},
	{GAUGE_DEAD, "dead"}};

static void one_depth(const struct queue_stat_gauge *st, void *arg)
{
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++) {
		struct label labels[] = {{"database", st->database}, {"queue", st->queue},
			{"state", gauges[i].state}};

		if (st->figure[gauges[i].figure] >= 0)
			metric_value(
				arg, "queue_jobs", labels, 3, (double)st->figure[gauges[i].figure]);
	}
}

static void one_oldest(const struct queue_stat_gauge *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"queue", st->queue}};
	int64_t ms = st->figure[GAUGE_OLDEST_MS];

	metric_value(arg, "queue_oldest_ready_seconds", labels, 2, ms > 0 ? (double)ms / 1000 : 0);
}

static void one_failed(const char *database, const char *queue, uint64_t failed, void *arg)
{
	struct label labels[] = {{"database", database}, {"queue", queue}};

	metric_value(arg, "queue_failed_jobs_total", labels, 2, (double)failed);
}

static void one_maintenance(const struct queue_stat_maintenance *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(arg, "queue_maintenance_deleted_total", &label, 1, (double)st->deleted);
}

static void one_scheduled(const struct queue_stat_schedules *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(arg, "queue_schedule_jobs_total", &label, 1, (double)st->jobs);
}

static void one_schedule_failed(const struct queue_stat_schedules *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(
		arg, "queue_schedule_failures_total", &label, 1, (double)(st->failed + st->alone));
}

static void one_age(const struct queue_stat_maintenance *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(
		arg, "queue_maintenance_age_seconds", &label, 1, (double)st->age_us / USEC_SEC);
}

static void one_left_out(const struct queue_stat_maintenance *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(arg, "queue_maintenance_left_out", &label, 1, (double)st->left_out);
}

static void one_delivery(const char *database, const struct hist *h, void *arg)
{
	struct label label = {"database", database};

	metric_hist(arg, "queue_delivery_seconds", &label, 1, h, MICRO, TIMES_FIRST);
}

static void write_queues(struct buf *b)
{
	write_verbs(b);
	metric_family(b, "queue_delivery_seconds", "histogram",
		"From the news of a job to its delivery to a client that waited for it.");
	queue_stat_each_delivery(one_delivery, b);
	metric_family(b, "queue_schedule_jobs_total", COUNTER,
		"Jobs pushed by schedules that this proxy has fired.");
	queue_stat_each_schedules(one_scheduled, b);
	metric_family(b, "queue_schedule_failures_total", COUNTER,
		"Tries to fire a schedule that failed, and for which there was no login of its owner.");
	queue_stat_each_schedules(one_schedule_failed, b);
	metric_family(b, "queue_maintenance_deleted_total", COUNTER,
		"Jobs that were deleted because they had been kept for long enough.");
	queue_stat_each_maintenance(one_maintenance, b);
	metric_family(b, "queue_maintenance_age_seconds", GAUGE,
		"Since the last round of the maintenance that came to its end.");
	queue_stat_each_maintenance(one_age, b);
	metric_family(b, "queue_maintenance_left_out", GAUGE,
		"Queues that it left out, as no role that owns them or takes from them was there.");
	queue_stat_each_maintenance(one_left_out, b);
	metric_family(b, "queue_failed_jobs_total", COUNTER,
		"Attempts that QUEUE FAIL reported through this proxy.");
	queue_stat_each_failed(one_failed, b);
	metric_family(b, "queue_waiters", GAUGE, "Clients that wait for a job of the queue.");
	queue_stat_each_queue(one_waiters, b);
	metric_family(b, "queue_jobs", GAUGE,
		"Jobs in the queue by state, as of the last count; 10000 stands for all above.");
	queue_stat_each_gauge(one_depth, b);
	metric_family(b, "queue_oldest_ready_seconds", GAUGE,
		"Since when the job that is next could have been taken; 0 without one.");
	queue_stat_each_gauge(one_oldest, b);
}

/* --- the process --- */

static double resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long total = 0, resident = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%lu %lu", &total, &resident) != 2)
		resident = 0;
	fclose(f);
	return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (d == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n > 3 ? n - 3 : 0; /* ".", ".." and the folder itself */
}

static void simple(struct buf *b, const char *name, const char *type, const char *help, double v)
{
	metric_family(b, name, type, help);
	metric_value(b, name, NULL, 0, v);
}

static void write_process(struct buf *b)
{
	struct label version = {"version", version_number};
	struct rusage ru;
	struct rlimit files = {0};

	metric_family(b, "info", GAUGE, "The version that runs.");
	metric_value(b, "info", &version, 1, 1);
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		simple(b, "process_cpu_seconds_total", COUNTER, "CPU time, of user and system.",
			(double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec +
				MICRO * (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec));
	simple(b, "process_resident_memory_bytes", GAUGE, "Memory in use.", resident_bytes());
	simple(b, "process_open_fds", GAUGE, "File descriptors in use.", open_files());
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		simple(b, "process_max_fds", GAUGE, "Limit of the file descriptors.",
			(double)files.rlim_cur);
	simple(b, "shutting_down", GAUGE, "Has a shutdown begun?",
		pooler_is_shutting_down() != SHUTDOWN_NONE);
}

static void write_totals(struct buf *b)
{
	struct stat_totals t;

	stat_totals(&t);
	simple(b, "clients", GAUGE, "Clients that are logged in.", t.used_clients);
	simple(b, "login_clients", GAUGE, "Clients that log in now.", t.login_clients);
	simple(b, "servers", GAUGE, "Server connections.", t.used_servers);
	simple(b, "databases", GAUGE, "Databases that are known.", t.databases);
	simple(b, "pools", GAUGE, "Pairs of a database and a user.", t.pools);
}

void metrics_write(struct buf *b)
{
	write_process(b);
	write_totals(b);
	write_databases(b);
	write_pools(b);
	write_errors(b);
	write_queues(b);
}
