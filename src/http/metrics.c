/*
 * What is measured: figures of the pool, of the queue and of the process, from their snapshots:
 * what SHOW shows of them is its column (include/show/list.h), the name and the words are ours.
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
#include "choice.h"
#include "conf/conf.h"
#include "http_int.h"
#include "net/team.h"
#include "pooler/pooler.h"
#include "pooler/stat.h"
#include "queue/stat.h"
#include "show/show.h"
#include "write.h"

#define COUNTER "counter"
#define GAUGE   "gauge"
#define MICRO   1e-6

/* A column of a SHOW as a metric. */
struct shown {
	const char *name, *type, *help;
	enum show_id show;
	size_t column;
};
#define SHOWN(name, type, show, column, help)                                                      \
	{                                                                                          \
		name, type, help, SHOW_##show, SHOW_COLUMN(show, column)                           \
	}

/* What is passed through stat_each_*(): all rows of one family, then of the next. */
struct pass {
	struct buf *b;
	const struct shown *m;
	const struct times *times;
};

/* --- databases --- */

#define TOTAL(name, column, help) SHOWN(name, COUNTER, STATS, column, help)
static const struct shown totals[] = {
	TOTAL("server_assignments_total", total_server_assignment_count,
		"Server connections given to clients."),
	TOTAL("transactions_total", total_xact_count, "Transactions that have ended."),
	TOTAL("queries_total", total_query_count, "Queries, or batches up to Sync."),
	TOTAL("received_bytes_total", total_received, "Bytes that came from clients."),
	TOTAL("sent_bytes_total", total_sent, "Bytes that were sent to clients."),
	TOTAL("client_parses_total", total_client_parse_count,
		"Statements that clients have prepared under a name."),
	TOTAL("server_parses_total", total_server_parse_count,
		"Named statements prepared on servers."),
	TOTAL("binds_total", total_bind_count, "Uses of named statements by clients."),
	TOTAL("client_logins_total", total_client_login_count, "Logins of clients."),
	TOTAL("session_pins_total", total_pin_count, "How often a client got to keep its server."),
	TOTAL("session_looks_total", total_look_count,
		"How often a server was asked for the settings of its client."),
	TOTAL("session_replays_total", total_replay_count,
		"How often what a client has set was set on another server."),
	TOTAL("session_resets_total", total_reset_count, "How often a server was cleaned."),
};

#define STATE(name, column, help) SHOWN(name, GAUGE, DATABASES, column, help)
static const struct shown databases[] = {
	STATE("database_connections", current_connections, "Server connections of the database."),
	STATE("database_connections_max", max_connections,
		"Limit of the server connections of the database; 0 is none."),
	STATE("database_client_connections", current_client_connections,
		"Clients of the database."),
	STATE("pool_size_max", pool_size, "Server connections that each pool may have."),
	STATE("database_paused", paused, "Is the database paused?"),
};

/* A limit that is below 0 is none. */
static void one_database(const struct stat_database *st, void *arg)
{
	struct pass *p = arg;
	struct label label = {"database", st->name};
	double v = show_number(p->m->show, p->m->column, st);

	metric_value(p->b, p->m->name, &label, 1, v > 0 ? v : 0);
}

static void write_shown(struct buf *b, const struct shown *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pass p = {.b = b, .m = &m[i]};

		metric_family(b, m[i].name, m[i].type, m[i].help);
		stat_each_database(one_database, &p);
	}
}

struct times {
	const char *name, *help;
	size_t offset;
};
#define TIMES(name, member, help)                                                                  \
	{                                                                                          \
		name, help, offsetof(struct pool_times, member)                                    \
	}
static const struct times times[] = {
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

	metric_hist(p->b, p->times->name, &label, 1,
		(const struct hist *)(const void *)((const char *)&st->times + p->times->offset),
		MICRO, TIMES_FIRST);
}

