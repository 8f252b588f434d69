/* The small HTTP server: what it answers, and what a stranger who is slow or many can do to it. */
#include "listen_fixture.h"

#include "../../src/http/http_int.h"

#define MOST 8

static size_t big;
static unsigned asked;

static bool reply(const char *path, struct http_reply *r)
{
	asked++;
	if (strcmp(path, "/later") == 0)
		return false;
	if (strcmp(path, "/ok") == 0) {
		http_reply_text(r, 200, "ok\n");
		return true;
	}
	if (strcmp(path, "/big") != 0) {
		http_reply_text(r, 404, "not there\n");
		return true;
	}
	r->code = 200;
	r->type = "text/plain";
	for (size_t i = 0; i < big; i++)
		buf_putc(&r->body, 'x');
	return true;
}

static int port;

static void open_server(usec_t patience)
{
	struct serve_spec spec = {.addr = "127.0.0.1",
		.port = port = free_port(),
		.most = MOST,
		.patience = patience,
		.answer = reply};
	char err[256];

	asked = 0;
	serve_start();
	assert_true(serve_open(&spec, err, sizeof(err)));
}

static int dial(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* What has come up to the end. */
struct answer {
	int fd;
	size_t len;
	bool ended;
	char text[1024]; /* the beginning */
};

static bool answer_ended(void *arg)
{
	struct answer *a = arg;
	char some[65536];
	ssize_t n;

	while ((n = recv(a->fd, some, sizeof(some), 0)) > 0) {
		for (ssize_t i = 0; i < n && a->len + (size_t)i + 1 < sizeof(a->text); i++)
			a->text[a->len + (size_t)i] = some[i];
		a->len += (size_t)n;
	}
	a->ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
	return a->ended;
}

/* The loop turns on by itself while a test waits. */
static void until(bool (*cond)(void *arg), void *arg)
{
	struct loop_tick *t = loop_tick_new(tick_always, NULL, 0);

	assert_non_null(t);
	run_until(cond, arg);
	loop_tick_free(&t);
}

static void expect(int fd, const char *begin, const char *part)
{
	struct answer a = {.fd = fd};

	until(answer_ended, &a);
	assert_memory_equal(a.text, begin, strlen(begin));
	assert_non_null(strstr(a.text, part));
	close(fd);
}

static void ask(const char *request, const char *begin, const char *part)
{
	int fd = dial();

	say(fd, request);
	expect(fd, begin, part);
}

static void test_answers(void **state)
{
	(void)state;
	open_server(60 * USEC_SEC);
	ask("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n");
	ask("GET /ok?a=b HTTP/1.0\n\n", "HTTP/1.1 200 OK\r\n", "Content-Length: 3\r\n");
	ask("GET /nothing HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", "not there");
	assert_int_equal(asked, 3);
	ask("POST /ok HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n");
	ask("GET /ok HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 ", "ok\n");
	ask("GET /ok HTTP/1.1\r\ncontent-LENGTH: 5\r\n\r\n12345", "HTTP/1.1 413 ", "");
	ask("GET /ok HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 413 ", "");
	ask("\r\n\r\n", "HTTP/1.1 400 ", "");
	ask("GET\r\n\r\n", "HTTP/1.1 400 ", "");
	ask("GET /ok\r\n\r\n", "HTTP/1.1 400 ", "");
	ask("GET  HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "");
	ask("GET /ok HTTP/2.0\r\n\r\n", "HTTP/1.1 400 ", "");
	assert_int_equal(asked, 4);
	serve_close();
}

static void test_head_has_no_body(void **state)
{
	struct answer a = {0};

	(void)state;
	open_server(60 * USEC_SEC);
	a.fd = dial();
	say(a.fd, "HEAD /ok HTTP/1.1\r\n\r\n");
	until(answer_ended, &a);
	assert_non_null(strstr(a.text, "Content-Length: 3\r\n"));
	assert_string_equal(a.text + a.len - 4, "\r\n\r\n");
	close(a.fd);
	serve_close();
}

/* Byte by byte, and longer than it may be. */
static bool has_asked(void *arg)
{
	return asked >= *(unsigned *)arg;
}

/* Who waits gets the answer when it is there, who has gone does not, and who comes behind it is not answered by it. */
static void test_answer_that_comes_later(void **state)
{
	int one, two, gone, late;
	unsigned n = 3;
	struct http_reply r = {.body = BUF_INIT};

	(void)state;
	open_server(60 * USEC_SEC);
	one = dial();
	two = dial();
	gone = dial();
	say(one, "GET /later HTTP/1.1\r\n\r\n");
	say(two, "HEAD /later HTTP/1.1\r\n\r\n");
	say(gone, "GET /later HTTP/1.1\r\n\r\n");
	until(has_asked, &n);
	close(gone);
	http_reply_text(&r, 200, "at last\n");
	serve_answer_waiting(&r);
	late = dial();
	say(late, "GET /later HTTP/1.1\r\n\r\n");
	n = 4;
	until(has_asked, &n);
	expect(one, "HTTP/1.1 200 OK\r\n", "\r\n\r\nat last\n");
	expect(two, "HTTP/1.1 200 OK\r\n", "Content-Length: 8\r\n");
	serve_answer_waiting(&r);
	expect(late, "HTTP/1.1 200 OK\r\n", "at last\n");
	buf_free(&r.body);
	serve_close();
}

static void test_pieces(void **state)
{
	const char *text = "GET /ok HTTP/1.1\r\nHost: there\r\n\r\n";
	struct answer a = {0};
	char *much = calloc(1, 20000);

	(void)state;
	open_server(60 * USEC_SEC);
	a.fd = dial();
	for (; *text != '\0'; text++) {
		assert_int_equal(send(a.fd, text, 1, MSG_NOSIGNAL), 1);
		run_turns(2);
	}
	until(answer_ended, &a);
	assert_non_null(strstr(a.text, "200 OK"));
	close(a.fd);
	memset(much, 'a', 19999);
	ask(much, "HTTP/1.1 431 ", "");
	free(much);
	serve_close();
}

/* More than the kernel takes at once; who asks has closed his half meanwhile. */
static void test_big_answer(void **state)
{
	struct answer a = {0};

	(void)state;
	big = 8000000;
	open_server(60 * USEC_SEC);
	a.fd = dial();
	say(a.fd, "GET /big HTTP/1.1\r\n\r\n");
	assert_int_equal(shutdown(a.fd, SHUT_WR), 0);
	until(answer_ended, &a);
	assert_true(a.len > big && a.len < big + 1000);
	close(a.fd);
	serve_close();
}

/* However many say nothing, who asks is answered; no more than MOST are kept. */
static void test_many_who_say_nothing(void **state)
{
	int fds[5 * MOST], open = 0;
	char byte;

	(void)state;
	open_server(3600 * USEC_SEC);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = dial();
		run_turns(3);
	}
	ask("GET /ok HTTP/1.1\r\n\r\n", "HTTP/1.1 200 ", "ok\n");
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		open += recv(fds[i], &byte, 1, 0) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
		close(fds[i]);
	}
	assert_in_range(open, 1, MOST);
	serve_close();
}

