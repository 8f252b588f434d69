/*
 * Runs dialogues: scenario [-v] [-1] [-l] FILE...  (-v: with the log; -1: as written only; -l:
 * leaks are looked for after each replay, which is slow), or random ones: scenario -r [-s SEED] [-n
 * COUNT]. Each is played as written; with all bytes of the peers arriving one by one; once for each
 * step and each mishap that can follow it (a client or server is gone, a client cancels, the
 * database goes down, time passes); once for each allocation of the program, that allocation
 * failing. After each of them everything must be at rest. In the last two expectations are not
 * looked at. A dialogue runs in a process of its own, so that a crash names the replay and the
 * others still run.
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
#include "random.h"
#include "script.h"
#include "store.h"
#include "workers.h"

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

#define MAX_SESSIONS 8
/* Above, only some of the allocations are failed. */
#define MAX_ALLOC_REPLAYS 400
#define MANY_ALLOCATIONS  1000000ul
#define DIALOGUE_SECONDS  300
#define LATE              (5 * USEC_SEC)

enum mishap {
	CLIENT_CLOSES,
	CLIENT_RESETS,
	CLIENT_CANCELS,
	SERVER_CLOSES,
	SERVER_RESETS,
	DATABASE_DOWN,
	TIME_PASSES,
	MISHAPS
};

struct replay {
	bool byte_by_byte, lenient;
	int after; /* index of the step that the mishap follows; -1: none */
	enum mishap mishap;
	int whom;           /* the n-th of those connected, from 0 */
	unsigned long fail; /* the n-th allocation; 0: none */
};

/* What the parent can still read when the child has crashed. */
static char *progress;
static char users_file[] = "/tmp/qbscenarioXXXXXX";
static int replays;
static bool leaks_each_time;

static const struct {
	const char *name;
	bool of_client; /* happens to each client, else to each server, else once */
	bool of_server;
	bool ends; /* the rest of the dialogue is left out */
} mishaps[MISHAPS] = {
	[CLIENT_CLOSES] = {"client %d closes after line %d", true, false, false},
	[CLIENT_RESETS] = {"client %d resets after line %d", true, false, true},
	[CLIENT_CANCELS] = {"client %d cancels after line %d", true, false, false},
	[SERVER_CLOSES] = {"server %d closes after line %d", false, true, false},
	[SERVER_RESETS] = {"server %d resets after line %d", false, true, true},
	[DATABASE_DOWN] = {"database down (%d) after line %d", false, false, false},
	[TIME_PASSES] = {"time passes (%d) after line %d", false, false, false},
};

static void describe(const struct script *s, const struct replay *r)
{
	const char *slash = strrchr(s->path, '/');
	char text[200] = "as written";

	if (r->byte_by_byte)
		(void)snprintf(text, sizeof(text), "byte by byte");
	else if (r->after >= 0)
		(void)snprintf(text, sizeof(text), mishaps[r->mishap].name, r->whom,
			s->steps[r->after].line);
	else if (r->fail)
		(void)snprintf(text, sizeof(text), "allocation %lu fails", r->fail);
	(void)snprintf(progress, 400, "%s, %s", slash ? slash + 1 : s->path, text);
	replays++;
}

/* --- one replay --- */

static bool is_session(const struct actor *a)
{
	return a->id > 0 && !actor_gone(a);
}

/* The n-th session of that side; NULL: there are fewer. */
static struct actor *session_at(bool client, int n)
{
	struct actor *a;

	for (a = actors_first(); a; a = a->next)
		if (a->client == client && is_session(a) && n-- == 0)
			return a;
	return NULL;
}

static const char *database_down(void)
{
	struct actor *a;

	servers_refuse("Connection refused");
	for (a = actors_first(); a; a = a->next)
		if (!a->client && is_session(a))
			actor_bye(a, false);
	return script_settle();
}

/* False: there is nobody to whom it could happen. */
static bool happen(const struct replay *r, const char **trouble)
{
	struct actor *a = NULL;

	if (mishaps[r->mishap].of_client || mishaps[r->mishap].of_server) {
		a = session_at(mishaps[r->mishap].of_client, r->whom);
		if (!a)
			return false;
	} else if (r->whom > 0) {
		return false;
	}
	switch (r->mishap) {
	case CLIENT_CANCELS:
		*trouble = script_cancel(a);
		return true;
	case DATABASE_DOWN:
		*trouble = database_down();
		return true;
	case TIME_PASSES:
		*trouble = script_time(600 * USEC_SEC);
		return true;
	case CLIENT_RESETS:
	case SERVER_RESETS:
		actor_bye(a, true);
		break;
	default:
		actor_bye(a, false);
		break;
	}
	*trouble = script_settle();
	return true;
}

