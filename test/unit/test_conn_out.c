/* Writing over socketpairs and loopback: gathered, at once, to who does not read or is gone. */
#include "conn_owner.h"

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

/* The beginning of an answer stays until there is more of it, or until its owner says that this takes long. */
static void test_kept_back(void **state)
{
	struct owner o;
	struct buf got = BUF_INIT;
	int peer;

	(void)state;
	pair_open(&o, &peer);
	conn_keep_back(o.c); /* of nothing */
	conn_write(o.c, "a", 1);
	conn_keep_back(o.c);
	run_turns(2);
	assert_false(peer_has_some(&peer));
	assert_int_equal(conn_pending_output(o.c), 1);
	conn_write(o.c, "bc", 2);
	run_turns(1);
	fd_drain(peer, &got);
	assert_string_equal(buf_cstr(&got), "abc");
	conn_write(o.c, "d", 1);
	conn_keep_back(o.c);
	conn_write(o.c, "", 0); /* is nothing, and lets nothing go */
	run_turns(2);
	assert_false(peer_has_some(&peer));
	conn_show_kept(o.c);
	run_turns(1);
	fd_drain(peer, &got);
	assert_string_equal(buf_cstr(&got), "abcd");
	conn_show_kept(o.c); /* nothing is kept */
	conn_write(o.c, "last", 4);
	conn_keep_back(o.c);
	conn_close(&o.c); /* goes out nevertheless */
	fd_drain(peer, &got);
	assert_string_equal(buf_cstr(&got), "abcdlast");
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
/* At once, as far as that goes. */
static void test_flush(void **state)
{
	struct owner o;
	struct buf got = BUF_INIT;
	uint8_t data[10000];
	int peer;

	(void)state;
	pattern(data, sizeof(data));
	pair_open(&o, &peer);
	conn_write(o.c, "a", 1);
	assert_true(conn_flush(o.c));
	fd_drain(peer, &got);
	assert_string_equal(buf_cstr(&got), "a");
	while (conn_flush(o.c))
		conn_write(o.c, data, sizeof(data));
	assert_true(conn_pending_output(o.c) > 0);
	fd_drain(peer, &got);
	run_turns(2);
	assert_true(conn_flush(o.c));
	buf_free(&got);
	owner_free(&o);
	close(peer);
}

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

#define MANY 70 /* more than go at once */

static void fd_fill(int fd)
{
	static const uint8_t data[4096];

	while (send(fd, data, sizeof(data), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
		;
	assert_true(errno == EAGAIN);
}

static void say_to_all(struct owner *o, unsigned round)
{
	char text[16];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(text, sizeof(text), "%u.%u;", round, i);
		conn_write(o[i].c, text, strlen(text));
	}
	run_turns(1);
}

/* Those who read hear what is for them; one is gone, and one does not read until later. The same whether
 * there is io_uring or not. */
static void test_many_at_once(void **state)
{
	static struct owner o[MANY];
	int peers[MANY];
	const unsigned gone = 5, slow = 67;
	struct buf got = BUF_INIT;
	char text[64];

	(void)state;
	conn_send_together(true);
	for (unsigned i = 0; i < MANY; i++)
		pair_open(&o[i], &peers[i]);
	fd_fill(conn_fd(o[slow].c));
	close(peers[gone]);
	say_to_all(o, 1);
	assert_int_equal(o[gone].ends, 1);
	assert_true(conn_pending_output(o[slow].c) > 0);
	say_to_all(o, 2);
	for (unsigned i = 0; i < MANY; i++) {
		if (i == gone || i == slow)
			continue;
		assert_int_equal(conn_pending_output(o[i].c), 0);
		fd_drain(peers[i], &got);
		snprintf(text, sizeof(text), "1.%u;2.%u;", i, i);
		assert_string_equal(buf_cstr(&got), text);
		assert_int_equal(conn_bytes_out(o[i].c), strlen(text));
		got.len = 0;
	}
	while (conn_pending_output(o[slow].c) > 0) {
		fd_drain(peers[slow], &got);
		run_turns(1);
	}
	fd_drain(peers[slow], &got);
	assert_true(got.len > 10);
	snprintf(text, sizeof(text), "1.%u;2.%u;", slow, slow);
	assert_string_equal(buf_cstr(&got) + got.len - strlen(text), text);
	for (unsigned i = 0; i < MANY; i++) {
		owner_free(&o[i]);
		if (i != gone)
			close(peers[i]);
	}
	buf_free(&got);
	conn_send_together(false);
}

static void test_unread_of_those_that_count(void **state)
{
	static uint8_t data[400000];
	struct owner o, other;
	int peer, of_other;
	size_t unread;

	(void)state;
	pair_open(&o, &peer);
	pair_open(&other, &of_other);
	conn_write(other.c, data, sizeof(data));
	assert_true(conn_pending_output(other.c) > CONN_HIGH_WATER);
	assert_int_equal(conn_all_unread(), 0);
	conn_count_unread(o.c, true);
	conn_write(o.c, data, sizeof(data));
	unread = conn_pending_output(o.c) - CONN_HIGH_WATER;
	assert_int_equal(conn_all_unread(), unread);
	conn_count_unread(other.c, true);
	assert_true(conn_all_unread() > unread);
	conn_count_unread(other.c, false);
	conn_count_unread(other.c, false);
	assert_int_equal(conn_all_unread(), unread);
	owner_free(&other);
	assert_int_equal(conn_all_unread(), unread);
	owner_free(&o);
	assert_int_equal(conn_all_unread(), 0);
	close(peer);
	close(of_other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_small_writes_are_gathered),
		TEST(test_kept_back),
		TEST(test_large_write_goes_at_once),
		TEST(test_flush),
		TEST(test_slow_reader),
		TEST(test_blocked_with_reading_off),
		TEST(test_backpressure_between_two),
		TEST(test_write_to_a_dead_peer),
		TEST(test_last_words_after_failed_write),
		TEST(test_write_error_alone),
		TEST(test_no_memory_writing),
		TEST(test_many_at_once),
		TEST(test_unread_of_those_that_count),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
