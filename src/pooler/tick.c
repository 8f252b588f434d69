/*
 * The clock of the pooler: one deadline, which anybody may make earlier. What is done then is
 * janitor.c.
 */
#include "pooler_int.h"

static struct loop_tick *tick;

bool pooler_tick_start(usec_t (*fn)(void *arg, usec_t now))
{
	tick = loop_tick_new(fn, NULL, loop_now());
	return tick != NULL;
}

void pooler_tick_stop(void)
{
	loop_tick_free(&tick);
}

void pooler_tick_at(usec_t when)
{
	loop_tick_at(tick, when);
}
