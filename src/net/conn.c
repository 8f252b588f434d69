/*
 * A connection: its life, its event mask and its reading half. Writing is in conn_out.c, connecting
 * in dial.c, encryption in tls.c.
 *
 * Knows nothing of messages, clients or servers. The owner is called from four places only: the
 * read event, the kick phase, the flush phase and dial.c; never from inside one of its own calls.
 *
 * The mask. Reading is level triggered. Switching it off only sets a flag: most pauses end before
 * more bytes come, and then nothing was installed or removed. If bytes do come meanwhile, the
 * registration becomes edge triggered, which wakes for the peer's end and for each new piece, but
 * does not spin on what lies there unread. Writing is registered only while the kernel is full.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "conn_int.h"

/* All connections read into one buffer: [room for what was left over | one read]. */
#define READ_SIZE ((size_t)64 * 1024)
#define HEAD_ROOM ((size_t)8 * 1024)
#define MIN_STASH ((size_t)256)
/* Handlers that run while flushing may queue output; so many rounds of it belong to this turn. */
#define MAX_FLUSH_ROUNDS 4

struct conn_list {
	struct conn *head, **tail;
};

static uint8_t *shared;
static struct slab *conns, *wios;
static struct conn_list dirty, kicks;
static struct conn *dead;
static struct conn_tuning tuning = {.keepalive = true};

bool conn_module_init(void)
{
	dirty = (struct conn_list){NULL, &dirty.head};
	kicks = (struct conn_list){NULL, &kicks.head};
	dead = NULL;
	shared = mem_alloc(HEAD_ROOM + READ_SIZE);
	conns = slab_new("conn", sizeof(struct conn));
	wios = slab_new("conn_write", sizeof(struct loop_io));
	if (shared && conns && wios && tls_module_init())
		return true;
	conn_module_free();
	return false;
}

void conn_module_free(void)
{
	if (kicks.head)
		(void)conn_turn_kicks();
	while (dirty.head)
		conn_turn_flush();
	conn_turn_reap();
	out_module_free();
	tls_module_free();
	mem_free(shared);
	shared = NULL;
	if (conns)
		slab_free(&conns);
	if (wios)
		slab_free(&wios);
}

/* -- lists of the turn ------------------------------------------------------------------------ */

void conn_mark_dirty(struct conn *c)
{
	if (c->flags & F_DIRTY)
		return;
	c->flags |= F_DIRTY;
	c->next_dirty = NULL;
	*dirty.tail = c;
	dirty.tail = &c->next_dirty;
}

void conn_mark_kick(struct conn *c)
{
	if (c->flags & (F_KICKED | F_CLOSED))
		return;
	c->flags |= F_KICKED;
	c->next_kick = NULL;
	*kicks.tail = c;
	kicks.tail = &c->next_kick;
}

static struct conn *list_take(struct conn_list *l)
{
	struct conn *c = l->head;

	l->head = NULL;
	l->tail = &l->head;
	return c;
}

/* -- the event mask --------------------------------------------------------------------------- */

static void conn_io(int fd, short what, void *arg);

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

static bool is_reading(const struct conn *c)
{
	return (c->flags & (F_WANT_READ | F_HELD)) == F_WANT_READ;
}

static uint32_t mask_wanted(const struct conn *c)
{
	uint32_t want = 0;

	if (c->fd < 0 || (c->flags & (F_ENDED | F_CLOSED)))
		return 0;
	if (!(c->flags & F_CONNECTING))
		want |= F_IN_READ;
	if ((c->flags & F_BLOCKED) && !(c->flags & F_BROKEN))
		want |= F_IN_WRITE;
	/* Both registrations of a descriptor must agree about edges. */
	if (!is_reading(c) && (c->flags & F_NOISY))
		want |= F_IN_EDGE;
	return want;
}

static void mask_remove(struct conn *c, uint32_t bits)
{
	bits &= c->flags;
	if (bits & F_IN_READ)
		loop_io_del(&c->io);
	if (bits & F_IN_WRITE) {
		loop_io_del(c->wio);
		slab_put(wios, c->wio);
		c->wio = NULL;
	}
	c->flags &= ~bits;
}

