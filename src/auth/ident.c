/*
 * The maps of auth_ident_file: which names of the system may be which database users. Lines of map,
 * system name, database user, as in pg_ident.conf: both names may be regular expressions (`/…`), a
 * `\1` in the database user stands for what the first group of the system name matched, `all` is
 * any database user. Entry points: hba_int.h.
 */
#include "hba_int.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

struct mapping {
	struct mapping *next;
	char *map;
	struct name system, user;
};

struct ident {
	struct mapping *first, **last;
};

/* --- names --- */

bool name_read(struct name *ret, struct field_reader *r, const struct field_token *t)
{
	const char *text = t->text;
	char why[200];

	memset(ret, 0, sizeof(*ret));
	if (text[0] == '/' && text[1] != '\0') {
		ret->re = pattern_new(text + 1, why, sizeof(why));
		if (!ret->re)
			return fields_fail(
				r, "invalid regular expression: %s: \"%s\"", why, text + 1);
		ret->kind = NAME_REGEX;
	}
	ret->text = mem_strdup(text);
	if (ret->text)
		return true;
	name_clear(ret);
	return fields_fail(r, "out of memory");
}

void name_clear(struct name *n)
{
	pattern_free(&n->re);
	mem_free(n->text);
	memset(n, 0, sizeof(*n));
}

enum pattern_fit name_match(const struct name *n, const char *text, struct pattern_group *ret_group)
{
	enum pattern_fit fit = pattern_match(n->re, text, ret_group);

	if (fit == PATTERN_UNDECIDED)
		log_warning("the regular expression \"%s\" cannot decide about a name of %zu bytes "
			    "within its limits: it is refused",
			n->text, strlen(text));
	return fit;
}

/* --- reading --- */

static void mapping_free(struct mapping *m)
{
	name_clear(&m->system);
	name_clear(&m->user);
	mem_free(m->map);
	mem_free(m);
}

static bool read_user(struct mapping *m, struct field_reader *r, const struct field_token *t)
{
	if (!t->quoted && t->text[0] == '+')
		return fields_fail(
			r, "\"%s\": members of a role are not known here; name the users", t->text);
	if (!name_read(&m->user, r, t))
		return false;
	if (!t->quoted && !strcmp(t->text, "all"))
		m->user.kind = NAME_ALL;
	if (strstr(t->text, "\\1") && m->system.kind == NAME_REGEX && m->user.kind != NAME_REGEX &&
		!pattern_has_group(m->system.re))
		return fields_fail(
			r, "\\1 in \"%s\", but \"%s\" has no group", t->text, m->system.text);
	return true;
}

static bool read_line(struct field_reader *r, const struct field_line *l)
{
	struct ident *i = r->arg;
	struct mapping *m;

	if (l->n_fields != 3)
		return fields_fail(r, "expected map, system name and database user");
	for (size_t f = 0; f < 3; f++)
		if (fields_count(l, f) != 1)
			return fields_fail(r, "one name is expected in each field");
	m = mem_zalloc(sizeof(*m));
	if (!m)
		return fields_fail(r, "out of memory");
	m->map = mem_strdup(fields_token(l, 0)->text);
	if (!m->map) {
		mapping_free(m);
		return fields_fail(r, "out of memory");
	}
	if (!name_read(&m->system, r, fields_token(l, 1)) || !read_user(m, r, fields_token(l, 2))) {
		mapping_free(m);
		return false;
	}
	*i->last = m;
	i->last = &m->next;
	return true;
}

void ident_free(struct ident **p)
{
	struct ident *i = *p;

	*p = NULL;
	if (!i)
		return;
	while (i->first) {
		struct mapping *m = i->first;

		i->first = m->next;
		mapping_free(m);
	}
	mem_free(i);
}

struct ident *ident_read(const char *path, bool *ret_ok, char *err, size_t err_size)
{
	struct field_reader r = {.line = read_line, .err = err, .err_size = err_size};
	struct ident *i = mem_zalloc(sizeof(*i));

	if (!i) {
		(void)util_add_line(err, err_size, "out of memory");
		return NULL;
	}
	i->last = &i->first;
	r.arg = i;
	*ret_ok = !path || !path[0] || fields_read(&r, path);
	return i;
}

/* --- questions --- */

bool ident_has_map(const struct ident *i, const char *map)
{
	for (const struct mapping *m = i->first; m; m = m->next)
		if (!strcmp(m->map, map))
			return true;
	return false;
}

/* The database user of a line with \1, which stands at, replaced. false: by nothing, or too long.
 */
static bool substitute(
	char *dst, size_t size, const char *user, const char *at, const struct pattern_group *group)
{
	int n;

	if (!group->text)
		return false;
	n = snprintf(dst, size, "%.*s%.*s%s", (int)(at - user), user, (int)group->len, group->text,
		at + 2);
	return n >= 0 && (size_t)n < size;
}

static enum pattern_fit same(const char *a, const char *b)
{
	return strcmp(a, b) == 0 ? PATTERN_YES : PATTERN_NO;
}

static enum pattern_fit user_fits(
	const struct mapping *m, const char *user, const struct pattern_group *group)
{
	const char *at = m->system.kind == NAME_REGEX ? strstr(m->user.text, "\\1") : NULL;
	char text[256];

	if (m->user.kind == NAME_ALL)
		return PATTERN_YES;
	if (m->user.kind == NAME_REGEX)
		return name_match(&m->user, user, NULL);
	if (!at)
		return same(m->user.text, user);
	return substitute(text, sizeof(text), m->user.text, at, group) ? same(text, user)
								       : PATTERN_NO;
}

static enum pattern_fit mapping_fits(
	const struct mapping *m, const char *system_name, const char *user)
{
	struct pattern_group group = {0};
	enum pattern_fit fit = m->system.kind == NAME_REGEX
				       ? name_match(&m->system, system_name, &group)
				       : same(m->system.text, system_name);

	return fit == PATTERN_YES ? user_fits(m, user, &group) : fit;
}

bool ident_allows(const struct ident *i, const char *map, const char *system_name, const char *user)
{
	for (const struct mapping *m = i->first; m; m = m->next) {
		enum pattern_fit fit;

		if (strcmp(m->map, map))
			continue;
		fit = mapping_fits(m, system_name, user);
		if (fit != PATTERN_NO)
			return fit == PATTERN_YES;
	}
	return false;
}