static void write_databases(struct buf *b)
{
	write_shown(b, totals, ARRAY_LEN(totals));
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		struct pass p = {.b = b, .times = &times[i]};

		metric_family(b, times[i].name, "histogram", times[i].help);
		stat_each_database(one_times, &p);
	}
	write_shown(b, databases, ARRAY_LEN(databases));
}

/* --- pools --- */

/* Clients or servers of a pool in a state: a column of SHOW POOLS, or a member that it does not show. */
struct pool_state {
	const char *state;
	bool is_shown;
	size_t at; /* column, or offset */
};
#define IN(state, column)                                                                          \
	{                                                                                          \
		state, true, SHOW_COLUMN(POOLS, column)                                            \
	}
#define MORE(state, member)                                                                        \
	{                                                                                          \
		state, false, offsetof(struct stat_pool, member)                                   \
	}
static const struct pool_state clients[] = {IN("active", cl_active), IN("waiting", cl_waiting),
	MORE("parked", cl_parked), IN("active_cancel_req", cl_active_cancel_req)};
static const struct pool_state servers[] = {IN("active", sv_active), IN("idle", sv_idle),
	IN("used", sv_used), IN("tested", sv_tested), IN("login", sv_login), IN("kept", sv_kept),
	IN("active_cancel", sv_active_cancel), IN("being_canceled", sv_being_canceled),
	MORE("queue", sv_queue)};

static double in_state(const struct stat_pool *st, const struct pool_state *s)
{
	return s->is_shown ? show_number(SHOW_POOLS, s->at, st)
			   : *(const unsigned *)(const void *)((const char *)st + s->at);
}

static void put_states(struct buf *b, const char *name, const struct stat_pool *st,
	const struct pool_state *states, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct label labels[] = {
			{"database", st->database}, {"user", st->user}, {"state", states[i].state}};

		metric_value(b, name, labels, 3, in_state(st, &states[i]));
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

	double us = show_number(SHOW_POOLS, SHOW_COLUMN(POOLS, maxwait), st) * USEC_SEC +
		    show_number(SHOW_POOLS, SHOW_COLUMN(POOLS, maxwait_us), st);

	metric_value(arg, "pool_wait_max_seconds", labels, 2, MICRO * us);
}

static void one_pool_pinned(const struct stat_pool *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"user", st->user}};

	metric_value(arg, "pool_servers_pinned", labels, 2,
		show_number(SHOW_POOLS, SHOW_COLUMN(POOLS, sv_pinned), st));
}

static void one_pool_engine(const struct stat_pool *st, void *arg)
{
	struct label labels[] = {{"database", st->database}, {"user", st->user}};

	metric_value(arg, "pool_servers_engine", labels, 2, st->sv_engine);
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
	metric_family(b, "pool_servers_engine", GAUGE,
		"Server connections of the queue engine's own, which no client gets; idle or active too.");
	stat_each_pool(one_pool_engine, b);
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
	metric_family(b, "queue_answers_bytes", GAUGE,
		"What is kept of answers, of which clients have not read all yet.");
	metric_value(b, "queue_answers_bytes", NULL, 0, (double)queue_stat_answers());
}

/* Families that have a line for each queue: those that have no name here are added up. */
struct named_pass {
	struct buf *b;
	const char *name;
	struct rest *rest;
};

/* Of a queue. label, value: one label more, or NULL. */
static void put_named(struct named_pass *p, enum rest_way way, const char *database,
	const char *queue, const char *label, const char *value, double v)
{
	struct label labels[] = {{"database", database}, {"queue", queue}, {label, value}};

	if (choice_names(database, queue, NULL))
		metric_value(p->b, p->name, labels, label != NULL ? 3 : 2, v);
	else
		rest_add(&p->rest, way, database, label, value, v);
}

/* The head of a family, the lines that each() passes to its function, and that of the others. */
#define NAMED_FAMILY(b, name, type, help, each, fn)                                                \
	do {                                                                                       \
		struct named_pass named_ = {b, name, NULL};                                        \
		metric_family(b, name, type, help);                                                \
		each(fn, &named_);                                                                 \
		rest_write(&named_.rest, b, name);                                                 \
	} while (0)

