/*
 * Extended protocol: Parse, Bind, Describe, Execute, Close. In transaction and statement pooling
 * each client has its own statement names; a server knows a text by a name of ours and is told it
 * when first needed. Statements of a claimant, and transaction control, live here and never reach a
 * server under the client's name.
 *
 * Session pooling: names of the client's own statements pass through as they are.
 */
#include <string.h>

#include "pool_int.h"

/* --- names
 * --------------------------------------------------------------------------------------------- */

static bool tracks_names(const struct client *c)
{
	return c->pool != NULL && route_pool_mode(c->pool) != POOL_MODE_SESSION &&
	       conf_current()->p.max_prepared_statements > 0;
}

struct cstmt *extq_find(struct client *c, const char *name)
{
	struct cstmt *st = NULL;

	if (name[0] == '\0')
		return c->unnamed;
	HASH_FIND_STR(c->stmts, name, st);
	return st;
}

static void cstmt_drop(struct cstmt *st)
{
	while (st->name[0] == '\0' && st->next != NULL) {
		struct cstmt *old = st->next;

		st->next = old->next;
		old->next = NULL;
		cstmt_drop(old);
	}
	if (--st->refs > 0)
		return;
	pstmt_drop(&st->p);
	lstmt_drop(&st->l);
	mem_free(st);
}

static void unlist(struct client *c, struct cstmt *st)
{
	if (st->prev == NULL)
		return;
	DL_DELETE(c->unconfirmed, st);
	st->prev = st->next = NULL;
}

static void confirm(struct client *c, struct cstmt *st)
{
	st->confirmed = true;
	unlist(c, st);
}

void extq_forget(struct client *c, struct cstmt **p)
{
	struct cstmt *st = *p;

	if (st == NULL)
		return;
	*p = NULL;
	if (st == c->unnamed) {
		c->unnamed = NULL;
		st->closed = true;
	} else if (st->name[0] != '\0') {
		HASH_DEL(c->stmts, st);
		unlist(c, st);
		st->closed = true;
	}
	cstmt_drop(st);
}

/* It depends on the end of an earlier batch. */
static bool undecided(const struct client *c, const struct cstmt *st)
{
	return !st->confirmed && c->link != NULL && st->batch != c->link->batch;
}

/* A name whose meaning depends on answers that have not come. false: the client waits for them. */
static bool name_is_decided(struct client *c, const char *name)
{
	struct cstmt *st = extq_find(c, name);

	if (c->link == NULL)
		return true;
	if (st != NULL ? undecided(c, st) || (c->link->discarding && name[0] != '\0')
		       : c->closing > 0)
		return local_barrier(c);
	return true;
}

/* Takes the reference of p or l. */
static struct cstmt *remember(struct client *c, const char *name, struct pstmt *p, struct lstmt *l)
{
	struct cstmt *st = mem_zalloc(sizeof(*st) + strlen(name) + 1);

	if (st == NULL) {
		pstmt_drop(&p);
		lstmt_drop(&l);
		client_out_of_memory(c);
		return NULL;
	}
	st->p = p;
	st->l = l;
	st->refs = 1;
	st->batch = c->link != NULL ? c->link->batch : 0;
	memcpy(st->name, name, strlen(name) + 1);
	if (name[0] == '\0') {
		st->confirmed = l != NULL && !client_is_owed(c);
		if (st->confirmed)
			extq_forget(c, &c->unnamed);
		else
			st->next = c->unnamed;
		c->unnamed = st;
		return st;
	}
	HASH_ADD_STR(c->stmts, name, st);
	if (st->hh.tbl == NULL) {
		cstmt_drop(st);
		client_out_of_memory(c);
		return NULL;
	}
	DL_APPEND(c->unconfirmed, st);
	return st;
}

/* The first in time of those whose answers have not come. */
static void confirm_unnamed(struct client *c, const struct pstmt *p)
{
	struct cstmt *st, *found = NULL;

	for (st = c->unnamed; st != NULL && !st->confirmed; st = st->next)
		if (st->p == p)
			found = st;
	if (found == NULL)
		return;
	found->confirmed = true;
	if (found->next != NULL) {
		cstmt_drop(found->next);
		found->next = NULL;
	}
}

