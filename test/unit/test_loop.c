/* Deadlines, phases, signals, watched descriptors, and the order of a turn. */
#include "net_fixture.h"

#include <signal.h>

static char trail[64];

static void trail_add(char what)
{
	size_t n = strlen(trail);

	if (n + 1 < sizeof(trail)) {
		trail[n] = what;
		trail[n + 1] = '\0';
	}
}

static bool trail_has(void *arg)
{
	return strstr(trail, arg) != NULL;
}

static usec_t tick_note(void *arg, usec_t now)
{
	(void)now;
	trail_add(*(const char *)arg);
	return USEC_NEVER;
}

static bool phase_note(void *arg, usec_t now)
{
	(void)now;
	trail_add(*(const char *)arg);
	return false;
}

static void reap_note(void *arg)
{
	trail_add(*(const char *)arg);
}

static void test_order_of_a_turn(void **state)
{
	struct loop_tick *t;
	int turns = 1;

	(void)state;
	trail[0] = '\0';
	loop_phase(LOOP_PHASE_POOLS, phase_note, "p");
	loop_phase(LOOP_PHASE_QUEUES, phase_note, "q");
	loop_reaper(reap_note, "r");
	t = loop_tick_new(tick_note, "t", 0);
	assert_non_null(t);
	run_until(after_turns, &turns);
	assert_string_equal(trail, "tqpr");
	loop_tick_free(&t);
}

static int again_left;

static bool phase_again(void *arg, usec_t now)
{
	(void)arg, (void)now;
	trail_add('a');
	return again_left-- > 0;
}

static void test_phases_repeat_in_one_turn(void **state)
{
	int turns = 3;

	(void)state;
	trail[0] = '\0';
	again_left = 2;
	loop_phase(LOOP_PHASE_QUEUES, phase_again, NULL);
	loop_reaper(reap_note, "r");
	run_until(after_turns, &turns);
	assert_string_equal(trail, "aaar");
}

static void test_endless_phase_does_not_stop_the_turn(void **state)
{
	int turns = 12;

	(void)state;
	trail[0] = '\0';
	again_left = 1000;
	loop_phase(LOOP_PHASE_QUEUES, phase_again, NULL);
	loop_reaper(reap_note, "r");
	run_until(after_turns, &turns);
	assert_non_null(strchr(trail, 'r'));
}

static void test_tick_comes_at_its_time(void **state)
{
	usec_t due = loop_now() + 20 * USEC_MSEC;
	struct loop_tick *t = loop_tick_new(tick_note, "x", due);

	(void)state;
	assert_non_null(t);
	trail[0] = '\0';
	run_until(trail_has, "x");
	assert_true(loop_now() >= due);
	loop_tick_free(&t);
	assert_null(t);
}

static void test_tick_can_be_made_earlier(void **state)
{
	usec_t start = loop_now();
	struct loop_tick *t = loop_tick_new(tick_note, "x", start + 3600 * USEC_SEC);
	int turns = 1;

	(void)state;
	assert_non_null(t);
	trail[0] = '\0';
	run_until(after_turns, &turns); /* arms the far deadline */
	loop_tick_at(t, loop_now() + USEC_MSEC);
	run_until(trail_has, "x");
	assert_true(loop_now() < start + 60 * USEC_SEC);
	loop_tick_free(&t);
}

static struct loop_tick *self;
static int self_calls;

static usec_t tick_frees_itself(void *arg, usec_t now)
{
	(void)arg, (void)now;
	self_calls++;
	loop_tick_free(&self);
	return 0;
}

static void test_tick_frees_itself(void **state)
{
	(void)state;
	self_calls = 0;
	self = loop_tick_new(tick_frees_itself, NULL, 0);
	assert_non_null(self);
	run_turns(3);
	assert_int_equal(self_calls, 1);
}

static usec_t tick_asks_from_inside(void *arg, usec_t now)
{
	(void)arg;
	if (++self_calls == 1)
		loop_tick_at(self, now + USEC_MSEC);
	else
		loop_stop();
	return USEC_NEVER;
}

static void test_tick_at_from_inside_is_not_lost(void **state)
{
	(void)state;
	self_calls = 0;
	self = loop_tick_new(tick_asks_from_inside, NULL, 0);
	assert_non_null(self);
	loop_run();
	assert_int_equal(self_calls, 2);
	loop_tick_free(&self);
}

static void on_sig(int signo, void *arg)
{
	assert_int_equal(signo, SIGUSR1);
	trail_add(*(const char *)arg);
}

static void test_signal(void **state)
{
	(void)state;
	trail[0] = '\0';
	assert_true(loop_signal(SIGUSR1, on_sig, "s"));
	raise(SIGUSR1);
	run_until(trail_has, "s");
}

/* The loop turns once more while it is taken down; who would answer the signal may be freed. */
static void test_signal_while_ending(void **state)
{
	(void)state;
	trail[0] = '\0';
	assert_true(loop_signal(SIGUSR1, on_sig, "s"));
	assert_true(loop_signal(SIGTERM, on_sig, "t"));
	raise(SIGUSR1);
	loop_free();
	assert_string_equal(trail, "");
	/* and the process is not ended by one that comes after that */
	raise(SIGTERM);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	assert_int_equal(setup_loop(NULL), 0);
}

static struct loop_watch *watch;

static void on_watched(int fd, int mask, void *arg)
{
	char byte;

	(void)arg;
	if (mask & LOOP_READ) {
		trail_add('R');
		assert_int_equal(read(fd, &byte, 1), 1);
		loop_watch_free(&watch);
	} else if (mask & LOOP_WRITE) {
		trail_add('W');
		assert_true(loop_watch_set(watch, LOOP_READ));
	}
}

static void test_watch(void **state)
{
	int sv[2];

	(void)state;
	trail[0] = '\0';
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
	watch = loop_watch_new(sv[0], LOOP_WRITE, on_watched, NULL);
	assert_non_null(watch);
	run_until(trail_has, "W");
	assert_int_equal(write(sv[1], "xy", 2), 2);
	run_until(trail_has, "R");
	run_turns(2);
	assert_string_equal(trail, "WR");
	assert_null(watch);
	close(sv[0]);
	close(sv[1]);
}

static void test_no_memory(void **state)
{
	unsigned long n;

	(void)state;
	loop_free();
	for (n = 1; n < 20; n++) {
		mem_fail_after(n);
		if (loop_init()) {
			struct loop_tick *t = loop_tick_new(tick_note, "x", USEC_NEVER);
			struct loop_watch *w = loop_watch_new(0, 0, on_watched, NULL);

			loop_tick_free(&t);
			loop_watch_free(&w);
			loop_free();
		}
	}
	mem_fail_after(0);
	assert_int_equal(setup_loop(NULL), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_loop, teardown_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_order_of_a_turn),
		TEST(test_phases_repeat_in_one_turn),
		TEST(test_endless_phase_does_not_stop_the_turn),
		TEST(test_tick_comes_at_its_time),
		TEST(test_tick_can_be_made_earlier),
		TEST(test_tick_frees_itself),
		TEST(test_tick_at_from_inside_is_not_lost),
		TEST(test_signal),
		TEST(test_signal_while_ending),
		TEST(test_watch),
		TEST(test_no_memory),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
