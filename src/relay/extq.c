/*
 * Extended protocol: Parse, Describe, Execute, Close; Bind is extq_bind.c. In transaction and
 * statement pooling each client has its own statement names; a server knows a text by a name of
 * ours and is told it when first needed. Statements of a claimant, and transaction control, live
 * here and never reach a server under the client's name.
 *
 * Session pooling: names of the client's own statements pass through as they are.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "extq_int.h"
/* --- small answers --- */

static enum step emit(struct client *c, struct buf *b)
{
	client_emit(c, b);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

enum step extq_emit_simple(struct client *c, uint8_t type)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_simple(&b, type);
	return emit(c, &b);
}

/* For the log, in the words of pgbouncer. */
enum step extq_refuse(struct client *c, const char *sqlstate, const char *fmt, const char *name)
{
	struct pg_error err;

	CHECK_CLIENT(c);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	pg_error_set(&err, sqlstate, fmt, name);
#pragma GCC diagnostic pop
	if (strcmp(sqlstate, "26000") == 0)
		client_log_refusal(c, "prepared statement did not exist");
	return client_error(c, &err, false);
}

enum step extq_refuse_failed(struct client *c)
{
	CHECK_CLIENT(c);
	return extq_refuse(c, "25P02",
		"current transaction is aborted, commands ignored until end of transaction block%s",
		"");
}

/* Is the block aborted, so that this fails? What is under way may end it; or abort it, which is
 * asked for where no pipeline is slowed down by the question. */
bool extq_refused_in_failed(struct client *c, bool exact, enum step *ret)
{
	CHECK_CLIENT(c);
	if (c->console || (client_tx(c) != CLIENT_TX_FAILED && !exact))
		return false;
	if (c->tx.virtual == VTX_NONE && !client_barrier(c)) {
		*ret = STEP_WAIT;
		return true;
	}
	if (client_tx(c) != CLIENT_TX_FAILED)
		return false;
	*ret = extq_refuse_failed(c);
	return true;
}

/* --- Parse --- */

struct parse {
	const char *name;
	struct sql_text text;
	uint32_t *oids;
	int n_oids;
};

static bool read_parse(const struct client *c, const struct wire_msg *m, struct parse *ret)
{
	struct wire_reader r;
	const char *sql;
	size_t len;
	int n;

	wire_reader_init(&r, m->body, m->have);
	ret->name = wire_get_cstr(&r, NULL);
	sql = wire_get_cstr(&r, &len);
	n = (uint16_t)wire_get_i16(&r);
	ret->n_oids = n;
	ret->oids = NULL;
	if (r.failed || wire_left(&r) != (size_t)n * 4)
		return false;
	sql_text_init(&ret->text, sql, len, client_dialect(c), SQL_OF_PARSE);
	if (n == 0)
		return true;
	ret->oids = mem_alloc((size_t)n * sizeof(uint32_t));
	for (int i = 0; i < n && ret->oids != NULL; i++)
		ret->oids[i] = wire_get_u32(&r);
	return ret->oids != NULL;
}

/* ParseComplete of ours; the statement is there when it leaves. */
static enum step parse_known(struct client *c, struct cstmt *st)
{
	if (st == NULL)
		return STEP_END;
	if (client_is_owed(c)) {
		st->refs++;
		return client_expect(c, EXPECT_PARSED, &dest_local, st) ? STEP_NEXT : STEP_END;
	}
	if (st->name[0] != '\0')
		cstmt_confirm(c, st);
	return extq_emit_simple(c, '1');
}

static enum step parse_local(struct client *c, const struct parse *p, struct lstmt *l)
{
	if (l == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	return parse_known(c, cstmt_add(c, p->name, NULL, l));
}

static enum step parse_claimed(struct client *c, const struct parse *p)
{
	struct pg_error err;
	struct lstmt *l = lstmt_claimed(c, p->text.sql, p->text.len, p->oids, p->n_oids, &err);

	return l != NULL ? parse_local(c, p, l) : client_error(c, &err, false);
}

/* As the client sent it: session pooling, or too long to be kept. */
static enum step parse_raw(struct client *c, struct parse *p, const struct wire_msg *m)
{
	unsigned touches;

