/*
 * Listening sockets: TCP addresses, one unix socket, or what systemd hands over. Accepted
 * descriptors go to one callback. Knows nothing of clients.
 *
 * Entry points: listen_open, listen_pause, listen_close.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "conn_int.h"
#include "net/listen.h"

#define MAX_LISTENERS   32
#define ACCEPT_PER_TURN 64
#define DRAIN_MAX       4096
#define FULL_PAUSE      USEC_SEC
#define SYSTEMD_FIRST   3

struct listener {
	struct loop_io io;
	int fd;
	int family;
};

static struct {
	struct listener list[MAX_LISTENERS];
	int count;
	bool installed;         /* all of them are polled, or none */
	unsigned paused;        /* bits of enum listen_reason */
	struct loop_tick *full; /* set: out of descriptors, until it ticks */
	char *unix_path;
	char *unix_relieved; /* until listen_confirm(): where the socket is that had that name */
	bool handed;         /* another process has the sockets, too */
	ino_t unix_inode;    /* of that file: another process may have replaced it */
	int port;
	void (*on_accept)(int fd, const struct conn_addr *peer, void *arg);
	void *arg;
} lst;

static void PRINTF_LIKE(3, 4) complain(char *err, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(err, size, fmt, ap);
	va_end(ap);
}

/* --- accepting --- */

static void listen_install(void)
{
	bool want = lst.count > 0 && lst.paused == 0 && !lst.full;
	int i;

	if (want == lst.installed)
		return;
	lst.installed = want;
	for (i = 0; i < lst.count; i++) {
		if (!want)
			loop_io_del(&lst.list[i].io);
		else if (!loop_io_add(&lst.list[i].io))
			log_error("cannot poll a listening socket: out of memory");
	}
}

static usec_t on_full_over(void *arg, usec_t now)
{
	(void)arg, (void)now;
	loop_tick_free(&lst.full);
	listen_install();
	return USEC_NEVER;
}

static void listen_full(int err)
{
	lst.full = loop_tick_new(on_full_over, NULL, loop_now() + FULL_PAUSE);
	if (!lst.full)
		return;
	log_warning("cannot accept connections: %s; trying again in 1 s", strerror(err));
	listen_install();
}

/* False: nothing more to accept now. */
static bool accept_one(const struct listener *l)
{
	struct net_addr a;
	struct conn_addr peer;
	socklen_t len = sizeof(a.u);
	int fd;

	memset(&a, 0, sizeof(a));
	fd = accept4(l->fd, &a.u.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO)
			return true;
		/* whatever it is, mostly descriptors: it would be the same at once again */
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			listen_full(errno);
		return false;
	}
	a.u.sa.sa_family = (sa_family_t)l->family;
	conn_tune_accepted(fd, l->family);
	net_addr_print(&a, &peer);
	if (peer.is_unix)
		peer.port = lst.port;
	lst.on_accept(fd, &peer, lst.arg);
	return true;
}

static void on_acceptable(int fd, short what, void *arg)
{
	const struct listener *l = arg;
	int i;

	(void)fd, (void)what;
	for (i = 0; i < ACCEPT_PER_TURN && lst.installed; i++)
		if (!accept_one(l))
			break;
}

void listen_tune(void)
{
	for (int i = 0; i < lst.count; i++)
		conn_tune_listener(lst.list[i].fd, lst.list[i].family);
}

/* --- opening --- */

static void listener_init(struct listener *l, int fd, int family)
{
	l->fd = fd;
	l->family = family;
	conn_tune_listener(fd, family);
	loop_io_init(&l->io, fd, LOOP_IO_READ, on_acceptable, l);
}

/* Takes over a listening descriptor; closes it on failure. */
static bool listener_add(int fd, int family, char *err, size_t size)
{
	struct listener *l = &lst.list[lst.count];

	if (lst.count == MAX_LISTENERS) {
		complain(err, size, "more than %d listening sockets", MAX_LISTENERS);
		close(fd);
		return false;
	}
	listener_init(l, fd, family);
	lst.count++;
	return true;
}

static bool tcp_bind(int fd, const struct addrinfo *ai, const struct listen_spec *spec)
{
	int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
		return false;
	if (ai->ai_family == AF_INET6 &&
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0)
		return false;
	if (spec->reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0)
		return false;
#ifdef TCP_DEFER_ACCEPT
	/* The kernel wakes us with the first bytes; seconds until it does so without. */
	on = 45;
	if (spec->defer_accept &&
		setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof(on)) != 0)
		return false;
