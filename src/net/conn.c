/*
 * A connection: its life, and its part in a turn of the loop. Its event mask and its places in the lists
 * of the turn are in conn_mark.c, reading in conn_in.c, writing in conn_out.c, connecting in dial.c,
 * encryption in tls.c, what concerns the socket and both its ends in conn_sock.c.
 *
 * Knows nothing of messages, clients or servers. The owner is called from four places only: the
 * read event, the kick phase, the flush phase and dial.c; never from inside one of its own calls.
 */
#include <unistd.h>

#include "base/mem.h"
#include "conn_int.h"

#define UNREAD_SIZE ((size_t)64 * 1024)
/* Handlers that run while flushing may queue output; so many rounds of it belong to this turn. */
#define MAX_FLUSH_ROUNDS 4

static struct slab *conns;
static struct conn *dead;

static void conn_io_write(int fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd, (void)what;
	c->flags &= ~(uint32_t)F_BLOCKED;
	if (c->flags & F_CONNECTING)
		dial_writable(c);
	else
		conn_mark_dirty(c);
}

bool conn_module_init(void)
{
	dead = NULL;
	conns = slab_new("conn", sizeof(struct conn));
	if (mark_module_init(in_event, conn_io_write) && conns && in_module_init() &&
		tls_module_init())
		return true;
	conn_module_free();
	return false;
}

void conn_module_free(void)
{
	if (conn_has_kicks())
		(void)conn_turn_kicks();
	while (mark_has_dirty())
		conn_turn_flush();
	conn_turn_reap();
	out_module_free();
	tls_module_free();
	in_module_free();
	if (conns)
		slab_free(&conns);
	mark_module_free();
}

/* --- beginning and end --- */

struct conn *conn_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops, void *owner)
{
	struct conn *c = slab_get(conns);

	if (!c) {
		close(fd);
		return NULL;
	}
	c->fd = fd;
	c->ops = ops;
	c->owner = owner;
	c->flags = F_WANT_READ;
	if (peer)
		conn_set_peer_text(c, peer);
	conn_install(c);
	return c;
}

struct conn *conn_blank(const struct conn_ops *ops, void *owner)
{
	struct conn *c = slab_get(conns);

	if (!c)
		return NULL;
	c->fd = -1;
	c->ops = ops;
	c->owner = owner;
	c->flags = F_WANT_READ | F_CONNECTING | F_BLOCKED;
	return c;
}

struct conn *conn_adopt(int fd, const struct conn_addr *peer, const char *host, const void *input,
	size_t len, const struct conn_ops *ops, void *owner)
{
	struct conn *c = conn_new(fd, peer, ops, owner);

	if (!c)
		return NULL;
	c->host = host ? mem_strdup(host) : NULL;
	if ((host && !c->host) || !in_unread(c, input, len))
		conn_close(&c);
	return c;
}

const char *conn_host(const struct conn *c)
{
	return c->host;
}

void conn_set_ops(struct conn *c, const struct conn_ops *ops, void *owner)
{
	c->ops = ops;
	c->owner = owner;
}

void conn_end(struct conn *c, enum conn_end why, int err)
{
	if (c->flags & (F_ENDED | F_CLOSED))
		return;
	if (c->flags & F_HANDSHAKE) {
		tls_fail(c, why == CONN_END_NO_MEMORY ? "out of memory"
			    : err != 0                ? strerror(err)
						      : "the peer closed the connection");
		return;
	}
	c->flags |= F_ENDED;
	conn_install(c);
	c->ops->on_end(c, c->owner, why, err); /* may ask whether all was written */
	out_drop(c);
}

/* Unread input would make close() send a reset, which can overtake our last words. Not into the
 * buffer that all read into: who closes may be in the middle of what another one has said. */
static void fd_close_gently(int fd)
{
	static uint8_t unread[UNREAD_SIZE];

	(void)shutdown(fd, SHUT_WR);
	(void)recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
	close(fd);
}

void conn_close(struct conn **p)
{
	struct conn *c = *p;
	bool said = false;

	if (!c)
		return;
	*p = NULL;
	if (c->flags & F_CLOSED)
		return;
	if (!(c->flags & (F_ENDED | F_CONNECTING)) && (c->out_len > 0 || c->tls)) {
		said = true;
		out_flush(c);
		if (c->tls)
			tls_goodbye(c);
	}
	c->flags |= F_CLOSED;
	conn_install(c);
	dial_cancel(c);
	out_drop(c);
	if (c->fd >= 0) {
		if (said)
			fd_close_gently(c->fd);
		else
			close(c->fd);
	}
	c->fd = -1;
	c->next_dead = dead;
	dead = c;
}

