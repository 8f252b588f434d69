/*
 * A statement on a schedule, whatever it takes: connections that send one at a time.
 *
 *   client pace TARGET N SECONDS RATE SQL
 *
 * One that has to wait for a free connection counts from the time that it was due. Of the schedule the first fifth warms up.
 * Prints the times "answer" (due -> answered), "count", and "rate": as many a second were answered, to the last.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "link.h"

struct pacer {
	struct link link;
	double due;
	struct pacer *next_free;
};

struct pace {
	struct pacer *idle;
	const char *sql;
	double rate, start, last;
	int n, sent, answered, warm;
	double *took;
};

static void send_due(struct pace *x)
{
	for (double at = now(); x->sent < x->n && x->idle; x->sent++) {
		double due = x->start + x->sent / x->rate;
		struct pacer *p = x->idle;

		if (due > at)
			return;
		x->idle = p->next_free;
		p->due = due;
		put_query(&p->link, x->sql);
	}
}

static void answered(struct pace *x, struct pacer *p)
{
	x->last = now();
	if (x->answered++ >= x->warm)
		x->took[x->answered - 1 - x->warm] = x->last - p->due;
	p->next_free = x->idle;
	x->idle = p;
}

/* To the nanosecond: one that looks all the time until the next one is due would have a core for itself. */
static struct timespec time_to_next(const struct pace *x)
{
	double left = x->start + x->sent / x->rate - now();
	struct timespec ts = {0, 0};

	if (x->sent == x->n || !x->idle)
		left = 0.1;
	if (left > 0) {
		ts.tv_sec = (time_t)left;
		ts.tv_nsec = (long)((left - (double)ts.tv_sec) * 1e9);
	}
	return ts;
}

int do_pace(const struct target *t, char **arg)
{
	int n = atoi(arg[0]), ep = epoll_create1(0), count;
	struct pace x = {.sql = arg[3], .rate = atof(arg[2])};
	struct pacer *all = need((size_t)n, sizeof(*all));
	struct link *links = log_in_many(t, n);
	struct epoll_event got[128];

	if (x.rate <= 0)
		return 2;
	x.warm = (int)(atof(arg[1]) * x.rate / 4);
	x.n = x.warm + (int)(atof(arg[1]) * x.rate) + 1;
	x.took = need((size_t)x.n, sizeof(*x.took));
	for (int i = 0; i < n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &all[i]};

		all[i] = (struct pacer){.link = links[i], .next_free = x.idle};
		x.idle = &all[i];
		if (epoll_ctl(ep, EPOLL_CTL_ADD, links[i].fd, &ev) != 0)
			die("epoll_ctl");
	}
	x.start = now();
	while (x.answered < x.n) {
		struct timespec ts;

		send_due(&x);
		ts = time_to_next(&x);
		count = epoll_pwait2(ep, got, 128, &ts, NULL);
		if (count < 0 && errno != EINTR)
			die("epoll_pwait2");
		for (int i = 0; i < count; i++) {
			struct seen seen = {0};

			receive(&((struct pacer *)got[i].data.ptr)->link, &seen);
			if (seen.ready)
				answered(&x, got[i].data.ptr);
		}
	}
	print_times("answer", x.took, (size_t)(x.n - x.warm));
	printf("count %d\nrate %.1f\n", x.n, x.n / (x.last - x.start));
	return 0;
}
