/*
 * The proxy's own session in a database, through libpq: LISTENs for pushes that did not pass
 * through this proxy, and tells other proxies of those that did, if there are any. It changes no
 * row: what it says of itself are statements of pg_catalog alone, and it is no superuser's unless
 * the configuration asks for that. While it is down the wait queues look for themselves, more often.
 *
 * What else is done in it are chores (system.h), one statement at a time. It knows neither who
 * listens nor what the chores are.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <libpq-fe.h>

#include "auth/auth.h"
#include "net/tls.h"
#include "agent.h"
#include "guard.h"
#include "queue_int.h"
#include "system.h"
#include "telling.h"

#define RETRY_FIRST   (250 * USEC_MSEC)
#define RETRY_LAST    (5 * USEC_SEC) /* others wait for us that long, and longer (registry.c) */
#define CONNECT_LIMIT (15 * USEC_SEC)
#define PEEK_AGAIN    (10 * USEC_MSEC) /* at a message of the login that came in part */
#define LOOK_SUPER    (60 * USEC_SEC)  /* is that role still a superuser? */
#define ANSWER_LIMIT  (10 * USEC_SEC)
#define KEEP_MAX      1000 /* queues, while nobody needs to hear of them (telling.h) */

#define COLUMNS_MAX   24 /* of a chore's rows */

enum system_state { SYSTEM_RESTS, SYSTEM_DOWN, SYSTEM_CONNECTING, SYSTEM_LISTENING, SYSTEM_UP };

enum refusal { NOT_REFUSED, REFUSED, REFUSED_UNFIT }; /* UNFIT: for what it says */

/* What is under way. */
enum query { QUERY_NONE, QUERY_LISTEN, QUERY_NOTIFY, QUERY_CHORE };

struct system {
	struct qdb *db;
	enum system_state state;
	PGconn *pg;
	struct loop_watch *watch;
	struct loop_tick *tick;
	struct telling telling;
	enum system_others others;
	enum query query;
	const struct system_chore *chore; /* whose step it is */
	enum refusal refused;             /* a statement of the query under way */
	bool counts;                      /* our lock does, as they said who looked last */
	bool named; /* the role is that of the configuration, not of a client */
	bool super; /* it is a superuser's, and was given up */
	bool told_super;
	bool warned;
	usec_t since; /* of the state, or of the query under way */
	usec_t retry, retry_at;
	char *hosts, *dbname, *user, *password; /* as they were when it connected last */
	int port;
	char *pool_user; /* whose pool tells where the server is */
	struct guard guard;
	usec_t peek_at; /* nothing of the socket is watched until then; 0: it is watched */
	char why[160];
};

/* Of whichever queue: longer than the name of one. */
#define ANY_QUEUE "of any queue: a prepared transaction was committed"
_Static_assert(sizeof(ANY_QUEUE) > QSTMT_QUEUE_MAX + 1, "it is no name");
_Static_assert(sizeof(SYSTEM_AWAKE) > QSTMT_QUEUE_MAX + 1, "it is no name");

static struct {
	const struct system_listener *listeners[SYSTEM_LISTENERS_MAX];
	const struct system_chore *chores[SYSTEM_CHORES_MAX];
	size_t n_listeners, n_chores;
} registered;

static void look_for_better(struct system *s);
static void on_socket(int fd, int mask, void *arg);
static void disconnect(struct system *s, const char *why);

/* --- who listens, and what is done --- */

void system_listen(const struct system_listener *l)
{
	for (size_t i = 0; i < registered.n_listeners; i++)
		if (registered.listeners[i] == l)
			return;
	ASSERT(registered.n_listeners < ARRAY_LEN(registered.listeners));
	registered.listeners[registered.n_listeners++] = l;
}

void system_add_chore(const struct system_chore *c)
{
	for (size_t i = 0; i < registered.n_chores; i++)
		if (registered.chores[i] == c)
			return;
	ASSERT(registered.n_chores < ARRAY_LEN(registered.chores));
	registered.chores[registered.n_chores++] = c;
}

#define TELL(what, ...)                                                                            \
	do {                                                                                       \
		for (size_t i_ = 0; i_ < registered.n_listeners; i_++)                             \
			if (registered.listeners[i_]->what != NULL)                                \
				registered.listeners[i_]->what(__VA_ARGS__);                       \
	} while (0)

