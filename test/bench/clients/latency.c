/*
 * From the push to the delivery, with one clock: connections that push, others that wait, others
 * that finish what was taken.
 *
 *   client latency TARGET SECONDS RATE QUEUE SIZE PUSHERS WAITERS FINISHERS
 *   client commit  TARGET SECONDS RATE SQL        the time of one statement, on such a schedule
 *
 * RATE is pushes per second, on a schedule: a push that has to wait for a free pusher counts from
 * the time that it was due. RATE 0: each pusher pushes again when its job has been delivered.
 * Prints the times "sent" (push sent -> row received), "acknowledged" (push answered -> row
 * received; negative when the row was first), "push" (sent -> answered), and "count", "rate".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "link.h"

#define DONE_MAX   64 /* jobs finished by one statement */
#define TOKEN_SIZE 64

enum role { PUSHER, WAITER, FINISHER };

struct sample {
	double sent, ready, got;
};

struct peer {
	struct link link;
	struct latency *all;
	enum role role;
	int job;  /* a pusher's: what it pushes now or has pushed; -1 none */
	bool row; /* a waiter's: a job has come */
	struct peer *next_free;
};

struct latency {
	struct sample *s;
	int n, sent, ready, got, finished;
	double rate, start;
	const char *queue;
	char *pad;
	char (*tokens)[TOKEN_SIZE];
	struct peer *pushers, *waiters, *finishers;
	int n_pushers, n_waiters, n_finishers, ep;
	struct peer *free_pusher, *free_finisher;
	bool stop;
	struct peer **pusher_of; /* of each job, when the rate is 0 */
};

static void free_put(struct peer **list, struct peer *p)
{
	p->next_free = *list;
	*list = p;
}

static struct peer *free_take(struct peer **list)
{
	struct peer *p = *list;

	if (p)
		*list = p->next_free;
	return p;
}

static void push(struct latency *x, struct peer *p, double at)
{
	char sql[4096];

	snprintf(sql, sizeof(sql), "QUEUE PUSH %s '{\"n\": %d, \"pad\": \"%s\"}'", x->queue,
		x->sent, x->pad);
	p->job = x->sent++;
	x->s[p->job].sent = at;
	x->pusher_of[p->job] = p;
	put_query(&p->link, sql);
}

static void take(struct peer *p)
{
	char sql[256];

	p->row = false;
	snprintf(sql, sizeof(sql), "QUEUE TAKE %s WAIT '5 min'", p->all->queue);
	put_query(&p->link, sql);
}

/* All that were taken meanwhile, as long as somebody is free. */
static void finish(struct latency *x)
{
	char sql[DONE_MAX * (TOKEN_SIZE + 4) + 32];

	while (x->finished < x->got && x->free_finisher) {
		struct peer *p = free_take(&x->free_finisher);
		size_t len = (size_t)snprintf(sql, sizeof(sql), "QUEUE DONE");

		for (int i = 0; i < DONE_MAX && x->finished < x->got; i++, x->finished++)
			len += (size_t)snprintf(sql + len, sizeof(sql) - len, "%s '%s'",
				i ? "," : "", x->tokens[x->finished]);
		put_query(&p->link, sql);
	}
}

/* The next push of this pusher, if its job has been answered and delivered. */
static void push_again(struct latency *x, struct peer *p)
{
	const struct sample *s = &x->s[p->job];

	if (s->ready > 0 && s->got > 0 && !x->stop && x->sent < x->n)
		push(x, p, now());
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct peer *p = arg;
	struct latency *x = p->all;
	double at = now();
	size_t n, size;
	const char *token = row_field(body, 1, &size);
	const char *payload = row_field(body, 4, &n);
	const char *number = payload ? memmem(payload, n, "\"n\": ", 5) : NULL;
	int job;

	(void)len;
	job = number ? atoi(number + 5) : -1;
	if (job < 0 || job >= x->sent || !token || size >= TOKEN_SIZE || x->s[job].got > 0) {
		fprintf(stderr, "a job that was not pushed, or a second time: %d\n", job);
		exit(1);
	}
	x->s[job].got = at;
	memcpy(x->tokens[x->got], token, size);
	x->tokens[x->got++][size] = '\0';
	p->row = true;
	if (x->rate == 0)
		push_again(x, x->pusher_of[job]);
}

static void on_ready(struct peer *p)
{
	struct latency *x = p->all;

	switch (p->role) {
	case PUSHER:
		x->s[p->job].ready = now();
		x->ready++;
		if (x->rate == 0)
			push_again(x, p);
		else
			free_put(&x->free_pusher, p);
		break;
	case WAITER:
		if (!p->row) {
			fprintf(stderr, "a wait ended without a job\n");
			exit(1);
		}
		take(p);
		break;
	case FINISHER:
		free_put(&x->free_finisher, p);
		break;
	}
}

static struct peer *peers(struct latency *x, const struct target *t, enum role role, int n)
{
	struct peer *all = need((size_t)n, sizeof(*all));
	struct link *links = log_in_many(t, n);

