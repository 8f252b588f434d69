/*
 * The end of an answer: what ReadyForQuery tells of the transaction and brings about, by what it
 * was the answer to; and what follows when a server has nothing outstanding any more.
 *
 * Entry points: relay_ready(), relay_ready_in_doubt(), relay_rest(), relay_settle().
 */
#include <string.h>

#include "relay_int.h"

/* --- nothing outstanding --- */

void relay_rest(struct relay *r)
{
	struct server *s = r->s;
	struct client *c = s->link;

	if (s->state == SERVER_DEAD || s->expect.count > 0)
		return;
	if (s->state == SERVER_FINISHING) {
		server_unlink_abandoned(s, false);
		return;
	}
	if (s->state == SERVER_CLEANING) {
		if (s->tx != 'I')
			server_close(s, "transaction still open after the reset", NULL);
		else
			server_release(s);
		return;
	}
	if (c == NULL)
		return;
	/* a message of the client that the server has not got to its end belongs to this client
	 * (data of a copy that has failed): to whom the server is given next would have to finish
	 * it */
	if (c->pass_left > 0 && !c->pass_discard)
		return;
	if (s->tx == 'I')
		s->dialect_doubt = false; /* all changes have been reported */
	if (s->unasked != NULL && s->unasked->rest != NULL) {
		s->unasked->rest(s);
		return;
	}
	if (s->settling) {
		s->settling = false;
		client_resume(c);
		return;
	}
	if (server_wants_fast_close(s)) {
		relay_run_flush(r);
		server_close_fast(s);
		return;
	}
	if (s->tx == 'I' && !s->unsynced && !copy_takes_data(s) &&
		(!server_keeps_session(s) || s->touched != 0)) {
		relay_run_flush(r);
		if (!session_holds(s))
			server_release(s);
		if (c->state == CLIENT_DEAD)
			return;
	}
	if (c->state == CLIENT_BARRIER || conn_pending_input(c->conn) > 0)
		client_resume(c);
	else /* it may have been stopped because this server did not read */
		conn_want_read(c->conn, true);
}

void relay_settle(struct server *s)
{
	struct relay r = {.s = s};

	if (s->pass_left == 0)
		relay_rest(&r);
}

/* --- ReadyForQuery --- */

static void count_transaction(struct server *s, struct client *c)
{
	stat_query(s->pool, c);
	if (c->tx_start == 0)
		c->tx_start = c->request_time;
	if (s->tx == 'I')
		stat_transaction(s->pool, c);
}

static void client_done(struct server *s)
{
	struct client *c = s->link;

	count_transaction(s, c);
	session_ask_again(s);
	client_ready(c, false);
}

static enum relay_step refuse_block(struct relay *r)
{
	struct pg_error err;

	relay_run_flush(r);
	pg_error_set(&err, "0A000", "transaction blocks not allowed in statement pooling mode");
	client_fatal(r->s->link, &err);
	return RELAY_DROP;
}

/* A Sync that follows nothing, or a Close, ends no transaction. PostgreSQL 18 says so of one that a
 * Query in the middle of a batch has made, and goes on holding its locks: the next statement would
 * fail. */
static void look_for_left_open(struct server *s, const struct expect *e, char tx)
{
	if (e->kind == EXPECT_SYNC && s->tx == 'T' && tx == 'I' && !s->completed) {
		log_write(LOG_LVL_WARNING, server_prefix(s),
			"Sync has left the transaction open that a Query in a batch began");
		s->close_needed = true;
	}
	s->completed = false;
}

static bool tells_status(const struct wire_msg *m)
{
	return m->total == WIRE_HEADER + 1 && memchr("ITE", m->body[0], 3) != NULL;
}

enum relay_step relay_ready(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	const struct dest *dest = e->dest;
	bool final;

	if (!tells_status(m))
		return RELAY_BAD;
	look_for_left_open(s, e, (char)m->body[0]);
	/* a block of ours is none of the client's */
	if (!dest->apart)
		s->tx = (char)m->body[0];
	if (e->arg != NULL && dest->ending != NULL)
		dest->ending(r, e);
	final = e->final;
	if (s->discarded && s->link != NULL && s->tx == 'I') {
		relay_run_flush(r); /* settings are reported in front of ReadyForQuery */
		session_restore_discarded(s);
	}
	relay_pop(r, true);
	if (s->expect.count == 0)
		s->discarding = false;
	if (dest->ready != NULL)
		dest->ready(r, final);
	if (s->link != NULL && (dest == &dest_client || (final && dest->seen != SEEN_NOTHING))) {
		if (s->tx != 'I' && server_pool_mode(s) == POOL_MODE_STATEMENT)
			return refuse_block(r);
		if (s->link->listening != NULL && s->tx == 'I') {
			relay_run_flush(r);
			listen_flush(s->link);
		}
		relay_run_add(r, m->data, m->total);
		client_done(s);
		return RELAY_DONE;
	}
	return RELAY_DROP;
}

enum relay_step relay_ready_in_doubt(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;

	if (!tells_status(m))
		return RELAY_BAD;
	s->tx = (char)m->body[0];
	if (e != NULL && !e->final) {
		e->final = true;
		return RELAY_DROP;
	}
	if (s->link == NULL)
		return RELAY_DROP;
	s->link->skip_to_sync = false;
	relay_run_add(r, m->data, m->total);
	client_done(s);
	return RELAY_DONE;
}
