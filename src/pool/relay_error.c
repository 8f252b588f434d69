/*
 * Errors that a server reports: each belongs to who asked for what the head of `expect` waits for.
 * What may follow from one for the batch and the server. Entry point: relay_error().
 */
#include <string.h>

#include "relay_int.h"

bool relay_in_batch(const struct expect *e)
{
	return e->kind != EXPECT_QUERY && e->kind != EXPECT_FUNCTION && e->kind != EXPECT_SYNC;
}

void relay_batch_failed(struct relay *r)
{
	struct server *s = r->s;
	struct expect *e;

	e = expect_head(&s->expect);
	if (s->link != NULL)
		extq_forget_unconfirmed(s->link, s->batch_now, e != NULL && e->unnamed);
	while ((e = expect_head(&s->expect)) != NULL && e->kind != EXPECT_SYNC &&
		!e->dest->outlives_batch)
		relay_pop(r, false);
	if (e == NULL)
		server_batch_goes_on(s);
	if (s->link == NULL)
		return;
	if (e == NULL || e->dest->outlives_batch)
		s->link->skip_to_sync = true;
	s->link->tx_failed = true;
}

/* --- what is in it --- */

static void error_fields(const struct wire_msg *m, struct pg_error *ret)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	pg_error_set(ret, n.sqlstate, "%s", n.message);
	if (n.detail != NULL)
		pg_error_detail(ret, "%s", n.detail);
	if (n.hint != NULL)
		pg_error_hint(ret, "%s", n.hint);
}

/* "cached plan must not change result type", told by the routine, since its text is translated. */
static bool is_stale_plan(const struct wire_msg *m)
{
	static const char routine[] = "RRevalidateCachedQuery";
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	return strcmp(n.sqlstate, "0A000") == 0 &&
	       memmem(m->body, m->have, routine, sizeof(routine)) != NULL;
}

static bool is_fatal(const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	return strcmp(n.severity, "FATAL") == 0 || strcmp(n.severity, "PANIC") == 0;
}

static enum relay_step error_idle(struct relay *r, const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	log_write(LOG_LVL_INFO, server_prefix(r->s), "server says: %s: %s", n.severity, n.message);
	if (r->s->link != NULL && r->s->state != SERVER_CLEANING &&
		r->s->state != SERVER_FINISHING) {
		r->s->fatal_seen = true;
		return RELAY_FORWARD;
	}
	if (!is_fatal(m))
		return RELAY_DROP;
	/* the end of the connection follows: nobody shall get this server in between */
	server_close(r->s, "server ended the session", NULL);
	return RELAY_GONE;
}

enum relay_step relay_error_ends(
	struct relay *r, const struct wire_msg *m, bool client_too, const char *reason)
{
	struct server *s = r->s;
	struct client *c = s->link;
	struct pg_error err;

	relay_run_flush(r);
	error_fields(m, &err);
	if (c != NULL && client_too)
		client_fatal(c, &err);
	if (s->state != SERVER_DEAD)
		server_close(s, reason, &err);
	return RELAY_GONE;
}

enum relay_step relay_error(struct relay *r, const struct wire_msg *m)
{
	struct server *s = r->s;
	struct expect *e = expect_head(&s->expect);

	if (e == NULL)
		return error_idle(r, m);
	/* the answers to questions of ours are not passed on */
	if (s->link != NULL && e->dest->seen >= SEEN_STATUS && is_fatal(m))
		s->fatal_seen = true;
	if (is_stale_plan(m)) {
		server_plans_stale(s->pool->db);
		server_drop_unnamed(s);
	}
	s->completed = true;
	return e->dest->error(r, m, e);
}
