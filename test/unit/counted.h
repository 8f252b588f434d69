/*
 * What functions of libc look at, counted: forced into the sources of test_qlang_linear by the
 * compiler's -include. Eight bytes are a step, as they compare several at a time.
 */
#ifndef QB_COUNTED_H
#define QB_COUNTED_H

#include <stdint.h>
#include <string.h>

extern uint64_t counted_steps;

static inline void counted_bytes(size_t n)
{
	counted_steps += n / 8 + 1;
}

static inline void *counted_memchr(const void *p, int c, size_t n)
{
	const char *found = memchr(p, c, n);

	counted_bytes(found != NULL ? (size_t)(found - (const char *)p) : n);
	return (void *)found;
}

static inline void *counted_memmem(const void *p, size_t n, const void *what, size_t len)
{
	const char *found = memmem(p, n, what, len);

	counted_bytes(found != NULL ? (size_t)(found - (const char *)p) : n);
	return (void *)found;
}

static inline int counted_memcmp(const void *a, const void *b, size_t n)
{
	counted_bytes(n);
	return memcmp(a, b, n);
}

static inline void *counted_memcpy(void *dst, const void *src, size_t n)
{
	counted_bytes(n);
	return memcpy(dst, src, n);
}

static inline size_t counted_strlen(const char *p)
{
	size_t n = strlen(p);

	counted_bytes(n);
	return n;
}

#undef memchr
#undef memmem
#undef memcmp
#undef memcpy
#undef strlen
#define memchr counted_memchr
#define memmem counted_memmem
#define memcmp counted_memcmp
#define memcpy counted_memcpy
#define strlen counted_strlen

#endif
