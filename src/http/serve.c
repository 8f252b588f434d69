/*
 * A small HTTP server: one request a connection, GET and HEAD, no bodies. Who asks has a limited
 * time for all of it and a limited number of connections; out of descriptors it rests. A stranger
 * who keeps connections open costs others nothing but those. Must not know what is answered.
 * Entry points: http_int.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "http_int.h"
#include "net/conn.h"
#include "net/loop.h"

#include <utlist.h>

#define HEAD_MAX        8192 /* bytes of a request */
#define BACKLOG         128
#define ACCEPT_PER_TURN 16
#define REST            USEC_SEC /* out of descriptors */
#define COMPLAIN        (60 * USEC_SEC)

enum asker_state {
	ASKER_READS,    /* its request is awaited */
	ASKER_WAITS,    /* the answer is not there yet */
	ASKER_ANSWERED, /* the answer goes out */
	ASKER_CLOSING,  /* all of it went out; the other side closes, having read it */
	ASKER_DEAD,     /* freed by the reaper */
};

struct asker {
	struct asker *prev, *next; /* the one that came first, first */
	enum asker_state state;
	struct conn *conn;
	size_t seen; /* of its request: no end is in there */
	bool head_only;
	usec_t until;
};

static struct {
	struct serve_spec spec;
	int fd; /* -1: closed */
	struct loop_watch *watch;
	struct loop_tick *tick;
	usec_t rests_until;
	usec_t complained, rested; /* when that was said in the log */
	struct asker *askers, *dead;
	unsigned count;
} srv = {.fd = -1};

/* --- connections --- */

static void asker_close(struct asker *a)
{
	if (a->state == ASKER_DEAD)
		return;
	a->state = ASKER_DEAD;
	conn_close(&a->conn);
	DL_DELETE(srv.askers, a);
	srv.count--;
	LL_PREPEND(srv.dead, a);
}

static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	(void)conn, (void)why, (void)err;
	asker_close(owner);
}

static const char *reason_of(int code)
{
	switch (code) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 413:
		return "Content Too Large";
	case 431:
		return "Request Header Fields Too Large";
	case 503:
		return "Service Unavailable";
	default:
		return "Internal Server Error";
	}
}

/* A body that could not be built is an error of its own. */
static void send_reply(struct asker *a, struct http_reply *r)
{
	struct buf b = BUF_INIT;

	if (buf_failed(&r->body)) {
		buf_free(&r->body);
		http_reply_text(r, 500, "out of memory\n");
	}
	buf_printf(&b,
		"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		"Cache-Control: no-store\r\n%sConnection: close\r\n\r\n",
		r->code, reason_of(r->code), r->type, r->body.len,
		r->code == 405 ? "Allow: GET, HEAD\r\n" : "");
	a->state = ASKER_ANSWERED;
	if (buf_failed(&b) || buf_failed(&r->body)) {
		asker_close(a);
	} else {
		conn_write(a->conn, b.data, b.len);
		if (!a->head_only)
			conn_write(a->conn, r->body.data, r->body.len);
		/* who has said all may have closed his half */
		conn_hold(a->conn, true);
	}
	buf_free(&b);
	buf_free(&r->body);
}

void http_reply_text(struct http_reply *r, int code, const char *text)
{
	r->code = code;
	r->type = "text/plain; charset=utf-8";
	buf_puts(&r->body, text);
}

/* --- requests --- */

/* The head of a request ends with an empty line. Its length, 0: not all of it is there. */
static size_t head_length(const struct asker *a, const char *p, size_t len)
{
	size_t from = a->seen < 3 ? 0 : a->seen - 3;

	for (size_t i = from; i + 1 < len; i++) {
		if (p[i] != '\n')
			continue;
		if (p[i + 1] == '\n')
			return i + 2;
		if (i + 2 < len && p[i + 1] == '\r' && p[i + 2] == '\n')
			return i + 3;
	}
	return 0;
}

