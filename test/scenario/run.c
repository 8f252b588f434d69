/*
 * Runs dialogues: scenario [-v] [-1] [-l] FILE...  (-v: with the log; -1: as written only; -l:
 * leaks are looked for after each replay, which is slow). Each is played as written; with all bytes
 * of the peers arriving one by one; once for each step and client, that client being cut off after
 * the step; once for each allocation of the program, that allocation failing. After each of them
 * everything must be at rest. In the last two expectations are not looked at. A dialogue runs in a
 * process of its own, so that a crash names the replay and the others still run.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "base/log.h"
#include "base/mem.h"
#include "program.h"
#include "script.h"
#include "store.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_LSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_LSAN 1
#endif
#endif
#ifdef WITH_LSAN
#include <sanitizer/lsan_interface.h>
#endif

#define MAX_CLIENTS 8
/* Above, only some of the allocations are failed. */
#define MAX_ALLOC_REPLAYS 400
#define MANY_ALLOCATIONS  1000000ul
#define DIALOGUE_SECONDS  300

struct replay {
	bool byte_by_byte, lenient;
	int cut_after;      /* index of a step; -1: none */
	int cut_client;     /* the n-th of those connected, from 0 */
	bool cut_reset;     /* and nothing else happens afterwards */
	unsigned long fail; /* the n-th allocation; 0: none */
};

/* What the parent can still read when the child has crashed. */
static char *progress;
static char users_file[] = "/tmp/qbscenarioXXXXXX";
static int replays;
static bool leaks_each_time;

static void describe(const struct script *s, const struct replay *r)
{
	const char *slash = strrchr(s->path, '/');
	char text[200] = "as written";

	if (r->byte_by_byte)
		(void)snprintf(text, sizeof(text), "byte by byte");
	else if (r->cut_after >= 0)
		(void)snprintf(text, sizeof(text), "client %d cut (%s) after line %d",
			r->cut_client, r->cut_reset ? "reset" : "close",
			s->steps[r->cut_after].line);
	else if (r->fail)
		(void)snprintf(text, sizeof(text), "allocation %lu fails", r->fail);
	(void)snprintf(progress, 400, "%s, %s", slash ? slash + 1 : s->path, text);
	replays++;
}

/* -- one replay ------------------------------------------------------------------------------- */

static struct actor *client_at(int n)
{
	struct actor *a;

	for (a = actors_first(); a; a = a->next)
		if (a->client && a->id > 0 && !actor_gone(a) && n-- == 0)
			return a;
	return NULL;
}

/* False: there is no such client at that step. */
static bool cut(const struct replay *r, const char **trouble)
{
	struct actor *a = client_at(r->cut_client);

	if (!a)
		return false;
	actor_bye(a, r->cut_reset);
	*trouble = script_settle();
	return true;
}

static bool ends_here(const struct replay *r, int i)
{
	return i == r->cut_after && r->cut_reset;
}

/* *ret_cut: whether the cut took place. */
static const char *play_steps(
	const struct script *s, const struct replay *r, int *ret_line, bool *ret_cut)
{
	const char *trouble = NULL;
	int i;

	for (i = 0; i < s->count && !trouble; i++) {
		*ret_line = s->steps[i].line;
		trouble = step_run(&s->steps[i], r->lenient);
		if (i == r->cut_after && !trouble)
			*ret_cut = cut(r, &trouble);
		if (ends_here(r, i))
			break;
	}
	if (!trouble && !r->lenient)
		trouble = script_unexpected();
	if (trouble)
		return trouble;
	*ret_line = 0;
	return script_finish(r->fail > 0);
}

static bool leaked(const struct script *s)
{
#ifdef WITH_LSAN
	if (__lsan_do_recoverable_leak_check()) {
		fprintf(stderr, "%s: leaks, the last replay was: %s\n", s->path, progress);
		return true;
	}
#endif
	(void)s;
	return false;
}

