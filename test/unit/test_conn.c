/* Connections over socketpairs and loopback: every way to read, write, end and connect. */
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

static void owner_on_connect(struct conn *c, void *arg, const char *error)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	o->connects++;
	util_strlcpy(o->error, error ? error : "", sizeof(o->error));
}

static size_t owner_on_data(struct conn *c, void *arg, const uint8_t *data, size_t len)
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

static void owner_on_end(struct conn *c, void *arg, enum conn_end why, int err)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	o->ends++;
	o->why = why;
	o->err = err;
	if (o->close_in_end)
		conn_close(&o->c);
}

static void owner_on_drain(struct conn *c, void *arg)
{
	struct owner *o = arg;

	assert_ptr_equal(c, o->c);
	assert_false(conn_is_full(c));
	o->drains++;
}

static const struct conn_ops owner_ops = {
	owner_on_connect, owner_on_data, owner_on_end, owner_on_drain, NULL};

static void owner_free(struct owner *o)
{
	conn_close(&o->c);
	buf_free(&o->got);
}

static const struct conn_addr unix_peer = {true, "unix", 6432};

static void pair_open(struct owner *o, int *ret_peer)
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
static void tcp_open(struct owner *o, int *ret_peer)
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

static void fd_reset(int fd)
{
	struct linger now = {1, 0};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
}

static bool owner_ended(void *arg)
{
	return ((struct owner *)arg)->ends > 0;
}

static bool owner_got_some(void *arg)
{
	return buf_used(&((struct owner *)arg)->got) > 0;
}

static size_t fd_drain(int fd, struct buf *into)
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

static void pattern(uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 31 + (i >> 13));
}

/* -- reading ---------------------------------------------------------------------------------- */

static void test_reads(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	assert_int_equal(write(peer, "hello", 5), 5);
	run_until(owner_got_some, &o);
	assert_string_equal(buf_cstr(&o.got), "hello");
	assert_int_equal(conn_pending_input(o.c), 0);
	assert_int_equal(conn_bytes_in(o.c), 5);
	owner_free(&o);
	close(peer);
}

static void test_rest_is_shown_again(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.take = 2;
	assert_int_equal(write(peer, "abcde", 5), 5);
	run_until(owner_got_some, &o);
	run_turns(3);
	assert_int_equal(o.data_calls, 1); /* not before more comes or somebody asks */
	assert_int_equal(conn_pending_input(o.c), 3);
	assert_int_equal(write(peer, "f", 1), 1);
	run_turns(1);
	assert_string_equal(buf_cstr(&o.got), "abcd");
	conn_kick(o.c);
	run_turns(1);
	assert_string_equal(buf_cstr(&o.got), "abcdef");
	assert_int_equal(conn_pending_input(o.c), 0);
	conn_kick(o.c); /* nothing there: nothing happens */
	run_turns(1);
	assert_int_equal(o.data_calls, 3);
	owner_free(&o);
	close(peer);
}

static void test_kick_inside_data(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.take = 1;
	o.kick_in_data = true;
	assert_int_equal(write(peer, "abcde", 5), 5);
	run_turns(1);
	assert_string_equal(buf_cstr(&o.got), "abcde");
	owner_free(&o);
	close(peer);
}

static void test_reading_off_and_on(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.take = 1;
	o.off_in_data = true;
	assert_int_equal(write(peer, "ab", 2), 2);
	run_turns(2);
	assert_string_equal(buf_cstr(&o.got), "a");
	assert_int_equal(write(peer, "c", 1), 1);
	run_turns(5);
	assert_int_equal(o.data_calls, 1);
	conn_kick(o.c); /* reading is off: not shown */
	run_turns(2);
	assert_int_equal(o.data_calls, 1);
	o.take = SIZE_MAX;
	o.off_in_data = false;
	conn_want_read(o.c, true);
	conn_want_read(o.c, true);
	run_turns(2);
	assert_string_equal(buf_cstr(&o.got), "abc");
	owner_free(&o);
	close(peer);
}

static bool phase_counts(void *arg, usec_t now)
{
	(void)now;
	++*(int *)arg;
	return false;
}