/* --- queries --- */

static void send_sql(struct system *s, enum query query, const char *sql)
{
	s->query = query;
	s->refused = NOT_REFUSED;
	if (PQsendQuery(s->pg, sql) != 1) {
		disconnect(s, PQerrorMessage(s->pg));
		return;
	}
	s->since = loop_now();
	loop_tick_at(s->tick, s->since + ANSWER_LIMIT);
	if (PQflush(s->pg) == 1 && !loop_watch_set(s->watch, LOOP_READ | LOOP_WRITE))
		disconnect(s, "out of memory");
}

/* While nobody is to be told no time is set for them: who comes is seen by a statement, or says so, and both look here. */
static bool has_news(const struct system *s)
{
	return !outbox_is_empty(&s->telling.next) &&
	       s->others >= (s->telling.next.urgent ? OTHERS_ASLEEP : OTHERS_AWAKE);
}

/* One statement for all that came together meanwhile, or was kept: in rows, as there are more of them than a row can
 * have columns. */
static void send_notifications(struct system *s)
{
	struct outbox_entry *e, *tmp;
	struct buf sql = BUF_INIT;
	const char *sep = "";
	unsigned n = telling_most(&s->telling);

	if (s->state != SYSTEM_UP || s->query != QUERY_NONE || !has_news(s))
		return;
	if (loop_now() < s->telling.at) { /* the others may have come since it was refused */
		loop_tick_at(s->tick, s->telling.at);
		return;
	}
	buf_puts(&sql, "SELECT pg_catalog.pg_notify('" SYSTEM_CHANNEL
		       "', q) FROM pg_catalog.unnest(ARRAY[");
	HASH_ITER (hh, s->telling.next.queues, e, tmp) {
		char *literal;

		if (n-- == 0)
			break;
		literal = PQescapeLiteral(s->pg, e->queue, strlen(e->queue));
		if (literal != NULL) {
			buf_printf(&sql, "%s%s", sep, literal);
			sep = ", ";
		} else { /* no text of ours, or without memory */
			s->telling.next.any = true;
		}
		PQfreemem(literal);
	}
	if (s->telling.next.any)
		buf_printf(&sql, "%s'" ANY_QUEUE "'", sep);
	buf_puts(&sql, "]::pg_catalog.text[]) AS q");
	if (!buf_failed(&sql)) {
		telling_begins(&s->telling);
		send_sql(s, QUERY_NOTIFY, buf_cstr(&sql));
	} else {
		s->telling.at = loop_now() + TELL_AGAIN;
		loop_tick_at(s->tick, s->telling.at);
	}
	buf_free(&sql);
}

static void begin_listening(struct system *s)
{
	s->state = SYSTEM_LISTENING;
	/* A machine that is gone without a word is noticed by the server, which drops its locks then. */
	send_sql(s, QUERY_LISTEN,
		"SET synchronous_commit = off; SET statement_timeout = '5s'; SET lock_timeout = '2s'; "
		"SET tcp_keepalives_idle = 3; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; "
		"LISTEN " SYSTEM_CHANNEL);
}

/* When the session has something to do by itself. */
static usec_t next_work(const struct system *s)
{
	usec_t next = has_news(s) ? s->telling.at : USEC_NEVER;

	for (size_t i = 0; s->state == SYSTEM_UP && i < registered.n_chores; i++) {
		usec_t at = registered.chores[i]->due(s->db);

		next = at < next ? at : next;
	}
	return next;
}

static void work(struct system *s, usec_t now)
{
	struct buf sql = BUF_INIT;

	if (s->query == QUERY_NONE)
		look_for_better(s);
	for (size_t i = 0;
		s->state == SYSTEM_UP && s->query == QUERY_NONE && i < registered.n_chores; i++) {
		if (registered.chores[i]->due(s->db) > now)
			continue;
		buf_reset(&sql);
		if (!registered.chores[i]->step(s->db, &sql))
			continue;
		s->chore = registered.chores[i];
		if (buf_failed(&sql))
			s->chore->ended(s->db, true);
		else
			send_sql(s, QUERY_CHORE, buf_cstr(&sql));
	}
	buf_free(&sql);
}

