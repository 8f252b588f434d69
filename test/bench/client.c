/*
 * The clients of the benchmark that neither pgbench nor Python can be: many thousand sockets, or
 * clocks that matter. One process, one thread, plain sockets, trust authentication.
 *
 *   client idle    TARGET N                       logs in N connections and holds them
 *   client park    TARGET N SQL                   and sends SQL on each, then reads what comes
 *   client latency TARGET SECONDS RATE QUEUE SIZE pushes on a schedule, takes in a second
 * connection client commit  TARGET SECONDS RATE SQL        the time of one statement, on the same
 * schedule client jobs    TARGET N SECONDS COLUMN PUSH TAKE DONE N loops of the three; %s in DONE:
 * COLUMN of TAKE's row
 *
 * TARGET: HOST PORT USER DATABASE; HOST may be the directory of a unix socket. Results are lines
 * "name value" on stdout; idle and park print "ready" and hold until stdin ends; a line on stdin
 * makes them print what they have counted. Any ErrorResponse ends the program with exit code 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FIELD_MAX 256

struct target {
	const char *host, *user, *database;
	int port;
};

struct link {
	int fd;
	int step;
	uint8_t *in;
	size_t len, cap;
	double since;
	char field[FIELD_MAX]; /* the column that was asked for, of the last row */
	bool row;
};

/* What one message was, for those who count. */
struct seen {
	unsigned rows, ready, statuses;
};

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* -- connections ------------------------------------------------------------------------------ */

static int dial(const struct target *t)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
	bool local = t->host[0] == '/';
	struct sockaddr *sa = local ? (struct sockaddr *)&un : (struct sockaddr *)&in;
	int fd = socket(sa->sa_family, SOCK_STREAM, 0), one = 1;

	if (fd < 0)
		die("socket");
	if (local)
		snprintf(un.sun_path, sizeof(un.sun_path), "%s/.s.PGSQL.%d", t->host, t->port);
	else if (inet_pton(AF_INET, t->host, &in.sin_addr) != 1)
		die(t->host);
	if (connect(fd, sa, local ? sizeof(un) : sizeof(in)) != 0)
		die("connect");
	if (!local)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void put_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			die("send");
		p += n;
		len -= (size_t)n;
	}
}

static size_t put_startup(uint8_t *dst, const struct target *t)
{
	size_t n = 8;
	const char *words[] = {"user", t->user, "database", t->database, NULL};

	for (int i = 0; words[i]; i++) {
		strcpy((char *)dst + n, words[i]);
		n += strlen(words[i]) + 1;
	}
	dst[n++] = 0;
	*(uint32_t *)(void *)dst = htonl((uint32_t)n);
	*(uint32_t *)(void *)(dst + 4) = htonl(3 << 16);
	return n;
}

static size_t add_query(uint8_t *dst, const char *sql)
{
	size_t len = strlen(sql) + 1;
	uint32_t be = htonl((uint32_t)len + 4);

	dst[0] = 'Q';
	memcpy(dst + 1, &be, 4);
	memcpy(dst + 5, sql, len);
	return len + 5;
}

static void put_query(struct link *l, const char *sql)
{
	uint8_t msg[8192];

	if (strlen(sql) > sizeof(msg) - 8)
		exit(2);
	put_all(l->fd, msg, add_query(msg, sql));
}

static void error_exit(const uint8_t *p, const uint8_t *end)
{
	fputs("error:", stderr);
	while (p < end && *p) {
		if (strchr("SCMDH", *p))
			fprintf(stderr, " %s", (const char *)p + 1);
		p += strlen((const char *)p) + 1;
	}
	fputs("\n", stderr);
	exit(1);
}

/* Column `column` of a DataRow. */
static void keep_field(struct link *l, const uint8_t *p, int column)
{
	uint32_t n;

	for (p += 2;; p += n) {
		memcpy(&n, p, 4);
		n = ntohl(n);
		p += 4;
		if (n == UINT32_MAX)
			n = 0;
		if (column-- == 0)
			break;
	}
	n = n < FIELD_MAX - 1 ? n : FIELD_MAX - 1;
	memcpy(l->field, p, n);
	l->field[n] = '\0';
	l->row = true;
}

