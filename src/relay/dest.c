/*
 * Answers that are for the client: what they tell of its session and its statements, what an error
 * in them and their ReadyForQuery bring about, and what follows when its server has nothing
 * outstanding any more. Answers to what we ask ourselves have their rows where they are asked for.
 *
 * Entry points: dest_client; dest_note(), dest_error() and relay_error_ends() for other rows;
 * relay_rest().
 */
#include <string.h>

#include "pool/reading.h"
#include "relay_int.h"

/* --- what an answer tells --- */

static bool tag_is(const struct wire_msg *m, const char *tag)
{
	size_t n = strlen(tag) + 1;

	return m->have == n && memcmp(m->body, tag, n) == 0;
}

/* Tags that tell what happened to the session or the transaction. */
static void note_tag(struct server *s, const struct wire_msg *m)
{
	struct client *c = s->link;

	switch (m->have > 0 ? m->body[0] : 0) {
	case 'C':
		if (m->have > 5 && memcmp(m->body, "COPY ", 5) == 0)
			copy_done(s);
		if (c != NULL && tag_is(m, "COMMIT"))
			c->tx.committed = true;
		else if (c != NULL && tag_is(m, "COMMIT PREPARED") && c->icpt != NULL &&
			 c->icpt->prepared_committed != NULL)
			c->icpt->prepared_committed(c);
		break;
	case 'P':
		if (c != NULL && tag_is(m, "PREPARE TRANSACTION"))
			c->tx.committed = c->tx.failed =
				true; /* what comes of it is not known yet */
		break;
	case 'D':
		if (tag_is(m, "DISCARD ALL") || tag_is(m, "DEALLOCATE ALL")) {
			server_forget_prepared(s);
			sqlprep_forget(c, s);
			if (c != NULL)
				extq_forget_all(c);
			if (m->body[1] == 'I') {
				session_discarded(s);
				if (c != NULL)
					(void)!listen_unlisten_all(c);
			}
		}
		break;
	case 'R':
		if (tag_is(m, "RESET")) {
			s->settings.extra_stale = s->extra != NULL;
		} else if (c != NULL && tag_is(m, "ROLLBACK")) {
			c->tx.failed = true; /* also of ROLLBACK TO: a COMMIT then outweighs it */
		}
		break;
	}
}

void dest_note(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	CHECK_SERVER(s);
	if (m->type == 'C') {
		note_tag(s, m);
		if (e->dest->tag != NULL)
			e->dest->tag(s, m, e);
	} else if (m->type == 'G')
		copy_began(s);
	else if (e->arg != NULL && s->link != NULL)
		extq_confirm(s->link, e->arg, e->unnamed);
}

/* A SET, a RESET or a PREPARE counts when it is carried out. */
static void ending(struct relay *r, struct expect *e)
{
	struct server *s = r->s;

	if (e->kind != EXPECT_QUERY || s->link == NULL ||
		(s->tx != 'I' && !sqlprep_is_effect(e->arg)))
		return;
	relay_run_flush(r);
	session_apply(s, e->arg);
}

/* --- errors --- */

static void count_error(const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	count_error_of(n.sqlstate);
}

/* What the claimant has to say to it. false: nothing. */
static bool emit_with_hint(struct relay *r, const struct wire_msg *m)
{
	const struct client *c = r->s->link;
	struct wire_notice n;
	struct buf b = BUF_INIT;
	const char *hint;
	size_t start;

	if (c == NULL || c->icpt == NULL || c->icpt->hint == NULL || !wire_complete(m) ||
		m->have == 0)
		return false;
	wire_read_notice(m->body, m->have, &n);
	hint = n.hint == NULL && n.routine != NULL ? c->icpt->hint(n.routine) : NULL;
	if (hint == NULL)
		return false;
	start = build_begin(&b, 'E');
	build_bytes(&b, m->body, m->have - 1);
	build_u8(&b, 'H');
	build_cstr(&b, hint);
	build_u8(&b, 0);
	build_end(&b, start);
	relay_emit(r, &b);
	buf_free(&b);
	return true;
}