static void one_waiters(const struct queue_stat_queue *st, void *arg)
{
	double waiters = show_number(SHOW_QUEUES, SHOW_COLUMN(QUEUES, waiters), st);

	if (waiters > 0)
		put_named(arg, REST_SUM, st->database, st->queue, NULL, NULL, waiters);
}

/* How the figures of a gauge are called; a figure that is not known is left out. */
static const struct {
	int figure;
	const char *state; /* NULL: a metric of its own */
} gauges[] = {{GAUGE_READY, "ready"}, {GAUGE_LATER, "later"}, {GAUGE_LEASED, "leased"},
	{GAUGE_BLOCKED, "blocked"}, {GAUGE_DEAD, "dead"}};

static void one_depth(const struct queue_stat_gauge *st, void *arg)
{
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
		if (st->figure[gauges[i].figure] >= 0)
			put_named(arg, REST_SUM, st->database, st->queue, "state", gauges[i].state,
				(double)st->figure[gauges[i].figure]);
}

static void one_oldest(const struct queue_stat_gauge *st, void *arg)
{
	int64_t ms = st->figure[GAUGE_OLDEST_MS];

	if (st->figure[GAUGE_READY] >= 0)
		put_named(arg, REST_MOST, st->database, st->queue, NULL, NULL,
			ms > 0 ? (double)ms / 1000 : 0);
}

/* Of a stream, or of each of its subscriptions. */
struct streamed {
	const char *name, *type, *help;
	bool of_subscription;
	int figure;
	double unit;
	enum rest_way others;
};
static const struct streamed streamed[] = {
	{"queue_stream_events", GAUGE, "Events that the stream has.", false, GAUGE_EVENTS, 1,
		REST_SUM},
	{"queue_stream_bytes", GAUGE, "What they have on disk, with the indexes.", false,
		GAUGE_BYTES, 1, REST_SUM},
	{"queue_stream_oldest_seconds", GAUGE, "How old the oldest of them is.", false,
		GAUGE_AGE_MS, 1e-3, REST_MOST},
	{"queue_stream_pushed_total", COUNTER, "Events that were pushed, as their ids tell.", false,
		GAUGE_TOTAL, 1, REST_SUM},
	{"queue_subscription_pending", GAUGE,
		"Events to come, as of the last count; 10000 stands for all above.", true,
		GAUGE_EVENTS, 1, REST_SUM},
	{"queue_subscription_lag_seconds", GAUGE, "How old the first of them is.", true,
		GAUGE_AGE_MS, 1e-3, REST_MOST},
	{"queue_subscription_out", GAUGE, "Events that are delivered and not done.", true,
		GAUGE_OUT, 1, REST_SUM},
	{"queue_subscription_attempt", GAUGE, "How often these were delivered; 0 without any.",
		true, GAUGE_ATTEMPT, 1, REST_MOST},
	{"queue_subscription_delivered_total", COUNTER, "Events that were delivered, each once.",
		true, GAUGE_TOTAL, 1, REST_SUM},
	{"queue_subscription_lost", GAUGE, "Has it lost events by retain_max?", true, GAUGE_LOST, 1,
		REST_MOST},
	{"queue_subscription_retries", GAUGE, "Events that failed by themselves, and come again.",
		true, GAUGE_RETRIES, 1, REST_SUM},
	{"queue_subscription_dead", GAUGE, "Events that have no attempt left.", true,
		GAUGE_GIVEN_UP, 1, REST_SUM},
};

struct streamed_pass {
	struct buf *b;
	const struct streamed *m;
	struct rest *rest;
};

static void one_streamed(const struct queue_stat_gauge *st, void *arg)
{
	struct streamed_pass *p = arg;
	struct label labels[] = {{"database", st->database}, {"stream", st->queue},
		{"subscription", st->subscription}};
	int64_t v = st->figure[p->m->figure];

	if (v < 0 || (st->subscription != NULL) != p->m->of_subscription)
		return;
	if (choice_names(st->database, st->queue, st->subscription))
		metric_value(p->b, p->m->name, labels, p->m->of_subscription ? 3 : 2,
			(double)v * p->m->unit);
	else
		rest_add(&p->rest, p->m->others, st->database, NULL, NULL, (double)v * p->m->unit);
}

