/*
 * Connections that repeat the same statements: one job, or a batch of jobs, at a time.
 *
 *   client loop TARGET N SECONDS LIMIT COLUMN QUOTE QUEUES PAUSE STEP...
 *
 * In a STEP, %s becomes COLUMN of all rows of the step before, with commas, each between QUOTE (a
 * character or nothing), %1 that of the first; when there was no row (or a null), the step before is repeated, after
 * PAUSE milliseconds. %d becomes the number of a queue below QUEUES, another one in each turn.
 *
 * Runs SECONDS, after a fifth of that for warming up; or, when LIMIT is given (not 0), until that
 * many rows have been worked on (turns, if there is one step only) or a step finds nothing,
 * whatever comes first. Prints "rate" (turns per second, warmed up), "turns", "rows" (all),
 * "seconds" (with a LIMIT up to the end of the last turn), "cpu" (seconds of its own) and "empty".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "link.h"

struct text {
	char *s;
	size_t len, cap;
};

struct looper {
	struct link link;
	struct loop *loop;
	int step;
	unsigned queue;
	unsigned rows; /* of the answer that is coming */
	struct text fields, sql;
	double paused; /* repeat the step then; 0: not */
};

struct loop {
	char **steps;
	int n_steps, column, n, queues, running;
	const char *quote;
	double pause, from, last; /* last: when a turn has ended */
	unsigned long limit, turns, counted, rows, empty;
};

static void text_add(struct text *t, const char *s, size_t len)
{
	if (t->cap - t->len <= len) {
		t->cap = (t->cap + len) * 2 + 64;
		t->s = realloc(t->s, t->cap);
		if (!t->s)
			die("realloc");
	}
	memcpy(t->s + t->len, s, len);
	t->len += len;
	t->s[t->len] = '\0';
}

/* Does a statement need what the step before it has given? */
static bool refers(const char *step)
{
	return strstr(step, "%s") || strstr(step, "%1");
}

static bool wants_rows(const struct loop *l, int step)
{
	return step + 1 < l->n_steps && refers(l->steps[step + 1]);
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct looper *x = arg;
	const struct loop *l = x->loop;
	size_t n;
	const char *field;

	/* a step that nobody refers to, an answer without columns */
	if (len < 6 || !wants_rows(l, x->step))
		return;
	field = row_field(body, l->column, &n);
	if (!field)
		return;
	if (x->rows++ > 0 && !strstr(l->steps[x->step + 1], "%s"))
		return;
	if (x->rows > 1)
		text_add(&x->fields, ",", 1);
	text_add(&x->fields, l->quote, strlen(l->quote));
	text_add(&x->fields, field, n);
	text_add(&x->fields, l->quote, strlen(l->quote));
}

static void send_step(struct looper *x)
{
	const char *p = x->loop->steps[x->step], *at;
	char number[16];

	x->sql.len = 0;
	for (; (at = strchr(p, '%')) != NULL; p = at + 2) {
		text_add(&x->sql, p, (size_t)(at - p));
		if (at[1] == 's' || at[1] == '1') {
			text_add(&x->sql, x->fields.s, x->fields.len);
			continue;
		}
		snprintf(number, sizeof(number), "%u", x->queue);
		text_add(&x->sql, number, strlen(number));
	}
	text_add(&x->sql, p, strlen(p));
	x->fields.len = 0;
	x->rows = 0;
	put_query(&x->link, x->sql.s);
}

/* The answer to a step is complete. */
static void advance(struct looper *x)
{
	struct loop *l = x->loop;

	if (wants_rows(l, x->step) && x->rows == 0) {
		l->empty++;
		if (l->limit > 0) {
			l->running--;
			return;
		}
		if (l->pause > 0) {
			x->paused = now() + l->pause;
			return;
		}
		put_query(&x->link, x->sql.s);
		return;
	}
	l->rows += x->rows;
	if (++x->step == l->n_steps) {
		x->step = 0;
		x->queue = (unsigned)(random() % l->queues);
		l->turns++;
		l->last = now();
		if (l->last >= l->from)
			l->counted++;
	}
	if (l->limit > 0 && x->step == 0 && (l->n_steps > 1 ? l->rows : l->turns) >= l->limit) {
		l->running--;
		return;
	}
	send_step(x);
}

static void resume(struct looper *all, int n)
{
	double at = now();

	for (int i = 0; i < n; i++) {
		if (all[i].paused == 0 || all[i].paused > at)
			continue;
		all[i].paused = 0;
		put_query(&all[i].link, all[i].sql.s);
	}
}

static int begin(struct loop *l, struct looper *all, struct link *links)
{
	int ep = epoll_create1(0);

	for (int i = 0; i < l->n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &all[i]};

		all[i].link = links[i];
		all[i].loop = l;
		all[i].queue = (unsigned)(random() % l->queues);
		if (epoll_ctl(ep, EPOLL_CTL_ADD, links[i].fd, &ev) != 0)
			die("epoll_ctl");
		send_step(&all[i]);
	}
	return ep;
}

int do_loop(const struct target *t, char **arg)
{
	double seconds = atof(arg[1]), start;
	struct loop l = {.n = atoi(arg[0]),
		.limit = strtoul(arg[2], NULL, 10),
		.column = atoi(arg[3]),
		.quote = arg[4],
		.queues = atoi(arg[5]),
		.pause = atof(arg[6]) / 1000,
		.steps = arg + 7};
	struct looper *all = need((size_t)l.n, sizeof(*all));
	struct link *links = log_in_many(t, l.n);
	struct epoll_event got[128];
	struct timespec began, ended;
	int ep, count;

	while (l.steps[l.n_steps])
		l.n_steps++;
	if (l.n_steps == 0 || l.queues < 1)
		return 2;
	l.running = l.n;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
	start = now();
	l.from = l.limit > 0 ? start : start + seconds / 5;
	ep = begin(&l, all, links);
	while (l.running > 0 && now() < l.from + seconds) {
		count = epoll_wait(ep, got, 128, l.pause > 0 ? 1 : 100);
		for (int i = 0; i < count; i++) {
			struct looper *x = got[i].data.ptr;
			struct seen seen = {.row = on_row, .arg = x};

			receive(&x->link, &seen);
			if (seen.ready)
				advance(x);
		}
		if (l.pause > 0)
			resume(all, l.n);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
	printf("rate %.1f\nturns %lu\nrows %lu\nseconds %.4f\ncpu %.4f\nempty %lu\n",
		(double)l.counted / (now() - l.from), l.turns, l.rows,
		(l.limit > 0 && l.turns > 0 ? l.last : now()) - start,
		(double)(ended.tv_sec - began.tv_sec) +
			(double)(ended.tv_nsec - began.tv_nsec) / 1e9,
		l.empty);
	return 0;
}
