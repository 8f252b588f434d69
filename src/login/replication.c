/*
 * Replication connections: a client that asks for one gets a server connection of its own, made for
 * it with the same start-up parameters, and from the greeting on bytes pass both ways untouched.
 * Nothing is pooled, nothing is looked at. Its pool is entered by nobody else and ends with it.
 * Entry points: replication_* of pool_int.h.
 */
#include <string.h>

#include "login_int.h"

/* The other side takes no more for now: this one is not read. */
static void pass(struct conn *from, struct conn *to, const uint8_t *data, size_t len)
{
	conn_write(to, data, len);
	if (conn_is_full(to))
		conn_want_read(from, false);
}

static size_t on_client_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct client *c = owner;

	if (c->link == NULL || c->link->conn == NULL)
		return 0;
	c->pool->stats.bytes_in += len;
	pass(conn, c->link->conn, data, len);
	return len;
}

static void on_client_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	(void)conn;
	(void)why;
	(void)err;
	client_close(owner, CLIENT_END_BROKEN, "replication client left");
}

static void on_client_drain(struct conn *conn, void *owner)
{
	struct client *c = owner;

	(void)conn;
	if (c->link != NULL && c->link->conn != NULL)
		conn_want_read(c->link->conn, true);
}

static size_t on_server_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct server *s = owner;

	if (s->link == NULL || s->link->conn == NULL)
		return len;
	s->pool->stats.bytes_out += len;
	pass(conn, s->link->conn, data, len);
	return len;
}

static void on_server_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	(void)conn;
	(void)why;
	(void)err;
	server_close(owner, "server closed the replication connection", NULL);
}

static void on_server_drain(struct conn *conn, void *owner)
{
	struct server *s = owner;

	(void)conn;
	if (s->link != NULL && s->link->conn != NULL)
		conn_want_read(s->link->conn, true);
}

static const struct conn_ops raw_client_ops = {
	.on_data = on_client_data, .on_end = on_client_end, .on_drain = on_client_drain};
static const struct conn_ops raw_server_ops = {
	.on_data = on_server_data, .on_end = on_server_end, .on_drain = on_server_drain};

bool replication_start(struct client *c)
{
	struct pool *p = c->pool;
	struct server *s = pool_take_idle(p, false);

	CHECK_CLIENT(c);
	if (s == NULL)
		return false;
	s->link = c;
	c->link = s;
	/* neither side is ever between two messages, as far as we know: nobody puts in one of ours
	 */
	s->pass_left = 1;
	s->raw = true;
	server_move(s, SERVER_ACTIVE);
	p->stats.server_assignments++;
	conn_set_ops(s->conn, &raw_server_ops, s);
	conn_set_ops(c->conn, &raw_client_ops, c);
	conn_want_read(s->conn, true);
	conn_want_read(c->conn, true);
	return true;
}

/* The parameters of its start-up packet, for the server's. */
void replication_parameters(const struct pool *p, const char **pairs, int *n, int max)
{
	const char *at = istr_text(p->startup), *end = at + istr_len(p->startup);

	CHECK_POOL(p);
	while (at < end && *n < max) {
		const char *name = at, *value = name + strlen(name) + 1;

		pairs[2 * *n] = name;
		pairs[2 * *n + 1] = value;
		++*n;
		at = value + strlen(value) + 1;
	}
}
