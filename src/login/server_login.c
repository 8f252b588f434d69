/*
 * Logging in to Postgres: connect, start-up packet, authentication, parameters, key. At the end the
 * pool knows what a fresh session looks like, and the server is idle. Failures are told to the
 * pool, which tells those who wait.
 */
#include <stdio.h>
#include <string.h>

#include "login_int.h"

/* auth_query ends. Its names are looked for where the server looks for them on behalf of auth_user:
 * nothing of a client comes to such a connection but the name that is bound. */
#define LOOKUP_SETTINGS "SET statement_timeout = 10000"

struct server_login {
	struct auth_login *auth;
	struct buf welcome_rest;
	bool asked_tls; /* the answer to SSLRequest is awaited */
	int standby;    /* what the server says of itself; -1: nothing */
	bool authenticated;
	bool ready;
	bool tell_sent;
};

/* It goes to its next host, if that may help; nobody hears of it. */
static bool go_on(struct server *s)
{
	conn_close(&s->conn);
	server_login_free(s);
	vars_clear(&s->vars);
	s->connect_time = loop_now();
	return server_login_start(s);
}

void server_login_give_up(struct server *s, const struct pg_error *err, const char *reason)
{
	bool is_new;

	CHECK_SERVER(s);
	if (hosts_failed(s, err->sqlstate, &is_new)) {
		log_write(is_new ? LOG_LVL_WARNING : LOG_LVL_DEBUG, server_prefix(s),
			"closing because: %s: %s: %s; trying the next host", reason,
			istr_text(s->host), err->message);
		if (go_on(s))
			return;
	}
	pool_server_failed(s, err);
	server_close(s, reason, err);
}

static void fail_as(struct server *s, const char *sqlstate, const char *text, const char *reason)
{
	struct pg_error err;

	pg_error_set(&err, sqlstate, "%s", text);
	server_login_give_up(s, &err, reason);
}

static void fail(struct server *s, const char *sqlstate, const char *text)
{
	fail_as(s, sqlstate, text, text);
}

/* What the entry says of the role, or the configuration of queue_user; NULL: nothing. */
static const char *configured_password(const struct database *db, const char *user)
{
	const char *password, *of_queues;

	if (db->password != NULL && (db->user == NULL || strcmp(db->user, user) == 0))
		return db->password;
	of_queues = conf_queue_user(db->queue_user, db->queue_password, &password);
	if (strcmp(of_queues, user) != 0)
		return NULL;
	return password;
}

static struct auth_login *make_login(struct server *s)
{
	const char *user = istr_text(s->pool->user);
	const char *password = configured_password(s->pool->db, user);
	const struct auth_user *u = auth_user_find(user);
	struct secret none = {.kind = SECRET_NONE}, given;
	struct auth_login *l;

	if (password != NULL) {
		if (!secret_parse(&given, password))
			return NULL;
		l = auth_login_new(user, &given);
		secret_erase(&given);
		return l;
	}
	if (u != NULL && u->secret.kind != SECRET_NONE &&
		(u->secret.kind == SECRET_PLAIN || u->secret.kind == SECRET_MD5 ||
			u->passthrough.kind == SECRET_NONE))
		return auth_login_new(user, &u->secret);
	if (u == NULL || u->passthrough.kind == SECRET_NONE)
		return auth_login_new(
			user, s->pool->given.kind != SECRET_NONE ? &s->pool->given : &none);
	return auth_login_new(user, &u->passthrough);
}

static struct auth_login *make_auth(struct server *s)
{
	struct auth_login *l = make_login(s);
	uint8_t binding[CONN_TLS_BINDING_MAX];
	size_t len = conn_tls_binding(s->conn, binding);

	if (l != NULL && len > 0)
		auth_login_bind(l, binding, len);
	return l;
}

/* --- the connection --- */

/*
 * Functions of the database that are called by a client's ordinary statements (TRACK: triggers) tell us of what there
 * is to take by a message, INTERCEPT_EVENT, and need no NOTIFY, whose commits wait for one another. At start-up: so no
 * RESET ALL or DISCARD ALL takes it away, and a SET of the client's is stronger.
 */
