/*
 * The proxy's own session in a database, through libpq: LISTENs for pushes that did not pass
 * through this proxy, and tells other proxies of those that did. It runs nobody's work. While it is
 * down the rooms look for themselves, more often.
 *
 * A proxy holds a shared advisory lock with its number while it is there; NOTIFY is sent only when
 * there are others. The session looks who is there, and tells registry.c.
 */
#include <stdio.h>
#include <string.h>

#include <libpq-fe.h>

#include "auth/auth.h"
#include "net/tls.h"
#include "queue_int.h"

#define CHANNEL        "qbouncer"
#define RETRY_FIRST    (250 * USEC_MSEC)
#define RETRY_LAST     (5 * USEC_SEC) /* others wait for us that long, and longer (registry.c) */
#define CONNECT_LIMIT  (15 * USEC_SEC)
#define LOOK_AT_OTHERS (5 * USEC_SEC) /* also shows that the session is alive */
#define LOOK_IN_HURRY  (1 * USEC_SEC) /* while there are others */
#define ANSWER_LIMIT   (10 * USEC_SEC)
#define PENDING_MAX    10000 /* queues; the others' periodic look finds the rest */

/* Class of the advisory locks: "qbou". The object is the number of the proxy. */
#define LOCK_CLASS "1902276469"

enum system_state { SYSTEM_DOWN, SYSTEM_CONNECTING, SYSTEM_LISTENING, SYSTEM_UP };

struct pending {
	UT_hash_handle hh;
	char queue[QSTMT_QUEUE_MAX + 1];
};

struct system {
	struct qdb *db;
	enum system_state state;
	PGconn *pg;
	struct loop_watch *watch;
	struct loop_tick *tick;
	struct pending *pending; /* queues that other proxies are to be told of */
	bool busy;               /* a query is under way */
	bool others;             /* other proxies have a session too */
	int counted;             /* of them, when we looked last */
	bool refused;            /* a statement of the query under way failed */
	bool others_known;    /* since the session is up; until then what is to be told is kept */
	bool looking;         /* the query under way asks for others */
	bool maintaining;     /* ... is a step of the maintenance */
	struct touched *told; /* by the query under way: queues with jobs that may be taken */
	unsigned n_pending;
	bool warned;
	usec_t since; /* of the state, or of the query under way */
	usec_t look_at;
	usec_t retry, retry_at;
	char *hosts, *dbname, *user, *password; /* as they were when it connected last */
	int port;
	char *pool_user; /* whose pool tells where the server is */
	char why[160];
};

static void on_socket(int fd, int mask, void *arg);
static void disconnect(struct system *s, const char *why);

/* --- queries
 * --------------------------------------------------------------------------------------------- */

static void send_sql(struct system *s, const char *sql)
{
	if (PQsendQuery(s->pg, sql) != 1) {
		disconnect(s, PQerrorMessage(s->pg));
		return;
	}
	s->busy = true;
	s->refused = false;
	s->since = loop_now();
	loop_tick_at(s->tick, s->since + ANSWER_LIMIT);
	if (PQflush(s->pg) == 1 && !loop_watch_set(s->watch, LOOP_READ | LOOP_WRITE))
		disconnect(s, "out of memory");
}

static void pending_clear(struct system *s)
{
	struct pending *p, *tmp;

	HASH_ITER (hh, s->pending, p, tmp) {
		HASH_DEL(s->pending, p);
		mem_free(p);
	}
	s->n_pending = 0;
}

/* One statement for all that came together meanwhile. */
static void send_notifications(struct system *s)
{
	struct pending *p, *tmp;
	struct buf sql = BUF_INIT;

	if (s->state != SYSTEM_UP || s->busy || s->pending == NULL || !s->others_known)
		return;
	buf_puts(&sql, "SELECT ");
	HASH_ITER (hh, s->pending, p, tmp) {
		char *literal = PQescapeLiteral(s->pg, p->queue, strlen(p->queue));

		if (literal != NULL)
			buf_printf(&sql, "%spg_catalog.pg_notify('" CHANNEL "', %s)",
				sql.len > 7 ? ", " : "", literal);
		PQfreemem(literal);
	}
	pending_clear(s);
	if (!buf_failed(&sql) && sql.len > 7)
		send_sql(s, buf_cstr(&sql));
	buf_free(&sql);
}

