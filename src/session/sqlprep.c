/*
 * Statements that a client prepares in SQL (PREPARE name AS ...), in transaction pooling. Each is
 * kept with its text and the settings that were in force, and prepared again, under these, on each
 * server that the client gets; what another client has left there is deallocated. PREPARE knows no
 * transaction, so it can be carried out in a block of its own that is rolled back: the settings end
 * with it.
 *
 * Only a PREPARE that was a statement of its own, with settings that are known, is kept. All others
 * pin, as long as the server has them: session.c, inspect.c.
 *
 * A list is one interned text of entries in the order of their names, so that equal lists are equal
 * pointers; NULL is the empty one. An entry: name, statement, settings that are reported, others
 * (name and value each), an empty name; all with their terminators.
 */
#include <string.h>

#include "pool/answer.h"
#include "session_int.h"

#define SQL_MAX  (64 * 1024)  /* of a statement that is kept */
#define LIST_MAX (256 * 1024) /* of all of them */

struct entry {
	const char *name, *sql, *vars, *extra;
	size_t extra_len; /* without the empty name */
	size_t len;
};

static const char *next(const char *text)
{
	return text + strlen(text) + 1;
}

static bool entry_next(const char **at, const char *end, struct entry *ret)
{
	const char *p = *at;

	if (p >= end)
		return false;
	ret->name = p;
	ret->sql = p = next(p);
	ret->vars = p = next(p);
	for (int i = 0; i < VAR_COUNT; i++)
		p = next(p);
	ret->extra = p;
	while (*p != '\0')
		p = next(next(p));
	ret->extra_len = (size_t)(p - ret->extra);
	ret->len = (size_t)(p + 1 - *at);
	*at = p + 1;
	return true;
}

static bool find(const struct istr *list, const char *name, struct entry *ret)
{
	const char *at = istr_text(list), *end = at + istr_len(list);

	while (entry_next(&at, end, ret))
		if (strcmp(ret->name, name) == 0)
			return true;
	return false;
}

/* Through a list beside another one, as both have the same order. */
struct walk {
	const char *at, *end;
	struct entry e;
	bool more;
};

static struct walk walk_begin(const struct istr *list)
{
	struct walk w = {.at = istr_text(list)};

	w.end = w.at + istr_len(list);
	w.more = entry_next(&w.at, w.end, &w.e);
	return w;
}

static bool walk_has(struct walk *w, const struct entry *e)
{
	while (w->more && strcmp(w->e.name, e->name) < 0)
		w->more = entry_next(&w->at, w->end, &w->e);
	return w->more && w->e.len == e->len && memcmp(w->e.name, e->name, e->len) == 0;
}

/* data NULL: takes the entry of that name out. false: memory, or too much; nothing is changed. */
static bool put(struct istr **list, const char *name, const char *data, size_t len)
{
	const char *at = istr_text(*list), *end = at + istr_len(*list);
	struct istr *changed = NULL;
	struct buf b = BUF_INIT;
	struct entry e;
	bool ok;

	while (entry_next(&at, end, &e)) {
		int order = strcmp(e.name, name);

		if (order >= 0 && data != NULL) {
			buf_put(&b, data, len);
			data = NULL;
		}
		if (order != 0)
			buf_put(&b, e.name, e.len);
	}
	if (data != NULL)
		buf_put(&b, data, len);
	ok = !buf_failed(&b) && b.len <= LIST_MAX;
	if (ok && b.len > 0) {
		changed = istr_get((const char *)b.data, b.len);
		ok = changed != NULL;
	}
	buf_free(&b);
	if (!ok)
		return false;
	istr_drop(list);
	*list = changed;
	return true;
}

/* --- what a statement does --- */

/* All that the server has not answered yet puts what is the client's in force. */
static bool owes_only_settings(struct server *s)
{
	for (unsigned i = 0; i < s->expect.count; i++)
		if (!expect_at(&s->expect, i)->dest->setup)
			return false;
	return true;
}

/* The first statement of a block: nothing in it can have changed a setting. */
static bool at_begin(struct server *s)
{
	unsigned n = s->expect.count;

	if (s->tx != 'T' || n == 0 || expect_at(&s->expect, n - 1)->dest != &dest_begin)
		return false;
	for (unsigned i = 0; i + 1 < n; i++)
		if (!expect_at(&s->expect, i)->dest->setup)
			return false;
	return true;
}

static bool settings_are_known(const struct client *c)
{
	struct server *s = c->link;

	return (at_begin(s) || (s->tx == 'I' && !s->batch.unsynced && owes_only_settings(s))) &&
	       s->extra == c->extra && !s->settings.extra_stale && s->trace.touched == 0 &&
	       (c->pins & (SQL_TOUCH_SETTINGS | PIN_UNKNOWN)) == 0;
}

