/*
 * The reading half of a connection. All read into one buffer: the owner is shown what came where it
 * lies there, with what it left the last time in front; what it leaves then is kept in memory of
 * the connection (the stash), which is given back when all of it was taken.
 *
 * The owner is called from the read event and from the kick phase (in_kick), and never while it
 * does not want to read; the end of the peer is looked for all the same. Knows nothing of messages.
 */
#include <errno.h>
#include <poll.h>

#include "base/mem.h"
#include "conn_int.h"

/* [room for what was left over | one read] */
#define READ_SIZE ((size_t)64 * 1024)
#define HEAD_ROOM ((size_t)8 * 1024)
#define MIN_STASH ((size_t)256)
/* What the peer said last, before its orderly end: so much of it is kept for the owner to see. */
#define LAST_WORDS ((size_t)256 * 1024)

static uint8_t *shared;

bool in_module_init(void)
{
	shared = mem_alloc(HEAD_ROOM + READ_SIZE);
	return shared != NULL;
}

void in_module_free(void)
{
	mem_free(shared);
	shared = NULL;
}

/* --- the stash --- */

static size_t stash_used(const struct conn *c)
{
	return c->in ? c->in->len - c->in->off : 0;
}

static uint8_t *stash_start(const struct conn *c)
{
	return c->in->data + c->in->off;
}

static uint8_t *stash_end(const struct conn *c)
{
	return c->in->data + c->in->len;
}

void in_drop(struct conn *c)
{
	mem_free(c->in);
	c->in = NULL;
}

/* Room for so many bytes behind what is kept. What was consumed is reclaimed before growing, and
 * growing doubles, so that gathering a large message copies each byte a bounded number of times. */
static bool stash_reserve(struct conn *c, size_t more)
{
	struct stash *k = c->in;
	size_t used = stash_used(c), len = k ? k->len : 0, cap = k ? k->cap : 0;

	if (cap - len >= more)
		return true;
	if (k && k->off >= used && cap - used >= more) {
		memmove(k->data, k->data + k->off, used);
		k->off = 0;
		k->len = used;
		return true;
	}
	for (cap = cap ? cap : MIN_STASH; cap - len < more; cap *= 2)
		if (cap > SIZE_MAX / 4)
			return false;
	k = mem_realloc(k, sizeof(*k) + cap);
	if (!k)
		return false;
	if (!c->in)
		k->off = k->len = 0;
	k->cap = cap;
	c->in = k;
	return true;
}

/* Behind what is kept. */
static bool stash_append(struct conn *c, const uint8_t *data, size_t len)
{
	if (!stash_reserve(c, len))
		return false;
	memcpy(stash_end(c), data, len);
	c->in->len += len;
	return true;
}

/* Keeps what the owner left of bytes that lie in the shared buffer, in place of what was kept. */
static bool stash_put(struct conn *c, const uint8_t *data, size_t len)
{
	if (len == 0) {
		if (c->in)
			in_drop(c);
		return true;
	}
	if (c->in)
		c->in->off = c->in->len = 0;
	return stash_append(c, data, len);
}

bool in_unread(struct conn *c, const void *data, size_t len)
{
	if (len == 0)
		return true;
	if (!stash_put(c, data, len))
		return false;
	conn_mark_kick(c);
	return true;
}

/* --- showing --- */

static size_t conn_show(struct conn *c, const uint8_t *data, size_t len)
{
	size_t used = c->ops->on_data(c, c->owner, data, len);

	ASSERT(used <= len);
	return used;
}

static void conn_show_stash(struct conn *c)
{
	size_t used = conn_show(c, stash_start(c), stash_used(c));

	if (c->in)
		c->in->off += used;
	if (!stash_used(c) && !(c->flags & F_CLOSED))
		in_drop(c);
}

static void conn_show_shared(struct conn *c, const uint8_t *data, size_t len)
{
	size_t used;

	if (c->in)
		c->in->off = c->in->len = 0;
	used = conn_show(c, data, len);
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (!stash_put(c, data + used, len - used))
		conn_end(c, CONN_END_NO_MEMORY, 0);
}

/* --- receiving --- */

static void conn_receive_end(struct conn *c, ssize_t n)
{
	int err = n < 0 ? errno : 0;

	if (n < 0 && (err == EAGAIN || err == EWOULDBLOCK || err == EINTR)) {
		/* After a failed write this was the last that the peer had sent. */
		if (c->flags & F_BROKEN)
			conn_end(c, CONN_END_RESET, c->err);
		return;
	}
	if (c->flags & F_BROKEN)
		conn_end(c, CONN_END_RESET, c->err);
	else
		conn_end(c, n == 0 ? CONN_END_EOF : CONN_END_RESET, err);
}

