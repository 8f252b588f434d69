/*
 * The beginning of a takeover (takeover.h), in these steps:
 *
 *   new  logs in to the console of the one that runs, over the unix socket: TAKEOVER version
 *   old  sends one end of a channel, over it the listening sockets, and goes on as before
 *   new  does all that can fail: sockets, log, pid file. Then it says that it is ready
 *   old  accepts nobody any more, says so, and its connections move, one by one (pool/move.h)
 *
 * Until it is ready the new one may vanish, and nothing has happened. After that it may still: what
 * it has not confirmed is not lost, and as long as the old one is there it takes everything back.
 */
#include "takeover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "conf/conf.h"
#include "net/channel.h"
#include "net/loop.h"
#include "pooler/move.h"
#include "pooler/pooler.h"
#include "wire/build.h"
#include "wire/msg.h"

#define PATIENCE_MS 10000
#define SOCKETS_MAX 32

enum step {
	STEP_HELLO = 'H',
	STEP_SOCKET = 'L',
	STEP_ALL = 'E',
	STEP_READY = 'R',
	STEP_GIVEN = 'O'
};

/* --- the new process --- */

static struct {
	int channel, console;
	pid_t pid;
	bool same_tcp, same_unix;
	int sockets[SOCKETS_MAX];
	int n_sockets;
} old = {.channel = -1, .console = -1};

/* 0: nobody listens there */
static int connect_old(void)
{
	const struct params *p = &conf_current()->p;
	struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd, n;

	n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/.s.PGSQL.%d", p->unix_socket_dir,
		p->listen_port);
	if (p->unix_socket_dir[0] != '/' || n >= (int)sizeof(a.sun_path))
		return 0;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return 0;
}

static bool send_all(int fd, struct buf *b)
{
	bool ok = !buf_failed(b) && send(fd, b->data, b->len, MSG_NOSIGNAL) == (ssize_t)b->len;

	buf_free(b);
	return ok;
}

static bool is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

/* Messages up to one of the type, or the descriptor. false: err says why. */
static bool read_until(int fd, char type, int *ret_fd, char *err, size_t err_size)
{
	uint8_t data[8192];
	size_t have = 0, pos = 0;
	struct wire_msg m;
	struct wire_notice n;

	for (;;) {
		int got = channel_take(fd, data + have, sizeof(data) - have, ret_fd);

		if (got <= 0) {
			snprintf(err, err_size, "%s",
				got == 0 ? "it closed the connection" : strerror(-got));
			return false;
		}
		have += (size_t)got;
		for (; wire_next(data + pos, have - pos, &m) == WIRE_NEXT_OK && wire_complete(&m);
			pos += m.total) {
			if (m.type == 'E') {
				wire_read_notice(m.body, m.have, &n);
				snprintf(err, err_size, "%s", n.message);
				return false;
			}
			if (m.type == type && (ret_fd == NULL || *ret_fd >= 0))
				return true;
		}
		if (have == sizeof(data)) {
			snprintf(err, err_size, "it does not speak as the console does");
			return false;
		}
	}
}

static bool log_in(int fd, char *err, size_t err_size)
{
	static const char *const who[] = {"user", "qbouncer", "database", "qbouncer"};
	struct buf b = BUF_INIT;

	build_startup(&b, 3 << 16, who, 2);
	if (!send_all(fd, &b)) {
		snprintf(err, err_size, "%s", strerror(errno));
		return false;
	}
	return read_until(fd, 'Z', NULL, err, err_size);
}

static bool ask_for_channel(int fd, int *ret, char *err, size_t err_size)
{
	struct buf b = BUF_INIT;
	char sql[40];

	snprintf(sql, sizeof(sql), "TAKEOVER %d", MOVE_VERSION);
	build_query(&b, sql);
	if (!send_all(fd, &b)) {
		snprintf(err, err_size, "%s", strerror(errno));
		return false;
	}
	return read_until(fd, 'C', ret, err, err_size);
}