static bool mask_add(struct conn *c, uint32_t bits, short edge)
{
	if (bits & F_IN_READ) {
		loop_io_init(
			&c->io, c->fd, (short)(LOOP_IO_READ | LOOP_IO_CLOSE | edge), conn_io, c);
		if (!loop_io_add(&c->io))
			return false;
		c->flags |= F_IN_READ;
	}
	if (bits & F_IN_WRITE) {
		c->wio = slab_get(wios);
		if (!c->wio)
			return false;
		loop_io_init(c->wio, c->fd, (short)(LOOP_IO_WRITE | edge), conn_io_write, c);
		if (!loop_io_add(c->wio)) {
			slab_put(wios, c->wio);
			c->wio = NULL;
			return false;
		}
		c->flags |= F_IN_WRITE;
	}
	return true;
}

void conn_install(struct conn *c)
{
	const uint32_t io = F_IN_READ | F_IN_WRITE, all = io | F_IN_EDGE;
	uint32_t want = mask_wanted(c), have = c->flags & all;
	uint32_t keep;

	if (want == have)
		return;
	keep = (want ^ have) & F_IN_EDGE ? 0 : want & have & io;
	mask_remove(c, have & io & ~keep);
	c->flags = (c->flags & ~(uint32_t)F_IN_EDGE) | (want & F_IN_EDGE);
	if (!mask_add(c, want & io & ~keep, want & F_IN_EDGE ? LOOP_IO_EDGE : 0)) {
		c->flags |= F_NO_MEMORY;
		conn_mark_dirty(c);
	}
}

/* -- beginning and end ------------------------------------------------------------------------ */

static void fd_number(int fd, int level, int option, int value)
{
	if (value > 0 && setsockopt(fd, level, option, &value, sizeof(value)) != 0)
		log_debug("setsockopt(%d, %d): %s", level, option, strerror(errno));
}

void conn_tune_fd(int fd, int family)
{
	if (family == AF_UNIX)
		return;
	fd_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	fd_number(fd, SOL_SOCKET, SO_RCVBUF, tuning.socket_buffer);
	fd_number(fd, SOL_SOCKET, SO_SNDBUF, tuning.socket_buffer);
#ifdef TCP_USER_TIMEOUT
	fd_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, tuning.user_timeout_ms);
#endif
	if (!tuning.keepalive)
		return;
	fd_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
	fd_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, tuning.keepidle);
	fd_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, tuning.keepintvl);
	fd_number(fd, IPPROTO_TCP, TCP_KEEPCNT, tuning.keepcnt);
#endif
}

void conn_tune(const struct conn_tuning *t)
{
	tuning = *t;
}

void conn_set_peer(struct conn *c, const struct net_addr *a)
{
	c->peer.family = (uint8_t)a->u.sa.sa_family;
	if (a->u.sa.sa_family == AF_INET) {
		c->peer.u.v4 = a->u.in.sin_addr;
		c->peer.port = ntohs(a->u.in.sin_port);
	} else if (a->u.sa.sa_family == AF_INET6) {
		c->peer.u.v6 = a->u.in6.sin6_addr;
		c->peer.port = ntohs(a->u.in6.sin6_port);
	}
}

static void peer_from_text(struct conn *c, const struct conn_addr *peer)
{
	struct net_addr a;

	if (peer->is_unix) {
		c->peer.family = AF_UNIX;
		c->peer.port = (uint16_t)peer->port;
	} else if (net_addr_numeric(&a, peer->host, peer->port)) {
		conn_set_peer(c, &a);
	}
}

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
		peer_from_text(c, peer);
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
	static uint8_t unread[READ_SIZE];

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
		mem_free(c->in);
		mem_free(c->host);
		tls_free(c);
		slab_put(conns, c);
	}
	dead = later;
}

/* -- reading ---------------------------------------------------------------------------------- */

static size_t stash_used(const struct conn *c)
{
	return c->in_len - c->in_off;
}

static void stash_drop(struct conn *c)
{
	mem_free(c->in);
	c->in = NULL;
	c->in_off = c->in_len = c->in_cap = 0;
}

/* Room for so many bytes behind what is kept. What was consumed is reclaimed before growing, and
 * growing doubles, so that gathering a large message copies each byte a bounded number of times. */
static bool stash_reserve(struct conn *c, size_t more)
{
	size_t used = stash_used(c), cap;
	uint8_t *p;

	if (c->in_cap - c->in_len >= more)
		return true;
	if (c->in_off >= used && c->in_cap - used >= more) {
		memmove(c->in, c->in + c->in_off, used);
		c->in_off = 0;
		c->in_len = used;
		return true;
	}
	for (cap = c->in_cap ? c->in_cap : MIN_STASH; cap - c->in_len < more; cap *= 2)
		if (cap > SIZE_MAX / 4)
			return false;
	p = mem_realloc(c->in, cap);
	if (!p)
		return false;
	c->in = p;
	c->in_cap = cap;
	return true;
}