#endif
	return bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, spec->backlog) == 0;
}

/* Errors that only mean that this machine does not speak the address family. */
static bool family_missing(int err)
{
	return err == EAFNOSUPPORT || err == EADDRNOTAVAIL || err == EPROTONOSUPPORT;
}

static bool tcp_open_one(const struct addrinfo *ai, const struct listen_spec *spec,
	const char *host, bool tolerant, char *err, size_t size)
{
	int saved;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && tcp_bind(fd, ai, spec))
		return listener_add(fd, ai->ai_family, err, size);
	saved = errno;
	if (fd >= 0)
		close(fd);
	if (tolerant && family_missing(saved))
		return true;
	complain(err, size, "cannot listen on %s port %d: %s%s", host, spec->port, strerror(saved),
		saved == EADDRINUSE && spec->reuseport
			? " (who is there has to be of the same unix user and have so_reuseport, too)"
			: "");
	return false;
}

static bool tcp_open(const char *host, const struct listen_spec *spec, char *err, size_t size)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	struct addrinfo *list, *ai;
	char port[16];
	int rc, before = lst.count;
	bool ok = true;

	(void)snprintf(port, sizeof(port), "%d", spec->port);
	/* At boot only: a name may block here. */
	rc = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, port, &hints, &list);
	if (rc != 0) {
		complain(err, size, "cannot listen on %s: %s", host, gai_strerror(rc));
		return false;
	}
	for (ai = list; ai && ok; ai = ai->ai_next)
		ok = tcp_open_one(ai, spec, host, list->ai_next != NULL, err, size);
	freeaddrinfo(list);
	if (ok && lst.count == before) {
		complain(err, size, "cannot listen on %s: no usable address", host);
		return false;
	}
	return ok;
}

static bool tcp_open_all(const struct listen_spec *spec, char *err, size_t size)
{
	char *copy, *item, *save = NULL;
	bool ok = true;

	if (!spec->addrs || !spec->addrs[0])
		return true;
	copy = mem_strdup(spec->addrs);
	if (!copy) {
		complain(err, size, "out of memory");
		return false;
	}
	for (item = strtok_r(copy, ", \t", &save); item && ok; item = strtok_r(NULL, ", \t", &save))
		ok = tcp_open(item, spec, err, size);
	mem_free(copy);
	return ok;
}

/* A socket file that nobody answers on was left by a process that died. */
static bool unix_clear_stale(const struct net_addr *a, char *err, size_t size)
{
	const char *path = a->u.un.sun_path;
	int fd, rc, saved;

	if (!path[0])
		return true;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		complain(err, size, "cannot create a unix socket: %s", strerror(errno));
		return false;
	}
	rc = connect(fd, &a->u.sa, a->len);
	saved = errno;
	close(fd);
	if (rc == 0 || saved == EAGAIN || saved == EINPROGRESS) {
		complain(err, size, "unix socket \"%s\" is in use by another process", path);
		return false;
	}
	if (saved == ECONNREFUSED && unlink(path) != 0 && errno != ENOENT) {
		complain(err, size, "cannot remove the stale socket \"%s\": %s", path,
			strerror(errno));
		return false;
	}
	return true;
}

static bool unix_rights(const char *path, const struct listen_spec *spec, char *err, size_t size)
{
	const struct group *gr;

	if (spec->unix_group && spec->unix_group[0]) {
		gr = getgrnam(spec->unix_group);
		if (!gr) {
			complain(err, size, "unix_socket_group: no group \"%s\"", spec->unix_group);
			return false;
		}
		if (chown(path, (uid_t)-1, gr->gr_gid) != 0) {
			complain(err, size, "cannot change the group of \"%s\": %s", path,
				strerror(errno));
			return false;
		}
	}
	if (chmod(path, (mode_t)spec->unix_mode) != 0) {
		complain(err, size, "cannot change the mode of \"%s\": %s", path, strerror(errno));
		return false;
	}
	return true;
}

/* What a path names; 0: nothing. */
static ino_t inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* In one step; the other one's socket is kept at our former name, where the file system can do
 * that. */
