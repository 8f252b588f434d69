/*
 * A HINT for what Postgres, or a function of ours, says of a value without one: which clause it is of, and how it is
 * written. By the name of the type in the message, which is the same in each language of a server.
 *
 * Must not know: which way a statement takes.
 *
 * Entry point: explain_value().
 */
#include "qlang/explain.h"

#include <stdio.h>
#include <string.h>

enum type { TYPE_TIME, TYPE_INTERVAL, TYPE_INT, TYPE_JSON, TYPES };

static const struct {
	const char *name;    /* in messages; one that is part of another one is behind it */
	const char *written; /* behind "X takes " */
	const char *alone;   /* when it is not known which clause it is of */
} types[TYPES] = {
	[TYPE_TIME] = {"timestamp with time zone", "a time, such as '2030-01-31 12:00+00'.",
		"A time is written '2030-01-31 12:00+00'."},
	[TYPE_INTERVAL] = {"interval", "an interval, such as '30 s', '5 min' or '2 h'.",
		"An interval is written '30 s', '5 min' or '2 h'."},
	[TYPE_INT] = {"integer", "a whole number, up to 2147483647.",
		"A whole number is wanted, up to 2147483647."},
	[TYPE_JSON] = {"json", "JSON, such as '{\"a\": 1}'.",
		"JSON is written '{\"a\": 1}', a text in it '\"text\"'."},
};

/* Type of a clause; TYPES: none of these. */
static enum type type_of(const struct qverb_arg *a)
{
	switch (a->kind) {
	case QKIND_INTERVAL:
	case QKIND_MAY_INTERVAL:
		return TYPE_INTERVAL;
	case QKIND_TIMESTAMP:
		return TYPE_TIME;
	case QKIND_INT:
		return TYPE_INT;
	case QKIND_JSON:
	case QKIND_CONTAINED:
	case QKIND_PAYLOADS:
		return TYPE_JSON;
	default:
		return TYPES;
	}
}

static bool is_one_of(const char *sqlstate, const char *const *list)
{
	for (; *list != NULL; list++)
		if (strcmp(sqlstate, *list) == 0)
			return true;
	return false;
}

/* The type that a value cannot be read as. "cannot cast type integer to interval": the last one. */
static enum type type_said(const struct pg_error *err)
{
	static const char *const states[] = {
		"22P02", "22007", "22008", "22015", "22003", "42846", NULL};
	const char *last = NULL;
	enum type ret = TYPES;

	if (!is_one_of(err->sqlstate, states))
		return TYPES;
	for (int i = 0; i < TYPES; i++)
		for (const char *at = err->message; (at = strstr(at, types[i].name)) != NULL; at++)
			if (last == NULL || at > last) {
				last = at;
				ret = (enum type)i;
			}
	return ret;
}

/* Does the message tell this very value, in quotes? */
static bool is_told(const struct pg_error *err, const struct qvalue *v)
{
	const char *at = err->message;

	if (v->kind != QV_LITERAL && v->kind != QV_NAME)
		return false;
	while ((at = strchr(at, '"')) != NULL) {
		at++;
		if (strlen(at) > v->text_len && memcmp(at, v->text, v->text_len) == 0 &&
			at[v->text_len] == '"')
			return true;
	}
	return false;
}

struct search {
	const struct pg_error *err;
	const struct qstmt *q;
	enum type type;
	const struct qverb_arg *told, *only; /* its value is told; or it is one of so many */
	const struct qvalue *option;         /* in parentheses */
	int n;
};

static void look_at(struct search *s, const struct qverb_arg *a)
{
	bool options = a->kind == QKIND_OPTIONS;

	if (!qstmt_has(s->q, a->id) || (!options && type_of(a) != s->type))
		return;
	if (!options) {
		s->only = a;
		s->n++;
	}
	for (int i = 0; i < qstmt_count(s->q, a->id); i++) {
		const struct qvalue *v = qstmt_value(s->q, a->id, i);

		if (s->told != NULL || !is_told(s->err, v))
			continue;
		s->told = a;
		s->option = options ? v : NULL;
	}
}

static void look_at_all(struct search *s, const struct qverb *verb)
{
	for (int i = 0; verb != NULL && i < verb->n_args; i++)
		look_at(s, &verb->args[i]);
}

static void explain_type(
	struct pg_error *err, enum type type, const struct qverb *verb, const struct qstmt *q)
{
	struct search s = {.err = err, .q = q, .type = type};
	const struct qverb_arg *a;

	if (q != NULL) {
		look_at_all(&s, verb);
		look_at_all(&s, q->then);
	}
	a = s.told != NULL ? s.told : s.n == 1 ? s.only : NULL;
	if (a == NULL)
		pg_error_hint(err, "%s", types[type].alone);
	else if (s.option != NULL)
		pg_error_hint(err, "%.*s takes %s", (int)s.option->option_len, s.option->option,
			types[type].written);
	else if (a->id == QARG_PARAMS)
		pg_error_hint(err, "PARAMS takes a JSON array, such as '[7, \"a text\", null]'.");
	else if (a->kind == QKIND_PAYLOADS)
		pg_error_hint(err,
			"The payloads of this queue are JSON: a text is written '\"text\"'. A queue WITH (payload = text) takes any.");
	else
		pg_error_hint(err, "%s takes %s", a->keyword != NULL ? a->keyword : a->name,
			types[type].written);
}

bool explain_value(struct pg_error *err, const struct qverb *verb, const struct qstmt *q)
{
	static const char *const states[] = {"22004", "22008", "22023", "42602", "42622", NULL};
	enum type type = type_said(err);

	if (err->hint[0] != '\0')
		return false;
	if (type != TYPES)
		explain_type(err, type, verb, q);
	else if (is_one_of(err->sqlstate, states))
		pg_error_hint(err, "QUEUE HELP %s shows how it is written.", verb->name);
	return err->hint[0] != '\0';
}
