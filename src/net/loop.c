/*
 * The event loop. One turn: libevent polls and calls the readers; then due ticks, kicked
 * connections and the phases, until nothing is ready any more; then output is flushed, the dead are
 * reaped, and the only timer of the process is set if it must ring earlier than it already will.
 *
 * Knows connections only as what turn.c hands in; knows no message and no owner.
 * Entry points: loop_open, loop_run, loop_tick_new, loop_phase, loop_watch_new.
 */
#include <event2/event.h>
#include <event2/event_struct.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "loop_int.h"

#define MAX_SIGNALS 8
#define MAX_HOOKS   4
/* A turn repeats its phases at most so often; what is still ready then waits for the next poll. */
#define MAX_ROUNDS 8

_Static_assert(sizeof(struct event) <= sizeof(struct loop_io), "struct loop_io is too small");
_Static_assert(LOOP_IO_READ == EV_READ && LOOP_IO_WRITE == EV_WRITE, "mask values");
_Static_assert(LOOP_IO_EDGE == EV_ET && LOOP_IO_CLOSE == EV_CLOSED, "mask values");

struct loop_tick {
	usec_t (*fn)(void *arg, usec_t now);
	void *arg;
	usec_t when;
	bool dead; /* freed by its owner; unlinked when no tick is running */
	struct loop_tick *next;
};

struct loop_watch {
	struct loop_io io;
	int fd, mask;
	void (*fn)(int fd, int mask, void *arg);
	void *arg;
	struct loop_watch *next_dead;
};

struct phase_hook {
	bool (*fn)(void *arg, usec_t now);
	void *arg;
};

struct reap_hook {
	void (*fn)(void *arg);
	void *arg;
};

struct signal_hook {
	struct event ev;
	void (*fn)(int signo, void *arg);
	void *arg;
};

static struct {
	const struct loop_conns *conns;
	struct event_base *base;
	struct event timer;
	usec_t now;
	usec_t earliest; /* no tick is due before; may be too early, never too late */
	usec_t armed;    /* when the timer will ring; USEC_NEVER: not set */
	bool fresh;      /* now was read in this turn */
	bool stop, again;
	struct loop_tick *ticks;
	bool tick_died;
	struct loop_watch *dead_watches;
	struct phase_hook phases[LOOP_PHASE_COUNT][MAX_HOOKS];
	int phase_count[LOOP_PHASE_COUNT];
	struct reap_hook reapers[MAX_HOOKS];
	int reaper_count;
	struct signal_hook signals[MAX_SIGNALS];
	int signal_count;
} loop;

usec_t loop_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (usec_t)ts.tv_sec * USEC_SEC + (usec_t)ts.tv_nsec / 1000;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	loop.armed = USEC_NEVER;
}

bool loop_open(const struct loop_conns *conns)
{
	memset(&loop, 0, sizeof(loop));
	loop.conns = conns;
	loop.base = event_base_new();
	if (!loop.base)
		return false;
	loop.earliest = loop.armed = USEC_NEVER;
	if (event_assign(&loop.timer, loop.base, -1, 0, on_timer, NULL) == 0 && conns->init())
		return true;
	event_base_free(loop.base);
	loop.base = NULL;
	return false;
}

static void ticks_sweep(bool all)
{
	struct loop_tick **at = &loop.ticks, *t;

	while ((t = *at)) {
		if (all || t->dead) {
			*at = t->next;
			mem_free(t);
		} else {
			at = &t->next;
		}
	}
	loop.tick_died = false;
}

static void watches_reap(void)
{
	struct loop_watch *w;

	while ((w = loop.dead_watches)) {
		loop.dead_watches = w->next_dead;
		mem_free(w);
	}
}

/* From here on they are ignored: who would answer them is gone or goes, and their default would end
 * the process in the middle of it. Blocked, so that none comes between the two. */
