/*
 * Who waits in a pool and could use a server (need.c), and what runs beside the clients (beside.c).
 */
#ifndef QB_POOL_NEED_H
#define QB_POOL_NEED_H

#include "pool/rooms.h"

#define HELD_LOOK 128 /* tasks that are looked at for a free server */

/* Servers that clients may use: the reserve is added once somebody has waited for too long. */
unsigned need_client_limit(const struct pool *p, usec_t now);
unsigned need_task_limit(const struct pool *p); /* that count, and that there may be while tasks wait */
unsigned need_for_tasks(const struct pool *p);  /* ... beyond what clients may have */
unsigned need_linked(const struct pool *p);     /* that clients have */
void need_beside_linked(struct pool *p);        /* tasks wait in vain, with several processes */
unsigned need_most(const struct pool *p);       /* ... for those who wait now */

/* Since when the first of those waits who could use a server; USEC_NEVER: nobody does. */
usec_t need_since(const struct pool *p);
usec_t need_clients_since(const struct pool *p);
usec_t need_tasks_since(const struct pool *p, usec_t since); /* before then; else then */
usec_t need_waits_since(const struct pool *p);    /* that do not leave the last place to clients */
usec_t need_in_vain_since(const struct pool *p);  /* and nobody has got one */
bool need_starves(const struct pool *p);

unsigned need_usable_tasks(const struct pool *p);  /* that could use one */
unsigned need_tasks(struct pool *p);               /* ... and none is free, nor will one of the engine's own do */
unsigned need_servers(struct pool *p);             /* new ones, for those who wait now */
unsigned need_logins(const struct pool *p);        /* those that come, but for the engine's own */
bool need_inspection(const struct pool *p);        /* of a statement that is silent: it goes first (silent.c) */

void need_look_again(usec_t when); /* at tasks */
void need_new_turn(void);          /* pools are served */
MUST_CHECK bool need_start(void);
void need_stop(void);

/* So many more jobs may run beside the clients, of those that wait in p: it is their turn. */
unsigned beside_turn(const struct pool *p);
void beside_gives_turn(const struct pool *p); /* others whose jobs go before those of p are served */
bool beside_tell(void); /* ... and cannot run any more: who has left them their turn looks again. false: nobody */
unsigned beside_held(const struct pool *p); /* jobs that are not to run now, though servers were free */
bool beside_is_held(struct pool *p);        /* all are; what is only kept under their limits makes room */

#endif