	if (session_pin_refused(c, &p->text))
		return client_refuse_pin(c, false);
	if (p->name[0] == '\0') {
		/* an error before it in the batch would skip it, and what it replaces would stay */
		if (c->unnamed != NULL && !client_barrier(c))
			return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		extq_forget(c, &c->unnamed);
	}
	touches = session_touches(c, &p->text);
	session_touch(c, &p->text, touches);
	if (p->name[0] == '\0')
		server_unnamed_is_raw(c->link, touches);
	else if ((touches & SQL_TOUCH_SETTINGS) != 0)
		session_prepared(c->link, p->name, &p->text);
	if (!client_expect(c, EXPECT_PARSE, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}

static enum step parse_unnamed(struct client *c, struct pstmt *ps, const struct wire_msg *m)
{
	if (cstmt_add(c, "", pstmt_ref(ps), NULL) == NULL ||
		!server_expect_unnamed(c->link, ps, &dest_client))
		return STEP_END;
	return client_forward(c, m);
}

static enum step parse_named(struct client *c, const struct parse *p, struct pstmt *ps)
{
	bool known = server_has_prepared(c->link, ps);
	struct cstmt *st = cstmt_add(c, p->name, pstmt_ref(ps), NULL);

	if (st == NULL || !extq_server_prepare(c->link, ps, &dest_client))
		return STEP_END;
	return known ? parse_known(c, st) : STEP_NEXT;
}

/* Programs send the same unnamed statement over and over: that one needs no search. */
static struct pstmt *parse_text(struct client *c, struct parse *p)
{
	struct pstmt *last = c->unnamed != NULL ? c->unnamed->p : NULL;

	if (p->name[0] == '\0' && last != NULL && pstmt_is(last, &p->text, p->oids, p->n_oids) &&
		reading_is(c, last))
		return pstmt_ref(last);
	return reading_statement(c, &p->text, p->oids, p->n_oids);
}

static enum step parse_own(struct client *c, struct parse *p, const struct wire_msg *m)
{
	struct pstmt *ps;
	enum step step;

	if (c->tx.virtual == VTX_FAILED)
		return extq_refuse_failed(c);
	if (!client_need_server(c))
		return STEP_WAIT;
	if (sql_forgets_all(&p->text))
		c->link->batch.discarding = true;
	if (!cstmt_tracks_names(c) || (p->name[0] == '\0' && p->text.len > INTERN_MAX))
		return parse_raw(c, p, m);
	ps = parse_text(c, p);
	if (ps == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	step = p->name[0] == '\0' ? parse_unnamed(c, ps, m) : parse_named(c, p, ps);
	pstmt_drop(&ps);
	return step;
}

/* Beyond so many bytes a text is none that we answer: transaction control and DEALLOCATE; others. */
#define SPECIAL_MAX 1024
#define SESSION_MAX 256

/* BEGIN, COMMIT, DEALLOCATE and the like, which we answer. */
static bool parse_special(struct client *c, struct parse *p, enum step *ret)
{
	struct sql_text *t = &p->text;
	enum sql_tx tx = t->len < SPECIAL_MAX ? sql_tx(t) : SQL_TX_OTHER;

	if (tx == SQL_TX_BEGIN && extq_refused_in_failed(c, true, ret))
		return true;
	if (tx != SQL_TX_OTHER) {
		*ret = parse_local(c, p, lstmt_tx(tx, t));
		return true;
	}
	if (t->word == SQL_WORD_DEALLOCATE && t->len < SPECIAL_MAX && cstmt_tracks_names(c) &&
		sql_session(t)->kind == SQL_SESSION_DEALLOCATE) {
		*ret = parse_local(c, p, lstmt_session(t));
		return true;
	}
	if (t->len >= SESSION_MAX || !local_session_is(c, t))
		return false;
	if (!extq_refused_in_failed(c, true, ret))
		*ret = parse_local(c, p, lstmt_session(t));
	return true;
}

static enum step parse(struct client *c, struct parse *p, const struct wire_msg *m)
{
	enum step step;

	if (p->name[0] != '\0' && !cstmt_is_decided(c, p->name))
		return STEP_WAIT;
	if (p->name[0] != '\0' && extq_find(c, p->name) != NULL) {
		if (conf_current()->p.log_pooler_errors)
			log_write(LOG_LVL_ERROR, client_prefix(c),
				"prepared statement '%s' was already prepared", p->name);
		return extq_refuse(c, "42P05", "prepared statement \"%s\" already exists", p->name);
	}
	if (!session_reads(c, &p->text))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	/* as pgbouncer counts: those that it could follow */
	if (c->pool != NULL && p->name[0] != '\0' && cstmt_tracks_names(c))
		c->pool->stats.client_parses++;
	if (c->icpt->claim(c, &p->text) == CLAIM_MINE) {
		if (extq_refused_in_failed(c, false, &step))
			return step;
		return parse_claimed(c, p);
	}
	return parse_special(c, p, &step) ? step : parse_own(c, p, m);
}

enum step extq_parse(struct client *c, const struct wire_msg *m)
{
	struct parse p;
	enum step step;
	struct pg_error err;

	CHECK_CLIENT(c);
	if (c->request_time == 0)
		c->request_time = loop_now();
	if (!wire_complete(m) && m->total > STATEMENT_MAX) {
		pg_error_set(&err, "54000", "statement is too long");
		pg_error_hint(&err,
			"Bind large values as parameters. The limit for the text of a prepared statement is %d bytes.",
			STATEMENT_MAX);
		step = client_error(c, &err, false);
		c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
		c->pass_discard = true;
		return step == STEP_NEXT ? STEP_STREAM : step;
	}
	if (!wire_complete(m))
		return STEP_MORE;
	if (!read_parse(c, m, &p)) {
		mem_free(p.oids);
		return client_bad_message(c, m);
	}
	step = parse(c, &p, m);
	mem_free(p.oids);
	sql_text_free(&p.text);
	return step;
}

/* --- Describe, Execute, Close --- */

/* Of Describe and Close, whose body is a kind and a name. false: *ret says what becomes of it. */
static bool read_target(
	struct client *c, const struct wire_msg *m, char *kind, const char **name, enum step *ret)
{
	struct wire_reader r;

	if (!wire_complete(m) && m->total <= STATEMENT_MAX) {
		*ret = STEP_MORE;
		return false;
	}
	wire_reader_init(&r, m->body, m->have);
	*kind = (char)wire_get_u8(&r);
	*name = wire_get_cstr(&r, NULL);
	if (wire_complete(m) && wire_done(&r) && (*kind == 'S' || *kind == 'P'))
		return true;
	*ret = client_bad_message(c, m);
	return false;
}

static void local_columns(struct buf *b, const struct lstmt *l, const struct portal *p)
{
	struct stmt_shape shape = {0};

	if (l->kind == LSTMT_CLAIMED)
		l->icpt->stmt_shape(l->stmt, &shape);
	if (shape.n_fields == 0)
		build_simple(b, 'n');
	else if (p != NULL)
		build_row_description(b, shape.fields, shape.n_fields, p->formats, p->n_formats);
	else
		build_row_description(b, shape.fields, shape.n_fields, NULL, 0);
}

static enum step describe_local(struct client *c, struct lstmt *l, const struct portal *p)
{
	struct stmt_shape shape = {0};
	struct buf b = BUF_INIT;

	if (!extq_shape_ready(c, l, p, true))
		return client_wait_again(c);
	if (l->kind == LSTMT_CLAIMED)
		l->icpt->stmt_shape(l->stmt, &shape);
	if (shape.own_types && p == NULL)
		return local_describe(c, l);
	if (p == NULL)
		build_parameter_description(&b, shape.param_oids, shape.n_params);
	local_columns(&b, l, p);
	return emit(c, &b);
}

/* Describe of the client's own named statement, under the server's name. */
static enum step describe_renamed(struct client *c, struct pstmt *ps)
{
	char name[PSTMT_NAME_SIZE];
	struct buf b = BUF_INIT;

	if (!extq_server_prepare(c->link, ps, &dest_swallow) ||
		!client_expect(c, EXPECT_DESCRIBE, &dest_client, NULL))
		return STEP_END;
	build_describe(&b, 'S', pstmt_name(ps, name));
	return server_send(c->link, &b) ? STEP_NEXT : STEP_END;
}

static enum step describe_own(
	struct client *c, const struct wire_msg *m, char kind, const char *name)
{
	struct cstmt *st = kind == 'S' ? extq_find(c, name) : NULL;

	if (kind == 'S' && st == NULL &&
		(name[0] != '\0' ? cstmt_tracks_names(c)
				 : c->link == NULL || !server_has_raw_unnamed(c->link)))
		return extq_refuse(c, "26000",
			name[0] != '\0' ? "prepared statement \"%s\" does not exist"
					: "unnamed prepared statement does not exist%s",
			name);
	if (c->tx.virtual == VTX_FAILED && kind == 'P')
		return extq_refuse(c, "34000", "portal \"%s\" does not exist", name);
	if (c->tx.virtual == VTX_FAILED)
		return extq_refuse_failed(c);
	if (!client_need_server(c))
		return STEP_WAIT;
	if (st != NULL && !cstmt_is_readable(c, st))
		return STEP_WAIT;
	if (st != NULL && name[0] != '\0')
		return describe_renamed(c, st->p);
	if (kind == 'S' && !extq_restore_unnamed(c))
		return STEP_END;
	if (!client_expect(c, EXPECT_DESCRIBE, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}

enum step extq_describe(struct client *c, const struct wire_msg *m)
{
	char kind;
	const char *name;
	struct cstmt *st;
	struct portal *p;
	enum step step;

	CHECK_CLIENT(c);
	if (!read_target(c, m, &kind, &name, &step))
		return step;
	if (kind == 'S') {
		if (!cstmt_is_decided(c, name))
			return STEP_WAIT;
		st = extq_find(c, name);
		if (st != NULL && st->l != NULL)
			return describe_local(c, st->l, NULL);
	} else {
		if (!extq_portal_is_decided(c, name))
			return STEP_WAIT;
		p = portal_find(c, name);
		if (p != NULL)
			return describe_local(c, p->stmt, p);
	}
	return describe_own(c, m, kind, name);
}

enum step extq_execute(struct client *c, const struct wire_msg *m)
{
	struct wire_reader r;
	const char *name;
	int32_t max_rows;
	struct portal *p;

	CHECK_CLIENT(c);
	if (!wire_complete(m))
		return m->total > STATEMENT_MAX ? client_bad_message(c, m) : STEP_MORE;
	wire_reader_init(&r, m->body, m->have);
	name = wire_get_cstr(&r, NULL);
	max_rows = wire_get_i32(&r);
	if (!wire_done(&r))
		return client_bad_message(c, m);
	if (!extq_portal_is_decided(c, name))
		return STEP_WAIT;
	p = portal_find(c, name);
	if (p != NULL)
		return local_execute(c, p, max_rows);
	/* no server has seen a failed block that is virtual, so there are no portals in it */
	if (c->tx.virtual == VTX_FAILED || (c->link == NULL && cstmt_tracks_names(c)))
		return extq_refuse(c, "34000", "portal \"%s\" does not exist", name);
	if (!client_need_server(c))
		return STEP_WAIT;
	c->tx.executed = true;
	if (!client_expect(c, EXPECT_EXECUTE, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}

/* Gone at once, unless an error before it makes the Close void. */
static enum step close_known(struct client *c, struct cstmt *st)
{
	if (st == c->unnamed || !client_is_owed(c)) {
		extq_forget(c, &st);
		return extq_emit_simple(c, '3');
	}
	HASH_DEL(c->stmts, st);
	st->closed = true;
	c->closing++;
	return client_expect(c, EXPECT_CLOSED, &dest_local, st) ? STEP_NEXT : STEP_END;
}

static bool close_placed(struct client *c, const char *portal)
{
	struct buf b = BUF_INIT;

	if (c->link == NULL || c->tx.virtual != VTX_NONE)
		return true;
	build_close(&b, 'P', portal);
	if (client_expect(c, EXPECT_CLOSE, &dest_swallow, NULL))
		return server_send(c->link, &b);
	buf_free(&b);
	return false;
}

enum step extq_close(struct client *c, const struct wire_msg *m)
{
	char kind;
	const char *name;
	struct cstmt *st;
	struct portal *p;
	enum step step;

	CHECK_CLIENT(c);
	if (!read_target(c, m, &kind, &name, &step))
		return step;
	if (kind == 'S' && !cstmt_is_decided(c, name))
		return STEP_WAIT;
	st = kind == 'S' ? extq_find(c, name) : NULL;
	p = kind == 'P' ? portal_find(c, name) : NULL;
	if (st != NULL)
		return close_known(c, st);
	if (p != NULL && p->placed && !close_placed(c, name))
		return STEP_END;
	portal_drop(c, p);
	if (kind == 'S' && name[0] == '\0' && c->link != NULL)
		server_drop_raw_unnamed(c->link);
	/* what the server has under names of ours stays prepared there */
	if (p != NULL || c->link == NULL || (kind == 'S' && cstmt_tracks_names(c)))
		return extq_emit_simple(c, '3');
	if (!client_expect(c, EXPECT_CLOSE, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}
