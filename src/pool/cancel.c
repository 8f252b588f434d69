/*
 * Cancel requests: from a client, by its key, for a statement that is parked, waits for a server,
 * or runs on one. The backend is asked over a connection of its own; its server is not given to
 * anybody else until that is closed, because the request says which process, not which statement.
 */
#include <string.h>

#include "net/team.h"
#include "net/tls.h"
#include "pool/rooms.h"

struct cancel {
	struct cancel *prev, *next;
	struct conn *conn;
	struct server *server; /* NULL: gone meanwhile, or closed by us */
	struct client *asker;  /* its connection is closed when the request is done; NULL */
	int32_t pid;
	uint8_t key[256];
	uint8_t key_len;
	int peer;                    /* whom it is handed on to; 0: it goes to the server */
	int for_process, by_process; /* of our program; 0: none */
	uint32_t number;             /* of who asks */
	usec_t started;
	struct tls_ctx *tls; /* rules of the database; a reference */
	bool asked_tls;      /* the answer to SSLRequest is awaited */
};

static struct {
	struct cancel *list;
	uint32_t last_number; /* of what another process does */
} cancels;

/* Between the processes of one program. */
struct passed {
	uint32_t number; /* of who asks */
	int32_t pid;
	uint8_t key[4];
};

static void tell_done(int process, uint32_t number)
{
	(void)team_send(process, TEAM_CANCELLED, &number, sizeof(number));
}

static void finish(struct cancel *x)
{
	struct server *s = x->server;
	struct client *asker = x->asker;
	int process = x->for_process;
	uint32_t number = x->number;

	DL_DELETE(cancels.list, x);
	conn_close(&x->conn);
	if (s != NULL && --s->cancels == 0 && s->state == SERVER_CANCELLED) {
		server_move(s, SERVER_IDLE);
		pool_mark_ready(s->pool);
	}
	util_erase(x->key, sizeof(x->key));
	tls_ctx_drop(&x->tls);
	mem_free(x);
	if (process != 0)
		tell_done(process, number);
	if (asker != NULL)
		client_close(asker, CLIENT_END_TERMINATE, NULL);
}

static void fail(struct cancel *x, const char *why)
{
	log_debug("cancel request: %s", why);
	finish(x);
}

static void send_request(struct cancel *x)
{
	struct buf b = BUF_INIT;

	build_cancel(&b, x->pid, x->key, x->key_len);
	if (!buf_failed(&b))
		conn_write(x->conn, b.data, b.len);
	buf_free(&b);
}

static void tls_step(struct cancel *x, enum server_tls step, const char *why)
{
	if (step == SERVER_TLS_FAILED)
		fail(x, why);
	else if (step == SERVER_TLS_READY)
		send_request(x);
}

static void on_connect(struct conn *conn, void *owner, const char *error_text)
{
	struct cancel *x = owner;
	const char *why = NULL;
	enum server_tls step;

	if (error_text != NULL) {
		fail(x, error_text);
	} else {
		step = server_tls_start(conn, x->tls, &why);
		x->asked_tls = step == SERVER_TLS_MORE;
		tls_step(x, step, why);
	}
}

static void on_secure(struct conn *conn, void *owner, const char *error_text)
{
	struct cancel *x = owner;

	(void)conn;
	x->asked_tls = false; /* nor was there a question, with direct TLS */
	if (error_text != NULL)
		fail(x, error_text);
	else
		send_request(x);
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct cancel *x = owner;
	const char *why = NULL;
	enum server_tls step;

	if (!x->asked_tls)
		return len;
	x->asked_tls = false;
	step = server_tls_answer(conn, x->tls, data, len, &why);
	tls_step(x, step, why);
	return 1;
}

/* The server closes when the signal has been sent. */
static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	(void)conn;
	(void)why;
	(void)err;
	finish(owner);
}

static const struct conn_ops cancel_ops = {
	.on_connect = on_connect, .on_data = on_data, .on_end = on_end, .on_secure = on_secure};

