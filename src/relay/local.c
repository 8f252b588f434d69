/*
 * Statements of a claimant, in both protocols: a statement, values, a verdict. What is carried out
 * in another form runs on the client's own server, in its transaction.
 *
 * Portals and answers: portal.c. Transaction control: local_tx.c. Several in one string:
 * local_many.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pool/reading.h"
#include "local_int.h"
#include "relay_int.h"

/* --- on the client's own server --- */

struct replaced *replaced_new(int n)
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
enum step local_send_string(struct client *c, struct replaced *rp, struct buf *sql)
{
	struct server *s = c->link;
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	build_query(&b, buf_cstr(sql));
	if (buf_failed(sql))
		b.failed = true;
	buf_free(sql);
	rp->simple = true;
	server_drop_unnamed(s);
	if (!server_expect(s, EXPECT_QUERY, &dest_replace, rp)) {
		buf_free(&b);
		return STEP_END;
	}
	expect_at(&s->expect, s->expect.count - 1u)->final = !rp->part;
	return server_send(s, &b) ? STEP_NEXT : STEP_END;
}

static void text_of(
	struct sql_text *t, const struct client *c, const struct replace *r, enum sql_of of)
{
	sql_text_init(t, (const char *)r->sql.data, r->sql.len, client_dialect(c), of);
}

/* A query of the client's stands in it, which may do to the session what any other may. */
static void touch_by_own_text(struct client *c, const struct replace *r, struct sql_text *t)
{
	if (r->own_text && !buf_failed(&r->sql) && t->len > 0)
		session_touch(c, t, session_touches(c, t));
}

/* ... and may not, where that would keep one server more than may be kept. */
static bool own_text_is_refused(struct client *c, struct replace **r, struct sql_text *t)
{
	if (!(*r)->own_text || buf_failed(&(*r)->sql) || t->len == 0 || !session_pin_refused(c, t))
		return false;
	replace_free(r);
	return true;
}

static enum step replace_simple(struct client *c, struct replace *r)
{
	struct replaced *rp;
	struct sql_text t;
	struct buf sql;

	text_of(&t, c, r, SQL_OF_QUERY);
	if (own_text_is_refused(c, &r, &t))
		return client_refuse_pin(c, true);
	rp = replaced_new(1);
	if (rp == NULL) {
		replace_free(&r);
		client_out_of_memory(c);
		return STEP_END;
	}
	touch_by_own_text(c, r, &t);
	sql_text_free(&t);
	rp->list[0] = r;
	sql = r->sql;
	r->sql = BUF_INIT;
	return local_send_string(c, rp, &sql);
}

