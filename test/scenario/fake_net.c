/*
 * The net layer of the scenario tests: see fake_net.h. Follows include/net/{loop,conn,listen}.h to
 * the letter: order of phases, when on_data is called again, on_end at most once and never after
 * conn_close(), nothing freed before the reap phase.
 */
#include "fake_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/channel.h"
#include "net/dns.h"
#include "net/listen.h"
#include "net/team.h"
#include "net/tls.h"

#define MAX_TURNS  200000
#define MAX_ROUNDS 8
#define MAX_HOOKS  8
#define START_TIME (1000 * USEC_SEC)

struct conn {
	struct conn *next;
	struct fake_peer *peer;
	const struct conn_ops *ops;
	void *owner;
	struct bytes in, out;
	bool counted, want_read, held, kept, kicked, full, broken, no_memory, ended, closed,
		connecting;
	bool tls, tls_new, handshake,
		direct; /* handshake: tls_new is over, the peer's byte is awaited */
	uint64_t bytes_in, bytes_out;
	char host[CONN_ADDR_TEXT]; /* of an outgoing one */
	int port;
	void *own; /* memory of the program: one allocation that may fail */
};

struct loop_tick {
	struct loop_tick *next;
	usec_t (*fn)(void *arg, usec_t now);
	void *arg;
	usec_t when;
	bool dead;
};

struct loop_watch {
	int mask;
};

/* What on_data was shown; freed at the end of the turn, so that later use is found. */
struct shown {
	struct shown *next;
	uint8_t data[];
};

static struct {
	usec_t now;
	struct conn *conns;
	struct fake_peer *peers;
	struct loop_tick *ticks;
	struct shown *shown;
	struct {
		bool (*fn)(void *arg, usec_t now);
		void *arg;
	} phases[LOOP_PHASE_COUNT][MAX_HOOKS];
	int phase_count[LOOP_PHASE_COUNT];
	struct {
		void (*fn)(void *arg);
		void *arg;
	} reapers[MAX_HOOKS];
	int reaper_count;
	int last_id;
	bool byte_by_byte;
	bool did; /* something happened in this turn */
	void (*on_connect)(struct fake_peer *p, const char *host, int port);
} net;

bool conn_name_unknown(const struct conn *c)
{
	(void)c;
	return false;
}

/* --- bytes --- */

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "the test itself is out of memory\n");
		abort();
	}
	return p;
}

void bytes_add(struct bytes *b, const void *p, size_t len)
{
	if (len == 0)
		return;
	if (b->cap - b->len < len) {
		b->cap = (b->cap + len) * 2;
		b->data = must(realloc(b->data, b->cap));
	}
	memcpy(b->data + b->len, p, len);
	b->len += len;
}

void bytes_drop(struct bytes *b, size_t n)
{
	b->len -= n;
	if (b->len > 0)
		memmove(b->data, b->data + n, b->len);
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){0};
}

/* --- the other ends --- */

void fake_net_init(void)
{
	memset(&net, 0, sizeof(net));
	net.now = START_TIME;
	net.last_id = 100;
}

struct fake_peer *fake_peer_new(void)
{
	struct fake_peer *p = must(calloc(1, sizeof(*p))), **at = &net.peers;

	p->id = ++net.last_id;
	p->window = SIZE_MAX;
	while (*at)
		at = &(*at)->next;
	*at = p;
	return p;
}

static struct fake_peer *peer_find(int id)
{
	struct fake_peer *p;

	for (p = net.peers; p && p->id != id;)
		p = p->next;
	return must(p);
}

void fake_on_connect(void (*hook)(struct fake_peer *p, const char *host, int port))
{
	net.on_connect = hook;
}

void fake_answer(struct fake_peer *p, const char *refusal)
{
	p->answered = true;
	p->refusal = refusal ? must(strdup(refusal)) : NULL;
}

void fake_byte_by_byte(bool on)
{
	net.byte_by_byte = on;
}

/* --- connections --- */

static struct conn *conn_make(struct fake_peer *p, const struct conn_ops *ops, void *owner)
{
	struct conn *c, **at = &net.conns;
	void *own = mem_alloc(1);

