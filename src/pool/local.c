/*
 * Statements that we answer, or run in another form: transaction control that needs no server,
 * statements of a claimant. One way for both protocols: a statement, values, a verdict.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pool_int.h"

/* --- portals
 * ------------------------------------------------------------------------------------------- */

struct portal *portal_find(struct client *c, const char *name)
{
	struct portal *p = c->portals;

	while (p != NULL && strcmp(p->name, name) != 0)
		p = p->next;
	if (p != NULL && p->synced && client_tx(c) == CLIENT_TX_IDLE && !client_is_owed(c)) {
		portal_drop(c, p);
		p = NULL;
	}
	return p;
}

void portal_free(struct portal **pp)
{
	struct portal *p = *pp;

	*pp = NULL;
	lstmt_drop(&p->stmt);
	mem_free(p->bind);
	mem_free(p->params);
	mem_free(p->formats);
	buf_free(&p->rows);
	mem_free(p);
}

void portal_drop(struct client *c, struct portal *p)
{
	struct portal **pp = &c->portals;

	if (p == NULL)
		return;
	while (*pp != p)
		pp = &(*pp)->next;
	*pp = p->next;
	if (c->park_portal == p)
		c->park_portal = NULL;
	portal_free(&p);
}

void portal_drop_all(struct client *c)
{
	while (c->portals != NULL)
		portal_drop(c, c->portals);
}

/* Portals end with their transaction: outside a block that is now. Whether an open block ends
 * before they are used again shows then. */
void portal_synced(struct client *c)
{
	if (client_tx(c) == CLIENT_TX_IDLE && !client_is_owed(c)) {
		portal_drop_all(c);
		return;
	}
	for (struct portal *p = c->portals; p != NULL; p = p->next)
		p->synced = true;
}

/* --- answers
 * -----------------------------------------------------------------------------------------------
 */

static void answer_columns(struct buf *b, const struct answer *a, const struct lstmt *l)
{
	struct stmt_shape shape = {0};

	if (a->fields != NULL) {
		build_row_description(b, a->fields, a->n_fields, NULL, 0);
		return;
	}
	l->icpt->stmt_shape(l->stmt, &shape);
	if (shape.n_fields > 0)
		build_row_description(b, shape.fields, shape.n_fields, NULL, 0);
}

static void put(struct buf *b, const struct buf *part)
{
	if (buf_failed(part))
		b->failed = true;
	else
		buf_put(b, part->data, part->len);
}

static enum step emit(struct client *c, struct buf *b)
{
	client_emit(c, b);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* The whole answer to a simple query. */
static enum step answer_simple(struct client *c, struct answer *a, const struct lstmt *l)
{
	struct buf b = BUF_INIT;

	put(&b, &a->notices);
	answer_columns(&b, a, l);
	put(&b, &a->rows);
	build_complete(&b, a->tag);
	build_ready(&b, client_status(c));
	answer_free(a);
	if (emit(c, &b) == STEP_END)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* Bytes of the first n messages, or all. */
static size_t rows_size(const struct buf *rows, size_t pos, int n)
{
	size_t at = pos;
	struct wire_msg m;

	for (; n > 0 && at < rows->len; n--) {
		if (wire_next(rows->data + at, rows->len - at, &m) != WIRE_NEXT_OK)
			break;
		at += m.total;
	}
	return at - pos;
}

/* What a row limit leaves is kept in the portal. */
static enum step answer_rows(struct client *c, struct portal *p, int32_t max_rows)
{
	struct buf b = BUF_INIT;
	size_t n = p->rows.len - p->rows_pos;

	if (max_rows > 0)
		n = rows_size(&p->rows, p->rows_pos, max_rows);
	buf_put(&b, p->rows.data + p->rows_pos, n);
	p->rows_pos += n;
	if (p->rows_pos < p->rows.len) {
		build_simple(&b, 's');
	} else {
		build_complete(&b, p->tag);
		buf_free(&p->rows);
		p->rows_pos = 0;
		if (strncmp(p->tag, "SELECT ", 7) == 0)
			util_strlcpy(p->tag, "SELECT 0", sizeof(p->tag));
	}
	return emit(c, &b);
}

static enum step answer_execute(
	struct client *c, struct answer *a, struct portal *p, int32_t max_rows)
{
	struct buf b = BUF_INIT;

