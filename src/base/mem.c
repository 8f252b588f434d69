/*
 * The allocator in front of malloc: one place where a test can fail the n-th allocation.
 * Entry points: base/mem.h (the slabs are in slab.c).
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "mem_int.h"

#define SMALL 1024 /* of a thread's own free lists in glibc, nearly */

static unsigned long fail_countdown;

void mem_fail_after(unsigned long n)
{
	fail_countdown = n;
}

bool mem_fails_now(void)
{
	return fail_countdown && --fail_countdown == 0;
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
