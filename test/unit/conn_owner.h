/*
 * What the tests of a connection share: its owner, which records what it is told, and its peer, a
 * bare descriptor.
 */
#ifndef QB_TEST_CONN_OWNER_H
#define QB_TEST_CONN_OWNER_H

#include "net_fixture.h"

/* An owner that records what its connection told it. */
struct owner {
	struct conn *c;
	struct buf got;
	int data_calls, ends, drains, connects;
	enum conn_end why;
	int err;
	char error[512];
	size_t take;  /* consume at most so much per call; SIZE_MAX all */
	size_t whole; /* consume nothing before so much is there; 0: off */
	bool close_in_data, close_in_end, kick_in_data, off_in_data;
	struct conn *echo_to; /* write what comes there */
};

static inline void owner_on_connect(struct conn *c, void *arg, const char *error)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	o->connects++;
	util_strlcpy(o->error, error ? error : "", sizeof(o->error));
}

static inline size_t owner_on_data(struct conn *c, void *arg, const uint8_t *data, size_t len)
{
	struct owner *o = arg;
	size_t n = len < o->take ? len : o->take;

	assert_ptr_equal(c, o->c);
	assert_true(len > 0);
	o->data_calls++;
	if (o->whole && len < o->whole)
		return 0;
	if (o->off_in_data)
		conn_want_read(c, false);
	if (o->kick_in_data && n < len)
		conn_kick(c);
	buf_put(&o->got, data, n);
	if (o->echo_to)
		conn_write(o->echo_to, data, n);
	if (o->close_in_data) {
		conn_close(&o->c);
		/* The bytes must outlive the close. */
		assert_memory_equal(o->got.data + o->got.len - n, data, n);
	}
	return n;
}

static inline void owner_on_end(struct conn *c, void *arg, enum conn_end why, int err)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	o->ends++;
	o->why = why;
	o->err = err;
	if (o->close_in_end)
		conn_close(&o->c);
}

static inline void owner_on_drain(struct conn *c, void *arg)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	assert_false(conn_is_full(c));
	o->drains++;
}

static const struct conn_ops owner_ops = {
	owner_on_connect, owner_on_data, owner_on_end, owner_on_drain, NULL};

static inline void owner_free(struct owner *o)
{
	conn_close(&o->c);
	buf_free(&o->got);
}

static const struct conn_addr unix_peer = {true, "unix", 6432};

static inline void pair_open(struct owner *o, int *ret_peer)
{
	int sv[2];

	memset(o, 0, sizeof(*o));
	o->take = SIZE_MAX;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv), 0);
	o->c = conn_new(sv[0], &unix_peer, &owner_ops, o);
	assert_non_null(o->c);
	*ret_peer = sv[1];
}

/* A connected TCP pair: the first as a conn. */
static inline void tcp_open(struct owner *o, int *ret_peer)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct conn_addr peer = {false, "127.0.0.1", 4711};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), fd;

	memset(o, 0, sizeof(*o));
	o->take = SIZE_MAX;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	*ret_peer = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(*ret_peer, (struct sockaddr *)&a, sizeof(a)), 0);
	fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(*ret_peer, F_SETFL, O_NONBLOCK), 0);
	close(l);
	o->c = conn_new(fd, &peer, &owner_ops, o);
	assert_non_null(o->c);
}

static inline void fd_reset(int fd)
{
	struct linger now = {1, 0};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
}

static inline bool owner_ended(void *arg)
{
	return ((struct owner *)arg)->ends > 0;
}

static inline bool owner_got_some(void *arg)
{
	return buf_used(&((struct owner *)arg)->got) > 0;
}

static inline size_t fd_drain(int fd, struct buf *into)
{
	uint8_t buf[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		if (into)
			buf_put(into, buf, (size_t)n);
		total += (size_t)n;
	}
	return total;
}

static inline void pattern(uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 31 + (i >> 13));
}

static inline bool peer_has_some(const int *fd)
{
	char byte;

	return recv(*fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_loop, teardown_loop)

#endif