	if (!own)
		return NULL;
	c = must(calloc(1, sizeof(*c)));
	c->own = own;
	c->peer = p;
	c->ops = ops;
	c->owner = owner;
	c->want_read = true;
	p->conn = c;
	while (*at)
		at = &(*at)->next;
	*at = c;
	net.did = true;
	return c;
}

struct conn *conn_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops, void *owner)
{
	struct fake_peer *p = peer_find(fd);
	struct conn *c = conn_make(p, ops, owner);

	(void)peer;
	if (!c)
		p->closed = true;
	return c;
}

struct conn *conn_connect(const char *host, int port, const struct conn_ops *ops, void *owner)
{
	struct fake_peer *p = fake_peer_new();
	struct conn *c = conn_make(p, ops, owner);

	p->outgoing = true;
	if (!c) {
		p->closed = true;
		return NULL;
	}
	c->connecting = true;
	util_strlcpy(c->host, host, sizeof(c->host));
	c->port = port;
	net.on_connect(p, host, port);
	return c;
}

struct conn *conn_connect_beside(const struct conn *there, const struct conn_ops *ops, void *owner)
{
	return conn_connect(there->host, there->port, ops, owner);
}

void conn_set_ops(struct conn *c, const struct conn_ops *ops, void *owner)
{
	c->ops = ops;
	c->owner = owner;
}

/* --- TLS: bytes stay as they are; the handshake is a turn of the loop, and of a client one byte --- */

struct tls_ctx {
	enum sslmode mode;
	bool direct;
};

struct tls_ctx *tls_for_clients(void)
{
	static struct tls_ctx ctx;

	ctx.mode = conf_current()->p.client_tls_sslmode;
	return ctx.mode != SSLMODE_DISABLE ? &ctx : NULL;
}

/* Only where a dialogue asks for it: the default would put SSLRequest into all of them. */
struct tls_ctx *tls_for_database(const char *entry)
{
	static struct tls_ctx ctx;
	const struct conf_database *d = conf_find_database(conf_current(), entry);

	ctx.mode = d != NULL ? d->server_tls_sslmode : SSLMODE_UNSET;
	ctx.direct = d != NULL && d->server_tls_negotiation == TLS_NEGOTIATION_DIRECT;
	return ctx.mode != SSLMODE_UNSET && ctx.mode != SSLMODE_DISABLE ? &ctx : NULL;
}

enum sslmode tls_ctx_mode(const struct tls_ctx *x)
{
	return x ? x->mode : SSLMODE_DISABLE;
}

struct tls_ctx *tls_ctx_ref(struct tls_ctx *x)
{
	return x;
}

void tls_ctx_drop(struct tls_ctx **p)
{
	*p = NULL;
}

bool tls_ctx_is_direct(const struct tls_ctx *x)
{
	return x && x->direct;
}

bool conn_start_tls(struct conn *c, struct tls_ctx *ctx, bool direct)
{
	void *own = mem_alloc(1);

	(void)ctx;
	if (!own || c->closed || c->ended || c->broken || c->no_memory || c->tls) {
		mem_free(own);
		return false;
	}
	mem_free(own);
	c->tls_new = c->tls = c->kicked = true;
	c->direct = direct;
	return true;
}

bool conn_is_tls(const struct conn *c)
{
	return c->tls && !c->tls_new && !c->handshake;
}

const char *conn_tls_text(const struct conn *c)
{
	return conn_is_tls(c) ? "TLSv1.3/FAKE" : "";
}

bool conn_tls_peer(const struct conn *c, struct conn_tls_peer *ret)
{
	(void)c, (void)ret;
	return false;
}

size_t conn_tls_binding(const struct conn *c, uint8_t ret[CONN_TLS_BINDING_MAX])
{
	(void)c, (void)ret;
	return 0;
}

static void conn_handshake(struct conn *c)
{
	const char *error = NULL;

	if (c->tls_new && !c->direct && c->in.len > 0)
		error = "received unencrypted data in front of the TLS handshake";
	c->handshake = !c->peer->outgoing && !error && c->in.len == 0;
	c->tls_new = false;
	net.did = true;
	if (c->handshake)
		return;
	if (!c->peer->outgoing && !error) {
		if (c->in.data[0] != 0x16)
			error = "wrong version number";
		bytes_drop(&c->in, 1);
	}
	c->ended = error != NULL;
	c->ops->on_secure(c, c->owner, error);
	if (!c->closed && c->in.len > 0)
		c->kicked = true;
}

