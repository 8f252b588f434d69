/*
 * The messages that are answered up to a ReadyForQuery of their own: Query and FunctionCall. A text
 * is looked at here: is it a claimant's, or one that we answer ourselves, and what will it do to
 * the session? Entry points: client_query, client_function.
 *
 * Statements that we answer: local.c. What a text does to the session: session.c.
 */
#include <string.h>

#include "wire/sqlsess.h"
#include "extq_int.h"

/* Text of a Query or Parse as far as it is here, without its terminator when that is here. */
static size_t text_here(const struct wire_msg *m)
{
	const uint8_t *nul = memchr(m->body, 0, m->have);

	return nul != NULL ? (size_t)(nul - m->body) : m->have;
}

/* First words that local_tx_simple() or the prepared statement commands may be meant by. sql ends
 * with a NUL. */
static bool may_be_special(const char *sql, size_t len)
{
	if (sql[0] == 's' || sql[0] == 'S')
		return util_lower(sql[1]) != 'e' || util_lower(sql[2]) != 'l' || /* SELECT */
		       (len > 11 && util_lower(sql[7]) == 'p' &&
			       util_memcasecmp(sql + 7, "pg_a", 4) == 0);
	return strchr("bBcCeErRaAdDuUlL-/; \t\r\n\f\v", sql[0]) != NULL;
}

/* DEALLOCATE of a name that the client prepared by a Parse message. STEP_MORE: not ours, forward
 * it. */
static enum step deallocate(struct client *c, const char *sql, size_t len)
{
	struct buf name = BUF_INIT, b = BUF_INIT;
	struct cstmt *st = NULL;
	enum step step = STEP_MORE;

	if (sql_prep_classify(sql, len, &name) == SQL_PREP_DEALLOCATE && buf_used(&name) > 0) {
		if (!client_barrier(c)) {
			buf_free(&name);
			return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		}
		st = extq_find(c, buf_cstr(&name));
		if (st == NULL && client_tx(c) != CLIENT_TX_FAILED && cstmt_tracks_names(c) &&
			pstmt_is_name(buf_cstr(&name)))
			step = extq_refuse_unknown(c, buf_cstr(&name), true);
	}
	buf_free(&name);
	if (st == NULL || client_tx(c) == CLIENT_TX_FAILED)
		return step;
	extq_forget(c, &st);
	build_complete(&b, "DEALLOCATE");
	build_ready(&b, client_status(c));
	client_emit(c, &b);
	if (c->state == CLIENT_DEAD)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* BEGIN, COMMIT, ROLLBACK, nothing at all, DEALLOCATE: whether we answer it. */
static bool special(struct client *c, const struct wire_msg *m, size_t len, enum step *ret)
{
	const char *sql = (const char *)m->body;
	enum sql_tx tx = sql_tx_classify(sql, len);

	if (tx != SQL_TX_OTHER) {
		*ret = local_tx_simple(c, tx, sql, len);
		return *ret != STEP_MORE;
	}
	if (sql_prep_may_be(sql)) {
		*ret = deallocate(c, sql, len);
		if (*ret != STEP_MORE)
			return true;
	}
	*ret = local_session_simple(c, sql, len);
	return *ret != STEP_MORE;
}

/* Several statements in one string, one of them ours? Needs the whole string. */
static bool string_has_ours(struct client *c, const struct wire_msg *m, size_t len)
{
	return c->icpt->claim_any != NULL && memchr(m->body, ';', len) != NULL &&
	       c->icpt->claim_any(c, (const char *)m->body, len);
}

/* The first semicolon is the last byte, as most programs write it. */
static bool one_statement(const struct wire_msg *m, size_t len)
{
	const uint8_t *semicolon = memchr(m->body, ';', len);

	return semicolon == NULL || semicolon + 1 == m->body + len;
}

static enum step query_pass(struct client *c, const struct wire_msg *m, size_t len)
{
	struct istr *effect = NULL;
	bool single = false;
	enum step step;

	if (!wire_complete(m) && m->total <= SCAN_MAX)
		return STEP_MORE;
	if (wire_complete(m)) {
		if (len < 1024 && may_be_special((const char *)m->body, len) &&
			special(c, m, len, &step))
			return step;
		single = one_statement(m, len);
		if (!single) {
			if (string_has_ours(c, m, len))
				return local_simple_many(c, (const char *)m->body, len);
			step = local_deallocate_string(c, (const char *)m->body, len);
			if (step != STEP_MORE)
				return step;
		}
	}
	if (c->tx.virtual == VTX_FAILED)
		return local_aborted(c, true);
	/* PREPARE: the settings that it is meant by have to be known */
	if (util_lower((char)m->body[0]) == 'p' && !client_barrier(c))
		return STEP_WAIT;
	if (!client_need_server(c))
		return STEP_WAIT;
	if (session_pin_refused(c, (const char *)m->body, len))
		return client_refuse_pin(c, true);
	server_drop_unnamed(c->link);
	server_batch_ends(c->link);
	if (sql_prep_may_be((const char *)m->body) &&
		sql_prep_classify((const char *)m->body, len, NULL) > SQL_PREP_DEALLOCATE)
		c->link->batch.discarding = true;
	/* what is not here yet may do anything to the session */
	if (wire_complete(m))
		effect = session_effect(c, (const char *)m->body, len, single);
	else
		session_touch(c, (const char *)m->body, len, SQL_TOUCH_UNSEEN);
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

enum step client_query(struct client *c, const struct wire_msg *m)
{
	size_t len = text_here(m);
	bool complete = len < m->have || wire_complete(m);
	struct pg_error err;

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
	if (!session_reads(c, (const char *)m->body, len))
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
	switch (c->icpt->claim(c, (const char *)m->body, len, complete)) {
	case CLAIM_MORE:
		return m->have < SCAN_MAX ? STEP_MORE : query_pass(c, m, len);
	case CLAIM_PASS:
		return query_pass(c, m, len);
	case CLAIM_MINE:
		break;
	}
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
	if (string_has_ours(c, m, len))
		return local_simple_many(c, (const char *)m->body, len);
	return local_simple(c, (const char *)m->body, len);
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
