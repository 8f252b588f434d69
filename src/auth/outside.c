/*
 * The threads that ask PAM and LDAP: a bounded queue of jobs, verdicts that come back through an
 * eventfd. An address never has all threads, who has the fewest is next, and where the queue is
 * full, who has the most in it loses the last one. Threads are made when they are needed and stay.
 * Entry points: auth/outside.h.
 */
#include "outside_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"

#define THREADS_MAX 8
#define SHARE_MAX   6 /* of the threads, for one address */
#define QUEUE_MAX   256
#define END_SECONDS 2 /* threads that are still busy then are left to the end of the process */

struct outside {
	struct outside *prev, *next;
	struct outside_job job;
	uint64_t origin;
	outside_fn *fn; /* NULL: dropped */
	void *arg;
	enum outside_verdict verdict;
};

/* Of the lock: the three lists, idle, stop. The rest is of the loop's thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct outside *queued, *running, *done;
static unsigned n_queued, idle;
static bool stop;

static pthread_t threads[THREADS_MAX];
static unsigned n_threads;
static int done_fd = -1;
static struct loop_watch *watch;

/* --- jobs --- */

static void text_erase(char **p)
{
	if (*p != NULL)
		util_erase(*p, strlen(*p));
	free(*p);
	*p = NULL;
}

/* In both kinds of threads, so by malloc. */
static void outside_erase(struct outside *o)
{
	text_erase(&o->job.user);
	text_erase(&o->job.password);
	text_erase(&o->job.address);
	text_erase(&o->job.options);
	text_erase(&o->job.pam_dir);
	free(o);
}

static struct outside *outside_new(const struct outside_request *r)
{
	struct outside *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return NULL;
	o->job = (struct outside_job){.type = r->type,
		.user = strdup(r->user),
		.password = strdup(r->password),
		.address = strdup(r->address),
		.options = strdup(r->options),
		.pam_dir = strdup(conf_current()->p.auth_pam_dir)};
	if (o->job.user != NULL && o->job.password != NULL && o->job.address != NULL &&
		o->job.options != NULL && o->job.pam_dir != NULL)
		return o;
	outside_erase(o);
	return NULL;
}

/* --- shares --- */

/* An address as a number: all of IPv4, the /64 of IPv6; 0 is the unix socket. */
static uint64_t origin_of(const char *address)
{
	struct in6_addr a;
	struct in_addr v4;
	uint64_t n;

	if (inet_pton(AF_INET, address, &v4) == 1)
		return v4.s_addr;
	if (inet_pton(AF_INET6, address, &a) != 1)
		return 0;
	memcpy(&n, a.s6_addr, sizeof(n));
	return n;
}

static unsigned count_of(const struct outside *list, uint64_t origin)
{
	unsigned n = 0;

	for (const struct outside *o = list; o != NULL; o = o->next)
		n += o->origin == origin;
	return n;
}

/* Under the lock. The next job: the first of the address that has the fewest threads. */
static struct outside *next_job(void)
{
	struct outside *best = NULL;
	unsigned least = SHARE_MAX;

	for (struct outside *o = queued; o != NULL && least > 0; o = o->next) {
		unsigned n = count_of(running, o->origin);

		if (n < least) {
			least = n;
			best = o;
		}
	}
	return best;
}

/* Under the lock. Whom the queue, which is full, can do without for one more of that address; NULL:
 * nobody has more in it than that one would have. */
static struct outside *least_entitled(uint64_t origin)
{
	unsigned most = count_of(queued, origin) + 1;
	struct outside *victim = NULL;

	if (most > QUEUE_MAX / 2)
		return NULL;
	for (struct outside *o = queued; o != NULL; o = o->next) {
		unsigned n = count_of(queued, o->origin);

		if (n > most || (victim != NULL && n == most)) {
			most = n;
			victim = o; /* the last one of them */
		}
	}
	return victim;
}

/* --- a thread --- */

static void tell_loop(void)
{
	uint64_t one = 1;

	if (write(done_fd, &one, sizeof(one)) < 0)
		return; /* it is full: the loop has been told */
}

static enum outside_verdict run(struct outside_job *j)
{
	enum outside_verdict v = j->type == AUTH_PAM ? pam_check(j) : ldap_check(j);

	text_erase(&j->password);
	return v;
}