static struct cancel *start(struct server *s, struct client *asker)
{
	struct cancel *x;

	if (s->key_len == 0 || s->cancels == UINT8_MAX || s->conn == NULL)
		return NULL;
	x = mem_zalloc(sizeof(*x));
	if (x == NULL)
		return NULL;
	x->pid = s->pid;
	memcpy(x->key, s->key, s->key_len);
	x->key_len = s->key_len;
	x->started = loop_now();
	x->conn = conn_connect_beside(s->conn, &cancel_ops, x);
	if (x->conn == NULL) {
		mem_free(x);
		return NULL;
	}
	x->tls = tls_ctx_ref(server_tls_rules(s->pool->db));
	x->server = s;
	x->asker = asker;
	s->cancels++;
	DL_APPEND(cancels.list, x);
	return x;
}

/* --- peers --- */

static const struct conf_peer *find_peer(int id)
{
	const struct conf_peer *p = conf_current()->peers;

	while (p != NULL && p->id != id)
		p = p->next;
	return p;
}

/* It may be a client of a peer: true, and `asker` waits for the answer from there. */
static bool hand_on(uint64_t key, struct client *asker)
{
	int self = conf_current()->p.peer_id;
	const struct conf_peer *p =
		self != 0 && CLIENT_KEY_PEER(key) != self ? find_peer(CLIENT_KEY_PEER(key)) : NULL;
	struct cancel *x;

	if (p == NULL || (key & CLIENT_KEY_HOPS) == 0 || (x = mem_zalloc(sizeof(*x))) == NULL)
		return false;
	key--;
	x->pid = (int32_t)(key >> 32);
	for (int i = 0; i < 4; i++)
		x->key[i] = (uint8_t)(key >> (24 - 8 * i));
	x->key_len = 4;
	x->started = loop_now();
	x->conn = conn_connect(p->host, p->port > 0 ? p->port : 6432, &cancel_ops, x);
	if (x->conn == NULL) {
		mem_free(x);
		return false;
	}
	x->asker = asker;
	x->peer = p->id;
	DL_APPEND(cancels.list, x);
	return true;
}

void cancel_count(const struct pool *p, unsigned *ret_asked, unsigned *ret_sent)
{
	const struct cancel *x;

	CHECK_POOL(p);
	*ret_asked = *ret_sent = 0;
	DL_FOREACH (cancels.list, x)
		if (x->server != NULL && x->server->pool == p) {
			*ret_asked += x->asker != NULL;
			++*ret_sent;
		}
}

unsigned cancel_count_peer(int peer)
{
	const struct cancel *x;
	unsigned n = 0;

	DL_FOREACH (cancels.list, x)
		n += x->peer == peer;
	return n;
}

bool cancel_server(struct server *s)
{
	return start(s, NULL) != NULL;
}

void cancel_forget_server(struct server *s)
{
	struct cancel *x;

	CHECK_SERVER(s);
	if (s->cancels > 0)
		DL_FOREACH (cancels.list, x)
			if (x->server == s)
				x->server = NULL;
	s->cancels = 0;
}

void cancel_drop_asker(struct client *c)
{
	struct cancel *x;

	CHECK_CLIENT(c);
	DL_FOREACH (cancels.list, x)
		if (x->asker == c)
			x->asker = NULL;
}

/* What a cancel means depends on where its client stands. Returns true when `asker` has to wait for
 * it. */
static struct cancel *cancel_client(struct client *c, struct client *asker)
{
	struct pg_error err;

	pg_error_set(&err, "57014", "canceling statement due to user request");
	switch ((enum client_state)c->state) {
	case CLIENT_PARKED:
		c->icpt->cancel(c);
		return NULL;
	case CLIENT_WAITING:
		client_no_server(c, &err);
		return NULL;
	case CLIENT_ACTIVE:
	case CLIENT_BARRIER:
		if (c->link != NULL && c->link->expect.count > 0)
			return start(c->link, asker);
		/* it waits for something that the claimant asks */
		if (c->state == CLIENT_BARRIER)
			c->icpt->cancel(c);
		return NULL;
	case CLIENT_LOGIN:
	case CLIENT_LEAVING:
	case CLIENT_MOVING:
	case CLIENT_DEAD:
		break;
	}
	return NULL;
}

