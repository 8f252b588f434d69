/*
 * The values of QUEUE statements: what drivers write when they interpolate. A value is a literal,
 * $n, NULL, TRUE or FALSE, in parentheses and with casts as deep as one likes. Its bytes are kept
 * for the rewriter, its decoded text for the engine. Where the statement may have an expression,
 * parentheses with anything else in them are one: it is delimited, not understood. Entry points:
 * parser_value, parser_queue, parser_name, parser_name_or_value.
 */
#include "parse_int.h"

#include <string.h>

#include "base/mem.h"

#define DEPTH_MAX 50
#define PARAM_MAX 65535

static bool value_error(struct parser *p)
{
	const char *hint = NULL;

	parser_syntax_error(p);
	if (p->trying)
		return false;
	if (p->computed && !p->may_compute)
		hint = "A value is a literal or a parameter ($1): compute it before.";
	else if ((p->t.kind == SQL_IDENT || p->t.kind == SQL_QIDENT) && !p->computed)
		hint = p->may_compute
			       ? "Bind the value as a parameter ($1), write it as a quoted literal, or as an expression in parentheses."
			       : "Bind the value as a parameter ($1) or write it as a quoted literal.";
	if (hint != NULL)
		pg_error_hint(p->err, "%s Usage: %s", hint, p->q->verb->usage);
	return false;
}

/* --- decoding --- */

/* Keeps what is in scratch for as long as the statement lives. */
static bool keep_scratch(struct parser *p, const char **ret, uint32_t *ret_len)
{
	struct qchunk *c;
	size_t n = buf_used(&p->scratch);

	if (buf_failed(&p->scratch))
		return parser_out_of_memory(p);
	c = mem_alloc(sizeof(*c) + n + 1);
	if (!c)
		return parser_out_of_memory(p);
	if (n)
		memcpy(c->data, p->scratch.data + p->scratch.off, n);
	c->data[n] = '\0';
	c->next = p->q->chunks;
	p->q->chunks = c;
	*ret = c->data;
	*ret_len = (uint32_t)n;
	return true;
}

/* Most literals and names mean the bytes that stand in the statement, from t->text + skip. */
static bool can_borrow(const struct parser *p, const struct sql_token *t, size_t *ret_skip)
{
	const char *inside = t->text + 1;
	size_t n = t->len >= 2 ? t->len - 2 : 0;

	*ret_skip = 1;
	if (t->kind == SQL_NUMBER || t->kind == SQL_IDENT) {
		*ret_skip = 0;
		for (size_t i = 0; i < t->len; i++) {
			if (t->text[i] != util_lower(t->text[i]))
				return false;
		}
		return true;
	}
	if (t->kind == SQL_QIDENT)
		return *t->text == '"' && !memchr(inside, '"', n);
	if (t->kind != SQL_STRING)
		return false;
	if (*t->text == '$') {
		*ret_skip = (size_t)((const char *)memchr(inside, '$', t->len - 1) - t->text) + 1;
		return true;
	}
	return *t->text == '\'' && !memchr(inside, '\'', n) &&
	       (p->q->standard_strings || !memchr(inside, '\\', n));
}

static bool decode(struct parser *p, const struct sql_token *t, const char **ret, uint32_t *ret_len)
{
	size_t skip;

	if (can_borrow(p, t, &skip)) {
		*ret = t->text + skip;
		*ret_len = (uint32_t)(t->len - 2 * skip);
		return true;
	}
	buf_reset(&p->scratch);
	if (!sql_token_value(t, p->q->standard_strings, &p->scratch) && !buf_failed(&p->scratch)) {
		pg_error_set(p->err, "22025", "invalid escape or digit in \"%.*s\"", parser_near(t),
			t->text);
		parser_place(p, t->text);
		return false;
	}
	return keep_scratch(p, ret, ret_len);
}

/* --- types --- */

static bool type_word(struct parser *p)
{
	if (p->t.kind != SQL_IDENT && p->t.kind != SQL_QIDENT)
		return value_error(p);
	parser_advance(p);
	return true;
}

/* (10, 2) behind a type's name */
static bool type_modifiers(struct parser *p)
{
	if (!parser_at_char(p, '('))
		return true;
	do {
		parser_advance(p);
		if (p->t.kind != SQL_NUMBER)
			return value_error(p);
		parser_advance(p);
	} while (parser_at_char(p, ','));
	return parser_expect_char(p, ')');
}