static bool play(const struct script *s, const struct replay *r, bool *ret_cut)
{
	const char *trouble;
	int line = 0, left;

	describe(s, r);
	fake_net_init();
	actors_init();
	store_init();
	fake_byte_by_byte(r->byte_by_byte);
	if (!program_start((char *)s->settings.data, (char *)s->databases.data, users_file)) {
		fprintf(stderr, "%s: the program does not start\n", s->path);
		return false;
	}
	mem_fail_after(r->fail);
	trouble = play_steps(s, r, &line, ret_cut);
	if (r->fail != MANY_ALLOCATIONS)
		mem_fail_after(0);
	if (trouble)
		fprintf(stderr, "%s:%d: %s\n  (%s)\n", s->path, line, trouble, progress);
	program_end();
	actors_free();
	store_free();
	left = fake_net_free();
	if (left && !trouble)
		fprintf(stderr, "%s: %d connections were never closed\n  (%s)\n", s->path, left,
			progress);
	return !trouble && !left && !(leaks_each_time && leaked(s));
}

/* -- all replays of a dialogue ---------------------------------------------------------------- */

static bool play_cuts(const struct script *s)
{
	struct replay r = {.lenient = true};
	bool ok = true, was_cut;
	int reset;

	for (r.cut_after = 0; r.cut_after < s->count && ok; r.cut_after++) {
		if (!step_acts(&s->steps[r.cut_after]))
			continue;
		for (reset = 0; reset < 2; reset++)
			for (r.cut_client = 0; r.cut_client < MAX_CLIENTS && ok; r.cut_client++) {
				r.cut_reset = reset;
				was_cut = false;
				ok = play(s, &r, &was_cut);
				if (!was_cut)
					break;
			}
	}
	return ok;
}

static unsigned long count_allocations(const struct script *s)
{
	struct replay r = {.cut_after = -1, .lenient = true, .fail = MANY_ALLOCATIONS};
	unsigned long left = 1;
	bool was_cut;
	void *p;

	if (!play(s, &r, &was_cut))
		return 0;
	while ((p = mem_alloc(1))) {
		mem_free(p);
		left++;
	}
	return MANY_ALLOCATIONS - left;
}

static bool play_failures(const struct script *s)
{
	struct replay r = {.cut_after = -1, .lenient = true};
	unsigned long total = count_allocations(s), stride = total / MAX_ALLOC_REPLAYS + 1;
	bool was_cut;

	for (r.fail = 1; r.fail <= total; r.fail += stride)
		if (!play(s, &r, &was_cut))
			return false;
	return total > 0;
}

static bool play_all(const char *path, bool only_as_written)
{
	struct replay plain = {.cut_after = -1}, bytes = {.cut_after = -1, .byte_by_byte = true};
	struct script s;
	bool was_cut, ok;

	script_load(&s, path);
	ok = play(&s, &plain, &was_cut) && !leaked(&s);
	if (!only_as_written) {
		ok = ok && play(&s, &bytes, &was_cut) && !leaked(&s);
		ok = ok && play_cuts(&s) && !leaked(&s);
		ok = ok && play_failures(&s) && !leaked(&s);
	}
	script_free(&s);
	return ok;
}

/* -- processes -------------------------------------------------------------------------------- */

static void quiet_log(bool verbose)
{
	struct log_target t = {.to_stderr = verbose, .verbose = verbose ? 2 : 0};

	if (!log_open(&t))
		fprintf(stderr, "no log\n");
}

static bool dialogue(const char *path, bool verbose, bool only_as_written)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		bool ok;

		alarm(DIALOGUE_SECONDS);
		quiet_log(verbose);
		ok = play_all(path, only_as_written);
		log_close();
		if (ok)
			printf("ok   %s (%d replays)\n", path, replays);
		fflush(stdout);
		exit(!ok);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: killed by signal %d\n", path, WTERMSIG(status));
	printf("FAIL %s: %s\n", path, progress);
	return false;
}

static bool users_write(void)
{
	static const char text[] = "\"alice\" \"secret\"\n\"bob\" \"secret\"\n";
	int fd = mkstemp(users_file);
	bool ok = fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)(sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return ok;
}

int main(int argc, char **argv)
{
	bool verbose = false, only_as_written = false;
	int opt, failed = 0;

	while ((opt = getopt(argc, argv, "v1l")) != -1) {
		verbose |= opt == 'v';
		only_as_written |= opt == '1';
		leaks_each_time |= opt == 'l';
	}
	progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED || !users_write()) {
		perror("scenario");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (; optind < argc; optind++)
		failed += !dialogue(argv[optind], verbose, only_as_written);
	(void)unlink(users_file);
	return failed > 0;
}
