/*
 * Answers that are for the client: what they tell of its session and its statements, and what an
 * error in them brings about for its copy, its transaction and its batch. Answers to what we ask
 * ourselves have their rows where they are asked for.
 *
 * Entry points: dest_client, dest_swallow; dest_note() and dest_client_error() for other rows.
 */
#include <string.h>

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
			c->tx_committed = true;
		else if (c != NULL && tag_is(m, "COMMIT PREPARED") && c->icpt != NULL &&
			 c->icpt->prepared_committed != NULL)
			c->icpt->prepared_committed(c);
		break;
	case 'P':
		if (c != NULL && tag_is(m, "PREPARE TRANSACTION"))
			c->tx_committed = c->tx_failed =
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
			s->extra_stale = s->extra != NULL;
		} else if (c != NULL && tag_is(m, "ROLLBACK")) {
			c->tx_failed = true; /* also of ROLLBACK TO: a COMMIT then outweighs it */
		}
		break;
	}
}

void dest_note(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	if (m->type == 'C')
		note_tag(s, m);
	else if (m->type == 'G')
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
	stat_error(n.sqlstate);
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

static enum relay_step error_of_ours(struct relay *r, const struct wire_msg *m, struct replaced *rp)
{
	struct server *s = r->s;
	bool batch = relay_in_batch(expect_head(&s->expect));

	relay_replace_error(r, m, rp);
	if (batch && s->state != SERVER_DEAD)
		relay_batch_failed(r);
	return RELAY_DROP;
}

static enum relay_step error_of_client(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	bool batch = relay_in_batch(e);

	if (!emit_with_hint(r, m))
		relay_run_add(r, m->data, m->total);
	if (e->kind == EXPECT_QUERY && e->dest == &dest_client)
		istr_drop((struct istr **)&e->arg); /* it has set nothing */
	if (r->s->link != NULL)
		r->s->link->tx_failed = true;
	if (batch)
		relay_batch_failed(r);
	return RELAY_DONE;
}

enum relay_step dest_client_error(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	struct replaced *rp = relay_replaced(s);
	enum relay_step step;
	bool doubt;

	if (copy_is_refused(s, m))
		return copy_refuse_stray(r);
	doubt = copy_ended_by_error(s);
	count_error(m);
	step = rp != NULL ? error_of_ours(r, m, rp) : error_of_client(r, m, e);
	if (doubt && s->state != SERVER_DEAD)
		copy_failed(s);
	return step;
}

/* --- the rows --- */

const struct dest dest_client = {.seen = SEEN_ALL,
	.may_begin = 1u << EXPECT_QUERY,
	.note = dest_note,
	.ending = ending,
	.error = dest_client_error};

/* What we prepare for a statement of the client's fails with it. */
const struct dest dest_swallow = {.seen = SEEN_STATUS, .error = dest_client_error};