static bool type_brackets(struct parser *p)
{
	while (parser_at_char(p, '[')) {
		parser_advance(p);
		if (p->t.kind == SQL_NUMBER)
			parser_advance(p);
		if (!parser_expect_char(p, ']'))
			return false;
	}
	return true;
}

/* What a driver is told of a parameter with this cast. */
static uint32_t type_oid(const char *name, size_t len)
{
	static const struct {
		const char *name;
		uint32_t oid;
	} types[] = {{"text", OID_TEXT}, {"varchar", OID_VARCHAR}, {"int2", OID_INT2},
		{"smallint", OID_INT2}, {"int4", OID_INT4}, {"int", OID_INT4},
		{"integer", OID_INT4}, {"int8", OID_INT8}, {"bigint", OID_INT8},
		{"numeric", OID_NUMERIC}, {"bool", OID_BOOL}, {"boolean", OID_BOOL},
		{"json", OID_JSON}, {"jsonb", OID_JSONB}, {"bytea", OID_BYTEA},
		{"interval", OID_INTERVAL}, {"timestamptz", OID_TIMESTAMPTZ},
		{"timestamp with time zone", OID_TIMESTAMPTZ}, {"uuid", OID_UUID},
		{"text[]", OID_TEXT_ARRAY}, {"varchar[]", OID_VARCHAR_ARRAY},
		{"int4[]", OID_INT4_ARRAY}, {"int[]", OID_INT4_ARRAY},
		{"integer[]", OID_INT4_ARRAY}, {"int8[]", OID_INT8_ARRAY},
		{"bigint[]", OID_INT8_ARRAY}};
	static const char schema[] = "pg_catalog.";

	if (len > sizeof(schema) - 1 && !util_memcasecmp(name, schema, sizeof(schema) - 1)) {
		name += sizeof(schema) - 1;
		len -= sizeof(schema) - 1;
	}
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (strlen(types[i].name) == len && !util_memcasecmp(name, types[i].name, len))
			return types[i].oid;
	return 0;
}

/* [schema.]name, or the types of SQL whose names are several words */
static bool type_name(struct parser *p)
{
	bool time = parser_at(p, "timestamp") || parser_at(p, "time");
	bool varying = parser_at(p, "character") || parser_at(p, "char") || parser_at(p, "bit");
	bool precision = parser_at(p, "double");

	if (!type_word(p))
		return false;
	while (parser_at_char(p, '.')) {
		parser_advance(p);
		if (!type_word(p))
			return false;
	}
	if ((varying && parser_at(p, "varying")) || (precision && parser_at(p, "precision")))
		parser_advance(p);
	if (!type_modifiers(p))
		return false;
	if (time && (parser_at(p, "with") || parser_at(p, "without"))) {
		parser_advance(p);
		if (!parser_at(p, "time"))
			return value_error(p);
		parser_advance(p);
		if (!parser_at(p, "zone"))
			return value_error(p);
		parser_advance(p);
	}
	return type_brackets(p);
}

/* --- expressions --- */

static bool parse_expr(struct parser *p, struct qvalue *v, int depth);

/* A cast of this value. The first one tells the type of a parameter, as it does in SQL. */
static bool parse_type(struct parser *p, struct qvalue *v)
{
	const char *at = p->t.text;
	bool first = !v->cast;

	v->cast = true;
	if (!type_name(p))
		return false;
	if (first && v->kind == QV_PARAM)
		v->cast_oid = type_oid(at, (size_t)(p->prev_end - at));
	return true;
}

static bool parse_literal(struct parser *p, struct qvalue *v)
{
	v->kind = QV_LITERAL;
	v->number = p->t.kind == SQL_NUMBER;
	if (!decode(p, &p->t, &v->text, &v->text_len))
		return false;
	parser_advance(p);
	return true;
}

bool parser_param(struct parser *p)
{
	if (p->t.param < 1 || p->t.param > PARAM_MAX) {
		pg_error_set(p->err, "42P02", "there is no parameter %.*s", parser_near(&p->t),
			p->t.text);
		parser_place(p, p->t.text);
		return false;
	}
	if (p->t.param > p->max_param)
		p->max_param = p->t.param;
	return true;
}