void conn_want_read(struct conn *c, bool on)
{
	if (on && !c->want_read && !c->held && c->in.len > 0)
		c->kicked = true;
	c->want_read = on;
}

void conn_hold(struct conn *c, bool on)
{
	if (c->held && !on && c->want_read && c->in.len > 0)
		c->kicked = true;
	c->held = on;
}

void conn_kick(struct conn *c)
{
	c->kicked = true;
}

size_t conn_pending_input(const struct conn *c)
{
	return c->in.len;
}

const uint8_t *conn_input(const struct conn *c, size_t *ret_len)
{
	*ret_len = c->in.len;
	return c->in.data;
}

void conn_write(struct conn *c, const void *data, size_t len)
{
	void *own;

	c->kept = false;
	if (len == 0 || c->closed || c->ended || c->broken || c->no_memory)
		return;
	own = mem_alloc(1);
	c->no_memory = !own;
	mem_free(own);
	bytes_add(&c->out, data, len);
	if (c->out.len >= CONN_HIGH_WATER)
		c->full = true;
	net.did = true;
}

void conn_keep_back(struct conn *c)
{
	c->kept = c->out.len > 0;
}

void conn_show_kept(struct conn *c)
{
	net.did |= c->kept;
	c->kept = false;
}

size_t conn_pending_output(const struct conn *c)
{
	return c->out.len;
}

size_t conn_all_unread(void)
{
	size_t n = 0;

	for (const struct conn *c = net.conns; c; c = c->next)
		n += c->counted && c->out.len > CONN_HIGH_WATER ? c->out.len - CONN_HIGH_WATER : 0;
	return n;
}

void conn_count_unread(struct conn *c, bool on)
{
	c->counted = on;
}

uint64_t conn_output_end(const struct conn *c)
{
	return c->broken || c->no_memory ? UINT64_MAX : c->bytes_out + c->out.len;
}

uint64_t conn_sent(const struct conn *c)
{
	return c->bytes_out;
}

bool conn_is_full(const struct conn *c)
{
	return c->full;
}

/* What the other end takes. */
static void conn_push(struct conn *c)
{
	struct fake_peer *p = c->peer;
	size_t n = c->out.len < p->window ? c->out.len : p->window;

	if (n == 0)
		return;
	net.did = true;
	if (p->eof || p->reset) {
		c->broken = true;
		bytes_drop(&c->out, c->out.len);
		return;
	}
	bytes_add(&p->from_proxy, c->out.data, n);
	bytes_drop(&c->out, n);
	c->bytes_out += n;
	if (p->window != SIZE_MAX)
		p->window -= n;
}

bool conn_flush(struct conn *c)
{
	if (!c->closed && !c->ended && !c->connecting && !c->no_memory)
		conn_push(c);
	return c->out.len == 0;
}

void conn_close(struct conn **p)
{
	struct conn *c = *p;

	if (!c)
		return;
	*p = NULL;
	if (c->closed)
		return;
	if (!c->ended && !c->connecting && !c->no_memory)
		conn_push(c);
	c->closed = true;
	c->peer->closed = true;
	c->peer->conn = NULL;
	net.did = true;
}

void conn_abort(struct conn **p)
{
	conn_close(p);
}

static void conn_end(struct conn *c, enum conn_end why, int err)
{
	if (c->ended || c->closed)
		return;
	c->ended = true;
	net.did = true;
	if (c->tls && !conn_is_tls(c)) {
		c->ops->on_secure(c, c->owner, "the peer closed the connection");
		return;
	}
	c->ops->on_end(c, c->owner, why, err);
}

static void conn_show(struct conn *c)
{
	size_t len = c->in.len, used;
	struct shown *s = must(malloc(sizeof(*s) + len));

	/* A copy of the exact size: who reads behind it, or keeps it, is found out. */
	s->next = net.shown;
	net.shown = s;
	memcpy(s->data, c->in.data, len);
	net.did = true;
	used = c->ops->on_data(c, c->owner, s->data, len);
	if (used > len) {
		fprintf(stderr, "on_data took %zu of %zu bytes\n", used, len);
		abort();
	}
	bytes_drop(&c->in, used);
}