void extq_confirm(struct client *c, struct pstmt *p, bool unnamed)
{
	struct cstmt *st, *tmp;

	if (unnamed) {
		confirm_unnamed(c, p);
		return;
	}
	DL_FOREACH_SAFE (c->unconfirmed, st, tmp)
		if (st->p == p) {
			confirm(c, st);
			return;
		}
}

/* A batch has failed: what it parsed does not exist, unless its ParseComplete was seen. */

/* uint16 that counts on and on */
static bool is_later(uint16_t a, uint16_t b)
{
	return (int16_t)(uint16_t)(a - b) > 0;
}

static void forget_unnamed(struct client *c, uint16_t batch, bool at_parse)
{
	struct cstmt **at = &c->unnamed, *st;

	while (*at != NULL && !(*at)->confirmed && is_later((*at)->batch, batch))
		at = &(*at)->next;
	while ((st = *at) != NULL && (at_parse || !st->confirmed)) {
		*at = st->next;
		st->next = NULL;
		st->closed = true;
		cstmt_drop(st);
	}
}

void extq_forget_unconfirmed(struct client *c, uint16_t batch, bool at_parse)
{
	struct cstmt *st, *tmp;

	DL_FOREACH_SAFE (c->unconfirmed, st, tmp) {
		/* what was parsed behind the Sync to come is another batch */
		if (is_later(st->batch, batch))
			continue;
		if (st->closed)
			unlist(c, st); /* its entry of `expect` has it */
		else
			extq_forget(c, &st);
	}
	forget_unnamed(c, batch, at_parse);
}

void extq_forget_all(struct client *c)
{
	struct cstmt *st, *tmp;

	HASH_ITER (hh, c->stmts, st, tmp)
		if (st->confirmed)
			extq_forget(c, &st);
}

void extq_free(struct client *c)
{
	struct cstmt *st, *tmp;

	HASH_ITER (hh, c->stmts, st, tmp)
		extq_forget(c, &st);
	extq_forget(c, &c->unnamed);
}

/* Comes back when the Close was skipped, unless its own Parse was. */
static void unclose(struct client *c, struct cstmt *st)
{
	struct cstmt *other = NULL;

	HASH_FIND_STR(c->stmts, st->name, other);
	if (!st->confirmed || other != NULL)
		return;
	memset(&st->hh, 0, sizeof(st->hh));
	HASH_ADD_STR(c->stmts, name, st);
	if (st->hh.tbl == NULL)
		return;
	st->closed = false;
	st->refs++;
}

void extq_local_done(struct client *c, struct expect *e, bool ok)
{
	struct cstmt *st = e->arg;

	e->arg = NULL;
	if (c != NULL && e->kind == EXPECT_CLOSED) {
		c->closing--;
		unlist(c, st);
		if (!ok)
			unclose(c, st);
	} else if (c != NULL && ok && !st->confirmed) {
		if (st->name[0] != '\0')
			confirm(c, st);
		else if (!st->closed)
			confirm_unnamed(c, NULL);
	}
	cstmt_drop(st);
}

/* --- small answers
 * ---------------------------------------------------------------------------------------- */

static enum step emit(struct client *c, struct buf *b)
{
	client_emit(c, b);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

static enum step emit_simple(struct client *c, uint8_t type)
{
	struct buf b = BUF_INIT;

