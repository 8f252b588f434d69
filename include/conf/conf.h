/*
 * Configuration: pgbouncer.ini. Parsed into a fresh struct, checked whole, swapped in. Readers hold
 * no pointers into it across loop turns except through the objects below that say so.
 */
#ifndef QB_CONF_CONF_H
#define QB_CONF_CONF_H

#include <limits.h>

#include "base/buf.h"
#include "base/util.h"

enum pool_mode { POOL_MODE_SESSION, POOL_MODE_TRANSACTION, POOL_MODE_STATEMENT, POOL_MODE_UNSET };
enum auth_type {
	AUTH_ANY,
	AUTH_TRUST,
	AUTH_PLAIN,
	AUTH_MD5,
	AUTH_SCRAM,
	AUTH_HBA,
	AUTH_CERT,
	AUTH_PAM,
	AUTH_LDAP,
	AUTH_PEER,  /* of rules in auth_hba_file only */
	AUTH_REJECT /* the same */
};
/* Of TLS, in rising strictness. */
enum log_style { LOG_STYLE_PLAIN, LOG_STYLE_JSON };

enum sslmode {
	SSLMODE_DISABLE,
	SSLMODE_ALLOW,
	SSLMODE_PREFER,
	SSLMODE_REQUIRE,
	SSLMODE_VERIFY_CA,
	SSLMODE_VERIFY_FULL,
	SSLMODE_UNSET
};
/* How TLS towards a server begins: with SSLRequest, or at once (PostgreSQL 17 and newer). */
enum tls_negotiation { TLS_NEGOTIATION_POSTGRES, TLS_NEGOTIATION_DIRECT, TLS_NEGOTIATION_UNSET };
/* Which of several hosts a database entry may use, and in which order. */
enum target_attrs { TARGET_ANY, TARGET_PRIMARY, TARGET_STANDBY, TARGET_PREFER_STANDBY, TARGET_UNSET };
enum balance_hosts { BALANCE_ROUND_ROBIN, BALANCE_DISABLE, BALANCE_UNSET };
const char *pool_mode_name(
	enum pool_mode m); /* "session", "transaction", "statement", "" for UNSET */
const char *auth_type_name(enum auth_type t);
/* Why this program cannot authenticate in that way (a library is missing in it); NULL: it can. */
const char *conf_auth_type_missing(enum auth_type t);
const char *sslmode_name(enum sslmode m);

/* Flags of a row of conf/params.h. */
enum conf_flag {
	PARAM_RELOAD = 0,        /* RELOAD and SET change it */
	PARAM_RESTART = 1 << 0,  /* only a restart does */
	PARAM_INERT = 1 << 5,    /* a key of pgbouncer that has nothing to act on here; never reported */
	PARAM_SECRET = 1 << 2,   /* shown as *** and never part of a message */
	PARAM_OCTAL = 1 << 3,    /* an int written in octal */
	PARAM_COMPUTED = 1 << 4, /* shown only; the program fills it */
};

/* What auth_query is when nothing is set: that of pgbouncer. */
#define CONF_AUTH_QUERY                                                                           \
	"SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM "     \
	"pg_authid WHERE rolname=$1 AND rolcanlogin"

/* Longest time a parameter can have: 68 years, far from any overflow. */
#define CONF_TIME_MAX ((int64_t)INT32_MAX * (int64_t)USEC_SEC)

/* One typed field per row of conf/params.h: int, bool, usec_t (times), int64_t (sizes),
 * char * (never NULL, "" when unset), enums. */
struct params {
#define PARAM_STR(name, ...)        char *name;
#define PARAM_INT(name, ...)        int name;
#define PARAM_BOOL(name, ...)       bool name;
#define PARAM_TIME(name, ...)       usec_t name;
#define PARAM_SIZE(name, ...)       int64_t name;
#define PARAM_ENUM(name, type, ...) enum type name;
#include "conf/params.h"
};