static void conn_connected(struct conn *c)
{
	const char *refusal = c->peer->refusal;

	if (!c->peer->answered)
		return;
	c->connecting = false;
	net.did = true;
	if (refusal)
		c->ended = true;
	c->ops->on_connect(c, c->owner, refusal);
}

static void conn_read(struct conn *c)
{
	struct fake_peer *p = c->peer;
	bool gone = p->eof || p->reset;
	size_t n = p->to_proxy.len;

	if (c->held)
		return;
	if (!c->want_read) {
		if (p->eof && !p->reset) {
			bytes_add(&c->in, p->to_proxy.data, n); /* its last words */
			bytes_drop(&p->to_proxy, n);
		}
		if (gone)
			conn_end(c, p->reset ? CONN_END_RESET : CONN_END_EOF, 0);
		return;
	}
	if (n == 0) {
		if (gone)
			conn_end(c, p->reset ? CONN_END_RESET : CONN_END_EOF,
				p->reset ? ECONNRESET : 0);
		else if (c->broken)
			conn_end(c, CONN_END_RESET, EPIPE);
		return;
	}
	/* Of something large only the end: its middle is like any other. */
	if (net.byte_by_byte)
		n = n > 4096 ? 1000 : 1;
	else if (n > 65536)
		n = 65536;
	bytes_add(&c->in, p->to_proxy.data, n);
	bytes_drop(&p->to_proxy, n);
	c->bytes_in += n;
	if (c->tls_new || c->handshake)
		c->kicked = true;
	else
		conn_show(c);
}

int conn_fd(const struct conn *c)
{
	return c->closed ? -1 : c->peer->id;
}

const struct conn_addr *conn_peer(const struct conn *c)
{
	static struct conn_addr a;

	a = (struct conn_addr){false, "192.0.2.1", 40000 + c->peer->id};
	return &a;
}

const struct conn_addr *conn_local(const struct conn *c)
{
	static const struct conn_addr a = {false, "192.0.2.100", 6432};

	(void)c;
	return &a;
}

bool conn_alive(const struct conn *c)
{
	return !c->closed && !c->ended && !c->peer->eof && !c->peer->reset;
}

bool conn_peer_uid(const struct conn *c, unsigned *ret_uid)
{
	(void)c, (void)ret_uid;
	return false;
}

int conn_peer_pid(const struct conn *c)
{
	(void)c;
	return 0;
}

uint64_t conn_bytes_in(const struct conn *c)
{
	return c->bytes_in;
}

uint64_t conn_bytes_out(const struct conn *c)
{
	return c->bytes_out;
}

void conn_tune(const struct conn_tuning *accepted, const struct conn_tuning *made)
{
	(void)accepted;
	(void)made;
}

/* --- loop --- */

bool loop_init(void)
{
	return true;
}

void loop_free(void)
{
}

usec_t loop_now(void)
{
	return net.now;
}

void loop_run(void)
{
}

void loop_stop(void)
{
}

bool loop_signal(int signo, void (*fn)(int signo, void *arg), void *arg)
{
	(void)signo, (void)fn, (void)arg;
	return true;
}

struct loop_tick *loop_tick_new(usec_t (*tick)(void *arg, usec_t now), void *arg, usec_t first)
{
	struct loop_tick *t = mem_zalloc(sizeof(*t));

	if (!t)
		return NULL;
	*t = (struct loop_tick){net.ticks, tick, arg, first, false};
	net.ticks = t;
	return t;
}

void loop_tick_at(struct loop_tick *t, usec_t when)
{
	if (when < t->when)
		t->when = when;
}

void loop_tick_free(struct loop_tick **p)
{
	if (*p) {
		(*p)->dead = true;
		(*p)->when = USEC_NEVER;
	}
	*p = NULL;
}

void loop_phase(enum loop_phase phase, bool (*fn)(void *arg, usec_t now), void *arg)
{
	int n = net.phase_count[phase]++;

	net.phases[phase][n].fn = fn;
	net.phases[phase][n].arg = arg;
}

void loop_reaper(void (*fn)(void *arg), void *arg)
{
	net.reapers[net.reaper_count].fn = fn;
	net.reapers[net.reaper_count++].arg = arg;
}