	put(&b, &a->notices);
	if (b.len > 0 && emit(c, &b) == STEP_END)
		return STEP_END;
	if (buf_failed(&a->rows)) {
		answer_free(a);
		client_out_of_memory(c);
		return STEP_END;
	}
	p->rows = a->rows;
	p->rows_pos = 0;
	a->rows = BUF_INIT;
	util_strlcpy(p->tag, a->tag, sizeof(p->tag));
	answer_free(a);
	return answer_rows(c, p, max_rows);
}

/* --- parking
 * -----------------------------------------------------------------------------------------------------
 */

static enum step park(struct client *c, struct lstmt *l, struct portal *p, int32_t max_rows)
{
	c->park_stmt = lstmt_ref(l);
	c->park_portal = p;
	c->parked_simple = p == NULL;
	c->park_max_rows = max_rows;
	client_move(c, CLIENT_PARKED);
	return STEP_PARKED;
}

static void unpark(struct client *c)
{
	client_move(c, CLIENT_ACTIVE);
	client_resume(c);
}

void client_answer(struct client *c, struct answer *a)
{
	struct lstmt *l = c->park_stmt;
	struct portal *p = c->park_portal;

	ASSERT(c->state == CLIENT_PARKED);
	c->park_stmt = NULL;
	c->park_portal = NULL;
	if (c->parked_simple)
		answer_simple(c, a, l);
	else if (p != NULL)
		answer_execute(c, a, p, c->park_max_rows);
	answer_free(a);
	lstmt_drop(&l);
	if (c->state != CLIENT_DEAD)
		unpark(c);
}

void client_fail(struct client *c, const struct pg_error *err)
{
	ASSERT(c->state == CLIENT_PARKED);
	lstmt_drop(&c->park_stmt);
	c->park_portal = NULL;
	client_error(c, err, c->parked_simple);
	if (c->state != CLIENT_DEAD)
		unpark(c);
}

/* --- transaction control
 * ------------------------------------------------------------------------------------------- */

void local_tx_end(struct client *c, bool committed)
{
	c->tx_watched = false;
	if (c->icpt != NULL && c->icpt->tx_ended != NULL)
		c->icpt->tx_ended(c, committed);
}

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
	bool server_idle = s == NULL || (s->tx == 'I' && s->expect.count == 0 && !s->unsynced);

