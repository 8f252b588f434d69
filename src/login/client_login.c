/*
 * A client comes in: SSL and GSS requests, start-up packet, authentication, limits, and the
 * greeting. Nothing that it says reaches a server before it is authenticated; the settings it asked
 * for are put in force when it is first linked to a server.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "net/team.h"
#include "net/tls.h"
#include "wire/startup.h"
#include "pool/places.h"
#include "login_int.h"

#define PROTOCOL_MINOR_NEWEST 2
#define PASSWORD_MESSAGE_MAX  (64 * 1024)

void client_login_free(struct client *c)
{
	CHECK_CLIENT(c);
	if (c->login == NULL)
		return;
	client_auth_closing(c);
	auth_session_free(&c->login->auth);
	outside_options_free(&c->login->options);
	mem_free(c->login->host);
	buf_free(&c->login->startup);
	buf_free(&c->login->settings);
	mem_free(c->login);
	c->login = NULL;
}

static void refuse(struct client *c, const char *sqlstate, const char *text, const char *hint)
{
	struct pg_error err;

	pg_error_set(&err, sqlstate, "%s", text);
	if (hint != NULL)
		pg_error_hint(&err, "%s", hint);
	client_fatal(c, &err);
}

/* --- the greeting --- */

static void add_host(struct client *c)
{
	const struct conn_addr *peer = conn_peer(c->conn);
	char text[300];

	snprintf(text, sizeof(text), "%s - %s:%d", istr_text(c->vars.v[VAR_APPLICATION_NAME]),
		peer->is_unix ? "unix" : peer->host, peer->port);
	vars_set(&c->vars, VAR_APPLICATION_NAME, text);
}

static void console_parameters(struct client *c, struct buf *b)
{
	static const char *const fixed[][2] = {
		{"server_encoding", "UTF8"}, {"is_superuser", "on"}, {"integer_datetimes", "on"}};
	static const char *const vars[VAR_COUNT] = {[VAR_CLIENT_ENCODING] = "UTF8",
		[VAR_DATESTYLE] = "ISO",
		[VAR_TIMEZONE] = "GMT",
		[VAR_INTERVALSTYLE] = "postgres",
		[VAR_STANDARD_STRINGS] = "on"};

	char version[64];

	snprintf(version, sizeof(version), "%s/qbouncer", version_number);
	build_parameter_status(b, "server_version", version);
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		build_parameter_status(b, fixed[i][0], fixed[i][1]);
	for (int i = 0; i < VAR_COUNT; i++)
		if (vars[i] != NULL)
			vars_set(&c->vars, (enum var_id)i, vars[i]);
}

static void put_message_of_the_day(const struct client *c, struct buf *b)
{
	const char *text = conf_current()->p.login_notify_message;
	struct pg_error notice;

	if (text[0] == '\0' || c->console)
		return;
	pg_error_set(&notice, "00000", "%s", text);
	pg_error_severity(&notice, "NOTICE");
	build_notice(b, &notice);
}

/* Everything is known: the session begins. */
static void greet(struct client *c)
{
	struct buf b = BUF_INIT;
	uint32_t secret;
	uint8_t key[4];

	buf_reserve(&b, 1024);
	build_auth(&b, 0, NULL, 0);
	if (c->console)
		console_parameters(c, &b);
	else
		buf_put(&b, c->pool->welcome_rest.data, c->pool->welcome_rest.len);
	for (int i = 0; i < VAR_COUNT; i++)
		if (c->vars.v[i] != NULL)
			build_parameter_status(
				&b, var_name((enum var_id)i), istr_text(c->vars.v[i]));
	if (!client_key_assign(c))
		b.failed = true;
	secret = (uint32_t)c->key;
	for (int i = 0; i < 4; i++)
		key[i] = (uint8_t)(secret >> (24 - 8 * i));
	build_key_data(&b, (int32_t)(c->key >> 32), key, sizeof(key));
	put_message_of_the_day(c, &b);
	build_ready(&b, 'I');
	if (buf_failed(&b)) {
		buf_free(&b);
		client_out_of_memory(c);
		return;
	}
	c->request_time = 0;
	c->idle_since = loop_now();
	client_move(c, CLIENT_ACTIVE);
	client_write(c, &b);
	buf_free(&b);
	client_login_free(c);
	conn_set_ops(c->conn, &client_ops, c);
	c->told = TOLD_BEGUN;
	if (c->pool != NULL)
		c->pool->stats.logins++;
	else
		count_console()->logins++;
	if (conf_current()->p.log_connections)
		log_write(LOG_LVL_INFO, client_prefix(c), "login attempt: db=%s user=%s tls=%s",
			client_database(c), client_user(c),
			conn_is_tls(c->conn) ? conn_tls_text(c->conn) : "no");
	if (c->pool != NULL && c->pool->startup != NULL) {
		c->icpt = NULL;
		if (!replication_start(c))
			client_close(c, CLIENT_END_BY_US, "the replication server has left");
		return;
	}
	if (c->icpt->client_begun != NULL)
		c->icpt->client_begun(c);
	client_resume(c);
}