static void look_at_others(struct system *s)
{
	s->looking = true;
	send_sql(s,
		"SELECT DISTINCT objid AS proxy FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND "
		"database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) "
		"AND classid = " LOCK_CLASS " AND objsubid = 2");
}

static void begin_listening(struct system *s)
{
	char sql[512];

	s->state = SYSTEM_LISTENING;
	/* The empty notification tells others that we are there. A machine that is gone without a
	 * word is noticed by the server, which drops the lock then. */
	snprintf(sql, sizeof(sql),
		"SET synchronous_commit = off; SET statement_timeout = '5s'; SET tcp_keepalives_idle = 3; "
		"SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; LISTEN " CHANNEL
		"; SELECT pg_catalog.pg_advisory_lock_shared(" LOCK_CLASS ", %d); "
		"SELECT pg_catalog.pg_notify('" CHANNEL "', '')",
		registry_id());
	send_sql(s, sql);
}

static void looked(struct system *s)
{
	s->looking = false;
	if (!s->refused) {
		s->others = s->counted > 0;
		s->others_known = true;
		registry_looked(s->db);
		if (!s->others)
			pending_clear(s);
	}
	s->look_at = loop_now() + (registry_hurries(s->db) ? LOOK_IN_HURRY : LOOK_AT_OTHERS);
	loop_tick_at(s->tick, s->look_at);
}

static void maintain(struct system *s)
{
	char sql[160];

	if (!maintain_step(s->db, sql, sizeof(sql)))
		return;
	s->maintaining = true;
	send_sql(s, sql);
}

/* When the session has something to do by itself. */
static usec_t next_work(const struct system *s)
{
	usec_t at = maintain_at(s->db);

	return at < s->look_at ? at : s->look_at;
}

static void query_done(struct system *s)
{
	s->busy = false;
	if (s->maintaining)
		maintain_ended(s->db);
	s->maintaining = false;
	loop_tick_at(s->tick, next_work(s));
	if (s->state == SYSTEM_LISTENING && s->refused) {
		disconnect(s, "LISTEN failed");
		return;
	}
	if (s->state == SYSTEM_LISTENING) {
		s->state = SYSTEM_UP;
		s->retry = RETRY_FIRST;
		s->warned = false;
		log_info("%s: system session is up (role %s)", s->db->name, s->user);
		registry_up(s->db);
		maintain_up(s->db);
		/* LISTEN first, then look: nothing falls between */
		rooms_wake_all(s->db);
		look_at_others(s);
		return;
	}
	if (s->looking)
		looked(s);
	touched_told_end(s->db, &s->told, !s->refused);
	send_notifications(s);
}

static void take_proxies(struct system *s, const PGresult *res)
{
	s->counted = 0;
	registry_look(s->db);
	for (int i = 0; i < PQntuples(res); i++) {
		const char *text = PQgetvalue(res, i, 0);
		int64_t id = 0;

		if (!util_parse_i64(text, strlen(text), &id) || id <= 0 || id > INT32_MAX)
			continue;
		s->counted += id != registry_id();
		registry_see(s->db, (int32_t)id);
	}
}

/* The value of a column; -1: NULL. */
static int64_t get_number(const PGresult *res, int column)
{
	const char *text = PQgetvalue(res, 0, column);
	int64_t n;

	if (PQgetisnull(res, 0, column) || !util_parse_i64(text, strlen(text), &n))
		return -1;
	return n;
}

static void take_result(struct system *s, const PGresult *res)
{
	ExecStatusType st = PQresultStatus(res);

	if (st == PGRES_FATAL_ERROR) {
		s->refused = true;
		log_warning("%s: system session: %s", s->db->name, PQresultErrorMessage(res));
		return;
	}
	if (st == PGRES_TUPLES_OK && PQnfields(res) == 1 && strcmp(PQfname(res, 0), "proxy") == 0)
		take_proxies(s, res);
	else if (s->maintaining && st == PGRES_TUPLES_OK && PQnfields(res) == 3 &&
		 PQntuples(res) == 1)
		maintain_result(s->db, get_number(res, 0), get_number(res, 1), get_number(res, 2));
}

