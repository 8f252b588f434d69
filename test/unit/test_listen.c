/* Listening on TCP and unix sockets, stale files, pausing, running out of descriptors. */
#include <netinet/tcp.h>

#include "../../src/net/conn_int.h"
#include "listen_fixture.h"

static int accepted[64];
static struct conn_addr accepted_from;
static int accepted_count;

static void on_accept(int fd, const struct conn_addr *peer, void *arg)
{
	assert_null(arg);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	accepted_from = *peer;
	assert_true(accepted_count < (int)ARRAY_LEN(accepted));
	accepted[accepted_count++] = fd;
}

static void accepted_close(void)
{
	while (accepted_count > 0)
		close(accepted[--accepted_count]);
}

static bool accepted_some(void *arg)
{
	return accepted_count >= *(int *)arg;
}

static int dial_tcp(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void unix_address(struct sockaddr_un *un, const char *dir, int port)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	(void)snprintf(un->sun_path, sizeof(un->sun_path), "%.60s/.s.PGSQL.%d", dir, port);
}

static int dial_unix(const char *dir, int port)
{
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	unix_address(&un, dir, port);
	if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
		return fd;
	close(fd);
	return -1;
}

static bool open_spec(struct listen_spec s, char *err, size_t size)
{
	s.backlog = 16;
	err[0] = '\0';
	return listen_open(&s, on_accept, NULL, err, size);
}

static void test_tcp(void **state)
{
	static const char *addrs[] = {"127.0.0.1", "*", "localhost", "127.0.0.1, 127.0.0.2"};
	char err[256];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_LEN(addrs); i++) {
		int port = free_port(), fd, want = 1;

		assert_true(open_spec(
			(struct listen_spec){.addrs = addrs[i], .port = port, .reuseport = i == 1},
			err, sizeof(err)));
		assert_true(listen_count() >= 1);
		fd = dial_tcp(port);
		assert_true(fd >= 0);
		run_until(accepted_some, &want);
		assert_false(accepted_from.is_unix);
		assert_string_equal(accepted_from.host, "127.0.0.1");
		assert_true(accepted_from.port > 0);
		close(fd);
		accepted_close();
		listen_close();
		assert_int_equal(listen_count(), 0);
		assert_int_equal(dial_tcp(port), -1);
	}
}

static int option_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

/* What is accepted has the options that are set now, not those of the time when we began to listen. */
static void test_options(void **state)
{
	static const struct conn_tuning tunings[] = {{.keepalive = true}, {.keepalive = false},
		{.keepalive = true, .keepidle = 77}, {.keepalive = true}};
	int port = free_port(), one = 1, idle;
	char err[256];

	(void)state;
	assert_true(open_spec((struct listen_spec){.addrs = "*", .port = port}, err, sizeof(err)));
	for (size_t i = 0; i < ARRAY_LEN(tunings); i++) {
		int fd = dial_tcp(port);

		conn_tune(&tunings[i], &tunings[i]);
		listen_tune();
		close(fd);
		fd = dial_tcp(port);
		one = accepted_count + 2;
		run_until(accepted_some, &one);
		assert_int_equal(option_of(accepted[1], IPPROTO_TCP, TCP_NODELAY), 1);
		assert_int_equal(
			option_of(accepted[1], SOL_SOCKET, SO_KEEPALIVE), tunings[i].keepalive);
		idle = option_of(accepted[1], IPPROTO_TCP, TCP_KEEPIDLE);
		assert_true(tunings[i].keepidle == 77 ? idle == 77 : idle != 77);
		close(fd);
		accepted_close();
	}
	listen_close();
}

/* All that is different in a printed address of IPv4: digits of each number, and mapped ones. */
static void test_printed_addresses(void **state)
{
	static const char *addrs[] = {
		"0.0.0.0", "255.255.255.255", "1.20.100.99", "10.200.9.101", "127.0.0.1"};
	struct conn_addr out;
	struct net_addr a;
	char mapped[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(addrs); i++) {
		assert_true(net_addr_numeric(&a, addrs[i], 5432));
		net_addr_print(&a, &out);
		assert_string_equal(out.host, addrs[i]);
		assert_int_equal(out.port, 5432);
		(void)snprintf(mapped, sizeof(mapped), "::ffff:%s", addrs[i]);
		assert_true(net_addr_numeric(&a, mapped, 1));
		net_addr_print(&a, &out);
		assert_string_equal(out.host, addrs[i]);
	}
	for (unsigned n = 0; n < 256; n++) {
		(void)snprintf(mapped, sizeof(mapped), "%u.%u.0.%u", n, 255 - n, n);
		assert_true(net_addr_numeric(&a, mapped, 1));
		net_addr_print(&a, &out);
		assert_string_equal(out.host, mapped);
	}
}

static void test_port_in_use(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int port = free_port(), fd = socket(AF_INET, SOCK_STREAM, 0);
	char err[256];

	(void)state;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.sin_port = htons((uint16_t)port);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_false(open_spec(
		(struct listen_spec){.addrs = "127.0.0.1", .port = port}, err, sizeof(err)));
	assert_non_null(strstr(err, "Address already in use"));
	assert_int_equal(listen_count(), 0);
	close(fd);
}

