/*
 * The cheap server: each query has the same answer, which was written before it came.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cheap.h"

#define IN      16384
#define AT_ONCE 64

struct conn {
	int fd;
	int started;
	size_t have;
	uint8_t in[IN];
};

struct answer {
	size_t len;
	uint8_t *bytes;
};

static struct answer simple, extended;

static void add(struct answer *a, char type, const void *body, size_t len)
{
	a->bytes = realloc(a->bytes, a->len + 5 + len);
	if (!a->bytes)
		die("memory");
	a->bytes[a->len] = (uint8_t)type;
	put32(a->bytes + a->len + 1, (uint32_t)len + 4);
	memcpy(a->bytes + a->len + 5, body, len);
	a->len += 5 + len;
}

static void make_answers(size_t size)
{
	static const uint8_t column[] = "\0\1c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0";
	uint8_t *row = calloc(1, size + 6);

	if (!row)
		die("memory");
	row[1] = 1;
	put32(row + 2, (uint32_t)size);
	memset(row + 6, 'x', size);
	add(&extended, '1', "", 0);
	add(&extended, '2', "", 0);
	for (struct answer *a = &simple;; a = &extended) {
		add(a, 'T', column, sizeof(column));
		add(a, 'D', row, size + 6);
		add(a, 'C', "SELECT 1", 9);
		add(a, 'Z', "I", 1);
		if (a == &extended)
			break;
	}
	free(row);
}

static int send_all(int fd, const uint8_t *bytes, size_t len)
{
	while (len) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0)
			return -1;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

static int greet(int fd)
{
	static const uint8_t hello[] = "R\0\0\0\10\0\0\0\0"
				       "S\0\0\0\30server_version\00015.0\0"
				       "S\0\0\0\31client_encoding\0UTF8\0"
				       "S\0\0\0\43standard_conforming_strings\0on\0"
				       "K\0\0\0\14\0\0\0\1\0\0\0\1"
				       "Z\0\0\0\5I";

	return send_all(fd, hello, sizeof(hello) - 1);
}

/* The queries in what has come; -1: the connection is over. */
static int answer_all(struct conn *c, unsigned long *queries)
{
	size_t at = 0;

	for (;;) {
		size_t left = c->have - at, head = c->started ? 1 : 0;
		uint8_t type;
		int failed = 0;

		if (left < 4 + head || left < head + get32(c->in + at + head))
			break;
		type = c->started ? c->in[at] : 0;
		at += head + get32(c->in + at + head);
		if (!c->started) {
			c->started = 1;
			failed = greet(c->fd);
		} else if (type == 'Q' || type == 'S') {
			const struct answer *a = type == 'Q' ? &simple : &extended;

			++*queries;
			failed = send_all(c->fd, a->bytes, a->len);
		}
		if (failed || type == 'X')
			return -1;
	}
	memmove(c->in, c->in + at, c->have - at);
	c->have -= at;
	return 0;
}

static void watch(int ep, int fd, void *ptr)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ptr};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		die("epoll_ctl");
}

static void welcome(int ep, int listener)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c || (c->fd = accept(listener, NULL, NULL)) < 0)
		die("accept");
	watch(ep, c->fd, c);
}

static void serve(struct conn *c, unsigned long *queries)
{
	ssize_t n = recv(c->fd, c->in + c->have, IN - c->have, 0);

	if (n > 0)
		c->have += (size_t)n;
	if (n <= 0 || answer_all(c, queries) != 0) {
		close(c->fd);
		free(c);
	}
}

static int listen_on(const char *dir, const char *port)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s/.s.PGSQL.%s", dir, port);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 100) != 0)
		die(at.sun_path);
	return fd;
}

int do_serve(char **arg)
{
	int ep = epoll_create1(0), listener = listen_on(arg[0], arg[1]);
	struct epoll_event got[AT_ONCE];
	unsigned long queries = 0;
	char line[64];
	static char asked;

	make_answers((size_t)atol(arg[2]));
	watch(ep, listener, NULL);
	watch(ep, 0, &asked);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(ep, got, AT_ONCE, -1);

		for (int i = 0; i < n; i++) {
			if (!got[i].data.ptr) {
				welcome(ep, listener);
			} else if (got[i].data.ptr != &asked) {
				serve(got[i].data.ptr, &queries);
			} else {
				if (read(0, line, sizeof(line)) <= 0)
					return 0;
				printf("queries %lu\n", queries);
				fflush(stdout);
			}
		}
	}
}
