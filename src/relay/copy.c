/*
 * COPY FROM STDIN, as far as the order of answers goes. A server ignores each Sync that it reads
 * among the data (protocol: "COPY Operations"). When the copy has failed it ignores the data, and
 * answers each Sync that it reads from then on. Which those are cannot be told from what was sent:
 * the server may have been anywhere in it. So everything goes on to the server as it comes, with a
 * note in `expect`, and when a copy has failed among such Syncs the server is asked: a Sync of
 * ours, a Close, and a Sync. The ReadyForQuery in front of CloseComplete, but for one, are the
 * client's.
 *
 * While there is doubt nothing but data, Sync and Flush is sent: copy_holds().
 */
#include <string.h>

#include "relay_int.h"

/* What goes into a copy, or is ignored where there is none. */
static bool is_copy_note(const struct expect *e)
{
	return e->dest == &dest_client && (e->kind == EXPECT_SYNC || e->kind == EXPECT_COPY_DATA ||
						  e->kind == EXPECT_COPY_END);
}

static void drop_from(struct server *s, unsigned from, bool to_end_of_copy)
{
	unsigned kept = from;
	bool dropping = true;

	for (unsigned i = from; i < s->expect.count; i++) {
		struct expect e = *expect_at(&s->expect, i);

		dropping &= is_copy_note(&e);
		if (!dropping)
			*expect_at(&s->expect, kept++) = e;
		else if (e.kind == EXPECT_SYNC)
			s->batch.answered++;
		else if (e.kind == EXPECT_COPY_END && to_end_of_copy)
			dropping = false;
	}
	s->expect.count = (uint16_t)kept;
}

/* Is a copy all that the server has been sent, and not to its end? */
static bool is_all_data(struct server *s)
{
	for (unsigned i = 1; i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		if (!is_copy_note(e) || e->kind == EXPECT_COPY_END)
			return false;
	}
	return true;
}

static bool holds_sync(struct server *s)
{
	for (unsigned i = 1; i < s->expect.count; i++)
		if (expect_at(&s->expect, i)->kind == EXPECT_SYNC)
			return true;
	return false;
}

/* How many there are does not matter: one is enough to ask. */
static void keep_one_sync(struct server *s)
{
	bool synced = holds_sync(s);

	drop_from(s, 1, false);
	if (!synced)
		return;
	s->batch.answered--;
	/* where those were there is room for one */
	(void)expect_push(&s->expect, EXPECT_SYNC, &dest_client, NULL);
}

void copy_began(struct server *s)
{
	bool data = true, synced = false;

	CHECK_SERVER(s);
	for (unsigned i = 1; i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		/* a statement among the data: the end of the session, unless the copy has failed
		 * before it read anything, so that each Sync is answered */
		if (data && !is_copy_note(e))
			return;
		if (data)
			data = e->kind != EXPECT_COPY_END;
		else
			synced |= e->kind == EXPECT_SYNC || e->kind == EXPECT_QUERY ||
				  e->kind == EXPECT_FUNCTION;
	}
	s->copy.state = data ? COPY_DATA : COPY_ENDING;
	if (!synced && expect_head(&s->expect)->kind != EXPECT_QUERY)
		server_batch_goes_on(s);
	if (is_all_data(s))
		keep_one_sync(s);
	/* it waits for this statement to end, which waits for it, or for a Flush */
	if ((data || s->batch.unsynced) && s->link != NULL && s->link->state == CLIENT_BARRIER)
		client_resume(s->link);
}

void copy_done(struct server *s)
{
	CHECK_SERVER(s);
	if (s->copy.state != COPY_NONE)
		drop_from(s, 1, true);
	s->copy.state = COPY_NONE;
}

/* An error ends the statement at the head of `expect`: may Syncs behind it go unanswered? */
static bool is_in_doubt(struct server *s)
{
	bool synced = false, data = true;

	for (unsigned i = 1; s->copy.state != COPY_NONE && i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		if (e->dest == &dest_copy)
			return true;
		if (!is_copy_note(e))
			break;
		data &= e->kind != EXPECT_COPY_END;
		synced |= data && e->kind == EXPECT_SYNC;
	}
	return synced;
}

bool copy_ended_by_error(struct server *s)
{
	bool doubt = !s->fatal_seen && is_in_doubt(s);

	CHECK_SERVER(s);
	s->copy.state = COPY_NONE;
	return doubt;
}

void copy_failed(struct server *s)
{
	const struct expect *e = expect_head(&s->expect);
	bool query = e != NULL && e->kind == EXPECT_QUERY;

	CHECK_SERVER(s);
	drop_from(s, query ? 1 : 0, false);
	if (!query && s->link != NULL)
		s->link->skip_to_sync = true;
	if (s->expect.count == (query ? 1u : 0u))
		server_batch_goes_on(s);
	s->unasked = &dest_copy;
}