static void signals_free(void)
{
	sigset_t ours, before;

	sigemptyset(&ours);
	for (int i = 0; i < loop.signal_count; i++)
		sigaddset(&ours, event_get_signal(&loop.signals[i].ev));
	sigprocmask(SIG_BLOCK, &ours, &before);
	for (int i = 0; i < loop.signal_count; i++) {
		event_del(&loop.signals[i].ev);
		signal(event_get_signal(&loop.signals[i].ev), SIG_IGN);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	loop.signal_count = 0;
}

/* Signals first: the loop is turned once more, by the end of the resolvers. */
void loop_free(void)
{
	int i;

	if (!loop.base)
		return;
	signals_free();
	loop.conns->free_names();
	for (i = 0; i < loop.reaper_count; i++)
		loop.reapers[i].fn(loop.reapers[i].arg);
	loop.conns->free();
	event_del(&loop.timer);
	watches_reap();
	ticks_sweep(true);
	event_base_free(loop.base);
	loop.base = NULL;
}

/* Readers run inside libevent's poll, so the first who asks in a turn reads the clock. */
usec_t loop_now(void)
{
	if (!loop.fresh) {
		loop.now = loop_clock();
		loop.fresh = true;
	}
	return loop.now;
}

struct event_base *loop_base(void)
{
	return loop.base;
}

void loop_again(void)
{
	loop.again = true;
}

void loop_stop(void)
{
	loop.stop = true;
}

/* --- descriptors --- */

void loop_io_init(struct loop_io *io, int fd, short mask, loop_io_fn *fn, void *arg)
{
	struct event *ev = (struct event *)(void *)io;

	/* Fails only for signal events that are also I/O events. */
	if (event_assign(ev, loop.base, fd, (short)(mask | EV_PERSIST), fn, arg) != 0)
		ASSERT(!"event_assign");
}

bool loop_io_add(struct loop_io *io)
{
	return event_add((struct event *)(void *)io, NULL) == 0;
}

void loop_io_del(struct loop_io *io)
{
	event_del((struct event *)(void *)io);
}

static void on_watch(int fd, short what, void *arg)
{
	struct loop_watch *w = arg;
	int mask = (what & EV_READ ? LOOP_READ : 0) | (what & EV_WRITE ? LOOP_WRITE : 0);

	w->fn(fd, mask, w->arg);
}

struct loop_watch *loop_watch_new(
	int fd, int mask, void (*fn)(int fd, int mask, void *arg), void *arg)
{
	struct loop_watch *w = mem_zalloc(sizeof(*w));

	if (!w)
		return NULL;
	w->fd = fd;
	w->fn = fn;
	w->arg = arg;
	if (loop_watch_set(w, mask))
		return w;
	mem_free(w);
	return NULL;
}

bool loop_watch_set(struct loop_watch *w, int mask)
{
	int io = (mask & LOOP_READ ? EV_READ : 0) | (mask & LOOP_WRITE ? EV_WRITE : 0);

	if (mask == w->mask)
		return true;
	if (w->mask)
		loop_io_del(&w->io);
	w->mask = 0;
	if (!mask)
		return true;
	loop_io_init(&w->io, w->fd, (short)io, on_watch, w);
	if (!loop_io_add(&w->io))
		return false;
	w->mask = mask;
	return true;
}

void loop_watch_free(struct loop_watch **p)
{
	struct loop_watch *w = *p;

	if (!w)
		return;
	*p = NULL;
	if (w->mask)
		loop_io_del(&w->io);
	w->mask = 0;
	w->next_dead = loop.dead_watches;
	loop.dead_watches = w;
}

/* --- signals --- */

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct signal_hook *h = arg;

	(void)what;
	h->fn((int)signo, h->arg);
}

bool loop_signal(int signo, void (*fn)(int signo, void *arg), void *arg)
{
	struct signal_hook *h;

	if (loop.signal_count == MAX_SIGNALS)
		return false;
	h = &loop.signals[loop.signal_count];
	h->fn = fn;
	h->arg = arg;
	if (event_assign(&h->ev, loop.base, signo, EV_SIGNAL | EV_PERSIST, on_signal, h) != 0 ||
		event_add(&h->ev, NULL) != 0)
		return false;
	loop.signal_count++;
	return true;
}

/* --- deadlines --- */

struct loop_tick *loop_tick_new(usec_t (*tick)(void *arg, usec_t now), void *arg, usec_t first)
{
	struct loop_tick *t = mem_zalloc(sizeof(*t));

