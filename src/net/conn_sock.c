/*
 * The socket below a connection: its options, the addresses of both its ends, and who sits at the
 * other. Reads and writes nothing, and knows nothing of events.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>

#include "base/log.h"
#include "conn_int.h"

#define PIECE_MIN 2048

static struct conn_tuning accepted = {.keepalive = true}, made = {.keepalive = true};

/* --- options --- */

static void fd_number(int fd, int level, int option, int value)
{
	if (value > 0 && setsockopt(fd, level, option, &value, sizeof(value)) != 0)
		log_debug("setsockopt(%d, %d): %s", level, option, strerror(errno));
}

/* Before connect(), and on the listener, from which accept() takes it. The peer learns in the
 * handshake how much it may send: one that was told more waits for room for half of that, which a
 * smaller buffer never has, and then sends by its timer only, a few times a second. */
static void tune_buffers(int fd, int family, const struct conn_tuning *t)
{
	if (family == AF_UNIX)
		return;
	fd_number(fd, SOL_SOCKET, SO_RCVBUF, t->socket_buffer);
	fd_number(fd, SOL_SOCKET, SO_SNDBUF, t->socket_buffer);
}

static void tune_flags(int fd, int family, const struct conn_tuning *t)
{
	int on = t->keepalive;

	if (family == AF_UNIX)
		return;
	fd_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0)
		log_debug("setsockopt(SO_KEEPALIVE): %s", strerror(errno));
}

static void tune_numbers(int fd, int family, const struct conn_tuning *t)
{
	if (family == AF_UNIX)
		return;
#ifdef TCP_USER_TIMEOUT
	fd_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, t->user_timeout_ms);
#endif
	if (!t->keepalive)
		return;
#ifdef TCP_KEEPIDLE
	fd_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, t->keepidle);
	fd_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, t->keepintvl);
	fd_number(fd, IPPROTO_TCP, TCP_KEEPCNT, t->keepcnt);
#endif
}

/* Linux gives it the flags of its listener, which saves each login two calls. Numbers stay here: 0,
 * which is the system's own, could not be set again there. */
void conn_tune_accepted(int fd, int family)
{
#ifndef __linux__
	tune_flags(fd, family, &accepted);
#endif
	tune_numbers(fd, family, &accepted);
}

void conn_tune_made(int fd, int family)
{
	tune_buffers(fd, family, &made);
	tune_flags(fd, family, &made);
	tune_numbers(fd, family, &made);
}

void conn_tune_listener(int fd, int family)
{
	tune_buffers(fd, family, &accepted);
	tune_flags(fd, family, &accepted);
}

/* What fills a small buffer with one segment waits for its acknowledgement, and that for a second
 * segment, or 40 ms. */
size_t conn_piece(void)
{
	size_t half = (size_t)made.socket_buffer / 2;

	return half == 0 ? SIZE_MAX : half < PIECE_MIN ? PIECE_MIN : half;
}

void conn_tune(const struct conn_tuning *of_accepted, const struct conn_tuning *of_made)
{
	accepted = *of_accepted;
	made = *of_made;
}

int conn_fd_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof(err);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 ? err : errno;
}

/* --- addresses --- */

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

void conn_set_peer_text(struct conn *c, const struct conn_addr *peer)
{
	struct net_addr a;

	if (peer->is_unix) {
		c->peer.family = AF_UNIX;
		c->peer.port = (uint16_t)peer->port;
	} else if (net_addr_numeric(&a, peer->host, peer->port)) {
		conn_set_peer(c, &a);
	}
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

/* --- the other end --- */

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
