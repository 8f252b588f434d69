/*
 * The messages of a session: a table by type, and what each does with the client's server. A
 * message that needs a server when there is none stays where it is; the client waits in its pool's
 * list and the message is looked at again when it has one. Nothing behind it is touched meanwhile,
 * so the order of answers needs no care here.
 *
 * Query and FunctionCall: client_query.c. Extended protocol: extq.c. Statements that we answer
 * ourselves: local.c.
 */
#include <stdio.h>
#include <string.h>

#include "relay_int.h"

/* --- the others --- */

static enum step on_sync(struct client *c, const struct wire_msg *m)
{
	struct server *s = c->link;
	struct buf b = BUF_INIT;

	if (m->total != WIRE_HEADER)
		return client_bad_message(c, m);
	c->skip_to_sync = false;
	portal_synced(c);
	/* session pooling: what the server was told outside of the block that it does not know */
	if (s != NULL && c->tx.virtual != VTX_NONE && s->batch.unsynced) {
		build_simple(&b, 'S');
		if (!server_expect(s, EXPECT_SYNC, &dest_swallow, NULL) || !server_send(s, &b)) {
			buf_free(&b);
			return STEP_END;
		}
	}
	if (s == NULL || c->tx.virtual != VTX_NONE) {
		build_ready(&b, client_status(c));
		client_emit(c, &b);
		if (c->state == CLIENT_DEAD)
			return STEP_END;
		client_ready(c, true);
		return STEP_NEXT;
	}
	if (copy_takes_data(s))
		return copy_sync(c, m);
	if (!client_expect(c, EXPECT_SYNC, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}

static enum step on_flush(struct client *c, const struct wire_msg *m)
{
	if (m->total != WIRE_HEADER)
		return client_bad_message(c, m);
	c->head.promised = true;
	if (c->link == NULL || c->link->expect.count == 0)
		return STEP_NEXT;
	return client_forward(c, m);
}

/* The message ends here, whatever of it is still to come. */
static enum step skip(struct client *c, const struct wire_msg *m)
{
	c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
	c->pass_discard = true;
	return c->pass_left > 0 ? STEP_STREAM : STEP_NEXT;
}

/* Copy data outside a copy is ignored, as Postgres does: what was on its way when the copy failed.
 */
static enum step on_copy(struct client *c, const struct wire_msg *m)
{
	struct server *s = c->link;

	return s == NULL || s->expect.count == 0 ? skip(c, m) : copy_message(c, m);
}

static enum step on_terminate(struct client *c, const struct wire_msg *m)
{
	(void)m;
	client_close(c, CLIENT_END_TERMINATE, "client close request");
	return STEP_END;
}

static enum step on_unexpected(struct client *c, const struct wire_msg *m)
{
	return client_protocol_error(c, "invalid frontend message type %d", m->type);
}

typedef enum step (*handler)(struct client *c, const struct wire_msg *m);

static const handler handlers[256] = {
	['Q'] = client_query,
	['P'] = extq_parse,
	['B'] = extq_bind,
	['D'] = extq_describe,
	['E'] = extq_execute,
	['C'] = extq_close,
	['S'] = on_sync,
	['H'] = on_flush,
	['F'] = client_function,
	['d'] = on_copy,
	['c'] = on_copy,
	['f'] = on_copy,
	['X'] = on_terminate,
};

/* --- the loop over what has come --- */

/* The pool has told that no server can be had. Takes the message at the head. */
static enum step fail_message(struct client *c, const struct wire_msg *m)
{
	struct pg_error err, *kept = c->head.error;
	enum step step;

	c->head.no_server = false;
	c->head.error = NULL;
	if (kept == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	err = *kept;
	mem_free(kept);
	/* a cancel was the client's own wish */
	if (strcmp(err.sqlstate, "57014") != 0)
		client_log_refusal(c, err.message);
	step = client_error(c, &err, m->type == 'Q' || m->type == 'F');
	return step == STEP_NEXT ? skip(c, m) : step;
}

/* The server is asked what a statement that may have taken settings back has left. Nothing is sent
 * behind that question: settings may have to be put in force before it, for which the server has to
 * be at rest, and it never is with an answer that it keeps until a Sync. */
static bool is_asked_first(struct client *c, uint8_t type)
{
	if (c->link == NULL || c->link->inspect.now == NULL || type == 'X' ||
		!inspect_may_restore(c->link))
		return false;
	/* it counts towards query_timeout */
	if (c->request_time == 0 && strchr("dcfH", type) == NULL)
		c->request_time = loop_now();
	client_move(c, CLIENT_BARRIER);
	return true;
}

static enum step message(struct client *c, const struct wire_msg *m)
{
	handler h = handlers[m->type];

	if (h == NULL)
		return on_unexpected(c, m);
	if (c->head.promised && conn_pending_output(c->conn) == 0)
		c->head.promised = false;
	if (c->link != NULL && c->link->expect.count > 0 && copy_holds(c, m->type))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	/* everything that follows an error in a batch is dropped up to Sync */
	if (c->skip_to_sync && m->type != 'S' && m->type != 'X')
		return skip(c, m);
	if (c->head.no_server)
		return fail_message(c, m);
	if (is_asked_first(c, m->type))
		return STEP_WAIT;
	return h(c, m);
}

/* A wait ends with a goodbye; a statement that is being carried out is finished first, as in
 * Postgres. */
static bool ends_with_goodbye(const struct client *c)
{
	struct stmt_shape shape = {0};

	c->parked.stmt->icpt->stmt_shape(c->parked.stmt->stmt, &shape);
	return shape.barrier || c->console;
}

/* Parked: only a goodbye is listened to; the rest waits, up to a bound. */
static size_t parked_input(struct client *c, const uint8_t *data, size_t len)
{
	struct wire_msg m;

	for (size_t pos = 0;
		ends_with_goodbye(c) && wire_next(data + pos, len - pos, &m) == WIRE_NEXT_OK;
		pos += m.total) {
		if (m.type == 'X') {
			on_terminate(c, &m);
			return len;
		}
		/* only what ends the batch of the statement that waits: a statement behind it would
		 * be carried out first */
		if (m.type != 'S' || !wire_complete(&m))
			break;
	}
	if (len > PARKED_INPUT_MAX)
		conn_want_read(c->conn, false);
	return 0;
}

static size_t pass(struct client *c, const uint8_t *data, size_t len)
{
	size_t n = len < c->pass_left ? len : c->pass_left;

	if (!c->pass_discard && c->link != NULL)
		conn_write(c->link->conn, data, n);
	c->pass_left -= (uint32_t)n;
	if (c->pass_left == 0 && c->link != NULL && c->link->expect.count == 0)
		relay_settle(c->link);
	return n;
}

/* One message, as far as it is here. Returns the bytes that are dealt with; 0: stop. */
static size_t one(struct client *c, const uint8_t *data, size_t len)
{
	struct wire_msg m;
	enum step step;

	switch (wire_next(data, len, &m)) {
	case WIRE_NEXT_MORE:
		return 0;
	case WIRE_NEXT_BAD:
		client_protocol_error(c, "invalid message length");
		return 0;
	case WIRE_NEXT_OK:
		break;
	}
	if ((int64_t)m.total > conf_current()->p.max_packet_size) {
		client_protocol_error(c, "message is longer than max_packet_size");
		return 0;
	}
	c->head.next = m.total < len ? data[m.total] : -1;
	step = message(c, &m);
	if (step != STEP_WAIT && step != STEP_MORE) {
		c->head.string_at = 0;
		c->head.repeats = false;
	}
	switch (step) {
	case STEP_NEXT:
		/* refused before all of it has come: the rest is dropped */
		if (!wire_complete(&m) && skip(c, &m) == STEP_STREAM)
			return WIRE_HEADER + m.have;
		return m.total;
	case STEP_STREAM:
		return WIRE_HEADER + m.have;
	case STEP_PARKED:
		return m.total;
	case STEP_MORE:
	case STEP_WAIT:
	case STEP_END:
		break;
	}
	return 0;
}

static bool runs(const struct client *c)
{
	return c->state == CLIENT_ACTIVE;
}

/* The server may be waiting for more as we are for its answers. */
static void throttle(struct client *c)
{
	c->link->throttled = true;
	conn_want_read(c->conn, false);
	(void)!client_ask_for_answers(c);
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct client *c = owner;
	size_t pos = 0, n;

	if (client_all.some_leave && len > 0 && data[0] != 'X')
		pool_all.calls->idle(c); /* what it asks for is not begun */
	while (pos < len && runs(c) && !conn_is_full(conn)) {
		n = c->pass_left > 0 ? pass(c, data + pos, len - pos)
				     : one(c, data + pos, len - pos);
		if (n == 0)
			break;
		pos += n;
		if (c->link != NULL && c->link->conn != NULL && conn_is_full(c->link->conn)) {
			conn_want_read(conn, false);
			break;
		}
		if (c->link != NULL && c->link->expect.count >= EXPECT_HIGH && c->pass_left == 0) {
			throttle(c);
			break;
		}
	}
	/* it does not read its answers */
	if (runs(c) && conn_is_full(conn))
		conn_want_read(conn, false);
	if (c->pool != NULL)
		c->pool->stats.bytes_in += pos;
	if (c->state == CLIENT_PARKED)
		pos += parked_input(c, data + pos, len - pos);
	else if (c->state == CLIENT_WAITING || c->state == CLIENT_BARRIER)
		conn_want_read(conn, false);
	return c->state == CLIENT_DEAD ? len : pos;
}

/* Is its last word, behind what we have not got round to, a goodbye? */
static bool said_goodbye(const struct client *c, const uint8_t *data, size_t len)
{
	size_t pos = c->pass_left;
	struct wire_msg m;
	bool goodbye = false;

	while (pos < len && wire_next(data + pos, len - pos, &m) == WIRE_NEXT_OK &&
		wire_complete(&m)) {
		goodbye = m.type == 'X';
		pos += m.total;
	}
	return goodbye && pos == len;
}

static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	struct client *c = owner;
	size_t len;
	const uint8_t *data = conn_input(conn, &len);

	(void)err;
	if (why == CONN_END_EOF && len > 0 && said_goodbye(c, data, len))
		client_close(c, CLIENT_END_TERMINATE, "client close request");
	else
		client_close(c, CLIENT_END_BROKEN,
			why == CONN_END_NO_MEMORY ? "out of memory" : "client unexpected eof");
}

/* It has read what was queued: its server may go on. */
static void on_drain(struct conn *conn, void *owner)
{
	struct client *c = owner;

	(void)conn;
	if (c->link != NULL && c->link->conn != NULL) {
		conn_want_read(c->link->conn, true);
		conn_kick(c->link->conn);
	}
	if (c->state == CLIENT_PARKED && c->icpt->drained != NULL)
		c->icpt->drained(c);
	if (runs(c) && !(c->link != NULL && c->link->throttled))
		client_resume(c);
}

const struct conn_ops client_ops = {.on_data = on_data, .on_end = on_end, .on_drain = on_drain};