static void take_notifications(struct system *s)
{
	PGnotify *n;

	while ((n = PQnotifies(s->pg)) != NULL) {
		if (n->be_pid == PQbackendPID(s->pg)) {
			/* our own: the rooms here know already */
		} else if (n->extra[0] == '\0') {
			s->others = true;
			s->look_at = loop_now(); /* who is it? */
			loop_tick_at(s->tick, s->look_at);
		} else {
			room_news(s->db, n->extra);
		}
		PQfreemem(n);
	}
}

static void read_session(struct system *s)
{
	PGresult *res;

	if (PQconsumeInput(s->pg) != 1) {
		disconnect(s, PQerrorMessage(s->pg));
		return;
	}
	take_notifications(s);
	while (s->busy && PQisBusy(s->pg) == 0) {
		res = PQgetResult(s->pg);
		if (res == NULL) {
			query_done(s);
			if (s->pg == NULL)
				return;
			continue;
		}
		take_result(s, res);
		PQclear(res);
	}
	take_notifications(s); /* those that came with a result */
	if (PQstatus(s->pg) == CONNECTION_BAD)
		disconnect(s, PQerrorMessage(s->pg));
}

/* --- connecting
 * --------------------------------------------------------------------------------------------- */

static bool set_watch(struct system *s, int mask)
{
	int fd = PQsocket(s->pg);

	/* libpq may change its socket while it tries one address after the other */
	loop_watch_free(&s->watch);
	if (fd < 0)
		return false;
	s->watch = loop_watch_new(fd, mask, on_socket, s);
	return s->watch != NULL;
}

static void go_on_connecting(struct system *s)
{
	int mask = 0;

	switch (PQconnectPoll(s->pg)) {
	case PGRES_POLLING_READING:
		mask = LOOP_READ;
		break;
	case PGRES_POLLING_WRITING:
		mask = LOOP_WRITE;
		break;
	case PGRES_POLLING_OK:
		PQsetnonblocking(s->pg, 1);
		if (set_watch(s, LOOP_READ))
			begin_listening(s);
		else
			disconnect(s, "out of memory");
		return;
	default:
		disconnect(s, PQerrorMessage(s->pg));
		return;
	}
	if (!set_watch(s, mask))
		disconnect(s, "out of memory");
}

static void on_socket(int fd, int mask, void *arg)
{
	struct system *s = arg;

	(void)fd;
	if (s->state == SYSTEM_CONNECTING) {
		go_on_connecting(s);
		return;
	}
	if ((mask & LOOP_WRITE) != 0 && PQflush(s->pg) == 0 &&
		!loop_watch_set(s->watch, LOOP_READ)) {
		disconnect(s, "out of memory");
		return;
	}
	read_session(s);
}

/* Nothing is said aloud. */
static void on_notice(void *arg, const PGresult *res)
{
	struct system *s = arg;
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

	if (state != NULL && text != NULL && strcmp(state, INTERCEPT_NEWS) == 0)
		touched_told(s->db, &s->told, text);
}

/* libpq resolves names while the loop stands still, so it is given the address of a server that the
 * pool is connected to. false: there is none yet. */
static bool find_server(struct system *s, struct pool_target *t)
{
	struct pool *p = pooler_find_pool(s->db->name, s->pool_user);

	if (p == NULL)
		return false;
	pool_target(p, t);
	return t->address[0] != '\0' || t->host[0] == '/' || t->host[0] == '\0';
}

/* The rules of the pool's own connections, in libpq's words: sslmode, sslrootcert, sslcert, sslkey.
 * It would look for files in the home directory, and verify more than it was told if it finds them.
 */
static void tls_values(const struct system *s, const char *values[4])
{
	static const char no_file[] = "/dev/null/none";
	struct tls_files f;
	enum sslmode mode = tls_files_for_database(s->db->name, &f);

	values[0] = sslmode_name(mode);
	values[1] = mode >= SSLMODE_VERIFY_CA ? f.ca_file : no_file;
	values[2] = f.cert_file[0] != '\0' ? f.cert_file : no_file;
	values[3] = f.key_file[0] != '\0' ? f.key_file : no_file;
}