/* Unread bytes while reading is off must not make the loop spin. */
static void test_reading_off_does_not_spin(void **state)
{
	struct owner o;
	struct loop_tick *t;
	int peer, turns = 0, stop = 1;

	(void)state;
	pair_open(&o, &peer);
	conn_want_read(o.c, false);
	assert_int_equal(write(peer, "abc", 3), 3);
	run_until(after_turns, &stop);
	loop_phase(LOOP_PHASE_QUEUES, phase_counts, &turns);
	t = loop_tick_new(tick_always, NULL, USEC_NEVER);
	assert_non_null(t);
	loop_tick_at(t, loop_now() + 20 * USEC_MSEC);
	stop = 6;
	run_until(after_turns, &stop);
	/* First turn polls, then it sleeps until the tick. */
	assert_true(turns <= 6);
	assert_true(loop_now() > 0);
	assert_int_equal(o.data_calls, 0);
	loop_tick_free(&t);
	owner_free(&o);
	close(peer);
}

static void gather(bool tcp)
{
	const size_t size = 16 * 1024 * 1024;
	uint8_t *data = malloc(size);
	struct owner o;
	size_t sent = 0;
	int peer, one = 1;

	assert_non_null(data);
	pattern(data, size);
	if (tcp)
		tcp_open(&o, &peer);
	else
		pair_open(&o, &peer);
	o.whole = size;
	while (o.got.len == 0) {
		ssize_t n = sent < size ? send(peer, data + sent, size - sent, MSG_DONTWAIT) : 0;

		if (n > 0)
			sent += (size_t)n;
		one = 1;
		run_until(after_turns, &one);
	}
	assert_int_equal(buf_used(&o.got), size);
	assert_memory_equal(o.got.data, data, size);
	assert_int_equal(conn_pending_input(o.c), 0);
	owner_free(&o);
	close(peer);
	free(data);
}

static void test_gathers_16_mb(void **state)
{
	(void)state;
	gather(false);
	gather(true);
}

/* Every mix of arriving pieces and bites of the owner gives the same bytes. */
static void test_pieces_and_bites(void **state)
{
	static const size_t sizes[] = {1, 7, 300, 8000, 8193, 20000, 70000};
	static uint8_t data[150000];
	size_t i, k;

	(void)state;
	pattern(data, sizeof(data));
	for (i = 0; i < ARRAY_LEN(sizes); i++)
		for (k = 2; k < ARRAY_LEN(sizes); k++) {
			struct owner o;
			size_t sent = 0;
			int peer;

			if (sizes[i] < 300 && sizes[k] < 8000)
				continue;
			pair_open(&o, &peer);
			o.take = sizes[k];
			while (sent < sizeof(data) || conn_pending_input(o.c) > 0) {
				size_t n = sizeof(data) - sent;
				ssize_t put;

				n = n < sizes[i] * 100 ? n : sizes[i] * 100;
				put = n ? send(peer, data + sent, n, MSG_DONTWAIT) : 0;
				if (put > 0)
					sent += (size_t)put;
				conn_kick(o.c);
				run_turns(1);
			}
			run_turns(2);
			assert_int_equal(buf_used(&o.got), sizeof(data));
			assert_memory_equal(o.got.data, data, sizeof(data));
			owner_free(&o);
			close(peer);
		}
}

/* -- ends ------------------------------------------------------------------------------------- */

static void test_half_close(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	assert_int_equal(write(peer, "bye", 3), 3);
	assert_int_equal(shutdown(peer, SHUT_WR), 0);
	run_until(owner_ended, &o);
	assert_string_equal(buf_cstr(&o.got), "bye");
	assert_int_equal(o.why, CONN_END_EOF);
	run_turns(3);
	assert_int_equal(o.ends, 1);
	owner_free(&o);
	close(peer);
}

static void test_half_close_while_reading_is_off(void **state)
{
	struct owner o;
	int peer, before;

	(void)state;
	for (before = 0; before < 2; before++) {
		tcp_open(&o, &peer);
		conn_want_read(o.c, false);
		assert_int_equal(write(peer, "unread", 6), 6);
		if (before)
			run_turns(3); /* the registration has become edge triggered */
		assert_int_equal(shutdown(peer, SHUT_WR), 0);
		run_until(owner_ended, &o);
		assert_int_equal(o.why, CONN_END_EOF);
		assert_int_equal(o.data_calls, 0);
		owner_free(&o);
		close(peer);
	}
}

