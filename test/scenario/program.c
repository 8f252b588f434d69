/*
 * Boot, end and inspection of the program under test: see program.h. Mirrors the order of main.
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "base/log.h"
#include "conf/conf.h"
#include "pooler/pooler.h"
#include "pooler/stat.h"
#include "queue/queue.h"
#include "queue/stat.h"

static const char defaults[] = "[qbouncer]\n"
			       "auth_type = trust\n"
			       "pool_mode = transaction\n"
			       "log_connections = 0\n"
			       "log_disconnections = 0\n"
			       "log_pooler_errors = 0\n"
			       "log_stats = 0\n"
			       "queue_maintenance = 0\n"
			       "queue_figures = 0\n";

static bool install(const char *settings, const char *databases)
{
	struct conf_report report = {0};
	struct buf text = BUF_INIT;
	struct conf *c;

	buf_printf(&text, "[databases]\n%s%s%s", databases[0] ? databases : "app = host=10.0.0.1\n",
		defaults, settings);
	c = conf_load_text("dialogue", (const char *)text.data, text.len, &report);
	buf_free(&text);
	if (c)
		conf_install(c, &report);
	if (!c)
		fprintf(stderr, "%s", buf_cstr(&report.text));
	buf_free(&report.text);
	return c != NULL;
}

bool program_start(const char *settings, const char *databases, const char *users_file)
{
	char err[256];

	if (!install(settings, databases))
		return false;
	if (!auth_file_load(users_file, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return false;
	}
	return pooler_start() && queue_start();
}

void program_end(void)
{
	queue_stop();
	pooler_free();
	queue_free();
	auth_file_free();
	conf_uninstall();
}

/* --- counting --- */

struct counts {
	int n[COUNT_KINDS];
	char busy[160];
};

static void count_pool(const struct stat_pool *st, void *arg)
{
	struct counts *c = arg;
	int busy = (int)(st->sv_active + st->sv_active_cancel + st->sv_being_canceled +
			 st->sv_tested + st->sv_login + st->sv_queue);

	c->n[COUNT_PARKED] += (int)st->cl_parked;
	c->n[COUNT_WAITING] += (int)st->cl_waiting;
	c->n[COUNT_IDLE] += (int)(st->sv_idle + st->sv_used);
	c->n[COUNT_KEPT] += (int)st->sv_kept;
	if (busy || st->cl_parked || st->cl_waiting)
		(void)snprintf(c->busy, sizeof(c->busy),
			"pool %s/%s: clients parked %u waiting %u; servers active %u login %u "
			"queue %u, %d in all",
			st->database, st->user, st->cl_parked, st->cl_waiting, st->sv_active,
			st->sv_login, st->sv_queue, busy);
}

static void count_client(const struct stat_session *st, void *arg)
{
	(void)st;
	((struct counts *)arg)->n[COUNT_CLIENTS]++;
}

static void count_server(const struct stat_session *st, void *arg)
{
	(void)st;
	((struct counts *)arg)->n[COUNT_SERVERS]++;
}

static void count_waiter(const struct queue_stat_waiter *st, void *arg)
{
	(void)st;
	((struct counts *)arg)->n[COUNT_WAITERS]++;
}

static void count_lease(const struct queue_stat_lease *st, void *arg)
{
	(void)st;
	((struct counts *)arg)->n[COUNT_LEASES]++;
}

static void count_database(const struct stat_database *st, void *arg)
{
	int *n = ((struct counts *)arg)->n;

	n[COUNT_QUERIES] += (int)st->total.queries;
	n[COUNT_XACTS] += (int)st->total.xacts;
	n[COUNT_QUERY_SECONDS] += (int)(st->total.query_time / USEC_SEC);
	n[COUNT_XACT_SECONDS] += (int)(st->total.xact_time / USEC_SEC);
}

static void count_runs(const struct queue_stat_runs *st, void *arg)
{
	struct counts *c = arg;

	c->n[COUNT_RAN] += (int)st->done;
	c->n[COUNT_RAN_FAILED] += (int)st->failed;
	c->n[COUNT_RAN_AGAIN] += (int)st->again;
	c->n[COUNT_RUNNING] += (int)st->running;
}

static void count_all(struct counts *c)
{
	memset(c, 0, sizeof(*c));
	stat_each_pool(count_pool, c);
	stat_each_client(count_client, c);
	stat_each_server(count_server, c);
	stat_each_database(count_database, c);
	queue_stat_each_waiter(count_waiter, c);
	queue_stat_each_lease(count_lease, c);
	queue_stat_each_runs(count_runs, c);
	c->n[COUNT_ANSWERS] = (int)queue_stat_answers();
	if (c->n[COUNT_RUNNING] > 0)
		(void)snprintf(c->busy, sizeof(c->busy), "%d jobs run", c->n[COUNT_RUNNING]);
	if (c->n[COUNT_WAITERS] > 0)
		(void)snprintf(c->busy, sizeof(c->busy), "%d waiters", c->n[COUNT_WAITERS]);
}

int program_count(enum program_count what)
{
	struct counts c;

	count_all(&c);
	return c.n[what];
}

bool program_at_rest(char *text, size_t size)
{
	struct counts c;

	count_all(&c);
	(void)snprintf(text, size, "%s", c.busy);
	return c.busy[0] == '\0';
}

/* --- words --- */

static bool command_shutdown(const char *how)
{
	if (strcmp(how, "now") == 0)
		pooler_shutdown(SHUTDOWN_NOW);
	else if (strcmp(how, "wait_servers") == 0)
		pooler_shutdown(SHUTDOWN_WAIT_SERVERS);
	else if (strcmp(how, "wait_clients") == 0)
		pooler_shutdown(SHUTDOWN_WAIT_CLIENTS);
	else
		return false;
	return true;
}

/* As by a reload: another entry is there in its place. */
static bool command_remove(const char *database)
{
	char entry[100];

	(void)snprintf(entry, sizeof(entry), "not_%s = host=10.0.0.1\n", database);
	if (!install("", entry))
		return true; /* without memory it stays as it was */
	pooler_reloaded();
	queue_reloaded();
	return true;
}

bool program_command(const char *words)
{
	static const struct {
		const char *word;
		enum pooler_command cmd;
	} table[] = {{"pause", POOLER_PAUSE}, {"resume", POOLER_RESUME},
		{"disable", POOLER_DISABLE}, {"enable", POOLER_ENABLE}, {"kill", POOLER_KILL},
		{"reconnect", POOLER_RECONNECT}, {"suspend", POOLER_SUSPEND}};
	char word[32] = "", arg[64] = "";
	size_t i;

	if (sscanf(words, "%31s %63s", word, arg) < 1)
		return false;
	if (strcmp(word, "shutdown") == 0)
		return command_shutdown(arg);
	if (strcmp(word, "remove") == 0)
		return command_remove(arg);
	if (strcmp(word, "proxies") == 0) {
		program_proxies(arg);
		return true;
	}
	if (strcmp(word, "awake") == 0) {
		program_awake();
		return true;
	}
	if (strcmp(word, "notify") == 0) {
		program_notify(arg);
		return true;
	}
	if (strcmp(word, "system") == 0) {
		program_system(strcmp(arg, "up") == 0);
		return true;
	}
	for (i = 0; i < ARRAY_LEN(table); i++)
		if (strcmp(word, table[i].word) == 0) {
			(void)pooler_command(table[i].cmd, arg);
			return true;
		}
	return false;
}
