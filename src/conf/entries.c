/*
 * Entries of [databases] and [users]: their keys, a row each, and their connection strings. The
 * struct that a row fills is in conf/conf.h. Entry points: table_int.h.
 */
#include "table_int.h"

#include <string.h>

#include "base/mem.h"

enum { NAME_MAX_BYTES = 63 }; /* as in Postgres: NAMEDATALEN - 1 */

#define STR(type, n, max, flags, help)                                                             \
	{                                                                                          \
#n, FIELD_STR, flags, offsetof(struct type, n), 0, max, NULL, NULL, 0, NULL, help  \
	}
#define INT(type, n, min, max, help)                                                               \
	{                                                                                          \
#n, FIELD_INT, 0, offsetof(struct type, n), min, max, NULL, NULL, 0, NULL, help    \
	}
#define BOOL(type, n, help)                                                                        \
	{                                                                                          \
#n, FIELD_BOOL, 0, offsetof(struct type, n), 0, 0, NULL, NULL, 0, NULL, help       \
	}
#define TIME(type, n, help)                                                                        \
	{                                                                                          \
#n, FIELD_TIME, 0, offsetof(struct type, n), 0, CONF_TIME_MAX, NULL, NULL, 0,      \
			NULL, help                                                                 \
	}
#define MODE(type, n, help)                                                                        \
	{                                                                                          \
#n, FIELD_ENUM, 0, offsetof(struct type, n), 0, 0, NULL, conf_pool_mode_words,     \
			POOL_MODE_UNSET, NULL, help                                                \
	}
#define ENUM(type, n, words, unset, help)                                                          \
	{                                                                                          \
#n, FIELD_ENUM, 0, offsetof(struct type, n), 0, 0, NULL, words, unset, NULL, help  \
	}
/* The value is read by the parser of the field `of`. */
#define ALIAS(type, n, of, min, max)                                                               \
	{                                                                                          \
#n, FIELD_INT, 0, offsetof(struct type, of), min, max, NULL, NULL, 0, NULL, NULL   \
	}

static const struct field_word balance_words[] = {
	{"round-robin", BALANCE_ROUND_ROBIN},
	{"disable", BALANCE_DISABLE},
	{NULL, 0},
};

static const struct field_word target_words[] = {
	{"any", TARGET_ANY},
	{"primary", TARGET_PRIMARY},
	{"read-write", TARGET_PRIMARY},
	{"standby", TARGET_STANDBY},
	{"read-only", TARGET_STANDBY},
	{"prefer-standby", TARGET_PREFER_STANDBY},
	{NULL, 0},
};

