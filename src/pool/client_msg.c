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

/* --- getting a server --- */

static enum relay_step begin_refused(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)e;
	return relay_error_ends(r, m, true, "settings refused");
}

const struct dest dest_begin = {.seen = SEEN_NOTICES, .error = begin_refused};

static bool send_begin(struct client *c)
{
	struct server *s = c->link;
	struct buf sql = BUF_INIT;

	buf_puts(&sql, c->tx.begin_sql);
	mem_free(c->tx.begin_sql);
	c->tx.begin_sql = NULL;
	c->tx.virtual = VTX_NONE;
	s->tx = 'T';
	return server_query(s, &sql, &dest_begin);
}

bool client_is_owed(const struct client *c)
{
	return c->link != NULL && (c->link->expect.count > 0 || c->link->pass_left > 0);
}

static void wait_for_server(struct client *c)
{
	if (c->state == CLIENT_WAITING)
		return;
	c->request_time = loop_now();
	c->head.wait_noticed = false;
	client_move(c, CLIENT_WAITING);
	pool_mark_ready(c->pool);
}

/* What only a server can answer, on the console: the message fails, the session lives. */
static bool no_pool(struct client *c)
{
	struct pg_error err;

	pg_error_set(&err, "0A000", "this is not possible on the console");
	pg_error_hint(&err, "Use SHOW HELP;");
	client_no_server(c, &err);
	return false;
}

