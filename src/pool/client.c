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
#include <string.h>

#include "net/team.h"
#include "pool/places.h"
#include "pool/reading.h"
#include "pool/rooms.h"
#include "wire/sqllex.h"

struct client_all client_all;

#define KEY_BUCKETS_MIN 64

/* --- lists --- */

static struct client_list *list_of(struct client *c)
{
	switch ((enum client_state)c->state) {
	case CLIENT_LOGIN:
		return c->greeting ? &c->pool->greeting : &client_all.logins;
	case CLIENT_WAITING:
		return &c->pool->waiting;
	case CLIENT_LEAVING:
		return &client_all.leaving;
	case CLIENT_MOVING:
		return &client_all.moving;
	case CLIENT_DEAD:
		return &client_all.dead;
	case CLIENT_ACTIVE:
	case CLIENT_BARRIER:
	case CLIENT_PARKED:
		break;
	}
	return c->console ? &client_all.consoles : &c->pool->active;
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
	if (l == &client_all.logins)
		pool_all.calls->fewer_logins();
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

static struct client *make(struct conn *conn, const struct conn_ops *ops)
{
	struct client *c;

	if (client_all.slab == NULL)
		client_all.slab = slab_new("client", sizeof(struct client));
	c = client_all.slab != NULL ? slab_get(client_all.slab) : NULL;
	if (c == NULL)
		return NULL;
	c->magic = CLIENT_MAGIC;
	c->state = CLIENT_LOGIN;
	c->id = client_next_id();
	c->connect_time = loop_now();
	list_add(c);
	client_all.count++;
	team_count_clients(client_all.count);
	c->conn = conn;
	conn_set_ops(conn, ops, c);
	conn_count_unread(conn, true);
	return c;
}

struct client *client_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops)
{
	struct conn *conn = conn_new(fd, peer, ops, NULL);
	struct client *c = conn != NULL ? make(conn, ops) : NULL;

	if (c == NULL)
		conn_close(&conn);
	return c;
}

struct client *client_adopt(int fd, const struct conn_addr *peer, const void *input, size_t len,
	const struct conn_ops *ops)
{
	struct conn *conn = conn_adopt(fd, peer, NULL, input, len, ops, NULL);
	struct client *c = conn != NULL ? make(conn, ops) : NULL;

	if (c == NULL)
		conn_abandon(&conn);
	return c;
}

unsigned client_count(void)
{
	return client_all.count;
}

void client_each(void (*fn)(struct client *c, void *arg), void *arg)
{
	struct client *c, *tmp;

	DL_FOREACH_SAFE (client_all.logins.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_all.consoles.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_all.leaving.head, c, tmp)
		fn(c, arg);
	DL_FOREACH_SAFE (client_all.moving.head, c, tmp)
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

/* Entries of its server's `expect` have references to some; no answer counts any more. */
static void forget_unconfirmed(struct client *c)
{
	struct cstmt *st;

	while ((st = c->unconfirmed) != NULL) {
		DL_DELETE(c->unconfirmed, st);
		st->prev = st->next = NULL;
	}
}

/* What becomes of the server is seen to by the phase; until then nothing is read from it. */
static void leave_server(struct client *c)
{
	struct server *s = c->link;

	if (s == NULL)
		return;
	if (c->pass_left > 0 && !c->pass_discard)
		server_batch_goes_on(s); /* has a part of a message: of no use to anybody else */
	s->trace.dirty |= c->pins != 0;
	c->left = s;
	c->link = NULL;
	s->link = NULL;
	if (s->conn != NULL)
		conn_want_read(s->conn, false);
}

static void leave_account(struct client *c)
{
	if (!c->counted)
		return;
	INVARIANT(c->account->clients > 0, "more clients of a user leave than have come");
	c->account->clients--;
	if (c->pool == NULL)
		return;
	c->pool->db->n_clients--;
	if (team_self() != 0)
		places_give_client(c->pool->db, c->account);
}

static void leave_connection(struct client *c)
{
	if (c->conn == NULL)
		return;
	c->sent = conn_sent(c->conn);
	conn_close(&c->conn);
}

/* Only marks: what follows from it is ends.c. */
void client_close(struct client *c, enum client_end how, const char *reason)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	if (reason != NULL && (c->state != CLIENT_LOGIN || how == CLIENT_END_BY_US) &&
		conf_current()->p.log_disconnections)
		log_write(LOG_LVL_INFO, client_prefix(c), "closing because: %s (age=%llus)", reason,
			(unsigned long long)((loop_now() - c->connect_time) / USEC_SEC));
	c->end = (uint8_t)how;
	forget_unconfirmed(c);
	leave_server(c);
	client_pin(c, 0);
	client_key_forget(c);
	leave_account(c);
	INVARIANT(client_all.count > 0, "a client ends that is not counted");
	client_all.count--;
	team_count_clients(client_all.count);
	client_move(c, CLIENT_DEAD);
	leave_connection(c);
}

void client_free(struct client *c)
{
	INVARIANT(c->state == CLIENT_DEAD && c->conn == NULL, "a client is freed that lives");
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
	slab_put(client_all.slab, c);
}

