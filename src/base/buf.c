/*
 * A growing byte buffer with a sticky error. Bytes never move towards the front except in
 * buf_reset(), buf_free() and buf_compact(), so that a writer may keep an offset to patch later.
 * Entry points: base/buf.h.
 */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { BUF_MIN = 64 };

static void memory_free(struct buf *b)
{
	if (b->secret && b->data)
		util_erase(b->data, b->cap);
	block_put(b->data, b->cap);
}

void buf_free(struct buf *b)
{
	if (b->data)
		memory_free(b);
	*b = (struct buf){.secret = b->secret};
}

void buf_reset(struct buf *b)
{
	b->off = b->len = 0;
	b->failed = false;
}

void buf_compact(struct buf *b)
{
	if (!b->off)
		return;
	if (b->len > b->off)
		memmove(b->data, b->data + b->off, b->len - b->off);
	b->len -= b->off;
	b->off = 0;
}

/* What was written is of no use any more: owners that only look at buf_failed() leak nothing. */
static void buf_fail(struct buf *b)
{
	memory_free(b);
	*b = (struct buf){.failed = true, .secret = b->secret};
}

static uint8_t *memory_grow(struct buf *b, size_t cap)
{
	uint8_t *data;

	if (!b->secret && b->cap > BLOCK_MAX)
		return mem_realloc(b->data, cap);
	data = block_get(cap);
	if (!data)
		return NULL;
	if (b->len > 0)
		memcpy(data, b->data, b->len);
	memory_free(b);
	return data;
}

void buf_reserve(struct buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : BUF_MIN;
	uint8_t *data;

	if (b->failed || more <= b->cap - b->len)
		return;
	if (more > SIZE_MAX / 4 - b->len) {
		buf_fail(b);
		return;
	}
	while (cap < b->len + more)
		cap *= 2;
	data = memory_grow(b, cap);
	if (!data) {
		buf_fail(b);
		return;
	}
	b->data = data;
	b->cap = cap;
}

void buf_put(struct buf *b, const void *p, size_t len)
{
	if (len > b->cap - b->len)
		buf_reserve(b, len);
	if (b->failed || !len)
		return;
	memcpy(b->data + b->len, p, len);
	b->len += len;
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	if (b->len < b->cap)
		b->data[b->len++] = (uint8_t)c;
	else
		buf_put(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int len;

	if (b->failed)
		return;
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	if (len < 0)
		buf_fail(b);
	else
		buf_reserve(b, (size_t)len + 1);
	if (!b->failed) {
		vsnprintf((char *)b->data + b->len, (size_t)len + 1, fmt, again);
		b->len += (size_t)len;
	}
	va_end(again);
}

const char *buf_cstr(struct buf *b)
{
	buf_reserve(b, 1);
	if (b->failed)
		return "";
	b->data[b->len] = '\0';
	return (const char *)b->data + b->off;
}