static void test_reset_while_reading_is_off(void **state)
{
	struct owner o;
	int peer, before;

	(void)state;
	for (before = 0; before < 2; before++) {
		tcp_open(&o, &peer);
		conn_want_read(o.c, false);
		assert_int_equal(write(peer, "unread", 6), 6);
		if (before)
			run_turns(3);
		fd_reset(peer);
		run_until(owner_ended, &o);
		assert_int_equal(o.why, CONN_END_RESET);
		assert_int_equal(o.err, ECONNRESET);
		owner_free(&o);
	}
}

/* Bytes and a reset that arrive together: the bytes first, then the end, without more input. */
static void test_reset_behind_data(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	tcp_open(&o, &peer);
	assert_int_equal(write(peer, "last", 4), 4);
	fd_reset(peer);
	run_until(owner_ended, &o);
	assert_string_equal(buf_cstr(&o.got), "last");
	assert_int_equal(o.why, CONN_END_RESET);
	owner_free(&o);
}

static void test_close_inside_data(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.close_in_data = true;
	assert_int_equal(write(peer, "abc", 3), 3);
	run_until(owner_got_some, &o);
	assert_null(o.c);
	run_turns(2);
	assert_int_equal(o.ends, 0);
	assert_int_equal(recv(peer, (char[1]){0}, 1, 0), 0);
	owner_free(&o);
	close(peer);
}

static void test_close_inside_data_from_stash(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.take = 1;
	assert_int_equal(write(peer, "abc", 3), 3);
	run_until(owner_got_some, &o);
	o.close_in_data = true;
	conn_kick(o.c);
	run_turns(2);
	assert_null(o.c);
	owner_free(&o);
	close(peer);
}

static void test_close_inside_end(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	o.close_in_end = true;
	close(peer);
	run_until(owner_ended, &o);
	assert_null(o.c);
	run_turns(2);
	owner_free(&o);
}

static void test_close_says_the_last_words(void **state)
{
	struct owner o;
	struct buf got = BUF_INIT;
	struct conn *c;
	int peer;

	(void)state;
	tcp_open(&o, &peer);
	assert_int_equal(write(peer, "unread", 6), 6);
	conn_write(o.c, "fatal", 5);
	c = o.c;
	conn_close(&o.c);
	assert_null(o.c);
	assert_int_equal(conn_fd(c), -1);
	run_turns(2);
	assert_int_equal(fd_drain(peer, &got), 5);
	assert_string_equal(buf_cstr(&got), "fatal");
	buf_free(&got);
	owner_free(&o);
	close(peer);
}

static void test_alive(void **state)
{
	struct owner o;
	unsigned uid;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	assert_true(conn_alive(o.c));
	assert_true(conn_peer_uid(o.c, &uid));
	assert_int_equal(conn_peer_pid(o.c), getpid());
	assert_int_equal(uid, getuid());
	assert_true(conn_peer(o.c)->is_unix);
	assert_int_equal(conn_peer(o.c)->port, 6432);
	close(peer);
	assert_false(conn_alive(o.c));
	owner_free(&o);
	tcp_open(&o, &peer);
	assert_false(conn_peer_uid(o.c, &uid));
	assert_int_equal(conn_peer_pid(o.c), 0);
	assert_string_equal(conn_peer(o.c)->host, "127.0.0.1");
	assert_int_equal(conn_peer(o.c)->port, 4711);
	assert_string_equal(conn_local(o.c)->host, "127.0.0.1");
	assert_true(conn_local(o.c)->port > 0);
	owner_free(&o);
	close(peer);
}

