/*
 * Values as they go through the channel between two processes (move_int.h): what is put and what is
 * got, side by side. The reader fails as a whole (wire_reader), so nothing here is checked twice.
 */
#include <string.h>

#include "pool/reading.h"
#include "pooler_int.h"
#include "move_int.h"

void move_put_u64(struct buf *b, uint64_t v)
{
	buf_put(b, &v, sizeof(v));
}

uint64_t move_get_u64(struct wire_reader *r)
{
	const uint8_t *p = wire_get_bytes(r, sizeof(uint64_t));
	uint64_t v = 0;

	if (p != NULL)
		memcpy(&v, p, sizeof(v));
	return v;
}

void move_put_bytes(struct buf *b, const void *p, size_t len)
{
	build_i32(b, (int64_t)len);
	if (len > 0)
		buf_put(b, p, len);
}

const void *move_get_bytes(struct wire_reader *r, size_t *ret_len)
{
	int32_t len = wire_get_i32(r);
	const void *p;

	*ret_len = 0;
	if (len < 0) {
		r->failed = true;
		return NULL;
	}
	p = wire_get_bytes(r, (size_t)len);
	if (p != NULL)
		*ret_len = (size_t)len;
	return p;
}

void move_put_istr(struct buf *b, const struct istr *i)
{
	build_u8(b, i != NULL);
	if (i != NULL)
		move_put_bytes(b, istr_text(i), istr_len(i));
}

struct istr *move_get_istr(struct wire_reader *r)
{
	struct istr *i = NULL;
	const void *p;
	size_t len;

	if (wire_get_u8(r) == 0)
		return NULL;
	p = move_get_bytes(r, &len);
	if (!r->failed && (i = istr_get(p != NULL ? p : "", len)) == NULL)
		r->failed = true;
	return i;
}

void move_put_vars(struct buf *b, const struct vars *v)
{
	for (int i = 0; i < VAR_COUNT; i++)
		move_put_istr(b, v->v[i]);
}

void move_get_vars(struct wire_reader *r, struct vars *ret)
{
	for (int i = 0; i < VAR_COUNT; i++) {
		istr_drop(&ret->v[i]);
		ret->v[i] = move_get_istr(r);
	}
}

void move_put_secret(struct buf *b, const struct secret *s)
{
	move_put_bytes(b, s, sizeof(*s));
	build_cstr(b, s->plain != NULL ? s->plain : "");
}

void move_get_secret(struct wire_reader *r, struct secret *ret)
{
	struct secret s;
	size_t len;
	const void *p = move_get_bytes(r, &len);
	const char *plain = wire_get_cstr(r, NULL);

	if (r->failed || p == NULL || len != sizeof(s)) {
		r->failed = true;
		return;
	}
	memcpy(&s, p, sizeof(s));
	s.plain = s.kind == SECRET_PLAIN ? (char *)(uintptr_t)plain : NULL;
	secret_erase(ret);
	if (!secret_copy(ret, &s))
		r->failed = true;
	util_erase(&s, sizeof(s));
}

void move_put_entry(struct buf *b, const struct database *db)
{
	CHECK_DATABASE(db);
	build_cstr(b, db->host);
	build_i32(b, db->port);
	build_cstr(b, db->dbname);
	build_u8(b, (uint8_t)db->target);
}

bool move_same_entry(struct wire_reader *r, const struct database *db)
{
	const char *host = wire_get_cstr(r, NULL);
	int port = wire_get_i32(r);
	const char *dbname = wire_get_cstr(r, NULL);
	uint8_t target = wire_get_u8(r);

	CHECK_DATABASE(db);
	return !r->failed && db != NULL && strcmp(db->host, host) == 0 && db->port == port &&
	       strcmp(db->dbname, dbname) == 0 && db->target == target;
}

void move_put_peer(struct buf *b, const struct conn *c)
{
	const struct conn_addr *peer = conn_peer(c);

	build_u8(b, peer->is_unix);
	build_cstr(b, peer->host);
	build_i32(b, peer->port);
	build_u8(b, conn_host(c) != NULL);
	build_cstr(b, conn_host(c) != NULL ? conn_host(c) : "");
}

void move_get_peer(struct wire_reader *r, struct conn_addr *ret)
{
	ret->is_unix = wire_get_u8(r) != 0;
	util_strlcpy(ret->host, wire_get_cstr(r, NULL), sizeof(ret->host));
	ret->port = wire_get_i32(r);
}

/* --- prepared statements --- */

enum stmt_kind { STMT_SERVERS, STMT_CLAIMED, STMT_TX, STMT_SESSION };