/* The pool knows what a session is like. */
static void begin_session(struct client *c)
{
	vars_canonical(&c->vars, &c->pool->welcome);
	vars_copy_missing(&c->vars, &c->pool->db->defaults);
	vars_copy_missing(&c->vars, &c->pool->welcome);
	if (conf_current()->p.application_name_add_host)
		add_host(c);
	if (!session_begin(c)) {
		client_out_of_memory(c);
		return;
	}
	if (c->pool->startup != NULL || !prove_start(c)) {
		greet(c);
		return;
	}
	c->login->phase = PHASE_PROVING;
	c->request_time = loop_now();
	if (!c->greeting)
		client_move_greeting(c);
}

void client_login_welcome(struct client *c)
{
	CHECK_CLIENT(c);
	if (c->login->phase == PHASE_GREETING)
		begin_session(c);
}

/* --- after authentication --- */

static bool refuse_limit(struct client *c, const char *text, const char *what, int limit)
{
	char hint[200];

	snprintf(hint, sizeof(hint), "The limit of clients%s %d.", what, limit);
	refuse(c, "53300", text, hint);
	return false;
}

static bool is_open(struct client *c, const struct database *db)
{
	char text[128];

	if (pool_all.calls->turns_away(c)) {
		refuse(c, "57P03", "pooler is shutting down", NULL);
		return false;
	}
	if (!db->disabled)
		return true;
	snprintf(text, sizeof(text), "database \"%s\" is disabled", db->name);
	refuse(c, "57P03", text, "An operator has disabled it; ENABLE on the console ends that.");
	return false;
}

/* `there`: in a database, or on the console, of at most of_db. */
static bool within_own_limits(struct client *c, unsigned there, int of_db)
{
	int of_user = account_limits(c->account)->max_clients;

	if (of_db > 0 && there >= (unsigned)of_db)
		return refuse_limit(c, "client connections exceeded (max_db_client_connections)",
			" of this database is max_db_client_connections =", of_db);
	if (of_user > 0 && c->account->clients >= (unsigned)of_user)
		return refuse_limit(c, "client connections exceeded (max_user_client_connections)",
			" of this user is max_user_client_connections =", of_user);
	return true;
}

/* Over several processes; the client is counted from here on. */
static bool within_limits_of_all(struct client *c, const struct database *db, int all)
{
	int of_db = db->max_client_connections, of_user = account_limits(c->account)->max_clients;

	if (team_clients() > (unsigned)all)
		return refuse_limit(c, "no more connections allowed (max_client_conn)",
			" is max_client_conn =", all);
	switch (places_take_client(db, c->account, of_db > 0 ? (unsigned)of_db : 0,
		of_user > 0 ? (unsigned)of_user : 0)) {
	case PLACE_DB:
		return within_own_limits(c, UINT_MAX, of_db);
	case PLACE_USER:
		return refuse_limit(c, "client connections exceeded (max_user_client_connections)",
			" of this user is max_user_client_connections =", of_user);
	case PLACE_GOOD:
		break;
	}
	return true;
}

