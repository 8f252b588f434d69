/*
 * The maps of auth_ident_file: which names of the system may be which database users. Lines of map,
 * system name, database user, as in pg_ident.conf: both names may be regular expressions (`/…`), a
 * `\1` in the database user stands for what the first group of the system name matched, `all` is
 * any database user. Entry points: hba_int.h.
 */
#include "hba_int.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct mapping {
	struct mapping *next;
	char *map;
	struct name system, user;
};

struct ident {
	struct mapping *first, **last;
};

/* --- names ------------------------------------------------------------------------------------ */

bool name_read(struct name *ret, struct field_reader *r, const struct field_token *t)
{
	const char *text = t->text;
	char why[200];
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (text[0] == '/' && text[1] != '\0') {
		rc = regcomp(&ret->re, text + 1, REG_EXTENDED);
		if (rc != 0) {
			regerror(rc, &ret->re, why, sizeof(why));
			return fields_fail(
				r, "invalid regular expression \"%s\": %s", text + 1, why);
		}
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
	if (n->kind == NAME_REGEX)
		regfree(&n->re);
	mem_free(n->text);
	memset(n, 0, sizeof(*n));
}

/* --- reading ---------------------------------------------------------------------------------- */

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
	if (strstr(t->text, "\\1") && m->system.kind == NAME_REGEX && m->system.re.re_nsub < 1)
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

struct ident *ident_read(const char *path, char *err, size_t err_size)
{
	struct field_reader r = {.line = read_line, .err = err, .err_size = err_size};
	struct ident *i = mem_zalloc(sizeof(*i));

	if (!i) {
		snprintf(err, err_size, "out of memory");
		return NULL;
	}
	i->last = &i->first;
	r.arg = i;
	if (path && path[0] && !fields_read(&r, path))
		ident_free(&i);
	return i;
}

/* --- questions -------------------------------------------------------------------------------- */

bool ident_has_map(const struct ident *i, const char *map)
{
	for (const struct mapping *m = i->first; m; m = m->next)
		if (!strcmp(m->map, map))
			return true;
	return false;
}

/* The database user of a line with \1 replaced. false: it has none, or does not fit. */
static bool substitute(char *dst, size_t size, const struct mapping *m, const char *system_name,
	const regmatch_t *group)
{
	const char *at = strstr(m->user.text, "\\1");
	size_t len;
	int n;

	if (!at || m->system.kind != NAME_REGEX || group->rm_so < 0)
		return false;
	len = (size_t)(group->rm_eo - group->rm_so);
	n = snprintf(dst, size, "%.*s%.*s%s", (int)(at - m->user.text), m->user.text, (int)len,
		system_name + group->rm_so, at + 2);
	return n >= 0 && (size_t)n < size;
}

static bool user_fits(
	const struct mapping *m, const char *system_name, const char *user, const regmatch_t *group)
{
	char text[256];

	if (m->user.kind == NAME_ALL)
		return true;
	if (m->user.kind == NAME_REGEX)
		return regexec(&m->user.re, user, 0, NULL, 0) == 0;
	if (substitute(text, sizeof(text), m, system_name, group))
		return strcmp(text, user) == 0;
	return strcmp(m->user.text, user) == 0;
}

bool ident_allows(const struct ident *i, const char *map, const char *system_name, const char *user)
{
	for (const struct mapping *m = i->first; m; m = m->next) {
		regmatch_t groups[2] = {{-1, -1}, {-1, -1}};

		if (strcmp(m->map, map))
			continue;
		if (m->system.kind == NAME_REGEX) {
			if (regexec(&m->system.re, system_name, 2, groups, 0) != 0)
				continue;
		} else if (strcmp(m->system.text, system_name)) {
			continue;
		}
		if (user_fits(m, system_name, user, &groups[1]))
			return true;
	}
	return false;
}