/* The text that was made for one is not another's. */
static void test_peers_in_turns(void **state)
{
	static const struct conn_addr peers[] = {{false, "127.0.0.1", 4711},
		{false, "127.0.0.1", 4712}, {false, "127.0.0.2", 4711},
		{false, "2001:db8::7", 4711}, {true, "unix", 6432}};
	struct conn *c[ARRAY_LEN(peers)];
	int sv[2];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(peers); i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
		c[i] = conn_new(sv[0], &peers[i], &owner_ops, NULL);
		assert_non_null(c[i]);
		close(sv[1]);
	}
	for (size_t i = 0; i < 4 * ARRAY_LEN(peers); i++) {
		size_t one = i % 2 == 0 ? i / 2 % ARRAY_LEN(peers) : i % ARRAY_LEN(peers);

		for (int again = 0; again < 2; again++) {
			const struct conn_addr *peer = conn_peer(c[one]);

			assert_string_equal(peer->host, peers[one].host);
			assert_int_equal(peer->port, peers[one].port);
			assert_int_equal(peer->is_unix, peers[one].is_unix);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(peers); i++)
		conn_close(&c[i]);
}

/* -- writing ---------------------------------------------------------------------------------- */

static bool peer_has_some(const int *fd)
{
	char byte;

	return recv(*fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static void test_small_writes_are_gathered(void **state)
{
	struct owner o;
	struct buf got = BUF_INIT;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	conn_write(o.c, "a", 1);
	conn_write(o.c, "", 0);
	conn_write(o.c, "bc", 2);
	assert_int_equal(conn_pending_output(o.c), 3);
	assert_false(peer_has_some(&peer));
	run_turns(1);
	assert_true(peer_has_some(&peer));
	fd_drain(peer, &got);
	assert_string_equal(buf_cstr(&got), "abc");
	assert_int_equal(conn_bytes_out(o.c), 3);
	assert_int_equal(conn_pending_output(o.c), 0);
	buf_free(&got);
	owner_free(&o);
	close(peer);
}

static void test_large_write_goes_at_once(void **state)
{
	struct owner o;
	uint8_t data[10000];
	int peer;

	(void)state;
	pattern(data, sizeof(data));
	pair_open(&o, &peer);
	conn_write(o.c, data, sizeof(data));
	assert_int_equal(fd_drain(peer, NULL), sizeof(data));
	owner_free(&o);
	close(peer);
}

/* More than the kernel takes, in writes of several sizes, read slowly: all arrives in order, and
 * high and low water are told. */
static void slow_reader(size_t piece, bool tcp)
{
	const size_t size = 8 * 1024 * 1024;
	uint8_t *data = malloc(size);
	struct buf got = BUF_INIT;
	struct owner o;
	size_t at = 0;
	int peer, fulls = 0;

	assert_non_null(data);
	pattern(data, size);
	if (tcp)
		tcp_open(&o, &peer);
	else
		pair_open(&o, &peer);
	while (got.len < size) {
		while (at < size && !conn_is_full(o.c)) {
			size_t n = size - at < piece ? size - at : piece;

			conn_write(o.c, data + at, n);
			at += n;
		}
		fulls += conn_is_full(o.c);
		run_turns(1);
		fd_drain(peer, &got);
	}
	run_turns(1);
	assert_int_equal(got.len, size);
	assert_memory_equal(got.data, data, size);
	assert_int_equal(conn_pending_output(o.c), 0);
	assert_false(conn_is_full(o.c));
	assert_true(fulls > 0 && o.drains > 0);
	assert_int_equal(o.ends, 0);
	buf_free(&got);
	owner_free(&o);
	close(peer);
	free(data);
}

static void test_slow_reader(void **state)
{
	static const size_t pieces[] = {100, 5000, 8192, 65536, 1000000};
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_LEN(pieces); i++) {
		slow_reader(pieces[i], false);
		slow_reader(pieces[i], true);
	}
}

/* Output is blocked and reading is off, with unread bytes: both registrations become edges. */
static void test_blocked_with_reading_off(void **state)
{
	static uint8_t data[400000];
	struct owner o;
	size_t got = 0;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	conn_want_read(o.c, false);
	conn_write(o.c, data, sizeof(data));
	assert_true(conn_is_full(o.c));
	assert_int_equal(write(peer, "abc", 3), 3);
	run_turns(3);
	while (got < sizeof(data)) {
		got += fd_drain(peer, NULL);
		run_turns(1);
	}
	assert_int_equal(o.drains, 1);
	conn_want_read(o.c, true);
	run_until(owner_got_some, &o);
	owner_free(&o);
	close(peer);
}

static void test_backpressure_between_two(void **state)
{
	const size_t size = 4 * 1024 * 1024;
	uint8_t *data = malloc(size);
	struct owner a, b;
	struct buf got = BUF_INIT;
	size_t sent = 0, peak = 0;
	int pa, pb;

	(void)state;
	assert_non_null(data);
	pattern(data, size);
	pair_open(&a, &pa);
	tcp_open(&b, &pb);
	a.echo_to = b.c;
	while (got.len < size) {
		ssize_t n = sent < size ? send(pa, data + sent, size - sent, MSG_DONTWAIT) : 0;

		if (n > 0)
			sent += (size_t)n;
		conn_want_read(a.c, !conn_is_full(b.c));
		run_turns(1);
		if (conn_pending_output(b.c) > peak)
			peak = conn_pending_output(b.c);
		if (n <= 0)
			fd_drain(pb, &got);
	}
	assert_memory_equal(got.data, data, size);
	assert_true(peak < 4 * CONN_HIGH_WATER);
	owner_free(&a);
	owner_free(&b);
	buf_free(&got);
	close(pa);
	close(pb);
	free(data);
}

static void test_write_to_a_dead_peer(void **state)
{
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	close(peer);
	conn_write(o.c, "abc", 3);
	assert_int_equal(o.ends, 0);
	run_until(owner_ended, &o);
	conn_write(o.c, "abc", 3);
	run_turns(2);
	assert_int_equal(o.ends, 1);
	assert_int_equal(conn_pending_output(o.c), 0);
	owner_free(&o);
}

/* What the peer said before it died is read although our write failed first. */
static void test_last_words_after_failed_write(void **state)
{
	static uint8_t large[9000];
	struct owner o;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	assert_int_equal(write(peer, "FATAL", 5), 5);
	close(peer);
	conn_write(o.c, large, sizeof(large)); /* fails inside the call */
	assert_int_equal(o.ends, 0);
	run_until(owner_ended, &o);
	assert_string_equal(buf_cstr(&o.got), "FATAL");
	assert_int_equal(o.why, CONN_END_RESET);
	assert_int_equal(o.err, EPIPE);
	owner_free(&o);
}

/* The peer shut its receiving half only: no end would ever come from reading. */
static void test_write_error_alone(void **state)
{
	static const bool reading[] = {true, false};
	struct owner o;
	size_t i;
	int peer;

	(void)state;
	for (i = 0; i < ARRAY_LEN(reading); i++) {
		pair_open(&o, &peer);
		conn_want_read(o.c, reading[i]);
		assert_int_equal(shutdown(peer, SHUT_RD), 0);
		conn_write(o.c, "abc", 3);
		run_until(owner_ended, &o);
		assert_int_equal(o.why, CONN_END_RESET);
		assert_int_equal(o.err, EPIPE);
		owner_free(&o);
		close(peer);
	}
}

/* -- connecting ------------------------------------------------------------------------------- */

static bool owner_connected(void *arg)
{
	return ((struct owner *)arg)->connects > 0;
}

static void dial(struct owner *o, const char *host, int port)
{
	memset(o, 0, sizeof(*o));
	o->take = SIZE_MAX;
	o->c = conn_connect(host, port, &owner_ops, o);
	assert_non_null(o->c);
	assert_int_equal(o->connects, 0);
}

static int tcp_listener(int *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 8), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	*ret_port = ntohs(a.sin_port);
	return l;
}

