/*
 * The event loop: one per process. Only net knows libevent. Phases of a turn: poll -> reads ->
 * timers due -> ready queues -> ready pools -> flush writes -> reap -> sleep to the earliest
 * deadline.
 */
#ifndef QB_NET_LOOP_H
#define QB_NET_LOOP_H

#include "base/util.h"

MUST_CHECK bool loop_init(void);
void loop_free(void);

/* Time of this turn; and by the clock, also where no loop runs. */
usec_t loop_now(void);
usec_t loop_clock(void);

/* Runs until loop_stop(). */
void loop_run(void);
void loop_stop(void);

/* Signal handlers run in the loop, not in signal context. */
MUST_CHECK bool loop_signal(int signo, void (*fn)(int signo, void *arg), void *arg);

/*
 * A module with deadlines registers a tick: called in the timer phase of a turn in which its
 * deadline is due, returns its next deadline (absolute, USEC_NEVER for none). loop_tick_at() lowers
 * the deadline of a registered tick from outside.
 */
struct loop_tick;
MUST_CHECK struct loop_tick *loop_tick_new(usec_t (*tick)(void *arg, usec_t now), void *arg, usec_t first);
void loop_tick_at(struct loop_tick *t, usec_t when);
void loop_tick_free(struct loop_tick **p);

/* Work of a phase, run once per turn in the order of the enum, after the timers. A phase function
 * that has nothing to do must be cheap. It returns true when it did something that may have made
 * an earlier phase ready again: the phases are then run once more in the same turn (bounded). */
enum loop_phase { LOOP_PHASE_ENDS, LOOP_PHASE_QUEUES, LOOP_PHASE_POOLS, LOOP_PHASE_COUNT };
void loop_phase(enum loop_phase phase, bool (*fn)(void *arg, usec_t now), void *arg);

/* Called in the reap phase, after writes were flushed: free what was marked dead. */
void loop_reaper(void (*fn)(void *arg), void *arg);

/* Watches a descriptor that is not a conn (libpq sockets, pipes). Level triggered. */
struct loop_watch;
#define LOOP_READ  1
#define LOOP_WRITE 2
MUST_CHECK struct loop_watch *loop_watch_new(int fd, int mask, void (*fn)(int fd, int mask, void *arg), void *arg);
MUST_CHECK bool loop_watch_set(struct loop_watch *w, int mask);
void loop_watch_free(struct loop_watch **p);

#endif
