/*
 * A client: its life, the list it is in, its cancel key, and what claimants may ask and tell about
 * it. Logging in is client_login.c, its messages are client_msg.c and extq.c.
 *
 *   LOGIN -> ACTIVE <-> WAITING (for a server)
 *                   <-> BARRIER (its server has to finish first)
 *                   <-> PARKED  (a claimant answers later)        any -> DEAD, freed by the reaper
 *                    -> LEAVING (told to go in this turn)
 *                   <-> MOVING  (to another process)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/sqllex.h"
#include "reading.h"

struct client_list client_logins, client_dead, client_consoles;
static struct slab *slab;
static unsigned count;

struct key_entry {
	UT_hash_handle hh;
	uint64_t key;
	struct client *c;
};
static struct key_entry *keys;

/* --- lists --- */

static struct client_list *list_of(struct client *c)
{
	switch ((enum client_state)c->state) {
	case CLIENT_LOGIN:
		return c->greeting ? &c->pool->greeting : &client_logins;
	case CLIENT_WAITING:
		return &c->pool->waiting;
	case CLIENT_LEAVING:
		return &client_leaving;
	case CLIENT_MOVING:
		return &client_moving;
	case CLIENT_DEAD:
		return &client_dead;
	case CLIENT_ACTIVE:
	case CLIENT_BARRIER:
	case CLIENT_PARKED:
		break;
	}
	return c->console ? &client_consoles : &c->pool->active;
}

static void list_add(struct client *c)
{
	struct client_list *l = list_of(c);

	DL_APPEND(l->head, c);
	l->count++;
}

static void list_del(struct client *c)
{
	struct client_list *l = list_of(c);

	INVARIANT(l->count > 0, "a client leaves a list that is empty");
	DL_DELETE(l->head, c);
	l->count--;
	if (pooler_gated && l == &client_logins)
		pooler_gate(loop_now());
}

void client_move(struct client *c, enum client_state to)
{
	bool same;

	CHECK_CLIENT(c);
	INVARIANT(c->state != CLIENT_DEAD, "a dead client moves");
	INVARIANT(to != CLIENT_LOGIN, "a client is to log in again");
	INVARIANT(
		to != CLIENT_WAITING || c->link == NULL, "a client waits for a server and has one");
	INVARIANT(to != CLIENT_PARKED || c->parked.stmt != NULL,
		"a client is parked without a statement");
	same = c->state >= CLIENT_ACTIVE && to >= CLIENT_ACTIVE && c->state != CLIENT_WAITING &&
	       to != CLIENT_WAITING && c->state < CLIENT_LEAVING && to < CLIENT_LEAVING;
	if (same) { /* one list */
		c->state = (uint8_t)to;
		return;
	}
	list_del(c);
	c->state = (uint8_t)to;
	list_add(c);
}

/* From `logins` to those who wait for the pool to learn its welcome. */
void client_move_greeting(struct client *c)
{
	INVARIANT(c->state == CLIENT_LOGIN && !c->greeting,
		"a client is greeted that does not log in");
	CHECK_CLIENT(c);
	list_del(c);
	c->greeting = true;
	list_add(c);
}

static struct client *make(struct conn *conn)
{
	struct client *c;

	if (slab == NULL)
		slab = slab_new("client", sizeof(struct client));
	c = slab != NULL ? slab_get(slab) : NULL;
	if (c == NULL)
		return NULL;
	c->magic = CLIENT_MAGIC;
	c->state = CLIENT_LOGIN;
	c->id = pooler_next_id();
	c->connect_time = loop_now();
	list_add(c);
	count++;
	c->conn = conn;
	conn_set_ops(conn, &client_login_ops, c);
	return c;
}

struct client *client_new(int fd, const struct conn_addr *peer)
{
	struct conn *conn = conn_new(fd, peer, &client_login_ops, NULL);
	struct client *c = conn != NULL ? make(conn) : NULL;

	if (c == NULL)
		conn_close(&conn);
	return c;
}

struct client *client_adopt(int fd, const struct conn_addr *peer, const void *input, size_t len)
{
	struct conn *conn = conn_adopt(fd, peer, NULL, input, len, &client_login_ops, NULL);
	struct client *c = conn != NULL ? make(conn) : NULL;

	if (c == NULL)
		conn_abandon(&conn);
	return c;
}

unsigned client_count(void)
{
	return count;
}

