/*
 * Small things that every module needs: ASCII comparison, number parsing, hex, random bytes and
 * secrets. Knows nothing of the program. Entry points: base/util.h.
 */
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void util_assert_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expr);
	abort();
}

int util_strcasecmp(const char *a, const char *b)
{
	while (*a && util_lower(*a) == util_lower(*b)) {
		a++;
		b++;
	}
	return (unsigned char)util_lower(*a) - (unsigned char)util_lower(*b);
}

size_t util_utf8_len(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = p[0] < 0x80                    ? p[0] != 0
		   : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
		   : p[0] >= 0xe0 && p[0] <= 0xef ? 3
		   : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
						  : 0;
	/* the first continuation byte tells over-long forms, surrogates, what is above U+10FFFF */
	unsigned low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

	for (size_t i = 1; i < n; i++) {
		if (p[i] < low || p[i] > high)
			return 0;
		low = 0x80, high = 0xbf;
	}
	return n;
}

int util_memcasecmp(const void *a, const void *b, size_t len)
{
	const char *x = a, *y = b;

	for (size_t i = 0; i < len; i++) {
		int diff = (unsigned char)util_lower(x[i]) - (unsigned char)util_lower(y[i]);

		if (diff)
			return diff;
	}
	return 0;
}

size_t util_strlcpy(char *dst, const char *src, size_t size)
{
	size_t len = strlen(src);

	if (size) {
		size_t n = len < size ? len : size - 1;

		memcpy(dst, src, n);
		dst[n] = '\0';
	}
	return len;
}

bool util_add_line(char *text, size_t size, const char *line)
{
	static const char more[] = "\n...";
	size_t used = strlen(text), len = strlen(line);

	if (used == 0)
		return util_strlcpy(text, line, size) < size;
	if (len + sizeof(more) < size - used) {
		text[used] = '\n';
		memcpy(text + used + 1, line, len + 1);
		return true;
	}
	if (sizeof(more) <= size - used)
		memcpy(text + used, more, sizeof(more));
	return false;
}

bool util_parse_i64(const char *s, size_t len, int64_t *ret)
{
	bool negative = len && s[0] == '-';
	size_t i = len && (s[0] == '-' || s[0] == '+') ? 1 : 0;
	int64_t v = 0;

	if (i == len)
		return false;
	/* Counts downwards, because INT64_MIN has no positive twin. */
	for (; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, s[i] - '0', &v))
			return false;
	}
	if (!negative && v == INT64_MIN)
		return false;
	*ret = negative ? v : -v;
	return true;
}

int util_print_i64(char dst[UTIL_I64_SIZE], int64_t n)
{
	uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n;
	char digits[UTIL_I64_SIZE];
	int at = UTIL_I64_SIZE, len;

	digits[--at] = '\0';
	do
		digits[--at] = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (n < 0)
		digits[--at] = '-';
	len = UTIL_I64_SIZE - at;
	memcpy(dst, digits + at, (size_t)len);
	return len - 1;
}

void util_hex(char *dst, const void *src, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = src;

	for (size_t i = 0; i < len; i++) {
		*dst++ = digits[p[i] >> 4];
		*dst++ = digits[p[i] & 15];
	}
	*dst = '\0';
}

void util_random(void *dst, size_t len)
{
	uint8_t *p = dst;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		/* Only a signal before the pool is ready can interrupt; nothing else can fail. */
		if (n < 0) {
			ASSERT(errno == EINTR);
			continue;
		}
		p += n;
		len -= (size_t)n;
	}
}

void util_erase(void *p, size_t len)
{
	if (p && len)
		explicit_bzero(p, len);
}

bool util_equal_secret(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t diff = 0;

	for (size_t i = 0; i < len; i++)
		diff |= x[i] ^ y[i];
	return diff == 0;
}