/* One recv, and all messages that are complete by then. */
static void receive(struct link *l, int column, struct seen *seen)
{
	size_t at = 0;
	ssize_t n;
	uint32_t len;

	if (l->cap - l->len < 1024) {
		l->cap = l->cap ? l->cap * 2 : 1024;
		l->in = realloc(l->in, l->cap);
		if (!l->in)
			die("realloc");
	}
	n = recv(l->fd, l->in + l->len, l->cap - l->len, 0);
	if (n <= 0)
		die(n == 0 ? "the connection was closed" : "recv");
	l->len += (size_t)n;
	for (; l->len - at >= 5; at += len + 1) {
		const uint8_t *m = l->in + at;

		memcpy(&len, m + 1, 4);
		len = ntohl(len);
		if (l->len - at < (size_t)len + 1)
			break;
		if (m[0] == 'E')
			error_exit(m + 5, m + 1 + len);
		if (m[0] == 'D') {
			keep_field(l, m + 5, column);
			seen->rows++;
		}
		seen->ready += m[0] == 'Z';
		seen->statuses += m[0] == 'S';
	}
	memmove(l->in, l->in + at, l->len - at);
	l->len -= at;
}

static void wait_ready(struct link *l, unsigned count)
{
	struct seen seen = {0};

	while (seen.ready < count)
		receive(l, 0, &seen);
}

static void log_in(struct link *l, const struct target *t)
{
	uint8_t msg[512];

	l->fd = dial(t);
	put_all(l->fd, msg, put_startup(msg, t));
	wait_ready(l, 1);
}

static struct link *log_in_many(const struct target *t, int n)
{
	struct rlimit lim = {(rlim_t)n + 64, (rlim_t)n + 64};
	struct link *links = calloc((size_t)n, sizeof(*links));

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < (rlim_t)n + 64) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	if (!links)
		die("calloc");
	for (int i = 0; i < n; i++)
		log_in(&links[i], t);
	return links;
}

static int epoll_of(struct link *links, int n)
{
	int ep = epoll_create1(0);

	for (int i = 0; i < n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &links[i]};

		if (epoll_ctl(ep, EPOLL_CTL_ADD, links[i].fd, &ev) != 0)
			die("epoll_ctl");
	}
	return ep;
}

/* -- figures ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void print_times(const char *name, double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	if (n == 0)
		return;
	printf("%s_p50_us %.1f\n%s_p99_us %.1f\n%s_max_us %.1f\n", name, v[n / 2] * 1e6, name,
		v[n * 99 / 100] * 1e6, name, v[n - 1] * 1e6);
}

/* -- idle, park ------------------------------------------------------------------------------- */

static int hold(struct link *links, int n)
{
	struct epoll_event ev = {.events = EPOLLIN}, got[256];
	struct seen seen = {0};
	int ep = epoll_of(links, n), count;
	char line[64];

	if (epoll_ctl(ep, EPOLL_CTL_ADD, 0, &ev) != 0)
		die("epoll_ctl stdin");
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		count = epoll_wait(ep, got, 256, -1);
		for (int i = 0; i < count; i++) {
			if (got[i].data.ptr) {
				receive(got[i].data.ptr, 0, &seen);
				continue;
			}
			if (read(0, line, sizeof(line)) <= 0)
				return 0;
			printf("counted %u %u\n", seen.rows, seen.statuses);
			fflush(stdout);
		}
	}
}

static int do_idle(const struct target *t, char **arg)
{
	int n = atoi(arg[0]);

	return hold(log_in_many(t, n), n);
}

static int do_park(const struct target *t, char **arg)
{
	int n = atoi(arg[0]);
	struct link *links = log_in_many(t, n);

	for (int i = 0; i < n; i++)
		put_query(&links[i], arg[1]);
	return hold(links, n);
}

/* -- latency ---------------------------------------------------------------------------------- */

struct sample {
	double sent, ready, got;
};

#define DONE_MAX 16 /* jobs finished by one statement */

/* Three connections: one pushes, one only takes, so that it waits again at once, one finishes. */
struct latency {
	struct link push, take, done;
	struct sample *s;
	int n, sent, ready, got, finished;
	bool finishing; /* a DONE is under way */
	char (*tokens)[64];
	const char *queue;
	char *payload;
};