/* What came behind a handshake whose owner does not read yet. */
static void conn_keep(struct conn *c, const uint8_t *at, size_t held, size_t n)
{
	if (held > HEAD_ROOM)
		c->in->len += n;
	else if (!stash_append(c, at, n))
		conn_end(c, CONN_END_NO_MEMORY, 0);
}

/* One read. Little that was left over is put in front of the shared buffer; much of it (a large
 * message that is being gathered) stays where it is and is read behind. */
static void conn_receive(struct conn *c)
{
	size_t held = stash_used(c);
	uint8_t *at = shared + HEAD_ROOM;
	ssize_t n;

	if (held > HEAD_ROOM) {
		if (!stash_reserve(c, READ_SIZE)) {
			conn_end(c, CONN_END_NO_MEMORY, 0);
			return;
		}
		at = stash_end(c);
	}
	n = c->flags & F_TLS ? tls_recv(c, at, READ_SIZE)
			     : recv(c->fd, at, READ_SIZE, MSG_DONTWAIT);
	if (n <= 0) {
		conn_receive_end(c, n);
		return;
	}
	c->bytes_in += (uint64_t)n;
	if (!conn_is_reading(c)) {
		conn_keep(c, at, held, (size_t)n);
		return;
	}
	if (held > HEAD_ROOM) {
		c->in->len += (size_t)n;
		conn_show_stash(c);
	} else {
		if (held)
			memcpy(at - held, stash_start(c), held);
		conn_show_shared(c, at - held, held + (size_t)n);
	}
	if ((c->flags & F_BROKEN) && !(c->flags & (F_ENDED | F_CLOSED)))
		conn_mark_kick(c);
}

/* --- while it is not read --- */

static void conn_keep_last_words(struct conn *c)
{
	size_t got = 0;
	ssize_t n;

	while (got < LAST_WORDS && !(c->flags & F_ENDED)) {
		n = c->flags & F_TLS ? tls_recv(c, shared, READ_SIZE)
				     : recv(c->fd, shared, READ_SIZE, MSG_DONTWAIT);
		if (n <= 0 || !stash_append(c, shared, (size_t)n))
			return;
		got += (size_t)n;
	}
}

/* Something happened while reading is off: the end is reported at once, bytes wait. */
static void conn_look_for_end(struct conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
	int err;

	if (!(c->flags & F_HELD) && poll(&p, 1, 0) == 1 &&
		(p.revents & (POLLERR | POLLHUP | POLLRDHUP))) {
		err = p.revents & POLLERR ? conn_fd_error(c->fd) : 0;
		if (!err)
			conn_keep_last_words(c);
		conn_end(c, err ? CONN_END_RESET : CONN_END_EOF, err);
		return;
	}
	c->flags |= F_NOISY;
	conn_install(c);
}

void in_event(int fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd, (void)what;
	if (conn_is_reading(c) || (c->flags & F_HANDSHAKE))
		conn_receive(c);
	else
		conn_look_for_end(c);
}

void in_kick(struct conn *c)
{
	if (c->flags & F_BROKEN)
		conn_receive(c);
	else if (stash_used(c))
		conn_show_stash(c);
	else if (c->flags & F_TLS_END)
		conn_receive(c);
}

/* --- what the owner wants --- */

/* Something that kept it from being read has ended. */
static void read_again(struct conn *c)
{
	if (c->flags & F_HELD)
		return;
	c->flags &= ~(uint32_t)F_NOISY;
	conn_install(c);
	if (!(c->flags & F_WANT_READ) && (c->flags & F_BROKEN))
		conn_mark_dirty(c);
	else if (stash_used(c) || (c->flags & (F_TLS_END | F_BROKEN)))
		conn_mark_kick(c);
}

void conn_want_read(struct conn *c, bool on)
{
	bool was = (c->flags & F_WANT_READ) != 0;

	if (on == was || (c->flags & (F_CLOSED | F_ENDED)))
		return;
	if (!on) {
		c->flags &= ~(uint32_t)F_WANT_READ;
		/* A failed write was waiting for the reading side to end. */
		if (c->flags & F_BROKEN)
			conn_mark_dirty(c);
		return;
	}
	c->flags |= F_WANT_READ;
	read_again(c);
}

void conn_hold(struct conn *c, bool on)
{
	if (on == ((c->flags & F_HELD) != 0) || (c->flags & (F_CLOSED | F_ENDED)))
		return;
	c->flags ^= F_HELD;
	if (!on)
		read_again(c);
}

void conn_kick(struct conn *c)
{
	if (!(c->flags & (F_CLOSED | F_ENDED)))
		conn_mark_kick(c);
}

size_t conn_pending_input(const struct conn *c)
{
	return stash_used(c);
}

const uint8_t *conn_input(const struct conn *c, size_t *ret_len)
{
	*ret_len = stash_used(c);
	return *ret_len > 0 ? stash_start(c) : shared;
}
