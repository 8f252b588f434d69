/*
 * Boot order, signals, end. Knows every module; no module knows it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/version.h"
#include "admin/admin.h"
#include "auth/auth.h"
#include "http/http.h"
#include "net/listen.h"
#include "net/loop.h"
#include "net/team.h"
#include "pool/places.h"
#include "pooler/move.h"
#include "options.h"
#include "process.h"
#include "queue/queue.h"
#include "queue/schema.h"
#include "settings.h"
#include "supervisor.h"
#include "takeover.h"

/* --- signals --- */

static void begin_shutdown(enum pooler_shutdown how)
{
	static const char *const names[] = {[SHUTDOWN_NONE] = "",
		[SHUTDOWN_WAIT_CLIENTS] = "when the clients have left",
		[SHUTDOWN_WAIT_SERVERS] = "when the servers are free",
		[SHUTDOWN_NOW] = "now"};

	if (how <= pooler_is_shutting_down())
		return;
	log_info("shutdown: %s", names[how]);
	process_notify_stopping();
	/* the console is still to be had there, and peers' cancel requests for the clients that
	 * stay */
	if (how < SHUTDOWN_NOW) {
		listen_close_tcp();
	} else {
		listen_drain();
		listen_close();
	}
	/* the port is for the process that comes after us */
	if (conf_current()->p.so_reuseport)
		http_close();
	pooler_shutdown(how);
}

/* A second one does not wait. */
static void on_end_signal(int signo, void *arg)
{
	enum pooler_shutdown how = signo == SIGTERM ? SHUTDOWN_WAIT_CLIENTS : SHUTDOWN_WAIT_SERVERS;

	(void)arg;
	log_info("got %s", signo == SIGTERM ? "SIGTERM" : signo == SIGINT ? "SIGINT" : "SIGQUIT");
	if (signo == SIGQUIT || pooler_is_shutting_down() >= how)
		how = SHUTDOWN_NOW;
	begin_shutdown(how);
}

static void on_reload_signal(int signo, void *arg)
{
	struct pg_error err;

	(void)signo;
	(void)arg;
	log_info("got SIGHUP");
	(void)settings_reload(&err);
}

static void on_pause_signal(int signo, void *arg)
{
	bool pause = signo == SIGUSR1, suspended = pooler_is_suspended() != SUSPENDED_NO;

	(void)arg;
	if (pooler_is_shutting_down() != SHUTDOWN_NONE)
		log_info("got %s while shutting down, ignoring", pause ? "SIGUSR1" : "SIGUSR2");
	else if (pooler_command(pause ? POOLER_PAUSE : POOLER_RESUME, NULL) == POOLER_OK)
		log_info("got %s", pause       ? "SIGUSR1, pausing all activity"
				   : suspended ? "SIGUSR2, continuing from SUSPEND"
					       : "SIGUSR2, continuing from PAUSE");
	else
		log_info("got %s", pause ? "SIGUSR1, but already paused/suspended"
					 : "SIGUSR2, but not paused/suspended");
}

static bool install_signals(void)
{
	static const struct {
		int signo;
		void (*fn)(int signo, void *arg);
	} table[] = {
		{SIGTERM, on_end_signal},
		{SIGINT, on_end_signal},
		{SIGQUIT, on_end_signal},
		{SIGHUP, on_reload_signal},
		{SIGUSR1, on_pause_signal},
		{SIGUSR2, on_pause_signal},
	};

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (!loop_signal(table[i].signo, table[i].fn, NULL))
			return false;
	return true;
}

/* --- another process takes over --- */

/* It has the sockets, too, and the pid file. The port of the metrics is one of ours alone. */
static void give_over(pid_t to)
{
	log_info("shutdown: when the clients have been taken over, or have left");
	process_notify_successor(to);
	pidfile_leave();
	listen_hand_over(true);
	http_close();
}

static void take_back(void)
{
	char err[512];

	if (pooler_is_shutting_down() > SHUTDOWN_WAIT_CLIENTS)
		return;
	pooler_shutdown_undo();
	listen_hand_over(false);
	if (!pidfile_again(err, sizeof(err)) || !http_apply(err, sizeof(err)))
		log_error("%s", err);
	process_notify_successor(getpid());
}

static const struct takeover_hooks takeover_hooks = {.give = give_over, .take_back = take_back};

/* --- start --- */

static const struct admin_hooks hooks = {.reload = settings_reload,
	.changed = settings_changed,
	.shutdown = begin_shutdown,
	.takeover = takeover_requested};

static bool fail(const char *text)
{
	log_write(LOG_LVL_FATAL, NULL, "%s", text);
	return false;
}

static const char *unix_user(const struct options *o)
{
	const char *named = conf_current()->p.user;

	return o->user != NULL ? o->user : named[0] != '\0' ? named : NULL;
}

/* The process that ends when we are ready, which we begin beside; 0: none. */
static pid_t predecessor;

