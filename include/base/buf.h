/*
 * A growing byte buffer with a sticky error: writers are not checked one by one, the owner asks
 * buf_failed() once at the end.
 *
 *   data            off          len           cap
 *   | already taken | to be read | free space  |
 */
#ifndef QB_BASE_BUF_H
#define QB_BASE_BUF_H

#include <stdarg.h>
#include "base/util.h"

struct buf {
	uint8_t *data;
	size_t off; /* first byte that is still of interest; used by readers that consume */
	size_t len; /* end of what is written */
	size_t cap;
	bool failed; /* an allocation failed; contents are not usable */
	bool secret; /* memory is erased before it is given back, also that left behind by growing */
};

#define BUF_INIT   ((struct buf){0})
#define BUF_SECRET ((struct buf){.secret = true})

void buf_free(struct buf *b);                 /* releases memory, leaves an empty buffer */
void buf_reset(struct buf *b);                /* empties, keeps memory, clears failed */
void buf_compact(struct buf *b);              /* moves what is not yet read to the front */
void buf_reserve(struct buf *b, size_t more); /* room for more bytes behind len */
void buf_put(struct buf *b, const void *p, size_t len);
void buf_puts(struct buf *b, const char *s); /* without the terminator */
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
const char *buf_cstr(struct buf *b); /* terminates (not counted in len) and returns data + off; "" on failure */

static inline bool buf_failed(const struct buf *b)
{
	return b->failed;
}
static inline size_t buf_used(const struct buf *b)
{
	return b->len - b->off;
}

#endif