static bool within_limits(struct client *c, const struct database *db)
{
	int all = conf_current()->p.max_client_conn;

	if (team_self() != 0)
		return within_limits_of_all(c, db, all);
	if (!within_own_limits(c, db->n_clients, db->max_client_connections))
		return false;
	if (client_count() > (unsigned)all)
		return refuse_limit(c, "no more connections allowed (max_client_conn)",
			" is max_client_conn =", all);
	return true;
}

/* What opened the door here opens the server's too, unless all share one role there. */
static void keep_proved(struct client *c, const struct secret *proved)
{
	struct pool *p = c->pool;

	if (proved == NULL || p->db->user != NULL || secret_equal(&p->given, proved))
		return;
	secret_erase(&p->given);
	if (!secret_copy(&p->given, proved))
		log_debug("no memory to keep the secret of user \"%s\"", client_user(c));
}

/* A replication client has one of its own: its settings go with the start-up packet. */
static struct pool *choose_pool(struct client *c, struct database *db)
{
	const char *user = db->user != NULL ? db->user : client_user(c);
	struct client_login *l = c->login;
	struct istr *startup;
	struct pool *p;

	if (l->startup.len == 0)
		return pool_get(db, user);
	buf_put(&l->startup, l->settings.data, l->settings.len);
	if (buf_failed(&l->startup) || buf_failed(&l->settings))
		return NULL;
	startup = istr_get((const char *)l->startup.data, l->startup.len);
	if (startup == NULL)
		return NULL;
	p = pool_new_replication(db, user, startup);
	istr_drop(&startup);
	return p;
}

/* The error is that of Postgres; the log has the words of pgbouncer. */
static void refuse_no_database(struct client *c)
{
	struct pg_error err;
	char reason[160];

	snprintf(reason, sizeof(reason), "no such database: %s", client_database(c));
	pg_error_set(&err, "3D000", "database \"%s\" does not exist", client_database(c));
	pg_error_detail(&err, "%s", reason);
	pg_error_hint(&err,
		"The proxy has no such entry in its section [databases], and no entry \"*\".");
	client_fatal_because(c, &err, reason);
}

static void enter_pool(struct client *c, const struct secret *proved)
{
	bool full;
	struct database *db = route_enter(client_database(c), &full);
	char text[200];

	if (full) {
		snprintf(text, sizeof(text),
			"The limit is max_auto_databases = %d, and all of them have clients or "
			"busy servers. An entry of its own in [databases] counts apart.",
			conf_current()->p.max_auto_databases);
		refuse(c, "53300", "too many databases without an entry of their own", text);
		return;
	}
	if (db == NULL) {
		refuse_no_database(c);
		return;
	}
	if (!is_open(c, db))
		return;
	c->account = account_get(c->user);
	if (c->account == NULL) {
		client_out_of_memory(c);
		return;
	}
	if (!within_limits(c, db))
		return;
	c->pool = choose_pool(c, db);
	if (c->pool == NULL) {
		if (team_self() != 0)
			places_give_client(db, c->account);
		client_out_of_memory(c);
		return;
	}
	keep_proved(c, proved);
	db->n_clients++;
	c->account->clients++;
	c->counted = true;
	c->icpt = intercept_queue;
	if (c->pool->welcome_known && !pool_unreachable(c->pool, loop_now())) {
		begin_session(c);
		return;
	}
	c->login->phase = PHASE_GREETING;
	c->request_time = loop_now();
	client_move_greeting(c);
	pool_mark_ready(c->pool);
}

static void enter_console(struct client *c)
{
	if (c->login->rights == RIGHTS_NONE) {
		refuse(c, "42501", "not allowed",
			"The console is for users that admin_users or stats_users name.");
		return;
	}
	c->account = account_get(c->user);
	if (c->account == NULL) {
		client_out_of_memory(c);
		return;
	}
	/* who has to set things right when all is full comes in */
	if (c->login->rights != RIGHTS_ADMIN &&
		!within_own_limits(
			c, client_all.consoles.count, conf_current()->p.max_db_client_connections))
		return;
	c->account->clients++;
	c->counted = true;
	c->icpt = intercept_console;
	/* the list of the console is another one than that of the logins */
	greet(c);
}

