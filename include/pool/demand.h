/*
 * Who has a claim to a place of a limit that is full: the rules, the same between the pools of one process (room.c)
 * and between processes (places.c). They know neither, only when and how many.
 */
#ifndef QB_POOL_DEMAND_H
#define QB_POOL_DEMAND_H

#include "base/util.h"

/* Of those alone who could use a server if there were one. */
struct demand {
	usec_t since;         /* who has waited longest of those who have none, or few; USEC_NEVER: nobody */
	usec_t starves_since; /* ... who get none of those they have; USEC_NEVER: nobody */
	unsigned has;
};

/* Nobody has got one for so long, though there are some; runs: statements there, which may end by themselves. */
bool demand_starves(usec_t since, bool runs, usec_t now);

/* Does it go before who has waited since then (USEC_NEVER: nobody does), and has so many without the one in question? */
bool demand_goes_before(const struct demand *c, usec_t since, unsigned has);

/* Another limit is full, too. Is one of its servers likely to come free soon? One did (free_at) since the claim began. */
bool demand_may_wait(usec_t since, usec_t free_at, usec_t now);

#endif