static void put_text(struct buf *b, const char *text)
{
	buf_put(b, text, strlen(text) + 1);
}

static void put_entry(
	struct buf *b, const struct client *c, const char *name, const char *sql, size_t len)
{
	put_text(b, name);
	buf_put(b, sql, len);
	buf_putc(b, '\0');
	for (int i = 0; i < VAR_COUNT; i++)
		put_text(b, i == VAR_APPLICATION_NAME ? "" : istr_text(c->vars.v[i]));
	buf_put(b, istr_text(c->extra), istr_len(c->extra));
	buf_putc(b, '\0');
}

struct istr *sqlprep_effect(struct client *c, struct sql_text *t)
{
	const struct sql_session *st;
	struct istr *effect = NULL;
	struct buf b = BUF_INIT;
	struct entry e;

	if (t->len > SQL_MAX)
		return NULL;
	st = sql_session(t);
	buf_putc(&b, '\0');
	if (st->kind == SQL_SESSION_PREPARE && settings_are_known(c)) {
		buf_putc(&b, 'P');
		put_entry(&b, c, (const char *)st->name.data, t->sql, t->len);
	} else if (st->kind == SQL_SESSION_DEALLOCATE &&
		   find(c->sqlprep, (const char *)st->name.data, &e)) {
		buf_putc(&b, 'D');
		put_text(&b, (const char *)st->name.data);
	}
	if (!buf_failed(&b) && b.len > 1)
		effect = istr_get((const char *)b.data, b.len);
	buf_free(&b);
	return effect;
}

bool sqlprep_is_effect(const struct istr *effect)
{
	return effect != NULL && istr_text(effect)[0] == '\0';
}

/* Prepared, or about to be, by a statement that is followed: its text could change nothing. */
static bool is_known(struct client *c, const char *name)
{
	struct expect_ring *ring = &c->link->expect;
	struct entry e;

	if (find(c->sqlprep, name, &e))
		return true;
	for (unsigned i = 0; i < ring->count; i++) {
		const struct expect *x = expect_at(ring, i);
		const char *text;

		if (x->kind != EXPECT_QUERY || x->dest->beside == NULL ||
			!sqlprep_is_effect(x->arg))
			continue;
		text = istr_text(x->arg);
		if (text[1] == 'P' && strcmp(text + 2, name) == 0)
			return true;
	}
	return false;
}

bool sqlprep_is_all_known(struct client *c, struct sql_text *t)
{
	const struct buf *names;
	bool known = (c->pins & SQL_TOUCH_PREPARED) == 0 && sql_executed(t, &names);

	CHECK_CLIENT(c);
	for (size_t i = 0; known && i < names->len; i += strlen((const char *)names->data + i) + 1)
		known = is_known(c, (const char *)names->data + i);
	return known;
}

void sqlprep_apply(struct server *s, const struct istr *effect)
{
	const char *text = istr_text(effect), *name = text + 2;
	const char *data = text[1] == 'P' ? name : NULL;
	size_t len = istr_len(effect) - 2;
	struct client *c = s->link;

	CHECK_SERVER(s);
	if (put(&c->sqlprep, name, data, len) && put(&s->sqlprep, name, data, len))
		return;
	(void)put(&c->sqlprep, name, NULL, 0);
	s->trace.touched |= SQL_TOUCH_PREPARED;
}

void sqlprep_forget(struct client *c, struct server *s)
{
	if (c != NULL)
		istr_drop(&c->sqlprep);
	if (s != NULL)
		istr_drop(&s->sqlprep);
}

/* --- on another server --- */

static bool send(struct server *s, struct buf *sql, struct istr *name)
{
	struct buf b = BUF_INIT;

	build_query(&b, buf_cstr(sql));
	if (buf_failed(sql))
		b.failed = true;
	buf_free(sql);
	if (server_expect(s, EXPECT_QUERY, &dest_prepare, name))
		return server_send(s, &b);
	buf_free(&b);
	return false;
}

static void put_deallocate(struct buf *sql, const char *name)
{
	buf_puts(sql, "DEALLOCATE \"");
	for (; *name != '\0'; name++) {
		if (*name == '"')
			buf_putc(sql, '"');
		buf_putc(sql, *name);
	}
	buf_puts(sql, "\";");
}

