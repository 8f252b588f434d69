/*
 * Between mem.c and slab.c: the counter of the test hook, and what AddressSanitizer is told.
 */
#ifndef QB_BASE_MEM_INT_H
#define QB_BASE_MEM_INT_H

#include "base/util.h"

/* Counts one allocation; true when it is the one that the test wants to fail. */
MUST_CHECK bool mem_fails_now(void);

/* What is free and kept is not to be touched: under AddressSanitizer that is found. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEM_POISON 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define MEM_POISON 1
#endif
#ifdef MEM_POISON
#include <sanitizer/asan_interface.h>
#define mem_poison(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define mem_unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define mem_poison(p, n)   ((void)(p))
#define mem_unpoison(p, n) ((void)(p))
#endif

#endif