static void test_unix(void **state)
{
	char dir[] = "/tmp/qbtestXXXXXX", err[256];
	struct listen_spec s = {.addrs = "", .port = 6432, .unix_dir = dir, .unix_mode = 0770};
	struct sockaddr_un un;
	struct stat st;
	int fd, want = 1;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_true(open_spec(s, err, sizeof(err)));
	unix_address(&un, dir, 6432);
	assert_int_equal(stat(un.sun_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0770);
	fd = dial_unix(dir, 6432);
	assert_true(fd >= 0);
	run_until(accepted_some, &want);
	assert_true(accepted_from.is_unix);
	assert_int_equal(accepted_from.port, 6432);
	close(fd);
	accepted_close();
	listen_close();
	assert_int_not_equal(stat(un.sun_path, &st), 0);
	rmdir(dir);
}

static void test_stale_and_living_socket_files(void **state)
{
	char dir[] = "/tmp/qbtestXXXXXX", err[256];
	struct listen_spec s = {.port = 6432, .unix_dir = dir, .unix_mode = 0777};
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	assert_non_null(mkdtemp(dir));
	unix_address(&un, dir, 6432);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_false(open_spec(s, err, sizeof(err)));
	assert_non_null(strstr(err, "in use"));
	close(fd); /* the file stays */
	assert_true(open_spec(s, err, sizeof(err)));
	listen_close();
	rmdir(dir);
}

static void test_bad_settings(void **state)
{
	static const struct {
		struct listen_spec spec;
		const char *want;
	} rows[] = {
		{{.addrs = "256.0.0.1", .port = 1}, "256.0.0.1"},
		{{.unix_dir = "/nonexistent", .port = 1, .unix_mode = 0777}, "No such file"},
		{{.unix_dir = "/tmp",
			 .port = 6400,
			 .unix_mode = 0777,
			 .unix_group = "no such group"},
			"no group"},
	};
	char err[256];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_false(open_spec(rows[i].spec, err, sizeof(err)));
		assert_non_null(strstr(err, rows[i].want));
		assert_int_equal(listen_count(), 0);
	}
	assert_int_not_equal(access("/tmp/.s.PGSQL.6400", F_OK), 0);
}

static void test_pause(void **state)
{
	int port = free_port(), fd, want = 1;
	char err[256];

	(void)state;
	assert_true(open_spec(
		(struct listen_spec){.addrs = "127.0.0.1", .port = port}, err, sizeof(err)));
	listen_pause(LISTEN_SUSPENDED, true);
	listen_pause(LISTEN_SUSPENDED, true);
	fd = dial_tcp(port);
	assert_true(fd >= 0);
	run_turns(3);
	assert_int_equal(accepted_count, 0);
	listen_pause(LISTEN_SUSPENDED, false);
	run_until(accepted_some, &want);
	close(fd);
	accepted_close();
	listen_close();
}

/* Accepting stops for a second, and then goes on. */
static void test_out_of_descriptors(void **state)
{
	int port = free_port(), fd, want = 1;
	char err[256];

	(void)state;
	assert_true(open_spec(
		(struct listen_spec){.addrs = "127.0.0.1", .port = port}, err, sizeof(err)));
	fd = dial_tcp(port);
	assert_true(fd >= 0);
	sleeps_without_descriptors();
	assert_int_equal(accepted_count, 0);
	run_until(accepted_some, &want);
	close(fd);
	accepted_close();
	listen_close();
}

static void test_handed_over_by_systemd(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	char err[256], pid[32];
	int port = free_port(), l = socket(AF_INET, SOCK_STREAM, 0), fd, want = 1;

	(void)state;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.sin_port = htons((uint16_t)port);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 4), 0);
	/* Descriptor 3 is the loop's until it is freed. */
	loop_free();
	if (l != 3) {
		assert_int_equal(dup2(l, 3), 3);
		close(l);
	}
	assert_int_equal(setup_loop(NULL), 0);
	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	assert_true(
		open_spec((struct listen_spec){.addrs = "127.0.0.1", .port = 1}, err, sizeof(err)));
	assert_null(getenv("LISTEN_FDS"));
	fd = dial_tcp(port);
	assert_true(fd >= 0);
	run_until(accepted_some, &want);
	close(fd);
	accepted_close();
	listen_close();
}

static void test_no_memory(void **state)
{
	char dir[] = "/tmp/qbtestXXXXXX", err[256];
	struct listen_spec s = {.addrs = "127.0.0.1", .unix_dir = dir, .unix_mode = 0777};
	unsigned long n;

	(void)state;
	assert_non_null(mkdtemp(dir));
	s.port = free_port();
	for (n = 1; n < 6; n++) {
		mem_fail_after(n);
		if (open_spec(s, err, sizeof(err)))
			listen_close();
		else
			assert_string_equal(err, "out of memory");
		mem_fail_after(0);
	}
	assert_int_equal(rmdir(dir), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_loop, teardown_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tcp),
		TEST(test_options),
		TEST(test_printed_addresses),
		TEST(test_port_in_use),
		TEST(test_unix),
		TEST(test_stale_and_living_socket_files),
		TEST(test_bad_settings),
		TEST(test_pause),
		TEST(test_out_of_descriptors),
		TEST(test_no_memory),
		TEST(test_handed_over_by_systemd),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
