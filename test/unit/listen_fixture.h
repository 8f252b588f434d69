/*
 * What the tests of what listens share (listen.c, the HTTP server): a port, and a process without descriptors.
 */
#ifndef QB_TEST_LISTEN_FIXTURE_H
#define QB_TEST_LISTEN_FIXTURE_H

#include "net_fixture.h"

#include <sys/resource.h>

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static unsigned turns;

static bool count_turns(void *arg)
{
	turns++;
	return *(bool *)arg;
}

static usec_t on_over(void *arg, usec_t now)
{
	(void)now;
	*(bool *)arg = true;
	return USEC_NEVER;
}

/* Somebody waits to be accepted, and there is no descriptor for it: the loop sleeps instead of spinning. */
static void sleeps_without_descriptors(void)
{
	struct rlimit old, low;
	struct loop_tick *t;
	bool over = false;
	int top;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	top = dup(0);
	close(top);
	low = old;
	low.rlim_cur = (rlim_t)top;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	t = loop_tick_new(on_over, &over, loop_now() + 300 * USEC_MSEC);
	assert_non_null(t);
	turns = 0;
	run_until(count_turns, &over);
	loop_tick_free(&t);
	assert_in_range(turns, 1, 20);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

#endif
