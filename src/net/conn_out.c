/*
 * The writing half of a connection. Small appends are gathered in chunks from a common free list
 * and written once per turn; a large write with nothing before it goes to the kernel at once and
 * only the remainder is kept. Chunks go back to the list when they are drained, so that an idle
 * connection owns none.
 *
 * Calls no handler: failures are marked and reported by the flush phase (conn.c).
 */
#include <errno.h>
#include <sys/uio.h>

#include "base/mem.h"
#include "conn_int.h"
#include "ring.h"

#define CHUNK_SIZE  8192
#define CHUNK_DATA  (CHUNK_SIZE - sizeof(struct chunk))
#define LARGE_WRITE 8192
#define EARLY_FLUSH (32 * 1024)
#define MAX_IOV     16
#define FREE_CHUNKS 128 /* kept for the next turn: 1 MiB */
#define TOGETHER    3   /* so many sends are cheaper as one batch */
#define MANY_CHUNKS 512 /* from here on, small writes to unblocked peers are not gathered */

struct chunk {
	struct chunk *next;
	uint32_t off, len; /* data[off..len) is to be written */
	uint8_t data[];
};

static struct {
	struct chunk *free;
	unsigned n_free, n_used;
	size_t unread; /* of those that count, what each has beyond CONN_HIGH_WATER */
} out;

static size_t beyond(size_t len)
{
	return len > CONN_HIGH_WATER ? len - CONN_HIGH_WATER : 0;
}

static void set_len(struct conn *c, size_t len)
{
	if (c->flags & F_COUNTED)
		out.unread += beyond(len) - beyond(c->out_len);
	c->out_len = len;
}

void conn_count_unread(struct conn *c, bool on)
{
	size_t len = c->out_len;

	if (((c->flags & F_COUNTED) != 0) == on)
		return;
	c->flags ^= F_COUNTED;
	out.unread = on ? out.unread + beyond(len) : out.unread - beyond(len);
}

size_t conn_all_unread(void)
{
	return out.unread;
}

static struct chunk *chunk_get(void)
{
	struct chunk *k = out.free;

	if (k) {
		out.free = k->next;
		out.n_free--;
	} else {
		k = mem_alloc(CHUNK_SIZE);
		if (!k)
			return NULL;
	}
	k->next = NULL;
	k->off = k->len = 0;
	out.n_used++;
	return k;
}

static void chunk_put(struct chunk *k)
{
	out.n_used--;
	if (out.n_free >= FREE_CHUNKS) {
		mem_free(k);
		return;
	}
	k->next = out.free;
	out.free = k;
	out.n_free++;
}

void out_module_free(void)
{
	struct chunk *k;

	while ((k = out.free)) {
		out.free = k->next;
		mem_free(k);
	}
	out.n_free = 0;
	ring_free();
}

void out_drop(struct conn *c)
{
	struct chunk *k;

	while ((k = c->out_head)) {
		c->out_head = k->next;
		chunk_put(k);
	}
	c->out_tail = NULL;
	set_len(c, 0);
}

static bool out_append(struct conn *c, const uint8_t *data, size_t len)
{
	while (len > 0) {
		struct chunk *k = c->out_tail;
		size_t n;

		if (!k || k->len == CHUNK_DATA) {
			k = chunk_get();
			if (!k)
				return false;
			if (c->out_tail)
				c->out_tail->next = k;
			else
				c->out_head = k;
			c->out_tail = k;
		}
		n = CHUNK_DATA - k->len;
		if (n > len)
			n = len;
		memcpy(k->data + k->len, data, n);
		k->len += (uint32_t)n;
		set_len(c, c->out_len + n);
		data += n;
		len -= n;
	}
	return true;
}

static void out_consume(struct conn *c, size_t n)
{
	set_len(c, c->out_len - n);
	while (n > 0) {
		struct chunk *k = c->out_head;
		size_t have = k->len - k->off;

		if (n < have) {
			k->off += (uint32_t)n;
			return;
		}
		n -= have;
		c->out_head = k->next;
		if (!c->out_head)
			c->out_tail = NULL;
		chunk_put(k);
	}
}