static void put_text(struct buf *b, enum stmt_kind kind, int tx, const char *sql, size_t len,
	const uint32_t *oids, int n)
{
	build_u8(b, (uint8_t)kind);
	build_i32(b, tx);
	move_put_bytes(b, sql, len);
	move_put_bytes(b, oids, (size_t)n * sizeof(*oids));
}

static void put_reading(struct buf *b, const struct reading *r)
{
	build_u8(b, r != NULL);
	for (int i = 0; r != NULL && i < READING_COUNT; i++)
		move_put_istr(b, reading_values(r)[i]);
}

/* A reference; failed: memory, too. */
static struct reading *get_reading(struct wire_reader *rd)
{
	struct istr *v[READING_COUNT] = {NULL};
	struct reading *r = NULL;

	if (wire_get_u8(rd) == 0)
		return NULL;
	for (int i = 0; i < READING_COUNT; i++)
		v[i] = move_get_istr(rd);
	if (!rd->failed && (r = reading_get(v)) == NULL)
		rd->failed = true;
	for (int i = 0; i < READING_COUNT; i++)
		istr_drop(&v[i]);
	return r;
}

static void put_statement(struct buf *b, const struct client *c, const struct cstmt *st)
{
	const struct lstmt *l = st->l;
	const uint32_t *oids = NULL;
	const char *sql;
	int n = 0;

	build_cstr(b, st->name);
	if (st->p != NULL) {
		put_text(b, STMT_SERVERS, 0, st->p->text.sql, st->p->text.len, pstmt_oids(st->p),
			st->p->n_oids);
		put_reading(b, st->p->reading);
	} else if (l->kind == LSTMT_CLAIMED) {
		sql = c->icpt->stmt_text(l->stmt, &oids, &n);
		put_text(b, STMT_CLAIMED, 0, sql, strlen(sql), oids, n);
	} else {
		put_text(b, l->kind == LSTMT_SESSION ? STMT_SESSION : STMT_TX, (int)l->tx,
			l->text.sql, l->text.len, NULL, 0);
	}
}

void move_put_statements(struct buf *b, const struct client *c)
{
	const struct cstmt *st, *tmp;

	CHECK_CLIENT(c);
	build_i32(b, (int64_t)HASH_COUNT(c->stmts) + (c->unnamed != NULL));
	HASH_ITER (hh, c->stmts, st, tmp)
		put_statement(b, c, st);
	if (c->unnamed != NULL)
		put_statement(b, c, c->unnamed);
}

/* It was good once: an error is one of memory, or of a version that reads it otherwise. */
static struct lstmt *claimed(struct client *c, struct sql_text *t, const uint32_t *oids, int n)
{
	struct pg_error err;

	return c->icpt->claim(c, t) == CLAIM_MINE ? lstmt_claimed(c, t->sql, t->len, oids, n, &err)
						  : NULL;
}

static bool get_statement(struct wire_reader *r, struct client *c)
{
	const char *name = wire_get_cstr(r, NULL), *sql;
	enum stmt_kind kind = wire_get_u8(r);
	int tx = wire_get_i32(r), n;
	struct reading *reading = NULL;
	struct pstmt *p = NULL;
	struct lstmt *l = NULL;
	struct cstmt *st;
	struct sql_text t;
	size_t len, oid_bytes;
	const void *raw;
	uint32_t *oids;

	sql = move_get_bytes(r, &len);
	raw = move_get_bytes(r, &oid_bytes);
	n = (int)(oid_bytes / sizeof(*oids));
	if (kind == STMT_SERVERS)
		reading = get_reading(r);
	/* not aligned where it stands */
	oids = n > 0 && !r->failed ? mem_dup(raw, oid_bytes) : NULL;
	if (r->failed || (n > 0 && oids == NULL)) {
		reading_drop(&reading);
		return false;
	}
	sql_text_init(&t, sql, len, client_dialect(c), SQL_OF_PARSE);
	if (kind == STMT_SERVERS)
		p = pstmt_get(reading, &t, oids, n);
	else if (kind == STMT_CLAIMED)
		l = claimed(c, &t, oids, n);
	else
		l = kind == STMT_SESSION ? lstmt_session(&t) : lstmt_tx((enum sql_tx)tx, &t);
	sql_text_free(&t);
	mem_free(oids);
	reading_drop(&reading);
	if ((p == NULL && l == NULL) || (st = cstmt_add(c, name, p, l)) == NULL)
		return false;
	cstmt_confirm(c, st);
	return true;
}

bool move_get_statements(struct wire_reader *r, struct client *c)
{
	int32_t n = wire_get_i32(r);

	CHECK_CLIENT(c);
	for (; n > 0 && !r->failed; n--)
		if (!get_statement(r, c))
			return false;
	return !r->failed;
}