static enum relay_step say_theirs(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	if (!emit_with_hint(r, m))
		relay_run_add(r, m->data, m->total);
	if (e->kind == EXPECT_QUERY && e->dest == &dest_client)
		istr_drop((struct istr **)&e->arg); /* it has set nothing */
	return RELAY_DONE;
}

enum relay_step dest_error(
	struct relay *r, const struct wire_msg *m, struct expect *e, dest_say_error *say)
{
	struct server *s = r->s;
	bool batch = relay_in_batch(e), doubt;
	enum relay_step step;

	if (copy_is_refused(s, m))
		return copy_refuse_stray(r);
	doubt = copy_ended_by_error(s);
	count_error(m);
	step = say(r, m, e);
	if (s->link != NULL)
		s->link->tx.failed = true;
	if (batch && s->state != SERVER_DEAD)
		relay_batch_failed(r);
	if (doubt && s->state != SERVER_DEAD)
		copy_failed(s);
	return step;
}

enum relay_step dest_client_error(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	return dest_error(r, m, e, say_theirs);
}

void relay_batch_failed(struct relay *r)
{
	struct server *s = r->s;
	struct expect *e;

	e = expect_head(&s->expect);
	if (s->link != NULL)
		extq_forget_unconfirmed(s->link, s->batch.answered, e != NULL && e->unnamed);
	while ((e = expect_head(&s->expect)) != NULL && e->kind != EXPECT_SYNC &&
		!e->dest->outlives_batch)
		relay_pop(r, false);
	if (e == NULL)
		server_batch_goes_on(s);
	if (s->link == NULL)
		return;
	if (e == NULL || e->dest->outlives_batch)
		s->link->skip_to_sync = true;
	s->link->tx.failed = true;
}

/* --- ReadyForQuery --- */

static void count_transaction(struct server *s, struct client *c)
{
	count_query(s->pool, c);
	if (c->tx.start == 0)
		c->tx.start = c->request_time;
	if (s->tx == 'I')
		count_end_of_transaction(s->pool, c);
}

static void client_done(struct server *s)
{
	struct client *c = s->link;

	count_transaction(s, c);
	session_ask_again(s);
	client_ready(c, false);
}

enum relay_step dest_client_ready(struct relay *r, const struct wire_msg *m)
{
	relay_run_add(r, m->data, m->total);
	client_done(r->s);
	return RELAY_DONE;
}

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
	/* all changes have been reported, which happens in front of a ReadyForQuery */
	if (s->tx == 'I' && !s->batch.unsynced)
		s->trace.dialect_doubt = s->trace.rare_doubt = false;
	if (c->unsure)
		reading_settle(c);
	if (s->unasked != NULL && s->unasked->rest != NULL) {
		s->unasked->rest(s);
		return;
	}
	if (s->settings.settling) {
		s->settings.settling = false;
		client_resume(c);
		return;
	}
	if (server_wants_fast_close(s)) {
		relay_run_flush(r);
		server_close_fast(s);
		return;
	}
	if (s->tx == 'I' && !s->batch.unsynced && !copy_takes_data(s) &&
		(!server_keeps_session(s) || s->trace.touched != 0)) {
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

	CHECK_SERVER(s);
	if (s->pass_left == 0)
		relay_rest(&r);
}

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

/* --- the rows --- */

const struct dest dest_client = {.seen = SEEN_ALL,
	.beside = &dest_swallow,
	.may_begin = 1u << EXPECT_QUERY,
	.tells = true,
	.ending = ending,
	.error = dest_client_error};

const struct dest dest_local = {
	.seen = SEEN_ALL, .error = dest_client_error, .free = extq_local_done};

const struct dest dest_fail = {.seen = SEEN_STATUS, .error = fail_done, .free = fail_free};