void client_each(void (*fn)(struct client *c, void *arg), void *arg)
{
	struct client *c, *tmp;

	DL_FOREACH_SAFE (client_logins.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_consoles.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_leaving.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_moving.head, c, tmp)
		fn(c, arg);
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			DL_FOREACH_SAFE (p->active.head, c, tmp)
				fn(c, arg);
			DL_FOREACH_SAFE (p->waiting.head, c, tmp)
				fn(c, arg);
			DL_FOREACH_SAFE (p->greeting.head, c, tmp)
				fn(c, arg);
		}
}

/* --- the end --- */

static void leave_server(struct client *c, enum client_end how)
{
	struct server *s = c->link;

	c->link = NULL;
	if (s == NULL)
		return;
	server_unlink_abandoned(s, how == CLIENT_END_TERMINATE);
}

void client_close(struct client *c, enum client_end how, const char *reason)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	if (c->link != NULL && c->pass_left > 0 && !c->pass_discard)
		server_batch_goes_on(
			c->link); /* has a part of a message: of no use to anybody else */
	if (reason != NULL && (c->state != CLIENT_LOGIN || how == CLIENT_END_BY_US) &&
		conf_current()->p.log_disconnections)
		log_write(LOG_LVL_INFO, client_prefix(c), "closing because: %s (age=%llus)", reason,
			(unsigned long long)((loop_now() - c->connect_time) / USEC_SEC));
	/* the claimant hears of it while the client is still whole; answers that are under way are
	 * dropped first */
	extq_leave(c);
	if (c->link != NULL)
		leave_server(c, how);
	session_pin(c, 0);
	if (c->icpt != NULL && c->told == TOLD_BEGUN) {
		c->told = TOLD_ENDED;
		c->icpt->client_ended(c, how);
	}
	if (c->state == CLIENT_LOGIN) {
		cancel_drop_asker(c);
		client_auth_closing(c);
	}
	listen_end(c);
	client_key_forget(c);
	if (c->counted) {
		INVARIANT(c->account->clients > 0, "more clients of a user leave than have come");
		c->account->clients--;
		if (c->pool != NULL)
			c->pool->db->n_clients--;
	}
	INVARIANT(count > 0 && c->link == NULL,
		"a client ends that is not counted, or keeps its server");
	count--;
	client_move(c, CLIENT_DEAD);
	if (c->conn != NULL)
		conn_close(&c->conn);
}

void client_free_slabs(void)
{
	slab_free(&slab);
}

static void free_one(struct client *c)
{
	INVARIANT(c->state == CLIENT_DEAD && c->conn == NULL, "a client is freed that lives");
	client_login_free(c);
	extq_free(c);
	portal_drop_all(c);
	lstmt_drop(&c->parked.stmt);
	vars_clear(&c->vars);
	istr_drop(&c->extra);
	reading_forget(c);
	istr_drop(&c->origin);
	istr_drop(&c->sqlprep);
	istr_drop(&c->user);
	account_put(&c->account);
	istr_drop(&c->database);
	mem_free(c->tx.begin_sql);
	mem_free(c->head.error);
	c->magic = 0;
	slab_put(slab, c);
}

void client_reap(void)
{
	struct client *c, *tmp;

	DL_FOREACH_SAFE (client_dead.head, c, tmp) {
		DL_DELETE(client_dead.head, c);
		client_dead.count--;
		free_one(c);
	}
}

bool client_out_of_memory(struct client *c)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "53200", "out of memory");
	client_fatal(c, &err);
	return false;
}

void client_log_refusal(const struct client *c, const char *why)
{
	CHECK_CLIENT(c);
	if (conf_current()->p.log_pooler_errors)
		log_write(LOG_LVL_WARNING, client_prefix(c), "pooler error: %s", why);
}

void client_fatal_because(struct client *c, const struct pg_error *err, const char *reason)
{
	struct pg_error fatal = *err;
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	stat_error(err->sqlstate);
	pg_error_severity(&fatal, "FATAL");
	build_error(&b, &fatal);
	/* not in the middle of a message of the server */
	if (!buf_failed(&b) && c->conn != NULL &&
		!(c->link != NULL && c->link->pass_left > 0 && !c->link->pass_discard))
		conn_write(c->conn, b.data, b.len);
	buf_free(&b);
	client_log_refusal(c, err->message);
	client_close(c, CLIENT_END_BY_US, reason);
}