static bool parse_param(struct parser *p, struct qvalue *v)
{
	if (!parser_param(p))
		return false;
	v->kind = QV_PARAM;
	v->param = p->t.param;
	parser_advance(p);
	return true;
}

static bool negate(struct parser *p, struct qvalue *v)
{
	if (*v->text == '-') {
		v->text++;
		v->text_len--;
		return true;
	}
	buf_reset(&p->scratch);
	buf_putc(&p->scratch, '-');
	buf_put(&p->scratch, v->text, v->text_len);
	return keep_scratch(p, &v->text, &v->text_len);
}

static bool parse_signed(struct parser *p, struct qvalue *v, int depth)
{
	struct sql_token sign = p->t;

	parser_advance(p);
	if (!parse_expr(p, v, depth + 1))
		return false;
	if (v->kind != QV_LITERAL || !v->number) {
		p->t = sign;
		return value_error(p);
	}
	return *sign.text == '+' || negate(p, v);
}

static bool parse_parens(struct parser *p, struct qvalue *v, int depth)
{
	/* what it has behind the first value, or in place of it */
	parser_advance(p);
	p->computed = true;
	if (!parse_expr(p, v, depth + 1))
		return false;
	if (!parser_at_char(p, ')'))
		return value_error(p);
	p->computed = depth > 0;
	parser_advance(p);
	return true;
}

/* From behind the ( to behind its ). What is around it stays around it: parentheses in balance, no
 * semicolon, nothing open. */
static bool delimit(struct parser *p)
{
	int depth = 1;

	if (parser_at_char(p, ')'))
		return value_error(p);
	for (;; parser_advance(p)) {
		if (p->t.kind == SQL_END || p->t.kind == SQL_BAD || p->t.kind == SQL_SEMICOLON)
			return value_error(p);
		if (p->t.kind == SQL_PARAM && !parser_param(p))
			return false;
		depth += parser_at_char(p, '(') - parser_at_char(p, ')');
		if (depth == 0)
			break;
	}
	parser_advance(p);
	return true;
}

/* To the end of the statement, which has to be outside of all parentheses. */
static bool delimit_rest(struct parser *p)
{
	int depth = 0;

	for (; p->t.kind != SQL_END && p->t.kind != SQL_SEMICOLON; parser_advance(p)) {
		if (p->t.kind == SQL_PARAM && !parser_param(p))
			return false;
		depth += parser_at_char(p, '(') - parser_at_char(p, ')');
		if (p->t.kind == SQL_BAD || depth < 0)
			return value_error(p);
	}
	return depth == 0 || value_error(p);
}

/* What begins with parentheses may go on behind them: by an operator, or by one of these words. */
static bool goes_on(const struct parser *p)
{
	static const char *const words[] = {"and", "or", "is", "isnull", "notnull", "in", "not",
		"like", "ilike", "similar", "between", "collate", "at", "operator"};

	if (p->t.kind != SQL_IDENT)
		return p->t.kind != SQL_END && p->t.kind != SQL_SEMICOLON;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (parser_at(p, words[i]))
			return true;
	return false;
}

bool parser_condition(struct parser *p, struct qvalue *v)
{
	const char *src = p->t.text;

	p->computed = true;
	p->may_compute = true;
	*v = (struct qvalue){.kind = QV_EXPRESSION, .src = src, .nth = p->q->n_expressions++};
	if (p->t.kind == SQL_END || p->t.kind == SQL_SEMICOLON)
		return parser_syntax_error(p);
	if (parser_at_char(p, '(')) {
		parser_advance(p);
		if (!delimit(p))
			return false;
	}
	if ((p->t.text == src || goes_on(p)) && !delimit_rest(p))
		return false;
	v->src_len = (size_t)(p->prev_end - src);
	return true;
}

/* A value in parentheses, or else an expression. */
static bool parse_expression(struct parser *p, struct qvalue *v)
{
	struct sql_lexer lx = p->lx;
	struct sql_token open = p->t;
	const char *src = v->src;
	bool ok;

	p->trying = true;
	p->no_value = false;
	ok = parse_parens(p, v, 0);
	p->trying = false;
	if (ok || !p->no_value)
		return ok;
	p->lx = lx;
	p->t = open;
	p->computed = false;
	parser_advance(p);
	*v = (struct qvalue){.kind = QV_EXPRESSION, .src = src, .nth = p->q->n_expressions++};
	return delimit(p);
}

