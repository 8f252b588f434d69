/*
 * Between mem.c and slab.c: the counter of the test hook.
 */
#ifndef QB_BASE_MEM_INT_H
#define QB_BASE_MEM_INT_H

#include "base/util.h"

/* Counts one allocation; true when it is the one that the test wants to fail. */
MUST_CHECK bool mem_fails_now(void);

#endif
