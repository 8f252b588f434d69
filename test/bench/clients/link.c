/*
 * Connections of the benchmark's clients (link.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "link.h"

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

void *need(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size);

	if (!p)
		die("calloc");
	return p;
}

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int dial(const struct target *t)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
	bool local = t->host[0] == '/';
	struct sockaddr *sa = local ? (struct sockaddr *)&un : (struct sockaddr *)&in;
	int fd = socket(sa->sa_family, SOCK_STREAM, 0), one = 1;

	if (fd < 0)
		die("socket");
	if (local)
		snprintf(un.sun_path, sizeof(un.sun_path), "%s/.s.PGSQL.%d", t->host, t->port);
	else if (inet_pton(AF_INET, t->host, &in.sin_addr) != 1)
		die(t->host);
	if (connect(fd, sa, local ? sizeof(un) : sizeof(in)) != 0)
		die("connect");
	if (!local)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

void put_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			die("send");
		p += n;
		len -= (size_t)n;
	}
}

void put_query(struct link *l, const char *sql)
{
	size_t len = strlen(sql) + 1;
	uint8_t small[16384], *msg = len + 5 <= sizeof(small) ? small : need(1, len + 5);
	uint32_t be = htonl((uint32_t)len + 4);

	msg[0] = 'Q';
	memcpy(msg + 1, &be, 4);
	memcpy(msg + 5, sql, len);
	put_all(l->fd, msg, len + 5);
	if (msg != small)
		free(msg);
}

int put_cancel(const struct link *l, const struct target *t)
{
	uint8_t msg[16] = {0, 0, 0, 16, 4, 210, 22, 46};
	int fd = dial(t);

	memcpy(msg + 8, l->key, sizeof(l->key));
	put_all(fd, msg, sizeof(msg));
	return fd;
}

/* A field of an ErrorResponse, which ends with a zero byte; "": it has none. */
static const char *field_of(const uint8_t *p, const uint8_t *end, char field)
{
	while (p < end && *p && *p != field)
		p += strlen((const char *)p) + 1;
	return p < end && *p ? (const char *)p + 1 : "";
}

/* What ends the session is never expected. */
static bool is_expected(const struct seen *seen, const uint8_t *p, const uint8_t *end)
{
	return seen->error && strcmp(field_of(p, end, 'V'), "FATAL") != 0 &&
	       seen->error(seen->arg, field_of(p, end, 'C'));
}

void error_exit(const uint8_t *p, const uint8_t *end)
{
	fputs("error:", stderr);
	while (p < end && *p) {
		if (strchr("SCMDH", *p))
			fprintf(stderr, " %s", (const char *)p + 1);
		p += strlen((const char *)p) + 1;
	}
	fputs("\n", stderr);
	exit(1);
}

const char *row_field(const uint8_t *body, int column, size_t *ret_len)
{
	const uint8_t *p = body + 2;
	uint32_t n;

	for (;; p += n) {
		memcpy(&n, p, 4);
		n = ntohl(n);
		p += 4;
		if (column-- == 0)
			break;
		if (n == UINT32_MAX)
			n = 0;
	}
	*ret_len = n == UINT32_MAX ? 0 : n;
	return n == UINT32_MAX ? NULL : (const char *)p;
}

void receive(struct link *l, struct seen *seen)
{
	size_t at = 0;
	ssize_t n;
	uint32_t len;

	if (l->cap - l->len < 1024) {
		l->cap = l->cap ? l->cap * 2 : 1024;
		l->in = realloc(l->in, l->cap);
		if (!l->in)
			die("realloc");
	}
	n = recv(l->fd, l->in + l->len, l->cap - l->len, 0);
	if (n <= 0)
		die(n == 0 ? "the connection was closed" : "recv");
	l->len += (size_t)n;
	for (; l->len - at >= 5; at += len + 1) {
		const uint8_t *m = l->in + at;

		memcpy(&len, m + 1, 4);
		len = ntohl(len);
		if (l->len - at < (size_t)len + 1)
			break;
		if (m[0] == 'E' && !is_expected(seen, m + 5, m + 1 + len))
			error_exit(m + 5, m + 1 + len);
		if (m[0] == 'K' && len == 12)
			memcpy(l->key, m + 5, sizeof(l->key));
		if (m[0] == 'D' && seen->row)
			seen->row(seen->arg, m + 5, len - 4);
		if (m[0] == 'R' && seen->auth)
			seen->auth(seen->arg, m + 5, len - 4);
		seen->rows += m[0] == 'D';
		seen->ready += m[0] == 'Z';
		seen->statuses += m[0] == 'S';
		seen->columns += m[0] == 'T';
	}
	memmove(l->in, l->in + at, l->len - at);
	l->len -= at;
}

void wait_ready(struct link *l, unsigned count)
{
	struct seen seen = {0};

	while (seen.ready < count)
		receive(l, &seen);
}

void put_startup(struct link *l, const struct target *t)
{
	uint8_t dst[512];
	size_t n = 8;
	const char *words[] = {"user", t->user, "database", t->database, NULL};

	for (int i = 0; words[i]; i++) {
		strcpy((char *)dst + n, words[i]);
		n += strlen(words[i]) + 1;
	}
	dst[n++] = 0;
	*(uint32_t *)(void *)dst = htonl((uint32_t)n);
	*(uint32_t *)(void *)(dst + 4) = htonl(3 << 16);
	put_all(l->fd, dst, n);
}

void log_in(struct link *l, const struct target *t)
{
	l->fd = dial(t);
	put_startup(l, t);
	wait_ready(l, 1);
}

struct link *log_in_many(const struct target *t, int n)
{
	struct rlimit lim = {(rlim_t)n + 64, (rlim_t)n + 64};
	struct link *links = need((size_t)n, sizeof(*links));

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < (rlim_t)n + 64) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	for (int i = 0; i < n; i++)
		log_in(&links[i], t);
	return links;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

void print_times(const char *name, double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	if (n == 0)
		return;
	printf("%s_p50_us %.1f\n%s_p99_us %.1f\n%s_max_us %.1f\n", name, v[n / 2] * 1e6, name,
		v[n * 99 / 100] * 1e6, name, v[n - 1] * 1e6);
}