static void is_up(struct system *s)
{
	s->state = SYSTEM_UP;
	s->retry = RETRY_FIRST;
	s->warned = false;
	/* LISTEN first, then look: nothing falls between */
	TELL(up, s->db);
	work(s, loop_now());
}

/* What is told and the chores take turns: behind news those that are due come first, and more news behind each. */
static void query_done(struct system *s)
{
	enum query query = s->query;

	s->query = QUERY_NONE;
	if (query == QUERY_CHORE)
		s->chore->ended(s->db, s->refused != NOT_REFUSED);
	if (query == QUERY_NOTIFY && s->refused != NOT_REFUSED)
		telling_failed(&s->telling,
			s->refused == REFUSED_UNFIT ? TELLING_UNFIT : TELLING_REFUSED, loop_now());
	else if (query == QUERY_NOTIFY)
		telling_ended(&s->telling);
	loop_tick_at(s->tick, next_work(s));
	if (query == QUERY_LISTEN) {
		if (s->refused != NOT_REFUSED)
			disconnect(s, "LISTEN failed");
		else
			is_up(s);
		return;
	}
	TELL(statement_ended, s->db, s->refused == NOT_REFUSED);
	if (query == QUERY_NOTIFY)
		work(s, loop_now());
	send_notifications(s);
}

static void take_rows(struct system *s, const PGresult *res)
{
	int n = PQnfields(res);

	for (int i = 0; i < PQntuples(res) && n <= COLUMNS_MAX; i++) {
		const char *cols[COLUMNS_MAX];

		for (int k = 0; k < n; k++)
			cols[k] = PQgetisnull(res, i, k) ? NULL : PQgetvalue(res, i, k);
		s->chore->row(s->db, cols, n);
	}
}

static void take_result(struct system *s, const PGresult *res)
{
	ExecStatusType st = PQresultStatus(res);

	if (st == PGRES_FATAL_ERROR) {
		const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

		s->refused =
			state != NULL && strncmp(state, "22", 2) == 0 ? REFUSED_UNFIT : REFUSED;
		log_warning("%s: system session: %s", s->db->name, PQresultErrorMessage(res));
		return;
	}
	if (st == PGRES_TUPLES_OK && s->query == QUERY_CHORE)
		take_rows(s, res);
}

/* Another one that needs to be told from now on, it says: what was kept is sent when the session is free. */
static void has_come(struct system *s)
{
	if (s->others != OTHERS_UNKNOWN)
		s->others = OTHERS_AWAKE;
}

