/*
 * Memory. Every allocation of the program passes through here, so that a test can fail the n-th
 * one, and SHOW MEM can count. All of them may return NULL: out of memory ends one connection.
 */
#ifndef QB_BASE_MEM_H
#define QB_BASE_MEM_H

#include <stddef.h>
#include "base/util.h"

MUST_CHECK void *mem_alloc(size_t size);
MUST_CHECK void *mem_zalloc(size_t size);
MUST_CHECK void *mem_realloc(void *p, size_t size);
MUST_CHECK char *mem_strdup(const char *s);
MUST_CHECK void *mem_dup(const void *p, size_t len);
void mem_free(void *p);

/* The same for who knows the size again when it is given back, and needs it for a part of a statement: small ones are
 * kept for the next of that size. Of the loop's thread alone. */
#define BLOCK_MAX 4096
MUST_CHECK void *block_get(size_t size);
MUST_CHECK void *block_zget(size_t size); /* zeroed */
void block_put(void *p, size_t size);

/* Test hook: the n-th allocation from now (1 = the next) returns NULL, once. 0 switches off. */
void mem_fail_after(unsigned long n);

/*
 * Slabs: objects of one size, freed to a list of the slab, zeroed when taken.
 */
struct slab;
struct slab_stat {
	const char *name;
	size_t size; /* bytes of one object */
	size_t used, free;
	size_t total; /* bytes held from the system */
};

MUST_CHECK struct slab *slab_new(const char *name, size_t size);
void slab_free(struct slab **p);
MUST_CHECK void *slab_get(struct slab *s);
void slab_put(struct slab *s, void *obj);
void slab_each(void (*fn)(const struct slab_stat *st, void *arg), void *arg);

#endif
