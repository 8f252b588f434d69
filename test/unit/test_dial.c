/* Connecting: lists of hosts, names, directories, who does not answer. */
#include "conn_owner.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_connect),
		TEST(test_connect_beside),
		TEST(test_connect_refused),
		TEST(test_connect_long_path),
		TEST(test_connect_unix),
		TEST(test_close_while_connecting),
		TEST(test_unreachable_name),
		TEST(test_no_memory_connecting),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
