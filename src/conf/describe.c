/*
 * The tables of keys as text. Entry points: conf/describe.h.
 */
#include "conf/describe.h"

#include <stdio.h>

#include "table_int.h"

/* The order and the groups of conf/params.h: either a title or a name. */
static const struct {
	const char *group, *name;
} layout[] = {
#define PARAM_GROUP(title)    {title, NULL},
#define PARAM_STR(name, ...)  {NULL, #name},
#define PARAM_INT(name, ...)  {NULL, #name},
#define PARAM_BOOL(name, ...) {NULL, #name},
#define PARAM_TIME(name, ...) {NULL, #name},
#define PARAM_SIZE(name, ...) {NULL, #name},
#define PARAM_ENUM(name, ...) {NULL, #name},
#include "conf/params.h"
};

struct describe {
	void (*fn)(const struct conf_key *key, void *arg);
	void *arg;
};

static const char *type_text(const struct field *f, char *text, size_t size)
{
	static const char *const names[] = {
		[FIELD_STR] = "text",
		[FIELD_INT] = "number",
		[FIELD_BOOL] = "bool",
		[FIELD_TIME] = "time",
		[FIELD_SIZE] = "size",
	};
	size_t len = 0;

	if (f->kind == FIELD_INT && (f->flags & PARAM_OCTAL))
		return "octal";
	if (f->kind != FIELD_ENUM)
		return names[f->kind];
	text[0] = '\0';
	for (const struct field_word *w = f->words; w->word && len < size; w++)
		len += (size_t)snprintf(
			text + len, size - len, "%s%s", w == f->words ? "" : ", ", w->word);
	return text;
}

/* A bound as text, in the unit of the file. */
static const char *bound_text(const struct field *f, int64_t n, char text[FIELD_TEXT])
{
	union field_value v = {0};

	if (f->kind == FIELD_INT)
		v.i = (int)n;
	else if (f->kind == FIELD_TIME)
		v.time = (usec_t)n;
	else
		v.size = n;
	return field_text(f, &v, text);
}

static const char *bounds_text(const struct field *f, char *text, size_t size)
{
	char min[FIELD_TEXT], max[FIELD_TEXT];

	if (f->kind != FIELD_INT && f->kind != FIELD_TIME && f->kind != FIELD_SIZE)
		return "";
	if (f->max == INT_MAX || f->max == CONF_TIME_MAX)
		snprintf(text, size, "from %s", bound_text(f, f->min, min));
	else
		snprintf(text, size, "%s to %s", bound_text(f, f->min, min),
			bound_text(f, f->max, max));
	return text;
}

static void describe_field(
	const struct describe *d, const char *section, const char *group, const struct field *f)
{
	char type[160], bounds[2 * FIELD_TEXT + 8];
	struct conf_key key = {
		.section = section,
		.group = group,
		.name = f->name,
		.type = type_text(f, type, sizeof(type)),
		.bounds = bounds_text(f, bounds, sizeof(bounds)),
		.def = f->def,
		.restart = f->flags & PARAM_RESTART,
		.computed = f->flags & PARAM_COMPUTED,
		.help = f->help,
	};

	d->fn(&key, d->arg);
}

static void describe_table(
	const struct describe *d, const char *section, const struct field_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		/* Other names of a key have no help. */
		if (t->fields[i].help)
			describe_field(d, section, NULL, &t->fields[i]);
	}
}

void conf_describe(void (*fn)(const struct conf_key *key, void *arg), void *arg)
{
	struct describe d = {fn, arg};
	const char *group = NULL;

	for (size_t i = 0; i < ARRAY_LEN(layout); i++) {
		if (layout[i].group)
			group = layout[i].group;
		else
			describe_field(&d, "qbouncer", group,
				field_find(conf_params.fields, conf_params.n, layout[i].name));
	}
	describe_table(&d, "databases", &conf_database_keys);
	describe_table(&d, "users", &conf_user_keys);
}
