/*
 * PUSH q [(column, ...)] [ON DUPLICATE policy] {{SELECT ... | VALUES ... | TABLE t | WITH ...}
 * [RETURNING ...] | FROM STDIN [options]}. The client's query and its COPY options are not
 * understood, only delimited: tokens up to our RETURNING or the end of the statement, parentheses
 * in balance, so that what is put around them stays around them. Entry points: parser_at_bulk,
 * parser_bulk.
 */
#include "parse_int.h"

#include <string.h>

/* --- is it one? --- */

/* (payload) or (payload, ...: a list of names. A value in parentheses may be a word, too. */
static bool at_columns(const struct parser *p)
{
	struct sql_lexer ahead = p->lx;
	struct sql_token name, next;

	if (!parser_at_char(p, '('))
		return false;
	sql_lex_next(&ahead, &name);
	sql_lex_next(&ahead, &next);
	if (name.kind == SQL_QIDENT)
		return true;
	if (name.kind != SQL_IDENT || next.kind != SQL_OTHER)
		return false;
	if (parser_word_is(&name, "null", 4) || parser_word_is(&name, "true", 4) ||
		parser_word_is(&name, "false", 5))
		return false;
	return *next.text == ')' || *next.text == ',';
}

static bool at_query(const struct parser *p)
{
	return parser_at(p, "select") || parser_at(p, "with") || parser_at(p, "values") ||
	       parser_at(p, "table");
}

bool parser_at_bulk(const struct parser *p)
{
	return at_query(p) || parser_at(p, "from") || at_columns(p);
}

/* --- columns --- */

static const char *const names[QCOLUMN_COUNT] = {
	[QCOLUMN_PAYLOAD] = "payload",
	[QCOLUMN_PRIORITY] = "priority",
	[QCOLUMN_DELAY] = "delay",
	[QCOLUMN_AT] = "at",
	[QCOLUMN_EXPIRES] = "expires",
	[QCOLUMN_HEADERS] = "headers",
	[QCOLUMN_ATTEMPTS] = "attempts",
	[QCOLUMN_KEY] = "key",
	[QCOLUMN_GROUP] = "group",
	[QCOLUMN_BATCH] = "batch",
};

static bool unknown_column(struct parser *p, const struct qvalue *v, const char *at)
{
	char text[200];
	size_t n = 0;

	for (int i = 0; i < QCOLUMN_COUNT; i++) {
		if (i)
			n += util_strlcpy(text + n, ", ", sizeof(text) - n);
		n += util_strlcpy(text + n, names[i], sizeof(text) - n);
	}
	pg_error_set(p->err, "42703", "a push has no column \"%.*s\"",
		(int)(v->text_len < 60 ? v->text_len : 60), v->text);
	pg_error_hint(p->err, "The columns are %s.", text);
	parser_place(p, at);
	return false;
}

bool qbulk_has(const struct qbulk *b, enum qcolumn column)
{
	for (int i = 0; i < b->n_columns; i++)
		if (b->columns[i] == column)
			return true;
	return false;
}

static bool repeated_column(struct parser *p, int column, const char *at)
{
	const struct qbulk *b = &p->q->bulk;

	if (qbulk_has(b, (enum qcolumn)column))
		pg_error_set(p->err, "42701", "column \"%s\" is given twice", names[column]);
	else if ((column == QCOLUMN_AT && qbulk_has(b, QCOLUMN_DELAY)) ||
		 (column == QCOLUMN_DELAY && qbulk_has(b, QCOLUMN_AT)))
		pg_error_set(p->err, "42601", "the columns delay and at exclude each other");
	else
		return false;
	parser_place(p, at);
	return true;
}

static bool parse_column(struct parser *p)
{
	struct qbulk *b = &p->q->bulk;
	const char *at = p->t.text;
	struct qvalue v = {0};
	int column = 0;

	if (!parser_name(p, &v))
		return false;
	while (column < QCOLUMN_COUNT && (strlen(names[column]) != v.text_len ||
						 memcmp(names[column], v.text, v.text_len) != 0))
		column++;
	if (column == QCOLUMN_COUNT)
		return unknown_column(p, &v, at);
	if (repeated_column(p, column, at))
		return false;
	b->columns[b->n_columns++] = (uint8_t)column;
	return true;
}

static bool parse_columns(struct parser *p)
{
	const char *at = p->t.text;

	do {
		parser_advance(p);
		if (!parse_column(p))
			return false;
	} while (parser_at_char(p, ','));
	if (!parser_expect_char(p, ')'))
		return false;
	if (qbulk_has(&p->q->bulk, QCOLUMN_PAYLOAD))
		return true;
	pg_error_set(p->err, "42601", "the columns of a push must have the payload among them");
	parser_place(p, at);
	return false;
}

/* --- the client's text --- */

static bool refuse_returning(struct parser *p)
{
	pg_error_set(p->err, "0A000", "a push by COPY returns no ids");
	pg_error_hint(p->err, "Push by a query: QUEUE PUSH q SELECT ... RETURNING ID;");
	parser_place(p, p->t.text);
	return false;
}

