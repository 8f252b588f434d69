/*
 * Names with their terminators, see names.h.
 */
#include "base/names.h"

#include <string.h>

void names_add_bytes(struct names *n, const void *name, size_t len)
{
	buf_put(&n->buf, name, len);
	buf_putc(&n->buf, '\0');
}

void names_add(struct names *n, const char *name)
{
	buf_put(&n->buf, name, strlen(name) + 1);
}

void names_free(struct names *n)
{
	buf_free(&n->buf);
}

void names_reset(struct names *n)
{
	buf_reset(&n->buf);
}

struct names names_take(struct names *n)
{
	struct names taken = *n;

	*n = (struct names){0};
	return taken;
}

const char *names_first(const struct names *n)
{
	return names_failed(n) || names_none(n) ? NULL : (const char *)n->buf.data;
}

const char *names_next(const struct names *n, const char *at)
{
	const char *next = at + strlen(at) + 1;

	return next < (const char *)n->buf.data + n->buf.len ? next : NULL;
}