static bool copy(char **dst, const char *src)
{
	mem_free(*dst);
	*dst = src != NULL ? mem_strdup(src) : NULL;
	return src == NULL || *dst != NULL;
}

static void forget_password(struct system *s)
{
	if (s->password != NULL)
		util_erase(s->password, strlen(s->password));
	mem_free(s->password);
	s->password = NULL;
}

/* Which role the session has: the one that the configuration names, the forced user of the
 * database, or the role of the client that needed it first. */
static bool choose_role(struct system *s, const struct pool_target *t)
{
	const struct params *p = &conf_current()->p;
	const struct auth_user *u;
	const char *user = s->pool_user, *password = NULL;

	if (t->queue_user != NULL) {
		user = t->queue_user;
		password = t->queue_password;
	} else if (p->queue_user[0] != '\0') {
		user = p->queue_user;
		password = p->queue_password[0] != '\0' ? p->queue_password : NULL;
	} else if (t->force_user != NULL) {
		user = t->force_user;
		password = t->force_password;
	}
	u = auth_user_find(user);
	if (password == NULL && u != NULL && u->secret.kind == SECRET_PLAIN)
		password = u->secret.plain;
	forget_password(s);
	return copy(&s->user, user) && copy(&s->password, password);
}

/* Each time anew: the configuration may have changed since. */
static bool learn_target(struct system *s, const struct pool_target *t)
{
	s->port = t->port;
	return copy(&s->hosts, t->hosts) && copy(&s->dbname, t->dbname) && choose_role(s, t);
}

/* The database is somewhere else now: who is there shall see our lock, and tell us. */
static bool has_moved(const struct system *s)
{
	struct pool *p = pooler_find_pool(s->db->name, s->pool_user);
	struct pool_target t;

	if (p == NULL)
		return false;
	pool_target(p, &t);
	return t.port != s->port || strcmp(t.hosts, s->hosts) != 0 ||
	       strcmp(t.dbname, s->dbname) != 0;
}

static void connect_session(struct system *s)
{
	struct pool_target t;
	char port[16];
	const char *const keys[] = {"host", "hostaddr", "port", "dbname", "user", "password",
		"sslmode", "sslrootcert", "sslcert", "sslkey", "application_name",
		"client_encoding", "options", "keepalives_idle", "keepalives_interval",
		"keepalives_count", NULL};
	const char *values[] = {NULL, NULL, port, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
		"qbouncer system", "UTF8", "-c search_path=pg_catalog,pg_temp", "15", "5", "3",
		NULL};

	if (!find_server(s, &t)) {
		disconnect(s, "no server of the pool is connected");
		return;
	}
	if (!learn_target(s, &t)) {
		disconnect(s, "out of memory");
		return;
	}
	values[0] = t.host;
	values[1] = t.address[0] != '\0' ? t.address : NULL;
	values[3] = s->dbname;
	values[4] = s->user;
	values[5] = s->password;
	tls_values(s, values + 6);
	snprintf(port, sizeof(port), "%d", t.port);
	s->state = SYSTEM_CONNECTING;
	s->since = loop_now();
	s->pg = PQconnectStartParams(keys, values, 0);
	if (s->pg == NULL || PQstatus(s->pg) == CONNECTION_BAD) {
		disconnect(s, s->pg != NULL ? PQerrorMessage(s->pg) : "out of memory");
		return;
	}
	PQsetNoticeReceiver(s->pg, on_notice, s);
	if (!set_watch(s, LOOP_WRITE))
		disconnect(s, "out of memory");
	loop_tick_at(s->tick, s->since + CONNECT_LIMIT);
}

static void disconnect(struct system *s, const char *why)
{
	size_t n;

	util_strlcpy(s->why, why, sizeof(s->why));
	n = strlen(s->why);
	while (n > 0 && s->why[n - 1] == '\n')
		s->why[--n] = '\0';
	if (!s->warned)
		log_warning("%s: system session is down, waiting clients are served by polling: %s",
			s->db->name, s->why);
	s->warned = true;
	loop_watch_free(&s->watch);
	PQfinish(s->pg);
	s->pg = NULL;
	touched_told_end(s->db, &s->told, false);
	s->busy = s->looking = s->maintaining = s->others_known = false;
	s->state = SYSTEM_DOWN;
	s->since = loop_now();
	s->retry_at = s->since + s->retry;
	loop_tick_at(s->tick, s->retry_at);
	s->retry = s->retry * 2 < RETRY_LAST ? s->retry * 2 : RETRY_LAST;
	registry_down(s->db);
}

