/*
 * What the tests of net/ share: a loop that runs until a condition holds.
 */
#ifndef QB_TEST_NET_FIXTURE_H
#define QB_TEST_NET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/conn.h"
#include "net/listen.h"
#include "net/loop.h"

static bool (*until_cond)(void *arg);
static void *until_arg;

static bool until_phase(void *arg, usec_t now)
{
	(void)arg, (void)now;
	if (until_cond && until_cond(until_arg))
		loop_stop();
	return false;
}

/* A test that waits for what never comes is ended by main's alarm(). */
static void run_until(bool (*cond)(void *arg), void *arg)
{
	until_cond = cond;
	until_arg = arg;
	loop_run();
	until_cond = NULL;
}

static bool after_turns(void *arg)
{
	int *left = arg;

	return --*left <= 0;
}

/* Turns that do not sleep: something must be ready, or a tick due. */
static usec_t tick_always(void *arg, usec_t now)
{
	(void)arg;
	return now;
}

static void run_turns(int n)
{
	struct loop_tick *t = loop_tick_new(tick_always, NULL, 0);

	assert_non_null(t);
	run_until(after_turns, &n);
	loop_tick_free(&t);
}

static int setup_loop(void **state)
{
	(void)state;
	if (!loop_init())
		return -1;
	loop_phase(LOOP_PHASE_POOLS, until_phase, NULL);
	return 0;
}

static int teardown_loop(void **state)
{
	(void)state;
	mem_fail_after(0);
	loop_free();
	return 0;
}

#endif
