/*
 * One connection that takes jobs, and the command that runs for its job. Entry points: slot_start(), then in each
 * turn slot_poll(), slot_step() and slot_tick().
 */
#ifndef QB_WORK_SLOT_H
#define QB_WORK_SLOT_H

#include <poll.h>

#include "base/util.h"

#include "options.h"

enum { SLOT_FDS = 4 };

struct slot;

/* met: whether anybody could connect since the start; of all slots, and stays the caller's. */
MUST_CHECK struct slot *slot_new(const struct work_options *options, int number, bool *met);
void slot_free(struct slot *s);
void slot_start(struct slot *s, usec_t now);
/* Fills SLOT_FDS, unused ones with -1. */
void slot_poll(const struct slot *s, struct pollfd *fds);
void slot_step(struct slot *s, const struct pollfd *fds, usec_t now);
/* What is due by the clock, and whether the command has ended. */
void slot_tick(struct slot *s, usec_t now);
usec_t slot_due(const struct slot *s); /* when slot_tick() has something to do */
/* No more jobs; the one that runs may finish. */
void slot_stop(struct slot *s, usec_t now);
/* The command is told to end, and its job given back. Again: it is killed, and nobody waits for an answer. */
void slot_abort(struct slot *s, usec_t now);
bool slot_ended(const struct slot *s);
/* It could not work, for a reason that does not go away by itself; with --once and --drain for any. */
bool slot_failed(const struct slot *s);

#endif
