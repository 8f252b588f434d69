/*
 * The connections of another process, which we take over from (move.h): each that comes is made
 * ours as it was there, and confirmed; one that we cannot have is refused, and stays there.
 */
#include <string.h>
#include <unistd.h>

#include "move_int.h"

static struct {
	int channel;
	struct loop_watch *watch;
	void (*on_over)(void);
	unsigned n_clients, n_servers;
	struct buf unanswered; /* answers that did not fit; nothing more is taken until they do */
	const struct move_work *work;
} adoption = {.channel = -1};

/* --- answers --- */

#define ANSWER_LEN (2 + sizeof(uint64_t))

/* false: the channel is full */
static bool send_unanswered(void)
{
	while (buf_used(&adoption.unanswered) > 0) {
		enum channel_result r = channel_send(adoption.channel,
			adoption.unanswered.data + adoption.unanswered.off, ANSWER_LEN, NULL, 0);

		if (r == CHANNEL_LATER)
			return false;
		adoption.unanswered.off += ANSWER_LEN;
	}
	buf_reset(&adoption.unanswered);
	return true;
}

static void answer(enum move_type type, enum move_type what, uint64_t id)
{
	buf_putc(&adoption.unanswered, (char)type);
	buf_putc(&adoption.unanswered, (char)what);
	buf_put(&adoption.unanswered, &id, sizeof(id));
	if (buf_failed(&adoption.unanswered))
		log_error("takeover: out of memory");
	else
		(void)send_unanswered();
}

void adopt_pass_on_cancel(int32_t pid, const uint8_t *key, size_t len)
{
	struct buf b = BUF_INIT;

	if (adoption.channel < 0)
		return;
	build_u8(&b, MOVE_CANCEL);
	build_i32(&b, pid);
	move_put_bytes(&b, key, len);
	if (!buf_failed(&b))
		(void)channel_send(adoption.channel, b.data, b.len, NULL, 0);
	buf_free(&b);
}

/* false: it has come to nothing */
void adopt_tell_next(bool is_there)
{
	uint8_t m[2] = {MOVE_NEXT, is_there};

	if (adoption.channel >= 0)
		(void)channel_send(adoption.channel, m, sizeof(m), NULL, 0);
}

bool adopt_goes_on(void)
{
	return adoption.channel >= 0;
}

/* --- servers --- */

static bool get_server(struct wire_reader *r, struct server *s, int fd)
{
	struct conn_addr peer;
	const char *host;
	const void *p;
	size_t len;
	bool has_host, raw;
	unsigned touches;

	/* as after a RELOAD: what it has begun ends there */
	s->close_needed = !move_same_entry(r, s->pool->db);
	move_get_peer(r, &peer);
	has_host = wire_get_u8(r) != 0;
	host = wire_get_cstr(r, NULL);
	if (r->failed) {
		close(fd);
		return false;
	}
	s->conn = conn_adopt(fd, &peer, has_host ? host : NULL, NULL, 0, &server_ops, s);
	s->host = move_get_istr(r);
	s->pid = wire_get_i32(r);
	p = move_get_bytes(r, &len);
	if (p != NULL && len <= sizeof(s->key)) {
		memcpy(s->key, p, len);
		s->key_len = (uint8_t)len;
	}
	move_get_vars(r, &s->vars);
	s->extra = move_get_istr(r);
	s->sqlprep = move_get_istr(r);
	p = move_get_bytes(r, &len);
	if (len > 0)
		buf_put(&s->trace.custom, p, len);
	s->mode = wire_get_u8(r);
	raw = wire_get_u8(r) != 0;
	touches = wire_get_u8(r);
	if (raw)
		server_unnamed_is_raw(s, touches);
	s->settings.vars_stale = wire_get_u8(r) != 0;
	s->settings.extra_stale = wire_get_u8(r) != 0;
	s->use.alone = wire_get_u8(r) != 0;
	s->sets.any = wire_get_u8(r) != 0;
	s->sets.by_sql = wire_get_u8(r) != 0;
	s->trace.dirty = wire_get_u8(r) != 0;
	s->use.holder = wire_get_i32(r);
	s->use.held_since = move_get_u64(r);
	s->connect_time = move_get_u64(r);
	s->idle_since = move_get_u64(r);
	return s->conn != NULL && !r->failed && !buf_failed(&s->trace.custom);
}

/* Nothing is said to it: it is served where it came from. */
static void leave_server(struct server *s)
{
	if (s->conn != NULL)
		conn_abandon(&s->conn);
	server_close(s, "could not be taken over", NULL);
}

/* It is nobody's yet. false: it is closed, and the connection lives on where it came from. */
static struct server *adopt_server(struct wire_reader *r, struct pool *p, int fd)
{
	struct server *s = server_adopt(p);

	if (s == NULL) {
		close(fd);
		return NULL;
	}
	if (get_server(r, s, fd))
		return s;
	leave_server(s);
	return NULL;
}

void adopt_hear_of_work(const struct move_work *w)
{
	adoption.work = w;
}