	build_simple(&b, type);
	return emit(c, &b);
}

static enum step refuse(struct client *c, const char *sqlstate, const char *fmt, const char *name)
{
	struct pg_error err;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	pg_error_set(&err, sqlstate, fmt, name);
#pragma GCC diagnostic pop
	return client_error(c, &err, false);
}

static enum step refuse_failed(struct client *c)
{
	return refuse(c, "25P02",
		"current transaction is aborted, commands ignored until end of transaction block%s",
		"");
}

/* Is the block aborted, so that this fails? What is under way may end it; or abort it, which is
 * asked for where no pipeline is slowed down by the question. */
static bool refused_in_failed(struct client *c, bool exact, enum step *ret)
{
	if (c->console || (client_tx(c) != CLIENT_TX_FAILED && !exact))
		return false;
	if (c->vtx == VTX_NONE && !local_barrier(c)) {
		*ret = STEP_WAIT;
		return true;
	}
	if (client_tx(c) != CLIENT_TX_FAILED)
		return false;
	*ret = refuse_failed(c);
	return true;
}

/* --- Parse
 * ---------------------------------------------------------------------------------------------------
 */

struct parse {
	const char *name, *sql;
	size_t sql_len;
	uint32_t *oids;
	int n_oids;
};

static bool read_parse(const struct wire_msg *m, struct parse *ret)
{
	struct wire_reader r;
	int n;

	wire_reader_init(&r, m->body, m->have);
	ret->name = wire_get_cstr(&r, NULL);
	ret->sql = wire_get_cstr(&r, &ret->sql_len);
	n = (uint16_t)wire_get_i16(&r);
	ret->n_oids = n;
	ret->oids = NULL;
	if (r.failed || wire_left(&r) != (size_t)n * 4)
		return false;
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
		return client_expect(c, EXPECT_PARSED, DEST_CLIENT, st) ? STEP_NEXT : STEP_END;
	}
	if (st->name[0] != '\0')
		confirm(c, st);
	return emit_simple(c, '1');
}

static enum step parse_local(struct client *c, const struct parse *p, struct lstmt *l)
{
	if (l == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	return parse_known(c, remember(c, p->name, NULL, l));
}

static enum step parse_claimed(struct client *c, const struct parse *p)
{
	struct pg_error err;
	struct lstmt *l = lstmt_claimed(c, p->sql, p->sql_len, p->oids, p->n_oids, &err);

	return l != NULL ? parse_local(c, p, l) : client_error(c, &err, false);
}

/* As the client sent it: session pooling, or too long to be kept. */
static enum step parse_raw(struct client *c, const struct parse *p, const struct wire_msg *m)
{
	if (p->name[0] == '\0') {
		/* an error before it in the batch would skip it, and what it replaces would stay */
		if (c->unnamed != NULL && !local_barrier(c))
			return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		extq_forget(c, &c->unnamed);
		server_drop_unnamed(c->link);
		c->link->unnamed_raw = true;
	}
	c->link->unsynced = true;
	c->pool->stats.server_parses++;
	if (!client_expect(c, EXPECT_PARSE, DEST_CLIENT, NULL))
		return STEP_END;
	return client_forward(c, m);
}

static enum step parse_unnamed(struct client *c, struct pstmt *ps, const struct wire_msg *m)
{
	c->link->unsynced = true;
	c->pool->stats.server_parses++;
	if (remember(c, "", pstmt_ref(ps), NULL) == NULL ||
		!server_expect_unnamed(c->link, ps, DEST_CLIENT))
		return STEP_END;
	return client_forward(c, m);
}

static enum step parse_named(struct client *c, const struct parse *p, struct pstmt *ps)
{
	bool known = server_has_prepared(c->link, ps);
	struct cstmt *st = remember(c, p->name, pstmt_ref(ps), NULL);

	if (st == NULL || !extq_server_prepare(c->link, ps, DEST_CLIENT))
		return STEP_END;
	return known ? parse_known(c, st) : STEP_NEXT;
}

/* Programs send the same unnamed statement over and over: that one needs no search. */
static struct pstmt *parse_text(const struct client *c, const struct parse *p)
{
	struct pstmt *last = c->unnamed != NULL ? c->unnamed->p : NULL;

	if (p->name[0] == '\0' && last != NULL &&
		pstmt_is(last, p->sql, p->sql_len, p->oids, p->n_oids))
		return pstmt_ref(last);
	return pstmt_get(p->sql, p->sql_len, p->oids, p->n_oids);
}

static enum step parse_own(struct client *c, const struct parse *p, const struct wire_msg *m)
{
	struct pstmt *ps;
	enum step step;

