/*
 * Snapshots for the console and metrics: copies, no pointers into the pool. Times in microseconds.
 */
#ifndef QB_POOLER_STAT_H
#define QB_POOLER_STAT_H

#include "base/util.h"
#include "conf/conf.h"
#include "pool/counters.h"

struct stat_database {
	const char *name, *host, *dbname, *force_user;
	int port, pool_size, min_pool_size, reserve_pool_size, max_connections, current_connections;
	int max_client_connections, current_client_connections;
	usec_t server_lifetime;
	enum pool_mode mode;
	const char *load_balance_hosts; /* NULL: one host */
	bool paused, disabled;
	struct pool_stats total, avg;
	struct pool_times times;
};

struct stat_pool {
	const char *database, *user;
	unsigned cl_active, cl_waiting, sv_active, sv_active_cancel, sv_being_canceled, sv_idle, sv_used, sv_tested, sv_login;
	unsigned cl_active_cancel_req;
	unsigned cl_parked; /* waiting in a QUEUE statement */
	unsigned sv_queue;  /* used by the queue engine */
	unsigned sv_engine; /* the queue engine's own */
	unsigned sv_kept;   /* for the next job of a queue (session = keep) */
	unsigned sv_pinned; /* kept by clients beyond their transactions */
	usec_t maxwait;
	enum pool_mode mode;
	const char *load_balance_hosts; /* NULL: one host */
};

struct stat_session { /* client or server */
	const char *type; /* "C" or "S" */
	const char *user, *database, *state, *addr, *local_addr, *application_name;
	int port, local_port, remote_pid, prepared_statements;
	usec_t connect_time_us; /* wall clock, since 1970 */
	usec_t request_time_us;
	usec_t wait;
	bool close_needed;
	bool engine; /* the queue engine's own */
	const char *pinned; /* why a client keeps its server, or "" */
	uint64_t id, link_id;
	size_t unread, unsent; /* bytes in our memory */
	int fd; /* -1: none */
	int link_fd;
	const char *client_encoding, *std_strings, *datestyle, *timezone;
	const char *tls; /* version/cipher/key exchange; "" in plain text */
};

struct stat_totals { /* SHOW LISTS */
	unsigned databases, users, pools, free_clients, used_clients, login_clients, free_servers, used_servers;
};

struct stat_user {
	const char *name;
	enum pool_mode mode;
	int pool_size, reserve_pool_size, max_user_connections, max_user_client_connections;
	unsigned connections, client_connections;
};

/* Over all databases, in the last stats_period. */
void stat_averages(struct pool_stats *ret);

/* Strings are valid during the call of fn. */
/* Cancel requests that a peer is being given. */
unsigned stat_peer_cancels(int peer);
void stat_each_database(void (*fn)(const struct stat_database *st, void *arg), void *arg);
/* The rows of the console, which the lists do not have: it is no database. */
void stat_console_database(struct stat_database *ret);
void stat_console_pool(struct stat_pool *ret);
void stat_console_query(void); /* it was asked something */
void stat_each_pool(void (*fn)(const struct stat_pool *st, void *arg), void *arg);
void stat_each_client(void (*fn)(const struct stat_session *st, void *arg), void *arg);
void stat_each_server(void (*fn)(const struct stat_session *st, void *arg), void *arg);
void stat_each_user(void (*fn)(const struct stat_user *st, void *arg), void *arg);
/* Errors that clients got, from servers and from us, by SQLSTATE. */
void stat_each_error(void (*fn)(const char *sqlstate, uint64_t count, void *arg), void *arg);
void stat_totals(struct stat_totals *ret);

#endif