#define TELL_SETTING "qbouncer.tell"

static void tell_parameter(struct server *s, const char **pairs, int *n)
{
	if (s->pool->startup != NULL || !hosts_take_tell(s->pool->db))
		return;
	s->login->tell_sent = true;
	pairs[2 * *n] = TELL_SETTING;
	pairs[2 * *n + 1] = "here";
	++*n;
}

static void send_startup(struct server *s)
{
	struct buf b = BUF_INIT;
	const char *pairs[2 * (3 + 64)] = {
		"user", istr_text(s->pool->user), "database", s->pool->db->dbname};
	int n = 2;

	tell_parameter(s, pairs, &n);
	replication_parameters(s->pool, pairs, &n, 3 + 64);
	if (s->use.engine)
		engines_pins(pairs, &n, 3 + 64);
	build_startup(&b, 3 << 16, pairs, n);
	server_send(s, &b);
}

static void tls_step(struct server *s, enum server_tls step, const char *why)
{
	if (step == SERVER_TLS_FAILED)
		fail(s, "08006", why);
	else if (step == SERVER_TLS_READY)
		send_startup(s);
}

/* As pgbouncer says it, and when: before the login. */
static void tell_connected(const struct server *s)
{
	enum log_level level = conf_current()->p.log_connections ? LOG_LVL_INFO : LOG_LVL_DEBUG;
	const struct conn_addr *local = conn_local(s->conn);
	bool v6 = strchr(local->host, ':') != NULL;

	if (!log_enabled(level))
		return;
	if (conn_peer(s->conn)->is_unix)
		log_write(level, server_prefix(s), "new connection to server");
	else
		log_write(level, server_prefix(s), "new connection to server (from %s%s%s:%d)",
			v6 ? "[" : "", local->host, v6 ? "]" : "", local->port);
}

static void tell_secure(const struct server *s)
{
	log_write(conf_current()->p.log_connections ? LOG_LVL_INFO : LOG_LVL_DEBUG,
		server_prefix(s), "SSL established: %s", conn_tls_text(s->conn));
}

static void on_connect(struct conn *conn, void *owner, const char *error_text)
{
	struct server *s = owner;
	const char *why = NULL;
	enum server_tls step;

	if (error_text != NULL) {
		fail_as(s, "08006", error_text,
			conn_name_unknown(conn) ? "server DNS lookup failed" : "connect failed");
		return;
	}
	tell_connected(s);
	step = server_tls_start(conn, server_tls_rules(s->pool->db), &why);
	s->login->asked_tls = step == SERVER_TLS_MORE;
	tls_step(s, step, why);
}

static size_t tls_answer(struct server *s, const uint8_t *data, size_t len)
{
	const char *why = NULL;
	enum server_tls step =
		server_tls_answer(s->conn, server_tls_rules(s->pool->db), data, len, &why);

	s->login->asked_tls = false;
	tls_step(s, step, why);
	return 1;
}

static void on_secure(struct conn *conn, void *owner, const char *error_text)
{
	struct server *s = owner;
	char text[640];

	(void)conn;
	s->login->asked_tls = false; /* nor was there a question, with direct TLS */
	if (error_text == NULL) {
		tell_secure(s);
		send_startup(s);
		return;
	}
	snprintf(text, sizeof(text), "TLS handshake with the server failed: %s", error_text);
	fail(s, "08006", text);
}

/* --- messages --- */

static bool authentication(struct server *s, const struct wire_msg *m)
{
	struct server_login *l = s->login;
	struct buf out = BUF_INIT;
	struct pg_error err;

	if (m->have >= 4 && memcmp(m->body, "\0\0\0\0", 4) == 0) {
		if (l->auth != NULL && !auth_login_complete(l->auth)) {
			fail(s, "28000", "server did not prove that it knows the password");
			return false;
		}
		l->authenticated = true;
		return true;
	}
	if (l->auth == NULL && (l->auth = make_auth(s)) == NULL) {
		fail(s, "53200", "out of memory");
		return false;
	}
	if (auth_login_message(l->auth, m->body, m->have, &out, &err) == AUTH_REFUSED) {
		buf_free(&out);
		pool_server_failed(s, &err);
		server_close(s, err.message, &err);
		return false;
	}
	return server_send(s, &out);
}