static void *thread(void *unused)
{
	struct outside *o;

	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while ((o = next_job()) == NULL && !stop) {
			idle++;
			pthread_cond_wait(&work, &lock);
			idle--;
		}
		if (stop)
			break;
		DL_DELETE(queued, o);
		n_queued--;
		DL_APPEND(running, o);
		pthread_mutex_unlock(&lock);
		o->verdict = run(&o->job);
		pthread_mutex_lock(&lock);
		DL_DELETE(running, o);
		DL_APPEND(done, o);
		tell_loop();
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* --- the loop's side --- */

static struct outside *take_done(void)
{
	struct outside *o;

	pthread_mutex_lock(&lock);
	o = done;
	if (o != NULL)
		DL_DELETE(done, o);
	pthread_mutex_unlock(&lock);
	return o;
}

static void on_done(int fd, int mask, void *arg)
{
	struct outside *o;
	uint64_t count;

	(void)mask, (void)arg;
	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("eventfd: %s", strerror(errno));
	while ((o = take_done()) != NULL) {
		if (o->fn != NULL)
			o->fn(o->arg, o->verdict, o->job.note);
		outside_erase(o);
	}
}

static bool ready(void)
{
	if (watch != NULL)
		return true;
	done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (done_fd < 0)
		return false;
	watch = loop_watch_new(done_fd, LOOP_READ, on_done, NULL);
	if (watch != NULL)
		return true;
	close(done_fd);
	done_fd = -1;
	return false;
}

/* Signals are for the loop. */
static bool thread_make(void)
{
	sigset_t all, before;
	bool ok;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ok = pthread_create(&threads[n_threads], NULL, thread, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	n_threads += ok;
	return ok;
}

/* false: who asks has as many in the queue as anybody. */
static bool make_room(uint64_t origin)
{
	struct outside *victim;

	pthread_mutex_lock(&lock);
	victim = least_entitled(origin);
	if (victim != NULL) {
		DL_DELETE(queued, victim);
		n_queued--;
		victim->verdict = OUTSIDE_CROWDED;
		DL_APPEND(done, victim);
		tell_loop();
	}
	pthread_mutex_unlock(&lock);
	return victim != NULL;
}

struct outside *outside_start(const struct outside_request *r, outside_fn *fn, void *arg)
{
	struct outside *o;
	unsigned waiting, free_hands;

	if (!ready() || (o = outside_new(r)) == NULL)
		return NULL;
	o->fn = fn;
	o->arg = arg;
	o->origin = origin_of(r->address);
	pthread_mutex_lock(&lock);
	waiting = n_queued;
	free_hands = idle;
	pthread_mutex_unlock(&lock);
	if ((waiting >= QUEUE_MAX && !make_room(o->origin)) ||
		(waiting >= free_hands && n_threads < THREADS_MAX && !thread_make() &&
			n_threads == 0)) {
		outside_erase(o);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	DL_APPEND(queued, o);
	n_queued++;
	pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
	return o;
}

void outside_drop(struct outside **p)
{
	struct outside *o = *p, *q;

	*p = NULL;
	if (o == NULL)
		return;
	o->fn = NULL; /* read by the loop's thread only */
	pthread_mutex_lock(&lock);
	DL_FOREACH (queued, q)
		if (q == o)
			break;
	if (q != NULL) {
		DL_DELETE(queued, o);
		n_queued--;
	}
	pthread_mutex_unlock(&lock);
	if (q != NULL)
		outside_erase(o);
}

static void erase_all(struct outside **list)
{
	struct outside *o;

	while ((o = *list) != NULL) {
		DL_DELETE(*list, o);
		outside_erase(o);
	}
}

/* One that hangs in a module of PAM cannot be ended; it and its job stay. */
void outside_free(void)
{
	struct timespec until;
	unsigned left = 0;

	pthread_mutex_lock(&lock);
	stop = true;
	pthread_cond_broadcast(&work);
	pthread_mutex_unlock(&lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_SECONDS;
	for (unsigned i = 0; i < n_threads; i++)
		left += pthread_timedjoin_np(threads[i], NULL, &until) != 0;
	if (watch != NULL)
		loop_watch_free(&watch);
	if (left > 0)
		return;
	n_threads = n_queued = 0;
	stop = false;
	erase_all(&queued);
	erase_all(&done);
	if (done_fd >= 0)
		close(done_fd);
	done_fd = -1;
}

/* --- what can be said before --- */

bool outside_check(enum auth_type t, const char *options, char *err, size_t err_size)
{
	return t != AUTH_LDAP || ldap_check_options(options, err, err_size) == NULL;
}

void outside_options_free(char **p)
{
	if (*p != NULL)
		util_erase(*p, strlen(*p));
	mem_free(*p);
	*p = NULL;
}

/* A comma between options, as a file of rules may have it: behind a closing quote, or alone. One
 * within a bare value is part of it: names in a directory have commas. */
static bool is_separator(const char *start, const char *p)
{
	bool behind = p == start || p[-1] == '"' || p[-1] == ' ' || p[-1] == '\t';

	return *p == ',' && behind && (p[1] == ' ' || p[1] == '\t' || p[1] == '\0');
}

char *outside_lines(const char *text)
{
	const char *start = text;
	char *lines = mem_alloc(strlen(text) + 1), *to = lines;
	bool quoted = false;

	if (lines == NULL)
		return NULL;
	while (*text == ' ' || *text == '\t')
		text++;
	for (; *text != '\0'; text++) {
		if (*text == '"') {
			quoted = !quoted;
		} else if (!quoted &&
			   (*text == ' ' || *text == '\t' || is_separator(start, text))) {
			if (to > lines && to[-1] != '\n')
				*to++ = '\n';
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
	return lines;
}