struct loop_watch *loop_watch_new(
	int fd, int mask, void (*fn)(int fd, int mask, void *arg), void *arg)
{
	struct loop_watch *w = mem_zalloc(sizeof(*w));

	(void)fd, (void)fn, (void)arg;
	if (w)
		w->mask = mask;
	return w;
}

bool loop_watch_set(struct loop_watch *w, int mask)
{
	w->mask = mask;
	return true;
}

void loop_watch_free(struct loop_watch **p)
{
	mem_free(*p);
	*p = NULL;
}

/* --- other processes: there are none --- */

struct conn *conn_adopt(int fd, const struct conn_addr *peer, const char *host, const void *input,
	size_t len, const struct conn_ops *ops, void *owner)
{
	(void)fd, (void)peer, (void)host, (void)input, (void)len, (void)ops, (void)owner;
	return NULL;
}

void conn_abandon(struct conn **p)
{
	conn_close(p);
}

const char *conn_host(const struct conn *c)
{
	(void)c;
	return NULL;
}

enum channel_result channel_send(int fd, const void *data, size_t len, const int *fds, int n_fds)
{
	(void)fd, (void)data, (void)len, (void)fds, (void)n_fds;
	return CHANNEL_END;
}

enum channel_result channel_receive(int fd, struct buf *ret, int ret_fds[CHANNEL_FDS], int *ret_n)
{
	(void)fd, (void)ret, (void)ret_fds, (void)ret_n;
	return CHANNEL_END;
}

/* --- listen: nobody does --- */

bool listen_open(const struct listen_spec *spec,
	void (*on_accept)(int fd, const struct conn_addr *peer, void *arg), void *arg, char *err,
	size_t err_size)
{
	(void)spec, (void)on_accept, (void)arg, (void)err, (void)err_size;
	return true;
}

void dns_on_gone(void (*fn)(const char *host, const char *addr))
{
	(void)fn;
}

const char *dns_peer_known(const char *addr)
{
	(void)addr;
	return "";
}

bool dns_peer_wait(struct dns_peer **handle, const char *addr, dns_peer_fn *fn, void *arg)
{
	(void)handle, (void)addr, (void)fn, (void)arg;
	return false;
}

void dns_peer_cancel(struct dns_peer **handle)
{
	(void)handle;
}

void listen_pause(enum listen_reason why, bool paused)
{
	(void)why;
	(void)paused;
}

void listen_close(void)
{
}

int listen_count(void)
{
	return 0;
}

/* --- the turn --- */

static void turn_reads(void)
{
	struct conn *c;

	for (c = net.conns; c; c = c->next)
		if (c->connecting && !c->closed)
			conn_connected(c);
		else if (!c->closed && !c->ended)
			conn_read(c);
}

static bool turn_kicks(void)
{
	struct conn *c;
	bool any = false;

	for (c = net.conns; c; c = c->next)
		if (c->kicked) {
			c->kicked = false;
			if ((c->tls_new || c->handshake) && !c->closed && !c->ended) {
				any = true;
				conn_handshake(c);
				continue;
			}
			if (c->closed || c->ended || !c->want_read || c->held || c->in.len == 0)
				continue;
			any = true;
			conn_show(c);
		}
	return any;
}

static void turn_ticks(void)
{
	struct loop_tick *t;
	usec_t next;

	for (t = net.ticks; t; t = t->next)
		if (t->when <= net.now && !t->dead) {
			t->when = USEC_NEVER;
			next = t->fn(t->arg, net.now);
			if (!t->dead && next < t->when)
				t->when = next;
		}
}

static void turn_phases(void)
{
	int round, p, i;
	bool more = true;

	for (round = 0; more && round < MAX_ROUNDS; round++) {
		more = turn_kicks();
		for (p = 0; p < LOOP_PHASE_COUNT; p++)
			for (i = 0; i < net.phase_count[p]; i++)
				more |= net.phases[p][i].fn(net.phases[p][i].arg, net.now);
		if (more)
			net.did = true;
	}
}