static bool parameter_status(struct server *s, const struct wire_msg *m)
{
	struct wire_reader rd;
	const char *name, *value;
	int id;

	wire_reader_init(&rd, m->body, m->have);
	name = wire_get_cstr(&rd, NULL);
	value = wire_get_cstr(&rd, NULL);
	if (!wire_done(&rd)) {
		fail(s, "08P01", "malformed ParameterStatus from the server");
		return false;
	}
	if (strcmp(name, "in_hot_standby") == 0)
		s->login->standby = strcmp(value, "on") == 0;
	id = var_find(name);
	if (id >= 0)
		vars_set(&s->vars, (enum var_id)id, value);
	else
		build_parameter_status(&s->login->welcome_rest, name, value);
	return true;
}

static bool key_data(struct server *s, const struct wire_msg *m)
{
	struct wire_reader rd;
	const uint8_t *key;
	size_t len;

	wire_reader_init(&rd, m->body, m->have);
	s->pid = wire_get_i32(&rd);
	len = wire_left(&rd);
	key = wire_get_bytes(&rd, len);
	if (rd.failed || key == NULL || len < 4 || len > sizeof(s->key)) {
		fail(s, "08P01", "malformed BackendKeyData from the server");
		return false;
	}
	memcpy(s->key, key, len);
	s->key_len = (uint8_t)len;
	return true;
}

/* It is another pooler, which knows only some settings: once more without ours. Those who listen hear of everything then
 * by notifications. */
static bool without_tell(struct server *s, const char *message)
{
	if (!s->login->tell_sent || s->login->authenticated ||
		strstr(message, TELL_SETTING) == NULL)
		return false;
	if (hosts_refused_tell(s))
		log_info("%s: the server does not take " TELL_SETTING ": %s", s->pool->db->name,
			message);
	if (!go_on(s))
		fail(s, "53200", "out of memory");
	return true;
}

static bool error(struct server *s, const struct wire_msg *m)
{
	struct wire_notice n;
	struct pg_error err;

	wire_read_notice(m->body, m->have, &n);
	if (without_tell(s, n.message))
		return false;
	pg_error_set(&err, n.sqlstate, "%s", n.message);
	if (n.detail != NULL)
		pg_error_detail(&err, "%s", n.detail);
	if (n.hint != NULL)
		pg_error_hint(&err, "%s", n.hint);
	if (strcmp(n.sqlstate, "28P01") == 0 && s->pool->given.kind != SECRET_NONE) {
		/* the password was changed since: the next login finds the new one */
		secret_erase(&s->pool->given);
		lookup_forget(istr_text(s->pool->user));
	}
	if (strcmp(n.severity, "FATAL") == 0)
		pg_error_severity(&err, "FATAL");
	server_login_give_up(s, &err, s->pool->startup != NULL ? "login failed" : err.message);
	return false;
}

static void learn_welcome(struct server *s)
{
	struct pool *p = s->pool;

	p->db->reached = true;
	if (!p->welcome_known && !s->use.engine) {
		vars_copy_missing(&p->welcome, &s->vars);
		p->welcome_rest = s->login->welcome_rest;
		s->login->welcome_rest = BUF_INIT;
		p->welcome_known = true;
	}
	if (s->use.engine)
		p->engines.failed_at = 0;
	else
		p->failed_at = 0;
}

/* false: not what target_session_attrs asks for; it is on its way to another host, or closed. */
static bool has_right_role(struct server *s)
{
	struct pg_error err;

	switch (hosts_judge(s, s->login->standby)) {
	case HOSTS_GOOD:
		return true;
	case HOSTS_NEXT:
		if (go_on(s))
			return false;
		break;
	case HOSTS_NONE:
		break;
	}
	pg_error_set(&err, "08006", "no host of database \"%s\" has the role that is asked for",
		s->pool->db->name);
	pg_error_hint(&err, "See target_session_attrs and host in its entry in [databases].");
	pool_server_failed(s, &err);
	server_close(s, err.message, &err);
	return false;
}

