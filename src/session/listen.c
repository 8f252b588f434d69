/*
 * LISTEN in transaction pooling: one server connection of a database listens for all its clients. A
 * channel is counted; it is listened to from the first client to the last. LISTEN and UNLISTEN are
 * answered here, when the server has confirmed, and count from the client's commit on.
 * Notifications are delivered between transactions.
 *
 * The connection is one of the pool of the client that came first; it belongs to no client and runs
 * nothing but LISTEN and UNLISTEN. When it breaks, notifications may be lost: as in Postgres,
 * whoever listens loses its connection.
 *
 * LISTEN in a function, or in one string with other statements, is carried out by the client's own
 * server and pins it there.
 */
#include <inttypes.h>
#include <string.h>

#include "pool/answer.h"
#include "session_int.h"

#define UNREAD_MAX                                                                                 \
	(16 * 1024 * 1024) /* notifications kept for a client that is busy, or does not read */
#define HELD_SURELY                                                                                \
	(50 * USEC_MSEC) /* who has a server for this long has sent what it notifies               \
			  */

enum channel_state { CHANNEL_WANTED, CHANNEL_ASKED, CHANNEL_ON };

struct channel {
	UT_hash_handle hh;
	enum channel_state state;
	unsigned refs; /* subscriptions, and clients that wait for one */
	char name[];
};

/* What a client has said in the transaction under way. */
struct change {
	struct change *next;
	struct channel *channel; /* a reference; NULL: all */
	bool listen;
};

struct subscription {
	struct subscription *next;
	struct channel *channel; /* a reference */
};

struct listening {
	struct listening *prev, *next; /* of the listener */
	struct client *client;
	struct subscription *list;
	struct change *changes;  /* in their order */
	struct channel *waiting; /* a reference: its LISTEN is under way */
	struct buf unread;       /* NotificationResponse messages */
};

struct listener {
	struct database *db;
	struct server *server; /* NULL: none yet */
	struct channel *channels;
	struct listening *clients;
	bool asking; /* a query is under way */
};

/* --- channels --- */

static struct channel *channel_hold(struct listener *l, const char *name)
{
	struct channel *ch;
	size_t len = strlen(name);

	HASH_FIND_STR(l->channels, name, ch);
	if (ch == NULL) {
		ch = mem_zalloc(sizeof(*ch) + len + 1);
		if (ch == NULL)
			return NULL;
		memcpy(ch->name, name, len + 1);
		HASH_ADD_STR(l->channels, name, ch);
		if (ch->hh.tbl == NULL) {
			mem_free(ch);
			return NULL;
		}
	}
	ch->refs++;
	return ch;
}

static void channel_free(struct listener *l, struct channel *ch)
{
	HASH_DEL(l->channels, ch);
	mem_free(ch);
}

static void channel_drop(struct listener *l, struct channel **pch)
{
	struct channel *ch = *pch;

	*pch = NULL;
	INVARIANT(ch == NULL || ch->refs > 0, "a channel is left by more than listen");
	if (ch != NULL && --ch->refs == 0 && ch->state == CHANNEL_WANTED)
		channel_free(l, ch);
}

/* --- the connection --- */

static void put_name(struct buf *b, const char *name)
{
	buf_putc(b, '"');
	for (; *name != '\0'; name++) {
		if (*name == '"')
			buf_putc(b, '"');
		buf_putc(b, *name);
	}
	buf_puts(b, "\";");
}

static enum relay_step refused(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)m;
	(void)e;
	relay_run_flush(r);
	server_close(r->s, "LISTEN failed", NULL);
	return RELAY_GONE;
}