static bool parse_cast(struct parser *p, struct qvalue *v, int depth)
{
	parser_advance(p);
	if (!parser_at_char(p, '('))
		return value_error(p);
	parser_advance(p);
	if (!parse_expr(p, v, depth + 1))
		return false;
	if (!parser_at(p, "as"))
		return value_error(p);
	parser_advance(p);
	return parse_type(p, v) && parser_expect_char(p, ')');
}

/* interval '30s' and its like: a cast that SQL writes in front */
static bool at_typed_literal(const struct parser *p)
{
	static const char *const types[] = {
		"interval", "timestamp", "timestamptz", "date", "json", "jsonb", "text"};
	struct sql_lexer ahead = p->lx;
	struct sql_token next;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (parser_at(p, types[i])) {
			sql_lex_next(&ahead, &next);
			return next.kind == SQL_STRING;
		}
	}
	return false;
}

static bool parse_word(struct parser *p, struct qvalue *v, int depth)
{
	if (parser_at(p, "cast"))
		return parse_cast(p, v, depth);
	if (parser_at(p, "null")) {
		v->kind = QV_NULL;
	} else if (parser_at(p, "true") || parser_at(p, "false")) {
		v->kind = QV_LITERAL;
		v->text = parser_at(p, "true") ? "true" : "false";
		v->text_len = strlen(v->text);
	} else if (at_typed_literal(p)) {
		parser_advance(p);
		v->cast = true;
		return parse_literal(p, v);
	} else {
		return value_error(p);
	}
	parser_advance(p);
	return true;
}

static bool parse_primary(struct parser *p, struct qvalue *v, int depth)
{
	switch (p->t.kind) {
	case SQL_STRING:
	case SQL_BITS:
	case SQL_NUMBER:
		return parse_literal(p, v);
	case SQL_PARAM:
		return parse_param(p, v);
	case SQL_IDENT:
		return parse_word(p, v, depth);
	case SQL_OTHER:
		if (parser_at_char(p, '(') && p->may_compute && depth == 0)
			return parse_expression(p, v);
		if (parser_at_char(p, '('))
			return parse_parens(p, v, depth);
		if (parser_at_char(p, '-') || parser_at_char(p, '+'))
			return parse_signed(p, v, depth);
		return value_error(p);
	default:
		return value_error(p);
	}
}

static bool parse_expr(struct parser *p, struct qvalue *v, int depth)
{
	if (depth > DEPTH_MAX) {
		pg_error_set(p->err, "54001", "value is nested too deeply");
		parser_place(p, p->t.text);
		return false;
	}
	if (!parse_primary(p, v, depth))
		return false;
	while (p->t.kind == SQL_OTHER && p->t.len == 2) { /* :: */
		parser_advance(p);
		if (!parse_type(p, v))
			return false;
	}
	return true;
}

bool parser_at_array(const struct parser *p)
{
	struct sql_lexer ahead = p->lx;
	struct sql_token next;

	if (!parser_at(p, "any") && !parser_at(p, "array"))
		return false;
	sql_lex_next(&ahead, &next);
	return next.kind == SQL_OTHER && next.len == 1 &&
	       *next.text == (parser_at(p, "any") ? '(' : '[');
}

bool parser_array_end(struct parser *p)
{
	if (!parser_expect_char(p, ']'))
		return false;
	while (p->t.kind == SQL_OTHER && p->t.len == 2) { /* :: */
		parser_advance(p);
		if (!type_name(p))
			return false;
	}
	return true;
}

bool parser_value(struct parser *p, struct qvalue *v)
{
	v->src = p->t.text;
	if (!parse_expr(p, v, 0))
		return false;
	v->src_len = (size_t)(p->prev_end - v->src);
	return true;
}

/* --- names --- */

bool parser_name(struct parser *p, struct qvalue *v)
{
	if (p->t.kind != SQL_IDENT && p->t.kind != SQL_QIDENT)
		return parser_syntax_error(p);
	v->kind = QV_NAME;
	v->src = p->t.text;
	v->src_len = p->t.len;
	if (!decode(p, &p->t, &v->text, &v->text_len))
		return false;
	parser_advance(p);
	return true;
}

