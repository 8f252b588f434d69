/*
 * Loading, installing and changing the configuration. A load reads into a fresh struct and touches
 * nothing else; only conf_install() and conf_set() change what is in force.
 * Entry points: conf/conf.h (names of enums and conf_each_param are in params.c).
 */
#include "conf/conf.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "table_int.h"

static struct conf *current;

static const struct {
	const char *name;
	ini_entry_fn *entry;
} sections[] = {
	{"qbouncer", section_params},
	{"pgbouncer", section_params},
	{"databases", section_databases},
	{"users", section_users},
	{"peers", section_peers},
};

static ini_entry_fn *conf_section(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
		if (!strcmp(name, sections[i].name))
			return sections[i].entry;
	}
	return NULL;
}

void conf_free(struct conf **p)
{
	struct conf *c = *p;

	if (!c)
		return;
	*p = NULL;
	while (c->databases) {
		struct conf_database *d = c->databases;

		c->databases = d->next;
		database_free(&d);
	}
	while (c->users) {
		struct conf_user *u = c->users;

		c->users = u->next;
		user_free(&u);
	}
	while (c->peers) {
		struct conf_peer *peer = c->peers;

		c->peers = peer->next;
		peer_free(&peer);
	}
	params_clear(&c->p);
	mem_free(c);
}

static struct conf *conf_new(const char *name, struct field_error *err)
{
	const struct field *conffile = field_find(conf_params.fields, conf_params.n, "conffile");
	struct conf *c = mem_zalloc(sizeof(*c));

	if (!c || !params_init(&c->p)) {
		util_strlcpy(err->text, "out of memory", sizeof(err->text));
		conf_free(&c);
	} else if (!field_set(conffile, &c->p, name, err)) {
		conf_free(&c);
	}
	return c;
}

static void conf_read(struct ini_reader *r, const char *name, const char *text, size_t len)
{
	if (text)
		ini_read_text(r, name, text, len);
	else
		ini_read_file(r, name);
}

static bool is_given(const char *own, const char *common)
{
	return (own ? own : common)[0] != '\0';
}

/* What is allowed and seldom meant. */
static void warn_of_traps(
	const struct conf *c, struct conf_report *report, const struct ini_pos *whole)
{
	for (const struct conf_database *d = c->databases; d; d = d->next)
		if (!strcmp(d->name, "*") && is_given(d->auth_user, c->p.auth_user) &&
			!is_given(d->auth_dbname, c->p.auth_dbname))
			report_warning(report, whole,
				"with the entry \"*\", \"auth_user\" and no \"auth_dbname\" a "
				"client chooses the database in which \"auth_query\" runs, before it has "
				"proved who it is: set \"auth_dbname\"");
}

static void check_attended(
	const struct conf *c, struct conf_report *report, const struct ini_pos *whole)
{
	for (const struct conf_database *d = c->databases; d; d = d->next) {
		if (!d->queue)
			continue;
		if (!strcmp(d->name, "*"))
			report_error(report, whole,
				"\"queue\" = 1 is for a database with a name, not for \"*\"");
		else if (!d->user && !is_given(d->queue_user, c->p.queue_user))
			report_error(report, whole,
				"\"queue\" = 1 of database \"%s\" needs \"queue_user\"", d->name);
	}
}

/* text NULL: name is a file. */
static struct conf *conf_build(
	const char *name, const char *text, size_t len, struct conf_report *report)
{
	struct ini_reader reader = {.section = conf_section, .report = report};
	struct ini_pos whole = {.file = name};
	struct field_error err;
	struct conf *c = conf_new(name, &err);
	const char *conflict;

	if (!c) {
		report_error(report, &whole, "%s", err.text);
		return NULL;
	}
	reader.arg = c;
	conf_read(&reader, name, text, len);
	conflict = params_conflict(&c->p);
	if (conflict)
		report_error(report, &whole, "%s", conflict);
	check_attended(c, report, &whole);
	warn_of_traps(c, report, &whole);
	return c;
}