static const struct field database_fields[] = {
	STR(conf_database, host, 4096, 0,
		"Host name, address, or directory of a unix socket; without it the unix socket of "
		"the system."),
	INT(conf_database, port, 1, 65535, "Port of the server."),
	STR(conf_database, dbname, NAME_MAX_BYTES, 0,
		"Name of the database on the server; without it the name of the entry."),
	STR(conf_database, user, 127, 0,
		"Role for all server connections of this entry; without it the client's own."),
	STR(conf_database, password, 4096, PARAM_SECRET,
		"Password of that role; without it the one in `auth_file`."),
	INT(conf_database, pool_size, 1, INT_MAX, "Replaces `default_pool_size`."),
	INT(conf_database, min_pool_size, 0, INT_MAX, "Replaces `min_pool_size`."),
	INT(conf_database, reserve_pool_size, 0, INT_MAX, "Replaces `reserve_pool_size`."),
	ALIAS(conf_database, reserve_pool, reserve_pool_size, 0, INT_MAX),
	MODE(conf_database, pool_mode, "Replaces `pool_mode`."),
	INT(conf_database, max_db_connections, 0, INT_MAX, "Replaces `max_db_connections`."),
	INT(conf_database, max_db_client_connections, 0, INT_MAX,
		"Replaces `max_db_client_connections`."),
	TIME(conf_database, server_lifetime, "Replaces `server_lifetime`."),
	TIME(conf_database, query_wait_timeout, "Replaces `query_wait_timeout`."),
	STR(conf_database, connect_query, 8192, 0,
		"Sent once on each new server connection, before a client gets it."),
	STR(conf_database, client_encoding, 63, 0, "Set on each new server connection."),
	STR(conf_database, datestyle, 63, 0, "Set on each new server connection."),
	STR(conf_database, timezone, 63, 0, "Set on each new server connection."),
	STR(conf_database, application_name, 63, 0, "Set on each new server connection."),
	BOOL(conf_database, queue,
		"Attended from start-up by `queue_user`, though no client uses queues there: schedules are fired, and what was kept long enough is deleted."),
	STR(conf_database, queue_user, NAME_MAX_BYTES, 0, "Replaces `queue_user`."),
	STR(conf_database, queue_password, 4096, PARAM_SECRET, "Replaces `queue_password`."),
	STR(conf_database, queue_run_roles, 4096, 0,
		"Whose SQL jobs may run in this database though their queue is in another one (`QUEUE RUN ... DATABASE`): roles, separated by commas, each for its queues in any database of the proxy, or as `role@entry` for those in one. Without it: nobody's."),
	STR(conf_database, auth_user, 127, 0, "Replaces `auth_user`."),
	STR(conf_database, auth_query, 8192, 0, "Replaces `auth_query`."),
	{"auth_dbname", FIELD_STR, 0, offsetof(struct conf_database, auth_dbname), 0,
		NAME_MAX_BYTES, NULL, NULL, 0, conf_check_auth_dbname, "Replaces `auth_dbname`."},
	ENUM(conf_database, server_tls_sslmode, conf_sslmode_words, SSLMODE_UNSET,
		"Replaces `server_tls_sslmode`."),
	ENUM(conf_database, server_tls_negotiation, conf_tls_negotiation_words,
		TLS_NEGOTIATION_UNSET, "Replaces `server_tls_negotiation`."),
	STR(conf_database, server_tls_key_file, 4096, 0, "Replaces `server_tls_key_file`."),
	STR(conf_database, server_tls_cert_file, 4096, 0, "Replaces `server_tls_cert_file`."),
	STR(conf_database, server_tls_ca_file, 4096, 0, "Replaces `server_tls_ca_file`."),
	{"load_balance_hosts", FIELD_ENUM, 0, offsetof(struct conf_database, load_balance_hosts), 0,
		0, NULL, balance_words, BALANCE_UNSET, NULL,
		"Several hosts in `host` are used in turn (`round-robin`, the default) or in their order (`disable`)."},
	{"target_session_attrs", FIELD_ENUM, 0,
		offsetof(struct conf_database, target_session_attrs), 0, 0, NULL, target_words,
		TARGET_UNSET, NULL,
		"Which of several hosts will do: `any`, the `primary` (also `read-write`), a `standby` (also `read-only`), or `prefer-standby`. Servers from PostgreSQL 14 on say what they are."},
};

static const struct field user_fields[] = {
	INT(conf_user, pool_size, 1, INT_MAX,
		"Replaces `default_pool_size`, also that of the database entry."),
	INT(conf_user, reserve_pool_size, 0, INT_MAX, "Replaces `reserve_pool_size`."),
	MODE(conf_user, pool_mode, "Replaces `pool_mode`, also that of the database entry."),
	INT(conf_user, max_user_connections, 0, INT_MAX, "Replaces `max_user_connections`."),
	INT(conf_user, max_user_client_connections, 0, INT_MAX,
		"Replaces `max_user_client_connections`."),
	TIME(conf_user, query_timeout, "Replaces `query_timeout`."),
	TIME(conf_user, query_wait_timeout, "Replaces `query_wait_timeout`."),
	TIME(conf_user, idle_transaction_timeout, "Replaces `idle_transaction_timeout`."),
	TIME(conf_user, transaction_timeout, "Replaces `transaction_timeout`."),
	TIME(conf_user, client_idle_timeout, "Replaces `client_idle_timeout`."),
};