/* --- time
 * -----------------------------------------------------------------------------------------------------
 */

static usec_t next_deadline(const struct system *s)
{
	switch (s->state) {
	case SYSTEM_DOWN:
		return s->retry_at;
	case SYSTEM_CONNECTING:
		return s->since + CONNECT_LIMIT;
	case SYSTEM_LISTENING:
	case SYSTEM_UP:
		break;
	}
	return s->busy ? s->since + ANSWER_LIMIT : next_work(s);
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct system *s = arg;

	switch (s->state) {
	case SYSTEM_DOWN:
		if (now >= s->retry_at)
			connect_session(s);
		break;
	case SYSTEM_CONNECTING:
		if (now >= s->since + CONNECT_LIMIT)
			disconnect(s, "connect timeout");
		break;
	case SYSTEM_LISTENING:
	case SYSTEM_UP:
		if (s->busy && now >= s->since + ANSWER_LIMIT)
			disconnect(s, "no answer");
		else if (!s->busy && s->state == SYSTEM_UP && now >= s->look_at)
			look_at_others(s);
		else if (!s->busy && s->state == SYSTEM_UP && now >= maintain_at(s->db))
			maintain(s);
		break;
	}
	return next_deadline(s);
}

/* --- life
 * ------------------------------------------------------------------------------------------------------
 */

static void free_one(struct system *s)
{
	pending_clear(s);
	touched_told_end(s->db, &s->told, false);
	loop_watch_free(&s->watch);
	loop_tick_free(&s->tick);
	PQfinish(s->pg);
	mem_free(s->hosts);
	mem_free(s->dbname);
	mem_free(s->user);
	mem_free(s->pool_user);
	forget_password(s);
	mem_free(s);
}

void system_need(struct qdb *db, struct pool *pool)
{
	struct system *s;

	if (db->system != NULL)
		return;
	s = mem_zalloc(sizeof(*s));
	if (s == NULL)
		return;
	s->db = db;
	s->retry = RETRY_FIRST;
	s->tick = loop_tick_new(on_tick, s, USEC_NEVER);
	if (s->tick == NULL || !copy(&s->pool_user, pool_user(pool))) {
		free_one(s);
		return;
	}
	db->system = s;
	connect_session(s);
}

void system_free(struct qdb *db)
{
	if (db->system != NULL)
		free_one(db->system);
	db->system = NULL;
}

void system_moved(struct qdb *db)
{
	struct system *s = db->system;

	if (s != NULL && s->state != SYSTEM_DOWN && has_moved(s))
		disconnect(s, "the database is elsewhere now");
}

bool system_is_up(const struct qdb *db)
{
	return db->system != NULL && db->system->state == SYSTEM_UP;
}

const char *system_state(const struct qdb *db)
{
	static char text[200];

	if (db->system == NULL)
		return "off";
	switch (db->system->state) {
	case SYSTEM_UP:
		return "up";
	case SYSTEM_CONNECTING:
	case SYSTEM_LISTENING:
		return "connecting";
	case SYSTEM_DOWN:
		break;
	}
	snprintf(text, sizeof(text), "down: %s", db->system->why);
	return text;
}

void system_notify(struct qdb *db, const char *queue)
{
	struct system *s = db->system;
	struct pending *p;

	if (s == NULL || (s->others_known && !s->others))
		return;
	HASH_FIND_STR(s->pending, queue, p);
	if (p == NULL && s->n_pending < PENDING_MAX && (p = mem_zalloc(sizeof(*p))) != NULL) {
		util_strlcpy(p->queue, queue, sizeof(p->queue));
		HASH_ADD_STR(s->pending, queue, p);
		if (p->hh.tbl != NULL)
			s->n_pending++;
		else
			mem_free(p);
	}
	send_notifications(s);
}