static struct pool *get_pool(struct wire_reader *r)
{
	const char *database = wire_get_cstr(r, NULL);
	struct istr *user = move_get_istr(r);
	struct database *db = !r->failed ? route_find(database) : NULL;
	struct pool *p = NULL;

	/* of another role than the entry has now: it is not that pool */
	if (db != NULL && (db->user == NULL || strcmp(db->user, istr_text(user)) == 0))
		p = pool_get(db, istr_text(user));
	istr_drop(&user);
	return p;
}

/* Names of statements are those of the other process. */
static void make_idle(struct server *s)
{
	struct buf sql = BUF_INIT;

	istr_drop(&s->sqlprep);
	server_move(s, SERVER_CLEANING);
	buf_puts(&sql, "DEALLOCATE ALL");
	(void)server_query(s, &sql, &dest_reset);
}

static void on_server(struct wire_reader *r, const int *fds, int n_fds)
{
	uint64_t id = move_get_u64(r);
	struct pool *p = get_pool(r);
	struct server *s = NULL;

	if (p != NULL && n_fds == 1 && !route_paused(p->db))
		s = adopt_server(r, p, fds[0]);
	else
		for (int i = 0; i < n_fds; i++)
			close(fds[i]);
	if (s != NULL && s->close_needed) {
		leave_server(s);
		s = NULL;
	}
	answer(s != NULL ? MOVE_TAKEN : MOVE_REFUSED, MOVE_SERVER, id);
	if (s == NULL)
		return;
	adoption.n_servers++;
	p->db->reached = true;
	make_idle(s);
}

static void on_pool(struct wire_reader *r)
{
	struct pool *p = get_pool(r);
	struct secret given = {0};
	struct vars welcome = {0};
	const void *rest;
	size_t len;
	bool same, known, works;

	move_get_secret(r, &given);
	same = move_same_entry(r, p != NULL ? p->db : NULL);
	known = wire_get_u8(r) != 0 && same;
	move_get_vars(r, &welcome);
	rest = move_get_bytes(r, &len);
	works = wire_get_u8(r) != 0 && same;
	if (p != NULL && !r->failed && p->given.kind == SECRET_NONE)
		(void)!secret_copy(&p->given, &given);
	if (p != NULL && !r->failed && known && !p->welcome_known) {
		vars_copy_missing(&p->welcome, &welcome);
		if (len > 0)
			buf_put(&p->welcome_rest, rest, len);
		p->welcome_known = !buf_failed(&p->welcome_rest);
		pool_mark_ready(p);
	}
	if (p != NULL && !r->failed && works && adoption.work != NULL)
		adoption.work->inherited(p);
	secret_erase(&given);
	vars_clear(&welcome);
}

static void on_user(struct wire_reader *r)
{
	const char *name = wire_get_cstr(r, NULL);
	struct secret s = {0};

	move_get_secret(r, &s);
	if (!r->failed && s.kind == SECRET_SCRAM_KEYS)
		auth_user_learn(name, &s.scram, s.client_key);
	secret_erase(&s);
}

/* --- clients --- */

struct coming {
	uint64_t id, key, connect_time, idle_since;
	struct istr *database, *user, *extra, *origin, *sqlprep;
	struct vars vars;
	struct conn_addr peer;
	const void *input;
	size_t input_len;
	uint8_t protocol_minor, pins;
	bool proven;
};

static bool get_client(struct wire_reader *r, struct coming *k)
{
	k->id = move_get_u64(r);
	k->database = move_get_istr(r);
	k->user = move_get_istr(r);
	move_get_peer(r, &k->peer);
	(void)wire_get_u8(r);
	(void)wire_get_cstr(r, NULL);
	k->input = move_get_bytes(r, &k->input_len);
	k->protocol_minor = wire_get_u8(r);
	k->proven = wire_get_u8(r) != 0;
	k->pins = wire_get_u8(r);
	k->key = move_get_u64(r);
	k->connect_time = move_get_u64(r);
	k->idle_since = move_get_u64(r);
	move_get_vars(r, &k->vars);
	k->extra = move_get_istr(r);
	k->origin = move_get_istr(r);
	k->sqlprep = move_get_istr(r);
	return !r->failed;
}

static void coming_free(struct coming *k)
{
	istr_drop(&k->database);
	istr_drop(&k->user);
	istr_drop(&k->extra);
	istr_drop(&k->origin);
	istr_drop(&k->sqlprep);
	vars_clear(&k->vars);
}

/* Takes what k has. */
static void fill(struct client *c, struct coming *k, struct pool *p)
{
	c->database = k->database;
	c->user = k->user;
	c->extra = k->extra;
	c->origin = k->origin;
	c->sqlprep = k->sqlprep;
	c->vars = k->vars;
	k->database = k->user = k->extra = k->origin = k->sqlprep = NULL;
	memset(&k->vars, 0, sizeof(k->vars));
	c->protocol_minor = k->protocol_minor;
	c->proven = k->proven;
	c->connect_time = k->connect_time;
	c->idle_since = k->idle_since;
	c->pool = p;
	p->db->n_clients++;
	c->account->clients++;
	c->counted = true;
	c->icpt = intercept_queue;
}