/* client_need_server(), when there is something to do for it. */
bool client_get_server(struct client *c)
{
	struct server *s = c->link;

	CHECK_CLIENT(c);
	if (c->pool == NULL)
		return no_pool(c);
	if (s == NULL) {
		/* fair: nobody overtakes those who wait already */
		if (c->pool->waiting.count == 0 || c->pool->waiting.head == c)
			s = pool_take_idle(c->pool, true);
		if (s == NULL) {
			wait_for_server(c);
			return false;
		}
		server_link(s, c);
		if (c->link == NULL)
			return false;
	}
	if ((c->link->extra != c->extra || c->link->sqlprep != c->sqlprep ||
		    c->link->settings.vars_stale) &&
		!session_sync(c))
		return false;
	if (c->link->settings.settling) {
		client_move(c, CLIENT_BARRIER);
		return false;
	}
	if (c->tx.virtual == VTX_OPEN && !send_begin(c))
		return false;
	return true;
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

bool client_expect(struct client *c, enum expect_kind kind, const struct dest *dest, void *arg)
{
	return server_expect(c->link, kind, dest, arg);
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

/* --- errors --- */

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

/* A text that no server accepts: makes its transaction fail when ours has failed. */
#define FAILING_SQL "\"the QUEUE statement before this failed\""

static enum relay_step fail_done(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	bool batch = relay_in_batch(e);

	(void)m;
	relay_emit(r, e->arg);
	if (r->s->link != NULL)
		r->s->link->tx.failed = true;
	if (batch && r->s->state != SERVER_DEAD)
		relay_batch_failed(r);
	return RELAY_DROP;
}

static void fail_free(struct server *s, struct expect *e, bool ok)
{
	(void)s;
	(void)ok;
	buf_free(e->arg);
	mem_free(e->arg);
	e->arg = NULL;
}

const struct dest dest_fail = {.seen = SEEN_STATUS, .error = fail_done, .free = fail_free};

/* The server's transaction has to fail too; our error leaves in the place of its own. */
static enum step fail_on_server(struct client *c, struct buf *b, bool simple)
{
	struct server *s = c->link;
	struct buf out = BUF_INIT, *copy = mem_alloc(sizeof(*copy));

	if (copy == NULL) {
		buf_free(b);
		client_out_of_memory(c);
		return STEP_END;
	}
	*copy = *b;
	*b = BUF_INIT;
	server_drop_unnamed(s);
	if (simple) {
		build_query(&out, FAILING_SQL);
	} else {
		build_parse(&out, "", FAILING_SQL, strlen(FAILING_SQL), NULL, 0);
		build_simple(&out, 'H');
		c->skip_to_sync = true;
	}
	if (!server_expect(s, simple ? EXPECT_QUERY : EXPECT_PARSE, &dest_fail, copy)) {
		buf_free(&out);
		return STEP_END;
	}
	if (simple)
		expect_at(&s->expect, s->expect.count - 1u)->final = true;
	return server_send(s, &out) ? STEP_NEXT : STEP_END;
}

/* The transaction on the linked server is open, or would be committed by the Sync to come; or what
 * is under way may open one. */
static bool server_has_work(const struct client *c)
{
	const struct server *s = c->link;

	return s != NULL && c->tx.virtual == VTX_NONE &&
	       (s->tx == 'T' || s->batch.unsynced || s->expect.count > 0);
}

/* Postgres keeps answers back until Flush or Sync. */
static bool ask_for_answers(struct client *c)
{
	struct buf b = BUF_INIT;

	if (!c->link->batch.unsynced)
		return true;
	build_simple(&b, 'H');
	return server_send(c->link, &b);
}

enum step client_error(struct client *c, const struct pg_error *err, bool simple)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_error(&b, err);
	stat_error(err->sqlstate);
	c->tx.failed = true;
	if (buf_failed(&b)) {
		client_out_of_memory(c);
		return STEP_END;
	}
	if (server_has_work(c))
		return fail_on_server(c, &b, simple);
	if (c->tx.virtual == VTX_OPEN)
		c->tx.virtual = VTX_FAILED;
	if (simple)
		build_ready(&b, client_status(c));
	else
		c->skip_to_sync = true;
	client_emit(c, &b);
	if (c->state == CLIENT_DEAD)
		return STEP_END;
	if (simple)
		client_ready(c, true);
	/* an error does not wait for Sync */
	else if (client_is_owed(c) && !ask_for_answers(c))
		return STEP_END;
	return STEP_NEXT;
}

/* --- the end of a transaction --- */

/* A server that was got for a statement which then failed here. */
static void release_unused(struct server *s)
{
	if (s->expect.count == 0 && s->pass_left == 0 && s->tx == 'I' && !s->batch.unsynced &&
		!copy_takes_data(s) && !server_keeps_session(s) && !session_holds(s))
		server_release(s);
}

/* What we have answered is a query as any other, and may be where a transaction begins. */
static void count_local(struct client *c)
{
	stat_query(c->pool, c);
	if (c->tx.start == 0)
		c->tx.start = c->request_time;
	if (client_tx(c) == CLIENT_TX_IDLE)
		stat_transaction(c->pool, c);
}

/*
 * After each ReadyForQuery. Outside a block the claimant hears whether what it did was committed: a
 * COMMIT was seen, or no error and no ROLLBACK. local: the answer was ours, no server spoke.
 */
void client_ready(struct client *c, bool local)
{
	CHECK_CLIENT(c);
	if (local && c->pool != NULL)
		count_local(c);
	c->tx.executed = false;
	c->request_time = 0;
	c->idle_since = loop_now();
	/* our answer waits behind what was sent without a Sync, and no Sync need follow */
	if (local && client_is_owed(c) && !ask_for_answers(c))
		return;
	if (client_tx(c) != CLIENT_TX_IDLE)
		return;
	if (c->tx.watched)
		local_tx_end(c, c->tx.committed || !c->tx.failed);
	if (c->listening != NULL) {
		listen_tx_end(c, c->tx.committed || !c->tx.failed);
		if (c->listening != NULL && local)
			listen_flush(c);
	}
	c->tx.failed = c->tx.committed = false;
	if (c->state == CLIENT_DEAD)
		return;
	if (local && c->link != NULL)
		release_unused(c->link);
	if (shutdown_some_leave && c->state != CLIENT_DEAD)
		shutdown_client_ready(c);
}

/* --- the others --- */

enum step client_forward(struct client *c, const struct wire_msg *m)
{
	conn_write(c->link->conn, m->data, WIRE_HEADER + m->have);
	c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
	c->pass_discard = false;
	return c->pass_left > 0 ? STEP_STREAM : STEP_NEXT;
}

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

/* Is the message behind the one that is being dealt with a Sync? */
static bool sync_follows;

bool client_sync_follows(void)
{
	return sync_follows;
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
	sync_follows = m.total < len && data[m.total] == 'S';
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

enum step client_bad_message(struct client *c, const struct wire_msg *m)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "08P01", "invalid message format");
	return client_error(c, &err, m->type == 'Q' || m->type == 'F' || m->type == 'S');
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
	(void)!ask_for_answers(c);
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct client *c = owner;
	size_t pos = 0, n;

	if (shutdown_some_leave && len > 0 && data[0] != 'X')
		shutdown_client_ready(c); /* what it asks for is not begun */
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
	if (runs(c) && !(c->link != NULL && c->link->throttled))
		client_resume(c);
}

const struct conn_ops client_ops = {.on_data = on_data, .on_end = on_end, .on_drain = on_drain};
