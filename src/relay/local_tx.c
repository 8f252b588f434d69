/*
 * Transaction control. BEGIN is kept until a statement needs a server; what no server needs to see
 * is answered here, in both protocols.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "local_int.h"

static void warn(struct buf *b, const char *text)
{
	struct pg_error err;

	pg_error_set(&err, "25P01", "%s", text);
	pg_error_severity(&err, "WARNING");
	build_notice(b, &err);
}

/* Must the server do it? Not while no server knows of a transaction. */
static bool server_decides(const struct client *c, enum sql_tx tx)
{
	const struct server *s = c->link;
	bool server_idle =
		s == NULL || (s->tx == 'I' && s->expect.count == 0 && !s->batch.unsynced);

	if (c->tx.virtual != VTX_NONE)
		return tx == SQL_TX_BEGIN &&
		       c->tx.virtual ==
			       VTX_OPEN; /* a second BEGIN gets its warning from the server */
	return !server_idle;
}

static bool begin_virtual(struct client *c, const char *sql, size_t len)
{
	mem_free(c->tx.begin_sql);
	c->tx.begin_sql = mem_alloc(len + 1);
	if (c->tx.begin_sql == NULL)
		return client_out_of_memory(c);
	memcpy(c->tx.begin_sql, sql, len);
	c->tx.begin_sql[len] = '\0';
	portal_drop_synced(c);
	c->tx.virtual = VTX_OPEN;
	return true;
}

/* Tag, warnings and change of state of a statement that no server needs to see. */
static bool tx_here(struct client *c, enum sql_tx tx, const struct sql_text *t, struct buf *b)
{
	bool failed = c->tx.virtual == VTX_FAILED, open = c->tx.virtual != VTX_NONE;

	switch (tx) {
	case SQL_TX_EMPTY:
		build_simple(b, 'I');
		return true;
	case SQL_TX_BEGIN:
		build_complete(b, sql_tx_tag(tx, t));
		return begin_virtual(c, t->sql, t->len);
	case SQL_TX_COMMIT:
	case SQL_TX_ROLLBACK:
		if (!open)
			warn(b, "there is no transaction in progress");
		build_complete(b, failed ? "ROLLBACK" : sql_tx_tag(tx, t));
		c->tx.virtual = VTX_NONE;
		mem_free(c->tx.begin_sql);
		c->tx.begin_sql = NULL;
		if (open) {
			c->tx.committed = tx == SQL_TX_COMMIT && !failed;
			c->tx.failed = !c->tx.committed;
		}
		return true;
	case SQL_TX_OTHER:
		break;
	}
	return true;
}

/* BEGIN in a failed virtual block is refused like anything else there. */
static bool refused_in_failed(const struct client *c, enum sql_tx tx)
{
	return c->tx.virtual == VTX_FAILED && tx == SQL_TX_BEGIN;
}

/* Statement pooling. */
static bool no_blocks(const struct client *c, enum sql_tx tx)
{
	return tx == SQL_TX_BEGIN && c->pool != NULL && client_pool_mode(c) == POOL_MODE_STATEMENT;
}

static enum step refuse_block(struct client *c, bool simple)
{
	struct pg_error err;

	pg_error_set(&err, "0A000", "transaction blocks not allowed in statement pooling mode");
	pg_error_hint(&err, "The setting is pool_mode.");
	return client_error(c, &err, simple);
}

/* STEP_MORE: not ours, forward it. */
enum step local_tx_simple(struct client *c, enum sql_tx tx, const struct sql_text *t)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (no_blocks(c, tx))
		return refuse_block(c, true);
	if (server_decides(c, tx))
		return STEP_MORE;
	if (refused_in_failed(c, tx))
		return local_aborted(c, true);
	if (!tx_here(c, tx, t, &b)) {
		buf_free(&b);
		return STEP_END;
	}
	if (tx == SQL_TX_COMMIT || tx == SQL_TX_ROLLBACK)
		portal_drop_all(c);
	build_ready(&b, client_status(c));
	if (local_emit(c, &b) == STEP_END)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* At the head of a string whose rest needs no server. STEP_MORE: the server has to do it. */
enum step local_begin(struct client *c, const struct sql_text *t)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (c->tx.virtual != VTX_NONE || server_decides(c, SQL_TX_BEGIN))
		return STEP_MORE;
	if (tx_here(c, SQL_TX_BEGIN, t, &b))
		return local_emit(c, &b);
	buf_free(&b);
	return STEP_END;
}

static bool is_discard_all(struct lstmt *l)
{
	return sql_session(&l->text)->kind == SQL_SESSION_DISCARD_ALL;
}

