/*
 * Cancel requests, many at once, and queries beside them that must not notice.
 *
 *   client cancel TARGET CANCELLERS BYSTANDERS SECONDS RACES
 *
 * A canceller has three queries in turn. The first one says that it runs, and is cancelled then:
 * it has to end so. The second one, only when RACES is 1, is cancelled when it has been sent, so
 * that the request meets it before, while or behind it runs: either end is right. When it has ended
 * and the connection of the request has been closed by the other side, the third one follows, which
 * nobody has cancelled. Bystanders have short queries, over and over, which nobody cancels.
 *
 * Prints "rate" (requests per second), "requests", "heeded" and "missed" of the first queries, the
 * time from a request to the end of its query "cancel", how many of the second ones were "met", and
 * "strays": queries that ended as cancelled and nobody had asked for it; of "innocent" ones.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link.h"

/* Longer than it may take until a request has come through. Its first row is more than Postgres
 * keeps back, so who sees the columns knows that it runs. */
#define SLOW  "SELECT repeat('x', 10000) UNION ALL SELECT pg_sleep(3)::text"
#define RACED "SELECT pg_sleep(0.001)"
#define QUICK "SELECT pg_sleep(0.001), 'innocent'"

enum kind { CANCELLED, RACE, INNOCENT, KINDS };

struct storm {
	const struct target *t;
	int ep, running;
	double from, until, *times;
	unsigned long requests, heeded, missed, met, innocent, strays, n_times, cap;
};

struct actor {
	struct link link;
	struct storm *storm;
	bool cancels; /* a bystander does not */
	bool races;
	enum kind kind;
	int request;    /* its connection, until that is closed; -1 */
	double sent;    /* the request */
	bool cancelled; /* the query has ended so */
	bool ended;
};

static void watch(struct storm *s, int fd, void *ptr)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ptr};

	if (epoll_ctl(s->ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		die("epoll_ctl");
}

/* The events of a request's connection are told from its actor's by the lowest bit. */
static void *mark(struct actor *a)
{
	return (uint8_t *)a + 1;
}

static void request(struct actor *a)
{
	struct storm *s = a->storm;

	a->sent = now();
	a->request = put_cancel(&a->link, s->t);
	watch(s, a->request, mark(a));
	s->requests++;
}

static void start(struct actor *a)
{
	a->cancelled = a->ended = false;
	put_query(&a->link, a->kind == CANCELLED ? SLOW : a->kind == RACE ? RACED : QUICK);
	if (a->kind == RACE)
		request(a);
}

static void keep_time(struct storm *s, double spent)
{
	if (s->n_times == s->cap) {
		s->cap = s->cap * 2 + 1024;
		s->times = realloc(s->times, s->cap * sizeof(*s->times));
		if (!s->times)
			die("realloc");
	}
	s->times[s->n_times++] = spent;
}

static void count(struct actor *a)
{
	struct storm *s = a->storm;

	switch (a->kind) {
	case CANCELLED:
		s->heeded += a->cancelled;
		s->missed += !a->cancelled;
		break;
	case RACE:
		s->met += a->cancelled;
		break;
	default:
		s->innocent++;
		s->strays += a->cancelled;
	}
}

/* The query has ended, and nobody is on the way to cancel it. */
static void next(struct actor *a)
{
	struct storm *s = a->storm;

	count(a);
	if (a->cancels)
		a->kind = (a->kind + (a->races || a->kind != CANCELLED ? 1 : 2)) % KINDS;
	if (now() >= s->until)
		s->running--;
	else
		start(a);
}

static bool on_error(void *arg, const char *sqlstate)
{
	struct actor *a = arg;

	a->cancelled = strcmp(sqlstate, "57014") == 0;
	return a->cancelled;
}

static void on_data(struct actor *a)
{
	struct seen seen = {.error = on_error, .arg = a};

	receive(&a->link, &seen);
	if (seen.columns && a->kind == CANCELLED && a->request < 0 && !a->ended)
		request(a);
	if (!seen.ready)
		return;
	if (a->kind == CANCELLED && a->cancelled)
		keep_time(a->storm, now() - a->sent);
	a->ended = true;
	if (a->request < 0)
		next(a);
}

static void on_request(struct actor *a)
{
	char byte;
	ssize_t n = recv(a->request, &byte, 1, 0);

	if (n > 0) {
		fprintf(stderr, "a cancel request was answered\n");
		exit(1);
	}
	if (n < 0 && errno != ECONNRESET)
		die("recv");
	close(a->request);
	a->request = -1;
	if (a->ended)
		next(a);
}

static void turn(struct storm *s)
{
	struct epoll_event got[128];
	int n = epoll_wait(s->ep, got, 128, 100);

	for (int i = 0; i < n; i++) {
		uintptr_t p = (uintptr_t)got[i].data.ptr;

		if (p & 1)
			on_request((struct actor *)(p - 1));
		else
			on_data((struct actor *)p);
	}
}

int do_cancel(const struct target *t, char **arg)
{
	int n = atoi(arg[0]), all = n + atoi(arg[1]);
	struct storm s = {.t = t, .ep = epoll_create1(0), .running = all};
	struct actor *actors = need((size_t)all, sizeof(*actors));
	struct link *links = log_in_many(t, all);
	double spent;

	s.from = now();
	s.until = s.from + atof(arg[2]);
	for (int i = 0; i < all; i++) {
		actors[i] = (struct actor){.link = links[i],
			.storm = &s,
			.cancels = i < n,
			.kind = i < n ? (enum kind)(i % 2) : INNOCENT,
			.request = -1};
		watch(&s, links[i].fd, &actors[i]);
		start(&actors[i]);
	}
	while (s.running > 0 && now() < s.until + 5)
		turn(&s);
	spent = now() - s.from;
	if (s.running > 0) {
		fprintf(stderr, "%d queries or requests did not end\n", s.running);
		return 1;
	}
	printf("rate %.1f\nrequests %lu\nheeded %lu\nmissed %lu\nmet %lu\ninnocent %lu\nstrays %lu\n",
		(double)s.requests / spent, s.requests, s.heeded, s.missed, s.met, s.innocent,
		s.strays);
	print_times("cancel", s.times, s.n_times);
	return 0;
}