/* One query for all that is to be changed. */
static void ask(struct listener *l)
{
	struct buf sql = BUF_INIT, b = BUF_INIT;
	struct channel *ch, *tmp;

	if (l->asking || l->server == NULL || l->server->state != SERVER_LISTENING)
		return;
	HASH_ITER (hh, l->channels, ch, tmp) {
		if (ch->refs > 0 && ch->state == CHANNEL_WANTED) {
			buf_puts(&sql, "LISTEN ");
			put_name(&sql, ch->name);
			ch->state = CHANNEL_ASKED;
		} else if (ch->refs == 0) {
			buf_puts(&sql, "UNLISTEN ");
			put_name(&sql, ch->name);
			channel_free(l, ch);
		}
	}
	if (sql.len == 0 && !sql.failed)
		return;
	build_query(&b, buf_cstr(&sql));
	if (buf_failed(&sql))
		b.failed = true;
	buf_free(&sql);
	l->asking = true;
	if (server_expect(l->server, EXPECT_QUERY, &dest_listen, NULL))
		server_send(l->server, &b);
	else
		buf_free(&b);
}

static void resume_waiting(struct listener *l)
{
	struct listening *li;

	DL_FOREACH (l->clients, li)
		if (li->waiting != NULL && li->waiting->state == CHANNEL_ON)
			client_again(li->client);
}

static void answered(struct relay *r, bool last)
{
	struct server *s = r->s;
	struct listener *l = s->pool->db->listener;
	struct channel *ch, *tmp;

	(void)last;
	if (l == NULL || l->server != s)
		return;
	l->asking = false;
	HASH_ITER (hh, l->channels, ch, tmp)
		if (ch->state == CHANNEL_ASKED)
			ch->state = CHANNEL_ON;
	resume_waiting(l);
	ask(l);
}

static void up(struct server *s)
{
	CHECK_SERVER(s);
	if (s->pool->db->listener != NULL && s->pool->db->listener->server == s)
		ask(s->pool->db->listener);
	else
		server_close(s, "nobody listens", NULL);
}

static bool connect_listener(struct listener *l, struct pool *p)
{
	if (l->server != NULL)
		return true;
	if (route_stopped(l->db))
		return true; /* the client waits: listen_wake() */
	l->server = server_launch_for(p, &dest_listen);
	return l->server != NULL;
}

/* Who came while no server was given to anybody says its LISTEN again. */
void listen_wake(struct database *db)
{
	struct listener *l = db->listener;
	struct listening *li;

	CHECK_DATABASE(db);
	if (l == NULL || l->server != NULL || route_stopped(db))
		return;
	DL_FOREACH (l->clients, li)
		if (li->waiting != NULL)
			client_again(li->client);
}

/* The connection is gone: what it would have told cannot be told any more. */
static void lost(struct server *s, const struct pg_error *why)
{
	struct listener *l = s->pool->db->listener;
	struct listening *li, *tmp;
	struct channel *ch, *ctmp;
	struct pg_error err;

	CHECK_SERVER(s);
	if (l == NULL || l->server != s)
		return;
	l->server = NULL;
	l->asking = false;
	HASH_ITER (hh, l->channels, ch, ctmp)
		ch->state = CHANNEL_WANTED;
	pg_error_set(&err, "08006", "the connection that listens for notifications was lost");
	pg_error_detail(&err, "Notifications may have been missed.");
	DL_FOREACH_SAFE (l->clients, li, tmp) {
		if (li->list != NULL || li->changes != NULL)
			client_fatal(li->client, &err);
		else if (li->waiting != NULL && li->client->state == CLIENT_BARRIER)
			client_no_server(li->client, why != NULL ? why : &err);
	}
}

/* --- clients --- */

static struct listening *listening_of(struct client *c)
{
	struct database *db = c->pool->db;

	if (db->listener == NULL) {
		db->listener = mem_zalloc(sizeof(*db->listener));
		if (db->listener == NULL)
			return NULL;
		db->listener->db = db;
	}
	if (c->listening == NULL) {
		c->listening = mem_zalloc(sizeof(*c->listening));
		if (c->listening == NULL) {
			if (db->listener->clients == NULL)
				listen_free(db);
			return NULL;
		}
		c->listening->client = c;
		DL_APPEND(db->listener->clients, c->listening);
	}
	return c->listening;
}

static void drop_changes(struct listener *l, struct listening *li)
{
	while (li->changes != NULL) {
		struct change *ch = li->changes;

		li->changes = ch->next;
		channel_drop(l, &ch->channel);
		mem_free(ch);
	}
}

