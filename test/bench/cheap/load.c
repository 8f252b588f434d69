/*
 * The cheap clients. They do not look at what they get: of an answer over TLS not even the text is made again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cheap.h"

#define DROPPED (1 << 20)

struct client {
	int fd;
	SSL *ssl;
};

struct text {
	size_t len;
	uint8_t bytes[65536];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static SSL_CTX *context(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (!ctx)
		die("TLS");
	SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	return ctx;
}

static void secure(struct client *c, SSL_CTX *ctx)
{
	static const uint8_t request[8] = {0, 0, 0, 8, 4, 210, 22, 47};
	char answer;

	if (send(c->fd, request, 8, MSG_NOSIGNAL) != 8 || recv(c->fd, &answer, 1, 0) != 1 ||
		answer != 'S')
		die("SSLRequest");
	c->ssl = SSL_new(ctx);
	if (!c->ssl || !SSL_set_fd(c->ssl, c->fd) || SSL_connect(c->ssl) != 1)
		die("SSL_connect");
}

static ssize_t get(struct client *c, void *into, size_t len)
{
	return c->ssl ? SSL_read(c->ssl, into, (int)len) : recv(c->fd, into, len, 0);
}

static void put(struct client *c, const void *bytes, size_t len)
{
	ssize_t n =
		c->ssl ? SSL_write(c->ssl, bytes, (int)len) : send(c->fd, bytes, len, MSG_NOSIGNAL);

	if (n != (ssize_t)len)
		die("send");
}

static void get_exactly(struct client *c, uint8_t *into, size_t len)
{
	while (len) {
		ssize_t n = get(c, into, len);

		if (n <= 0)
			die("login");
		into += n;
		len -= (size_t)n;
	}
}

/* Until ReadyForQuery. */
static void log_in(struct client *c, const char *user, const char *database)
{
	uint8_t text[1024], head[5], body[1024];
	size_t len = 8;

	put32(text + 4, 3 << 16);
	for (int i = 0; i < 4; i++) {
		const char *word = i == 0 ? "user" : i == 1 ? user : i == 2 ? "database" : database;

		memcpy(text + len, word, strlen(word) + 1);
		len += strlen(word) + 1;
	}
	text[len++] = 0;
	put32(text, (uint32_t)len);
	put(c, text, len);
	do {
		get_exactly(c, head, 5);
		if (head[0] == 'E' || get32(head + 1) > sizeof(body))
			die("refused");
		get_exactly(c, body, get32(head + 1) - 4);
	} while (head[0] != 'Z');
}

static void come(struct client *c, int port, SSL_CTX *ctx, char **who)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int on = 1;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->ssl = NULL;
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof(at)) != 0)
		die("connect");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (ctx)
		secure(c, ctx);
	log_in(c, who[0], who[1]);
}

static void leave(struct client *c)
{
	static const uint8_t bye[5] = {'X', 0, 0, 0, 4};

	put(c, bye, 5);
	if (c->ssl)
		SSL_free(c->ssl);
	close(c->fd);
}

static void add(struct text *t, char type, const void *body, size_t len)
{
	if (t->len + len + 5 > sizeof(t->bytes))
		die("AT_ONCE");
	t->bytes[t->len] = (uint8_t)type;
	put32(t->bytes + t->len + 1, (uint32_t)len + 4);
	memcpy(t->bytes + t->len + 5, body, len);
	t->len += len + 5;
}

static void make_text(struct text *t, int by_parse, int at_once)
{
	static const char sql[] = "SELECT abalance FROM pgbench_accounts WHERE aid = 42";
	char parse[sizeof(sql) + 3] = "";

	memcpy(parse + 1, sql, sizeof(sql));
	for (int i = 0; i < at_once; i++) {
		if (!by_parse) {
			add(t, 'Q', sql, sizeof(sql));
			continue;
		}
		add(t, 'P', parse, sizeof(parse));
		add(t, 'B', "\0\0\0\0\0\0\0", 8);
		add(t, 'D', "P", 2);
		add(t, 'E', "\0\0\0\0", 5);
		add(t, 'S', "", 0);
	}
}

static void watch(int ep, struct client *c)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev) != 0)
		die("epoll_ctl");
}

/* Takes all that is there, and sends as much as goes. Over TLS what comes is dropped as it is: a record that has
 * begun to go out is ended by the next call, with the same bytes. */
static void turn(struct client *c, const struct text *t, size_t *sent)
{
	static uint8_t dropped[DROPPED];
	ssize_t n;

	while ((n = recv(c->fd, dropped, DROPPED, MSG_DONTWAIT | MSG_TRUNC)) > 0)
		;
	if (n == 0 || errno != EAGAIN)
		die("a connection was closed");
	for (;;) {
		if (c->ssl)
			n = SSL_write(c->ssl, t->bytes, (int)t->len);
		else
			n = send(c->fd, t->bytes + *sent, t->len - *sent,
				MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			break;
		*sent = c->ssl ? 0 : (*sent + (size_t)n) % t->len;
	}
}

int do_load(char **arg)
{
	static struct text t;
	int n = atoi(arg[5]), ep = epoll_create1(0);
	double end;
	struct client *c = calloc((size_t)n, sizeof(*c));
	size_t *sent = calloc((size_t)n, sizeof(*sent));
	SSL_CTX *ctx = strcmp(arg[3], "tls") == 0 ? context() : NULL;
	struct epoll_event got[64];

	if (!c || !sent)
		die("memory");
	make_text(&t, strcmp(arg[4], "extended") == 0, atoi(arg[6]));
	for (int i = 0; i < n; i++) {
		come(&c[i], atoi(arg[0]), ctx, arg + 1);
		if (fcntl(c[i].fd, F_SETFL, O_NONBLOCK) != 0)
			die("fcntl");
		watch(ep, &c[i]);
	}
	printf("ready\n");
	fflush(stdout);
	end = now() + atof(arg[7]);
	while (now() < end) {
		int found = epoll_wait(ep, got, 64, 100);

		for (int i = 0; i < found; i++) {
			struct client *one = got[i].data.ptr;

			turn(one, &t, &sent[one - c]);
		}
	}
	return 0;
}

int do_logins(char **arg)
{
	int n = atoi(arg[3]), ends[2];
	double end = now() + atof(arg[4]);
	unsigned long total = 0, one;

	if (pipe(ends) != 0)
		die("pipe");
	for (int i = 0; i < n; i++) {
		if (fork() == 0) {
			SSL_CTX *ctx = context();
			struct client c;

			for (one = 0; now() < end; one++) {
				come(&c, atoi(arg[0]), ctx, arg + 1);
				leave(&c);
			}
			_exit(write(ends[1], &one, sizeof(one)) != sizeof(one));
		}
	}
	close(ends[1]);
	while (read(ends[0], &one, sizeof(one)) == sizeof(one))
		total += one;
	while (wait(NULL) > 0)
		;
	printf("logins %lu\n", total);
	return 0;
}