/* Bytes that come now and then do not lengthen the time. */
static int dripping;

static bool drip_ended(void *arg)
{
	struct answer *a = arg;

	if (answer_ended(a))
		return true;
	(void)!send(dripping, "a", 1, MSG_NOSIGNAL);
	return false;
}

static void test_slow_request(void **state)
{
	struct answer a = {0};

	(void)state;
	open_server(200 * USEC_MSEC);
	a.fd = dripping = dial();
	say(a.fd, "GET /ok HTTP/1.1\r\nX: ");
	until(drip_ended, &a);
	close(a.fd);
	assert_int_equal(asked, 0);
	serve_close();
}

/* Who does not read his answer, likewise. */
static bool nobody_left(void *arg)
{
	return send(*(int *)arg, "a", 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN &&
	       errno != EWOULDBLOCK;
}

static void test_answer_that_is_not_read(void **state)
{
	int fd;

	(void)state;
	big = 20000000;
	open_server(200 * USEC_MSEC);
	fd = dial();
	say(fd, "GET /big HTTP/1.1\r\n\r\n");
	until(nobody_left, &fd);
	close(fd);
	serve_close();
}

/* Who waited is served when there are some again. */
static void test_out_of_descriptors(void **state)
{
	int fd;

	(void)state;
	open_server(3600 * USEC_SEC);
	fd = dial();
	sleeps_without_descriptors();
	say(fd, "GET /ok HTTP/1.1\r\n\r\n");
	expect(fd, "HTTP/1.1 200 ", "ok\n");
	serve_close();
}

static void test_taken_port(void **state)
{
	struct serve_spec spec;
	char err[256] = "";

	(void)state;
	open_server(USEC_SEC);
	spec = (struct serve_spec){.addr = "127.0.0.1", .port = port, .most = 1, .answer = reply};
	serve_close();
	{
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(listen(fd, 1), 0);
		assert_false(serve_open(&spec, err, sizeof(err)));
		assert_non_null(strstr(err, strerror(EADDRINUSE)));
		close(fd);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_loop, teardown_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answers),
		TEST(test_head_has_no_body),
		TEST(test_answer_that_comes_later),
		TEST(test_pieces),
		TEST(test_big_answer),
		TEST(test_many_who_say_nothing),
		TEST(test_slow_request),
		TEST(test_answer_that_is_not_read),
		TEST(test_out_of_descriptors),
		TEST(test_taken_port),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
