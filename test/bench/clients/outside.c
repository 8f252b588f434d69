/*
 * The same loop of push, take and done against beanstalkd (put, reserve, delete) and Redis (RPUSH,
 * LMOVE to a list of what is being worked on, LREM).
 *
 *   client beanstalkd TARGET N SECONDS LIMIT PAYLOAD
 *   client redis      TARGET N SECONDS LIMIT PAYLOAD
 *
 * The target's user says which steps: "cycle", "push" or "drain". LIMIT as in loop.c; "drain" ends
 * when there is nothing more. Prints "rate", "turns" and "seconds" as loop.c does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "link.h"

enum step { PUSH, TAKE, DONE, STEPS };

struct worker {
	int fd;
	enum step step;
	size_t len;
	char in[8192], job[4096];
};

struct outside {
	bool redis;
	enum step first, last;
	int n, running;
	const char *payload;
	double from;
	unsigned long limit, turns, counted;
};

static int request(const struct outside *x, struct worker *w, char *out, size_t size)
{
	size_t len = strlen(x->payload);

	if (x->redis) {
		switch (w->step) {
		case PUSH:
			return snprintf(out, size, "*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$%zu\r\n%s\r\n",
				len, x->payload);
		case TAKE:
			return snprintf(out, size,
				"*5\r\n$5\r\nLMOVE\r\n$1\r\nq\r\n$1\r\nw\r\n$4\r\nLEFT\r\n$5\r\n"
				"RIGHT\r\n");
		default:
			return snprintf(out, size,
				"*4\r\n$4\r\nLREM\r\n$1\r\nw\r\n$1\r\n1\r\n$%zu\r\n%s\r\n",
				strlen(w->job), w->job);
		}
	}
	switch (w->step) {
	case PUSH:
		return snprintf(out, size, "put 0 0 300 %zu\r\n%s\r\n", len, x->payload);
	case TAKE:
		return snprintf(out, size, "reserve-with-timeout 0\r\n");
	default:
		return snprintf(out, size, "delete %s\r\n", w->job);
	}
}

static void send_step(const struct outside *x, struct worker *w)
{
	char out[8192];
	int n = request(x, w, out, sizeof(out));

	if (n < 0 || (size_t)n >= sizeof(out))
		exit(2);
	w->len = 0;
	put_all(w->fd, out, (size_t)n);
}

static void keep(struct worker *w, const char *s, size_t len)
{
	if (len >= sizeof(w->job))
		exit(2);
	memcpy(w->job, s, len);
	w->job[len] = '\0';
}

/* 1: the answer is complete; 0: not yet; -1: complete, and there was no job. */
static int answered(const struct outside *x, struct worker *w)
{
	const char *line = memmem(w->in, w->len, "\r\n", 2);
	size_t size, head;
	unsigned long id;

	if (!line)
		return 0;
	head = (size_t)(line + 2 - w->in);
	if (w->in[0] == '-' || strncmp(w->in, "NOT_FOUND", 9) == 0 ||
		strncmp(w->in, "OUT_OF", 6) == 0) {
		fprintf(stderr, "error: %.*s\n", (int)(head - 2), w->in);
		exit(1);
	}
	if (w->step != TAKE)
		return 1;
	if (x->redis) {
		if (strncmp(w->in, "$-1", 3) == 0)
			return -1;
		size = strtoul(w->in + 1, NULL, 10);
	} else {
		if (sscanf(w->in, "RESERVED %lu %zu", &id, &size) != 2)
			return -1;
		snprintf(w->job, sizeof(w->job), "%lu", id);
	}
	if (w->len < head + size + 2)
		return 0;
	if (x->redis)
		keep(w, w->in + head, size);
	return 1;
}

static void on_input(struct outside *x, struct worker *w)
{
	ssize_t n = recv(w->fd, w->in + w->len, sizeof(w->in) - 1 - w->len, 0);
	int done;

	if (n <= 0)
		die("recv");
	w->len += (size_t)n;
	w->in[w->len] = '\0';
	done = answered(x, w);
	if (done == 0)
		return;
	if (done < 0 && x->first == TAKE) {
		x->running--;
		return;
	}
	if (done > 0) {
		if (w->step == x->last) {
			x->turns++;
			x->counted += now() >= x->from;
		}
		w->step = w->step == x->last ? x->first : w->step + 1;
	}
	if (x->limit > 0 && x->turns >= x->limit && w->step == x->first) {
		x->running--;
		return;
	}
	send_step(x, w);
}

static int run(struct outside *x, const struct target *t, char **arg)
{
	double seconds = atof(arg[1]), start = now();
	struct worker *all;
	struct epoll_event got[128];
	int ep = epoll_create1(0), count;

	x->n = x->running = atoi(arg[0]);
	x->limit = strtoul(arg[2], NULL, 10);
	x->payload = arg[3];
	x->first = strcmp(t->user, "drain") == 0 ? TAKE : PUSH;
	x->last = strcmp(t->user, "push") == 0 ? PUSH : DONE;
	x->from = x->limit > 0 ? start : start + seconds / 5;
	all = need((size_t)x->n, sizeof(*all));
	for (int i = 0; i < x->n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &all[i]};

		all[i].fd = dial(t);
		all[i].step = x->first;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, all[i].fd, &ev) != 0)
			die("epoll_ctl");
		send_step(x, &all[i]);
	}
	while (x->running > 0 && now() < x->from + seconds) {
		count = epoll_wait(ep, got, 128, 100);
		for (int i = 0; i < count; i++)
			on_input(x, got[i].data.ptr);
	}
	printf("rate %.1f\nturns %lu\nseconds %.4f\n", (double)x->counted / (now() - x->from),
		x->turns, now() - start);
	return 0;
}

int do_beanstalkd(const struct target *t, char **arg)
{
	struct outside x = {.redis = false};

	return run(&x, t, arg);
}

int do_redis(const struct target *t, char **arg)
{
	struct outside x = {.redis = true};

	return run(&x, t, arg);
}