/* false: closed */
static bool ask(struct server *s)
{
	struct buf b = BUF_INIT;

	s->unasked = &dest_copy;
	build_simple(&b, 'S');
	build_close(&b, 'S', "qb_own");
	build_simple(&b, 'S');
	if (server_expect(s, EXPECT_CLOSE, &dest_copy, NULL) &&
		server_expect(s, EXPECT_SYNC, &dest_copy, NULL))
		return server_send(s, &b);
	buf_free(&b);
	return false;
}

bool copy_is_refused(const struct server *s, const struct wire_msg *m)
{
	struct wire_notice n;

	CHECK_SERVER(s);
	if (s->copy.state == COPY_NONE || !copy_is_doubted(s) || s->link == NULL)
		return false;
	wire_read_notice(m->body, m->have, &n);
	return strcmp(n.sqlstate, "08P01") == 0;
}

/* Our question was out of place, as what the client has sent is: the copy goes on. As Postgres,
 * which loses its place in what comes, we end the session. */
enum relay_step copy_refuse_stray(struct relay *r)
{
	relay_run_flush(r);
	(void)client_protocol_error(r->s->link,
		"unexpected message type 0x%02X during COPY from stdin", r->s->copy.stray);
	return RELAY_GONE;
}

/* ReadyForQuery to a Sync that was sent in a copy which had failed, or to ours behind it: they are
 * alike. */
static enum relay_step stray(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;

	if (m->type != 'Z' || (e != NULL && e->kind != EXPECT_CLOSE) || !relay_tells_status(m))
		return RELAY_BAD;
	s->tx = (char)m->body[0];
	if (e != NULL && !e->final) {
		e->final = true;
		return RELAY_DROP;
	}
	if (s->link == NULL)
		return RELAY_DROP;
	s->link->skip_to_sync = false;
	return dest_client_ready(r, m);
}

static void told(struct relay *r, bool last)
{
	(void)last;
	r->s->unasked = NULL;
}

static void rest(struct server *s)
{
	(void)ask(s);
}

const struct dest dest_copy = {.seen = SEEN_STATUS,
	.outlives_batch = true,
	.ready = told,
	.error = dest_client_error,
	.stray = stray,
	.rest = rest};

/* Data with a Sync among it: if it is for a copy that fails, which Sync is answered is not known.
 */
static bool is_mixed(struct server *s)
{
	bool data = false, sync = false;

	for (unsigned i = s->expect.count; i > 0; i--) {
		const struct expect *e = expect_at(&s->expect, i - 1);

		if (!is_copy_note(e))
			return false;
		if (e->kind == EXPECT_SYNC ? data : e->kind == EXPECT_COPY_DATA && sync)
			return true;
		sync = e->kind == EXPECT_SYNC || (sync && e->kind != EXPECT_COPY_END);
		data |= e->kind != EXPECT_SYNC;
	}
	return false;
}

bool copy_holds(struct client *c, uint8_t type)
{
	struct server *s = c->link;

	if (type == 'X')
		return false;
	if (copy_is_doubted(s)) {
		client_move(c, CLIENT_BARRIER);
		return true;
	}
	if (strchr("dcfHS", type) != NULL)
		return false;
	if (!copy_takes_data(s))
		return !c->skip_to_sync && is_mixed(s) && !client_barrier(c);
	/* the end of the session, unless the copy has failed and we do not know yet */
	s->copy.stray = type;
	if (ask(s))
		client_move(c, CLIENT_BARRIER);
	return true;
}

/* In the copy, which it may have ended. */
enum step copy_sync(struct client *c, const struct wire_msg *m)
{
	struct server *s = c->link;
	bool open = s->batch.unsynced; /* the batch that the copy is in */

	CHECK_CLIENT(c);
	if ((!is_all_data(s) || !holds_sync(s)) &&
		!client_expect(c, EXPECT_SYNC, &dest_client, NULL))
		return STEP_END;
	if (open)
		server_batch_goes_on(s);
	return client_forward(c, m);
}

enum step copy_message(struct client *c, const struct wire_msg *m)
{
	struct server *s = c->link;
	const struct expect *last = expect_at(&s->expect, s->expect.count - 1u);

	CHECK_CLIENT(c);
	if (m->type != 'd') {
		if (!client_expect(c, EXPECT_COPY_END, &dest_client, NULL))
			return STEP_END;
		if (copy_takes_data(s))
			s->copy.state = COPY_ENDING;
	} else if (last->kind != EXPECT_COPY_DATA &&
		   !client_expect(c, EXPECT_COPY_DATA, &dest_client, NULL)) {
		return STEP_END;
	}
	return client_forward(c, m);
}