static void test_connect(void **state)
{
	/* The second part of a list is used when the first fails. */
	static const char *hosts[] = {"127.0.0.1", "localhost", "/nonexistent, 127.0.0.1"};
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_LEN(hosts); i++) {
		struct owner o;
		int port, fd, l = tcp_listener(&port);

		dial(&o, hosts[i], port);
		conn_write(o.c, "early", 5); /* kept until there is a connection */
		run_until(owner_connected, &o);
		assert_string_equal(o.error, "");
		fd = accept(l, NULL, NULL);
		assert_true(fd >= 0);
		while (!peer_has_some(&fd))
			run_turns(1);
		assert_string_equal(conn_peer(o.c)->host, "127.0.0.1");
		assert_int_equal(conn_peer(o.c)->port, port);
		assert_int_equal(write(fd, "x", 1), 1);
		run_until(owner_got_some, &o);
		close(fd);
		run_until(owner_ended, &o);
		owner_free(&o);
		close(l);
	}
}

/* A name may lead elsewhere by now: the address counts, and the name stays for TLS. */
static void test_connect_beside(void **state)
{
	static const char *hosts[] = {"127.0.0.1", "localhost"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct owner o, beside = {.take = SIZE_MAX};
		int port, fds[2], l = tcp_listener(&port);

		dial(&o, hosts[i], port);
		run_until(owner_connected, &o);
		beside.c = conn_connect_beside(o.c, &owner_ops, &beside);
		assert_non_null(beside.c);
		assert_int_equal(beside.connects, 0);
		run_until(owner_connected, &beside);
		assert_string_equal(beside.error, "");
		assert_string_equal(conn_peer(beside.c)->host, "127.0.0.1");
		assert_int_equal(conn_peer(beside.c)->port, port);
		for (size_t k = 0; k < ARRAY_LEN(fds); k++) {
			fds[k] = accept(l, NULL, NULL);
			assert_true(fds[k] >= 0);
		}
		owner_free(&beside);
		close(l);
		/* nobody listens any more: there is no further address to try */
		memset(&beside, 0, sizeof(beside));
		beside.c = conn_connect_beside(o.c, &owner_ops, &beside);
		run_until(owner_connected, &beside);
		assert_non_null(strstr(beside.error, "Connection refused"));
		assert_null(strchr(beside.error, '\n'));
		owner_free(&beside);
		owner_free(&o);
		close(fds[0]);
		close(fds[1]);
	}
}