void conn_abort(struct conn **p)
{
	static const struct linger now = {.l_onoff = 1};
	struct conn *c = *p;

	if (c && !(c->flags & F_CLOSED)) {
		out_drop(c);
		if (c->fd >= 0)
			(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		c->flags |= F_ENDED; /* no last words, not even those of TLS */
	}
	conn_close(p);
}

void conn_abandon(struct conn **p)
{
	struct conn *c = *p;

	if (!c)
		return;
	*p = NULL;
	if (c->flags & F_CLOSED)
		return;
	c->flags |= F_CLOSED;
	conn_install(c); /* a closed descriptor that is open elsewhere would go on being polled */
	out_drop(c);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->next_dead = dead;
	dead = c;
}

void conn_turn_reap(void)
{
	struct conn *c, *next, *later = NULL;

	for (c = dead; c; c = next) {
		next = c->next_dead;
		if (c->flags & (F_DIRTY | F_KICKED)) {
			c->next_dead = later;
			later = c;
			continue;
		}
		dial_free(c);
		in_drop(c);
		mem_free(c->host);
		tls_free(c);
		slab_put(conns, c);
	}
	dead = later;
}

/* --- kick phase --- */

static void conn_begin_tls(struct conn *c)
{
	tls_begin(c);
	if (!(c->flags & F_CLOSED))
		in_drop(c);
}

static void conn_kick_one(struct conn *c)
{
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (c->flags & F_CONNECTING)
		dial_step(c);
	else if (c->flags & F_TLS_NEW)
		conn_begin_tls(c);
	else if (conn_is_reading(c))
		in_kick(c);
}

bool conn_turn_kicks(void)
{
	struct conn *c = mark_take_kicks(), *next;
	bool any = c != NULL;

	for (; c; c = next) {
		next = c->next_kick;
		c->flags &= ~(uint32_t)F_KICKED;
		conn_kick_one(c);
	}
	return any;
}

/* --- flush phase --- */

/* An error that was met while writing. */
static void conn_settle_failure(struct conn *c)
{
	if (c->flags & F_CONNECTING)
		dial_no_memory(c);
	else if (c->flags & F_NO_MEMORY)
		conn_end(c, CONN_END_NO_MEMORY, 0);
	else if (conn_is_reading(c))
		conn_mark_kick(c);
	else if (!(c->flags & F_HELD))
		conn_end(c, CONN_END_RESET, c->err);
}

/* A handler that is called here may make a phase ready that has already run: no sleep then. */
static void conn_settle(struct conn *c)
{
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (!(c->flags & (F_CONNECTING | F_KEPT)))
		out_flush(c);
	/* all written and nothing but the reading event installed, as nearly always */
	if ((c->flags & ~(uint32_t)(F_WANT_READ | F_KICKED | F_TLS)) == F_IN_READ)
		return;
	conn_install(c);
	if (c->flags & (F_BROKEN | F_NO_MEMORY)) {
		loop_again();
		conn_settle_failure(c);
		return;
	}
	if ((c->flags & F_FULL) && c->out_len <= CONN_LOW_WATER) {
		loop_again();
		c->flags &= ~(uint32_t)F_FULL;
		if (c->ops->on_drain)
			c->ops->on_drain(c, c->owner);
	}
}

void conn_turn_flush(void)
{
	struct conn *c, *next;
	int round;

	for (round = 0; mark_has_dirty() && round < MAX_FLUSH_ROUNDS; round++) {
		c = mark_take_dirty();
		out_flush_together(c);
		for (; c; c = next) {
			next = c->next_dirty;
			c->flags &= ~(uint32_t)F_DIRTY;
			conn_settle(c);
		}
	}
}

/* --- questions --- */

int conn_fd(const struct conn *c)
{
	return c->flags & F_CLOSED ? -1 : c->fd;
}

uint64_t conn_bytes_in(const struct conn *c)
{
	return c->bytes_in;
}

uint64_t conn_bytes_out(const struct conn *c)
{
	return c->bytes_out;
}