/* Without memory, or without a server, a job is not given back: its lease runs out. */
static bool leases_may_stay(const struct script *s, const struct replay *r)
{
	return s->leases_stay || r->fail > 0 || (r->after >= 0 && !mishaps[r->mishap].of_client);
}

/* *ret_happened: whether the mishap took place. */
static const char *play_steps(
	const struct script *s, const struct replay *r, int *ret_line, bool *ret_happened)
{
	const char *trouble = NULL;
	int i;

	for (i = 0; i < s->count && !trouble; i++) {
		*ret_line = s->steps[i].line;
		trouble = step_run(&s->steps[i], r->lenient);
		if (i != r->after || trouble)
			continue;
		*ret_happened = happen(r, &trouble);
		if (mishaps[r->mishap].ends)
			break;
	}
	if (!trouble && !r->lenient)
		trouble = script_unexpected();
	if (trouble)
		return trouble;
	*ret_line = 0;
	return script_finish(leases_may_stay(s, r), r->lenient ? LATE : 0);
}

static bool leaked(const char *what)
{
#ifdef WITH_LSAN
	if (__lsan_do_recoverable_leak_check()) {
		fprintf(stderr, "%s: leaks, the last replay was: %s\n", what, progress);
		return true;
	}
#endif
	(void)what;
	return false;
}

/* The program's boot and end around a dialogue. What was wrong, or NULL. */
static const char *with_program(
	const char *settings, const char *databases, const char *(*dialogue)(void *arg), void *arg)
{
	static char text[100];
	const char *trouble = "the program does not start";
	int left;

	fake_net_init();
	actors_init();
	store_init();
	if (program_start(settings, databases, users_file)) {
		trouble = dialogue(arg);
		mem_fail_after(0);
		workers_end();
		program_end();
	}
	actors_free();
	store_free();
	left = fake_net_free();
	if (!left || trouble)
		return trouble;
	(void)snprintf(text, sizeof(text), "%d connections were never closed", left);
	return text;
}

struct playing {
	const struct script *s;
	const struct replay *r;
	int line;
	bool happened;
	unsigned long left; /* of MANY_ALLOCATIONS */
};

static unsigned long allocations_left(void)
{
	unsigned long left = 1;
	void *p;

	while ((p = mem_alloc(1))) {
		mem_free(p);
		left++;
	}
	return left;
}

static const char *play_replay(void *arg)
{
	struct playing *p = arg;
	const char *trouble;

	fake_byte_by_byte(p->r->byte_by_byte);
	mem_fail_after(p->r->fail);
	trouble = play_steps(p->s, p->r, &p->line, &p->happened);
	if (p->r->fail == MANY_ALLOCATIONS)
		p->left = allocations_left();
	return trouble;
}

static bool play(struct playing *p)
{
	const char *trouble;

	describe(p->s, p->r);
	trouble = with_program(
		(char *)p->s->settings.data, (char *)p->s->databases.data, play_replay, p);
	if (trouble)
		fprintf(stderr, "%s:%d: %s\n  (%s)\n", p->s->path, p->line, trouble, progress);
	return !trouble && !(leaks_each_time && leaked(p->s->path));
}

static bool play_one(const struct script *s, const struct replay *r)
{
	return play(&(struct playing){.s = s, .r = r});
}

/* --- all replays of a dialogue --- */

/* The mishap, after that step, to each whom it can happen to. */
static bool play_mishap(const struct script *s, int after, enum mishap m)
{
	struct replay r = {.lenient = true, .after = after, .mishap = m};

	for (; r.whom < MAX_SESSIONS; r.whom++) {
		struct playing p = {.s = s, .r = &r};

		if (!play(&p))
			return false;
		if (!p.happened)
			break;
	}
	return true;
}

static bool play_mishaps(const struct script *s)
{
	bool ok = true;
	int i, m;

	for (i = 0; i < s->count; i++)
		for (m = 0; m < MISHAPS && ok && step_acts(&s->steps[i]); m++)
			ok = play_mishap(s, i, (enum mishap)m);
	return ok;
}

