/*
 * Connections that speak the Postgres protocol, as the benchmark's clients need them: plain
 * sockets, trust authentication unless the caller answers. An ErrorResponse that nobody expects ends the program with exit code 1.
 *
 * Must not know: what is measured.
 */
#ifndef BENCH_LINK_H
#define BENCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target {
	const char *host, *user, *database; /* host: an address or the directory of a unix socket */
	int port;
};

struct link {
	int fd;
	uint8_t key[8]; /* of its BackendKeyData: process and secret */
	uint8_t *in;
	size_t len, cap;
};

/* What came, for those who count. */
struct seen {
	unsigned rows, ready, statuses, columns; /* columns: RowDescriptions */
	/* for each DataRow: the message's body, its length */
	void (*row)(void *arg, const uint8_t *body, size_t len);
	/* for each message of the authentication: the same */
	void (*auth)(void *arg, const uint8_t *body, size_t len);
	/* an ErrorResponse of this SQLSTATE: is it one that may come? Without: none may */
	bool (*error)(void *arg, const char *sqlstate);
	void *arg;
};

/* Prints what and errno, ends the program. */
void die(const char *what) __attribute__((noreturn));
/* Memory that is there. */
void *need(size_t count, size_t size);
/* Seconds of the monotonic clock. */
double now(void);
/* A socket to host (address or directory) and port; name: of the socket in that directory. */
int dial(const struct target *t);

/* The first message. */
void put_startup(struct link *l, const struct target *t);
void log_in(struct link *l, const struct target *t);
/* n connections that are logged in. */
struct link *log_in_many(const struct target *t, int n);
/* All data, however long it takes. */
void put_all(int fd, const void *data, size_t len);
void put_query(struct link *l, const char *sql);
/* A new connection that asks to cancel what l runs; it is closed by the other side. */
int put_cancel(const struct link *l, const struct target *t);
/* One recv, and all messages that are complete by then. */
void receive(struct link *l, struct seen *seen);
void wait_ready(struct link *l, unsigned count);
/* Ends the program with what the body of an ErrorResponse says. */
void error_exit(const uint8_t *p, const uint8_t *end) __attribute__((noreturn));
/* Column of a DataRow: its text, and the length. NULL and length 0 for a null. */
const char *row_field(const uint8_t *body, int column, size_t *ret_len);

/* Lines "name_p50_us value" and so on; sorts v, in seconds. */
void print_times(const char *name, double *v, size_t n);

/* The modes of the program: arguments behind the target. */
int do_idle(const struct target *t, char **arg);
int do_park(const struct target *t, char **arg);
int do_latency(const struct target *t, char **arg);
int do_commit(const struct target *t, char **arg);
int do_login(const struct target *t, char **arg);
int do_loop(const struct target *t, char **arg);
int do_pace(const struct target *t, char **arg);
int do_cancel(const struct target *t, char **arg);
int do_read(const struct target *t, char **arg);
int do_write(const struct target *t, char **arg);
int do_beanstalkd(const struct target *t, char **arg);
int do_redis(const struct target *t, char **arg);
int do_nats(const struct target *t, char **arg);
int do_rabbitmq(const struct target *t, char **arg);

#endif