	if (c->vtx == VTX_FAILED)
		return refuse_failed(c);
	if (!client_need_server(c))
		return STEP_WAIT;
	if (util_lower(p->sql[0]) == 'd' &&
		sql_prep_classify(p->sql, p->sql_len, NULL) > SQL_PREP_DEALLOCATE)
		c->link->discarding = true;
	if (!tracks_names(c) || (p->name[0] == '\0' && p->sql_len > INTERN_MAX))
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

static enum step parse(struct client *c, const struct parse *p, const struct wire_msg *m)
{
	enum sql_tx tx = SQL_TX_OTHER;
	enum step step;

	if (p->name[0] != '\0' && !name_is_decided(c, p->name))
		return STEP_WAIT;
	if (p->name[0] != '\0' && extq_find(c, p->name) != NULL)
		return refuse(c, "42P05", "prepared statement \"%s\" already exists", p->name);
	if (c->pool != NULL)
		c->pool->stats.client_parses++;
	if (c->icpt->claim(c, p->sql, p->sql_len, true) == CLAIM_MINE) {
		if (refused_in_failed(c, false, &step))
			return step;
		return parse_claimed(c, p);
	}
	if (p->sql_len < 1024)
		tx = sql_tx_classify(p->sql, p->sql_len);
	if (tx == SQL_TX_BEGIN && refused_in_failed(c, true, &step))
		return step;
	if (tx != SQL_TX_OTHER)
		return parse_local(c, p, lstmt_tx(tx, p->sql, p->sql_len));
	return parse_own(c, p, m);
}

enum step extq_parse(struct client *c, const struct wire_msg *m)
{
	struct parse p;
	enum step step;
	struct pg_error err;

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
	if (!read_parse(m, &p)) {
		mem_free(p.oids);
		return client_bad_message(c, m);
	}
	step = parse(c, &p, m);
	mem_free(p.oids);
	return step;
}

/* --- Bind
 * --------------------------------------------------------------------------------------------------------
 */

/* The transaction that a portal belongs to may be ending. false: the client waits for the news. */
static bool portal_is_decided(struct client *c, const char *name)
{
	const struct portal *p = portal_find(c, name);

	return p == NULL || !p->synced || local_barrier(c);
}

/* Portal and statement names, at the start of the body. 1: here, 0: not yet, -1: never. */
static int bind_names(const struct wire_msg *m, const char **portal, const char **stmt)
{
	const uint8_t *end = m->body + m->have, *a = memchr(m->body, 0, m->have), *b;

	b = a != NULL ? memchr(a + 1, 0, (size_t)(end - a - 1)) : NULL;
	if (b == NULL)
		return wire_complete(m) || m->have > STATEMENT_MAX ? -1 : 0;
	*portal = (const char *)m->body;
	*stmt = (const char *)a + 1;
	return 1;
}

static bool read_formats(struct wire_reader *r, int16_t **ret, int *ret_n)
{
	int n = (uint16_t)wire_get_i16(r);

	if (r->failed || wire_left(r) < (size_t)n * 2)
		return false;
	*ret = mem_alloc((size_t)n * sizeof(int16_t) + 1);
	if (*ret == NULL)
		return false;
	for (int i = 0; i < n; i++)
		(*ret)[i] = wire_get_i16(r);
	*ret_n = n;
	return true;
}

/* The values, in a copy that the portal owns. */
static bool read_values(struct portal *p, const struct wire_msg *m, const char *stmt)
{
	const uint8_t *start = (const uint8_t *)stmt + strlen(stmt) + 1;
	size_t len = (size_t)(m->body + m->have - start);
	int16_t *formats = NULL;
	int n_formats, n;
	struct wire_reader r;
	bool ok = false;

	p->bind = mem_dup(start, len);
	if (p->bind == NULL)
		return false;
	wire_reader_init(&r, p->bind, len);
	if (!read_formats(&r, &formats, &n_formats))
		return false;
	n = (uint16_t)wire_get_i16(&r);
	if (wire_left(&r) / 4 < (size_t)n || (n_formats > 1 && n_formats != n))
		goto out;
	p->params = mem_zalloc((size_t)n * sizeof(*p->params) + 1);
	if (p->params == NULL)
		goto out;
	p->n_params = n;
	for (int i = 0; i < n; i++) {
		struct bind_param *bp = &p->params[i];

		bp->len = wire_get_i32(&r);
		bp->format = n_formats == 0 ? 0 : formats[n_formats == 1 ? 0 : i];
		if (bp->len >= 0)
			bp->data = wire_get_bytes(&r, (size_t)bp->len);
		if (bp->len < -1)
			goto out;
	}
	ok = read_formats(&r, &p->formats, &p->n_formats) && wire_done(&r);
out:
	mem_free(formats);
	return ok;
}

static enum step bind_local(struct client *c, const struct wire_msg *m, const char *portal,
	const char *stmt, struct lstmt *l)
{
	struct portal *old = portal_find(c, portal), *p;
	struct stmt_shape shape = {0};
	enum step step;

	if (!wire_complete(m)) {
		if (m->total > STATEMENT_MAX * 4u)
			return client_protocol_error(c, "QUEUE parameters are too long");
		return STEP_MORE;
	}
	if (!portal_is_decided(c, portal))
		return STEP_WAIT;
	old = portal_find(c, portal);
	if (l->tx != SQL_TX_COMMIT && l->tx != SQL_TX_ROLLBACK &&
		refused_in_failed(c, l->kind != LSTMT_CLAIMED, &step))
		return step;
	if (old != NULL && portal[0] != '\0')
		return refuse(c, "42P03", "cursor \"%s\" already exists", portal);
	p = mem_zalloc(sizeof(*p) + strlen(portal) + 1);
	if (p == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	memcpy(p->name, portal, strlen(portal) + 1);
	p->stmt = lstmt_ref(l);
	if (!read_values(p, m, stmt)) {
		portal_free(&p);
		return client_bad_message(c, m);
	}
	if (l->kind == LSTMT_CLAIMED)
		l->icpt->stmt_shape(l->stmt, &shape);
	if (p->n_params != shape.n_params) {
		struct pg_error err;

		pg_error_set(&err, "08P01",
			"bind message supplies %d parameters, but prepared statement \"%s\" requires %d",
			p->n_params, stmt, shape.n_params);
		portal_free(&p);
		return client_error(c, &err, false);
	}
	for (int i = 0; i < p->n_params; i++)
		p->params[i].oid = shape.param_oids[i];
	portal_drop(c, old);
	p->next = c->portals;
	c->portals = p;
	if (c->pool != NULL)
		c->pool->stats.binds++;
	return emit_simple(c, '2');
}

/* The message with the server's name of the statement in it. */
static enum step bind_renamed(struct client *c, const struct wire_msg *m, const char *portal,
	const char *stmt, struct pstmt *ps)
{
	char name[PSTMT_NAME_SIZE];
	struct buf b = BUF_INIT;
	size_t names = strlen(portal) + 1 + strlen(stmt) + 1, here = m->have - names;
	uint32_t total;

	pstmt_name(ps, name);
	total = m->total - (uint32_t)strlen(stmt) + (uint32_t)strlen(name);
	if (!extq_server_prepare(c->link, ps, DEST_SWALLOW) ||
		!client_expect(c, EXPECT_BIND, DEST_CLIENT, NULL))
		return STEP_END;
	build_u8(&b, 'B');
	build_i32(&b, (int64_t)total - 1);
	build_cstr(&b, portal);
	build_cstr(&b, name);
	build_bytes(&b, m->body + names, here);
	c->link->unsynced = true;
	c->pool->stats.binds++;
	if (!server_send(c->link, &b))
		return STEP_END;
	c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
	c->pass_discard = false;
	return c->pass_left > 0 ? STEP_STREAM : STEP_NEXT;
}

/* The unnamed statement may have been parsed on another server, or replaced there by somebody
 * else's. */
static bool restore_unnamed(struct client *c)
{
	struct pstmt *ps = c->unnamed != NULL ? c->unnamed->p : NULL;
	struct buf b = BUF_INIT;

	if (!tracks_names(c) || ps == NULL || c->link->unnamed == ps)
		return true;
	build_parse(&b, "", pstmt_sql(ps), ps->sql_len, pstmt_oids(ps), ps->n_oids);
	c->link->unsynced = true;
	if (!server_expect_unnamed(c->link, ps, DEST_SWALLOW)) {
		buf_free(&b);
		return false;
	}
	return server_send(c->link, &b);
}

static enum step bind_own(
	struct client *c, const struct wire_msg *m, const char *portal, const char *stmt)
{
	struct cstmt *st = extq_find(c, stmt);

	if (stmt[0] != '\0' && st == NULL && tracks_names(c))
		return refuse(c, "26000", "prepared statement \"%s\" does not exist", stmt);
	if (stmt[0] == '\0' && st == NULL && (c->link == NULL || !c->link->unnamed_raw))
		return refuse(c, "26000", "unnamed prepared statement does not exist%s", "");
	if (c->vtx == VTX_FAILED)
		return refuse_failed(c);
	if (!portal_is_decided(c, portal))
		return STEP_WAIT;
	if (portal[0] != '\0' && portal_find(c, portal) != NULL)
		return refuse(c, "42P03", "cursor \"%s\" already exists", portal);
	if (!client_need_server(c))
		return STEP_WAIT;
	portal_drop(c, portal_find(c, portal));
	if (stmt[0] != '\0' && st != NULL)
		return bind_renamed(c, m, portal, stmt, st->p);
	if (!restore_unnamed(c) || !client_expect(c, EXPECT_BIND, DEST_CLIENT, NULL))
		return STEP_END;
	c->link->unsynced = true;
	c->pool->stats.binds++;
	return client_forward(c, m);
}

enum step extq_bind(struct client *c, const struct wire_msg *m)
{
	const char *portal, *stmt;
	struct cstmt *st;

	if (c->request_time == 0)
		c->request_time = loop_now();
	switch (bind_names(m, &portal, &stmt)) {
	case 0:
		return STEP_MORE;
	case -1:
		return client_bad_message(c, m);
	}
	if (!name_is_decided(c, stmt))
		return STEP_WAIT;
	st = extq_find(c, stmt);
	if (st != NULL && st->l != NULL)
		return bind_local(c, m, portal, stmt, st->l);
	return bind_own(c, m, portal, stmt);
}

/* --- Describe, Execute, Close
 * ------------------------------------------------------------------------------------------ */

/* Body of Describe and Close: kind and name. */
static bool read_target(const struct wire_msg *m, char *kind, const char **name)
{
	struct wire_reader r;

	wire_reader_init(&r, m->body, m->have);
	*kind = (char)wire_get_u8(&r);
	*name = wire_get_cstr(&r, NULL);
	return wire_done(&r) && (*kind == 'S' || *kind == 'P');
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

static enum step describe_local(struct client *c, const struct lstmt *l, const struct portal *p)
{
	struct stmt_shape shape = {0};
	struct buf b = BUF_INIT;

	if (l->kind == LSTMT_CLAIMED)
		l->icpt->stmt_shape(l->stmt, &shape);
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

	if (!extq_server_prepare(c->link, ps, DEST_SWALLOW) ||
		!client_expect(c, EXPECT_DESCRIBE, DEST_CLIENT, NULL))
		return STEP_END;
	c->link->unsynced = true;
	build_describe(&b, 'S', pstmt_name(ps, name));
	return server_send(c->link, &b) ? STEP_NEXT : STEP_END;
}

static enum step describe_own(
	struct client *c, const struct wire_msg *m, char kind, const char *name)
{
	struct cstmt *st = kind == 'S' ? extq_find(c, name) : NULL;

	if (kind == 'S' && st == NULL &&
		(name[0] != '\0' ? tracks_names(c) : c->link == NULL || !c->link->unnamed_raw))
		return refuse(c, "26000",
			name[0] != '\0' ? "prepared statement \"%s\" does not exist"
					: "unnamed prepared statement does not exist%s",
			name);
	if (c->vtx == VTX_FAILED && kind == 'P')
		return refuse(c, "34000", "portal \"%s\" does not exist", name);
	if (c->vtx == VTX_FAILED)
		return refuse_failed(c);
	if (!client_need_server(c))
		return STEP_WAIT;
	if (st != NULL && name[0] != '\0')
		return describe_renamed(c, st->p);
	if (kind == 'S' && !restore_unnamed(c))
		return STEP_END;
	c->link->unsynced = true;
	if (!client_expect(c, EXPECT_DESCRIBE, DEST_CLIENT, NULL))
		return STEP_END;
	return client_forward(c, m);
}

enum step extq_describe(struct client *c, const struct wire_msg *m)
{
	char kind;
	const char *name;
	struct cstmt *st;
	struct portal *p;

	if (!wire_complete(m))
		return m->total > STATEMENT_MAX ? client_bad_message(c, m) : STEP_MORE;
	if (!read_target(m, &kind, &name))
		return client_bad_message(c, m);
	if (kind == 'S') {
		if (!name_is_decided(c, name))
			return STEP_WAIT;
		st = extq_find(c, name);
		if (st != NULL && st->l != NULL)
			return describe_local(c, st->l, NULL);
	} else {
		if (!portal_is_decided(c, name))
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

	if (!wire_complete(m))
		return m->total > STATEMENT_MAX ? client_bad_message(c, m) : STEP_MORE;
	wire_reader_init(&r, m->body, m->have);
	name = wire_get_cstr(&r, NULL);
	max_rows = wire_get_i32(&r);
	if (!wire_done(&r))
		return client_bad_message(c, m);
	if (!portal_is_decided(c, name))
		return STEP_WAIT;
	p = portal_find(c, name);
	if (p != NULL)
		return local_execute(c, p, max_rows);
	/* no server has seen a failed block that is virtual, so there are no portals in it */
	if (c->vtx == VTX_FAILED || (c->link == NULL && tracks_names(c)))
		return refuse(c, "34000", "portal \"%s\" does not exist", name);
	if (!client_need_server(c))
		return STEP_WAIT;
	c->batch_executed = true;
	c->link->unsynced = true;
	if (!client_expect(c, EXPECT_EXECUTE, DEST_CLIENT, NULL))
		return STEP_END;
	return client_forward(c, m);
}

/* Gone at once, unless an error before it makes the Close void. */
static enum step close_known(struct client *c, struct cstmt *st)
{
	if (st == c->unnamed || !client_is_owed(c)) {
		extq_forget(c, &st);
		return emit_simple(c, '3');
	}
	HASH_DEL(c->stmts, st);
	st->closed = true;
	c->closing++;
	return client_expect(c, EXPECT_CLOSED, DEST_CLIENT, st) ? STEP_NEXT : STEP_END;
}

enum step extq_close(struct client *c, const struct wire_msg *m)
{
	char kind;
	const char *name;
	struct cstmt *st;
	struct portal *p;

	if (!wire_complete(m))
		return m->total > STATEMENT_MAX ? client_bad_message(c, m) : STEP_MORE;
	if (!read_target(m, &kind, &name))
		return client_bad_message(c, m);
	if (kind == 'S' && !name_is_decided(c, name))
		return STEP_WAIT;
	st = kind == 'S' ? extq_find(c, name) : NULL;
	p = kind == 'P' ? portal_find(c, name) : NULL;
	if (st != NULL)
		return close_known(c, st);
	portal_drop(c, p);
	if (kind == 'S' && name[0] == '\0' && c->link != NULL)
		c->link->unnamed_raw = false;
	/* what the server has under names of ours stays prepared there */
	if (p != NULL || c->link == NULL || (kind == 'S' && tracks_names(c)))
		return emit_simple(c, '3');
	c->link->unsynced = true;
	if (!client_expect(c, EXPECT_CLOSE, DEST_CLIENT, NULL))
		return STEP_END;
	return client_forward(c, m);
}
