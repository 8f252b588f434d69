/* The channel between two processes: messages, descriptors, and the end of one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "net/channel.h"

static void make(int ends[2])
{
	assert_true(channel_pair(ends));
}

static void say(int fd, const char *text)
{
	assert_int_equal(channel_send(fd, text, strlen(text), NULL, 0), CHANNEL_OK);
}

static void assert_hears(int fd, const char *text)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0;

	assert_int_equal(channel_receive(fd, &b, fds, &n), CHANNEL_OK);
	assert_int_equal(b.len, strlen(text));
	assert_memory_equal(b.data, text, b.len);
	assert_int_equal(n, 0);
	buf_free(&b);
}

static void assert_ended(int fd)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0;

	assert_int_equal(channel_receive(fd, &b, fds, &n), CHANNEL_END);
	buf_free(&b);
}

/* What was said before the end is heard, also by one whom the other did not listen to any more. */
static void test_last_words(void **state)
{
	int ends[2];

	(void)state;
	for (int unheard = 0; unheard < 2; unheard++) {
		make(ends);
		say(ends[1], "one");
		say(ends[1], "two");
		if (unheard)
			say(ends[0], "hello?");
		close(ends[1]);
		assert_hears(ends[0], "one");
		assert_hears(ends[0], "two");
		assert_ended(ends[0]);
		close(ends[0]);
	}
}

static void test_nothing_yet(void **state)
{
	struct buf b = BUF_INIT;
	int ends[2], fds[CHANNEL_FDS], n = 0;

	(void)state;
	make(ends);
	assert_int_equal(channel_receive(ends[0], &b, fds, &n), CHANNEL_LATER);
	assert_false(channel_wait(ends[0], &b, fds, &n, 1));
	buf_free(&b);
	close(ends[0]);
	close(ends[1]);
}

/* They arrive with their message, and do not stay open in a program that is started. */
static void test_descriptors(void **state)
{
	struct buf b = BUF_INIT;
	int ends[2], fds[CHANNEL_FDS], n = 0, pipe_ends[2];
	char c = 0;

	(void)state;
	make(ends);
	assert_int_equal(pipe(pipe_ends), 0);
	assert_int_equal(channel_send(ends[0], "x", 1, pipe_ends, 2), CHANNEL_OK);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	assert_int_equal(channel_receive(ends[1], &b, fds, &n), CHANNEL_OK);
	assert_int_equal(n, 2);
	assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(fds[1], "y", 1), 1);
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	close(fds[0]);
	close(fds[1]);
	buf_free(&b);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_nothing_yet),
		cmocka_unit_test(test_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
