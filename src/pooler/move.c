/*
 * Another process takes over: what is idle goes there (move.h). A connection goes in these steps:
 *
 *   taken      it is idle: not read any more, in `client_all.moving` or SERVER_MOVING
 *   sent       what it was owed is written out; its descriptor and what is known of it are on their
 * way confirmed  the other process has it: it is forgotten here, and nothing is said to the peer
 *
 * Until it is confirmed it can be served here again: the descriptor is open, nothing was read. What
 * cannot go (TLS, LISTEN, leases, replication, something under way) is served here until it can, or
 * leaves. A client that has a server of its own in session pooling, or because of what it keeps
 * there, goes with it.
 *
 * Entry points: move.h; move_take() when a client has become idle; move_tick().
 */
#include <string.h>
#include <unistd.h>

#include "move_int.h"

static struct {
	int channel; /* to the process that takes over; -1: there is none */
	struct loop_watch *watch;
	bool blocked;  /* the channel is full */
	bool has_next; /* the other process gives, too: whatever becomes of it, its place is taken */
	void (*on_over)(bool clean);
	const struct move_work *work;
} moving = {.channel = -1};

void move_hear_of_work(const struct move_work *w)
{
	moving.work = w;
}

/* --- what can go --- */

/* A session that is at rest, whoever has it. */
static bool server_can_go(const struct server *s)
{
	return s->conn != NULL && !conn_is_tls(s->conn) && !s->raw && !s->pool->lookup &&
	       !s->use.engine && /* those who stay need it, the other process gets its own */
	       s->pool->startup == NULL && s->tx == 'I' && s->expect.count == 0 &&
	       s->pass_left == 0 && !s->batch.unsynced && !s->settings.settling &&
	       s->inspect.now == NULL && s->trace.touched == 0 && s->cancels == 0 &&
	       !s->close_needed && s->unasked == NULL && s->copy.state == COPY_NONE &&
	       !s->settings.discarded && s->task == NULL && conn_pending_output(s->conn) == 0 &&
	       conn_pending_input(s->conn) == 0;
}

static bool client_can_go(struct client *c)
{
	if (c->console || c->takeover == TAKEOVER_NO || c->pool == NULL ||
		c->pool->startup != NULL || c->conn == NULL || conn_is_tls(c->conn))
		return false;
	if (c->listening != NULL || c->unconfirmed != NULL || c->closing > 0 || c->skip_to_sync ||
		c->head.string_at > 0 || c->portals != NULL || c->head.again || c->head.repeats ||
		c->head.no_server || c->tx.watched)
		return false;
	if (c->unsure ||
		(c->unnamed != NULL && (!c->unnamed->confirmed || c->unnamed->next != NULL)))
		return false;
	if (c->link != NULL && !server_can_go(c->link))
		return false;
	return c->icpt->may_move == NULL || c->icpt->may_move(c);
}

bool move_take(struct client *c)
{
	CHECK_CLIENT(c);
	if (!client_can_go(c))
		return false;
	client_move(c, CLIENT_MOVING);
	conn_hold(c->conn, true);
	/* the server that it may still have is released in a moment, but in session pooling */
	pooler_tick_at(loop_now());
	return true;
}

/* --- how it is written --- */

static void put_server(struct buf *b, const struct server *s)
{
	move_put_entry(b, s->pool->db);
	move_put_peer(b, s->conn);
	move_put_istr(b, s->host);
	build_i32(b, s->pid);
	move_put_bytes(b, s->key, s->key_len);
	move_put_vars(b, &s->vars);
	move_put_istr(b, s->extra);
	move_put_istr(b, s->sqlprep);
	move_put_bytes(b, s->trace.custom.data, s->trace.custom.len);
	build_u8(b, s->mode);
	build_u8(b, server_has_raw_unnamed(s));
	build_u8(b, s->unnamed.touches);
	build_u8(b, s->settings.vars_stale);
	build_u8(b, s->settings.extra_stale);
	build_u8(b, s->use.alone);
	build_u8(b, s->sets.any || s->sets.n > 0);
	build_u8(b, s->sets.by_sql);
	build_u8(b, s->trace.dirty);
	build_i32(b, s->use.holder);
	move_put_u64(b, s->use.held_since);
	move_put_u64(b, s->connect_time);
	move_put_u64(b, s->idle_since);
}

static void put_client(struct buf *b, const struct client *c)
{
	size_t len;
	const uint8_t *input = conn_input(c->conn, &len);

	build_u8(b, MOVE_CLIENT);
	move_put_u64(b, c->id);
	move_put_istr(b, c->database);
	move_put_istr(b, c->user);
	move_put_peer(b, c->conn);
	move_put_bytes(b, input, len);
	build_u8(b, c->protocol_minor);
	build_u8(b, c->proven);
	build_u8(b, c->pins);
	move_put_u64(b, c->key);
	move_put_u64(b, c->connect_time);
	move_put_u64(b, c->idle_since);
	move_put_vars(b, &c->vars);
	move_put_istr(b, c->extra);
	move_put_istr(b, c->origin);
	move_put_istr(b, c->sqlprep);
	move_put_statements(b, c);
	build_u8(b, c->link != NULL);
	if (c->link != NULL)
		put_server(b, c->link);
}