static const struct field peer_fields[] = {
	STR(conf_peer, host, 4096, 0,
		"Where the peer listens: address, name, or directory of its unix socket."),
	INT(conf_peer, port, 1, 65535, "Its port; without it 6432."),
	INT(conf_peer, pool_size, 1, INT_MAX,
		"Read for pgbouncer's sake: each request has a connection of its own."),
};

const struct field_table conf_peer_keys = {peer_fields, ARRAY_LEN(peer_fields)};
const struct field_table conf_database_keys = {database_fields, ARRAY_LEN(database_fields)};
const struct field_table conf_user_keys = {user_fields, ARRAY_LEN(user_fields)};

/* Where an entry stands, for messages: entry of database "x". */
struct entry {
	struct conf_report *report;
	const struct ini_pos *at;
	const char *kind, *name;
};

/* host=db,port=5432 is read as a host of that name; nobody means that. */
static void comma_check(const struct entry *e, const struct field_table *t, const struct field *f,
	const char *value)
{
	const char *p = value;

	if (f->kind != FIELD_STR || strchr(value, ' '))
		return; /* a query */
	while ((p = strchr(p, ',')) != NULL) {
		size_t len = strspn(++p, "abcdefghijklmnopqrstuvwxyz_");
		char word[64];

		if (len == 0 || len >= sizeof(word) || p[len] != '=')
			continue;
		memcpy(word, p, len);
		word[len] = '\0';
		if (field_find(t->fields, t->n, word))
			report_error(e->report, e->at,
				"in the entry of %s \"%s\": a comma stands in place of a blank before "
				"\"%s=\"",
				e->kind, e->name, word);
	}
}

static void entry_set(const struct entry *e, const struct field_table *t, void *base,
	const char *key, const char *value)
{
	const struct field *f = field_find(t->fields, t->n, key), *near;
	struct field_error err;

	if (!f) {
		near = field_nearest(t->fields, t->n, key);
		report_error(e->report, e->at,
			"unknown key \"%.100s\" in the entry of %s \"%s\"%s%s%s", key, e->kind,
			e->name, near ? "; did you mean \"" : "", near ? near->name : "",
			near ? "\"?" : "");
		return;
	}
	if (f->offset == FIELD_NOWHERE) {
		/* Nothing is kept of it, and nothing is said of its value. */
	} else if (!field_set(f, base, value, &err)) {
		report_error(e->report, e->at, "in the entry of %s \"%s\": %s", e->kind, e->name,
			err.text);
	} else if (f->flags & PARAM_SECRET) {
		report_secret(e->report, e->at, f->name);
	} else {
		comma_check(e, t, f, value);
	}
}

static void entry_read(const struct entry *e, const struct field_table *t, void *base, char *value)
{
	char *key, *text;

	for (;;) {
		switch (ini_next_pair(&value, &key, &text)) {
		case INI_PAIR:
			entry_set(e, t, base, key, text);
			break;
		case INI_PAIR_BAD:
			/* Without the text: it may hold a password. */
			report_error(e->report, e->at,
				"the entry of %s \"%s\" is not a list of key=value or "
				"key='value'",
				e->kind, e->name);
			return;
		case INI_PAIR_END:
			return;
		}
	}
}

static bool entry_name_ok(const struct entry *e)
{
	size_t len = strlen(e->name);

	if (len > 0 && len <= NAME_MAX_BYTES)
		return true;
	report_error(
		e->report, e->at, "the name of a %s has 1 to %d bytes", e->kind, NAME_MAX_BYTES);
	return false;
}

static void table_unset(const struct field_table *t, void *base)
{
	for (size_t i = 0; i < t->n; i++)
		field_unset(&t->fields[i], base);
}

static void table_clear(const struct field_table *t, void *base)
{
	for (size_t i = 0; i < t->n; i++)
		field_clear(&t->fields[i], base);
}

void database_free(struct conf_database **p)
{
	struct conf_database *d = *p;

	if (!d)
		return;
	*p = NULL;
	table_clear(&conf_database_keys, d);
	mem_free(d->name);
	mem_free(d);
}

static struct conf_database *database_new(const char *name)
{
	struct conf_database *d = mem_zalloc(sizeof(*d));

