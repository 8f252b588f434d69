/*
 * Statements: the texts shared by all (pstmt), the ones that we answer ourselves (lstmt), and the
 * FIFO of what a server will answer. No protocol here.
 */
#include <string.h>

#include "pool/reading.h"
#include "pool/rooms.h"
#include "wire/sqltext.h"

/* --- shared texts --- */

static struct {
	struct pstmt *table;
	uint64_t last_id;
} texts;

/* The key: the reading, the types, the text. */
_Static_assert(
	offsetof(struct pstmt, key) == offsetof(struct pstmt, reading) + sizeof(struct reading *),
	"the key is in one piece");

static struct pstmt *make(
	struct reading *reading, const struct sql_text *t, const uint32_t *oids, int n)
{
	size_t oid_bytes = (size_t)n * sizeof(uint32_t);
	struct pstmt *p = mem_alloc(sizeof(*p) + oid_bytes + t->len + 1);

	if (p == NULL)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->reading = reading;
	if (n > 0)
		memcpy(p->key, oids, oid_bytes);
	if (t->len > 0) /* sql is NULL when its buffer had no memory */
		memcpy(p->key + oid_bytes, t->sql, t->len);
	p->key[oid_bytes + t->len] = '\0';
	p->refs = 1;
	p->n_oids = n;
	p->key_len = sizeof(p->reading) + oid_bytes + t->len;
	return p;
}

static struct pstmt *number(struct pstmt *p, struct sql_text *t)
{
	INVARIANT(t->of == SQL_OF_PARSE, "a statement is prepared from a query string");
	(void)reading_ref(p->reading);
	sql_text_move(&p->text, t, (const char *)p->key + (size_t)p->n_oids * sizeof(uint32_t));
	p->id = ++texts.last_id;
	return p;
}

struct pstmt *pstmt_get(struct reading *reading, struct sql_text *t, const uint32_t *oids, int n)
{
	struct pstmt *p = make(reading, t, oids, n), *found = NULL;

	if (p == NULL)
		return NULL;
	HASH_FIND(hh, texts.table, &p->reading, p->key_len, found);
	if (found != NULL && found->n_oids == n) {
		mem_free(p);
		found->refs++;
		return found;
	}
	/* the same bytes cut elsewhere (n differs) stay out of the table: correct, only not shared
	 */
	if (found == NULL)
		HASH_ADD_KEYPTR(hh, texts.table, &p->reading, p->key_len, p);
	return number(p, t);
}

struct pstmt *pstmt_new(struct sql_text *t, const uint32_t *oids, int n)
{
	struct pstmt *p = make(NULL, t, oids, n);

	return p != NULL ? number(p, t) : NULL;
}

void pstmt_is_read(struct pstmt *p, struct reading *reading)
{
	INVARIANT(p->unsure && p->reading == NULL, "a statement is read twice");
	p->unsure = false;
	p->reading = reading_ref(reading);
}

/* More than anybody will make in the time of a takeover. */
#define STATEMENTS_AHEAD (1ull << 32)

uint64_t pstmt_numbers_to(void)
{
	return texts.last_id + STATEMENTS_AHEAD;
}

void pstmt_numbers_from(uint64_t number)
{
	if (texts.last_id < number)
		texts.last_id = number;
}

bool pstmt_is(const struct pstmt *p, const struct sql_text *t, const uint32_t *oids, int n)
{
	return p->text.len == t->len && p->n_oids == n &&
	       memcmp(p->text.sql, t->sql, t->len) == 0 &&
	       (n == 0 || memcmp(p->key, oids, (size_t)n * sizeof(*oids)) == 0);
}

struct pstmt *pstmt_ref(struct pstmt *p)
{
	if (p != NULL)
		p->refs++;
	return p;
}

void pstmt_drop(struct pstmt **pp)
{
	struct pstmt *p = *pp, *found = NULL;

	*pp = NULL;
	INVARIANT(p == NULL || p->refs > 0, "a statement is dropped by more than hold it");
	if (p == NULL || --p->refs > 0)
		return;
	HASH_FIND(hh, texts.table, &p->reading, p->key_len, found);
	if (found == p)
		HASH_DEL(texts.table, p);
	reading_drop(&p->reading);
	sql_text_free(&p->text);
	mem_free(p);
}

/* The key follows 8-byte aligned members, and the types come first in it. */
const uint32_t *pstmt_oids(const struct pstmt *p)
{
	return (const uint32_t *)(const void *)p->key;
}

