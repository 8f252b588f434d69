/*
 * Errors that a server reports: each belongs to who asked for what the head of `expect` waits for.
 * Entry point: relay_error().
 */
#include <string.h>

#include "relay_int.h"

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
	s->batch.completed = true;
	return e->dest->error(r, m, e);
}