static unsigned long count_allocations(const struct script *s)
{
	struct replay r = {.after = -1, .lenient = true, .fail = MANY_ALLOCATIONS};
	struct playing p = {.s = s, .r = &r};

	return play(&p) ? MANY_ALLOCATIONS - p.left : 0;
}

static bool play_failures(const struct script *s)
{
	struct replay r = {.after = -1, .lenient = true};
	unsigned long total = count_allocations(s), stride = total / MAX_ALLOC_REPLAYS + 1;

	for (r.fail = 1; r.fail <= total; r.fail += stride)
		if (!play_one(s, &r))
			return false;
	return total > 0;
}

/* --- random dialogues --- */

struct chance {
	unsigned seed;
	bool trace;
};

static const char *play_chance(void *arg)
{
	const struct chance *c = arg;

	fake_byte_by_byte(c->seed % 4 == 3);
	if (c->seed % 3 == 2)
		mem_fail_after(c->seed % 1500 + 1);
	return random_play(c->seed, c->trace);
}

/* Some with a small pool, some in session pooling. */
static bool play_random(unsigned first, unsigned count, bool trace)
{
	static const char *const settings[] = {"", "default_pool_size = 1\n",
		"pool_mode = session\n",
		"default_pool_size = 2\nmax_prepared_statements = 2\nserver_lifetime = 5\n"};
	struct chance c = {.seed = first, .trace = trace};
	const char *trouble;

	for (; c.seed < first + count; c.seed++) {
		(void)snprintf(progress, 400, "seed %u", c.seed);
		trouble = with_program(settings[c.seed % ARRAY_LEN(settings)], "", play_chance, &c);
		if (trouble)
			fprintf(stderr, "seed %u: %s\n", c.seed, trouble);
		if (trouble || (leaks_each_time && leaked("random")))
			return false;
		replays++;
	}
	return !leaked("random");
}

static bool play_all(const char *path, bool only_as_written)
{
	struct replay plain = {.after = -1}, bytes = {.after = -1, .byte_by_byte = true};
	unsigned seed, count;
	struct script s;
	bool ok;

	script_load(&s, path);
	/* A file that only says: random SEED COUNT. */
	if (s.count > 0 && sscanf(s.steps[0].text, "random %u %u", &seed, &count) == 2) {
		script_free(&s);
		return play_random(seed, count, false);
	}
	ok = play_one(&s, &plain) && !leaked(path);
	if (!only_as_written) {
		ok = ok && play_one(&s, &bytes) && !leaked(path);
		ok = ok && play_mishaps(&s) && !leaked(path);
		ok = ok && play_failures(&s) && !leaked(path);
	}
	script_free(&s);
	return ok;
}

/* --- processes --- */

static void quiet_log(bool verbose)
{
	struct log_target t = {.to_stderr = verbose, .verbose = verbose ? 2 : 0};

	if (!log_open(&t))
		fprintf(stderr, "no log\n");
}

struct options {
	bool verbose, only_as_written, random;
	unsigned seed, count;
};

static bool dialogue(const char *path, const struct options *o)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		bool ok;

		alarm(DIALOGUE_SECONDS);
		quiet_log(o->verbose);
		ok = o->random ? play_random(o->seed, o->count, o->verbose)
			       : play_all(path, o->only_as_written);
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
	static const char text[] =
		"\"alice\" \"secret\"\n\"bob\" \"secret\"\n\"carol\" \"secret\"\n";
	int fd = mkstemp(users_file);
	bool ok = fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)(sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return ok;
}

static void options_read(int argc, char **argv, struct options *o)
{
	int opt;

	*o = (struct options){.count = 200};
	while ((opt = getopt(argc, argv, "v1lrs:n:")) != -1) {
		o->verbose |= opt == 'v';
		o->only_as_written |= opt == '1';
		o->random |= opt == 'r';
		leaks_each_time |= opt == 'l';
		if (opt == 's')
			o->seed = (unsigned)strtoul(optarg, NULL, 10);
		if (opt == 'n')
			o->count = (unsigned)strtoul(optarg, NULL, 10);
	}
}

int main(int argc, char **argv)
{
	struct options o;
	int failed = 0;

	options_read(argc, argv, &o);
	progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED || !users_write()) {
		perror("scenario");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (o.random)
		failed = !dialogue("random", &o);
	for (; optind < argc; optind++)
		failed += !dialogue(argv[optind], &o);
	(void)unlink(users_file);
	return failed > 0;
}