static void write_streams(struct buf *b)
{
	for (size_t i = 0; i < ARRAY_LEN(streamed); i++) {
		struct streamed_pass p = {.b = b, .m = &streamed[i]};

		metric_family(b, p.m->name, p.m->type, p.m->help);
		queue_stat_each_gauge(one_streamed, &p);
		rest_write(&p.rest, b, p.m->name);
	}
}

static void one_failed(const char *database, const char *queue, uint64_t failed, void *arg)
{
	put_named(arg, REST_SUM, database, queue, NULL, NULL, (double)failed);
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

static void one_lost(const struct queue_stat_maintenance *st, void *arg)
{
	struct label label = {"database", st->database};

	metric_value(arg, "queue_maintenance_lost_total", &label, 1, (double)st->lost);
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

static void one_running(const struct queue_stat_runs *st, void *arg)
{
	put_named(arg, REST_SUM, st->database, st->queue, NULL, NULL, st->running);
}

static void one_run_ended(const struct queue_stat_runs *st, void *arg)
{
	const struct {
		const char *outcome;
		uint64_t n;
	} ways[] = {{"done", st->done}, {"failed", st->failed}, {"again", st->again}};

	for (size_t i = 0; i < ARRAY_LEN(ways); i++)
		put_named(arg, REST_SUM, st->database, st->queue, "outcome", ways[i].outcome,
			(double)ways[i].n);
}

static void one_run_time(const struct queue_stat_runs *st, void *arg)
{
	put_named(arg, REST_SUM, st->database, st->queue, NULL, NULL, MICRO * (double)st->ran);
}

static void write_runs(struct buf *b)
{
	NAMED_FAMILY(b, "queue_run_running", GAUGE, "Jobs that the proxy carries out now.",
		queue_stat_each_runs, one_running);
	NAMED_FAMILY(b, "queue_run_jobs_total", COUNTER, "Jobs that the proxy has carried out.",
		queue_stat_each_runs, one_run_ended);
	NAMED_FAMILY(b, "queue_run_seconds_total", COUNTER, "How long these jobs ran.",
		queue_stat_each_runs, one_run_time);
}

static void write_queues(struct buf *b)
{
	struct rest *unnamed = NULL;

	choice_make((unsigned)conf_current()->p.metrics_queues);
	write_verbs(b);
	write_runs(b);
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
	metric_family(b, "queue_maintenance_lost_total", COUNTER,
		"Times that retain_max of a stream has removed events which a subscription had not seen.");
	queue_stat_each_maintenance(one_lost, b);
	NAMED_FAMILY(b, "queue_failed_jobs_total", COUNTER,
		"Attempts that QUEUE FAIL reported through this proxy.", queue_stat_each_failed,
		one_failed);
	NAMED_FAMILY(b, "queue_waiters", GAUGE, "Clients that wait for a job of the queue.",
		queue_stat_each_queue, one_waiters);
	metric_family(b, "queue_unnamed", GAUGE,
		"Queues, streams and subscriptions that have no line of their own (metrics_queues).");
	rest_add_unnamed(&unnamed);
	rest_write(&unnamed, b, "queue_unnamed");
	metric_process(0); /* what is counted in the database is the same for all */
	NAMED_FAMILY(b, "queue_jobs", GAUGE,
		"Jobs in the queue by state, as of the last count; 10000 stands for all above.",
		queue_stat_each_gauge, one_depth);
	NAMED_FAMILY(b, "queue_oldest_ready_seconds", GAUGE,
		"Since when the job that is next could have been taken; 0 without one.",
		queue_stat_each_gauge, one_oldest);
	write_streams(b);
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
	metric_process(team_self());
	write_process(b);
	write_totals(b);
	write_databases(b);
	write_pools(b);
	write_errors(b);
	write_queues(b);
}
