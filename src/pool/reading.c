/*
 * What a text means beside its bytes: Postgres reads its literals when it is parsed, under the
 * settings of that moment (DateStyle, TimeZone, ...), and keeps what it has read. So a text that
 * has literals is a statement of its own under each reading, and where a server is told of it later
 * (another one, or once more) that happens under the settings of its Parse: they are put in force
 * around it, for the transaction, and those of the client put back.
 *
 * Not among them is what Postgres looks at each time that a statement is used (search_path, role).
 *
 * Entry points: reading_statement(), for the text of a client; reading_diff_sql(), around a Parse.
 */
#include <string.h>

#include "pool/reading.h"
#include "pool/rooms.h"
#include "pool/settings.h"
#include "wire/sqltext.h"

/* All that are reported, but the name of the application. */
#define N_REPORTED VAR_APPLICATION_NAME
_Static_assert(VAR_APPLICATION_NAME + 1 == VAR_COUNT, "the settings that a text is read with");

struct reading {
	UT_hash_handle hh;
	uint32_t refs;
	struct istr *v[N_REPORTED +
		       1]; /* the last one: a list of settings, sql_rare_settings; mostly there is none */
};

static struct reading *table;

struct reading *reading_ref(struct reading *r)
{
	if (r != NULL)
		r->refs++;
	return r;
}

void reading_drop(struct reading **p)
{
	struct reading *r = *p;

	*p = NULL;
	INVARIANT(r == NULL || r->refs > 0, "a reading is dropped by more than hold it");
	if (r == NULL || --r->refs > 0)
		return;
	HASH_DEL(table, r);
	for (int i = 0; i <= N_REPORTED; i++)
		istr_drop(&r->v[i]);
	mem_free(r);
}

struct reading *reading_get(struct istr *const v[READING_COUNT])
{
	struct reading *r = NULL;

	HASH_FIND(hh, table, v, sizeof(r->v), r);
	if (r != NULL)
		return reading_ref(r);
	r = mem_zalloc(sizeof(*r));
	if (r == NULL)
		return NULL;
	memcpy(r->v, v, sizeof(r->v));
	HASH_ADD(hh, table, v, sizeof(r->v), r);
	if (r->hh.tbl == NULL) {
		mem_free(r);
		return NULL;
	}
	for (int i = 0; i <= N_REPORTED; i++)
		(void)istr_ref(r->v[i]);
	r->refs = 1;
	return r;
}

struct istr *const *reading_values(const struct reading *r)
{
	return r->v;
}

/* --- of a client --- */

static bool rare_of(struct istr *extra, struct istr **ret)
{
	struct istr *list = NULL;
	bool ok = true;

	for (size_t i = 0; i < SQL_RARE_COUNT && ok && extra != NULL; i++) {
		const char *value = settings_find(extra, sql_rare_settings[i]);

		if (value != NULL)
			ok = settings_set(&list, sql_rare_settings[i], value);
	}
	*ret = list;
	return ok;
}

void reading_forget(struct client *c)
{
	reading_drop(&c->reading);
	istr_drop(&c->reading_extra);
}

/* As far as is known, its own; borrowed. NULL: memory. */
static struct reading *now(struct client *c)
{
	struct istr *v[READING_COUNT], *list = NULL;
	struct reading *r = NULL;

	if (c->reading != NULL && c->reading_extra == c->extra &&
		memcmp(c->reading->v, c->vars.v, N_REPORTED * sizeof(v[0])) == 0)
		return c->reading;
	if (rare_of(c->extra, &list)) {
		memcpy(v, c->vars.v, N_REPORTED * sizeof(v[0]));
		v[N_REPORTED] = list;
		r = reading_get(v);
	}
	istr_drop(&list);
	reading_forget(c);
	c->reading = r;
	c->reading_extra = r != NULL ? istr_ref(c->extra) : NULL;
	return r;
}

/* What is under way may change it: it is reported when the server has got to a ReadyForQuery. The
 * rare ones are asked for when the transaction has ended. */