static bool enter(struct client *c, struct coming *k)
{
	struct database *db = route_find(istr_text(k->database));
	struct pool *p = NULL;

	if (db != NULL)
		p = pool_get(db, db->user != NULL ? db->user : istr_text(k->user));
	c->account = p != NULL ? account_get(k->user) : NULL;
	if (c->account == NULL)
		return false;
	fill(c, k, p);
	client_move(c, CLIENT_ACTIVE);
	return client_key_adopt(c, k->key);
}

static bool adopt_link(struct wire_reader *r, struct client *c, unsigned pins, int fd)
{
	struct server *s = adopt_server(r, c->pool, fd);

	if (s == NULL)
		return false;
	s->link = c;
	c->link = s;
	server_move(s, SERVER_ACTIVE);
	if (pins != 0)
		client_pin(c, pins);
	return true;
}

/* Nothing is said to either end: they are served where they came from. */
static void drop(struct client *c)
{
	struct server *s = c->link;

	c->link = NULL;
	if (s != NULL) {
		s->link = NULL;
		leave_server(s);
	}
	if (c->conn != NULL)
		conn_abandon(&c->conn);
	client_close(c, CLIENT_END_BY_US, NULL);
}

static bool adopt_client(struct wire_reader *r, struct coming *k, const int *fds, int n_fds)
{
	struct client *c =
		client_adopt(fds[0], &k->peer, k->input, k->input_len, &client_login_ops);
	int left = n_fds == 2 ? fds[1] : -1;
	bool ok, linked;

	if (c == NULL) {
		if (left >= 0)
			close(left);
		return false;
	}
	ok = enter(c, k) && move_get_statements(r, c) && c->state != CLIENT_DEAD;
	linked = ok && wire_get_u8(r) != 0;
	if (ok && linked == (left >= 0)) {
		ok = !linked || adopt_link(r, c, k->pins, left);
		left = -1;
	} else {
		ok = false;
	}
	if (left >= 0)
		close(left);
	if (!ok || r->failed) {
		if (c->state != CLIENT_DEAD)
			drop(c);
		return false;
	}
	c->told = TOLD_BEGUN;
	conn_set_ops(c->conn, &client_ops, c);
	if (c->icpt->client_begun != NULL)
		c->icpt->client_begun(c);
	return true;
}

static void on_client(struct wire_reader *r, const int *fds, int n_fds)
{
	struct coming k = {0};
	bool ok = get_client(r, &k) && n_fds >= 1;

	if (ok)
		ok = adopt_client(r, &k, fds, n_fds);
	else
		for (int i = 0; i < n_fds; i++)
			close(fds[i]);
	answer(ok ? MOVE_TAKEN : MOVE_REFUSED, MOVE_CLIENT, k.id);
	adoption.n_clients += ok;
	coming_free(&k);
}

/* --- the channel --- */

static void message(const struct buf *b, const int *fds, int n_fds)
{
	struct wire_reader r;

	wire_reader_init(&r, b->data, b->len);
	switch (wire_get_u8(&r)) {
	case MOVE_CLIENT:
		on_client(&r, fds, n_fds);
		return;
	case MOVE_SERVER:
		on_server(&r, fds, n_fds);
		return;
	case MOVE_POOL:
		on_pool(&r);
		break;
	case MOVE_USER:
		on_user(&r);
		break;
	}
	for (int i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void stop(void)
{
	if (adoption.channel < 0)
		return;
	loop_watch_free(&adoption.watch);
	close(adoption.channel);
	adoption.channel = -1;
	buf_free(&adoption.unanswered);
}

#define PER_TURN 64

static void on_channel(int fd, int mask, void *arg)
{
	struct buf b = BUF_SECRET;
	int fds[CHANNEL_FDS], n = 0;
	enum channel_result r = CHANNEL_LATER;

	(void)mask;
	(void)arg;
	for (int i = 0; i < PER_TURN && send_unanswered(); i++) {
		r = channel_receive(fd, &b, fds, &n);
		if (r != CHANNEL_OK)
			break;
		message(&b, fds, n);
	}
	buf_free(&b);
	if (r != CHANNEL_END) {
		(void)!loop_watch_set(adoption.watch,
			buf_used(&adoption.unanswered) > 0 ? LOOP_WRITE : LOOP_READ);
		return;
	}
	log_info("takeover: %u clients and %u idle servers were taken over", adoption.n_clients,
		adoption.n_servers);
	stop();
	if (adoption.on_over != NULL)
		adoption.on_over();
}

bool adopt_begin(int fd, void (*over)(void))
{
	adoption.watch = loop_watch_new(fd, LOOP_READ, on_channel, NULL);
	if (adoption.watch == NULL)
		return false;
	adoption.channel = fd;
	adoption.on_over = over;
	adoption.n_clients = adoption.n_servers = 0;
	return true;
}

void adopt_end(void)
{
	uint8_t bye = MOVE_BYE;

	if (adoption.channel >= 0)
		(void)channel_send(adoption.channel, &bye, 1, NULL, 0);
	stop();
}

void adopt_statements_from(uint64_t number)
{
	pstmt_numbers_from(number);
}
