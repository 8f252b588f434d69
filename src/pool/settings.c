/*
 * Lists of settings that no server reports: what a client has set, what is in force on a server. A
 * list is one interned text, name\0value\0 ..., in a fixed order, so that equal states are equal
 * pointers; NULL is the empty list. role comes last and session_authorization before it: what they
 * allow depends on who asks, and the second ends the first.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/rooms.h"
#include "pool/settings.h"
#include "wire/sqltext.h"

#define SETTINGS_MAX (256 * 1024) /* bytes of a list */

static int rank(const char *name)
{
	if (strcmp(name, "role") == 0)
		return 2;
	return strcmp(name, "session_authorization") == 0 ? 1 : 0;
}

static int compare_names(const char *a, const char *b)
{
	int ra = rank(a), rb = rank(b);

	return ra != rb ? ra - rb : strcmp(a, b);
}

static int compare_pairs(const void *a, const void *b)
{
	const struct setting *x = a, *y = b;

	return compare_names(x->name, y->name);
}

bool settings_next(const char **at, const char *end, struct setting *ret)
{
	if (*at >= end)
		return false;
	ret->name = *at;
	ret->value = ret->name + strlen(ret->name) + 1;
	*at = ret->value + strlen(ret->value) + 1;
	return true;
}

const char *settings_find(const struct istr *list, const char *name)
{
	const char *at = istr_text(list), *end = at + istr_len(list);
	struct setting s;

	while (settings_next(&at, end, &s))
		if (util_strcasecmp(s.name, name) == 0)
			return s.value;
	return NULL;
}

static void put_pair(struct buf *b, const char *name, const char *value)
{
	buf_put(b, name, strlen(name) + 1);
	buf_put(b, value, strlen(value) + 1);
}

/* Takes the contents of b. */
static bool list_of(struct buf *b, struct istr **ret)
{
	struct istr *list = NULL;
	bool ok = !buf_failed(b) && b->len <= SETTINGS_MAX;

	if (ok && b->len > 0) {
		list = istr_get((const char *)b->data, b->len);
		ok = list != NULL;
	}
	buf_free(b);
	if (!ok)
		return false;
	istr_drop(ret);
	*ret = list;
	return true;
}

bool settings_set(struct istr **list, const char *name, const char *value)
{
	const char *at = istr_text(*list), *end = at + istr_len(*list);
	struct buf b = BUF_INIT;
	struct setting s;
	bool placed = value == NULL;

	while (settings_next(&at, end, &s)) {
		int order = compare_names(s.name, name);

		if (order >= 0 && !placed) {
			put_pair(&b, name, value);
			placed = true;
		}
		if (order != 0)
			put_pair(&b, s.name, s.value);
	}
	if (!placed)
		put_pair(&b, name, value);
	return list_of(&b, list);
}

bool settings_sorted(struct buf *pairs, struct istr **ret)
{
	const char *at = (const char *)pairs->data, *end = at + pairs->len;
	struct setting *list, s;
	struct buf b = BUF_INIT;
	size_t n = 0;

	if (buf_failed(pairs))
		return false;
	list = mem_alloc((pairs->len / 2 + 1) * sizeof(*list));
	if (list == NULL)
		return false;
	while (pairs->len > 0 && settings_next(&at, end, &s))
		list[n++] = s;
	qsort(list, n, sizeof(*list), compare_pairs);
	buf_reserve(&b, pairs->len);
	for (size_t i = 0; i < n; i++)
		/* of the same name the last one counts; equal elements keep no order, names are
		 * unique but for start-up packets that say one twice */
		if (i + 1 == n || strcmp(list[i].name, list[i + 1].name) != 0)
			put_pair(&b, list[i].name, list[i].value);
	mem_free(list);
	return list_of(&b, ret);
}

/* --- from one list to another --- */

/* E'' works whatever standard_conforming_strings is. */
void settings_put_literal(struct buf *b, const char *s)
{
	buf_puts(b, "E'");
	for (; *s != '\0'; s++) {
		if (*s == '\'' || *s == '\\')
			buf_putc(b, *s);
		buf_putc(b, *s);
	}
	buf_putc(b, '\'');
}

/* NULL resets; also role and session_authorization, which no view shows. */
void settings_put_set(struct buf *sql, const char *name, const char *value)
{
	buf_puts(sql, "SELECT pg_catalog.set_config(");
	settings_put_literal(sql, name);
	buf_puts(sql, ", ");
	if (value != NULL)
		settings_put_literal(sql, value);
	else
		buf_puts(sql, "NULL");
	buf_puts(sql, ", false);");
}

static bool differs(const struct istr *a, const struct istr *b, const char *name)
{
	const char *x = settings_find(a, name), *y = settings_find(b, name);

	return x == NULL || y == NULL ? x != y : strcmp(x, y) != 0;
}

bool settings_identity_differs(const struct istr *a, const struct istr *b)
{
	return a != b && (differs(a, b, "role") || differs(a, b, "session_authorization"));
}

/* Back to who has logged in, who may do most. */
static void put_own_identity(struct buf *sql, const struct istr *server)
{
	if (settings_find(server, "role") != NULL)
		settings_put_set(sql, "role", NULL);
	if (settings_find(server, "session_authorization") != NULL)
		settings_put_set(sql, "session_authorization", NULL);
}

/* Through a list beside another one, as both have the same order: a search for each name would be
 * quadratic. */
struct walk {
	const char *at, *end;
	struct setting s;
	bool more;
};

static void walk_next(struct walk *w)
{
	w->more = settings_next(&w->at, w->end, &w->s);
}

static struct walk walk_begin(const struct istr *list)
{
	struct walk w = {.at = istr_text(list)};

	w.end = w.at + istr_len(list);
	walk_next(&w);
	return w;
}

static const char *walk_find(struct walk *w, const char *name)
{
	while (w->more && compare_names(w->s.name, name) < 0)
		walk_next(w);
	return w->more && compare_names(w->s.name, name) == 0 ? w->s.value : NULL;
}

/* all: also what is the same on both sides. */
void settings_diff_sql(
	const struct istr *server, const struct istr *client, bool all, struct buf *sql)
{
	bool identity = all || settings_identity_differs(server, client);
	struct walk from, to;

	if (identity)
		put_own_identity(sql, server);
	to = walk_begin(client);
	for (from = walk_begin(server); from.more; walk_next(&from))
		if (rank(from.s.name) == 0 && walk_find(&to, from.s.name) == NULL)
			settings_put_set(sql, from.s.name, NULL);
	from = walk_begin(server);
	for (to = walk_begin(client); to.more; walk_next(&to)) {
		const char *have = walk_find(&from, to.s.name);
		struct setting s = to.s;

		if (rank(s.name) > 0 ? identity : all || have == NULL || strcmp(have, s.value) != 0)
			settings_put_set(sql, s.name, s.value);
	}
}
