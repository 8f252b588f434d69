/*
 * Bind: to a statement of the client's own, under the name by which its server knows it; to one
 * that we answer, with a copy of the values.
 */
#include <string.h>

#include "extq_int.h"

bool extq_portal_is_decided(struct client *c, const char *name)
{
	const struct portal *p = portal_find(c, name);

	CHECK_CLIENT(c);
	return p == NULL || !p->synced || client_barrier(c);
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

/* What stands behind the names. */
struct values {
	const uint8_t *data;
	size_t len;
	int n;
};

/* How many there are, for which a portal has to have room. */
static bool count_values(const struct wire_msg *m, const char *stmt, struct values *ret)
{
	struct wire_reader r;
	size_t n_formats;

	ret->data = (const uint8_t *)stmt + strlen(stmt) + 1;
	ret->len = (size_t)(m->body + m->have - ret->data);
	wire_reader_init(&r, ret->data, ret->len);
	n_formats = (uint16_t)wire_get_i16(&r);
	(void)wire_get_bytes(&r, 2 * n_formats);
	ret->n = (uint16_t)wire_get_i16(&r);
	return !r.failed && wire_left(&r) / 4 >= (size_t)ret->n &&
	       (n_formats <= 1 || n_formats == (size_t)ret->n);
}

/* In their place, as numbers of this machine. What is before them has been read, at least two bytes. */
static int16_t *formats_in_place(struct wire_reader *r, int *ret_n)
{
	int n = (uint16_t)wire_get_i16(r);
	const uint8_t *bytes = wire_get_bytes(r, 2 * (size_t)n);
	int16_t *ret;

	if (bytes == NULL || r->failed)
		return NULL;
	ret = (int16_t *)(uintptr_t)((uintptr_t)bytes & ~(uintptr_t)1);
	for (int i = 0; i < n; i++)
		ret[i] = (int16_t)(bytes[2 * i] << 8 | bytes[2 * i + 1]);
	*ret_n = n;
	return ret;
}

/* One piece of memory: the portal with its name, its parameters, and the copy of the values to which they point. */
static struct portal *portal_new(const char *name, const struct values *v)
{
	size_t align = _Alignof(struct bind_param), head = sizeof(struct portal) + strlen(name) + 1;
	size_t params = (head + align - 1) / align * align;
	size_t bind = params + (size_t)v->n * sizeof(struct bind_param), size = bind + v->len;
	struct portal *p = block_get(size);

	if (p == NULL)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->size = size;
	memcpy(p->name, name, strlen(name) + 1);
	p->params = (struct bind_param *)(void *)((uint8_t *)p + params);
	p->n_params = v->n;
	memcpy((uint8_t *)p + bind, v->data, v->len);
	return p;
}

static bool read_values(struct portal *p, const struct values *v)
{
	struct wire_reader r;
	const uint8_t *formats;
	int n_formats;

	wire_reader_init(&r, (const uint8_t *)(p->params + v->n), v->len);
	n_formats = (uint16_t)wire_get_i16(&r);
	formats = wire_get_bytes(&r, 2 * (size_t)n_formats);
	(void)wire_get_i16(&r);
	for (int i = 0; i < v->n; i++) {
		struct bind_param *bp = &p->params[i];
		const uint8_t *f = formats + (n_formats == 1 ? 0 : 2 * i);

		*bp = (struct bind_param){.len = wire_get_i32(&r),
			.format = (int16_t)(n_formats == 0 ? 0 : f[0] << 8 | f[1])};
		if (bp->len >= 0)
			bp->data = wire_get_bytes(&r, (size_t)bp->len);
		if (bp->len < -1)
			return false;
	}
	p->formats = formats_in_place(&r, &p->n_formats);
	return p->formats != NULL && wire_done(&r);
}

/* Does the server hold portals of the client's, or may it soon? */
static bool may_have_portals(const struct client *c)
{
	const struct server *s = c->link;

	return s != NULL && c->tx.virtual == VTX_NONE &&
	       (s->tx != 'I' || s->batch.unsynced || s->expect.count > 0);
}

/* A portal of nothing under the client's name: the server knows whether that is taken. */
static bool place_portal(struct client *c, const char *portal)
{
	struct pstmt *nothing;
	char name[PSTMT_NAME_SIZE];
	struct buf b = BUF_INIT;
	struct sql_text t;
	size_t start;
	bool ok;

	sql_text_init(&t, "", 0, SQL_STANDARD, SQL_OF_PARSE);
	nothing = pstmt_get(NULL, &t, NULL, 0);
	if (nothing == NULL)
		return client_out_of_memory(c);
	ok = extq_server_prepare(c->link, nothing, &dest_swallow) &&
	     client_expect(c, EXPECT_BIND, &dest_swallow, NULL);
	pstmt_name(nothing, name);
	pstmt_drop(&nothing);
	if (!ok)
		return false;
	start = build_begin(&b, 'B');
	build_cstr(&b, portal);
	build_cstr(&b, name);
	for (int i = 0; i < 3; i++)
		build_i16(&b, 0);
	build_end(&b, start);
	return server_send(c->link, &b);
}

/* Has the claimant to find out what the statement's columns or parameters are? */
bool extq_shape_ready(
	struct client *c, const struct lstmt *l, const struct portal *p, bool describes)
{
	struct bind_values bind;

	CHECK_CLIENT(c);
	if (l->kind != LSTMT_CLAIMED || l->icpt->shape_ready == NULL ||
		client_tx(c) == CLIENT_TX_FAILED)
		return true;
	if (p == NULL)
		return l->icpt->shape_ready(c, l->stmt, NULL, describes);
	bind = (struct bind_values){.n_params = p->n_params,
		.params = p->params,
		.n_formats = p->n_formats,
		.formats = p->formats};
	return l->icpt->shape_ready(c, l->stmt, &bind, describes);
}

static enum step bind_local(struct client *c, const struct wire_msg *m, const char *portal,
	const char *stmt, struct lstmt *l)
{
	struct portal *old = portal_find(c, portal), *p;
	struct stmt_shape shape = {0};
	struct values values;
	enum step step;

	if (!wire_complete(m)) {
		if (m->total > STATEMENT_MAX * 4u)
			return client_protocol_error(c, "QUEUE parameters are too long");
		return STEP_MORE;
	}
	if (!extq_portal_is_decided(c, portal))
		return STEP_WAIT;
	old = portal_find(c, portal);
	if (l->tx != SQL_TX_COMMIT && l->tx != SQL_TX_ROLLBACK &&
		extq_refused_in_failed(c, l->kind != LSTMT_CLAIMED, &step))
		return step;
	if (old != NULL && portal[0] != '\0')
		return extq_refuse(c, "42P03", "cursor \"%s\" already exists", portal);
	if (!count_values(m, stmt, &values))
		return client_bad_message(c, m);
	p = portal_new(portal, &values);
	if (p == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	p->stmt = lstmt_ref(l);
	if (!read_values(p, &values)) {
		portal_free(&p);
		return client_bad_message(c, m);
	}
	if (!extq_shape_ready(c, l, p, false)) {
		portal_free(&p);
		return client_wait_again(c);
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
	/* the end of the block is the end of all portals, and in a failed one there is nothing else
	 */
	if (portal[0] != '\0' && l->tx != SQL_TX_COMMIT && l->tx != SQL_TX_ROLLBACK &&
		may_have_portals(c)) {
		p->placed = true;
		if (!place_portal(c, portal))
			return STEP_END;
	}
	if (c->pool != NULL)
		c->pool->stats.binds += stmt[0] != '\0' && cstmt_tracks_names(c);
	return extq_emit_simple(c, '2');
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
	if (!extq_server_prepare(c->link, ps, &dest_swallow) ||
		!client_expect(c, EXPECT_BIND, &dest_client, NULL))
		return STEP_END;
	build_u8(&b, 'B');
	build_i32(&b, (int64_t)total - 1);
	build_cstr(&b, portal);
	build_cstr(&b, name);
	build_bytes(&b, m->body + names, here);
	c->pool->stats.binds++;
	if (!server_send(c->link, &b))
		return STEP_END;
	c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
	c->pass_discard = false;
	return c->pass_left > 0 ? STEP_STREAM : STEP_NEXT;
}

/* The unnamed statement may have been parsed on another server, or replaced there by somebody
 * else's. */
bool extq_restore_unnamed(struct client *c)
{
	struct pstmt *ps = c->unnamed != NULL ? c->unnamed->p : NULL;
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (!cstmt_tracks_names(c) || ps == NULL || server_has_unnamed(c->link, ps))
		return true;
	if (!server_put_reading(c->link, ps, false))
		return false;
	build_parse(&b, "", ps->text.sql, ps->text.len, pstmt_oids(ps), ps->n_oids);
	if (!server_expect_unnamed(c->link, ps, &dest_swallow)) {
		buf_free(&b);
		return false;
	}
	return server_send(c->link, &b) && server_put_reading(c->link, ps, true);
}

static enum step bind_own(struct client *c, const struct wire_msg *m, const char *portal,
	const char *stmt, struct cstmt *st)
{
	unsigned touches;

	if (stmt[0] != '\0' && st == NULL && cstmt_tracks_names(c))
		return extq_refuse(c, "26000", "prepared statement \"%s\" does not exist", stmt);
	if (stmt[0] == '\0' && st == NULL && (c->link == NULL || !server_has_raw_unnamed(c->link)))
		return extq_refuse(c, "26000", "unnamed prepared statement does not exist%s", "");
	if (c->tx.virtual == VTX_FAILED)
		return extq_refuse_failed(c);
	if (!extq_portal_is_decided(c, portal))
		return STEP_WAIT;
	if (portal[0] != '\0' && portal_find(c, portal) != NULL)
		return extq_refuse(c, "42P03", "cursor \"%s\" already exists", portal);
	if (!client_need_server(c))
		return STEP_WAIT;
	if (st != NULL && !cstmt_is_readable(c, st))
		return STEP_WAIT;
	touches = st != NULL ? sql_touches(&st->p->text) : 0;
	if (touches != 0 && session_pin_refused(c, &st->p->text))
		return client_refuse_pin(c, false);
	portal_drop(c, portal_find(c, portal));
	if (st != NULL && (touches != 0 || c->pins != 0))
		session_touch(c, &st->p->text, touches);
	if (st == NULL && stmt[0] == '\0')
		session_touch_again(c->link);
	else if (st == NULL)
		session_bound(c->link, stmt);
	if (stmt[0] != '\0' && st != NULL)
		return bind_renamed(c, m, portal, stmt, st->p);
	if (!extq_restore_unnamed(c) || !client_expect(c, EXPECT_BIND, &dest_client, NULL))
		return STEP_END;
	return client_forward(c, m);
}

enum step extq_bind(struct client *c, const struct wire_msg *m)
{
	const char *portal, *stmt;
	struct cstmt *st;

	CHECK_CLIENT(c);
	if (c->request_time == 0)
		c->request_time = loop_now();
	switch (bind_names(m, &portal, &stmt)) {
	case 0:
		return STEP_MORE;
	case -1:
		return client_bad_message(c, m);
	}
	if (!cstmt_is_decided(c, stmt))
		return STEP_WAIT;
	st = extq_find(c, stmt);
	if (st != NULL && st->l != NULL)
		return bind_local(c, m, portal, stmt, st->l);
	return bind_own(c, m, portal, stmt, st);
}
