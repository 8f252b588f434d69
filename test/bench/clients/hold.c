/*
 * Clients that hold connections and do nothing, or wait: idle, park.
 *
 * "ready" is printed when all are there; they stay until stdin ends. A line on stdin makes them
 * print what they have counted: rows and ParameterStatus messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "link.h"

static void watch(int ep, int fd, void *ptr)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ptr};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		die("epoll_ctl");
}

static int hold(struct link *links, int n)
{
	struct epoll_event got[256];
	struct seen seen = {0};
	int ep = epoll_create1(0), count;
	char line[64];

	for (int i = 0; i < n; i++)
		watch(ep, links[i].fd, &links[i]);
	watch(ep, 0, NULL);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		count = epoll_wait(ep, got, 256, -1);
		for (int i = 0; i < count; i++) {
			if (got[i].data.ptr) {
				receive(got[i].data.ptr, &seen);
				continue;
			}
			if (read(0, line, sizeof(line)) <= 0)
				return 0;
			printf("counted %u %u\n", seen.rows, seen.statuses);
			fflush(stdout);
		}
	}
}

int do_idle(const struct target *t, char **arg)
{
	int n = atoi(arg[0]);

	return hold(log_in_many(t, n), n);
}

int do_park(const struct target *t, char **arg)
{
	int n = atoi(arg[0]);
	struct link *links = log_in_many(t, n);

	for (int i = 0; i < n; i++)
		put_query(&links[i], arg[1]);
	return hold(links, n);
}