/* Keeps what the owner left of bytes that lie in the shared buffer; the stash is empty. */
static bool stash_put(struct conn *c, const uint8_t *data, size_t len)
{
	c->in_off = c->in_len = 0;
	if (len == 0) {
		if (c->in)
			stash_drop(c);
		return true;
	}
	if (!stash_reserve(c, len))
		return false;
	memcpy(c->in, data, len);
	c->in_len = len;
	return true;
}

static size_t conn_show(struct conn *c, const uint8_t *data, size_t len)
{
	size_t used = c->ops->on_data(c, c->owner, data, len);

	ASSERT(used <= len);
	return used;
}

static void conn_show_stash(struct conn *c)
{
	size_t used = conn_show(c, c->in + c->in_off, stash_used(c));

	c->in_off += used;
	if (!stash_used(c) && !(c->flags & F_CLOSED))
		stash_drop(c);
}

static void conn_show_shared(struct conn *c, const uint8_t *data, size_t len)
{
	size_t used;

	c->in_off = c->in_len = 0;
	used = conn_show(c, data, len);
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (!stash_put(c, data + used, len - used))
		conn_end(c, CONN_END_NO_MEMORY, 0);
}

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
	if (held > HEAD_ROOM) {
		c->in_len += n;
		return;
	}
	if (!stash_reserve(c, n)) {
		conn_end(c, CONN_END_NO_MEMORY, 0);
		return;
	}
	memcpy(c->in + c->in_len, at, n);
	c->in_len += n;
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
		at = c->in + c->in_len;
	}
	n = c->flags & F_TLS ? tls_recv(c, at, READ_SIZE)
			     : recv(c->fd, at, READ_SIZE, MSG_DONTWAIT);
	if (n <= 0) {
		conn_receive_end(c, n);
		return;
	}
	c->bytes_in += (uint64_t)n;
	if (!is_reading(c)) {
		conn_keep(c, at, held, (size_t)n);
		return;
	}
	if (held > HEAD_ROOM) {
		c->in_len += (size_t)n;
		conn_show_stash(c);
	} else {
		if (held)
			memcpy(at - held, c->in + c->in_off, held);
		conn_show_shared(c, at - held, held + (size_t)n);
	}
	if ((c->flags & F_BROKEN) && !(c->flags & (F_ENDED | F_CLOSED)))
		conn_mark_kick(c);
}

static int fd_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof(err);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 ? err : errno;
}

/* What the peer said last, before its orderly end: so much of it is kept for the owner to see. */
#define LAST_WORDS ((size_t)256 * 1024)

static void conn_keep_last_words(struct conn *c)
{
	size_t got = 0;
	ssize_t n;

	while (got < LAST_WORDS && !(c->flags & F_ENDED)) {
		n = c->flags & F_TLS ? tls_recv(c, shared, READ_SIZE)
				     : recv(c->fd, shared, READ_SIZE, MSG_DONTWAIT);
		if (n <= 0 || !stash_reserve(c, (size_t)n))
			return;
		memcpy(c->in + c->in_len, shared, (size_t)n);
		c->in_len += (size_t)n;
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
		err = p.revents & POLLERR ? fd_error(c->fd) : 0;
		if (!err)
			conn_keep_last_words(c);
		conn_end(c, err ? CONN_END_RESET : CONN_END_EOF, err);
		return;
	}
	c->flags |= F_NOISY;
	conn_install(c);
}

static void conn_io(int fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd, (void)what;
	if (is_reading(c) || (c->flags & F_HANDSHAKE))
		conn_receive(c);
	else
		conn_look_for_end(c);
}

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

static void conn_begin_tls(struct conn *c)
{
	tls_begin(c);
	if (!(c->flags & F_CLOSED))
		stash_drop(c);
}

static void conn_kick_one(struct conn *c)
{
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (c->flags & F_CONNECTING) {
		dial_step(c);
		return;
	}
	if (c->flags & F_TLS_NEW) {
		conn_begin_tls(c);
		return;
	}
	if (!is_reading(c))
		return;
	if (c->flags & F_BROKEN)
		conn_receive(c);
	else if (stash_used(c))
		conn_show_stash(c);
	else if (c->flags & F_TLS_END)
		conn_receive(c);
}