/* VALUES may be the name of a query of the WITH, too: it is not behind one. */
static bool at_main(const struct parser *p)
{
	return parser_at(p, "select") ||
	       ((parser_at(p, "values") || parser_at(p, "table")) && p->prev_end[-1] == ')');
}

/* RETURNING {ID | JOB}[, ...] behind a query, and nothing behind that. */
static bool parse_ids(struct parser *p)
{
	p->q->args[QARG_RETURNING] =
		(struct qarg){.first = (uint16_t)p->q->n_values, .given = true};
	parser_advance(p);
	if (!parser_returning(p))
		return false;
	return p->t.kind == SQL_END || p->t.kind == SQL_SEMICOLON || parser_syntax_error(p);
}

/*
 * Up to our RETURNING, or the end of the statement. Outside of parentheses the query has that word
 * only as a name, behind AS or a dot. The main SELECT behind a WITH is the first that stands
 * outside of them: a name of a WITH query cannot be that word without quotes.
 */
static bool delimit(struct parser *p)
{
	struct qbulk *b = &p->q->bulk;
	bool with = parser_at(p, "with"), name = false;
	int depth = 0;

	b->text = p->t.text;
	for (; p->t.kind != SQL_END; parser_advance(p)) {
		if (p->t.kind == SQL_SEMICOLON && depth == 0)
			break;
		if (p->t.kind == SQL_BAD || p->t.kind == SQL_SEMICOLON)
			return parser_syntax_error(p);
		if (p->t.kind == SQL_PARAM && !parser_param(p))
			return false;
		if (depth == 0 && !name && parser_at(p, "returning"))
			return b->kind == QBULK_QUERY ? parse_ids(p) : refuse_returning(p);
		name = parser_at(p, "as") || parser_at_char(p, '.');
		if (with && depth == 0 && b->with_len == 0 && at_main(p))
			b->with_len = (size_t)(p->t.text - b->text);
		if (parser_at_char(p, '('))
			depth++;
		else if (parser_at_char(p, ')') && depth-- == 0)
			return parser_syntax_error(p);
		b->len = (size_t)(p->t.text + p->t.len - b->text);
	}
	return depth == 0 || parser_syntax_error(p);
}

/* A bare word or a string, behind ON DUPLICATE. */
static bool read_policy(struct parser *p)
{
	static const char *const policies[QDUP_COUNT] = {
		[QDUP_IGNORE] = "ignore",
		[QDUP_REPLACE] = "replace",
		[QDUP_RERUN] = "rerun",
		[QDUP_ERROR] = "error",
	};
	const char *at = p->t.text;
	struct qvalue v = {0};

	if (!parser_name_or_value(p, &v))
		return false;
	for (int i = 0; i < QDUP_COUNT && v.kind != QV_PARAM; i++) {
		if (v.text_len != strlen(policies[i]) ||
			util_memcasecmp(v.text, policies[i], v.text_len))
			continue;
		p->q->bulk.duplicate = (enum qduplicate)i;
		return true;
	}
	pg_error_set(p->err, "22023", "unknown ON DUPLICATE \"%.*s\"",
		(int)(v.src_len < 60 ? v.src_len : 60), v.src);
	pg_error_hint(p->err, "Give IGNORE, REPLACE, RERUN or ERROR.");
	parser_place(p, at);
	return false;
}

static bool parse_duplicate(struct parser *p)
{
	const char *at = p->t.text;

	if (!parser_at(p, "on"))
		return true;
	parser_advance(p);
	if (!parser_at(p, "duplicate"))
		return parser_syntax_error(p);
	parser_advance(p);
	if (!read_policy(p))
		return false;
	if (qbulk_has(&p->q->bulk, QCOLUMN_KEY))
		return true;
	pg_error_set(p->err, "22023", "ON DUPLICATE needs a column key");
	parser_place(p, at);
	return false;
}

bool parser_bulk(struct parser *p)
{
	struct qbulk *b = &p->q->bulk;
	const struct qvalue *queue = qstmt_one(p->q, QARG_QUEUE);

	if (queue && queue->kind == QV_PARAM) {
		pg_error_set(p->err, "0A000", "the queue of a bulk push cannot be a parameter");
		pg_error_hint(p->err, "Write its name into the statement.");
		parser_place(p, queue->src);
		return false;
	}
	if (parser_at_char(p, '(') && !parse_columns(p))
		return false;
	if (b->n_columns == 0)
		b->columns[b->n_columns++] = QCOLUMN_PAYLOAD;
	if (!parse_duplicate(p))
		return false;
	if (at_query(p)) {
		b->kind = QBULK_QUERY;
		return delimit(p);
	}
	if (!parser_at(p, "from"))
		return parser_syntax_error(p);
	parser_advance(p);
	if (!parser_at(p, "stdin"))
		return parser_syntax_error(p);
	parser_advance(p);
	b->kind = QBULK_COPY;
	return delimit(p);
}
