/*
 * The process that was started, with `processes` > 1: it does nothing but start the others, watch
 * that they turn, start another one in the place of one that has died or hangs, and pass signals on. It
 * has no event loop, reads nothing from the network, and so has nothing to die of. The kernel tells
 * the others when it is killed: they end at once, as one process would have. Entry point: supervise().
 */
#include "supervisor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "conf/conf.h"
#include "net/loop.h"
#include "net/team.h"

#define LOOK_START 5 /* milliseconds, until all are ready */
#define LOOK       200
#define HANGS      (10 * USEC_SEC) /* a turn of the loop that takes as long */
#define SOON       (2 * USEC_SEC)  /* who dies as young as that is not replaced at once */

static struct {
	const struct supervisor_hooks *hooks;
	struct {
		pid_t pid; /* 0: none */
		usec_t since;
		usec_t again_at;
		bool killed;
	} of[TEAM_MAX + 1];
	sigset_t signals, before;
	bool started, ends, failed;
} all;

int supervisor_size(void)
{
	int n = conf_current()->p.processes;
	cpu_set_t set;

	if (n == 0)
		n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
	return n < TEAM_MAX ? n : TEAM_MAX;
}

void supervisor_unblock(void)
{
	(void)sigprocmask(SIG_SETMASK, &all.before, NULL);
}

void supervisor_signal(int signo)
{
	if (kill(getppid(), signo) != 0)
		log_error("the process that has started this one could not be told: %s",
			strerror(errno));
}

/* --- the others --- */

static void block_signals(void)
{
	static const int list[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

	sigemptyset(&all.signals);
	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		sigaddset(&all.signals, list[i]);
	(void)sigprocmask(SIG_BLOCK, &all.signals, &all.before);
}

/* Which one this process is; 0: still the one that starts them. */
static int start_one(int number)
{
	pid_t parent = getpid(), pid;

	team_clear(number);
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		log_error("process %d could not be started: %s", number, strerror(errno));
		all.of[number].again_at = loop_clock() + USEC_SEC;
		return 0;
	}
	if (pid > 0) {
		all.of[number].pid = pid;
		all.of[number].since = loop_clock();
		all.of[number].killed = false;
		return 0;
	}
	/* who dies without a word has not left anything running behind it */
	(void)prctl(PR_SET_PDEATHSIG, SIGQUIT, 0UL, 0UL, 0UL);
	if (getppid() != parent)
		_exit(1);
	team_be(number);
	return number;
}

static int start_missing(void)
{
	usec_t now = loop_clock();

	for (int i = 1; i <= team_size() && !all.ends; i++)
		if (all.of[i].pid == 0 && now >= all.of[i].again_at) {
			int self = start_one(i);

			if (self != 0)
				return self;
		}
	return 0;
}

/* Those that are there; it is not asked whether they are ready. */
static int count(void)
{
	int n = 0;

	for (int i = 1; i <= team_size(); i++)
		n += all.of[i].pid != 0;
	return n;
}

static void signal_all(int signo)
{
	for (int i = 1; i <= team_size(); i++)
		if (all.of[i].pid != 0)
			(void)kill(all.of[i].pid, signo);
}

/* Nothing of what a start tries can succeed the next time if it has failed the first time. */
static void died_at_start(void)
{
	if (all.started || all.ends)
		return;
	all.failed = all.ends = true;
	signal_all(SIGQUIT);
}

static void say_how(int number, pid_t pid, int status)
{
	if (WIFSIGNALED(status))
		log_error("process %d (%d) was killed by signal %d%s", number, (int)pid,
			WTERMSIG(status), all.ends ? "" : ": another one takes its place");
	else if (!all.ends)
		log_error("process %d (%d) has ended with code %d: another one takes its place",
			number, (int)pid, WEXITSTATUS(status));
}

static void one_ended(int number, int status)
{
	usec_t now = loop_clock();

	if (all.started || WIFSIGNALED(status))
		say_how(number, all.of[number].pid, status);
	all.of[number].again_at = now - all.of[number].since < SOON ? now + USEC_SEC : 0;
	all.of[number].pid = 0;
	all.hooks->gone(number);
	if (!all.ends)
		team_tell_gone(number);
	died_at_start();
}

static void collect(void)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 1; i <= team_size(); i++)
			if (all.of[i].pid == pid)
				one_ended(i, status);
}

/* Its clients have no answer from it, and nobody else can give them one. */
static void look_for_hanging(void)
{
	usec_t now = loop_clock();

	for (int i = 1; i <= team_size(); i++) {
		usec_t seen = team_seen(i);

		if (all.of[i].pid == 0 || seen == 0 || now < seen + HANGS || all.of[i].killed)
			continue;
		all.of[i].killed = true;
		log_error("process %d (%d) hangs: it is killed", i, (int)all.of[i].pid);
		(void)kill(all.of[i].pid, SIGKILL);
	}
}

static bool all_ready(void)
{
	for (int i = 1; i <= team_size(); i++)
		if (!team_is_ready(i))
			return false;
	return true;
}

/* --- signals --- */

static void on_signal(int signo)
{
	switch (signo) {
	case SIGHUP:
		all.hooks->reload();
		break;
	case SIGTERM:
	case SIGINT:
	case SIGQUIT:
		all.hooks->end(signo, all.ends);
		all.ends = true;
		break;
	default:
		break;
	}
	if (signo != SIGCHLD)
		signal_all(signo);
}

static void wait_for_signal(void)
{
	int ms = all.started ? LOOK : LOOK_START;
	struct timespec t = {.tv_nsec = ms * 1000000L};
	siginfo_t info;
	int signo = sigtimedwait(&all.signals, &info, &t);

	if (signo > 0)
		on_signal(signo);
}

int supervise(const struct supervisor_hooks *hooks)
{
	int self;

	all.hooks = hooks;
	block_signals();
	while (!all.ends || count() > 0) {
		self = start_missing();
		if (self != 0)
			return hooks->work();
		wait_for_signal();
		collect();
		look_for_hanging();
		if (!all.started && !all.ends && all_ready()) {
			all.started = true;
			hooks->started();
		}
	}
	return all.failed ? 1 : 0;
}