bool conn_has_kicks(void)
{
	return kicks.head != NULL;
}

bool conn_has_work(void)
{
	return kicks.head || dirty.head;
}

bool conn_turn_kicks(void)
{
	struct conn *c = list_take(&kicks), *next;
	bool any = c != NULL;

	for (; c; c = next) {
		next = c->next_kick;
		c->flags &= ~(uint32_t)F_KICKED;
		conn_kick_one(c);
	}
	return any;
}

/* -- flush phase ------------------------------------------------------------------------------ */

/* An error that was met while writing. */
static void conn_settle_failure(struct conn *c)
{
	if (c->flags & F_CONNECTING)
		dial_no_memory(c);
	else if (c->flags & F_NO_MEMORY)
		conn_end(c, CONN_END_NO_MEMORY, 0);
	else if (is_reading(c))
		conn_mark_kick(c);
	else if (!(c->flags & F_HELD))
		conn_end(c, CONN_END_RESET, c->err);
}

/* A handler that is called here may make a phase ready that has already run: no sleep then. */
static void conn_settle(struct conn *c)
{
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	if (!(c->flags & F_CONNECTING))
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

	for (round = 0; dirty.head && round < MAX_FLUSH_ROUNDS; round++)
		for (c = list_take(&dirty); c; c = next) {
			next = c->next_dirty;
			c->flags &= ~(uint32_t)F_DIRTY;
			conn_settle(c);
		}
}

/* -- questions -------------------------------------------------------------------------------- */

size_t conn_pending_input(const struct conn *c)
{
	return stash_used(c);
}

const uint8_t *conn_input(const struct conn *c, size_t *ret_len)
{
	*ret_len = stash_used(c);
	return *ret_len > 0 ? c->in + c->in_off : shared;
}

int conn_fd(const struct conn *c)
{
	return c->flags & F_CLOSED ? -1 : c->fd;
}

/* Both return a scratch that the next call of the same function overwrites. */
const struct conn_addr *conn_peer(const struct conn *c)
{
	static struct conn_addr out;
	static struct addr_brief printed; /* what out says; family 0: something else */
	struct net_addr a;

	/* a login asks several times */
	if (printed.family != 0 && memcmp(&printed, &c->peer, sizeof(printed)) == 0)
		return &out;
	memset(&a, 0, sizeof(a));
	a.u.sa.sa_family = c->peer.family;
	if (c->peer.family == AF_INET) {
		a.u.in.sin_addr = c->peer.u.v4;
		a.u.in.sin_port = htons(c->peer.port);
	} else if (c->peer.family == AF_INET6) {
		a.u.in6.sin6_addr = c->peer.u.v6;
		a.u.in6.sin6_port = htons(c->peer.port);
	}
	net_addr_print(&a, &out);
	out.port = c->peer.port;
	printed = c->peer;
	if (out.is_unix)
		printed.family = 0;
	if (c->host && out.is_unix)
		util_strlcpy(out.host, c->host, sizeof(out.host));
	return &out;
}

const struct conn_addr *conn_local(const struct conn *c)
{
	static struct conn_addr out;
	struct net_addr a;
	socklen_t len = sizeof(a.u);

	memset(&a, 0, sizeof(a));
	if (c->fd >= 0 && getsockname(c->fd, &a.u.sa, &len) != 0)
		a.u.sa.sa_family = 0;
	net_addr_print(&a, &out);
	if (out.is_unix)
		out.port = c->peer.port;
	return &out;
}

bool conn_alive(const struct conn *c)
{
	char byte;
	ssize_t n;

	if (c->fd < 0 || (c->flags & (F_CLOSED | F_ENDED | F_BROKEN)))
		return false;
	n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

static bool peer_cred(const struct conn *c, struct ucred *ret)
{
	socklen_t len = sizeof(*ret);

	return c->fd >= 0 && c->peer.family == AF_UNIX &&
	       getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, ret, &len) == 0;
}

bool conn_peer_uid(const struct conn *c, unsigned *ret_uid)
{
	struct ucred cred;

	if (!peer_cred(c, &cred))
		return false;
	*ret_uid = cred.uid;
	return true;
}

int conn_peer_pid(const struct conn *c)
{
	struct ucred cred;

	return peer_cred(c, &cred) ? (int)cred.pid : 0;
}

uint64_t conn_bytes_in(const struct conn *c)
{
	return c->bytes_in;
}

uint64_t conn_bytes_out(const struct conn *c)
{
	return c->bytes_out;
}