/* "GET /path?query HTTP/1.1": cuts the three apart. */
static bool read_line(char *line, const char **ret_method, const char **ret_path)
{
	char *path = strchr(line, ' '), *version;

	if (path == NULL || path == line)
		return false;
	*path++ = '\0';
	version = strchr(path, ' ');
	if (path[0] != '/' || version == NULL || strncmp(version + 1, "HTTP/1.", 7) != 0)
		return false;
	*version = '\0';
	path[strcspn(path, "?#")] = '\0';
	*ret_method = line;
	*ret_path = path;
	return true;
}

/* A request that has a body says so in a field. */
static bool announces_body(const char *head)
{
	static const char *const fields[] = {"\ncontent-length:", "\ntransfer-encoding:"};

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		const char *at = strcasestr(head, fields[i]);

		if (at == NULL)
			continue;
		at += strlen(fields[i]);
		at += strspn(at, " \t");
		if (i > 0 || *at != '0' || strchr("\r\n \t", at[1]) == NULL)
			return true;
	}
	return false;
}

static void answer(struct asker *a, char *head)
{
	struct http_reply r = {.body = BUF_INIT};
	const char *method, *path;
	bool body = announces_body(head);

	head[strcspn(head, "\r\n")] = '\0';
	if (!read_line(head, &method, &path)) {
		http_reply_text(&r, 400, "This is no request of HTTP/1.\n");
		send_reply(a, &r);
		return;
	}
	a->head_only = strcmp(method, "HEAD") == 0;
	a->state = ASKER_WAITS;
	conn_hold(a->conn, true);
	if (strcmp(method, "GET") != 0 && !a->head_only)
		http_reply_text(&r, 405, "There is nothing but GET and HEAD.\n");
	else if (body)
		http_reply_text(&r, 413, "A request has no body here.\n");
	else if (!srv.spec.answer(path, &r))
		return;
	send_reply(a, &r);
}

void serve_answer_waiting(const struct http_reply *r)
{
	struct asker *a, *next;

	DL_FOREACH_SAFE (srv.askers, a, next) {
		struct http_reply copy = *r;

		if (a->state != ASKER_WAITS)
			continue;
		copy.body = (struct buf)BUF_INIT;
		buf_put(&copy.body, r->body.data, r->body.len);
		copy.body.failed |= buf_failed(&r->body);
		send_reply(a, &copy);
	}
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct asker *a = owner;
	struct http_reply r = {.body = BUF_INIT};
	size_t n;
	char head[HEAD_MAX + 1];

	(void)conn;
	if (a->state != ASKER_READS)
		return len;
	n = head_length(a, (const char *)data, len < HEAD_MAX ? len : HEAD_MAX);
	if (n == 0 && len < HEAD_MAX) {
		a->seen = len;
		return 0;
	}
	if (n == 0) {
		http_reply_text(&r, 431, "The request is too long.\n");
		send_reply(a, &r);
		return len;
	}
	memcpy(head, data, n);
	head[n] = '\0';
	answer(a, head);
	return len;
}

static const struct conn_ops ops = {.on_data = on_data, .on_end = on_end};

/* --- the door --- */

/* Once a minute: it is a stranger who decides how often it happens. */
static bool is_news(usec_t *said)
{
	if (*said != 0 && loop_now() - *said < COMPLAIN)
		return false;
	*said = loop_now();
	return true;
}

/* Who has asked nothing yet makes room first. */
static void make_room(void)
{
	struct asker *a, *victim = srv.askers;

	if (srv.count < srv.spec.most)
		return;
	DL_FOREACH (srv.askers, a)
		if (a->state == ASKER_READS) {
			victim = a;
			break;
		}
	asker_close(victim);
	if (is_news(&srv.complained))
		log_warning(
			"metrics: more than %u connections at once; those that came first are closed",
			srv.spec.most);
}

