/* Reading over socketpairs and loopback: all at once, in pieces, off and on, and how it ends. */
#include "conn_owner.h"

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
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