/* It cannot hand over: it is of another version, or has no unix socket. */
static bool may_begin_beside(const struct params *p)
{
	if (p->pidfile[0] == '\0')
		return fail("-R needs \"pidfile\" in the configuration");
	if (p->listen_addr[0] != '\0' && !p->so_reuseport)
		return fail("-R needs \"so_reuseport = 1\" in the configuration, also in that of "
			    "the process that runs");
	predecessor = pidfile_process(p->pidfile);
	return predecessor >= 0 ||
	       fail("-R: the process that holds \"pidfile\" cannot be told to end from here");
}

/* New connections come to us: the other one ends when its clients have left. */
static void end_predecessor(void)
{
	if (predecessor == 0)
		return;
	log_info(
		"takeover: process %d is told to end when its clients have left", (int)predecessor);
	if (!pidfile_tell_end(predecessor))
		log_error("takeover: process %d is gone, or could not be told", (int)predecessor);
}

/* What can be said before anything is touched. */
static bool may_start(const struct options *o)
{
	const struct params *p = &conf_current()->p;
	char err[512];

	if (geteuid() == 0 && unix_user(o) == NULL)
		return fail(
			"started by root: name an unprivileged unix user with -u or with \"user\" in the configuration");
	if (o->daemon && p->logfile[0] == '\0' && !p->syslog)
		return fail("a daemon needs \"logfile\" or \"syslog\" in the configuration");
	if (o->daemon && p->pidfile[0] == '\0')
		return fail("a daemon needs \"pidfile\" in the configuration");
	if (o->takeover)
		return true;
	return !pidfile_is_taken(p->pidfile, err, sizeof(err)) || fail(err);
}

static bool find_predecessor(const struct options *o)
{
	const struct params *p = &conf_current()->p;
	char err[512] = "there is no unix_socket_dir to take over by";

	if (!o->takeover)
		return true;
	if (supervisor_size() > 1)
		return may_begin_beside(p);
	if (p->unix_socket_dir[0] == '/')
		switch (takeover_ask(err, sizeof(err))) {
		case TAKEOVER_AGREED:
			return true;
		case TAKEOVER_NOBODY:
			return !pidfile_is_taken(p->pidfile, err, sizeof(err)) || fail(err);
		case TAKEOVER_REFUSED:
			break;
		}
	log_warning("takeover: %s: this one begins beside it", err);
	return may_begin_beside(p);
}

static bool start_listening(void)
{
	const struct params *p = &conf_current()->p;
	struct listen_spec spec = {
		.addrs = p->listen_addr,
		.port = p->listen_port,
		.backlog = p->listen_backlog,
		.reuseport = p->so_reuseport,
		.defer_accept = p->tcp_defer_accept != 0,
		.unix_dir = p->unix_socket_dir,
		.unix_mode = p->unix_socket_mode,
		.unix_group = p->unix_socket_group,
		.unix_replace = predecessor != 0,
	};
	char err[512];

	takeover_sockets(&spec);
	if (!listen_open(&spec, pooler_accept, NULL, err, sizeof(err)))
		return fail(err);
	return listen_count() > 0 ||
	       fail("nothing to listen on: set listen_addr or unix_socket_dir");
}

static bool drop_privileges(const char *user)
{
	const struct params *p = &conf_current()->p;
	char path[256], err[512];
	const char *file = NULL;

	if (user == NULL)
		return true;
	snprintf(path, sizeof(path), "%s/.s.PGSQL.%d", p->unix_socket_dir, p->listen_port);
	/* its new owner has to be able to remove it */
	if (geteuid() == 0 && p->unix_socket_dir[0] == '/' && access(path, F_OK) == 0)
		file = path;
	return process_become(user, file, err, sizeof(err)) || fail(err);
}

/* Who claims statements comes before the pooler. */
static bool start_modules(const struct admin_hooks *with)
{
	if (!loop_init() || !install_signals() || !queue_start() || !admin_start(with) ||
		!pooler_start() || !http_start())
		return fail("out of memory");
	pooler_on_stopped(loop_stop);
	return true;
}

static bool start(const struct options *o)
{
	unsigned long files = process_raise_files();
	bool takes_over;
	char err[512];

	takeover_hooks_set(&takeover_hooks);
	/* who takes over is of the same user as who runs */
	if (o->takeover && !drop_privileges(unix_user(o)))
		return false;
	if (!start_modules(&hooks) || !find_predecessor(o) || !start_listening() ||
		!drop_privileges(unix_user(o)))
		return false;
	/* another user, another memory: the kernel has forgotten what was said before */
	process_allow_core(o->verbose > 0 || conf_current()->p.core_dumps);
	if (!settings_open_log(err, sizeof(err)) ||
		!pidfile_prepare(conf_current()->p.pidfile, err, sizeof(err)))
		return fail(err);
	/* The last step that can fail: until then the file is that of the predecessor. */
	takes_over = takeover_from() != 0;
	if (takes_over && !takeover_confirm())
		return fail("takeover: the process that runs has not handed over");
	if (!pidfile_publish(err, sizeof(err))) {
		if (!takes_over)
			return fail(err);
		log_error("%s", err);
	}
	settings_apply();
	log_info("qbouncer %s (%s) started, process %d", version_number, version_commit,
		(int)getpid());
	settings_check_files(files);
	listen_confirm();
	process_started();
	end_predecessor();
	predecessor = 0;
	process_notify_ready();
	return true;
}