/* proved is borrowed from the conversation, which ends here. */
static void authenticated(struct client *c, const struct secret *proved)
{
	struct client_login *l = c->login;
	struct auth_session *auth = l->auth;

	CHECK_CLIENT(c);
	l->auth = NULL;
	if (c->console)
		enter_console(c);
	else
		enter_pool(c, proved);
	auth_session_free(&auth);
}

/* --- the start-up packet --- */

static void keep_setting(struct client *c, const char *name, const char *value)
{
	int id = var_find(name);
	struct buf *all = &c->login->settings;

	if (!conf_list_has(conf_current()->p.ignore_startup_parameters, name)) {
		buf_put(all, name, strlen(name) + 1);
		buf_put(all, value, strlen(value) + 1);
	}
	if (id >= 0) {
		vars_set(&c->vars, (enum var_id)id, value);
	} else if (!conf_list_has(conf_current()->p.ignore_startup_parameters, name)) {
		/* refused once all of the packet is read */
		if (!session_add_setting(&c->extra, name, value))
			c->login->bad_setting = true;
	}
}

static bool read_options(struct client *c, const char *options)
{
	size_t pos = 0;
	/* as much as a packet has room for */
	static struct {
		char name[STARTUP_MAX], value[STARTUP_MAX];
	} of;
	bool bad = false;

	while (startup_option_next(
		options, &pos, of.name, sizeof(of.name), of.value, sizeof(of.value), &bad))
		keep_setting(c, of.name, of.value);
	if (bad)
		refuse(c, "08P01",
			"unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed",
			NULL);
	return !bad;
}

static void negotiate(struct client *c, const struct startup *s)
{
	const char *options[16], *name, *value;
	struct buf b = BUF_INIT;
	size_t pos = 0;
	int n = 0;

	while (startup_next(s, &pos, &name, &value))
		if (strncmp(name, "_pq_.", 5) == 0 && n < (int)ARRAY_LEN(options))
			options[n++] = name;
	c->protocol_minor = s->minor == PROTOCOL_MINOR_NEWEST ? PROTOCOL_MINOR_NEWEST : 0;
	if (s->minor > PROTOCOL_MINOR_NEWEST)
		c->protocol_minor = PROTOCOL_MINOR_NEWEST;
	if (s->minor == c->protocol_minor && n == 0)
		return;
	build_negotiate(&b, c->protocol_minor, options, n);
	client_write(c, &b);
	buf_free(&b);
}

static bool is_one_of(const char *v, const char *const *words)
{
	for (; *words != NULL; words++)
		if (util_strcasecmp(v, *words) == 0)
			return true;
	return false;
}

/* `database`: logical, in a database; a true value: physical. */
static bool read_replication(struct client *c, const char *value)
{
	static const char *const on[] = {"on", "true", "yes", "1", "t", "y", NULL};
	static const char *const off[] = {"off", "false", "no", "0", "f", "n", NULL};
	struct client_login *l = c->login;

	if (is_one_of(value, off))
		return true;
	l->replication = is_one_of(value, on);
	if (!l->replication && util_strcasecmp(value, "database") != 0) {
		refuse(c, "22023", "invalid value for parameter \"replication\"", NULL);
		return false;
	}
	buf_puts(&l->startup, "replication");
	buf_putc(&l->startup, '\0');
	buf_put(&l->startup, value, strlen(value) + 1);
	return true;
}

static bool read_parameter(
	struct client *c, const char *name, const char *value, const char **user, const char **db)
{
	if (strcmp(name, "user") == 0)
		*user = value;
	else if (strcmp(name, "database") == 0)
		*db = value;
	else if (strcmp(name, "options") == 0)
		return read_options(c, value);
	else if (strcmp(name, "replication") == 0)
		return read_replication(c, value);
	else if (strncmp(name, "_pq_.", 5) != 0)
		keep_setting(c, name, value);
	return true;
}