static void test_connect_refused(void **state)
{
	struct owner o;
	char want[512];
	int port, l = tcp_listener(&port);

	(void)state;
	close(l);
	dial(&o, "127.0.0.1", port);
	run_until(owner_connected, &o);
	(void)snprintf(want, sizeof(want),
		"connection to server at \"127.0.0.1\", port %d failed: Connection refused", port);
	assert_string_equal(o.error, want);
	assert_int_equal(o.ends, 0);
	owner_free(&o);

	dial(&o, "/nonexistent,127.0.0.1", port);
	run_until(owner_connected, &o);
	(void)snprintf(want, sizeof(want),
		"connection to server on socket \"/nonexistent/.s.PGSQL.%d\" failed: No such file or "
		"directory\n"
		"connection to server at \"127.0.0.1\", port %d failed: Connection refused",
		port, port);
	assert_string_equal(o.error, want);
	run_turns(2);
	assert_int_equal(o.connects, 1);
	assert_int_equal(o.ends, 0);
	owner_free(&o);
}

static void test_connect_long_path(void **state)
{
	char dir[300];
	struct owner o;

	(void)state;
	memset(dir, 'x', sizeof(dir));
	dir[0] = '/';
	dir[sizeof(dir) - 1] = '\0';
	dial(&o, dir, 5432);
	run_until(owner_connected, &o);
	assert_non_null(strstr(o.error, "too long"));
	owner_free(&o);
}

static void test_connect_unix(void **state)
{
	char dir[] = "/tmp/qbtestXXXXXX", path[64];
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct owner o;
	int l;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/.s.PGSQL.5433", dir);
	util_strlcpy(un.sun_path, path, sizeof(un.sun_path));
	l = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(l, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(l, 1), 0);
	dial(&o, dir, 5433);
	run_until(owner_connected, &o);
	assert_string_equal(o.error, "");
	assert_true(conn_peer(o.c)->is_unix);
	assert_string_equal(conn_peer(o.c)->host, dir);
	assert_int_equal(conn_peer(o.c)->port, 5433);
	owner_free(&o);
	close(l);
	unlink(path);
	rmdir(dir);
}

static void test_close_while_connecting(void **state)
{
	static const char *hosts[] = {"127.0.0.1", "localhost", "name.invalid", "/nonexistent"};
	size_t i;
	int turns;

	(void)state;
	for (i = 0; i < ARRAY_LEN(hosts); i++)
		for (turns = 0; turns < 3; turns++) {
			struct owner o;
			int port, l = tcp_listener(&port), before;

			dial(&o, hosts[i], port);
			if (turns)
				run_turns(turns);
			before = o.connects;
			owner_free(&o);
			run_turns(2);
			assert_int_equal(o.connects, before);
			close(l);
		}
}

