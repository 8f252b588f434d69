/*
 * Statements in SQL text: where one ends, and what it does to the transaction. Built on
 * the tokens of sqllex.c; must not know QUEUE's grammar. Entry points: sql_statement_next,
 * sql_find_tx, sql_tx_tag.
 */
#include "sqlwords.h"

#include <string.h>

bool words_token_is(const struct sql_token *t, const char *word)
{
	size_t i;

	if (t->kind != SQL_IDENT)
		return false;
	for (i = 0; i < t->len && word[i]; i++) {
		if (util_lower(t->text[i]) != word[i])
			return false;
	}
	return i == t->len && !word[i];
}

/* --- cutting --- */

/*
 * The bodies of SQL functions may hold semicolons: CREATE [OR REPLACE] {FUNCTION | PROCEDURE} ...
 * BEGIN ATOMIC ...; ...; END. Like psql, it is enough to look at the first words and to count BEGIN
 * ATOMIC and CASE against END outside parentheses.
 */
struct cutter {
	int parens, blocks;
	int words;      /* bare words so far */
	char head[4];   /* initials of the first words, if they can begin such a statement */
	bool in_create; /* they do */
	bool begins;    /* the last token is BEGIN, which is a name where no ATOMIC follows */
};

static void cutter_head(struct cutter *c, const struct sql_token *t)
{
	static const char *const heads[] = {"create", "or", "replace", "function", "procedure"};
	const char *h = c->head;

	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		if (words_token_is(t, heads[i]))
			c->head[c->words] = heads[i][0];
	}
	if (h[1] == 'o' && h[2] == 'r')
		h += 2;
	c->in_create = c->head[0] == 'c' && (h[1] == 'f' || h[1] == 'p');
}

static void cutter_word(struct cutter *c, const struct sql_token *t)
{
	if (c->words < (int)sizeof(c->head))
		cutter_head(c, t);
	c->words++;
	if (!c->in_create || c->parens)
		return;
	if ((c->begins && words_token_is(t, "atomic")) || (c->blocks && words_token_is(t, "case")))
		c->blocks++;
	else if (c->blocks && words_token_is(t, "end"))
		c->blocks--;
}

static bool cutter_ends(struct cutter *c, const struct sql_token *t)
{
	if (t->kind == SQL_IDENT)
		cutter_word(c, t);
	else if (t->kind == SQL_OTHER && *t->text == '(')
		c->parens++;
	else if (t->kind == SQL_OTHER && *t->text == ')' && c->parens)
		c->parens--;
	c->begins = words_token_is(t, "begin");
	return t->kind == SQL_END || (t->kind == SQL_SEMICOLON && !c->parens && !c->blocks);
}

/* A comment in front of a statement is part of it: it may be a hint to the planner, or a trace. */
static const char *skip_blanks(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r')))
		p++;
	return p;
}

bool sql_statement_next(const char *text, size_t len, size_t *pos, unsigned dialect,
	const char **ret, size_t *ret_len)
{
	struct sql_lexer lx;
	struct sql_token t;
	const char *start = text + *pos, *stop = NULL;
	struct cutter c = {0};

	sql_lex_init(&lx, start, len - *pos, dialect);
	do {
		sql_lex_next(&lx, &t);
		if (t.kind == SQL_SEMICOLON && !stop) {
			start = lx.pos; /* an empty statement */
			continue;
		}
		if (cutter_ends(&c, &t))
			break;
		stop = t.text + t.len;
	} while (t.kind != SQL_END);
	*pos = (size_t)(lx.pos - text);
	if (!stop)
		return false;
	*ret = skip_blanks(start, stop);
	*ret_len = (size_t)(stop - *ret);
	return true;
}

/* --- transaction control --- */

void words_init(struct words *w, const char *text, size_t len, unsigned dialect)
{
	sql_lex_init(&w->lx, text, len, dialect);
	do {
		sql_lex_next(&w->lx, &w->t);
	} while (w->t.kind == SQL_SEMICOLON);
}

bool words_accept(struct words *w, const char *word)
{
	if (!words_token_is(&w->t, word))
		return false;
	sql_lex_next(&w->lx, &w->t);
	return true;
}

bool words_accept_other(struct words *w, char c)
{
	if (w->t.kind != SQL_OTHER || w->t.len != 1 || *w->t.text != c)
		return false;
	sql_lex_next(&w->lx, &w->t);
	return true;
}

bool words_at_end(struct words *w)
{
	while (w->t.kind == SQL_SEMICOLON)
		sql_lex_next(&w->lx, &w->t);
	return w->t.kind == SQL_END;
}

/* Behind a keyword a dot makes it the class of a setting of one's own: SET local.tenant. */
bool words_accept_keyword(struct words *w, const char *word)
{
	struct words ahead = *w;

	if (!words_accept(&ahead, word) || words_accept_other(&ahead, '.'))
		return false;
	return words_accept(w, word);
}