void client_free_slabs(void)
{
	slab_free(&client_all.slab);
	mem_free(client_all.keys.buckets);
	memset(&client_all.keys, 0, sizeof(client_all.keys));
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
	count_error_of(err->sqlstate);
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

void client_write(struct client *c, const struct buf *b)
{
	if (c->conn != NULL && b->len > 0)
		conn_write(c->conn, b->data, b->len);
}

/* --- cancel keys --- */

static struct client **key_bucket(uint64_t key)
{
	return &client_all.keys.buckets[hash_bytes(&key, sizeof(key)) & (client_all.keys.size - 1)];
}

struct client *client_by_key(uint64_t key)
{
	struct client *c = client_all.keys.size > 0 ? *key_bucket(key) : NULL;

	while (c != NULL && c->key != key)
		c = c->next_key;
	return c;
}

static bool key_is_free(uint64_t key)
{
	return key >> 32 != 0 && client_by_key(key) == NULL;
}

/* With the numbers of this process: where there are peers, and where there are several of one program. */
static uint64_t key_of(uint64_t random)
{
	uint64_t self = (uint64_t)conf_current()->p.peer_id, key = random & 0x7fffffffffffffffULL;

	if (team_self() != 0)
		key = (key & ~(0xffULL << 32)) | (uint64_t)team_self() << 32;
	return self == 0 ? key : (key & ~(0xffffULL << 40)) | self << 40 | CLIENT_KEY_HOPS;
}

static uint64_t key_new(void)
{
	uint64_t key;

	do {
		util_random(&key, sizeof(key));
		key = key_of(key);
	} while (!key_is_free(key));
	return key;
}

static void key_link(struct client *c)
{
	struct client **at = key_bucket(c->key);

	c->next_key = *at;
	*at = c;
}

/* Twice as many buckets. Without memory it stays as it is, if there is a table at all. */
static bool keys_grow(void)
{
	struct client **old = client_all.keys.buckets, *c, *next;
	unsigned old_size = client_all.keys.size;
	unsigned size = old_size > 0 ? old_size * 2 : KEY_BUCKETS_MIN;
	struct client **buckets = mem_zalloc(size * sizeof(struct client *));

	if (buckets == NULL)
		return old != NULL;
	client_all.keys.buckets = buckets;
	client_all.keys.size = size;
	for (unsigned i = 0; i < old_size; i++)
		for (c = old[i]; c != NULL; c = next) {
			next = c->next_key;
			key_link(c);
		}
	mem_free(old);
	return true;
}

static bool key_enter(struct client *c, uint64_t key)
{
	if (client_all.keys.used >= client_all.keys.size && !keys_grow())
		return false;
	client_all.keys.used++;
	c->key = key;
	key_link(c);
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
	struct client **at;

	if (c->key == 0)
		return;
	at = key_bucket(c->key);
	while (*at != c)
		at = &(*at)->next_key;
	*at = c->next_key;
	c->key = 0;
	client_all.keys.used--;
}

/* --- for logs --- */

const char *client_prefix(const struct client *c)
{
	char *text = client_all.prefix;
	const size_t size = sizeof(client_all.prefix);
	const struct conn_addr *peer = c->conn != NULL ? conn_peer(c->conn) : NULL;
	const char *db = c->database != NULL ? istr_text(c->database) : "(nodb)";
	const char *user = c->user != NULL ? istr_text(c->user) : "(nouser)";

	if (peer == NULL)
		snprintf(text, size, "C-0x%llx: %s/%s", (unsigned long long)c->id, db, user);
	else
		snprintf(text, size, "C-0x%llx: %s/%s@%s:%d", (unsigned long long)c->id, db, user,
			peer->is_unix ? "unix" : peer->host, peer->port);
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

/* Its lists are the console's from now on. Only during login. */
void client_become_console(struct client *c)
{
	CHECK_CLIENT(c);
	INVARIANT(c->state == CLIENT_LOGIN && c->pool == NULL,
		"a client of a database gets the console");
	c->console = CONSOLE_USER;
	conn_count_unread(c->conn, false);
}

bool client_is_owed(const struct client *c)
{
	return c->link != NULL && (c->link->expect.count > 0 || c->link->pass_left > 0);
}

/* No server can be had: the statement fails, the session lives. */
void client_no_server(struct client *c, const struct pg_error *err)
{
	CHECK_CLIENT(c);
	client_move(c, CLIENT_ACTIVE);
	c->head.no_server = true;
	c->head.error = mem_dup(err, sizeof(*err));
	client_resume(c);
}

void client_resume(struct client *c)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	if (c->state == CLIENT_BARRIER || c->state == CLIENT_WAITING)
		client_move(c, CLIENT_ACTIVE);
	conn_want_read(c->conn, true);
	conn_kick(c->conn);
}

enum step client_protocol_error(struct client *c, const char *fmt, ...)
{
	struct pg_error err;
	char text[256];
	va_list ap;

	CHECK_CLIENT(c);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pg_error_set(&err, "08P01", "%s", text);
	client_fatal(c, &err);
	return STEP_END;
}

void client_again(struct client *c)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_BARRIER)
		client_resume(c);
}

void client_refuse(struct client *c, const struct pg_error *err)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_BARRIER)
		client_no_server(c, err);
}

bool client_repeats(const struct client *c)
{
	return c->head.repeats;
}

void client_pin(struct client *c, unsigned pins)
{
	if (pins != 0 && c->pins == 0) {
		c->pool->stats.pins++;
		c->pool->n_pinned++;
	} else if (pins == 0 && c->pins != 0) {
		INVARIANT(c->pool->n_pinned > 0, "more clients let servers go than keep them");
		c->pool->n_pinned--;
	}
	c->pins = (uint8_t)pins;
}

uint64_t client_next_id(void)
{
	/* with several processes the last byte says of which it is */
	return team_self() == 0 ? ++client_all.last_id
				: ++client_all.last_id << 8 | (uint64_t)team_self();
}
