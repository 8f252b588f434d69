/*
 * Places of limits over several pools (room.c).
 */
#ifndef QB_POOL_ROOM_H
#define QB_POOL_ROOM_H

#include "pool/rooms.h"

/* For one more server of p. false: there is none, or it is another pool's; p is told when one is free. */
MUST_CHECK bool room_make(struct pool *p);
/* The last place is for who waits longest, be it in another pool. */
bool room_is_for_another(struct pool *p);

/* The server that is free goes, and not to who waits here since then: its place is for another pool, or process. */
bool room_gives_way(struct pool *p, struct server *s, usec_t since);
bool room_engine_gives_way(struct pool *p, struct server *s); /* ... for those here who have none at all */

/* With several processes. */
void room_give(struct pool *p, usec_t now); /* what nobody here could use */
void room_want(struct pool *p);             /* nothing more can be had here */

/* Who has found no place is told of a server that is free, or has gone. false: there is nobody, or nothing. */
bool room_tell(struct pool *p);

/* launch.c: one more connection of the engine's own, if it pays */
void launch_engine(struct pool *p, usec_t now);

#endif