void client_fatal(struct client *c, const struct pg_error *err)
{
	client_fatal_because(c, err, err->message);
}

/* --- writing --- */

void client_write(struct client *c, const struct buf *b)
{
	if (c->conn != NULL && b->len > 0)
		conn_write(c->conn, b->data, b->len);
}

void client_emit(struct client *c, struct buf *b)
{
	struct server *s = c->link;
	struct buf *copy;

	CHECK_CLIENT(c);
	if (buf_failed(b)) {
		buf_free(b);
		client_out_of_memory(c);
		return;
	}
	if (c->pool != NULL)
		c->pool->stats.bytes_out += b->len;
	if (s == NULL || (s->expect.count == 0 && s->pass_left == 0)) {
		client_write(c, b);
		buf_free(b);
		return;
	}
	copy = mem_alloc(sizeof(*copy));
	if (copy == NULL) {
		buf_free(b);
		client_out_of_memory(c);
		return;
	}
	*copy = *b;
	*b = BUF_INIT;
	server_expect(s, EXPECT_LOCAL, &dest_client, copy);
}

/* --- cancel keys --- */

static bool key_is_free(uint64_t key)
{
	struct key_entry *other;

	HASH_FIND(hh, keys, &key, sizeof(key), other);
	return other == NULL && key >> 32 != 0;
}

static uint64_t key_new(void)
{
	uint64_t key;

	do {
		util_random(&key, sizeof(key));
		key = cancel_key_of(key);
	} while (!key_is_free(key));
	return key;
}

static bool key_enter(struct client *c, uint64_t key)
{
	struct key_entry *e = mem_zalloc(sizeof(*e));

	if (e == NULL)
		return false;
	e->key = key;
	e->c = c;
	HASH_ADD(hh, keys, key, sizeof(e->key), e);
	if (e->hh.tbl == NULL) {
		mem_free(e);
		return false;
	}
	c->key = key;
	return true;
}

bool client_key_assign(struct client *c)
{
	return key_enter(c, key_new());
}

bool client_key_adopt(struct client *c, uint64_t key)
{
	return key_enter(c, key_is_free(key) ? key : key_new());
}

void client_key_forget(struct client *c)
{
	struct key_entry *e;

	if (c->key == 0)
		return;
	HASH_FIND(hh, keys, &c->key, sizeof(c->key), e);
	c->key = 0;
	if (e != NULL) {
		HASH_DEL(keys, e);
		mem_free(e);
	}
}

struct client *client_by_key(uint64_t key)
{
	struct key_entry *e;

	HASH_FIND(hh, keys, &key, sizeof(key), e);
	return e != NULL ? e->c : NULL;
}

/* --- what claimants and logs see --- */

enum client_tx client_tx(const struct client *c)
{
	if (c->tx.virtual == VTX_FAILED)
		return CLIENT_TX_FAILED;
	if (c->tx.virtual == VTX_OPEN)
		return CLIENT_TX_VIRTUAL;
	if (c->link == NULL || c->link->tx == 'I')
		return CLIENT_TX_IDLE;
	return c->link->tx == 'E' ? CLIENT_TX_FAILED : CLIENT_TX_OPEN;
}

char client_status(const struct client *c)
{
	switch (client_tx(c)) {
	case CLIENT_TX_IDLE:
		return 'I';
	case CLIENT_TX_FAILED:
		return 'E';
	case CLIENT_TX_VIRTUAL:
	case CLIENT_TX_OPEN:
		break;
	}
	return 'T';
}

bool client_is_linked(const struct client *c)
{
	return c->link != NULL;
}

struct pool *client_pool(const struct client *c)
{
	return c->pool;
}

const char *client_database(const struct client *c)
{
	return istr_text(c->database);
}

const char *client_user(const struct client *c)
{
	return istr_text(c->user);
}

uint64_t client_id(const struct client *c)
{
	return c->id;
}

void *client_slot(const struct client *c)
{
	return c->slot;
}

void client_slot_set(struct client *c, void *data)
{
	c->slot = data;
}

bool client_is_alive(const struct client *c)
{
	return c->state != CLIENT_DEAD && c->conn != NULL && conn_alive(c->conn);
}

uint64_t client_output_end(const struct client *c)
{
	return c->conn != NULL ? conn_output_end(c->conn) : UINT64_MAX;
}

bool client_has_sent(const struct client *c, uint64_t end)
{
	return c->conn != NULL && conn_has_sent(c->conn, end);
}