/* --- other processes of the program --- */

/* Its client may be one of theirs: true, and `asker` waits until it has done it. */
static bool pass_on(uint64_t key, struct client *asker)
{
	int to = CLIENT_KEY_PROCESS(key);
	struct passed p = {.number = ++cancels.last_number, .pid = (int32_t)(key >> 32)};
	struct cancel *x;

	if (team_self() == 0 || to == team_self() || (x = mem_zalloc(sizeof(*x))) == NULL)
		return false;
	build_store_i32(p.key, (int32_t)(uint32_t)key);
	if (!team_send(to, TEAM_CANCEL, &p, sizeof(p))) {
		mem_free(x);
		return false;
	}
	x->by_process = to;
	x->number = p.number;
	x->started = loop_now();
	x->asker = asker;
	DL_APPEND(cancels.list, x);
	return true;
}

static struct client *find(int32_t pid, const uint8_t key[4], uint64_t *ret)
{
	uint64_t k = (uint64_t)(uint32_t)pid << 32;

	for (int i = 0; i < 4; i++)
		k |= (uint64_t)key[i] << (24 - 8 * i);
	*ret = k;
	return client_by_key(conf_current()->p.peer_id != 0 ? k | CLIENT_KEY_HOPS : k);
}

static void on_passed(int from, const uint8_t *text, size_t len)
{
	struct cancel *x = NULL;
	struct passed p;
	struct client *c;
	uint64_t k;

	if (len != sizeof(p))
		return;
	memcpy(&p, text, sizeof(p));
	c = find(p.pid, p.key, &k);
	if (c != NULL)
		x = cancel_client(c, NULL);
	if (x == NULL) {
		tell_done(from, p.number);
		return;
	}
	x->for_process = from;
	x->number = p.number;
}

static void finish_of(int process, uint32_t number, bool all)
{
	struct cancel *x, *tmp;

	DL_FOREACH_SAFE (cancels.list, x, tmp)
		if (x->by_process == process && (all || x->number == number))
			finish(x);
}

static void on_done(int from, const uint8_t *text, size_t len)
{
	uint32_t number;

	if (len != sizeof(number))
		return;
	memcpy(&number, text, sizeof(number));
	finish_of(from, number, false);
}

static void on_gone(int from, const uint8_t *text, size_t len)
{
	(void)text;
	(void)len;
	finish_of(from, 0, true);
}

void cancel_start(void)
{
	team_hear(TEAM_CANCEL, on_passed);
	team_hear(TEAM_CANCELLED, on_done);
	team_hear_gone(on_gone);
}

void cancel_by_key(int32_t pid, const uint8_t *key, size_t len, struct client *asker)
{
	struct client *c = NULL;
	uint64_t k;

	CHECK_CLIENT(asker);
	if (len == 4) {
		c = find(pid, key, &k);
		if (c == NULL && (hand_on(k, asker) || pass_on(k, asker)))
			return;
	}
	if (c == NULL)
		pool_all.calls->stranger(pid, key, len);
	if ((c == NULL || cancel_client(c, asker) == NULL) && asker != NULL)
		client_close(asker, CLIENT_END_TERMINATE, NULL);
}

void cancel_tick(usec_t now)
{
	usec_t limit = conf_current()->p.cancel_wait_timeout;
	struct cancel *x, *tmp;

	DL_FOREACH_SAFE (cancels.list, x, tmp)
		if (limit > 0 && now - x->started > limit) {
			if (x->asker != NULL)
				client_close(x->asker, CLIENT_END_BY_US, "cancel_wait_timeout");
			finish(x);
		}
}

void cancel_free(void)
{
	struct cancel *x, *tmp;

	DL_FOREACH_SAFE (cancels.list, x, tmp) {
		x->asker = NULL;
		finish(x);
	}
}
