/*
 * What a turn of the loop does for connections, and for names that are asked for: the loop knows neither.
 */
#include "conn_int.h"
#include "loop_int.h"
#include "resolve.h"

static const struct loop_conns conns = {
	.init = conn_module_init,
	.free_names = resolve_module_free,
	.free = conn_module_free,
	.kicks = conn_turn_kicks,
	.has_kicks = conn_has_kicks,
	.flush = conn_turn_flush,
	.reap = conn_turn_reap,
	.has_work = conn_has_work,
};

bool loop_init(void)
{
	return loop_open(&conns);
}