	if (c->vtx != VTX_NONE)
		return tx == SQL_TX_BEGIN &&
		       c->vtx == VTX_OPEN; /* a second BEGIN gets its warning from the server */
	return !server_idle;
}

static bool begin_virtual(struct client *c, const char *sql, size_t len)
{
	mem_free(c->begin_sql);
	c->begin_sql = mem_alloc(len + 1);
	if (c->begin_sql == NULL)
		return client_out_of_memory(c);
	memcpy(c->begin_sql, sql, len);
	c->begin_sql[len] = '\0';
	c->vtx = VTX_OPEN;
	return true;
}

/* Tag, warnings and change of state of a statement that no server needs to see. */
static bool tx_here(struct client *c, enum sql_tx tx, const char *sql, size_t len, struct buf *b)
{
	bool failed = c->vtx == VTX_FAILED, open = c->vtx != VTX_NONE;

	switch (tx) {
	case SQL_TX_EMPTY:
		build_simple(b, 'I');
		return true;
	case SQL_TX_BEGIN:
		build_complete(b, sql_tx_tag(tx, sql, len));
		return begin_virtual(c, sql, len);
	case SQL_TX_COMMIT:
	case SQL_TX_ROLLBACK:
		if (!open)
			warn(b, "there is no transaction in progress");
		build_complete(b, failed ? "ROLLBACK" : sql_tx_tag(tx, sql, len));
		c->vtx = VTX_NONE;
		mem_free(c->begin_sql);
		c->begin_sql = NULL;
		if (open) {
			c->tx_committed = tx == SQL_TX_COMMIT && !failed;
			c->tx_failed = !c->tx_committed;
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
	return c->vtx == VTX_FAILED && tx == SQL_TX_BEGIN;
}

static enum step aborted(struct client *c, bool simple)
{
	struct pg_error err;

	pg_error_set(&err, "25P02",
		"current transaction is aborted, commands ignored until end of transaction block");
	return client_error(c, &err, simple);
}

/* Statement pooling. */
static bool no_blocks(const struct client *c, enum sql_tx tx)
{
	return tx == SQL_TX_BEGIN && c->pool != NULL &&
	       route_pool_mode(c->pool) == POOL_MODE_STATEMENT;
}

static enum step refuse_block(struct client *c, bool simple)
{
	struct pg_error err;

	pg_error_set(&err, "0A000", "transaction blocks not allowed in statement pooling mode");
	pg_error_hint(&err, "The setting is pool_mode.");
	return client_error(c, &err, simple);
}

/* STEP_MORE: not ours, forward it. */
enum step local_tx_simple(struct client *c, enum sql_tx tx, const char *sql, size_t len)
{
	struct buf b = BUF_INIT;

	if (no_blocks(c, tx))
		return refuse_block(c, true);
	if (server_decides(c, tx))
		return STEP_MORE;
	if (refused_in_failed(c, tx))
		return aborted(c, true);
	if (!tx_here(c, tx, sql, len, &b)) {
		buf_free(&b);
		return STEP_END;
	}
	if (tx == SQL_TX_COMMIT || tx == SQL_TX_ROLLBACK)
		portal_drop_all(c);
	build_ready(&b, client_status(c));
	if (emit(c, &b) == STEP_END)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* --- on the client's own server
 * ---------------------------------------------------------------------------------------- */

bool local_barrier(struct client *c)
{
	struct server *s = c->link;
	struct buf b = BUF_INIT;

	if (s == NULL || (s->expect.count == 0 && s->pass_left == 0))
		return true;
	if (s->unsynced) {
		build_simple(&b, 'H');
		if (!server_send(s, &b))
			return false;
	}
	client_move(c, CLIENT_BARRIER);
	return false;
}

static struct replaced *replaced_new(int n)
{
	struct replaced *r = mem_zalloc(sizeof(*r));

	if (r == NULL)
		return NULL;
	r->list = mem_zalloc((size_t)n * sizeof(*r->list));
	if (r->list == NULL) {
		mem_free(r);
		return NULL;
	}
	r->n = n;
	return r;
}

/* One string for the server; rp tells which of its statements are ours. Takes rp and sql. */
static enum step send_string(struct client *c, struct replaced *rp, struct buf *sql)
{
	struct server *s = c->link;
	struct buf b = BUF_INIT;

	build_query(&b, buf_cstr(sql));
	if (buf_failed(sql))
		b.failed = true;
	buf_free(sql);
	rp->simple = true;
	server_drop_unnamed(s);
	if (!server_expect(s, EXPECT_QUERY, DEST_REPLACE, rp)) {
		buf_free(&b);
		return STEP_END;
	}
	expect_at(&s->expect, s->expect.count - 1u)->final = true;
	return server_send(s, &b) ? STEP_NEXT : STEP_END;
}

static enum step replace_simple(struct client *c, struct replace *r)
{
	struct replaced *rp = replaced_new(1);
	struct buf sql;

	if (rp == NULL) {
		replace_free(&r);
		client_out_of_memory(c);
		return STEP_END;
	}
	rp->list[0] = r;
	sql = r->sql;
	r->sql = BUF_INIT;
	return send_string(c, rp, &sql);
}

static void bind_message(struct buf *b, const struct replace *r, const struct portal *p,
	const char *portal, const char *stmt)
{
	size_t start = build_begin(b, 'B');

	build_cstr(b, portal);
	build_cstr(b, stmt);
	if (r->values != NULL) {
		build_i16(b, r->n_oids);
		put(b, &r->formats);
		build_i16(b, r->n_oids);
		put(b, r->values);
	} else {
		build_i16(b, p->n_params);
		for (int i = 0; i < p->n_params; i++)
			build_i16(b, p->params[i].format);
		build_i16(b, p->n_params);
		for (int i = 0; i < p->n_params; i++)
			build_row_value(b, p->params[i].data, p->params[i].len);
	}
	/* rows that only we read are text */
	build_i16(b, r->rows ? p->n_formats : 0);
	for (int i = 0; i < p->n_formats && r->rows; i++)
		build_i16(b, p->formats[i]);
	build_end(b, start);
}

/* A portal of a statement that failed stays until the end of its transaction: never the same name
 * twice. */
static const char *own_portal(char *dst, size_t size)
{
	static uint32_t number;

	snprintf(dst, size, "qb_%" PRIu32, ++number);
	return dst;
}

/* Parse if needed, Bind, Execute, Close, under names of our own, so that the client's stay. Takes
 * r. */
static enum step replace_execute(struct client *c, struct portal *p, struct replace *r)
{
	struct replaced *rp = replaced_new(1);
	struct server *s = c->link;
	struct pstmt *ps = pstmt_get((const char *)r->sql.data, r->sql.len, r->oids, r->n_oids);
	char name[PSTMT_NAME_SIZE], portal[24];
	struct buf b = BUF_INIT;
	bool ok;

	if (rp == NULL || ps == NULL || buf_failed(&r->sql)) {
		pstmt_drop(&ps);
		replaced_free(&rp, NULL, false);
		replace_free(&r);
		client_out_of_memory(c);
		return STEP_END;
	}
	rp->list[0] = r;
	bind_message(&b, r, p, own_portal(portal, sizeof(portal)), pstmt_name(ps, name));
	build_execute(&b, portal, 0);
	build_close(&b, 'P', portal);
	ok = extq_server_prepare(s, ps, DEST_SWALLOW) &&
	     server_expect(s, EXPECT_BIND, DEST_SWALLOW, NULL);
	pstmt_drop(&ps);
	if (!ok) {
		replaced_free(&rp, NULL, false);
		buf_free(&b);
		return STEP_END;
	}
	s->unsynced = true;
	if (!server_expect(s, EXPECT_EXECUTE, DEST_REPLACE, rp) ||
		!server_expect(s, EXPECT_CLOSE, DEST_SWALLOW, NULL) || !server_send(s, &b)) {
		buf_free(&b);
		return STEP_END;
	}
	return STEP_NEXT;
}

/* --- verdicts
 * ------------------------------------------------------------------------------------------------------------
 */

/* Nothing of this transaction, explicit or not, has been executed yet. */
static bool is_first(const struct client *c)
{
	enum client_tx tx = client_tx(c);

	if (c->batch_executed)
		return false;
	return tx == CLIENT_TX_VIRTUAL ||
	       (tx == CLIENT_TX_IDLE && (c->link == NULL || c->link->expect.count == 0));
}

static void exec_init(struct exec *x, struct client *c, struct lstmt *l)
{
	memset(x, 0, sizeof(*x));
	x->client = c;
	x->stmt = l->stmt;
	x->first = is_first(c);
	x->alone = true;
}

/* In the client's transaction, explicit or that of its batch. */
static bool in_place(const struct client *c, bool simple)
{
	return !c->console && (client_tx(c) != CLIENT_TX_IDLE || c->link != NULL ||
				      c->batch_executed || (!simple && !client_sync_follows()));
}

/* A statement that waits for something is executed again later: ask what it needs before. */
static bool must_wait(struct client *c, const struct lstmt *l, bool simple, enum step *ret)
{
	struct stmt_shape shape = {0};

	l->icpt->stmt_shape(l->stmt, &shape);
	if ((simple || shape.barrier) && !local_barrier(c)) {
		*ret = c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		return true;
	}
	if (shape.in_place && in_place(c, simple) && !client_need_server(c)) {
		*ret = c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		return true;
	}
	return false;
}

static enum step wait_again(struct client *c)
{
	client_move(c, CLIENT_BARRIER);
	return STEP_WAIT;
}

void client_again(struct client *c)
{
	if (c->state == CLIENT_BARRIER)
		client_resume(c);
}

static enum step run_simple(struct client *c, struct lstmt *l)
{
	struct exec x;
	enum step step = STEP_NEXT;

	if (client_tx(c) == CLIENT_TX_FAILED)
		return aborted(c, true);
	if (must_wait(c, l, true, &step))
		return step;
	exec_init(&x, c, l);
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		return replace_simple(c, x.replace);
	case EXEC_ANSWER:
		return answer_simple(c, &x.answer, l);
	case EXEC_PARK:
		return park(c, l, NULL, 0);
	case EXEC_WAIT:
		return wait_again(c);
	case EXEC_ERROR:
		return client_error(c, &x.err, true);
	case EXEC_CLOSE:
		break;
	}
	return STEP_END;
}

/* Claims a statement that has no parameters, as in any simple query. */
static struct lstmt *claim_simple(
	struct client *c, const char *sql, size_t len, struct pg_error *err)
{
	struct lstmt *l = lstmt_claimed(c, sql, len, NULL, 0, err);
	struct stmt_shape shape = {0};

	if (l == NULL)
		return NULL;
	l->icpt->stmt_shape(l->stmt, &shape);
	if (shape.n_params > 0) {
		pg_error_set(err, "42P02", "there is no parameter $%d", shape.n_params);
		lstmt_drop(&l);
	}
	return l;
}

enum step local_simple(struct client *c, const char *sql, size_t len)
{
	struct pg_error err;
	struct lstmt *l = claim_simple(c, sql, len, &err);
	enum step step;

	if (l == NULL)
		return local_barrier(c) ? client_error(c, &err, true) : STEP_WAIT;
	step = run_simple(c, l);
	lstmt_drop(&l);
	return step;
}

/* The end of a transaction is the end of its portals. */
static enum step executed_before(struct client *c, const struct portal *p)
{
	struct pg_error err;

	if (p->stmt->tx == SQL_TX_BEGIN && client_tx(c) == CLIENT_TX_FAILED)
		return aborted(c, false);
	if (p->stmt->tx == SQL_TX_BEGIN)
		pg_error_set(&err, "55000", "portal \"%s\" cannot be run", p->name);
	else
		pg_error_set(&err, "34000", "portal \"%s\" does not exist", p->name);
	return client_error(c, &err, false);
}

/* BEGIN, COMMIT, ROLLBACK or nothing, prepared and executed. */
static enum step execute_tx(struct client *c, struct portal *p)
{
	struct lstmt *l = p->stmt;
	struct buf b = BUF_INIT;
	struct replace *r;

	if (p->executed && l->kind == LSTMT_TX)
		return executed_before(c, p);
	if (no_blocks(c, l->tx))
		return refuse_block(c, false);
	if (!server_decides(c, l->tx)) {
		if (refused_in_failed(c, l->tx))
			return aborted(c, false);
		if (!tx_here(c, l->tx, l->sql, strlen(l->sql), &b)) {
			buf_free(&b);
			return STEP_END;
		}
		p->executed = true;
		if (l->tx == SQL_TX_COMMIT || l->tx == SQL_TX_ROLLBACK)
			portal_drop_all(c); /* also p and l */
		return emit(c, &b);
	}
	if (!client_need_server(c))
		return STEP_WAIT;
	p->executed = true;
	r = mem_zalloc(sizeof(*r));
	if (r == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	buf_puts(&r->sql, l->sql);
	r->tag = REPLACE_TAG_KEEP;
	r->tag_text = "";
	c->batch_executed = true;
	return replace_execute(c, p, r);
}

static enum step run_execute(struct client *c, struct portal *p, int32_t max_rows)
{
	struct exec x;
	enum step step = STEP_NEXT;
	bool executed_before;

	if (client_tx(c) == CLIENT_TX_FAILED)
		return aborted(c, false);
	if (must_wait(c, p->stmt, false, &step))
		return step;
	exec_init(&x, c, p->stmt);
	x.max_rows = max_rows;
	x.bind.n_params = p->n_params;
	x.bind.params = p->params;
	x.bind.n_formats = p->n_formats;
	x.bind.formats = p->formats;
	p->executed = true;
	executed_before = c->batch_executed;
	c->batch_executed = true;
	util_strlcpy(p->tag, "SELECT 0", sizeof(p->tag));
	switch (p->stmt->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(p->stmt);
		return replace_execute(c, p, x.replace);
	case EXEC_ANSWER:
		return answer_execute(c, &x.answer, p, max_rows);
	case EXEC_PARK:
		return park(c, p->stmt, p, max_rows);
	case EXEC_WAIT:
		p->executed = false;
		c->batch_executed = executed_before;
		return wait_again(c);
	case EXEC_ERROR:
		return client_error(c, &x.err, false);
	case EXEC_CLOSE:
		break;
	}
	return STEP_END;
}

enum step local_execute(struct client *c, struct portal *p, int32_t max_rows)
{
	/* a portal runs once; what is left of its rows may be fetched */
	if (p->stmt->kind != LSTMT_CLAIMED)
		return execute_tx(c, p);
	return p->executed ? answer_rows(c, p, max_rows) : run_execute(c, p, max_rows);
}

/* --- several statements in one string
 * -------------------------------------------------------------------------------------- */

struct many {
	struct client *c;
	struct replaced *rp;
	struct buf sql;
	struct pg_error err;
	bool failed;
};

/* start: of the whole string, in which an error has its position. */
static bool add_claimed(struct many *m, const char *start, const char *sql, size_t len)
{
	struct lstmt *l = claim_simple(m->c, sql, len, &m->err);
	struct exec x;
	bool ok = false;

	if (l == NULL) {
		if (m->err.position > 0)
			m->err.position += sql_char_position(start, sql) - 1;
		return false;
	}
	exec_init(&x, m->c, l);
	x.alone = false;
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		m->rp->list[m->rp->at] = x.replace;
		put(&m->sql, &x.replace->sql);
		ok = true;
		break;
	case EXEC_ERROR:
		m->err = x.err;
		break;
	case EXEC_ANSWER:
		answer_free(&x.answer);
		/* fall through */
	case EXEC_PARK:
	case EXEC_CLOSE:
	case EXEC_WAIT:
		pg_error_set(&m->err, "0A000",
			"this QUEUE statement has to be alone in its query string");
		pg_error_hint(&m->err, "Send it as a statement of its own.");
		break;
	}
	lstmt_drop(&l);
	return ok;
}

static int count_statements(struct client *c, const char *sql, size_t len)
{
	size_t pos = 0, n;
	const char *one;
	int count = 0;

	while (sql_statement_next(sql, len, &pos, client_standard_strings(c), &one, &n))
		count++;
	return count;
}

static void add_statements(struct many *m, const char *sql, size_t len)
{
	size_t pos = 0, n;
	const char *one;

	while (!m->failed &&
		sql_statement_next(sql, len, &pos, client_standard_strings(m->c), &one, &n)) {
		if (m->c->icpt->claim(m->c, one, n, true) == CLAIM_MINE)
			m->failed = !add_claimed(m, sql, one, n);
		else
			buf_put(&m->sql, one, n);
		/* on a line of its own: the statement may end in a -- comment */
		buf_puts(&m->sql, "\n;");
		m->rp->at++;
	}
	m->rp->at = 0;
}

enum step local_simple_many(struct client *c, const char *sql, size_t len)
{
	int n = count_statements(c, sql, len);
	struct many m = {.c = c};

	if (n == 1)
		return local_simple(c, sql, len);
	if (client_tx(c) == CLIENT_TX_FAILED && c->vtx == VTX_FAILED)
		return aborted(c, true);
	if (c->icpt->ready != NULL && !c->icpt->ready(c))
		return wait_again(c);
	if (!local_barrier(c) || !client_need_server(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	m.rp = replaced_new(n);
	if (m.rp == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	add_statements(&m, sql, len);
	if (m.failed) {
		replaced_free(&m.rp, c, false);
		buf_free(&m.sql);
		return client_error(c, &m.err, true);
	}
	return send_string(c, m.rp, &m.sql);
}