/* OK: sent. LATER: the channel is full. END: it is too long, or there is no memory: it stays. */
static enum channel_result send_record(struct buf *b, const int *fds, int n_fds)
{
	enum channel_result r = CHANNEL_END;

	if (!buf_failed(b) && b->len <= CHANNEL_MAX)
		r = channel_send(moving.channel, b->data, b->len, fds, n_fds);
	moving.blocked = r == CHANNEL_LATER;
	buf_free(b);
	return r;
}

/* --- going --- */

static void stay(struct client *c, bool for_good)
{
	c->takeover = for_good ? TAKEOVER_NO : TAKEOVER_MAY;
	conn_hold(c->conn, false);
	if (c->link != NULL && c->link->conn != NULL)
		conn_hold(c->link->conn, false);
	client_move(c, CLIENT_ACTIVE);
	client_resume(c);
}

/* false: not now */
static bool send_client(struct client *c)
{
	struct buf b = BUF_SECRET;
	struct server *s = c->link;
	int fds[2] = {conn_fd(c->conn), -1};

	if (conn_pending_output(c->conn) > 0 || (s != NULL && !server_can_go(s))) {
		/* it does not read, or its server is being asked something: later */
		stay(c, false);
		return true;
	}
	if (s != NULL)
		fds[1] = conn_fd(s->conn);
	put_client(&b, c);
	switch (send_record(&b, fds, s != NULL ? 2 : 1)) {
	case CHANNEL_OK:
		c->takeover = TAKEOVER_SENT;
		if (s != NULL)
			conn_hold(s->conn, true);
		return true;
	case CHANNEL_LATER:
		return false;
	case CHANNEL_END:
		break;
	}
	stay(c, true);
	return true;
}

static bool send_server(struct server *s)
{
	struct buf b = BUF_SECRET;
	int fd = conn_fd(s->conn);

	build_u8(&b, MOVE_SERVER);
	move_put_u64(&b, s->id);
	build_cstr(&b, s->pool->db->name);
	move_put_istr(&b, s->pool->user);
	put_server(&b, s);
	switch (send_record(&b, &fd, 1)) {
	case CHANNEL_OK:
		conn_hold(s->conn, true);
		server_move(s, SERVER_MOVING);
		return true;
	case CHANNEL_LATER:
		return false;
	case CHANNEL_END:
		break;
	}
	s->close_needed = true;
	return true;
}

/* What its clients' logins have taught, and how a session of it begins. */
static bool send_pool(struct pool *p)
{
	struct buf b = BUF_SECRET;

	if (p->moved || p->lookup || p->startup != NULL)
		return true;
	build_u8(&b, MOVE_POOL);
	build_cstr(&b, p->db->name);
	move_put_istr(&b, p->user);
	move_put_secret(&b, &p->given);
	move_put_entry(&b, p->db);
	build_u8(&b, p->welcome_known);
	move_put_vars(&b, &p->welcome);
	move_put_bytes(&b, p->welcome_rest.data, p->welcome_rest.len);
	build_u8(&b, moving.work != NULL && moving.work->works(p));
	p->moved = true;
	if (send_record(&b, NULL, 0) == CHANNEL_LATER)
		p->moved = false;
	return p->moved;
}

/* Those who are left here will want servers, too. */
static bool send_idle_servers(struct pool *p)
{
	unsigned left = p->active.count + p->waiting.count + p->n_tasks;
	struct server *s, *tmp;

	if (p->lookup || p->startup != NULL)
		return true;
	DL_FOREACH_SAFE (p->servers[SERVER_IDLE].head, s, tmp)
		if (p->servers[SERVER_IDLE].count > left && server_can_go(s) && !send_server(s))
			return false;
	return true;
}

static bool send_pools(void)
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			if (!send_pool(p) || !send_idle_servers(p))
				return false;
	return true;
}

static bool send_clients(void)
{
	struct client *c, *tmp;

	DL_FOREACH_SAFE (client_all.moving.head, c, tmp)
		if (c->takeover != TAKEOVER_SENT && !send_client(c))
			return false;
	return true;
}

/* Behind the flush of a turn: what they were owed has been written, if they read it. */
void move_send(void)
{
	if (!move_is_begun() || moving.blocked)
		return;
	if (send_pools())
		(void)send_clients();
	if (!loop_watch_set(moving.watch, LOOP_READ | (moving.blocked ? LOOP_WRITE : 0)))
		moving.blocked = false; /* the clock tries again */
}

/* --- what comes back --- */