struct conf *conf_load_partly(const char *path, struct conf_report *report)
{
	return conf_build(path, NULL, 0, report);
}

struct conf *conf_load(const char *path, struct conf_report *report)
{
	int errors = report->errors;
	struct conf *c = conf_load_partly(path, report);

	if (report->errors > errors)
		conf_free(&c);
	return c;
}

struct conf *conf_load_text(
	const char *name, const char *text, size_t len, struct conf_report *report)
{
	int errors = report->errors;
	struct conf *c = conf_build(name, text ? text : "", len, report);

	if (report->errors > errors)
		conf_free(&c);
	return c;
}

const struct conf *conf_current(void)
{
	return current;
}

const char *conf_queue_user(const char *user, const char *password, const char **ret_password)
{
	const struct params *p = &current->p;

	if (user == NULL)
		password = p->queue_password[0] != '\0' ? p->queue_password : NULL;
	if (ret_password != NULL)
		*ret_password = password;
	return user != NULL ? user : p->queue_user;
}

/* Values that a restart would change stay; they move from the old struct, so nothing can fail. */
static void conf_keep_fixed(struct conf *c, struct conf_report *report)
{
	for (size_t i = 0; i < conf_params.n; i++) {
		const struct field *f = &conf_params.fields[i];
		union field_value old, fresh;

		if (!(f->flags & PARAM_RESTART))
			continue;
		old = field_peek(f, &current->p);
		fresh = field_peek(f, &c->p);
		if (field_equal(f, &old, &fresh))
			continue;
		report_warning(report, NULL, "\"%s\" cannot be changed without restart", f->name);
		field_swap(f, &c->p, &old);
		field_swap(f, &current->p, &old);
	}
}

void conf_install(struct conf *c, struct conf_report *report)
{
	c->generation = 1;
	if (current) {
		c->generation = current->generation + 1;
		conf_keep_fixed(c, report);
		conf_free(&current);
	}
	current = c;
}

void conf_uninstall(void)
{
	conf_free(&current);
}

const struct conf_database *conf_find_database(const struct conf *c, const char *name)
{
	const struct conf_database *fallback = NULL;

	for (const struct conf_database *d = c->databases; d; d = d->next) {
		if (!strcmp(d->name, name))
			return d;
		if (!strcmp(d->name, "*"))
			fallback = d;
	}
	return fallback;
}

const struct conf_user *conf_find_user(const struct conf *c, const char *name)
{
	for (const struct conf_user *u = c->users; u; u = u->next) {
		if (!strcmp(u->name, name))
			return u;
	}
	return NULL;
}

static const char *conf_set_refused(const struct field *f)
{
	if (!f)
		return "unknown parameter \"%.100s\"";
	if (f->flags & PARAM_COMPUTED)
		return "\"%s\" cannot be set";
	if (f->flags & PARAM_RESTART)
		return "\"%s\" cannot be changed without restart";
	return NULL;
}

bool conf_set(const char *key, const char *value, char *err, size_t err_size)
{
	const struct field *f = field_find(conf_params.fields, conf_params.n, key);
	const char *refused = conf_set_refused(f), *conflict;
	struct field_error why;
	union field_value v;

	if (refused) {
		snprintf(err, err_size, refused, key);
		return false;
	}
	if (!field_parse(f, value, &v, &why)) {
		util_strlcpy(err, why.text, err_size);
		return false;
	}
	field_swap(f, &current->p, &v);
	conflict = params_conflict(&current->p);
	if (conflict) {
		field_swap(f, &current->p, &v);
		util_strlcpy(err, conflict, err_size);
	}
	field_drop(f, &v);
	return !conflict;
}

bool conf_list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (list && *list && len) {
		const char *end;

		list += strspn(list, ", \t");
		end = list + strcspn(list, ",");
		while (end > list && (end[-1] == ' ' || end[-1] == '\t'))
			end--;
		if ((size_t)(end - list) == len && !memcmp(list, name, len))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}