/* What the operator's query may have set. */
static bool put_pins(struct server *s, struct buf *b)
{
	struct buf sql = BUF_INIT;

	engines_pins_sql(&sql);
	build_query(b, buf_cstr(&sql));
	buf_free(&sql);
	return server_expect(s, EXPECT_QUERY, &dest_reset, NULL);
}

/* What the operator wants each new connection to be told, and we. */
static void say_first(struct server *s)
{
	const char *all[] = {s->pool->db->connect_query, s->pool->lookup ? LOOKUP_SETTINGS : NULL};
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (all[i] == NULL || all[i][0] == '\0')
			continue;
		build_query(&b, all[i]);
		if (!server_expect(s, EXPECT_QUERY, &dest_reset, NULL)) {
			buf_free(&b);
			return;
		}
	}
	if (b.len > 0 && s->use.engine && !put_pins(s, &b)) {
		buf_free(&b);
		return;
	}
	server_move(s, b.len > 0 ? SERVER_CLEANING : SERVER_IDLE);
	if (b.len > 0)
		server_send(s, &b);
}

static void become_ready(struct server *s)
{
	struct pool *p = s->pool;

	if (!has_right_role(s))
		return;
	learn_welcome(s);
	server_login_free(s);
	conn_set_ops(s->conn, &server_ops, s);
	s->idle_since = loop_now();
	if (s->unasked != NULL) {
		server_move(s, SERVER_LISTENING);
		pool_mark_ready(p); /* it does not count as to the size of the pool any more */
		s->unasked->up(s);
		return;
	}
	say_first(s);
	pool_mark_ready(p);
}

static bool message(struct server *s, const struct wire_msg *m)
{
	switch (m->type) {
	case 'R':
		return authentication(s, m);
	case 'S':
		return parameter_status(s, m);
	case 'K':
		return key_data(s, m);
	case 'E':
		return error(s, m);
	case 'N':
	case 'v':
		return true;
	case 'Z':
		if (!s->login->authenticated)
			break;
		if (s->login->welcome_rest.failed) {
			fail(s, "53200", "out of memory");
			return false;
		}
		s->login->ready = true;
		return true;
	}
	fail(s, "08P01", "unexpected message from the server during login");
	return false;
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct server *s = owner;
	size_t pos = 0;
	struct wire_msg m;

	(void)conn;
	if (s->login->asked_tls)
		return tls_answer(s, data, len);
	while (pos < len) {
		enum wire_next next = wire_next(data + pos, len - pos, &m);

		if (next == WIRE_NEXT_BAD || (next == WIRE_NEXT_OK && m.total > 64 * 1024)) {
			fail(s, "08P01", "garbage from the server during login");
			return len;
		}
		if (next == WIRE_NEXT_MORE || !wire_complete(&m))
			return pos;
		if (!message(s, &m) || s->state == SERVER_DEAD)
			return len;
		pos += m.total;
		if (s->login->ready) {
			become_ready(s);
			return s->state == SERVER_DEAD ? len : pos;
		}
	}
	return pos;
}

static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	struct server *s = owner;

	(void)conn;
	(void)why;
	(void)err;
	fail(s, "08006", "server closed the connection during login");
}

const struct conn_ops server_login_ops = {
	.on_connect = on_connect, .on_data = on_data, .on_end = on_end, .on_secure = on_secure};

bool server_login_start(struct server *s)
{
	const char *host = hosts_next(s);

	CHECK_SERVER(s);
	if (host == NULL || (s->login = mem_zalloc(sizeof(*s->login))) == NULL)
		return false;
	s->login->standby = -1;
	s->conn = conn_connect(host, s->pool->db->port, &server_login_ops, s);
	return s->conn != NULL;
}

void server_login_free(struct server *s)
{
	CHECK_SERVER(s);
	if (s->login == NULL)
		return;
	auth_login_free(&s->login->auth);
	buf_free(&s->login->welcome_rest);
	mem_free(s->login);
	s->login = NULL;
}
