/*
 * What is said to a client, in the order of answers, and for it to its server: our own bytes, errors
 * in a statement, messages that go on as they are; the server that a message needs; and what comes
 * behind ReadyForQuery. Knows no message: those are client_msg.c.
 */
#include <stdio.h>
#include <string.h>

#include "relay_int.h"

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

/* Postgres keeps answers back until Flush or Sync. */
bool client_ask_for_answers(struct client *c)
{
	struct buf b = BUF_INIT;

	if (!c->link->batch.unsynced)
		return true;
	build_simple(&b, 'H');
	return server_send(c->link, &b);
}

/* A text that no server accepts: makes its transaction fail when ours has failed. */
#define FAILING_SQL "\"the QUEUE statement before this failed\""

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

enum step client_error(struct client *c, const struct pg_error *err, bool simple)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_error(&b, err);
	count_error_of(err->sqlstate);
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
	else if (client_is_owed(c) && !client_ask_for_answers(c))
		return STEP_END;
	return STEP_NEXT;
}

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
	count_query(c->pool, c);
	if (c->tx.start == 0)
		c->tx.start = c->request_time;
	if (client_tx(c) == CLIENT_TX_IDLE)
		count_end_of_transaction(c->pool, c);
}

static void tell_tx_end(struct client *c, bool committed)
{
	c->tx.watched = false;
	if (c->icpt != NULL && c->icpt->tx_ended != NULL)
		c->icpt->tx_ended(c, committed);
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
	c->head.promised = true;
	/* our answer waits behind what was sent without a Sync, and no Sync need follow */
	if (local && client_is_owed(c) && !client_ask_for_answers(c))
		return;
	if (client_tx(c) != CLIENT_TX_IDLE)
		return;
	if (c->tx.watched)
		tell_tx_end(c, c->tx.committed || !c->tx.failed);
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
	if (client_all.some_leave && c->state != CLIENT_DEAD)
		pool_all.calls->idle(c);
}

enum step client_bad_message(struct client *c, const struct wire_msg *m)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "08P01", "invalid message format");
	return client_error(c, &err, m->type == 'Q' || m->type == 'F' || m->type == 'S');
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

void client_show_beginning(struct client *c)
{
	CHECK_CLIENT(c);
	if (c->conn != NULL)
		conn_show_kept(c->conn);
}

void client_notice(struct client *c, const struct pg_error *notice)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_notice(&b, notice);
	client_emit(c, &b);
}

enum step client_refuse_pin(struct client *c, bool simple)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "53400", "too many clients of the pool keep their server connections");
	pg_error_detail(&err,
		"This statement would keep one beyond its transaction, as %u others do; at most %u may.",
		c->pool->n_pinned, session_pin_limit(c->pool));
	pg_error_hint(&err,
		"SHOW CLIENTS says in its column pinned who does, and why. The limit is max_pinned_servers; a database entry with pool_mode = session has none.");
	return client_error(c, &err, simple);
}

enum step extq_refuse_unknown(struct client *c, const char *name, bool simple)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "26000", "prepared statement \"%s\" does not exist", name);
	client_log_refusal(c, "prepared statement did not exist");
	return client_error(c, &err, simple);
}

enum step local_aborted(struct client *c, bool simple)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	pg_error_set(&err, "25P02",
		"current transaction is aborted, commands ignored until end of transaction block");
	return client_error(c, &err, simple);
}