/* --- end --- */

/* Also after a start that went half way. */
static void end(void)
{
	takeover_end();
	move_end();
	listen_close();
	http_close();
	queue_stop();
	pooler_free();
	queue_free();
	admin_free();
	team_leave();
	loop_free();
	pidfile_remove();
}

/* --- several processes --- */

static int signal_of(enum pooler_shutdown how)
{
	return how == SHUTDOWN_NOW ? SIGQUIT : how == SHUTDOWN_WAIT_SERVERS ? SIGINT : SIGTERM;
}

/* The console of one of them. */
static void shutdown_all(enum pooler_shutdown how)
{
	if (how > pooler_is_shutting_down())
		supervisor_signal(signal_of(how));
}

static bool takeover_refused(int fd, uint64_t version, struct pg_error *err)
{
	(void)fd;
	(void)version;
	pg_error_set(err, "0A000", "connections of several processes cannot be taken over");
	pg_error_hint(err, "With so_reuseport = 1 and a pidfile, qbouncer -R begins beside them.");
	return false;
}

static int work(void)
{
	static const struct admin_hooks with = {.reload = settings_reload,
		.changed = settings_changed,
		.shutdown = shutdown_all,
		.takeover = takeover_refused};
	bool started;

	process_is_one_of_many();
	pidfile_leave();
	started = start_modules(&with) && team_join();
	if (started) {
		supervisor_unblock();
		settings_apply();
		log_info("process %d of %d started", team_self(), team_size());
		listen_share();
		team_ready();
		loop_run();
		log_info("shutdown: process %d is complete", team_self());
	}
	end();
	return started ? 0 : 1;
}

static void all_started(void)
{
	listen_confirm();
	process_started();
	end_predecessor();
	predecessor = 0;
	process_notify_ready();
}

static void reload_all(void)
{
	process_notify_reloading();
	settings_follow();
	process_notify_ready();
}

/* What is said to one process before it looks at its clients. Its sockets are closed when those of all are. */
static void end_all(int signo, bool again)
{
	process_notify_stopping();
	if (signo == SIGQUIT || again)
		listen_close();
	else
		listen_close_tcp();
}

static bool start_many(const struct options *o)
{
	unsigned long files = process_raise_files();
	char err[512];

	listen_hand_over(true); /* this one accepts nobody */
	if (!find_predecessor(o) || !start_listening() || !drop_privileges(unix_user(o)))
		return false;
	process_allow_core(o->verbose > 0 || conf_current()->p.core_dumps);
	if (!settings_open_log(err, sizeof(err)) ||
		!pidfile_prepare(conf_current()->p.pidfile, err, sizeof(err)) ||
		!pidfile_publish(err, sizeof(err)))
		return fail(err);
	log_info("qbouncer %s (%s) started, process %d, with %d others", version_number,
		version_commit, (int)getpid(), supervisor_size());
	settings_check_files(files);
	return (team_create(supervisor_size()) && places_create()) ||
	       fail("the memory or the sockets of several processes could not be made");
}

static int run_many(const struct options *o)
{
	static const struct supervisor_hooks them = {.work = work,
		.gone = places_drop,
		.started = all_started,
		.reload = reload_all,
		.end = end_all};
	int code = start_many(o) ? supervise(&them) : 1;

	if (team_self() == 0) {
		listen_close();
		pidfile_remove();
		if (code == 0)
			log_info("shutdown: complete");
	}
	team_free();
	return code;
}

static int run(const struct options *o)
{
	bool started;
	char err[512];

	if (!may_start(o))
		return 1;
	if (o->daemon && !process_daemonise(err, sizeof(err)))
		return !fail(err);
	if (supervisor_size() > 1)
		return run_many(o);
	started = start(o);
	if (started) {
		loop_run();
		log_info("shutdown: complete");
	}
	end();
	return started ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct options o;
	int code = 1;

	hash_start();
	switch (options_read(argc, argv, &o)) {
	case OPTIONS_RUN:
		break;
	case OPTIONS_DONE:
		return 0;
	case OPTIONS_BAD:
		return 1;
	}
	if (o.verbose == 0)
		process_allow_core(false);
	if (o.print_schema)
		return fputs(queue_install_sql, stdout) < 0 || fflush(stdout) != 0;
	if (o.check_config)
		return settings_check(o.config);
	if (settings_load(&o))
		code = run(&o);
	settings_free();
	return code;
}
