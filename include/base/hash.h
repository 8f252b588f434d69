/*
 * Hash tables: uthash with our memory. Nothing exits for want of it: an element that could not be
 * added has hh.tbl NULL afterwards, and is not in the table.
 */
#ifndef QB_BASE_HASH_H
#define QB_BASE_HASH_H

#include "base/mem.h"

#define HASH_NONFATAL_OOM         1
#define uthash_malloc(sz)         mem_alloc(sz)
#define uthash_free(ptr, sz)      mem_free(ptr)
#define uthash_nonfatal_oom(elem) ((void)(elem))
#include <uthash.h>

#endif