/* A bare NULL is the value that a driver interpolated, not a name; "null" is one. */
bool parser_name_or_value(struct parser *p, struct qvalue *v)
{
	struct sql_lexer ahead = p->lx;
	struct sql_token next;

	if (p->t.kind == SQL_QIDENT)
		return parser_name(p, v);
	if (p->t.kind != SQL_IDENT || parser_at(p, "null"))
		return parser_value(p, v);
	sql_lex_next(&ahead, &next);
	if (parser_at(p, "cast") && next.kind == SQL_OTHER && *next.text == '(')
		return parser_value(p, v);
	return parser_name(p, v);
}

bool parser_queue(struct parser *p, struct qvalue *v)
{
	const char *at = p->t.text;

	if (!parser_name_or_value(p, v))
		return false;
	if (v->kind == QV_PARAM)
		return true;
	if (v->kind != QV_NULL && v->text_len > 0 && v->text_len <= QSTMT_QUEUE_MAX)
		return true;
	if (v->kind == QV_NULL)
		pg_error_set(p->err, "22004", "queue name must not be null");
	else if (!v->text_len)
		pg_error_set(p->err, "42602", "queue name must not be empty");
	else
		pg_error_detail(pg_error_set(p->err, "42622", "queue name is too long"),
			"It has %u bytes, at most %d are possible.", v->text_len, QSTMT_QUEUE_MAX);
	pg_error_hint(p->err, "Usage: %s", p->q->verb->usage);
	parser_place(p, at);
	return false;
}

/* ID, JOB, or both in either order */
bool parser_returning(struct parser *p)
{
	static const enum qreturning both[] = {
		[QRETURN_ID] = QRETURN_ID_JOB, [QRETURN_JOB] = QRETURN_JOB_ID};
	bool job = parser_at(p, "job");

	if (!job && !parser_at(p, "id"))
		return parser_syntax_error(p);
	p->q->returning = job ? QRETURN_JOB : QRETURN_ID;
	parser_advance(p);
	if (!parser_at_char(p, ','))
		return true;
	parser_advance(p);
	if (!parser_at(p, job ? "id" : "job"))
		return parser_syntax_error(p);
	p->q->returning = both[p->q->returning];
	parser_advance(p);
	return true;
}

bool parser_routed(struct parser *p)
{
	if (!parser_at(p, "queue"))
		return parser_syntax_error(p);
	parser_advance(p);
	if (!parser_expect_char(p, ','))
		return false;
	if (!parser_at(p, "job"))
		return parser_syntax_error(p);
	parser_advance(p);
	return true;
}

bool parser_contains(struct parser *p)
{
	bool whole = p->t.kind == SQL_OTHER && p->t.len == 2 && memcmp(p->t.text, "@>", 2) == 0;

	if (whole)
		parser_advance(p);
	return whole || (parser_expect_char(p, '@') && parser_expect_char(p, '>'));
}

bool parser_table(struct parser *p, struct qvalue *v)
{
	const char *src = p->t.text;

	if (!parser_name_or_value(p, v))
		return false;
	if (v->kind != QV_NAME)
		return true;
	while (parser_at_char(p, '.')) {
		struct qvalue part = {0};

		parser_advance(p);
		if (!parser_name(p, &part))
			return false;
	}
	/* as it was written: who looks it up knows what the quotes mean */
	v->src = v->text = src;
	v->src_len = (size_t)(p->prev_end - src);
	v->text_len = (uint32_t)v->src_len;
	return true;
}

/* It is not carried out now, so there is nothing that a parameter could be. */
bool parser_kept(struct parser *p, struct qvalue *v)
{
	const char *src = p->t.text;
	int max_param = p->max_param;

	if (!parser_expect_char(p, '(') || !delimit(p))
		return false;
	if (p->max_param > max_param) {
		p->max_param = max_param;
		pg_error_set(p->err, "42P02", "an expression that is kept has no parameters");
		pg_error_hint(p->err, "Write the value into it.");
		parser_place(p, src);
		return false;
	}
	*v = (struct qvalue){.kind = QV_NAME, .src = src, .text = src};
	v->src_len = (size_t)(p->prev_end - src);
	v->text_len = (uint32_t)v->src_len;
	return true;
}
