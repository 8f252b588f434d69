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

static enum relay_step whole_error(struct relay *r, const struct wire_msg *m)
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

/* What is here of one that is too long to be read as a whole; the rest of it is passed over. */
static enum relay_step long_error(struct relay *r, const struct wire_msg *m)
{
	struct buf b = BUF_INIT;
	struct wire_msg cut;
	struct pg_error err;
	enum relay_step step;

	if (!build_cut(&b, m, CUT_AT) || wire_next(b.data, b.len, &cut) != WIRE_NEXT_OK) {
		buf_free(&b);
		pg_error_set(&err, "53200", "out of memory");
		server_close(r->s, "out of memory", &err);
		return RELAY_GONE;
	}
	step = whole_error(r, &cut);
	if (step == RELAY_FORWARD)
		relay_run_add(r, cut.data, cut.total);
	relay_run_flush(r);
	buf_free(&b);
	return step == RELAY_FORWARD || step == RELAY_DONE ? RELAY_DROP : step;
}

enum relay_step relay_error(struct relay *r, const struct wire_msg *m)
{
	if (m->total <= CONTROL_MAX)
		return whole_error(r, m);
	return m->have <= CUT_AT ? RELAY_MORE : long_error(r, m);
}