/* An entry of [databases]. Unset numbers are -1, unset strings NULL, unset times USEC_NEVER. */
struct conf_database {
	char *name; /* "*" for the fallback */
	char *host, *dbname, *user, *password, *connect_query;
	char *auth_user, *auth_query, *auth_dbname;
	int port, pool_size, min_pool_size, reserve_pool_size, max_db_connections,
		max_db_client_connections;
	enum pool_mode pool_mode;
	enum target_attrs target_session_attrs;
	enum balance_hosts load_balance_hosts;
	usec_t server_lifetime, query_wait_timeout;
	char *client_encoding, *datestyle, *timezone, *application_name;
	bool queue; /* attended though no client has come, by queue_user, */
	char *queue_user, *queue_password, *queue_run_roles; /* the role of the proxy's own session (LISTEN); whose jobs may run there */
	enum sslmode server_tls_sslmode;
	enum tls_negotiation server_tls_negotiation;
	char *server_tls_key_file, *server_tls_cert_file, *server_tls_ca_file;
	struct conf_database *next;
};

/* An entry of [users]. */
struct conf_user {
	char *name;
	enum pool_mode pool_mode;
	int pool_size, reserve_pool_size, max_user_connections, max_user_client_connections;
	usec_t query_timeout, query_wait_timeout, idle_transaction_timeout, transaction_timeout,
		client_idle_timeout;
	struct conf_user *next;
};

/* An entry of [peers]: another process that cancel requests are handed to. */
struct conf_peer {
	int id;
	char *host;
	int port, pool_size;
	struct conf_peer *next;
};

struct conf {
	struct params p;
	struct conf_database *databases;
	struct conf_user *users;
	struct conf_peer *peers;
	unsigned generation; /* counts loads */
};

/* Messages of a load: "file:line: error|warning: text", a line each. Starts as {0}; the text is
 * released with buf_free(). Secrets are never part of it. */
struct conf_report {
	struct buf text;
	int errors, warnings;
	char readable[256]; /* file with a secret that others can read, which was told of last */
};

/* Reads and checks a file. NULL when there was an error (the report says which). */
MUST_CHECK struct conf *conf_load(const char *path, struct conf_report *report);
/* What can be read of a file with errors, so that other files can be looked at as well; never to be
 * put in force then. NULL: not even that. */
MUST_CHECK struct conf *conf_load_partly(const char *path, struct conf_report *report);
/* The same from memory, where %include is refused. name is what messages call the text. */
MUST_CHECK struct conf *conf_load_text(
	const char *name, const char *text, size_t len, struct conf_report *report);
void conf_free(struct conf **p);

/* The configuration in force. NULL only before the first conf_install(). */
const struct conf *conf_current(void);
/* Who is queue_user where an entry says this of it (NULL: nothing); "": nobody. */
const char *conf_queue_user(const char *user, const char *password, const char **ret_password);
/* In force, but for what only a restart changes (a warning); frees the old one. */
void conf_install(struct conf *c, struct conf_report *report);
/* Frees the configuration in force, at the end of the program. */
void conf_uninstall(void);

const struct conf_database *conf_find_database(
	const struct conf *c, const char *name); /* exact, then "*" , else NULL */
const struct conf_user *conf_find_user(const struct conf *c, const char *name);

/* SET key = 'value' on the console: checks, applies to what is in force. false: err says why. */
MUST_CHECK bool conf_set(const char *key, const char *value, char *err, size_t err_size);

/* For SHOW CONFIG and the generators, in the order of params.h. */
void conf_each_param(const struct params *p,
	void (*fn)(const char *name, const char *value, const char *def, bool reloadable,
		const char *help, void *arg),
	void *arg);

/* Is `name`, exactly, in the comma-separated list (admin_users, stats_users,
 * ignore_startup_parameters)? */
bool conf_list_has(const char *list, const char *name);

#endif
