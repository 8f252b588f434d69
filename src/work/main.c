/*
 * qbouncer-work: takes jobs of a queue and runs a command for each. One thread, one loop around poll(): signals come
 * by a descriptor, so between two turns nothing happens.
 */
#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#include "options.h"
#include "slot.h"

struct work {
	struct work_options options;
	struct slot **slots;
	struct pollfd *fds; /* the signals', then SLOT_FDS of each slot */
	int signals;
	int stops; /* how often we were told to end; once more each time that grace is over */
	usec_t stop_until;
	bool met; /* a server, since the start */
};

static usec_t now_usec(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (usec_t)t.tv_sec * USEC_SEC + (usec_t)t.tv_nsec / 1000;
}

/* Pipes of ours must not become 0, 1 or 2 because they were closed. */
static bool open_standard(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool take_signals(struct work *w)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* ignored by who started us, children would leave no status */
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return false;
	w->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return w->signals >= 0;
}

static void stop(struct work *w, usec_t now)
{
	w->stops++;
	/* What is said last, RELEASE, has a second at least. */
	w->stop_until =
		now + (w->stops > 1 && w->options.grace < USEC_SEC ? USEC_SEC : w->options.grace);
	for (int i = 0; i < w->options.slots; i++)
		if (w->stops == 1)
			slot_stop(w->slots[i], now);
		else
			slot_abort(w->slots[i], now);
}

static void read_signals(struct work *w, usec_t now)
{
	struct signalfd_siginfo info;
	while (read(w->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			stop(w, now);
}

/* Milliseconds until something is due, rounded up. */
static int wait_for(const struct work *w, usec_t now)
{
	usec_t due = w->stop_until;
	for (int i = 0; i < w->options.slots; i++) {
		usec_t one = slot_due(w->slots[i]);
		due = one < due ? one : due;
	}
	if (due == USEC_NEVER)
		return -1;
	if (due <= now)
		return 0;
	usec_t left = (due - now + USEC_MSEC - 1) / USEC_MSEC;
	return left < 3600000 ? (int)left : 3600000;
}

static bool all_ended(const struct work *w)
{
	for (int i = 0; i < w->options.slots; i++)
		if (!slot_ended(w->slots[i]))
			return false;
	return true;
}

static bool any_failed(const struct work *w)
{
	for (int i = 0; i < w->options.slots; i++)
		if (slot_failed(w->slots[i]))
			return true;
	return false;
}

static void turn(struct work *w)
{
	int n = w->options.slots;
	w->fds[0] = (struct pollfd){.fd = w->signals, .events = POLLIN};
	for (int i = 0; i < n; i++)
		slot_poll(w->slots[i], &w->fds[1 + i * SLOT_FDS]);
	if (poll(w->fds, (nfds_t)(1 + n * SLOT_FDS), wait_for(w, now_usec())) < 0)
		return; /* EINTR, or no memory: once more */
	usec_t now = now_usec();
	if (w->fds[0].revents != 0)
		read_signals(w, now);
	if (w->stop_until <= now)
		stop(w, now);
	for (int i = 0; i < n; i++) {
		slot_step(w->slots[i], &w->fds[1 + i * SLOT_FDS], now);
		slot_tick(w->slots[i], now);
	}
	/* What one cannot do none of them can. */
	if (w->stops == 0 && any_failed(w))
		stop(w, now);
}

/* A mistake in it would be told again and again, as if somebody were away. A name of a database is none. */
static bool conninfo_is_good(const char *text)
{
	char *error = NULL;
	if (text == NULL || (strchr(text, '=') == NULL && strstr(text, "://") == NULL))
		return true;
	PQconninfoOption *options = PQconninfoParse(text, &error);
	if (options == NULL)
		fprintf(stderr, "qbouncer-work: -d: %s", error != NULL ? error : "out of memory\n");
	PQfreemem(error);
	PQconninfoFree(options);
	return options != NULL;
}

static bool begin(struct work *w)
{
	size_t n = (size_t)w->options.slots;
	w->stop_until = USEC_NEVER;
	w->slots = mem_zalloc(n * sizeof(*w->slots));
	w->fds = mem_zalloc((1 + n * SLOT_FDS) * sizeof(*w->fds));
	if (w->slots == NULL || w->fds == NULL || !open_standard() || !take_signals(w))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((w->slots[i] = slot_new(&w->options, (int)i + 1, &w->met)) == NULL)
			return false;
	return true;
}

/* 2 if a slot could not work. */
static int leave(struct work *w)
{
	int code = any_failed(w) ? 2 : 0;
	for (int i = 0; i < w->options.slots; i++)
		slot_free(w->slots[i]);
	mem_free(w->slots);
	mem_free(w->fds);
	close(w->signals);
	return code;
}

int main(int argc, char **argv)
{
	struct work w = {.signals = -1};
	enum work_options_verdict verdict = work_options_read(&w.options, argc, argv);
	if (verdict != WORK_RUN)
		return verdict == WORK_BAD;
	if (!conninfo_is_good(w.options.conninfo))
		return 1;
	if (!begin(&w)) {
		fprintf(stderr, "qbouncer-work: cannot start: %s\n", strerror(errno));
		return 2;
	}
	for (int i = 0; i < w.options.slots; i++)
		slot_start(w.slots[i], now_usec());
	while (!all_ended(&w))
		turn(&w);
	return leave(&w);
}