static const struct {
	const char *encoding;
	unsigned wide;
} wide_encodings[] = {
	{"SJIS", SQL_WIDE_SJIS},
	{"BIG5", SQL_WIDE},
	{"GBK", SQL_WIDE},
	{"UHC", SQL_WIDE},
	{"GB18030", SQL_WIDE_GB18030},
	{"JOHAB", SQL_WIDE},
	{"SHIFT_JIS_2004", SQL_WIDE_SJIS | SQL_WIDE_JIS_2004},
};

static unsigned wide_of(const char *encoding)
{
	if (encoding[0] == 'U' && encoding[1] == 'T') /* UTF8: nearly always */
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(wide_encodings); i++)
		if (strcmp(encoding, wide_encodings[i].encoding) == 0)
			return wide_encodings[i].wide;
	return 0;
}

unsigned client_dialect(const struct client *c)
{
	const char *standard = istr_text(c->vars.v[VAR_STANDARD_STRINGS]);
	bool off = standard[0] == 'o' && standard[1] == 'f';

	return wide_of(istr_text(c->vars.v[VAR_CLIENT_ENCODING])) | (off ? 0 : SQL_STANDARD);
}

bool client_encoding_unsafe(const struct client *c)
{
	return wide_of(istr_text(c->vars.v[VAR_CLIENT_ENCODING])) != 0;
}

const char *client_prefix(const struct client *c)
{
	static char text[512];
	const struct conn_addr *peer = c->conn != NULL ? conn_peer(c->conn) : NULL;
	const char *db = c->database != NULL ? istr_text(c->database) : "(nodb)";
	const char *user = c->user != NULL ? istr_text(c->user) : "(nouser)";

	if (peer == NULL)
		snprintf(
			text, sizeof(text), "C-0x%llx: %s/%s", (unsigned long long)c->id, db, user);
	else
		snprintf(text, sizeof(text), "C-0x%llx: %s/%s@%s:%d", (unsigned long long)c->id, db,
			user, peer->is_unix ? "unix" : peer->host, peer->port);
	return text;
}

void client_log(const struct client *c, int level, const char *fmt, ...)
{
	va_list ap;

	CHECK_CLIENT(c);
	if (!log_enabled((enum log_level)level))
		return;
	va_start(ap, fmt);
	log_writev((enum log_level)level, client_prefix(c), fmt, ap);
	va_end(ap);
}

/* A number of milliseconds, or with a unit, as Postgres takes it. */
static usec_t timeout_value(const char *text)
{
	static const struct {
		const char *unit;
		usec_t factor;
	} units[] = {{"", USEC_MSEC}, {"us", 1}, {"ms", USEC_MSEC}, {"s", USEC_SEC},
		{"min", 60 * USEC_SEC}, {"h", 3600 * USEC_SEC}, {"d", 86400 * USEC_SEC}};
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	while (*end == ' ')
		end++;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(end, units[i].unit) == 0 && n < USEC_NEVER / units[i].factor)
			return (usec_t)n * units[i].factor;
	return 0;
}

usec_t client_statement_timeout(const struct client *c)
{
	const char *p = istr_text(c->extra), *end = p + istr_len(c->extra);

	CHECK_CLIENT(c);
	while (p < end) {
		const char *name = p, *value = name + strlen(name) + 1;

		if (util_strcasecmp(name, "statement_timeout") == 0)
			return timeout_value(value);
		p = value + strlen(value) + 1;
	}
	return 0;
}

void client_watch_tx(struct client *c)
{
	c->tx.watched = true;
}

bool client_tx_in_part(const struct client *c)
{
	return c->tx.failed;
}

void client_heartbeat(struct client *c)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (c->state != CLIENT_PARKED || conn_pending_output(c->conn) > 0)
		return;
	build_parameter_status(
		&b, var_name(VAR_APPLICATION_NAME), istr_text(c->vars.v[VAR_APPLICATION_NAME]));
	client_emit(c, &b);
}

void client_notice(struct client *c, const struct pg_error *notice)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_notice(&b, notice);
	client_emit(c, &b);
}

/* Its lists are the console's from now on. Only during login. */
void client_become_console(struct client *c)
{
	CHECK_CLIENT(c);
	INVARIANT(c->state == CLIENT_LOGIN && c->pool == NULL,
		"a client of a database gets the console");
	c->console = CONSOLE_USER;
}
