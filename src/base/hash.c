/*
 * What hash tables share.
 */
#include "base/hash.h"

#include "base/util.h"

uint64_t hash_seed;

void hash_start(void)
{
	util_random(&hash_seed, sizeof(hash_seed));
}
