/*
 * Hash tables: uthash with our memory and our function. Nothing exits for want of it: an element that
 * could not be added has hh.tbl NULL afterwards, and is not in the table.
 */
#ifndef QB_BASE_HASH_H
#define QB_BASE_HASH_H

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

/* What clients send are keys, too: which of them meet in a bucket differs from process to process. Before
 * the first table is made, or not at all. */
void hash_start(void);

extern uint64_t hash_seed;

static inline uint64_t hash_mix(uint64_t h)
{
	h *= 0x9e3779b97f4a7c15u; /* the golden ratio: Knuth, The Art of Computer Programming, 6.4 */
	return h ^ h >> 32;
}

/* Eight bytes at a time: texts of statements are keys. */
static inline unsigned hash_bytes(const void *key, size_t len)
{
	const uint8_t *p = (const uint8_t *)key;
	uint64_t h = hash_seed ^ len, word;

	for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = hash_mix(h ^ word);
	}
	word = 0;
	for (size_t i = 0; i < len; i++)
		word |= (uint64_t)p[i] << (8 * i);
	return (unsigned)hash_mix(hash_mix(h ^ word));
}

#define HASH_FUNCTION(key, len, ret) ((ret) = hash_bytes((key), (len)))
#define HASH_NONFATAL_OOM            1
#define uthash_malloc(sz)            block_get(sz)
#define uthash_free(ptr, sz)         block_put(ptr, sz)
#define uthash_nonfatal_oom(elem)    ((void)(elem))
#include <uthash.h>

#endif
