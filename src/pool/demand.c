/*
 * The rules of claims; decision 036 has them in words.
 */
#include "pool/demand.h"

#define STARVES                                                                                    \
	(100 * USEC_MSEC) /* a transaction in which nothing runs may wait for what waits here */
#define STARVES_BUSY (1 * USEC_SEC) /* a login for each slow statement is none the better */

bool demand_starves(usec_t since, bool runs, usec_t now)
{
	return since + (runs ? STARVES_BUSY : STARVES) <= now;
}

bool demand_goes_before(const struct demand *c, usec_t since, unsigned has)
{
	return c->starves_since < since || (c->since < since && (c->has == 0 || c->has + 1 <= has));
}

/* One place is kept until the other comes: no longer than that took the last time. If it is in vain, the wait has
 * doubled before it can happen again. */
bool demand_may_wait(usec_t since, usec_t free_at, usec_t now)
{
	/* the clock of another process may be later by its turn */
	return free_at > since && (free_at >= now || free_at - since > now - free_at);
}