bool reading_in_doubt(const struct client *c)
{
	const struct server *s = c->link;

	CHECK_CLIENT(c);
	if (s == NULL)
		return false;
	return (s->trace.dialect_doubt &&
		       (s->expect.count > 0 || s->pass_left > 0 || s->batch.unsynced)) ||
	       s->trace.rare_doubt || s->inspect.now != NULL;
}

bool reading_is(struct client *c, const struct pstmt *p)
{
	const struct reading *r;

	if (p->unsure || reading_in_doubt(c))
		return false;
	if (p->reading == NULL && c->extra == NULL)
		return true;
	r = now(c);
	return p->reading != NULL ? r == p->reading : r != NULL && r->v[N_REPORTED] == NULL;
}

struct pstmt *reading_statement(struct client *c, struct sql_text *t, const uint32_t *oids, int n)
{
	bool literals = sql_has_literals(t);
	struct reading *r = NULL;
	struct pstmt *p;

	CHECK_CLIENT(c);
	if (literals && reading_in_doubt(c)) {
		p = pstmt_new(t, oids, n);
		if (p != NULL)
			p->unsure = true, c->unsure++;
		return p;
	}
	if ((literals || c->extra != NULL) && (r = now(c)) == NULL)
		return NULL;
	return pstmt_get(
		r != NULL && (literals || r->v[N_REPORTED] != NULL) ? r : NULL, t, oids, n);
}

/* It is known now. They stay the client's alone. */
void reading_settle(struct client *c)
{
	struct cstmt *st, *tmp;

	CHECK_CLIENT(c);
	if (reading_in_doubt(c) || now(c) == NULL)
		return;
	c->unsure = 0;
	HASH_ITER (hh, c->stmts, st, tmp)
		if (st->p != NULL && st->p->unsure)
			pstmt_is_read(st->p, now(c));
	for (st = c->unnamed; st != NULL; st = st->next)
		if (st->p != NULL && st->p->unsure)
			pstmt_is_read(st->p, now(c));
}

/* --- around a Parse --- */

static void put_config(struct buf *sql, const char *name, const char *value)
{
	buf_puts(sql, sql->len == 0 ? "SELECT " : ", ");
	buf_puts(sql, "pg_catalog.set_config(");
	settings_put_literal(sql, name);
	buf_puts(sql, ", ");
	if (value != NULL)
		settings_put_literal(sql, value);
	else
		buf_puts(sql, "NULL");
	buf_puts(sql, ", true)");
}

static void put_difference(struct buf *sql, const struct reading *from, const struct reading *to)
{
	for (int i = 0; i < N_REPORTED; i++)
		if (to->v[i] != NULL && to->v[i] != from->v[i])
			put_config(sql, var_name((enum var_id)i), istr_text(to->v[i]));
	for (size_t i = 0; i < SQL_RARE_COUNT && from->v[N_REPORTED] != to->v[N_REPORTED]; i++) {
		const char *have = settings_find(from->v[N_REPORTED], sql_rare_settings[i]);
		const char *want = settings_find(to->v[N_REPORTED], sql_rare_settings[i]);

		if (have != want && (have == NULL || want == NULL || strcmp(have, want) != 0))
			put_config(sql, sql_rare_settings[i], want);
	}
}

bool reading_is_missed(const struct server *s, const struct pstmt *p)
{
	return p->reading != NULL && s->link != NULL && reading_in_doubt(s->link);
}

void reading_diff_sql(const struct server *s, const struct pstmt *p, bool back, struct buf *sql)
{
	const struct reading *mine;

	CHECK_SERVER(s);
	if (p->reading == NULL || s->link == NULL || reading_is_missed(s, p))
		return;
	mine = now(s->link);
	if (mine == NULL)
		sql->failed = true;
	else if (mine != p->reading)
		put_difference(sql, back ? p->reading : mine, back ? mine : p->reading);
}