static void test_unreachable_name(void **state)
{
	struct owner o;

	(void)state;
	/* Not a name of any zone: refused without a question to a nameserver. */
	dial(&o, "", 1);
	run_until(owner_connected, &o);
	assert_string_equal(o.error, "connection to server on socket \"/tmp/.s.PGSQL.1\" failed: "
				     "No such file or directory");
	owner_free(&o);
}

/* -- memory ----------------------------------------------------------------------------------- */

static bool ended_or_got(void *arg)
{
	struct owner *o = arg;

	return o->ends > 0 || buf_used(&o->got) > 0 || buf_failed(&o->got);
}

static void test_no_memory(void **state)
{
	static uint8_t data[300000];
	unsigned long n;

	(void)state;
	for (n = 1; n < 12; n++) {
		struct owner o = {.take = SIZE_MAX, .whole = sizeof(data)};
		int sv[2];
		size_t sent = 0;

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
		mem_fail_after(n);
		o.c = conn_new(sv[0], &unix_peer, &owner_ops, &o);
		while (o.c && !ended_or_got(&o)) {
			ssize_t put = send(sv[1], data + sent, sizeof(data) - sent, MSG_DONTWAIT);
			int one = 1;

			sent += put > 0 ? (size_t)put : 0;
			run_until(after_turns, &one);
		}
		mem_fail_after(0);
		if (o.ends)
			assert_int_equal(o.why, CONN_END_NO_MEMORY);
		owner_free(&o);
		close(sv[1]);
	}
}

static void test_no_memory_writing(void **state)
{
	static uint8_t data[600000];
	unsigned long n;

	(void)state;
	for (n = 1; n < 80; n++) {
		struct owner o;
		int peer;

		pair_open(&o, &peer);
		mem_fail_after(n);
		conn_write(o.c, data, 100);
		conn_write(o.c, data, sizeof(data));
		while (!o.ends && conn_pending_output(o.c) > 0) {
			int one = 1;

			fd_drain(peer, NULL);
			run_until(after_turns, &one);
		}
		mem_fail_after(0);
		if (o.ends)
			assert_int_equal(o.why, CONN_END_NO_MEMORY);
		owner_free(&o);
		close(peer);
	}
}

static void test_no_memory_connecting(void **state)
{
	unsigned long n;
	int port, l = tcp_listener(&port);

	(void)state;
	for (n = 1; n < 12; n++) {
		struct owner o = {.take = SIZE_MAX};

		mem_fail_after(n);
		o.c = conn_connect("/nonexistent,localhost", port, &owner_ops, &o);
		if (o.c)
			run_until(owner_connected, &o);
		mem_fail_after(0);
		owner_free(&o);
		run_turns(1);
	}
	close(l);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_loop, teardown_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_reads),
		TEST(test_rest_is_shown_again),
		TEST(test_kick_inside_data),
		TEST(test_reading_off_and_on),
		TEST(test_reading_off_does_not_spin),
		TEST(test_gathers_16_mb),
		TEST(test_pieces_and_bites),
		TEST(test_half_close),
		TEST(test_half_close_while_reading_is_off),
		TEST(test_reset_while_reading_is_off),
		TEST(test_reset_behind_data),
		TEST(test_close_inside_data),
		TEST(test_close_inside_data_from_stash),
		TEST(test_close_inside_end),
		TEST(test_close_says_the_last_words),
		TEST(test_alive),
		TEST(test_peers_in_turns),
		TEST(test_small_writes_are_gathered),
		TEST(test_large_write_goes_at_once),
		TEST(test_slow_reader),
		TEST(test_blocked_with_reading_off),
		TEST(test_backpressure_between_two),
		TEST(test_write_to_a_dead_peer),
		TEST(test_last_words_after_failed_write),
		TEST(test_write_error_alone),
		TEST(test_connect),
		TEST(test_connect_beside),
		TEST(test_connect_refused),
		TEST(test_connect_long_path),
		TEST(test_connect_unix),
		TEST(test_close_while_connecting),
		TEST(test_unreachable_name),
		TEST(test_no_memory),
		TEST(test_no_memory_writing),
		TEST(test_no_memory_connecting),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
