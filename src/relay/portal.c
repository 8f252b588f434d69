/*
 * Portals of the statements that we answer, and the answers: at once, in parts by a row limit, or
 * later, of a client that is parked.
 */
#include <string.h>

#include "local_int.h"

/* Bytes of an answer in parts that its client has not read: more than for what passes through, as the server that is not
 * read meanwhile is one of few. */
#define UNREAD_MOST (1024 * 1024)

/* --- portals --- */

static size_t kept; /* rows of all of them */

/* Once for each that ends, too. */
static void drop_rows(struct portal *p)
{
	kept -= p->rows.len;
	buf_free(&p->rows);
}

size_t client_all_unread(void)
{
	return kept + conn_all_unread();
}

struct portal *portal_search(struct client *c, const char *name)
{
	struct portal *p = c->portals;

	CHECK_CLIENT(c);
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
	drop_rows(p);
	block_put(p, p->size);
}

void portal_drop(struct client *c, struct portal *p)
{
	struct portal **pp = &c->portals;

	if (p == NULL)
		return;
	while (*pp != p)
		pp = &(*pp)->next;
	*pp = p->next;
	if (c->parked.portal == p)
		c->parked.portal = NULL;
	portal_free(&p);
}

void portal_drop_all(struct client *c)
{
	CHECK_CLIENT(c);
	while (c->portals != NULL)
		portal_drop(c, c->portals);
}