	if (!d)
		return NULL;
	table_unset(&conf_database_keys, d);
	d->name = mem_strdup(name);
	if (!d->name)
		database_free(&d);
	return d;
}

/* Puts the entry at the end of the list, or in the place of an earlier one of its name. */
static void database_add(struct conf *c, struct conf_database *d, const struct entry *e)
{
	struct conf_database **at = &c->databases;

	while (*at && strcmp((*at)->name, d->name))
		at = &(*at)->next;
	if (*at) {
		report_warning(e->report, e->at,
			"database \"%s\" was given before, this entry counts", d->name);
		d->next = (*at)->next;
		database_free(at);
	}
	*at = d;
}

void section_databases(
	struct conf_report *r, const struct ini_pos *at, const char *key, char *value, void *arg)
{
	struct entry e = {r, at, "database", key};
	struct conf_database *d;

	if (!entry_name_ok(&e))
		return;
	if (!strcmp(key, "pgbouncer") || !strcmp(key, "qbouncer")) {
		report_error(r, at, "database name \"%s\" is reserved for the console", key);
		return;
	}
	d = database_new(key);
	if (!d) {
		report_error(r, at, "out of memory");
		return;
	}
	entry_read(&e, &conf_database_keys, d, value);
	database_add(arg, d, &e);
}

void user_free(struct conf_user **p)
{
	struct conf_user *u = *p;

	if (!u)
		return;
	*p = NULL;
	table_clear(&conf_user_keys, u);
	mem_free(u->name);
	mem_free(u);
}

static struct conf_user *user_new(const char *name)
{
	struct conf_user *u = mem_zalloc(sizeof(*u));

	if (!u)
		return NULL;
	table_unset(&conf_user_keys, u);
	u->name = mem_strdup(name);
	if (!u->name)
		user_free(&u);
	return u;
}

static void user_add(struct conf *c, struct conf_user *u, const struct entry *e)
{
	struct conf_user **at = &c->users;

	while (*at && strcmp((*at)->name, u->name))
		at = &(*at)->next;
	if (*at) {
		report_warning(e->report, e->at, "user \"%s\" was given before, this entry counts",
			u->name);
		u->next = (*at)->next;
		user_free(at);
	}
	*at = u;
}

void section_users(
	struct conf_report *r, const struct ini_pos *at, const char *key, char *value, void *arg)
{
	struct entry e = {r, at, "user", key};
	struct conf_user *u;

	if (!entry_name_ok(&e))
		return;
	u = user_new(key);
	if (!u) {
		report_error(r, at, "out of memory");
		return;
	}
	entry_read(&e, &conf_user_keys, u, value);
	user_add(arg, u, &e);
}

void peer_free(struct conf_peer **p)
{
	struct conf_peer *peer = *p;

	if (!peer)
		return;
	*p = NULL;
	table_clear(&conf_peer_keys, peer);
	mem_free(peer);
}

static void peer_add(struct conf *c, struct conf_peer *peer, const struct entry *e)
{
	struct conf_peer **at = &c->peers;

	while (*at && (*at)->id != peer->id)
		at = &(*at)->next;
	if (*at) {
		report_warning(
			e->report, e->at, "peer %d was given before, this entry counts", peer->id);
		peer->next = (*at)->next;
		peer_free(at);
	}
	*at = peer;
}

void section_peers(
	struct conf_report *r, const struct ini_pos *at, const char *key, char *value, void *arg)
{
	struct entry e = {r, at, "peer", key};
	struct conf_peer *peer;
	int64_t id;

	if (!util_parse_i64(key, strlen(key), &id) || id < 1 || id > 16383) {
		report_error(r, at, "a peer is a number from 1 to 16383, not \"%.100s\"", key);
		return;
	}
	peer = mem_zalloc(sizeof(*peer));
	if (!peer) {
		report_error(r, at, "out of memory");
		return;
	}
	table_unset(&conf_peer_keys, peer);
	peer->id = (int)id;
	entry_read(&e, &conf_peer_keys, peer, value);
	if (!peer->host)
		report_error(r, at, "the entry of peer \"%s\" has no host", key);
	peer_add(arg, peer, &e);
}