static void bind_message(struct buf *b, const struct replace *r, const struct portal *p,
	const char *portal, const char *stmt)
{
	size_t start = build_begin(b, 'B');

	build_cstr(b, portal);
	build_cstr(b, stmt);
	if (r->values != NULL) {
		build_i16(b, r->n_oids);
		local_put(b, &r->formats);
		build_i16(b, r->n_oids);
		local_put(b, r->values);
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
enum step local_replace_execute(struct client *c, struct portal *p, struct replace *r)
{
	struct replaced *rp;
	struct server *s = c->link;
	struct pstmt *ps;
	char name[PSTMT_NAME_SIZE], portal[24];
	struct buf b = BUF_INIT;
	struct sql_text t;
	bool ok, copy = r->copy;

	CHECK_CLIENT(c);
	text_of(&t, c, r, SQL_OF_PARSE);
	if (own_text_is_refused(c, &r, &t))
		return client_refuse_pin(c, false);
	rp = replaced_new(1);
	ps = reading_statement(c, &t, r->oids, r->n_oids);
	if (rp == NULL || ps == NULL || buf_failed(&r->sql)) {
		pstmt_drop(&ps);
		replaced_free(&rp, NULL, false);
		replace_free(&r);
		client_out_of_memory(c);
		return STEP_END;
	}
	touch_by_own_text(c, r, &ps->text);
	rp->list[0] = r;
	bind_message(&b, r, p, own_portal(portal, sizeof(portal)), pstmt_name(ps, name));
	build_execute(&b, portal, 0);
	/* in a copy nothing but data may follow; its portal ends with the transaction */
	if (!r->copy)
		build_close(&b, 'P', portal);
	ok = extq_server_prepare(s, ps, &dest_swallow) &&
	     server_expect(s, EXPECT_BIND, &dest_swallow, NULL);
	pstmt_drop(&ps);
	if (!ok) {
		replaced_free(&rp, NULL, false);
		buf_free(&b);
		return STEP_END;
	}
	if (!server_expect(s, EXPECT_EXECUTE, &dest_replace, rp) ||
		(!copy && !server_expect(s, EXPECT_CLOSE, &dest_swallow, NULL)) ||
		!server_send(s, &b)) {
		buf_free(&b);
		return STEP_END;
	}
	return STEP_NEXT;
}

/* --- verdicts --- */

/* Nothing of this transaction, explicit or not, has been executed yet. */
static bool is_first(const struct client *c)
{
	enum client_tx tx = client_tx(c);

	if (c->tx.executed)
		return false;
	return tx == CLIENT_TX_VIRTUAL ||
	       (tx == CLIENT_TX_IDLE && (c->link == NULL || client_only_settings(c->link)));
}

void local_exec_init(struct exec *x, struct client *c, struct lstmt *l, bool simple)
{
	CHECK_CLIENT(c);
	memset(x, 0, offsetof(struct exec, err)); /* which is filled with EXEC_ERROR */
	x->client = c;
	x->stmt = l->stmt;
	x->first = is_first(c);
	x->alone = true;
	x->by_itself =
		x->first && client_tx(c) == CLIENT_TX_IDLE && (simple || c->head.next == 'S');
	x->again = c->head.again;
	c->head.again = false;
}

/* In the client's transaction, explicit or that of its batch. */
static bool in_place(const struct client *c, bool simple)
{
	return !c->console && (client_tx(c) != CLIENT_TX_IDLE || c->link != NULL ||
				      c->tx.executed || (!simple && c->head.next != 'S'));
}

static enum step settings_unknown(struct client *c, bool simple)
{
	struct pg_error err;

	pg_error_set(&err, "55000", "the settings of this session are not known");
	pg_error_detail(&err,
		"A statement before has changed some, and the server could not be asked which.");
	pg_error_hint(
		&err, "A short statement_timeout ends that question too. Repeat the statement.");
	return client_error(c, &err, simple);
}

/* What runs beside the client's server does so under its settings. */
static bool settings_wait(struct client *c, bool simple, enum step *ret)
{
	switch (inspect_insist(c)) {
	case INSPECT_KNOWN:
		return false;
	case INSPECT_UNKNOWN:
		*ret = settings_unknown(c, simple);
		return true;
	case INSPECT_ASKED:
		break;
	}
	*ret = STEP_END;
	if (c->state != CLIENT_DEAD) {
		client_move(c, CLIENT_BARRIER);
		*ret = STEP_WAIT;
	}
	return true;
}

/* A statement that waits for something is executed again later: ask what it needs before. */
static bool must_wait(struct client *c, const struct lstmt *l, bool simple, enum step *ret)
{
	struct stmt_shape shape = {0};

	l->icpt->stmt_shape(l->stmt, &shape);
	if (shape.by_itself && !simple && c->head.next < 0) {
		*ret = STEP_MORE;
		return true;
	}
	if ((simple || shape.barrier) && !client_barrier(c)) {
		*ret = c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		return true;
	}
	if (!shape.own_server && !(shape.in_place && in_place(c, simple)))
		return settings_wait(c, simple, ret);
	if (client_need_server(c))
		return false;
	*ret = c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	return true;
}

/* A replacement was sent; is the statement to be executed again behind it? */
static enum step sent(struct client *c, enum step step, bool again)
{
	if (step != STEP_NEXT || !again)
		return step;
	(void)client_barrier(c); /* holds: its answer has not come */
	return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
}

static enum step run_simple(struct client *c, struct lstmt *l)
{
	struct exec x;
	enum step step = STEP_NEXT;
	bool again;

	if (client_tx(c) == CLIENT_TX_FAILED)
		return local_aborted(c, true);
	if (must_wait(c, l, true, &step))
		return step;
	local_exec_init(&x, c, l, true);
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		again = x.replace->again;
		return sent(c, replace_simple(c, x.replace), again);
	case EXEC_ANSWER:
		return local_answer_simple(c, &x.answer, l);
	case EXEC_PARK:
		return x.forgets ? local_park_forgetting(c, l) : local_park(c, l, NULL, 0);
	case EXEC_WAIT:
		return client_wait_again(c);
	case EXEC_ERROR:
		return client_error(c, &x.err, true);
	case EXEC_CLOSE:
		break;
	}
	return STEP_END;
}

/* Claims a statement that has no parameters, as in any simple query. */
struct lstmt *local_claim_simple(
	struct client *c, const char *sql, size_t len, struct pg_error *err)
{
	struct lstmt *l = lstmt_claimed(c, sql, len, NULL, 0, err);
	struct stmt_shape shape = {0};

	CHECK_CLIENT(c);
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
	struct lstmt *l = local_claim_simple(c, sql, len, &err);
	enum step step;

	CHECK_CLIENT(c);
	if (l == NULL)
		return client_barrier(c) ? client_error(c, &err, true) : STEP_WAIT;
	step = run_simple(c, l);
	lstmt_drop(&l);
	return step;
}

static enum step run_execute(struct client *c, struct portal *p, int32_t max_rows)
{
	struct exec x;
	enum step step = STEP_NEXT;
	enum exec_verdict verdict;
	bool executed_before, again;

	if (client_tx(c) == CLIENT_TX_FAILED)
		return local_aborted(c, false);
	if (must_wait(c, p->stmt, false, &step))
		return step;
	local_exec_init(&x, c, p->stmt, false);
	x.max_rows = max_rows;
	x.bind.n_params = p->n_params;
	x.bind.params = p->params;
	x.bind.n_formats = p->n_formats;
	x.bind.formats = p->formats;
	p->executed = true;
	executed_before = c->tx.executed;
	c->tx.executed = true;
	util_strlcpy(p->tag, "SELECT 0", sizeof(p->tag));
	if (!c->head.promised)
		conn_keep_back(c->conn); /* BindComplete and the columns go out with what follows */
	verdict = p->stmt->icpt->execute(&x);
	if (verdict != EXEC_PARK && verdict != EXEC_REPLACE)
		client_show_beginning(c);
	switch (verdict) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(p->stmt);
		again = x.replace->again;
		p->executed = !again;
		return sent(c, local_replace_execute(c, p, x.replace), again);
	case EXEC_ANSWER:
		return local_answer_execute(c, &x.answer, p, max_rows);
	case EXEC_PARK:
		return local_park(c, p->stmt, p, max_rows);
	case EXEC_WAIT:
		p->executed = false;
		c->tx.executed = executed_before;
		return client_wait_again(c);
	case EXEC_ERROR:
		return client_error(c, &x.err, false);
	case EXEC_CLOSE:
		break;
	}
	return STEP_END;
}