static void out_sent(struct conn *c, size_t n)
{
	c->bytes_out += n;
	out_consume(c, n);
}

/* Sorts out what send() said; returns the bytes that were taken. */
static size_t out_result(struct conn *c, ssize_t n, size_t wanted)
{
	if (n < 0) {
		if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
			c->flags |= F_BLOCKED;
		} else if (errno != EINTR) {
			c->flags |= F_BROKEN;
			c->err = errno;
			out_drop(c);
		}
		return 0;
	}
	/* A short write means that the kernel is full: asking again would only hear so. */
	if ((size_t)n < wanted)
		c->flags |= F_BLOCKED;
	return (size_t)n;
}

size_t out_send(struct conn *c, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t done = 0, piece = conn_piece(), n;

	do {
		n = len - done < piece ? len - done : piece;
		done += out_result(c, send(c->fd, p + done, n, MSG_NOSIGNAL | MSG_DONTWAIT), n);
	} while (done < len && !(c->flags & (F_BLOCKED | F_BROKEN)));
	return done;
}

static void out_flush_some(struct conn *c)
{
	struct iovec iov[MAX_IOV];
	struct msghdr msg = {.msg_iov = iov};
	struct chunk *k;
	size_t total = 0;

	for (k = c->out_head; k && msg.msg_iovlen < MAX_IOV; k = k->next) {
		iov[msg.msg_iovlen].iov_base = k->data + k->off;
		iov[msg.msg_iovlen++].iov_len = k->len - k->off;
		total += k->len - k->off;
	}
	out_sent(c, out_result(c, sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT), total));
}

/* Chunks are encrypted, several of them are sent at once. */
static void out_flush_tls(struct conn *c)
{
	tls_push(c);
	if (c->flags & F_HANDSHAKE)
		return;
	while (c->out_len > 0 && !(c->flags & (F_BLOCKED | F_BROKEN | F_NO_MEMORY))) {
		struct chunk *k = c->out_head;
		size_t n = k->len - k->off;

		if (!tls_encrypt(c, k->data + k->off, n)) {
			out_drop(c);
			return;
		}
		out_sent(c, n);
		if (c->out_len == 0 || tls_gathered() >= EARLY_FLUSH)
			tls_push(c);
	}
}

void out_flush(struct conn *c)
{
	if (c->flags & F_TLS) {
		out_flush_tls(c);
		return;
	}
	while (c->out_len > 0 && !(c->flags & (F_BLOCKED | F_BROKEN))) {
		struct chunk *k = c->out_head;

		if (k->next && conn_piece() == SIZE_MAX)
			out_flush_some(c);
		else
			out_sent(c, out_send(c, k->data + k->off, k->len - k->off));
	}
}

/* --- of several connections at once --- */

static bool is_together(const struct conn *c)
{
	const uint32_t alone = F_CLOSED | F_ENDED | F_CONNECTING | F_KEPT | F_TLS | F_BLOCKED |
			       F_BROKEN | F_NO_MEMORY;

	return !(c->flags & alone) && c->out_head && !c->out_head->next &&
	       c->out_len <= conn_piece();
}

static void on_sent(void *arg, int result)
{
	struct conn *c = arg;

	if (result < 0)
		errno = -result;
	out_sent(c, out_result(c, result < 0 ? -1 : result, c->out_len));
}

void out_flush_together(struct conn *first)
{
	const struct conn *c;
	struct conn *at;
	unsigned n = 0;

	for (c = first; c && n < TOGETHER; c = c->next_dirty)
		n += is_together(c);
	if (n < TOGETHER || !ring_is_ready())
		return;
	for (n = 0, at = first; at; at = at->next_dirty) {
		if (!is_together(at))
			continue;
		ring_add(at->fd, at->out_head->data + at->out_head->off, at->out_len, at);
		if (++n % RING_SIZE != 0)
			continue;
		ring_run(on_sent);
		if (!ring_is_ready())
			return;
	}
	if (n % RING_SIZE != 0)
		ring_run(on_sent);
}