static bool read_hello(const struct buf *b)
{
	const struct params *p = &conf_current()->p;
	struct wire_reader r;
	const char *addr, *dir;
	int port;

	wire_reader_init(&r, b->data, b->len);
	if (wire_get_u8(&r) != STEP_HELLO)
		return false;
	old.pid = wire_get_i32(&r);
	addr = wire_get_cstr(&r, NULL);
	dir = wire_get_cstr(&r, NULL);
	port = wire_get_i32(&r);
	old.same_tcp = port == p->listen_port && strcmp(addr, p->listen_addr) == 0;
	old.same_unix = port == p->listen_port && strcmp(dir, p->unix_socket_dir) == 0;
	adopt_statements_from((uint64_t)wire_get_u32(&r) << 32 | wire_get_u32(&r));
	return !r.failed;
}

static void keep_socket(const struct buf *b, int fd)
{
	bool is_unix = b->len > 1 && b->data[1] != 0;

	if (old.n_sockets < SOCKETS_MAX && (is_unix ? old.same_unix : old.same_tcp))
		old.sockets[old.n_sockets++] = fd;
	else
		close(fd);
}

static bool read_sockets(char *err, size_t err_size)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0;
	bool ok = channel_wait(old.channel, &b, fds, &n, PATIENCE_MS) && read_hello(&b);

	while (ok && (ok = channel_wait(old.channel, &b, fds, &n, PATIENCE_MS)) &&
		b.data[0] != STEP_ALL) {
		for (int i = 1; i < n; i++)
			close(fds[i]);
		if (n > 0)
			keep_socket(&b, fds[0]);
	}
	buf_free(&b);
	if (!ok)
		snprintf(err, err_size, "it did not send its sockets");
	return ok;
}

enum takeover_found takeover_ask(char *err, size_t err_size)
{
	char why[300];
	int fd = connect_old();

	if (fd == 0)
		return TAKEOVER_NOBODY;
	old.console = fd;
	if (!is_ours(fd))
		snprintf(why, sizeof(why), "it runs as another unix user");
	else if (log_in(fd, why, sizeof(why)) &&
		 ask_for_channel(fd, &old.channel, why, sizeof(why)) &&
		 read_sockets(why, sizeof(why)))
		return TAKEOVER_AGREED;
	takeover_end();
	snprintf(err, err_size,
		"the process at the unix socket does not hand over its connections: %s", why);
	return TAKEOVER_REFUSED;
}

void takeover_sockets(struct listen_spec *spec)
{
	if (old.channel < 0)
		return;
	spec->handed = old.sockets;
	spec->n_handed = old.n_sockets;
	spec->handed_tcp = old.same_tcp;
	spec->handed_unix = old.same_unix;
	old.n_sockets = 0; /* whatever becomes of it, they are of listen.c */
}

pid_t takeover_from(void)
{
	return old.channel >= 0 ? old.pid : 0;
}

static void has_ended(void)
{
	log_info("takeover: process %d has ended", (int)old.pid);
}

bool takeover_confirm(void)
{
	uint8_t ready = STEP_READY;
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0, channel = old.channel;
	bool ok = channel_send(channel, &ready, 1, NULL, 0) == CHANNEL_OK &&
		  channel_wait(channel, &b, fds, &n, PATIENCE_MS) && b.data[0] == STEP_GIVEN;

	buf_free(&b);
	if (!ok || !adopt_begin(channel, has_ended))
		return false;
	old.channel = -1;
	(void)!send(old.console, "X\0\0\0\4", 5, MSG_NOSIGNAL);
	close(old.console);
	old.console = -1;
	return true;
}

void takeover_end(void)
{
	adopt_end();
	for (int i = 0; i < old.n_sockets; i++)
		close(old.sockets[i]);
	old.n_sockets = 0;
	if (old.channel >= 0)
		close(old.channel);
	if (old.console >= 0)
		close(old.console);
	old.channel = old.console = -1;
}

/* --- the process that runs --- */

static const struct takeover_hooks *hooks;
static int asking = -1; /* a channel to a process that is not ready */
static struct loop_watch *asking_watch;
static pid_t asking_pid;

void takeover_hooks_set(const struct takeover_hooks *h)
{
	hooks = h;
}

static void forget_asking(void)
{
	loop_watch_free(&asking_watch);
	if (asking >= 0)
		close(asking);
	asking = -1;
}

