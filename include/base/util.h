/*
 * Small things that every module needs: attributes, time, assertions.
 */
#ifndef QB_BASE_UTIL_H
#define QB_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUST_CHECK       __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define ARRAY_LEN(a)     (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* Development assertion: our own mistakes only. Never reachable from what a peer sends. */
#ifdef NDEBUG
#define ASSERT(x) ((void)sizeof(!(x)))
#else
#define ASSERT(x) ((x) ? (void)0 : util_assert_failed(#x, __FILE__, __LINE__))
#endif
__attribute__((noreturn)) void util_assert_failed(const char *expr, const char *file, int line);

/* Monotonic time in microseconds. Read once per loop turn (loop_now) and passed around. */
typedef uint64_t usec_t;
#define USEC_SEC   ((usec_t)1000000)
#define USEC_MSEC  ((usec_t)1000)
#define USEC_NEVER UINT64_MAX

/* ASCII only, whatever the locale: what the protocol and SQL keywords need. */
int util_strcasecmp(const char *a, const char *b);
/* Bytes of the character of UTF-8 that the text begins with; 0: with none, or it is empty. */
size_t util_utf8_len(const char *text);
int util_memcasecmp(const void *a, const void *b, size_t len);
static inline char util_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Copies at most size-1 bytes and always terminates; returns strlen(src), as strlcpy does. */
size_t util_strlcpy(char *dst, const char *src, size_t size);

/* Adds a line to lines of text, parted by newlines. false: there is no room for more; then the last
 * line is an ellipsis, unless this one is the first: it is cut. */
bool util_add_line(char *text, size_t size, const char *line);

/* Whole string must be a decimal integer in range. */
MUST_CHECK bool util_parse_i64(const char *s, size_t len, int64_t *ret);
#define UTIL_I64_SIZE 21 /* with its terminator */
int util_print_i64(char dst[UTIL_I64_SIZE], int64_t n); /* as printf does it, in a tenth of the time; its length */

/* Lower-case hex; dst holds 2*len+1 bytes. */
void util_hex(char *dst, const void *src, size_t len);

/* Cryptographically random bytes (getrandom). Cannot fail after boot. */
void util_random(void *dst, size_t len);

/* Erases a secret; never optimised away. */
void util_erase(void *p, size_t len);

/* Constant-time equality. */
MUST_CHECK bool util_equal_secret(const void *a, const void *b, size_t len);

#endif