/* The server tells: it alone knows the parameters of the client's own SQL. */
static enum step describe_replacement(struct client *c, struct replace *r)
{
	struct replaced *rp = replaced_new(1);
	struct server *s = c->link;
	struct pstmt *ps;
	char name[PSTMT_NAME_SIZE];
	struct buf b = BUF_INIT;
	struct sql_text t;
	bool ok;

	text_of(&t, c, r, SQL_OF_PARSE);
	ps = reading_statement(c, &t, r->oids, r->n_oids);
	if (rp == NULL || ps == NULL || buf_failed(&r->sql)) {
		pstmt_drop(&ps);
		replaced_free(&rp, NULL, false);
		replace_free(&r);
		client_out_of_memory(c);
		return STEP_END;
	}
	rp->list[0] = r;
	build_describe(&b, 'S', pstmt_name(ps, name));
	ok = extq_server_prepare(s, ps, &dest_swallow);
	pstmt_drop(&ps);
	if (!ok) {
		replaced_free(&rp, NULL, false);
		buf_free(&b);
		return STEP_END;
	}
	if (!server_expect(s, EXPECT_DESCRIBE, &dest_replace, rp) || !server_send(s, &b)) {
		buf_free(&b);
		return STEP_END;
	}
	return STEP_NEXT;
}

enum step local_describe(struct client *c, struct lstmt *l)
{
	struct exec x;

	CHECK_CLIENT(c);
	if (client_tx(c) == CLIENT_TX_FAILED)
		return local_aborted(c, false);
	if (!client_need_server(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	local_exec_init(&x, c, l, false);
	x.describe = true;
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		return describe_replacement(c, x.replace);
	case EXEC_WAIT:
		return client_wait_again(c);
	case EXEC_ERROR:
		return client_error(c, &x.err, false);
	case EXEC_ANSWER:
	case EXEC_PARK:
	case EXEC_CLOSE:
		break;
	}
	return STEP_END;
}

enum step local_execute(struct client *c, struct portal *p, int32_t max_rows)
{
	CHECK_CLIENT(c);
	/* a portal runs once; what is left of its rows may be fetched */
	if (p->stmt->kind != LSTMT_CLAIMED)
		return local_execute_tx(c, p);
	return p->executed ? local_answer_rows(c, p, max_rows) : run_execute(c, p, max_rows);
}

void replaced_free(struct replaced **p, struct client *c, bool ok)
{
	struct replaced *r = *p;

	*p = NULL;
	if (r == NULL)
		return;
	for (int i = 0; i < r->n; i++) {
		struct replace *one = r->list[i];

		/* those before `at` have been told */
		if (one != NULL && i >= r->at && one->on_done != NULL && c != NULL)
			one->on_done(c, one->arg, ok && !r->failed, 0);
		replace_free(&r->list[i]);
	}
	mem_free(r->list);
	mem_free(r);
}