static bool unix_replace(const char *at, const char *path)
{
	if (renameat2(AT_FDCWD, at, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
		return rename(at, path) == 0;
	lst.unix_relieved = mem_strdup(at);
	if (!lst.unix_relieved)
		(void)unlink(at);
	return true;
}

/* Rights first, so that nobody comes in before; then the name that clients know. Who is relieved
 * keeps the connections that wait in its socket, and there is a socket at any time. */
static bool unix_publish(const char *at, const char *path, const struct listen_spec *spec, int fd,
	char *err, size_t size)
{
	if (!unix_rights(at, spec, err, size))
		return false;
	if (listen(fd, spec->backlog) != 0) {
		complain(err, size, "cannot listen on \"%s\": %s", at, strerror(errno));
		return false;
	}
	if (strcmp(at, path) != 0 && !unix_replace(at, path)) {
		complain(err, size, "cannot replace the socket \"%s\": %s", path, strerror(errno));
		return false;
	}
	lst.unix_inode = inode_of(path);
	return true;
}

static bool unix_bind(
	int fd, const struct net_addr *a, const struct listen_spec *spec, char *err, size_t size)
{
	const char *path = a->u.un.sun_path;
	struct net_addr b = *a;
	const char *at = b.u.un.sun_path;

	if (spec->unix_replace && path[0]) {
		if (!net_addr_unix_beside(&b)) {
			complain(err, size, "unix_socket_dir \"%s\" is too long", spec->unix_dir);
			return false;
		}
		(void)unlink(at);
	}
	if (bind(fd, &b.u.sa, b.len) != 0) {
		complain(err, size, "cannot bind unix socket \"%s\": %s", at, strerror(errno));
		return false;
	}
	if (!path[0] && listen(fd, spec->backlog) != 0) {
		complain(err, size, "cannot listen on \"%s\": %s", path + 1, strerror(errno));
		return false;
	}
	if (!path[0])
		return true;
	lst.unix_path = mem_strdup(path);
	if (lst.unix_path && unix_publish(at, path, spec, fd, err, size))
		return true;
	if (!lst.unix_path)
		complain(err, size, "out of memory");
	(void)unlink(at);
	return false;
}

static bool unix_open(const struct listen_spec *spec, char *err, size_t size)
{
	struct net_addr a;
	int fd;

	if (!spec->unix_dir || !spec->unix_dir[0])
		return true;
	if (!net_addr_unix(&a, spec->unix_dir, spec->port)) {
		complain(err, size, "unix_socket_dir \"%s\" is too long", spec->unix_dir);
		return false;
	}
	if (!spec->unix_replace && !unix_clear_stale(&a, err, size))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		complain(err, size, "cannot create a unix socket: %s", strerror(errno));
		return false;
	}
	if (unix_bind(fd, &a, spec, err, size))
		return listener_add(fd, AF_UNIX, err, size);
	close(fd);
	return false;
}

/* sd_listen_fds(3): the environment says how many descriptors from 3 on are ours. */
static int systemd_count(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	int64_t want_pid, n;

	if (!pid || !fds || !util_parse_i64(pid, strlen(pid), &want_pid) ||
		!util_parse_i64(fds, strlen(fds), &n))
		return 0;
	if (want_pid != (int64_t)getpid() || n < 1 || n > MAX_LISTENERS)
		return 0;
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	return (int)n;
}

static bool adopt_one(int fd, const char *from, char *err, size_t size)
{
	struct net_addr a;
	socklen_t len = sizeof(a.u);

	memset(&a, 0, sizeof(a));
	if (getsockname(fd, &a.u.sa, &len) != 0) {
		complain(err, size, "descriptor %d of %s: %s", fd, from, strerror(errno));
		return false;
	}
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return listener_add(fd, a.u.sa.sa_family, err, size);
}

static bool systemd_open(int count, char *err, size_t size)
{
	int fd;

	for (fd = SYSTEMD_FIRST; fd < SYSTEMD_FIRST + count; fd++)
		if (!adopt_one(fd, "systemd", err, size))
			return false;
	return true;
}

/* The unix socket has its name in the file system already, which is ours to remove in the end. */
static bool handed_open(const struct listen_spec *spec, char *err, size_t size)
{
	struct net_addr a;

	for (int i = 0; i < spec->n_handed; i++)
		if (!adopt_one(spec->handed[i], "the process that runs", err, size))
			return false;
	if (!spec->handed_unix || !spec->unix_dir || !spec->unix_dir[0] ||
		!net_addr_unix(&a, spec->unix_dir, spec->port) || !a.u.un.sun_path[0])
		return true;
	lst.handed = true; /* until listen_confirm() */
	lst.unix_path = mem_strdup(a.u.un.sun_path);
	lst.unix_inode = inode_of(a.u.un.sun_path);
	if (!lst.unix_path)
		complain(err, size, "out of memory");
	return lst.unix_path != NULL;
}

bool listen_open(const struct listen_spec *spec,
	void (*on_accept)(int fd, const struct conn_addr *peer, void *arg), void *arg, char *err,
	size_t err_size)
{
	int handed = systemd_count();
	bool ok;

	lst.on_accept = on_accept;
	lst.arg = arg;
	lst.port = spec->port;
	/* Who hands over sockets means exactly those. */
	if (handed)
		ok = systemd_open(handed, err, err_size);
	else
		ok = handed_open(spec, err, err_size) &&
		     (spec->handed_tcp || tcp_open_all(spec, err, err_size)) &&
		     (spec->handed_unix || unix_open(spec, err, err_size));
	if (!ok) {
		listen_close();
		return false;
	}
	listen_install();
	return true;
}

void listen_pause(enum listen_reason why, bool paused)
{
	if (paused)
		lst.paused |= 1u << why;
	else
		lst.paused &= ~(1u << why);
	listen_install();
}

static void log_address(int fd, const struct conn_addr *a, void *arg)
{
	(void)fd;
	(void)arg;
	log_info("listening on %s:%d", a->is_unix ? "unix" : a->host, a->port);
}

void listen_confirm(void)
{
	listen_each(log_address, NULL);
	lst.handed = false;
	if (lst.unix_relieved)
		(void)unlink(lst.unix_relieved);
	mem_free(lst.unix_relieved);
	lst.unix_relieved = NULL;
}

static void drain(const struct listener *l)
{
	for (int n = 0; n < DRAIN_MAX; n++)
		if (!accept_one(l))
			break;
}

void listen_drain(void)
{
	for (int i = 0; i < lst.count; i++)
		drain(&lst.list[i]);
}

void listen_close(void)
{
	int i;

	lst.paused |= 1u << LISTEN_SUSPENDED;
	listen_install();
	for (i = 0; i < lst.count; i++)
		close(lst.list[i].fd);
	if (lst.unix_path && !lst.handed && inode_of(lst.unix_path) == lst.unix_inode &&
		!(lst.unix_relieved && rename(lst.unix_relieved, lst.unix_path) == 0))
		(void)unlink(lst.unix_path);
	mem_free(lst.unix_path);
	mem_free(lst.unix_relieved);
	loop_tick_free(&lst.full);
	memset(&lst, 0, sizeof(lst));
}

void listen_close_tcp(void)
{
	int kept = 0;

	listen_pause(LISTEN_SUSPENDED, true); /* nothing is polled */
	for (int i = 0; i < lst.count; i++)
		if (lst.list[i].family == AF_UNIX) {
			listener_init(&lst.list[kept++], lst.list[i].fd, AF_UNIX);
		} else {
			/* with nothing between: who comes behind the last look is reset, though another process is
			 * there on the same port */
			drain(&lst.list[i]);
			close(lst.list[i].fd);
		}
	lst.count = kept;
	listen_pause(LISTEN_SUSPENDED, false);
}

void listen_hand_over(bool over)
{
	lst.handed = over;
	listen_pause(LISTEN_HANDED, over);
}

void listen_share(void)
{
	for (int i = 0; i < lst.count; i++)
		listener_init(&lst.list[i], lst.list[i].fd, lst.list[i].family);
	lst.handed = true;
	listen_pause(LISTEN_HANDED, false);
}

int listen_count(void)
{
	return lst.count;
}

void listen_each(void (*fn)(int fd, const struct conn_addr *addr, void *arg), void *arg)
{
	for (int i = 0; i < lst.count; i++) {
		struct conn_addr text;
		struct net_addr a;
		socklen_t len = sizeof(a.u);

		memset(&a, 0, sizeof(a));
		if (getsockname(lst.list[i].fd, &a.u.sa, &len) != 0)
			continue;
		net_addr_print(&a, &text);
		if (text.is_unix)
			text.port = lst.port;
		fn(lst.list[i].fd, &text, arg);
	}
}
