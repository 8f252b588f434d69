/*
 * Between the files of the room: the pooler as a whole, from start to end.
 */
#ifndef QB_POOLER_INT_H
#define QB_POOLER_INT_H

#include "login/login.h"
#include "pool/rooms.h"
#include "pooler/pooler.h"
#include "pooler/stat.h"
#include "relay/relay.h"
#include "session/session.h"

/* tick.c */
MUST_CHECK bool pooler_tick_start(usec_t (*fn)(void *arg, usec_t now));
void pooler_tick_stop(void);
void pooler_tick_at(usec_t when); /* the janitor comes then, or earlier */

/* ends.c */
bool ends_phase(void *arg, usec_t now);   /* of the loop, the first of all */
static inline bool ends_are_due(void) /* behind all phases: then they have to be run again */
{
	return client_all.dead.head != NULL || server_all.dead.head != NULL;
}
void ends_reap(void);

/* pooler.c */
void pooler_gate(usec_t now); /* how many may be there that have not logged in */
void pooler_gate_moved(void);
void pooler_gate_even(void);
void pooler_gate_stop(void);

/* move.c */
bool adopt_goes_on(void);         /* and we do from a third one */
bool move_take(struct client *c); /* it is idle: true: it goes */
void move_send(void); /* behind the flush of a turn */

/* shutdown.c */
void shutdown_client_ready(struct client *c); /* is it idle, and to leave? Then nothing of it is begun any more */
bool shutdown_say_goodbye(void *arg, usec_t now); /* of the loop phase */
bool pooler_turns_away(const struct client *c); /* it has come too late */
usec_t shutdown_tick(usec_t now); /* when to be called again */
void shutdown_reset(void);

/* suspend.c */
void suspend_begin(void);
void suspend_end(void);
bool suspend_tick(usec_t now); /* true: nothing else is to be done by the clock */

/* janitor.c */
usec_t janitor_tick(void *arg, usec_t now);

/* stat.c */
void stat_end_period(usec_t length); /* a stats_period is over, and was that long */

#endif