static void turn_flush(void)
{
	struct conn *c;

	for (c = net.conns; c; c = c->next) {
		if (c->closed || c->ended || c->connecting)
			continue;
		if (c->no_memory) {
			conn_end(c, CONN_END_NO_MEMORY, 0);
			continue;
		}
		if (!c->kept)
			conn_push(c);
		if (c->broken && !c->want_read && !c->held) {
			conn_end(c, CONN_END_RESET, EPIPE);
		} else if (c->full && c->out.len <= CONN_LOW_WATER) {
			c->full = false;
			net.did = true;
			if (c->ops->on_drain)
				c->ops->on_drain(c, c->owner);
		}
	}
}

static void turn_reap(void)
{
	struct conn **at, *c;
	struct loop_tick **tick, *t;
	struct shown *s;
	int i;

	for (i = 0; i < net.reaper_count; i++)
		net.reapers[i].fn(net.reapers[i].arg);
	for (at = &net.conns; (c = *at);) {
		if (!c->closed) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		bytes_free(&c->in);
		bytes_free(&c->out);
		mem_free(c->own);
		free(c);
	}
	for (tick = &net.ticks; (t = *tick);) {
		if (!t->dead) {
			tick = &t->next;
			continue;
		}
		*tick = t->next;
		mem_free(t);
	}
	while ((s = net.shown)) {
		net.shown = s->next;
		free(s);
	}
}

static bool turn(void)
{
	net.did = false;
	turn_reads();
	turn_ticks();
	turn_phases();
	turn_flush();
	turn_reap();
	return net.did;
}

bool fake_settle(void)
{
	int n;

	/* One more than asked for: what the last turn's flush made ready. */
	for (n = 0; n < MAX_TURNS; n++)
		if (!turn())
			return true;
	return false;
}

static usec_t next_deadline(void)
{
	struct loop_tick *t;
	usec_t next = USEC_NEVER;

	for (t = net.ticks; t; t = t->next)
		if (t->when < next)
			next = t->when;
	return next;
}

bool fake_time(usec_t span, usec_t late, void (*at_each_stop)(void))
{
	usec_t end = net.now + span, next;
	int here = 0;

	for (;;) {
		next = next_deadline();
		if (next > end)
			break;
		/* A deadline in the past that never moves is a loop that never sleeps. */
		here = next > net.now ? 0 : here + 1;
		if (here > 1000)
			return false;
		if (next > net.now)
			net.now = next + late < end ? next + late : end;
		if (!fake_settle())
			return false;
		at_each_stop();
	}
	net.now = end;
	return fake_settle();
}

bool fake_pending(char *text, size_t size)
{
	const struct conn *c;

	for (c = net.conns; c; c = c->next) {
		if (c->closed)
			continue;
		if (c->in.len || c->out.len || c->kicked) {
			(void)snprintf(text, size, "connection %d: %zu bytes in, %zu out%s",
				c->peer->id, c->in.len, c->out.len, c->kicked ? ", kicked" : "");
			return true;
		}
	}
	return false;
}

int fake_open_conns(void)
{
	const struct conn *c;
	int n = 0;

	for (c = net.conns; c; c = c->next)
		n += !c->closed;
	return n;
}

int fake_net_free(void)
{
	struct fake_peer *p;
	struct loop_tick *t;
	int left;

	turn_reap();
	left = fake_open_conns();
	while ((p = net.peers)) {
		net.peers = p->next;
		bytes_free(&p->to_proxy);
		bytes_free(&p->from_proxy);
		free(p->refusal);
		free(p);
	}
	while ((t = net.ticks)) {
		net.ticks = t->next;
		mem_free(t);
	}
	return left;
}

/* --- one process --- */

int team_self(void)
{
	return 0;
}

int team_size(void)
{
	return 1;
}

void team_hear(enum team_word word, void (*fn)(int from, const uint8_t *text, size_t len))
{
	(void)word;
	(void)fn;
}

void team_hear_gone(void (*fn)(int from, const uint8_t *text, size_t len))
{
	(void)fn;
}

bool team_send(int to, enum team_word word, const void *text, size_t len)
{
	(void)to;
	(void)word;
	(void)text;
	(void)len;
	return false;
}

int team_send_all(enum team_word word, const void *text, size_t len)
{
	(void)word;
	(void)text;
	(void)len;
	return 0;
}

void team_count_clients(unsigned n)
{
	(void)n;
}

bool team_has_more_than_its_part(void)
{
	return false;
}

unsigned team_clients(void)
{
	return 0;
}