static void session_packet(struct client *c, const struct startup *s)
{
	const char *user = NULL, *db = NULL, *name, *value;
	size_t pos = 0;

	while (startup_next(s, &pos, &name, &value))
		if (!read_parameter(c, name, value, &user, &db))
			return;
	if (c->login->bad_setting) {
		refuse(c, "08P01", "a setting of the startup packet is too long", NULL);
		return;
	}
	if (user == NULL || user[0] == '\0') {
		refuse(c, "28000", "no PostgreSQL user name specified in startup packet", NULL);
		return;
	}
	if (db == NULL || db[0] == '\0')
		db = user;
	if (strlen(user) > 127 || strlen(db) > 63) {
		refuse(c, "08P01",
			strlen(user) > 127 ? "username too long" : "database name too long", NULL);
		return;
	}
	c->user = istr_get(user, strlen(user));
	c->database = istr_get(db, strlen(db));
	if (c->user == NULL || c->database == NULL) {
		client_out_of_memory(c);
		return;
	}
	if (strcmp(db, "qbouncer") == 0 || strcmp(db, "pgbouncer") == 0)
		client_become_console(c);
	negotiate(c, s);
	client_auth_begin(c);
}

static void cancel_packet(struct client *c, const struct startup *s)
{
	c->login->phase = PHASE_CANCEL;
	cancel_by_key(s->pid, s->key, s->key_len, c);
}

/* The answer is one byte; what follows the request in the same packet would be text that TLS should
 * have hidden. */
static bool answer_request(
	struct client *c, enum login_asked asked, bool more, const char *what, bool yes)
{
	struct buf b = BUF_INIT;
	char text[100];

	if ((c->login->asked & asked) != 0 || more || conn_is_tls(c->conn)) {
		snprintf(text, sizeof(text), "received unencrypted data after %s request", what);
		refuse(c, "08P01", conn_is_tls(c->conn) ? "TLS has begun already" : text, NULL);
		return false;
	}
	c->login->asked |= (uint8_t)asked;
	build_u8(&b, yes ? 'S' : 'N');
	client_write(c, &b);
	buf_free(&b);
	return true;
}

static void begin_tls(struct client *c, struct tls_ctx *ctx, bool direct)
{
	if (conn_start_tls(c->conn, ctx, direct))
		c->login->phase = PHASE_TLS;
	else
		client_out_of_memory(c);
}

static size_t ssl_request(struct client *c, size_t size, size_t len)
{
	struct tls_ctx *ctx = conn_peer(c->conn)->is_unix ? NULL : tls_for_clients();

	if (answer_request(c, ASKED_SSL, len > size, "SSL", ctx != NULL) && ctx != NULL)
		begin_tls(c, ctx, false);
	return c->state == CLIENT_DEAD ? len : size;
}

static size_t gss_request(struct client *c, size_t size, size_t len)
{
	if (!answer_request(c, ASKED_GSS, len > size, "GSSAPI encryption", false))
		return len;
	return size;
}

/* The first byte is that of a TLS record: nothing of it is ours to read. */
static size_t direct_tls(struct client *c, size_t len)
{
	struct tls_ctx *ctx = conn_peer(c->conn)->is_unix ? NULL : tls_for_clients();

	if (conn_is_tls(c->conn) || c->login->asked != 0) {
		refuse(c, "08P01", "TLS is not expected here", NULL);
		return len;
	}
	if (ctx == NULL) {
		refuse(c, "0A000", "TLS is not supported",
			"Connect with sslmode=disable or prefer.");
		return len;
	}
	begin_tls(c, ctx, true);
	return c->state == CLIENT_DEAD ? len : 0;
}

static void on_secure(struct conn *conn, void *owner, const char *error_text)
{
	struct client *c = owner;
	char text[640];

	(void)conn;
	if (error_text == NULL) {
		c->login->phase = PHASE_FIRST;
		return;
	}
	snprintf(text, sizeof(text), "TLS handshake failed: %s", error_text);
	client_close(c, CLIENT_END_BY_US, text);
}

