/*
 * Answers that are for the client: what an error in them brings about for its copy, its transaction
 * and its batch. Answers to what we ask ourselves have their rows where they are asked for.
 *
 * Entry points: dest_client, dest_swallow; dest_client_error() for the rows of other answers that a
 * client gets.
 */
#include <string.h>

#include "relay_int.h"

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

const struct dest dest_client = {.seen = SEEN_ALL, .error = dest_client_error};

/* What we prepare for a statement of the client's fails with it. */
const struct dest dest_swallow = {.seen = SEEN_STATUS, .error = dest_client_error};