static void take_notifications(struct system *s)
{
	PGnotify *n;

	while ((n = PQnotifies(s->pg)) != NULL) {
		if (n->be_pid == PQbackendPID(s->pg)) {
			/* our own: the wait queues here know already */
		} else if (n->extra[0] == '\0') {
			has_come(s);
			TELL(hello, s->db); /* who is it? */
		} else if (strcmp(n->extra, SYSTEM_AWAKE) == 0) {
			has_come(s);
			TELL(awake, s->db);
		} else if (strcmp(n->extra, ANY_QUEUE) == 0) {
			TELL(event_of_any, s->db);
		} else {
			TELL(event, s->db, n->extra);
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
	while (s->query != QUERY_NONE && PQisBusy(s->pg) == 0) {
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
	else
		send_notifications(s);
}

/* --- whose it is --- */

static bool copy(char **dst, const char *src)
{
	char *own = src != NULL ? mem_strdup(src) : NULL;

	if (src != NULL && own == NULL)
		return false;
	mem_free(*dst);
	*dst = own;
	return true;
}

/* What its role turned out to be good for. */
static void remember(struct system *s, enum agent_session how, usec_t how_long)
{
	struct agent *a = agent_get(s->db, s->pool_user);

	if (a == NULL)
		return;
	a->session = how;
	a->session_until = loop_now() + how_long;
}

/* The more the better: one that takes has a lock that counts, most likely. */
static int worth(const struct agent *a)
{
	if (a->session != SESSION_UNTRIED && loop_now() < a->session_until)
		return (int)a->session;
	if (a->is_super && !conf_current()->p.queue_user_superuser)
		return SESSION_SUPER;
	return SESSION_UNTRIED + (a->n_used > 0);
}

/* Instead of one that was in vain. */
static bool choose_another(struct system *s)
{
	const struct agent *own = agent_get(s->db, s->pool_user), *best = own;

	if (own != NULL && worth(own) >= SESSION_UNTRIED)
		return false;
	agents_see(s->db);
	for (const struct agent *a = s->db->agents; a != NULL; a = a->hh.next)
		if (best == NULL || worth(a) > worth(best))
			best = a;
	return best != own && copy(&s->pool_user, best->user);
}

static void come_back(struct system *s)
{
	s->super = false;
	if (s->state != SYSTEM_DOWN) {
		s->warned = true; /* it comes back at once */
		disconnect(s, "another role does it");
	}
	s->retry_at = loop_now();
	loop_tick_at(s->tick, s->retry_at);
}

/* It is up, and its lock says nothing to other proxies: that of a role that takes may. */
static void look_for_better(struct system *s)
{
	const struct agent *a;

	if (s->others == OTHERS_UNKNOWN || s->counts || s->named)
		return;
	remember(s, SESSION_SILENT, LOOK_SUPER);
	agents_see(s->db);
	for (a = s->db->agents; a != NULL; a = a->hh.next)
		if (worth(a) > SESSION_UNTRIED && copy(&s->pool_user, a->user)) {
			come_back(s);
			return;
		}
}

/* --- connecting --- */

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

/* Nothing that it says needs a superuser's rights, and what they can be abused for is not worth it.
 */
static bool is_refused(struct system *s)
{
	const char *said = PQparameterStatus(s->pg, "is_superuser");

	s->super =
		said != NULL && strcmp(said, "on") == 0 && !conf_current()->p.queue_user_superuser;
	return s->super;
}

static void give_up(struct system *s)
{
	if (!s->told_super)
		log_warning(
			"%s: no system session: %s is a superuser. Pushes that do not pass through this proxy are found by polling, "
			"and what is taken here is given back with the end of its lease only, if this proxy dies. Set queue_user "
			"to a role without other rights, with INSERT on queue.proxies, or queue_user_superuser = 1",
			s->db->name, s->user);
	s->told_super = s->warned = true;
	disconnect(s, "its role is a superuser");
	s->retry_at = loop_now() + LOOK_SUPER;
	if (!s->named) {
		remember(s, SESSION_SUPER, LOOK_SUPER);
		if (choose_another(s)) { /* whose clients have been waiting, perhaps */
			s->super = false;
			s->retry_at = loop_now();
		}
	}
	loop_tick_at(s->tick, s->retry_at);
}

/* What the server says in the login is seen before libpq acts on it. */
static enum guard_verdict look_at_login(struct system *s)
{
	void *ssl = PQsslStruct(s->pg, "OpenSSL");
	uint8_t data[GUARD_BYTES];
	enum guard_verdict v;
	ssize_t n;

	if (PQstatus(s->pg) != CONNECTION_AWAITING_RESPONSE) {
		s->guard.state = GUARD_FIRST;
		return GUARD_LET;
	}
	n = ssl != NULL ? tls_peek(ssl, data, sizeof(data))
			: recv(PQsocket(s->pg), data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return GUARD_LET; /* it has ended, and libpq says how */
	v = guard_look(&s->guard, data, n > 0 ? (size_t)n : 0);
	if (v != GUARD_WAIT || n < 0)
		return v;
	if (ssl != NULL) { /* there is no looking behind the first one */
		util_strlcpy(s->guard.why, "a message of the login is in several records of TLS",
			sizeof(s->guard.why));
		return GUARD_REFUSE;
	}
	s->peek_at = loop_now() + PEEK_AGAIN;
	return GUARD_WAIT;
}

/* A part of a message stays readable: the socket is not watched meanwhile. */
static void wait_for_login(struct system *s)
{
	if (s->peek_at > 0) {
		loop_watch_free(&s->watch);
		loop_tick_at(s->tick, s->peek_at);
	} else if (!set_watch(s, LOOP_READ)) {
		disconnect(s, "out of memory");
	}
}

static void go_on_connecting(struct system *s)
{
	int mask = 0;

	s->peek_at = 0;
	switch (look_at_login(s)) {
	case GUARD_LET:
		break;
	case GUARD_WAIT:
		wait_for_login(s);
		return;
	case GUARD_REFUSE:
		disconnect(s, s->guard.why);
		return;
	}
	switch (PQconnectPoll(s->pg)) {
	case PGRES_POLLING_READING:
		mask = LOOP_READ;
		break;
	case PGRES_POLLING_WRITING:
		mask = LOOP_WRITE;
		break;
	case PGRES_POLLING_OK:
		PQsetnonblocking(s->pg, 1);
		if (is_refused(s))
			give_up(s);
		else if (set_watch(s, LOOP_READ))
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
	const char *tx = PQresultErrorField(res, PG_DIAG_MESSAGE_DETAIL);

	if (state != NULL && text != NULL && strcmp(state, INTERCEPT_EVENT) == 0)
		TELL(raised, s->db, text, tx);
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

static void forget_password(struct system *s)
{
	if (s->password != NULL)
		util_erase(s->password, strlen(s->password));
	mem_free(s->password);
	s->password = NULL;
}

/* Which role the session has: the one that the configuration names, the forced user of the
 * database, or the role of a client that needed it: of the first, or of another one if that will
 * not do. */
static bool choose_role(struct system *s, const struct pool_target *t)
{
	const struct auth_user *u;
	const char *password;
	const char *user = conf_queue_user(t->queue_user, t->queue_password, &password);

	s->named = user[0] != '\0' || t->force_user != NULL;
	if (user[0] == '\0') {
		user = t->force_user != NULL ? t->force_user : s->pool_user;
		password = t->force_user != NULL ? t->force_password : NULL;
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
		"keepalives_count", PQlibVersion() >= 120000 ? "gssencmode" : NULL, NULL};
	const char *values[] = {NULL, NULL, port, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
		"qbouncer system", "UTF8", "-c search_path=pg_catalog,pg_temp", "15", "5", "3",
		"disable", NULL};

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
	s->guard.state = GUARD_FIRST;
	s->peek_at = 0;
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
	enum query query = s->query;
	size_t n;

	if (s->state != SYSTEM_UP)
		remember(s, SESSION_FAILED, RETRY_LAST);
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
	s->query = QUERY_NONE;
	telling_failed(&s->telling, TELLING_CUT_OFF, loop_now());
	TELL(statement_ended, s->db, false);
	if (query == QUERY_CHORE)
		s->chore->ended(s->db, true);
	s->others = OTHERS_UNKNOWN;
	s->counts = false;
	s->state = SYSTEM_DOWN;
	s->since = loop_now();
	s->retry_at = s->since + s->retry;
	loop_tick_at(s->tick, s->retry_at);
	s->retry = s->retry * 2 < RETRY_LAST ? s->retry * 2 : RETRY_LAST;
	TELL(down, s->db);
}

/* --- time --- */

static usec_t next_deadline(const struct system *s)
{
	switch (s->state) {
	case SYSTEM_RESTS:
		return USEC_NEVER;
	case SYSTEM_DOWN:
		return s->retry_at;
	case SYSTEM_CONNECTING:
		return s->peek_at > 0 ? s->peek_at : s->since + CONNECT_LIMIT;
	case SYSTEM_LISTENING:
	case SYSTEM_UP:
		break;
	}
	return s->query != QUERY_NONE ? s->since + ANSWER_LIMIT : next_work(s);
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct system *s = arg;

	switch (s->state) {
	case SYSTEM_RESTS:
		break;
	case SYSTEM_DOWN:
		if (now < s->retry_at)
			break;
		if (!s->super || !s->named)
			(void)choose_another(s);
		s->super = false;
		connect_session(s);
		break;
	case SYSTEM_CONNECTING:
		if (now >= s->since + CONNECT_LIMIT)
			disconnect(s, "connect timeout");
		else if (s->peek_at > 0 && now >= s->peek_at)
			go_on_connecting(s);
		break;
	case SYSTEM_LISTENING:
	case SYSTEM_UP:
		if (s->query != QUERY_NONE && now >= s->since + ANSWER_LIMIT)
			disconnect(s, "no answer");
		work(s, now);
		send_notifications(s);
		break;
	}
	return next_deadline(s);
}

/* --- life --- */

static void free_one(struct system *s)
{
	telling_clear(&s->telling);
	TELL(statement_ended, s->db, false);
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

/* It is a superuser's, or its lock does not count: the role of another client may do. */
static void offer(struct system *s, struct pool *pool)
{
	const struct agent *a, *own;

	if (strcmp(pool_user(pool), s->pool_user) == 0)
		return;
	if (!s->super && (s->state != SYSTEM_UP || s->others == OTHERS_UNKNOWN))
		return; /* it will be looked for when that is known */
	a = agent_get(s->db, pool_user(pool));
	own = agent_get(s->db, s->pool_user);
	if (a == NULL || own == NULL || worth(a) <= worth(own) || (!s->super && a->n_used == 0))
		return;
	if (copy(&s->pool_user, a->user))
		come_back(s);
}

void system_need(struct qdb *db, struct pool *pool)
{
	struct system *s;

	CHECK_QDB(db);
	if (db->system != NULL && db->system->state == SYSTEM_RESTS) {
		db->system->state = SYSTEM_DOWN;
		db->system->warned = false;
		db->system->retry = RETRY_FIRST;
		if (copy(&db->system->pool_user, pool_user(pool)))
			connect_session(db->system);
		return;
	}
	if (db->system != NULL) {
		if (!db->system->counts && !db->system->named)
			offer(db->system, pool);
		return;
	}
	s = mem_zalloc(sizeof(*s));
	if (s == NULL)
		return;
	s->db = db;
	s->state = SYSTEM_DOWN;
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
	CHECK_QDB(db);
	if (db->system != NULL)
		free_one(db->system);
	db->system = NULL;
}

void system_rest(struct qdb *db)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s == NULL || s->state == SYSTEM_RESTS)
		return;
	s->warned = true; /* it is meant */
	if (s->state != SYSTEM_DOWN)
		disconnect(s, "nobody needs it");
	outbox_clear(&s->telling.next);
	s->state = SYSTEM_RESTS;
}

void system_moved(struct qdb *db)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s == NULL)
		return;
	s->told_super = false;
	for (struct agent *a = db->agents; a != NULL; a = a->hh.next)
		a->session_until = 0;
	if (s->pg != NULL && has_moved(s))
		disconnect(s, "the database is elsewhere now");
}

bool system_is_up(const struct qdb *db)
{
	return db->system != NULL && db->system->state == SYSTEM_UP;
}

enum system_others system_others(const struct qdb *db)
{
	return system_is_up(db) ? db->system->others : OTHERS_UNKNOWN;
}

bool system_is_named(const struct qdb *db)
{
	return system_is_up(db) && db->system->named;
}

const char *system_role(const struct qdb *db)
{
	return db->system != NULL && db->system->named ? db->system->user : NULL;
}

void system_looked(struct qdb *db, enum system_others others, bool counts)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s->others == OTHERS_UNKNOWN)
		log_info("%s: system session is up (role %s)", db->name, s->user);
	s->others = others;
	s->counts = counts;
	if (counts)
		remember(s, SESSION_UNTRIED, 0);
}

void system_work(struct qdb *db)
{
	CHECK_QDB(db);
	if (db->system != NULL)
		loop_tick_at(db->system->tick, loop_now());
}

const char *system_state(const struct qdb *db)
{
	static char text[200];

	CHECK_QDB(db);
	if (db->system == NULL)
		return "off";
	switch (db->system->state) {
	case SYSTEM_RESTS:
		return "off";
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

void system_heard(struct qdb *db, const char *queue)
{
	CHECK_QDB(db);
	if (queue != NULL)
		TELL(event, db, queue);
	else
		TELL(event_of_any, db);
}

void system_notify_any(struct qdb *db)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s == NULL)
		return;
	s->telling.next.any = true;
	send_notifications(s);
}

void system_notify(struct qdb *db, const char *queue)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s == NULL)
		return;
	outbox_add(&s->telling.next, queue, s->others == OTHERS_AWAKE ? TELL_MAX : KEEP_MAX);
	send_notifications(s);
}

void system_notify_all(struct qdb *db, const char *event)
{
	struct system *s = db->system;

	CHECK_QDB(db);
	if (s == NULL)
		return;
	s->telling.next.urgent = true;
	outbox_add(&s->telling.next, event, TELL_EVENTS);
	send_notifications(s);
}
