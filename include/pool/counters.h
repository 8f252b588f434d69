/*
 * What is counted of a pool.
 */
#ifndef QB_POOL_COUNTERS_H
#define QB_POOL_COUNTERS_H

#include <stdint.h>

#include "base/hist.h"

struct pool_stats {
	uint64_t server_assignments, xacts, queries, bytes_in, bytes_out, xact_time, query_time, wait_time;
	uint64_t client_parses, server_parses, binds, logins;
	uint64_t pins, looks, replays, resets; /* doc/sessions.md */
};

/* How long things took, in microseconds. */
struct pool_times {
	struct hist wait; /* of clients that waited for a server */
	struct hist query, transaction;
};

#endif