static void admit(int fd)
{
	struct asker *a;

	make_room();
	a = mem_zalloc(sizeof(*a));
	if (a == NULL) {
		close(fd);
		return;
	}
	a->until = loop_now() + srv.spec.patience;
	a->conn = conn_new(fd, NULL, &ops, a);
	if (a->conn == NULL) {
		mem_free(a);
		return;
	}
	DL_APPEND(srv.askers, a);
	srv.count++;
	loop_tick_at(srv.tick, a->until);
}

static void rest(int err)
{
	if (is_news(&srv.rested))
		log_warning("metrics: cannot accept connections: %s; trying again each second",
			strerror(err));
	srv.rests_until = loop_now() + REST;
	if (!loop_watch_set(srv.watch, 0))
		log_error("metrics: out of memory");
	loop_tick_at(srv.tick, srv.rests_until);
}

static void on_acceptable(int fd, int mask, void *arg)
{
	int got = 0;

	(void)mask, (void)arg;
	for (int i = 0; i < ACCEPT_PER_TURN && got >= 0; i++) {
		got = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (got >= 0)
			admit(got);
	}
	if (got >= 0 || errno == EAGAIN || errno == EWOULDBLOCK)
		return;
	if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO)
		rest(errno);
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	while (srv.askers != NULL && srv.askers->until <= now)
		asker_close(srv.askers);
	if (srv.rests_until != 0 && srv.rests_until <= now)
		srv.rests_until = loop_watch_set(srv.watch, LOOP_READ) ? 0 : now + REST;
	now = srv.askers != NULL ? srv.askers->until : USEC_NEVER;
	return srv.rests_until != 0 && srv.rests_until < now ? srv.rests_until : now;
}

static void reap(void *arg)
{
	struct asker *a;

	(void)arg;
	DL_FOREACH (srv.askers, a)
		if (a->state == ASKER_ANSWERED && conn_pending_output(a->conn) == 0) {
			a->state = ASKER_CLOSING;
			(void)shutdown(conn_fd(a->conn), SHUT_WR);
			conn_hold(a->conn, false);
		}
	while ((a = srv.dead) != NULL) {
		LL_DELETE(srv.dead, a);
		mem_free(a);
	}
}

void serve_start(void)
{
	loop_reaper(reap, NULL);
}

/* As the other listening sockets: a process that takes over listens before the old one stops. */
static int listen_on(const struct addrinfo *ai, bool reuseport)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
	int err;

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		(!reuseport || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0) &&
		bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

static bool open_socket(char *err, size_t err_size)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *ai = NULL;
	char port[16];
	const char *why;
	int rc;

	snprintf(port, sizeof(port), "%d", srv.spec.port);
	rc = getaddrinfo(srv.spec.addr, port, &hints, &ai);
	if (rc == 0)
		srv.fd = listen_on(ai, srv.spec.reuseport);
	why = rc == 0 ? strerror(errno) : gai_strerror(rc);
	if (ai != NULL)
		freeaddrinfo(ai);
	if (srv.fd < 0)
		snprintf(err, err_size, "cannot listen for metrics on %s:%d: %s", srv.spec.addr,
			srv.spec.port, why);
	return srv.fd >= 0;
}

void serve_close(void)
{
	while (srv.askers != NULL)
		asker_close(srv.askers);
	loop_watch_free(&srv.watch);
	loop_tick_free(&srv.tick);
	if (srv.fd >= 0)
		close(srv.fd);
	srv.fd = -1;
	srv.rests_until = 0;
}

bool serve_open(const struct serve_spec *spec, char *err, size_t err_size)
{
	srv.spec = *spec;
	if (!open_socket(err, err_size))
		return false;
	srv.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	srv.watch = loop_watch_new(srv.fd, LOOP_READ, on_acceptable, NULL);
	if (srv.tick != NULL && srv.watch != NULL)
		return true;
	serve_close();
	snprintf(err, err_size, "cannot listen for metrics: out of memory");
	return false;
}