	if (!t)
		return NULL;
	t->fn = tick;
	t->arg = arg;
	t->when = USEC_NEVER;
	t->next = loop.ticks;
	loop.ticks = t;
	loop_tick_at(t, first);
	return t;
}

void loop_tick_at(struct loop_tick *t, usec_t when)
{
	if (when < t->when)
		t->when = when;
	if (when < loop.earliest)
		loop.earliest = when;
}

void loop_tick_free(struct loop_tick **p)
{
	struct loop_tick *t = *p;

	if (!t)
		return;
	*p = NULL;
	t->dead = true;
	t->when = USEC_NEVER;
	loop.tick_died = true;
}

static void tick_run(struct loop_tick *t)
{
	usec_t next;

	/* Cleared first: loop_tick_at() from inside must not be lost. */
	t->when = USEC_NEVER;
	next = t->fn(t->arg, loop.now);
	if (!t->dead && next < t->when)
		t->when = next;
}

static void ticks_run(void)
{
	struct loop_tick *t;
	usec_t earliest = USEC_NEVER;

	if (loop.now < loop.earliest)
		return;
	loop.earliest = USEC_NEVER;
	for (t = loop.ticks; t; t = t->next)
		if (t->when <= loop.now)
			tick_run(t);
	for (t = loop.ticks; t; t = t->next)
		if (t->when < earliest)
			earliest = t->when;
	loop.earliest = earliest;
}

/* The timer is left alone while it rings early enough; a ring too early costs one idle turn, which
 * is cheaper than moving it on every request. */
static void timer_arm(void)
{
	usec_t wait;
	struct timeval tv;

	if (loop.earliest >= loop.armed)
		return;
	wait = loop.earliest > loop.now ? loop.earliest - loop.now : 0;
	if (wait == 0) {
		loop_again();
		return;
	}
	tv.tv_sec = (time_t)(wait / USEC_SEC);
	tv.tv_usec = (suseconds_t)(wait % USEC_SEC);
	if (event_add(&loop.timer, &tv) == 0)
		loop.armed = loop.earliest;
	else
		loop_again();
}

/* --- the turn --- */

void loop_phase(enum loop_phase phase, bool (*fn)(void *arg, usec_t now), void *arg)
{
	int n = loop.phase_count[phase];

	ASSERT(n < MAX_HOOKS);
	loop.phases[phase][n] = (struct phase_hook){fn, arg};
	loop.phase_count[phase] = n + 1;
}

void loop_reaper(void (*fn)(void *arg), void *arg)
{
	ASSERT(loop.reaper_count < MAX_HOOKS);
	loop.reapers[loop.reaper_count++] = (struct reap_hook){fn, arg};
}

static bool phases_once(void)
{
	bool more = loop.conns->kicks();
	int p, i;

	for (p = 0; p < LOOP_PHASE_COUNT; p++)
		for (i = 0; i < loop.phase_count[p]; i++)
			more |= loop.phases[p][i].fn(loop.phases[p][i].arg, loop.now);
	return more | loop.conns->has_kicks();
}

static void phases_run(void)
{
	int round = 0;

	while (phases_once())
		if (++round == MAX_ROUNDS) {
			loop_again();
			return;
		}
}

static void reap(void)
{
	int i;

	for (i = 0; i < loop.reaper_count; i++)
		loop.reapers[i].fn(loop.reapers[i].arg);
	loop.conns->reap();
	if (loop.dead_watches)
		watches_reap();
	if (loop.tick_died)
		ticks_sweep(false);
}

static void turn(int flags)
{
	loop.fresh = false;
	event_base_loop(loop.base, flags | EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
	(void)loop_now();
	ticks_run();
	phases_run();
	loop.conns->flush();
	reap();
	if (loop.conns->has_work())
		loop_again();
	timer_arm();
}

void loop_run(void)
{
	loop.stop = false;
	/* Boot may have left work and deadlines behind. */
	loop.again = true;
	while (!loop.stop) {
		int flags = loop.again ? EVLOOP_NONBLOCK : 0;

		loop.again = false;
		turn(flags);
	}
}