/* Mostly the first letter tells. */
bool words_hold(const char *text, size_t len, const char *word)
{
	const char *p = text, *end = text + len;
	size_t n = strlen(word);

	for (; (size_t)(end - p) >= n; p++)
		if (util_lower(*p) == *word && util_memcasecmp(p, word, n) == 0)
			return true;
	return false;
}

static bool accept_name_part(struct words *w, struct buf *ret)
{
	struct buf part = BUF_INIT;
	bool ok = (w->t.kind == SQL_IDENT || w->t.kind == SQL_QIDENT) &&
		  sql_token_value(&w->t, SQL_STANDARD, &part) && part.len <= WORDS_NAME_MAX &&
		  memchr(part.data != NULL ? part.data : (const uint8_t *)"", 0, part.len) == NULL;

	for (size_t i = 0; ok && i < part.len; i++)
		buf_putc(ret, util_lower((char)part.data[i]));
	buf_free(&part);
	if (ok)
		sql_lex_next(&w->lx, &w->t);
	return ok;
}

/* name or class.name */
bool words_accept_name(struct words *w, struct buf *ret)
{
	do {
		if (ret->len > 0)
			buf_putc(ret, '.');
		if (!accept_name_part(w, ret))
			return false;
	} while (words_accept_other(w, '.'));
	buf_putc(ret, '\0');
	return true;
}

static bool accept_level(struct words *w)
{
	if (!words_accept(w, "level"))
		return false;
	if (words_accept(w, "serializable"))
		return true;
	if (words_accept(w, "repeatable"))
		return words_accept(w, "read");
	return words_accept(w, "read") &&
	       (words_accept(w, "committed") || words_accept(w, "uncommitted"));
}

static bool accept_mode(struct words *w)
{
	if (words_accept(w, "isolation"))
		return accept_level(w);
	if (words_accept(w, "read"))
		return words_accept(w, "write") || words_accept(w, "only");
	if (words_accept(w, "not"))
		return words_accept(w, "deferrable");
	return words_accept(w, "deferrable");
}

/* [mode [[,] mode ...]] */
static bool accept_modes(struct words *w)
{
	bool comma = false;

	while (w->t.kind == SQL_IDENT) {
		if (!accept_mode(w))
			return false;
		comma = w->t.kind == SQL_OTHER && *w->t.text == ',';
		if (comma)
			sql_lex_next(&w->lx, &w->t);
	}
	return !comma;
}

static bool accept_no_chain(struct words *w)
{
	if (!words_accept(w, "and"))
		return true;
	return words_accept(w, "no") && words_accept(w, "chain");
}

static enum sql_tx tx_kind(struct words *w)
{
	bool begin = words_accept(w, "begin"), commit, rollback;

	if (!begin && words_accept(w, "start"))
		return words_accept(w, "transaction") && accept_modes(w) ? SQL_TX_BEGIN
									 : SQL_TX_OTHER;
	commit = !begin && (words_accept(w, "commit") || words_accept(w, "end"));
	rollback = !begin && !commit && (words_accept(w, "rollback") || words_accept(w, "abort"));
	if (!begin && !commit && !rollback)
		return SQL_TX_OTHER;
	if (!words_accept(w, "work"))
		(void)words_accept(w, "transaction");
	if (begin)
		return accept_modes(w) ? SQL_TX_BEGIN : SQL_TX_OTHER;
	if (!accept_no_chain(w))
		return SQL_TX_OTHER;
	return commit ? SQL_TX_COMMIT : SQL_TX_ROLLBACK;
}

enum sql_tx sql_find_tx(struct sql_text *t)
{
	struct words w;
	enum sql_tx kind = SQL_TX_OTHER;

	if (t->known & SQL_TX)
		return t->tx;
	words_init(&w, t->sql, t->len, SQL_STANDARD);
	if (t->of == SQL_OF_PART)
		kind = SQL_TX_OTHER;
	else if (w.t.kind == SQL_END)
		kind = SQL_TX_EMPTY;
	else
		kind = tx_kind(&w);
	t->tx = (uint8_t)(words_at_end(&w) ? kind : SQL_TX_OTHER);
	t->known |= SQL_TX;
	return t->tx;
}

const char *sql_tx_tag(enum sql_tx kind, const struct sql_text *t)
{
	switch (kind) {
	case SQL_TX_BEGIN:
		return t->word == SQL_WORD_START ? "START TRANSACTION" : "BEGIN";
	case SQL_TX_COMMIT:
		return "COMMIT";
	case SQL_TX_ROLLBACK:
		return "ROLLBACK";
	case SQL_TX_OTHER:
	case SQL_TX_EMPTY:
		break;
	}
	return "";
}