static void forget_server(struct server *s)
{
	if (s->conn != NULL)
		conn_abandon(&s->conn);
	server_close(s, "taken over by another process", NULL);
}

static void forget_client(struct client *c)
{
	struct server *s = c->link;

	c->link = NULL;
	if (s != NULL)
		s->link = NULL;
	conn_abandon(&c->conn);
	client_close(c, CLIENT_END_TERMINATE, "taken over by another process");
	if (s != NULL)
		forget_server(s);
}

static void client_answered(uint64_t id, bool taken)
{
	struct client *c;

	/* answers come in the order of what was sent */
	DL_FOREACH (client_all.moving.head, c)
		if (c->id == id && c->takeover == TAKEOVER_SENT)
			break;
	if (c == NULL)
		return;
	if (taken) {
		forget_client(c);
		return;
	}
	stay(c, true);
}

static void server_back(struct server *s)
{
	conn_hold(s->conn, false);
	s->close_needed = true;
	server_move(s, SERVER_IDLE);
	pool_mark_ready(s->pool);
}

static void server_answered(uint64_t id, bool taken)
{
	struct server *s, *tmp;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			DL_FOREACH_SAFE (p->servers[SERVER_MOVING].head, s, tmp) {
				if (s->id != id)
					continue;
				if (taken)
					forget_server(s);
				else
					server_back(s);
				return;
			}
}

static void answered(struct wire_reader *r, bool taken)
{
	uint8_t what = wire_get_u8(r);
	uint64_t id = move_get_u64(r);

	if (r->failed)
		return;
	if (what == MOVE_CLIENT)
		client_answered(id, taken);
	else
		server_answered(id, taken);
}

static void cancel(struct wire_reader *r)
{
	int32_t pid = wire_get_i32(r);
	size_t len;
	const void *key = move_get_bytes(r, &len);

	if (!r->failed && key != NULL)
		cancel_by_key(pid, key, len, NULL);
}

/* All that was not confirmed is ours again. */
static void stop(bool clean)
{
	void (*over)(bool clean) = moving.on_over;
	struct server *s;

	if (!move_is_begun())
		return;
	loop_watch_free(&moving.watch);
	close(moving.channel);
	moving.channel = -1;
	if (!clean)
		adopt_tell_next(false);
	while (client_all.moving.head != NULL)
		stay(client_all.moving.head, false);
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			p->moved = false;
			while ((s = p->servers[SERVER_MOVING].head) != NULL)
				server_back(s);
		}
	if (over != NULL)
		over(clean);
}

static bool message(const struct buf *b)
{
	struct wire_reader r;

	wire_reader_init(&r, b->data, b->len);
	switch (wire_get_u8(&r)) {
	case MOVE_TAKEN:
		answered(&r, true);
		return true;
	case MOVE_REFUSED:
		answered(&r, false);
		return true;
	case MOVE_CANCEL:
		cancel(&r);
		return true;
	case MOVE_NEXT:
		moving.has_next = wire_get_u8(&r) != 0;
		return true;
	case MOVE_BYE:
		stop(true);
		return false;
	}
	return true;
}

static void on_channel(int fd, int mask, void *arg)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n = 0;
	enum channel_result r = CHANNEL_LATER;

	(void)arg;
	if (mask & LOOP_WRITE)
		moving.blocked = false;
	while (move_is_begun() && (r = channel_receive(fd, &b, fds, &n)) == CHANNEL_OK) {
		for (int i = 0; i < n; i++)
			close(fds[i]);
		if (!message(&b))
			break;
	}
	buf_free(&b);
	if (move_is_begun() && r == CHANNEL_END)
		stop(moving.has_next);
}

/* --- the beginning --- */

static void send_user(const struct auth_user *u, void *arg)
{
	struct buf b = BUF_SECRET;

	(void)arg;
	if (u->passthrough.kind != SECRET_SCRAM_KEYS)
		return;
	build_u8(&b, MOVE_USER);
	build_cstr(&b, u->name);
	move_put_secret(&b, &u->passthrough);
	/* one that does not fit now is learnt with his next login */
	(void)send_record(&b, NULL, 0);
}

bool move_begin(int fd, void (*over)(bool clean))
{
	moving.watch = loop_watch_new(fd, LOOP_READ, on_channel, NULL);
	if (moving.watch == NULL)
		return false;
	moving.channel = fd;
	moving.on_over = over;
	moving.blocked = moving.has_next = false;
	adopt_tell_next(true);
	client_all.some_leave = true;
	auth_each_user(send_user, NULL);
	moving.blocked = false;
	pooler_tick_at(loop_now());
	return true;
}

bool move_is_begun(void)
{
	return moving.channel >= 0;
}

void move_end(void)
{
	moving.on_over = NULL;
	stop(true);
}

uint64_t move_statements_to(void)
{
	return pstmt_numbers_to();
}