/* The end of a transaction is the end of its portals. */
static enum step executed_before(struct client *c, const struct portal *p)
{
	struct pg_error err;

	if (p->stmt->tx != SQL_TX_COMMIT && p->stmt->tx != SQL_TX_ROLLBACK &&
		client_tx(c) == CLIENT_TX_FAILED)
		return local_aborted(c, false);
	if (p->stmt->tx != SQL_TX_COMMIT && p->stmt->tx != SQL_TX_ROLLBACK &&
		!is_discard_all(p->stmt))
		pg_error_set(&err, "55000", "portal \"%s\" cannot be run", p->name);
	else
		pg_error_set(&err, "34000", "portal \"%s\" does not exist", p->name);
	return client_error(c, &err, false);
}

/* The server knows what a Parse has prepared by another name, or not at all. STEP_MORE: it is to
 * say what there is of that name. */
static enum step execute_deallocate(struct client *c, struct portal *p, const char *name)
{
	struct cstmt *st;
	struct buf b = BUF_INIT;

	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	if (client_tx(c) == CLIENT_TX_FAILED)
		return local_aborted(c, false);
	st = extq_find(c, name);
	if (st == NULL)
		return pstmt_is_name(name) ? extq_refuse_unknown(c, name, false) : STEP_MORE;
	extq_forget(c, &st);
	p->executed = true;
	c->tx.executed = true;
	build_complete(&b, "DEALLOCATE");
	return local_emit(c, &b);
}

/* STEP_MORE: the server has to do it. */
static enum step execute_session(struct client *c, struct portal *p)
{
	const struct sql_session *st = sql_session(&p->stmt->text);
	bool discard_all = st->kind == SQL_SESSION_DISCARD_ALL;
	struct pg_error err;
	enum step step;

	if (c->tx.virtual == VTX_FAILED)
		return local_aborted(c, false);
	if (st->kind == SQL_SESSION_DEALLOCATE)
		return execute_deallocate(c, p, (const char *)st->name.data);
	if (discard_all && c->link == NULL && c->tx.executed) {
		pg_error_set(&err, "25001", "DISCARD ALL cannot be executed within a pipeline");
		return client_error(c, &err, false);
	}
	step = local_session_execute(c, st);
	if (step != STEP_NEXT)
		return step;
	p->executed = true;
	c->tx.executed = !discard_all;
	if (discard_all) /* it ends the transaction */
		portal_drop_all(c);
	return STEP_NEXT;
}

/* BEGIN, COMMIT, ROLLBACK or nothing, prepared and executed. */
enum step local_execute_tx(struct client *c, struct portal *p)
{
	struct lstmt *l = p->stmt;
	struct buf b = BUF_INIT;
	struct replace *r;
	enum step step;
	bool ends;

	CHECK_CLIENT(c);
	if (p->executed && l->kind != LSTMT_EMPTY)
		return executed_before(c, p);
	if (no_blocks(c, l->tx))
		return refuse_block(c, false);
	if (l->kind == LSTMT_SESSION) {
		step = execute_session(c, p);
		if (step != STEP_MORE)
			return step;
	}
	if (l->kind != LSTMT_SESSION && !server_decides(c, l->tx)) {
		if (refused_in_failed(c, l->tx))
			return local_aborted(c, false);
		if (!tx_here(c, l->tx, &l->text, &b)) {
			buf_free(&b);
			return STEP_END;
		}
		p->executed = true;
		if (l->tx == SQL_TX_COMMIT || l->tx == SQL_TX_ROLLBACK)
			portal_drop_all(c); /* also p and l */
		return local_emit(c, &b);
	}
	if (!client_need_server(c))
		return STEP_WAIT;
	if (l->kind == LSTMT_SESSION) {
		session_touch(c, &l->text, session_touches(c, &l->text));
		/* names may mean nothing when it is answered */
		if (sql_forgets_all(&l->text))
			c->link->batch.discarding = true;
	}
	p->executed = true;
	r = mem_zalloc(sizeof(*r));
	if (r == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	buf_puts(&r->sql, l->text.sql);
	r->tag = REPLACE_TAG_KEEP;
	r->tag_text = "";
	c->tx.executed = true;
	ends = l->tx == SQL_TX_COMMIT || l->tx == SQL_TX_ROLLBACK ||
	       (l->kind == LSTMT_SESSION && is_discard_all(l));
	step = local_replace_execute(c, p, r);
	if (step == STEP_NEXT && ends)
		portal_drop_all(c); /* also p and l */
	return step;
}