	for (int i = 0; i < n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &all[i]};

		all[i] = (struct peer){.link = links[i], .all = x, .role = role, .job = -1};
		if (epoll_ctl(x->ep, EPOLL_CTL_ADD, links[i].fd, &ev) != 0)
			die("epoll_ctl");
	}
	free(links);
	return all;
}

/* What is due of the schedule; returns the time of the next. */
static double push_due(struct latency *x, double end)
{
	double at = now();

	while (x->rate > 0 && x->sent < x->n) {
		double due = x->start + x->sent / x->rate;
		struct peer *p;

		if (due > at)
			return due;
		p = free_take(&x->free_pusher);
		if (!p)
			return end; /* the next answer makes one free */
		push(x, p, due);
	}
	return end;
}

static void turn(struct latency *x, double until)
{
	struct epoll_event got[256];
	struct timespec ts = {0, 0};
	double left = until - now();
	int count;

	if (left > 0) {
		ts.tv_sec = (time_t)left;
		ts.tv_nsec = (long)((left - (double)ts.tv_sec) * 1e9);
	}
	count = epoll_pwait2(x->ep, got, 256, &ts, NULL);
	if (count < 0 && errno != EINTR)
		die("epoll_pwait2");
	for (int i = 0; i < count; i++) {
		struct peer *p = got[i].data.ptr;
		struct seen seen = {.row = p->role == WAITER ? on_row : NULL, .arg = p};

		receive(&p->link, &seen);
		if (seen.ready)
			on_ready(p);
	}
	finish(x);
}

static void report(struct latency *x)
{
	double *v = need((size_t)x->sent, sizeof(*v)), last = x->start;
	size_t n = (size_t)x->sent;

	for (size_t i = 0; i < n; i++) {
		v[i] = x->s[i].got - x->s[i].sent;
		last = x->s[i].got > last ? x->s[i].got : last;
	}
	print_times("sent", v, n);
	for (size_t i = 0; i < n; i++)
		v[i] = x->s[i].got - x->s[i].ready;
	print_times("acknowledged", v, n);
	for (size_t i = 0; i < n; i++)
		v[i] = x->s[i].ready - x->s[i].sent;
	print_times("push", v, n);
	printf("count %zu\nrate %.1f\n", n, (double)n / (last - x->start));
}

int do_latency(const struct target *t, char **arg)
{
	double seconds = atof(arg[0]), end;
	struct latency x = {.rate = atof(arg[1]), .queue = arg[2], .ep = epoll_create1(0)};
	int size = atoi(arg[3]);

	x.n = x.rate > 0 ? (int)(seconds * x.rate) : (int)(seconds * 100000);
	x.pad = need(1, (size_t)size + 1);
	memset(x.pad, 'x', (size_t)size);
	x.s = need((size_t)x.n, sizeof(*x.s));
	x.tokens = need((size_t)x.n, sizeof(*x.tokens));
	x.pusher_of = need((size_t)x.n, sizeof(struct peer *));
	x.n_pushers = atoi(arg[4]);
	x.n_waiters = atoi(arg[5]);
	x.n_finishers = atoi(arg[6]);
	x.pushers = peers(&x, t, PUSHER, x.n_pushers);
	x.waiters = peers(&x, t, WAITER, x.n_waiters);
	x.finishers = peers(&x, t, FINISHER, x.n_finishers);
	for (int i = 0; i < x.n_waiters; i++)
		take(&x.waiters[i]);
	for (int i = 0; i < x.n_finishers; i++)
		free_put(&x.free_finisher, &x.finishers[i]);
	sleep(1 + x.n_waiters / 5000); /* until they wait */
	x.start = now();
	end = x.start + seconds;
	for (int i = 0; i < x.n_pushers; i++) {
		if (x.rate > 0)
			free_put(&x.free_pusher, &x.pushers[i]);
		else
			push(&x, &x.pushers[i], now());
	}
	while (!x.stop || x.got < x.sent || x.ready < x.sent) {
		double next = push_due(&x, x.stop ? end + 30 : end);

		if (now() > end + 30) {
			fprintf(stderr, "%d of %d jobs came\n", x.got, x.sent);
			return 1;
		}
		turn(&x, next);
		x.stop = x.rate > 0 ? x.sent == x.n : now() >= end;
	}
	report(&x);
	return 0;
}

int do_commit(const struct target *t, char **arg)
{
	double rate = atof(arg[1]), start, at, *v;
	int n = (int)(atof(arg[0]) * rate);
	struct link l = {0};

	v = need((size_t)n, sizeof(*v));
	log_in(&l, t);
	start = now();
	for (int i = 0; i < n; i++) {
		double left = start + i / rate - now();

		if (left > 0)
			usleep((useconds_t)(left * 1e6));
		at = now();
		put_query(&l, arg[2]);
		wait_ready(&l, 1);
		v[i] = now() - at;
	}
	print_times("commit", v, (size_t)n);
	return 0;
}
