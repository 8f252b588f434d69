/* A connection over a socketpair: how it ends, what it knows of its peer, without memory. */
#include "conn_owner.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_close_inside_data),
		TEST(test_close_inside_data_from_stash),
		TEST(test_close_inside_end),
		TEST(test_close_says_the_last_words),
		TEST(test_alive),
		TEST(test_peers_in_turns),
		TEST(test_no_memory),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