static void unsubscribe(struct listener *l, struct listening *li, const struct channel *channel)
{
	struct subscription **at = &li->list, *s;

	while ((s = *at) != NULL) {
		if (channel != NULL && s->channel != channel) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		channel_drop(l, &s->channel);
		mem_free(s);
	}
}

static void subscribe(struct listener *l, struct listening *li, struct channel *channel)
{
	struct subscription *s;

	for (s = li->list; s != NULL; s = s->next)
		if (s->channel == channel)
			return;
	s = mem_zalloc(sizeof(*s));
	if (s == NULL) {
		client_out_of_memory(li->client);
		return;
	}
	s->channel = channel_hold(l, channel->name);
	if (s->channel == NULL) {
		mem_free(s);
		client_out_of_memory(li->client);
		return;
	}
	s->next = li->list;
	li->list = s;
}

void listen_end(struct client *c)
{
	struct listening *li = c->listening;
	struct listener *l;

	CHECK_CLIENT(c);
	if (li == NULL)
		return;
	c->listening = NULL;
	l = c->pool->db->listener;
	drop_changes(l, li);
	unsubscribe(l, li, NULL);
	channel_drop(l, &li->waiting);
	DL_DELETE(l->clients, li);
	buf_free(&li->unread);
	mem_free(li);
	if (l->clients == NULL && l->server != NULL) {
		struct server *s = l->server;

		l->server = NULL;
		l->asking = false;
		server_close(s, "nobody listens", NULL);
	}
	if (l->clients != NULL)
		ask(l);
	else
		listen_free(l->db);
}

void listen_free(struct database *db)
{
	struct listener *l = db->listener;
	struct channel *ch, *tmp;

	CHECK_DATABASE(db);
	db->listener = NULL;
	if (l == NULL)
		return;
	HASH_ITER (hh, l->channels, ch, tmp)
		channel_free(l, ch);
	mem_free(l);
}

/* --- statements --- */

/* Is that what was said last of this channel? */
static bool is_said(const struct listening *li, const char *name, bool listen)
{
	bool said = false;

	for (const struct change *ch = li->changes; name != NULL && ch != NULL; ch = ch->next)
		if (ch->channel == NULL || strcmp(ch->channel->name, name) == 0)
			said = ch->channel != NULL && ch->listen == listen;
	return said;
}

static bool add_change(struct client *c, const char *name, bool listen)
{
	struct listening *li = c->listening;
	struct change *ch, **at = &li->changes;

	if (is_said(li, name, listen))
		return true;
	ch = mem_zalloc(sizeof(*ch));
	if (ch == NULL)
		return client_out_of_memory(c);
	ch->listen = listen;
	if (name != NULL && (ch->channel = channel_hold(c->pool->db->listener, name)) == NULL) {
		mem_free(ch);
		return client_out_of_memory(c);
	}
	while (*at != NULL)
		at = &(*at)->next;
	*at = ch;
	return true;
}

/* Is the channel listened to? Else it is asked for, and client_again() follows. */
static enum listen_ready channel_is_on(struct client *c, const char *name)
{
	struct listener *l = c->pool->db->listener;
	struct listening *li = c->listening;

	if (li->waiting == NULL || strcmp(li->waiting->name, name) != 0) {
		channel_drop(l, &li->waiting);
		li->waiting = channel_hold(l, name);
	}
	if (li->waiting == NULL)
		return LISTEN_NO_MEMORY;
	if (li->waiting->state == CHANNEL_ON)
		return LISTEN_READY;
	(void)client_wait_again(c);
	if (!connect_listener(l, c->pool))
		return LISTEN_NO_MEMORY;
	ask(l);
	return LISTEN_WAITS;
}

enum listen_ready listen_prepare(struct client *c, const char *name)
{
	CHECK_CLIENT(c);
	if (listening_of(c) == NULL)
		return LISTEN_NO_MEMORY;
	return name == NULL ? LISTEN_READY : channel_is_on(c, name);
}