static void on_over(bool clean)
{
	if (clean) {
		log_info("takeover: process %d has ended", (int)asking_pid);
		return;
	}
	log_warning("takeover: process %d is gone before its time: this one serves again",
		(int)asking_pid);
	hooks->take_back();
}

static void give(void)
{
	uint8_t given = STEP_GIVEN;
	int fd = asking;

	loop_watch_free(&asking_watch);
	asking = -1;
	log_info("takeover: process %d takes over", (int)asking_pid);
	hooks->give(asking_pid);
	if (channel_send(fd, &given, 1, NULL, 0) == CHANNEL_OK && move_begin(fd, on_over)) {
		/* waits end, and their clients go, too */
		pooler_shutdown(SHUTDOWN_WAIT_CLIENTS);
		return;
	}
	close(fd);
	on_over(false);
}

static void on_asking(int fd, int mask, void *arg)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0;
	enum channel_result r = channel_receive(fd, &b, fds, &n);
	bool ready = r == CHANNEL_OK && b.data[0] == STEP_READY;

	(void)mask;
	(void)arg;
	buf_free(&b);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	if (ready) {
		give();
	} else if (r != CHANNEL_LATER) {
		log_warning(
			"takeover: process %d did not start: nothing has changed", (int)asking_pid);
		forget_asking();
	}
}

static bool send_hello(int fd)
{
	const struct params *p = &conf_current()->p;
	uint64_t statements = move_statements_to();
	struct buf b = BUF_INIT;
	bool ok;

	build_u8(&b, STEP_HELLO);
	build_i32(&b, getpid());
	build_cstr(&b, p->listen_addr);
	build_cstr(&b, p->unix_socket_dir);
	build_i32(&b, p->listen_port);
	build_i32(&b, (int32_t)(statements >> 32));
	build_i32(&b, (int32_t)statements);
	ok = !buf_failed(&b) && channel_send(fd, b.data, b.len, NULL, 0) == CHANNEL_OK;
	buf_free(&b);
	return ok;
}

struct sending {
	int channel;
	bool ok;
};

static void send_socket(int fd, const struct conn_addr *a, void *arg)
{
	struct sending *s = arg;
	uint8_t m[2] = {STEP_SOCKET, a->is_unix};

	s->ok = s->ok && channel_send(s->channel, m, sizeof(m), &fd, 1) == CHANNEL_OK;
}

static bool send_sockets(int fd)
{
	struct sending s = {.channel = fd, .ok = send_hello(fd)};
	uint8_t all = STEP_ALL;

	listen_each(send_socket, &s);
	return s.ok && channel_send(fd, &all, 1, NULL, 0) == CHANNEL_OK;
}

static pid_t peer_pid(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 ? cred.pid : 0;
}

bool takeover_requested(int fd, uint64_t version, struct pg_error *err)
{
	int ends[2];

	if (version != MOVE_VERSION) {
		pg_error_set(err, "0A000", "version %s hands over in another way (%d, not %llu)",
			version_number, MOVE_VERSION, (unsigned long long)version);
		return false;
	}
	if (fd < 0) {
		pg_error_set(
			err, "42501", "TAKEOVER is for the same unix user, over the unix socket");
		return false;
	}
	if (pooler_is_shutting_down() != SHUTDOWN_NONE || pooler_is_suspended() != SUSPENDED_NO ||
		move_is_begun()) {
		pg_error_set(err, "55000", "it is shutting down, or suspended");
		return false;
	}
	forget_asking(); /* one that hangs is in nobody's way */
	if (!channel_pair(ends)) {
		pg_error_set(err, "53000", "could not make a channel: %s", strerror(errno));
		return false;
	}
	asking = ends[0];
	asking_pid = peer_pid(fd);
	asking_watch = loop_watch_new(asking, LOOP_READ, on_asking, NULL);
	/* a NOTICE would do as well: what carries a descriptor has to carry a byte */
	if (asking_watch == NULL || !send_sockets(asking) ||
		!channel_give(fd, "N\0\0\0\5", 6, ends[1])) {
		pg_error_set(err, "53000", "could not hand over: %s", strerror(errno));
		forget_asking();
		close(ends[1]);
		return false;
	}
	close(ends[1]);
	return true;
}
