/*
 * The end of an answer: what ReadyForQuery tells of the transaction and brings about. Entry point:
 * relay_ready().
 */
#include <string.h>

#include "relay_int.h"

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
	if (e->kind == EXPECT_SYNC && s->tx == 'T' && tx == 'I' && !s->batch.completed) {
		log_write(LOG_LVL_WARNING, server_prefix(s),
			"Sync has left the transaction open that a Query in a batch began");
		s->close_needed = true;
	}
	s->batch.completed = false;
}

enum relay_step relay_ready(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	const struct dest *dest = e->dest;
	bool final;

	if (!relay_tells_status(m))
		return RELAY_BAD;
	look_for_left_open(s, e, (char)m->body[0]);
	/* a block of ours is none of the client's */
	if (!dest->apart)
		s->tx = (char)m->body[0];
	if (e->arg != NULL && dest->ending != NULL)
		dest->ending(r, e);
	final = e->final;
	if (s->settings.discarded && s->link != NULL && s->tx == 'I') {
		relay_run_flush(r); /* settings are reported in front of ReadyForQuery */
		session_restore_discarded(s);
	}
	relay_pop(r, true);
	if (s->expect.count == 0)
		s->batch.discarding = false;
	if (dest->ready != NULL)
		dest->ready(r, final);
	if (s->link != NULL && (dest == &dest_client || (final && dest->seen != SEEN_NOTHING))) {
		if (s->tx != 'I' && server_pool_mode(s) == POOL_MODE_STATEMENT)
			return refuse_block(r);
		if (s->link->listening != NULL && s->tx == 'I') {
			relay_run_flush(r);
			listen_flush(s->link);
		}
		return dest_client_ready(r, m);
	}
	return RELAY_DROP;
}
