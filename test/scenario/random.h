/*
 * Dialogues that nobody wrote: clients, servers and time do what a random number says.
 */
#ifndef QB_SCENARIO_RANDOM_H
#define QB_SCENARIO_RANDOM_H

#include "base/util.h"

/* NULL, or what was wrong at the end: a client that is still there got fewer or more ReadyForQuery
 * than it asked for, or somebody was not at rest. trace: tell the steps on stderr. */
const char *random_play(unsigned seed, bool trace);

#endif