const char *pstmt_name(const struct pstmt *p, char dst[PSTMT_NAME_SIZE])
{
	char digits[20], *at = digits + sizeof(digits);
	uint64_t id = p->id;

	/* for each Bind, where snprintf() would be a tenth of all the work */
	do
		*--at = (char)('0' + id % 10);
	while ((id /= 10) != 0);
	memcpy(dst, "qb_", 3);
	memcpy(dst + 3, at, (size_t)(digits + sizeof(digits) - at));
	dst[3 + (digits + sizeof(digits) - at)] = '\0';
	return dst;
}

bool pstmt_is_name(const char *name)
{
	return strncmp(name, "qb_", 3) == 0 &&
	       (strcmp(name + 3, "own") == 0 || strspn(name + 3, "0123456789") == strlen(name + 3));
}

/* --- statements that we answer --- */

struct lstmt *lstmt_ref(struct lstmt *l)
{
	if (l != NULL)
		l->refs++;
	return l;
}

void lstmt_drop(struct lstmt **p)
{
	struct lstmt *l = *p;

	*p = NULL;
	INVARIANT(l == NULL || l->refs > 0, "a statement of ours is dropped by more than hold it");
	if (l == NULL || --l->refs > 0)
		return;
	if (l->stmt != NULL)
		l->icpt->stmt_free(l->stmt);
	if (l->kind != LSTMT_CLAIMED) {
		mem_free((char *)l->text.sql);
		sql_text_free(&l->text);
	}
	mem_free(l);
}

struct lstmt *lstmt_claimed(struct client *c, const char *sql, size_t len, const uint32_t *oids,
	int n, struct pg_error *err)
{
	struct lstmt *l = mem_zalloc(offsetof(struct lstmt, text));

	CHECK_CLIENT(c);
	if (l == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return NULL;
	}
	l->kind = LSTMT_CLAIMED;
	l->refs = 1;
	l->icpt = c->icpt;
	l->stmt = c->icpt->stmt_new(c, sql, len, oids, n, err);
	if (l->stmt == NULL)
		lstmt_drop(&l);
	return l;
}

struct lstmt *lstmt_tx(enum sql_tx tx, struct sql_text *t)
{
	struct lstmt *l = mem_zalloc(sizeof(*l));
	char *sql = l != NULL ? mem_alloc(t->len + 1) : NULL;

	if (sql == NULL) {
		mem_free(l);
		return NULL;
	}
	l->kind = tx == SQL_TX_EMPTY ? LSTMT_EMPTY : LSTMT_TX;
	l->refs = 1;
	l->tx = tx;
	memcpy(sql, t->sql, t->len);
	sql[t->len] = '\0';
	sql_text_move(&l->text, t, sql);
	return l;
}

struct lstmt *lstmt_session(struct sql_text *t)
{
	struct lstmt *l = lstmt_tx(SQL_TX_OTHER, t);

	if (l != NULL)
		l->kind = LSTMT_SESSION;
	return l;
}

/* --- what a claimant hands over --- */

void replace_free(struct replace **p)
{
	struct replace *r = *p;

	*p = NULL;
	if (r == NULL)
		return;
	if (r->free_arg != NULL)
		r->free_arg(r->arg);
	buf_free(&r->sql);
	buf_free(&r->formats);
	if (r->values != NULL) {
		buf_free(r->values);
		mem_free(r->values);
	}
	mem_free(r->oids);
	mem_free(r->spans);
	lstmt_drop(&r->held);
	mem_free(r);
}

void answer_tag(struct answer *a, const char *word, int64_t n)
{
	size_t len = strlen(word);

	INVARIANT(len + 1 + UTIL_I64_SIZE <= sizeof(a->tag), "a tag is longer than its place");
	memcpy(a->tag, word, len);
	a->tag[len] = ' ';
	(void)util_print_i64(a->tag + len + 1, n);
}

void answer_free(struct answer *a)
{
	buf_free(&a->rows);
	buf_free(&a->notices);
	a->n_rows = 0;
}

/* --- what a server will answer --- */

/* Gives back what an unusually long pipeline has taken. */
void expect_shrink(struct expect_ring *r)
{
	if (r->cap <= 256 || r->count > 0)
		return;
	mem_free(r->e);
	*r = (struct expect_ring){0};
}

bool expect_grow(struct expect_ring *r)
{
	unsigned cap = r->cap == 0 ? 16 : r->cap * 2u;
	struct expect *e;

	if (cap > 32768)
		return false;
	e = mem_alloc(cap * sizeof(*e));
	if (e == NULL)
		return false;
	for (unsigned i = 0; i < r->count; i++)
		e[i] = *expect_at(r, i);
	mem_free(r->e);
	r->e = e;
	r->cap = (uint16_t)cap;
	r->head = 0;
	return true;
}