static void latency_push(struct latency *x)
{
	char sql[4096];

	snprintf(sql, sizeof(sql), "QUEUE PUSH %s '{\"n\": %d, \"pad\": \"%s\"}'", x->queue,
		x->sent, x->payload);
	x->s[x->sent++].sent = now();
	put_query(&x->push, sql);
}

static void latency_take(struct latency *x)
{
	char sql[512];

	snprintf(sql, sizeof(sql), "QUEUE TAKE %s WAIT '1 min'", x->queue);
	put_query(&x->take, sql);
}

/* All that were taken meanwhile. */
static void latency_finish(struct latency *x)
{
	char sql[DONE_MAX * 80] = "QUEUE DONE";
	size_t len = strlen(sql);
	int i;

	if (x->finishing || x->finished == x->got)
		return;
	for (i = 0; i < DONE_MAX && x->finished < x->got; i++, x->finished++)
		len += (size_t)snprintf(sql + len, sizeof(sql) - len, "%s '%s'", i ? "," : "",
			x->tokens[x->finished]);
	put_query(&x->done, sql);
	x->finishing = true;
}

/* Jobs come in the order of the pushes: one pusher, one taker, one priority. */
static void latency_row(struct latency *x)
{
	struct seen seen = {0};
	double t;

	receive(&x->take, 1, &seen);
	t = now();
	if (seen.rows) {
		if (strlen(x->take.field) >= sizeof(*x->tokens)) {
			fprintf(stderr, "a token of %zu bytes\n", strlen(x->take.field));
			exit(1);
		}
		strcpy(x->tokens[x->got], x->take.field);
		x->s[x->got++].got = t;
	}
	if (!seen.ready)
		return;
	if (!x->take.row) {
		fprintf(stderr, "a wait ended without a job\n");
		exit(1);
	}
	x->take.row = false;
	if (x->got < x->n)
		latency_take(x);
}

static void latency_step(struct latency *x, double until)
{
	struct pollfd p[3] = {
		{x->push.fd, POLLIN, 0}, {x->take.fd, POLLIN, 0}, {x->done.fd, POLLIN, 0}};
	double left = until - now();
	struct timespec ts = {0, 0};
	struct seen seen = {0}, done = {0};

	if (left > 0) {
		ts.tv_sec = (time_t)left;
		ts.tv_nsec = (long)((left - (double)ts.tv_sec) * 1e9);
	}
	if (ppoll(p, 3, &ts, NULL) < 0)
		die("ppoll");
	if (p[1].revents)
		latency_row(x);
	if (p[0].revents) {
		receive(&x->push, 0, &seen);
		if (seen.ready)
			x->s[x->ready++].ready = now();
	}
	if (p[2].revents) {
		receive(&x->done, 0, &done);
		x->finishing = !done.ready;
	}
	latency_finish(x);
}

static void latency_report(struct latency *x)
{
	double *v = calloc((size_t)x->n, sizeof(*v));

	for (int i = 0; i < x->n; i++)
		v[i] = x->s[i].got - x->s[i].sent;
	print_times("sent", v, (size_t)x->n);
	for (int i = 0; i < x->n; i++)
		v[i] = x->s[i].got - x->s[i].ready;
	print_times("acknowledged", v, (size_t)x->n);
	for (int i = 0; i < x->n; i++)
		v[i] = x->s[i].ready - x->s[i].sent;
	print_times("push", v, (size_t)x->n);
	printf("count %d\n", x->n);
}

