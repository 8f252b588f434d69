/*
 * The messages that are answered up to a ReadyForQuery of their own: Query and FunctionCall. A text
 * is looked at here: is it a claimant's, or one that we answer ourselves, and what will it do to
 * the session? Entry points: client_query, client_function.
 *
 * Statements that we answer: local.c. What a text does to the session: session.c.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "extq_int.h"

/* Text of a Query or Parse as far as it is here, without its terminator when that is here. */
static size_t text_here(const struct wire_msg *m)
{
	const uint8_t *nul = memchr(m->body, 0, m->have);

	return nul != NULL ? (size_t)(nul - m->body) : m->have;
}

/* Beyond that a text is no statement that we answer. */
#define SPECIAL_MAX 1024

/* DEALLOCATE of a name that the client prepared by a Parse message. STEP_MORE: not ours, forward
 * it. */
static enum step deallocate(struct client *c, const char *name)
{
	struct buf b = BUF_INIT;
	struct cstmt *st;

	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	st = extq_find(c, name);
	if (client_tx(c) == CLIENT_TX_FAILED)
		return STEP_MORE;
	if (st == NULL)
		return cstmt_tracks_names(c) && pstmt_is_name(name)
			       ? extq_refuse_unknown(c, name, true)
			       : STEP_MORE;
	extq_forget(c, &st);
	build_complete(&b, "DEALLOCATE");
	build_ready(&b, client_status(c));
	client_emit(c, &b);
	if (c->state == CLIENT_DEAD)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* BEGIN, COMMIT, ROLLBACK, nothing at all, DEALLOCATE, what is only the session's. STEP_MORE: it is
 * not answered here. */
static enum step special(struct client *c, struct sql_text *t)
{
	enum sql_tx tx = sql_tx(t);
	enum step step = STEP_MORE;

	if (tx != SQL_TX_OTHER)
		return local_tx_simple(c, tx, t);
	if (t->word == SQL_WORD_DEALLOCATE && sql_session(t)->kind == SQL_SESSION_DEALLOCATE)
		step = deallocate(c, (const char *)sql_session(t)->name.data);
	/* nor are those behind it */
	if (step != STEP_MORE || sql_session(t) == &sql_no_session)
		return step;
	return local_session_simple(c, t);
}

/* Several statements in one string, one of them ours? Needs the whole string. */
static bool string_has_ours(struct client *c, struct sql_text *t)
{
	return !sql_is_one(t) && c->icpt->claim_any != NULL && c->icpt->claim_any(c, t);
}

/* It is all here: do we answer it? STEP_MORE: no. */
static enum step answered_here(struct client *c, struct sql_text *t)
{
	enum step step = t->len < SPECIAL_MAX ? special(c, t) : STEP_MORE;

	if (step != STEP_MORE || sql_is_one(t))
		return step;
	return string_has_ours(c, t) ? local_simple_many(c, t) : local_deallocate_string(c, t);
}

static enum step query_pass(struct client *c, const struct wire_msg *m, struct sql_text *t)
{
	struct istr *effect = NULL;
	enum step step;

	if (!wire_complete(m) && m->total <= SCAN_MAX)
		return STEP_MORE;
	if (wire_complete(m) && (step = answered_here(c, t)) != STEP_MORE)
		return step;
	if (c->tx.virtual == VTX_FAILED)
		return local_aborted(c, true);
	/* the settings that it is meant by have to be known */
	if (t->word == SQL_WORD_PREPARE && !client_barrier(c))
		return STEP_WAIT;
	if (!client_need_server(c))
		return STEP_WAIT;
	if (session_pin_refused(c, t))
		return client_refuse_pin(c, true);
	server_drop_unnamed(c->link);
	server_batch_ends(c->link);
	/* of a long one, which is not here yet, it may be so */
	if (sql_forgets_all(t) || (!wire_complete(m) && (t->word == SQL_WORD_DISCARD ||
								t->word == SQL_WORD_DEALLOCATE)))
		c->link->batch.discarding = true;
	/* what is not here yet may do anything to the session */
	if (wire_complete(m))
		effect = session_effect(c, t);
	else
		session_touch(c, t, SQL_TOUCH_UNSEEN);
	if (!client_expect(c, EXPECT_QUERY, &dest_client, effect))
		return STEP_END;
	return client_forward(c, m);
}

static enum step refuse_pqexec(struct client *c)
{
	struct pg_error err;

	pg_error_set(&err, "08P01", "PQexec disallowed");
	pg_error_hint(&err, "With disable_pqexec only the extended query protocol is served.");
	client_fatal(c, &err);
	return STEP_END;
}

static enum step query_claimed(struct client *c, const struct wire_msg *m, struct sql_text *t)
{
	struct pg_error err;

	if (m->total > STATEMENT_MAX) {
		pg_error_set(&err, "54000", "statement is too long");
		pg_error_hint(&err,
			"Bind large values as parameters. The limit for a QUEUE statement is %d bytes.",
			STATEMENT_MAX);
		client_fatal(c, &err);
		return STEP_END;
	}
	if (!wire_complete(m))
		return STEP_MORE;
	return string_has_ours(c, t) ? local_simple_many(c, t) : local_simple(c, t->sql, t->len);
}

static enum step query(struct client *c, const struct wire_msg *m, struct sql_text *t)
{
	if (!session_reads(c, t))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	/* the unnamed statement and portal end with any Query, unless it is skipped because its
	 * batch fails before */
	if (c->link != NULL && (c->unnamed != NULL || server_has_raw_unnamed(c->link)) &&
		c->link->batch.unsynced && !client_barrier(c))
		return STEP_WAIT;
	if (c->link != NULL)
		server_drop_raw_unnamed(c->link);
	extq_forget(c, &c->unnamed);
	portal_drop(c, portal_find(c, ""));
	if (c->portals != NULL)
		portal_synced(c); /* it ends the batch as a Sync does */
	switch (c->icpt->claim(c, t)) {
	case CLAIM_MORE:
		return m->have < SCAN_MAX ? STEP_MORE : query_pass(c, m, t);
	case CLAIM_PASS:
		return query_pass(c, m, t);
	case CLAIM_MINE:
		break;
	}
	return query_claimed(c, m, t);
}

enum step client_query(struct client *c, const struct wire_msg *m)
{
	size_t len = text_here(m);
	bool complete = len < m->have || wire_complete(m);
	struct sql_text t;
	enum step step;

	CHECK_CLIENT(c);
	if (c->request_time == 0)
		c->request_time = loop_now();
	if (conf_current()->p.disable_pqexec && !c->console)
		return refuse_pqexec(c);
	if (wire_complete(m) &&
		(m->have == 0 || m->body[m->have - 1] != '\0' || len != m->have - 1))
		return client_bad_message(c, m);
	if (c->head.string_at > 0)
		return local_string_rest(c, (const char *)m->body, len);
	sql_text_init(&t, (const char *)m->body, len, client_dialect(c),
		complete ? SQL_OF_QUERY : SQL_OF_PART);
	step = query(c, m, &t);
	sql_text_free(&t);
	return step;
}

enum step client_function(struct client *c, const struct wire_msg *m)
{
	CHECK_CLIENT(c);
	if (c->tx.virtual == VTX_FAILED)
		return local_aborted(c, true);
	if (!wire_complete(m) && m->total <= SCAN_MAX)
		return STEP_MORE;
	if (!client_need_server(c))
		return STEP_WAIT;
	session_touch_call(c, m);
	if (!client_expect(c, EXPECT_FUNCTION, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}
