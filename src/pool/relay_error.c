/*
 * Errors that a server reports: to whom each belongs, by what the head of `expect` waits for, and
 * what follows from it for the batch, the transaction and the server. Entry point: relay_error().
 */
#include <string.h>

#include "pool_int.h"
#include "relay_int.h"

/* After an error in a batch the server skips to Sync: so do we. */
static void batch_failed(struct relay *r)
{
	struct server *s = r->s;
	struct expect *e;

	e = expect_head(&s->expect);
	if (s->link != NULL)
		extq_forget_unconfirmed(s->link, s->batch_now, e != NULL && e->unnamed);
	while ((e = expect_head(&s->expect)) != NULL && e->kind != EXPECT_SYNC &&
		e->dest != DEST_COPY)
		relay_pop(r, false);
	if (e == NULL)
		s->unsynced = true;
	if (s->link == NULL)
		return;
	if (e == NULL || e->dest == DEST_COPY)
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

static void count_error(const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	stat_error(n.sqlstate);
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

static enum relay_step error_settings(
	struct relay *r, const struct wire_msg *m, enum expect_dest dest)
{
	struct server *s = r->s;
	struct client *c = s->link;
	struct pg_error err;

	relay_run_flush(r);
	error_fields(m, &err);
	if (c != NULL && dest != DEST_RESET)
		client_fatal(c, &err);
	if (s->state != SERVER_DEAD)
		server_close(s, dest == DEST_RESET ? "reset failed" : "settings refused", &err);
	return RELAY_GONE;
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

static enum relay_step error_for(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	bool batch =
		e->kind != EXPECT_QUERY && e->kind != EXPECT_FUNCTION && e->kind != EXPECT_SYNC;
	struct replaced *rp = relay_replaced(s);

	if (rp != NULL) {
		count_error(m);
		relay_replace_error(r, m, rp);
		if (batch && s->state != SERVER_DEAD)
			batch_failed(r);
		return RELAY_DROP;
	}
	switch ((enum expect_dest)e->dest) {
	case DEST_RESET:
	case DEST_VARS:
	case DEST_BEGIN:
		return error_settings(r, m, e->dest);
	case DEST_LISTEN:
		relay_run_flush(r);
		server_close(s, "LISTEN failed", NULL);
		return RELAY_GONE;
	case DEST_INSPECT:
		inspect_failed(s);
		/* nothing of the client's is in this batch */
		while (batch && (e = expect_head(&s->expect)) != NULL && e->kind != EXPECT_SYNC)
			relay_pop(r, false);
		return RELAY_DROP;
	case DEST_PREPARE:
		sqlprep_failed(s, e->arg);
		return RELAY_DROP;
	case DEST_TASK:
		if (s->task != NULL)
			task_error(s->task, m->body, m->have);
		if (batch)
			batch_failed(r);
		return RELAY_DROP;
	case DEST_FAIL:
		relay_emit(r, e->arg);
		if (s->link != NULL)
			s->link->tx_failed = true;
		if (batch && s->state != SERVER_DEAD)
			batch_failed(r);
		return RELAY_DROP;
	case DEST_COPY:
	case DEST_REPLACE:
	case DEST_CLIENT:
	case DEST_SWALLOW:
		break;
	}
	count_error(m);
	if (!emit_with_hint(r, m))
		relay_run_add(r, m->data, m->total);
	if (e->kind == EXPECT_QUERY && e->dest == DEST_CLIENT)
		istr_drop((struct istr **)&e->arg); /* it has set nothing */
	if (s->link != NULL)
		s->link->tx_failed = true;
	if (batch)
		batch_failed(r);
	return RELAY_DONE;
}

static bool is_protocol_violation(const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	return strcmp(n.sqlstate, "08P01") == 0;
}

/* Our question was out of place, as what the client has sent is: the copy goes on. As Postgres,
 * which loses its place in what comes, we end the session. */
static enum relay_step refuse_stray(struct relay *r)
{
	relay_run_flush(r);
	(void)client_protocol_error(r->s->link,
		"unexpected message type 0x%02X during COPY from stdin", r->s->copy_stray);
	return RELAY_GONE;
}

enum relay_step relay_error(struct relay *r, const struct wire_msg *m)
{
	struct server *s = r->s;
	struct expect *e = expect_head(&s->expect);
	enum relay_step step;
	bool doubt;

	if (e == NULL)
		return error_idle(r, m);
	/* the answers to questions of ours are not passed on */
	if (s->link != NULL && e->dest != DEST_INSPECT && e->dest != DEST_PREPARE && is_fatal(m))
		s->fatal_seen = true;
	if (is_stale_plan(m)) {
		server_plans_stale(s->pool->db);
		server_drop_unnamed(s);
	}
	s->completed = true;
	if (s->copying && s->copy_doubt && s->link != NULL && is_protocol_violation(m))
		return refuse_stray(r);
	doubt = !s->fatal_seen && copy_in_doubt(s);
	s->copy_in = s->copying = false;
	step = error_for(r, m, e);
	if (doubt && s->state != SERVER_DEAD)
		copy_failed(s);
	return step;
}