/* true: refused. */
static bool lacks_tls(struct client *c)
{
	if (conf_current()->p.client_tls_sslmode < SSLMODE_REQUIRE || conn_is_tls(c->conn) ||
		conn_peer(c->conn)->is_unix)
		return false;
	refuse(c, "28000", "SSL required",
		"The proxy takes encrypted connections only: use sslmode=require.");
	return true;
}

static size_t first_packet(struct client *c, const uint8_t *data, size_t len)
{
	struct startup s;
	struct pg_error err;

	switch (startup_read(data, len, &s, &err)) {
	case STARTUP_MORE:
		return 0;
	case STARTUP_BAD:
		client_fatal(c, &err);
		return len;
	case STARTUP_TLS:
		return direct_tls(c, len);
	case STARTUP_SSL:
		return ssl_request(c, s.size, len);
	case STARTUP_GSS:
		return gss_request(c, s.size, len);
	case STARTUP_CANCEL:
		cancel_packet(c, &s);
		return len;
	case STARTUP_SESSION:
		if (lacks_tls(c))
			return len;
		session_packet(c, &s);
		return s.size;
	}
	return len;
}

static size_t password_message(struct client *c, const uint8_t *data, size_t len)
{
	struct wire_msg m;
	enum wire_next next = wire_next(data, len, &m);

	if (next == WIRE_NEXT_MORE)
		return 0;
	if (next == WIRE_NEXT_BAD || m.type != 'p' || m.total > PASSWORD_MESSAGE_MAX) {
		if (next == WIRE_NEXT_OK && m.type == 'X') {
			client_close(c, CLIENT_END_TERMINATE, NULL);
			return len;
		}
		refuse(c, "08P01", "expected password response", NULL);
		return len;
	}
	if (!wire_complete(&m) || client_auth_defers(c))
		return 0;
	client_auth_message(c, m.body, m.have);
	return m.total;
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct client *c = owner;
	size_t pos = 0, n = 1;

	(void)conn;
	while (pos < len && n > 0 && c->state == CLIENT_LOGIN) {
		switch (c->login->phase) {
		case PHASE_FIRST:
			n = first_packet(c, data + pos, len - pos);
			break;
		case PHASE_TLS:
			n = 0; /* in front of the handshake; net refuses it */
			break;
		case PHASE_AUTH:
			n = password_message(c, data + pos, len - pos);
			break;
		case PHASE_REFUSED:
			n = len - pos;
			break;
		case PHASE_DEFERRED:
			n = 0;
			break;
		case PHASE_HOST:
		case PHASE_LOOKUP:
		case PHASE_OUTSIDE:
		case PHASE_GREETING:
		case PHASE_PROVING:
			/* nothing may be said before we have spoken, except goodbye */
			if (data[pos] == 'X')
				client_close(c, CLIENT_END_TERMINATE, NULL);
			else if (len - pos > PASSWORD_MESSAGE_MAX)
				refuse(c, "08P01", "unexpected data before the session began",
					NULL);
			n = 0;
			break;
		case PHASE_CANCEL:
			n = len - pos;
			break;
		}
		pos += n;
	}
	return c->state == CLIENT_DEAD ? len : pos;
}

static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	(void)conn;
	(void)err;
	(void)why;
	client_close(owner, CLIENT_END_BROKEN, "client left before the session began");
}

const struct conn_ops client_login_ops = {
	.on_data = on_data, .on_end = on_end, .on_secure = on_secure};

static const struct login_then then = {
	.looked_up = client_auth_looked_up, .authenticated = authenticated, .proven = greet};

void client_login_start(struct client *c)
{
	CHECK_CLIENT(c);
	c->login = mem_zalloc(sizeof(*c->login));
	if (c->login == NULL)
		client_close(c, CLIENT_END_BY_US, "out of memory");
	else
		c->login->then = &then;
}

bool client_is_admin(const struct client *c)
{
	CHECK_CLIENT(c);
	return c->console == CONSOLE_OWN_USER ||
	       conf_list_has(conf_current()->p.admin_users, client_user(c));
}