static int do_latency(const struct target *t, char **arg)
{
	double rate = atof(arg[1]), start, end;
	struct latency x = {.queue = arg[2], .n = (int)(atof(arg[0]) * rate)};
	int size = atoi(arg[3]);

	x.payload = calloc(1, (size_t)size + 1);
	x.s = calloc((size_t)x.n, sizeof(*x.s));
	x.tokens = calloc((size_t)x.n, sizeof(*x.tokens));
	if (!x.payload || !x.s || !x.tokens || size > 3000)
		die("latency");
	memset(x.payload, 'x', (size_t)size);
	log_in(&x.push, t);
	log_in(&x.take, t);
	log_in(&x.done, t);
	latency_take(&x);
	start = now() + 0.2;
	end = start + x.n / rate + 30;
	while (x.got < x.n || x.ready < x.n) {
		double due = x.sent < x.n ? start + x.sent / rate : end;

		if (now() > end) {
			fprintf(stderr, "%d of %d jobs came\n", x.got, x.n);
			return 1;
		}
		/* one push at a time: a slow one delays the next, and is measured as it is */
		if (x.sent < x.n && x.ready == x.sent && now() >= due)
			latency_push(&x);
		else
			latency_step(&x, x.ready == x.sent ? due : end);
	}
	latency_report(&x);
	return 0;
}

static int do_commit(const struct target *t, char **arg)
{
	double rate = atof(arg[1]), start, at, *v;
	int n = (int)(atof(arg[0]) * rate);
	struct link l = {0};

	v = calloc((size_t)n, sizeof(*v));
	if (!v)
		die("calloc");
	log_in(&l, t);
	start = now();
	for (int i = 0; i < n; i++) {
		double left = start + i / rate - now();

		if (left > 0)
			usleep((useconds_t)(left * 1e6));
		at = now();
		put_query(&l, arg[2]);
		wait_ready(&l, 1);
		v[i] = now() - at;
	}
	print_times("commit", v, (size_t)n);
	return 0;
}

/* -- jobs ------------------------------------------------------------------------------------- */

enum { STEP_PUSH, STEP_TAKE, STEP_DONE, STEPS };

struct jobs {
	char **sql;
	int column;
	unsigned long done, empty;
	double from;
};

static void jobs_send(struct jobs *x, struct link *l)
{
	char sql[4096];

	if (l->step == STEP_DONE) {
		const char *at = strstr(x->sql[STEP_DONE], "%s");

		snprintf(sql, sizeof(sql), "%.*s%s%s", (int)(at - x->sql[STEP_DONE]),
			x->sql[STEP_DONE], l->field, at + 2);
		put_query(l, sql);
		return;
	}
	put_query(l, x->sql[l->step]);
}

static void jobs_answer(struct jobs *x, struct link *l)
{
	struct seen seen = {0};

	receive(l, x->column, &seen);
	if (!seen.ready)
		return;
	if (l->step == STEP_TAKE && !l->row) {
		x->empty++;
	} else {
		if (l->step == STEP_DONE && now() >= x->from)
			x->done++;
		l->step = (l->step + 1) % STEPS;
	}
	l->row = false;
	jobs_send(x, l);
}

static int do_jobs(const struct target *t, char **arg)
{
	int n = atoi(arg[0]), ep, count;
	double seconds = atof(arg[1]);
	struct jobs x = {.sql = arg + 3, .column = atoi(arg[2])};
	struct link *links = log_in_many(t, n);
	struct epoll_event got[128];

	if (!strstr(x.sql[STEP_DONE], "%s"))
		return 2;
	ep = epoll_of(links, n);
	x.from = now() + seconds / 5; /* the first fifth warms up */
	for (int i = 0; i < n; i++)
		jobs_send(&x, &links[i]);
	while (now() < x.from + seconds) {
		count = epoll_wait(ep, got, 128, 100);
		for (int i = 0; i < count; i++)
			jobs_answer(&x, got[i].data.ptr);
	}
	printf("rate %.1f\nempty %lu\n", (double)x.done / seconds, x.empty);
	return 0;
}

/* -- what is wanted --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int args;
	int (*fn)(const struct target *t, char **arg);
} modes[] = {
	{"idle", 1, do_idle},
	{"park", 2, do_park},
	{"latency", 4, do_latency},
	{"commit", 3, do_commit},
	{"jobs", 6, do_jobs},
};

int main(int argc, char **argv)
{
	struct target t;

	if (argc < 6)
		return 2;
	t = (struct target){
		.host = argv[2], .port = atoi(argv[3]), .user = argv[4], .database = argv[5]};
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0 && argc == 6 + modes[i].args)
			return modes[i].fn(&t, argv + 6);
	fprintf(stderr, "unknown mode or wrong number of arguments\n");
	return 2;
}
