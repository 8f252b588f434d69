/*
 * The allocator in front of malloc: one place where a test can fail the n-th allocation.
 * Blocks that are free are kept for the next of their size: malloc() with free() cost ten times as much.
 * Entry points: base/mem.h (the slabs are in slab.c).
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "mem_int.h"

#define SMALL      1024 /* of a thread's own free lists in glibc, nearly */

#define BLOCK_STEP 64
#define BLOCK_KEPT 32 /* of each size */

struct kept {
	unsigned n;
	void *blocks[BLOCK_KEPT];
};

static struct {
	unsigned long fail_countdown;
	struct kept kept[BLOCK_MAX / BLOCK_STEP]; /* blocks that are free */
} mem;

void mem_fail_after(unsigned long n)
{
	mem.fail_countdown = n;
}

bool mem_fails_now(void)
{
	return mem.fail_countdown && --mem.fail_countdown == 0;
}

/* malloc(0) may return NULL, which callers would take for out of memory. */
static size_t mem_size(size_t size)
{
	return size ? size : 1;
}

void *mem_alloc(size_t size)
{
	return mem_fails_now() ? NULL : malloc(mem_size(size));
}

/* malloc() has what was freed lately at hand, for small ones; calloc() of glibc does not look there. */
void *mem_zalloc(size_t size)
{
	void *p;

	if (size > SMALL)
		return mem_fails_now() ? NULL : calloc(1, size);
	p = mem_alloc(size);
	if (p != NULL)
		memset(p, 0, size);
	return p;
}

void *mem_realloc(void *p, size_t size)
{
	return mem_fails_now() ? NULL : realloc(p, mem_size(size));
}

char *mem_strdup(const char *s)
{
	return mem_dup(s, strlen(s) + 1);
}

void *mem_dup(const void *p, size_t len)
{
	void *copy = mem_alloc(len);

	if (copy && len)
		memcpy(copy, p, len);
	return copy;
}

void mem_free(void *p)
{
	free(p);
}

/* --- blocks --- */

static size_t block_size(size_t size)
{
	return (size + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
}

/* What is behind the size that was asked for is nobody's. */
void *block_get(size_t size)
{
	struct kept *k;
	void *p;

	if (size == 0 || size > BLOCK_MAX)
		return mem_alloc(size);
	k = &mem.kept[(size - 1) / BLOCK_STEP];
	if (k->n == 0) {
		p = mem_alloc(block_size(size));
		if (p != NULL)
			mem_poison(p, block_size(size));
	} else {
		p = mem_fails_now() ? NULL : k->blocks[--k->n];
	}
	if (p != NULL)
		mem_unpoison(p, size);
	return p;
}

void *block_zget(size_t size)
{
	void *p = block_get(size);

	if (p != NULL)
		memset(p, 0, size);
	return p;
}

void block_put(void *p, size_t size)
{
	struct kept *k;

	if (p == NULL)
		return;
	if (size == 0 || size > BLOCK_MAX) {
		mem_free(p);
		return;
	}
	k = &mem.kept[(size - 1) / BLOCK_STEP];
	if (k->n == BLOCK_KEPT) {
		mem_unpoison(p, block_size(size));
		mem_free(p);
		return;
	}
	mem_poison(p, block_size(size));
	k->blocks[k->n++] = p;
}