bool listen_change(struct client *c, const char *name, bool listen)
{
	CHECK_CLIENT(c);
	if (!add_change(c, name, listen))
		return false;
	channel_drop(c->pool->db->listener, &c->listening->waiting);
	return true;
}

bool listen_is_ours(const struct client *c)
{
	return c->pool != NULL && client_pool_mode(c) != POOL_MODE_SESSION;
}

bool listen_unlisten_all(struct client *c)
{
	return c->listening == NULL || add_change(c, NULL, false);
}

void listen_tx_end(struct client *c, bool committed)
{
	struct listening *li = c->listening;
	struct listener *l = c->pool->db->listener;
	struct change *ch, *next;

	CHECK_CLIENT(c);
	/* without memory the client is closed, and nothing of this is there any more */
	for (ch = li->changes; committed && ch != NULL && c->state != CLIENT_DEAD; ch = next) {
		next = ch->next;
		if (ch->listen)
			subscribe(l, li, ch->channel);
		else
			unsubscribe(l, li, ch->channel);
	}
	if (c->state == CLIENT_DEAD)
		return;
	drop_changes(l, li);
	if (li->list == NULL && li->waiting == NULL)
		listen_end(c);
	else
		ask(l);
}

/* --- notifications --- */

/* The process id that the client who has sent it was told at its login, if that is known: it holds
 * the server, or was the last to do so. */
static int32_t sender(const struct database *db, int32_t pid)
{
	for (const struct pool *p = db->pools; p != NULL; p = p->next)
		for (int i = SERVER_IDLE; i < SERVER_DEAD; i++) {
			const struct server *s;

			DL_FOREACH (p->servers[i].head, s)
				if (s->pid == pid)
					return s->use.holder != 0 &&
							       (s->use.alone ||
								       loop_now() - s->use.held_since >
									       HELD_SURELY)
						       ? s->use.holder
						       : pid;
		}
	return pid;
}

static bool is_between_transactions(const struct client *c)
{
	return c->state == CLIENT_ACTIVE && client_tx(c) == CLIENT_TX_IDLE && !client_is_owed(c) &&
	       !c->tx.executed && !c->skip_to_sync && !(c->link != NULL && c->link->batch.unsynced);
}

void listen_flush(struct client *c)
{
	struct listening *li = c->listening;

	CHECK_CLIENT(c);
	if (li->unread.len > 0 && !buf_failed(&li->unread))
		client_write(c, &li->unread);
	buf_free(&li->unread);
}

static void deliver(struct client *c, int32_t pid, const char *name, const char *payload)
{
	struct listening *li = c->listening;
	size_t start;

	if (c->state == CLIENT_DEAD)
		return;
	start = build_begin(&li->unread, 'A');
	build_i32(&li->unread, pid);
	build_cstr(&li->unread, name);
	build_cstr(&li->unread, payload);
	build_end(&li->unread, start);
	if (buf_failed(&li->unread) || li->unread.len + conn_pending_output(c->conn) > UNREAD_MAX)
		client_close(c, CLIENT_END_BY_US, "notifications that are not read");
	else if (is_between_transactions(c))
		listen_flush(c);
}

static void notified(struct server *s, const struct wire_msg *m)
{
	struct listener *l = s->pool->db->listener;
	struct listening *li, *tmp;
	struct subscription *sub;
	struct wire_reader rd;
	const char *name, *payload;
	int32_t pid;

	wire_reader_init(&rd, m->body, m->have);
	pid = wire_get_i32(&rd);
	name = wire_get_cstr(&rd, NULL);
	payload = wire_get_cstr(&rd, NULL);
	if (!wire_done(&rd) || l == NULL)
		return;
	pid = sender(l->db, pid);
	DL_FOREACH_SAFE (l->clients, li, tmp)
		for (sub = li->list; sub != NULL; sub = sub->next)
			if (strcmp(sub->channel->name, name) == 0) {
				deliver(li->client, pid, name, payload);
				break;
			}
}

const struct dest dest_listen = {.seen = SEEN_STATUS,
	.ready = answered,
	.error = refused,
	.up = up,
	.notified = notified,
	.lost = lost};
