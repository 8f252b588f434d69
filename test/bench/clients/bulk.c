/*
 * Much data, as fast as it goes; nobody keeps it.
 *
 *   client read  TARGET N TIMES SQL          runs SQL, drops what comes: big rows, COPY ... TO STDOUT
 *   client write TARGET N TIMES SIZE SQL     of COPY ... FROM STDIN: SIZE bytes of data; of a query: a
 *                                            text with a literal of SIZE bytes in place of its %s
 *
 * N connections, each in a thread of its own, do it TIMES times. Prints "bytes" (of the messages) and
 * "seconds".
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "link.h"

#define CHUNK 65536 /* of a COPY */
#define LINE  8000  /* of what it copies */

struct mover {
	struct link link;
	const char *sql;
	size_t size; /* to write; 0: only reads */
	int times;
	unsigned long bytes;
	uint8_t head[5]; /* of the message that comes */
	size_t have;     /* of its head */
	size_t left;     /* of its body */
	uint8_t buf[1 << 18];
};

/* How many of these bytes belong to the message under way; have is 0 at its end. */
static size_t eat(struct mover *m, const uint8_t *p, size_t n)
{
	uint32_t len;

	if (m->have < sizeof(m->head)) {
		m->head[m->have++] = *p;
		n = 1;
		if (m->have < sizeof(m->head))
			return n;
		memcpy(&len, m->head + 1, 4);
		m->left = ntohl(len) - 4;
	} else {
		n = n < m->left ? n : m->left;
		if (m->head[0] == 'E')
			error_exit(p, p + n);
		m->left -= n;
	}
	if (m->left == 0)
		m->have = 0;
	return n;
}

/* Reads until a message of this type has come to its end. */
static void drop_until(struct mover *m, uint8_t type)
{
	for (;;) {
		ssize_t n = recv(m->link.fd, m->buf, sizeof(m->buf), 0);

		if (n <= 0)
			die("recv");
		m->bytes += (size_t)n;
		for (size_t at = 0; at < (size_t)n;) {
			at += eat(m, m->buf + at, (size_t)n - at);
			if (m->have == 0 && m->head[0] == type)
				return;
		}
	}
}

static void put_head(uint8_t *dst, uint8_t type, size_t body)
{
	uint32_t be = htonl((uint32_t)body + 4);

	dst[0] = type;
	memcpy(dst + 1, &be, 4);
}

/* CopyData of lines, CopyDone. */
static void copy_in(struct mover *m)
{
	uint8_t done[5];

	put_head(m->buf, 'd', CHUNK);
	memset(m->buf + 5, 'x', CHUNK);
	for (size_t at = LINE - 1; at < CHUNK; at += LINE)
		m->buf[5 + at] = '\n';
	m->buf[5 + CHUNK - 1] = '\n';
	for (size_t sent = 0; sent < m->size; sent += CHUNK) {
		put_all(m->link.fd, m->buf, CHUNK + 5);
		m->bytes += CHUNK + 5;
	}
	put_head(done, 'c', 0);
	put_all(m->link.fd, done, sizeof(done));
}

/* A query with a long literal. */
static void put_long(struct mover *m)
{
	const char *at = strstr(m->sql, "%s");
	size_t before = (size_t)(at - m->sql), after = strlen(at + 2) + 1;

	put_head(m->buf, 'Q', before + m->size + after);
	memcpy(m->buf + 5, m->sql, before);
	put_all(m->link.fd, m->buf, before + 5);
	memset(m->buf, 'x', sizeof(m->buf));
	for (size_t left = m->size; left > 0;) {
		size_t part = left < sizeof(m->buf) ? left : sizeof(m->buf);

		put_all(m->link.fd, m->buf, part);
		left -= part;
	}
	put_all(m->link.fd, at + 2, after);
	m->bytes += before + m->size + after + 5;
}

static void *move(void *arg)
{
	struct mover *m = arg;

	for (int i = 0; i < m->times; i++) {
		if (m->size > 0 && strstr(m->sql, "%s")) {
			put_long(m);
		} else {
			put_query(&m->link, m->sql);
			if (m->size > 0) {
				drop_until(m, 'G');
				copy_in(m);
			}
		}
		drop_until(m, 'Z');
	}
	return NULL;
}

static int run(const struct target *t, int n, int times, size_t size, const char *sql)
{
	struct mover *all = need((size_t)n, sizeof(*all));
	pthread_t *threads = need((size_t)n, sizeof(*threads));
	unsigned long bytes = 0;
	double start;

	for (int i = 0; i < n; i++) {
		all[i].sql = sql;
		all[i].size = size;
		all[i].times = times;
		log_in(&all[i].link, t);
	}
	start = now();
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, move, &all[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		bytes += all[i].bytes;
	}
	printf("bytes %lu\nseconds %.4f\n", bytes, now() - start);
	return 0;
}

int do_read(const struct target *t, char **arg)
{
	return run(t, atoi(arg[0]), atoi(arg[1]), 0, arg[2]);
}

int do_write(const struct target *t, char **arg)
{
	return run(t, atoi(arg[0]), atoi(arg[1]), strtoul(arg[2], NULL, 10), arg[3]);
}