static bool deallocate_others(struct client *c, struct server *s)
{
	const char *at = istr_text(s->sqlprep), *end = at + istr_len(s->sqlprep);
	struct walk mine = walk_begin(c->sqlprep);
	struct buf sql = BUF_INIT;
	struct entry e;

	while (entry_next(&at, end, &e))
		if (!walk_has(&mine, &e))
			put_deallocate(&sql, e.name);
	return sql.len == 0 || send(s, &sql, NULL);
}

/* From the client's settings to those of the statement; nothing when they are the same. */
static void put_settings(struct buf *sql, const struct client *c, const struct entry *e)
{
	struct istr *extra = e->extra_len > 0 ? istr_get(e->extra, e->extra_len) : NULL;
	struct vars want = {{NULL}};
	const char *value = e->vars;

	if (extra == NULL && e->extra_len > 0)
		sql->failed = true;
	for (int i = 0; i < VAR_COUNT; i++, value = next(value))
		if (*value != '\0')
			vars_set(&want, (enum var_id)i, value);
	(void)!vars_diff_sql(&c->vars, &want, c->extra, extra, false, sql);
	vars_clear(&want);
	istr_drop(&extra);
}

static bool prepare(struct client *c, struct server *s, const struct entry *e)
{
	struct buf set = BUF_INIT, begin = BUF_INIT, sql = BUF_INIT, end = BUF_INIT;
	struct istr *name = istr_get(e->name, strlen(e->name));
	bool block;

	put_settings(&set, c, e);
	block = set.len > 0;
	if (block) {
		buf_puts(&begin, "BEGIN;");
		buf_put(&begin, set.data, set.len);
	}
	if (buf_failed(&set) || name == NULL)
		sql.failed = begin.failed = true;
	buf_free(&set);
	buf_puts(&sql, e->sql);
	buf_puts(&end, "ROLLBACK");
	if (!block)
		buf_free(&end);
	if (block && !send(s, &begin, NULL)) {
		istr_drop(&name);
		buf_free(&sql);
		buf_free(&end);
		return false;
	}
	if (!send(s, &sql, name)) {
		buf_free(&end);
		return false;
	}
	return !block || send(s, &end, NULL);
}

bool sqlprep_sync(struct client *c)
{
	struct server *s = c->link;
	const char *at = istr_text(c->sqlprep), *end = at + istr_len(c->sqlprep);
	struct istr *before = s->sqlprep;
	struct walk there;
	struct entry e;
	bool ok;

	CHECK_CLIENT(c);
	if (before == c->sqlprep || s->tx != 'I' || s->batch.unsynced || s->settings.settling ||
		s->trace.touched != 0 || !owes_only_settings(s))
		return true;
	server_drop_unnamed(s);
	s->pool->stats.replays++;
	ok = deallocate_others(c, s);
	there = walk_begin(before);
	while (ok && entry_next(&at, end, &e))
		if (!walk_has(&there, &e))
			ok = prepare(c, s, &e);
	if (!ok)
		return c->link != NULL;
	s->sqlprep = istr_ref(c->sqlprep);
	istr_drop(&before);
	return true;
}

/* arg: the statement that could not be prepared again; NULL: another step. */
static enum relay_step not_prepared(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	const struct istr *name = e->arg;

	(void)m;
	if (name == NULL || !put(&r->s->sqlprep, istr_text(name), NULL, 0))
		/* a cancel request has met our DEALLOCATE: what is there now is not known */
		r->s->close_needed = true;
	return RELAY_DROP;
}

static void free_name(struct server *s, struct expect *e, bool ok)
{
	(void)s;
	(void)ok;
	istr_drop((struct istr **)&e->arg);
}

const struct dest dest_prepare = {
	.setup = true, .apart = true, .error = not_prepared, .free = free_name};

/* --- what the server says --- */

bool sqlprep_known(const struct server *s, const char *name, const char *sql)
{
	struct entry e;

	CHECK_SERVER(s);
	return find(s->sqlprep, name, &e) && strcmp(e.sql, sql) == 0;
}

/* seen: names, each with its terminator. What is not among them was deallocated. */
bool sqlprep_keep(struct server *s, const struct buf *seen)
{
	struct istr *was = istr_ref(s->sqlprep);
	const char *at = istr_text(was), *end = at + istr_len(was);
	bool ok = true;
	struct entry e;

	CHECK_SERVER(s);
	while (ok && entry_next(&at, end, &e)) {
		bool there = false;

		for (size_t i = 0; i < seen->len && !there;
			i += strlen((const char *)seen->data + i) + 1)
			there = strcmp((const char *)seen->data + i, e.name) == 0;
		if (!there)
			ok = put(&s->sqlprep, e.name, NULL, 0) &&
			     put(&s->link->sqlprep, e.name, NULL, 0);
	}
	istr_drop(&was);
	return ok;
}