/* A new transaction begins: those of the one before have ended. */
void portal_drop_synced(struct client *c)
{
	struct portal *p, *next;

	CHECK_CLIENT(c);
	for (p = c->portals; p != NULL; p = next) {
		next = p->next;
		if (p->synced)
			portal_drop(c, p);
	}
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

/* --- answers --- */

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

void local_put(struct buf *b, const struct buf *part)
{
	if (buf_failed(part))
		b->failed = true;
	else
		buf_put(b, part->data, part->len);
}

enum step local_emit(struct client *c, struct buf *b)
{
	CHECK_CLIENT(c);
	client_emit(c, b);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* The whole answer to a simple query. */
enum step local_answer_simple(struct client *c, struct answer *a, const struct lstmt *l)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	local_put(&b, &a->notices);
	if (!c->parked.begun)
		answer_columns(&b, a, l);
	c->parked.begun = false;
	local_put(&b, &a->rows);
	build_complete(&b, a->tag);
	build_ready(&b, client_status(c));
	answer_free(a);
	if (local_emit(c, &b) == STEP_END)
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

/* What a row limit leaves is kept in the portal. shown: of the rows that it lets through so many have gone before. */
static enum step answer_rows(struct client *c, struct portal *p, int32_t max_rows, int32_t shown)
{
	struct buf b = BUF_INIT;
	size_t n = p->rows.len - p->rows_pos;

	CHECK_CLIENT(c);
	if (max_rows > 0)
		n = rows_size(&p->rows, p->rows_pos, max_rows - shown);
	buf_put(&b, p->rows.data + p->rows_pos, n);
	p->rows_pos += n;
	if (p->rows_pos < p->rows.len) {
		build_simple(&b, 's');
	} else {
		build_complete(&b, p->tag);
		drop_rows(p);
		p->rows_pos = 0;
		if (strncmp(p->tag, "SELECT ", 7) == 0)
			util_strlcpy(p->tag, "SELECT 0", sizeof(p->tag));
	}
	return local_emit(c, &b);
}

enum step local_answer_rows(struct client *c, struct portal *p, int32_t max_rows)
{
	return answer_rows(c, p, max_rows, 0);
}

static enum step answer_execute(
	struct client *c, struct answer *a, struct portal *p, int32_t max_rows, int32_t shown)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	local_put(&b, &a->notices);
	if (b.len > 0 && local_emit(c, &b) == STEP_END)
		return STEP_END;
	if (buf_failed(&a->rows)) {
		answer_free(a);
		client_out_of_memory(c);
		return STEP_END;
	}
	drop_rows(p);
	p->rows = a->rows;
	kept += p->rows.len;
	p->rows_pos = 0;
	a->rows = BUF_INIT;
	util_strlcpy(p->tag, a->tag, sizeof(p->tag));
	answer_free(a);
	return answer_rows(c, p, max_rows, shown);
}

enum step local_answer_execute(
	struct client *c, struct answer *a, struct portal *p, int32_t max_rows)
{
	return answer_execute(c, a, p, max_rows, 0);
}

/* --- parking --- */

static void forgotten_shape(const void *stmt, struct stmt_shape *ret)
{
	(void)stmt;
	*ret = (struct stmt_shape){.barrier = true};
}

enum step local_park(struct client *c, struct lstmt *l, struct portal *p, int32_t max_rows)
{
	CHECK_CLIENT(c);
	INVARIANT(l != NULL && c->parked.stmt == NULL, "a client is parked twice");
	c->parked.stmt = lstmt_ref(l);
	c->parked.portal = p;
	c->parked.simple = p == NULL;
	c->parked.begun = false;
	c->parked.shown = 0;
	c->parked.max_rows = max_rows;
	client_move(c, CLIENT_PARKED);
	return STEP_PARKED;
}

/* Thousands may wait for long: instead of what was parsed something small stands for it. */
enum step local_park_forgetting(struct client *c, struct lstmt *l)
{
	static const struct interceptor forgotten = {
		.name = "forgotten", .stmt_shape = forgotten_shape};
	struct lstmt *f = mem_zalloc(offsetof(struct lstmt, text));
	enum step step;

	CHECK_CLIENT(c);
	if (f == NULL)
		return local_park(c, l, NULL, 0);
	f->kind = LSTMT_CLAIMED;
	f->refs = 1;
	f->icpt = &forgotten;
	step = local_park(c, f, NULL, 0);
	lstmt_drop(&f);
	return step;
}

/* The start of the request moves, by which its time is told. */
void client_waited(struct client *c, usec_t time)
{
	CHECK_CLIENT(c);
	if (c->request_time != 0)
		c->request_time += time;
}

enum part_taken client_answer_part(struct client *c, struct answer *a)
{
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return PART_REFUSED;
	INVARIANT(c->state == CLIENT_PARKED && c->parked.stmt != NULL,
		"a part of an answer for a client that is not parked");
	if (!c->parked.simple &&
		(c->parked.portal == NULL ||
			(c->parked.max_rows > 0 && a->n_rows > c->parked.max_rows)))
		return PART_REFUSED;
	if (c->parked.simple && !c->parked.begun) {
		answer_columns(&b, a, c->parked.stmt);
		c->parked.begun = true;
	}
	local_put(&b, &a->rows);
	buf_reset(&a->rows);
	c->parked.shown = a->n_rows;
	client_emit(c, &b);
	return c->conn != NULL && conn_pending_output(c->conn) >= UNREAD_MOST ? PART_FULL
									      : PART_TAKEN;
}

void client_answer(struct client *c, struct answer *a)
{
	struct lstmt *l = c->parked.stmt;
	struct portal *p = c->parked.portal;

	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD) { /* its claimant will hear of it */
		answer_free(a);
		return;
	}
	INVARIANT(c->state == CLIENT_PARKED && l != NULL,
		"an answer for a client that is not parked");
	c->parked.stmt = NULL;
	c->parked.portal = NULL;
	client_move(c, CLIENT_ACTIVE);
	if (c->parked.simple)
		local_answer_simple(c, a, l);
	else if (p != NULL)
		answer_execute(c, a, p, c->parked.max_rows, c->parked.shown);
	answer_free(a);
	lstmt_drop(&l);
	client_resume(c);
}

void client_fail(struct client *c, const struct pg_error *err)
{
	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	INVARIANT(c->state == CLIENT_PARKED, "an error for a client that is not parked");
	lstmt_drop(&c->parked.stmt);
	c->parked.portal = NULL;
	c->parked.begun = false;
	client_move(c, CLIENT_ACTIVE);
	client_error(c, err, c->parked.simple);
	client_resume(c);
}