/* --- what the owner says --- */

/* Without a copy, as far as it goes. Returns the bytes that are on their way. */
static size_t write_direct(struct conn *c, const uint8_t *p, size_t len)
{
	size_t done = 0, n;

	if (!(c->flags & F_TLS)) {
		done = out_send(c, p, len);
	} else if (!(c->flags & F_HANDSHAKE)) {
		while (done < len && !(c->flags & (F_BLOCKED | F_BROKEN | F_NO_MEMORY))) {
			n = len - done < EARLY_FLUSH ? len - done : EARLY_FLUSH;
			if (!tls_encrypt(c, p + done, n))
				break;
			tls_push(c);
			done += n;
		}
	}
	c->bytes_out += done;
	return done;
}

/* More behind output that is to be flushed in this turn anyway, and fits into its last chunk: what
 * a pipeline is made of. */
static bool write_behind(struct conn *c, const void *data, size_t len)
{
	struct chunk *k = c->out_tail;

	if (!k || !(c->flags & F_DIRTY) || len > CHUNK_DATA - k->len || c->out_len >= LARGE_WRITE ||
		(c->flags & (F_CLOSED | F_ENDED | F_BROKEN | F_NO_MEMORY)))
		return false;
	memcpy(k->data + k->len, data, len);
	k->len += (uint32_t)len;
	c->out_len += len;
	return true;
}

void conn_write(struct conn *c, const void *data, size_t len)
{
	const uint8_t *p = data;

	if (len == 0)
		return;
	c->flags &= ~(uint32_t)F_KEPT;
	if (write_behind(c, data, len))
		return;
	if ((c->flags & (F_CLOSED | F_ENDED | F_BROKEN | F_NO_MEMORY)))
		return;
	if (c->out_len == 0 && !(c->flags & F_BLOCKED) &&
		(len >= LARGE_WRITE || out.n_used >= MANY_CHUNKS)) {
		size_t n = write_direct(c, p, len);

		p += n;
		len -= n;
	}
	if (len > 0 && !(c->flags & (F_BROKEN | F_NO_MEMORY)) && !out_append(c, p, len)) {
		c->flags |= F_NO_MEMORY;
		out_drop(c);
	}
	if (c->out_len >= EARLY_FLUSH)
		out_flush(c);
	if (c->out_len >= CONN_HIGH_WATER)
		c->flags |= F_FULL;
	if (c->out_len > 0 || (c->flags & (F_BROKEN | F_NO_MEMORY | F_BLOCKED)))
		conn_mark_dirty(c);
}

bool conn_flush(struct conn *c)
{
	if (!(c->flags & (F_CLOSED | F_ENDED | F_CONNECTING)))
		out_flush(c);
	return c->out_len == 0 && !tls_has_unsent(c);
}

void conn_keep_back(struct conn *c)
{
	/* with F_BLOCKED it is more than the beginning of an answer, or TLS has something left */
	if (c->out_len > 0 && c->out_len < LARGE_WRITE && !(c->flags & F_BLOCKED))
		c->flags |= F_KEPT;
}

void conn_show_kept(struct conn *c)
{
	if (!(c->flags & F_KEPT))
		return;
	c->flags &= ~(uint32_t)F_KEPT;
	conn_mark_dirty(c);
}

void conn_send_together(bool on)
{
	ring_want(on);
}

size_t conn_pending_output(const struct conn *c)
{
	return c->out_len;
}

uint64_t conn_output_end(const struct conn *c)
{
	return c->flags & (F_BROKEN | F_NO_MEMORY) ? UINT64_MAX : c->bytes_out + c->out_len;
}

uint64_t conn_sent(const struct conn *c)
{
	return tls_has_unsent(c) ? 0 : c->bytes_out;
}

bool conn_is_full(const struct conn *c)
{
	return (c->flags & F_FULL) != 0;
}
