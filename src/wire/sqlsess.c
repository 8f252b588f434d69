/*
 * Single statements about the session that are understood as a whole: SET, RESET, DISCARD, LISTEN,
 * PREPARE and the like. What any text may do to the session is sqltouch.c. Entry points:
 * sql_find_session.
 */
#include <string.h>

#include "sqlwords.h"

/* Each element of their values is an identifier, quoted where Postgres finds that it has to be. */
static bool is_list_of_names(const char *name)
{
	static const char *const names[] = {"search_path", "temp_tablespaces",
		"local_preload_libraries", "session_preload_libraries", "shared_preload_libraries"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static bool is_plain_number(const struct sql_token *t)
{
	for (size_t i = 0; i < t->len; i++)
		if ((t->text[i] < '0' || t->text[i] > '9') && t->text[i] != '.')
			return false;
	return t->kind == SQL_NUMBER;
}

/* A word, a string or a number. */
static bool take_value(struct words *w, struct buf *ret)
{
	bool minus = words_accept_other(w, '-'), number = is_plain_number(&w->t);

	if (minus && !number)
		return false;
	if (minus)
		buf_putc(ret, '-');
	if (number)
		buf_put(ret, w->t.text, w->t.len);
	else if ((w->t.kind != SQL_IDENT && w->t.kind != SQL_QIDENT && w->t.kind != SQL_STRING) ||
		 !sql_token_value(&w->t, w->lx.dialect, ret))
		return false;
	if (memchr(ret->data != NULL ? ret->data : (const uint8_t *)"", 0, ret->len) != NULL)
		return false;
	buf_putc(ret, '\0');
	sql_lex_next(&w->lx, &w->t);
	return true;
}

static void put_text(struct buf *b, const char *text)
{
	buf_put(b, text, strlen(text) + 1);
}

static enum sql_session_kind set_default(struct sql_session *s)
{
	put_text(&s->value, "SET");
	return SQL_SESSION_RESET;
}

static enum sql_session_kind set_role(struct words *w, struct sql_session *s)
{
	put_text(&s->name, "role");
	return take_value(w, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind set_authorization(struct words *w, struct sql_session *s)
{
	put_text(&s->name, "session_authorization");
	if (words_accept(w, "default"))
		return set_default(s);
	return take_value(w, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind set_kind(struct words *w, struct sql_session *s)
{
	static const char *const other[] = {
		"local", "transaction", "constraints", "names", "time", "xml", "characteristics"};

	if (words_accept_keyword(w, "session") && words_accept_keyword(w, "authorization"))
		return set_authorization(w, s);
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		if (words_accept_keyword(w, other[i]))
			return SQL_SESSION_OTHER;
	if (words_accept_keyword(w, "role"))
		return set_role(w, s);
	if (!words_accept_name(w, &s->name) ||
		(!words_accept_other(w, '=') && !words_accept(w, "to")))
		return SQL_SESSION_OTHER;
	if (words_accept(w, "default"))
		return set_default(s);
	if (buf_failed(&s->name) || is_list_of_names((const char *)s->name.data))
		return SQL_SESSION_OTHER;
	return take_value(w, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind reset_kind(struct words *w, struct sql_session *s)
{
	if (words_accept_keyword(w, "all"))
		return SQL_SESSION_RESET_ALL;
	if (words_accept_keyword(w, "time")) {
		put_text(&s->name, "timezone");
		return words_accept(w, "zone") ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
	}
	if (words_accept_keyword(w, "session")) {
		put_text(&s->name, "session_authorization");
		return words_accept(w, "authorization") ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
	}
	return words_accept_name(w, &s->name) ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
}

static enum sql_session_kind discard_kind(struct words *w, struct sql_session *s)
{
	static const char *const parts[][2] = {{"plans", "DISCARD PLANS"},
		{"sequences", "DISCARD SEQUENCES"}, {"temp", "DISCARD TEMP"},
		{"temporary", "DISCARD TEMP"}};

	if (words_accept(w, "all"))
		return SQL_SESSION_DISCARD_ALL;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (words_accept(w, parts[i][0])) {
			put_text(&s->value, parts[i][1]);
			return SQL_SESSION_DISCARD_PART;
		}
	return SQL_SESSION_OTHER;
}

/* SELECT [pg_catalog.]pg_advisory_unlock_all() */
static enum sql_session_kind select_kind(struct words *w)
{
	if (words_accept(w, "pg_catalog") && !words_accept_other(w, '.'))
		return SQL_SESSION_OTHER;
	return words_accept(w, "pg_advisory_unlock_all") && words_accept_other(w, '(') &&
			       words_accept_other(w, ')')
		       ? SQL_SESSION_UNLOCK_ALL
		       : SQL_SESSION_OTHER;
}

/* It keeps its case when it is quoted. */
static bool take_name(struct words *w, struct buf *ret)
{
	if ((w->t.kind != SQL_IDENT && w->t.kind != SQL_QIDENT) ||
		!sql_token_value(&w->t, SQL_STANDARD, ret) || ret->len == 0)
		return false;
	buf_putc(ret, '\0');
	sql_lex_next(&w->lx, &w->t);
	return true;
}

/* One that Postgres does not cut off. */
static bool take_channel(struct words *w, struct buf *ret)
{
	return take_name(w, ret) && ret->len - 1 <= WORDS_NAME_MAX;
}

/* The statement itself is for the server: to its end, which is that of the text. */
static enum sql_session_kind prepare_kind(struct words *w, struct sql_session *s)
{
	if (!take_channel(w, &s->name) ||
		(!words_token_is(&w->t, "as") && !(w->t.kind == SQL_OTHER && *w->t.text == '(')))
		return SQL_SESSION_OTHER;
	while (w->t.kind != SQL_END && w->t.kind != SQL_SEMICOLON)
		sql_lex_next(&w->lx, &w->t);
	return SQL_SESSION_PREPARE;
}

/* [PREPARE] {name | ALL}; a statement may well be called prepare. */
static enum sql_session_kind deallocate_kind(struct words *w, struct sql_session *s)
{
	static const char prepare[] = "prepare";

	if (words_accept(w, prepare) && (w->t.kind == SQL_SEMICOLON || w->t.kind == SQL_END)) {
		put_text(&s->name, prepare);
		return SQL_SESSION_DEALLOCATE;
	}
	if (words_accept(w, "all"))
		return SQL_SESSION_DEALLOCATE_ALL;
	return take_name(w, &s->name) ? SQL_SESSION_DEALLOCATE : SQL_SESSION_OTHER;
}

static enum sql_session_kind kind_behind(enum sql_word word, struct words *w, struct sql_session *s)
{
	switch (word) {
	case SQL_WORD_SET:
		return set_kind(w, s);
	case SQL_WORD_RESET:
		return reset_kind(w, s);
	case SQL_WORD_DISCARD:
		return discard_kind(w, s);
	case SQL_WORD_DEALLOCATE:
		return deallocate_kind(w, s);
	case SQL_WORD_PREPARE:
		return prepare_kind(w, s);
	case SQL_WORD_CLOSE:
		return words_accept(w, "all") ? SQL_SESSION_CLOSE_ALL : SQL_SESSION_OTHER;
	case SQL_WORD_UNLISTEN:
		return words_accept_other(w, '*') || take_channel(w, &s->name)
			       ? SQL_SESSION_UNLISTEN
			       : SQL_SESSION_OTHER;
	case SQL_WORD_LISTEN:
		return take_channel(w, &s->name) ? SQL_SESSION_LISTEN : SQL_SESSION_OTHER;
	case SQL_WORD_SELECT:
		return select_kind(w);
	default:
		return SQL_SESSION_OTHER;
	}
}

const struct sql_session sql_no_session;

/* Without memory it is read again when it is asked for again. */
const struct sql_session *sql_find_session(struct sql_text *t)
{
	struct sql_session *s = &t->session;
	struct words w;

	if (t->known & SQL_SESSION)
		return s;
	if (t->of == SQL_OF_PART)
		return &sql_no_session;
	*s = (struct sql_session){.kind = SQL_SESSION_OTHER};
	words_init(&w, t->sql, t->len, t->dialect);
	sql_lex_next(&w.lx, &w.t);
	s->kind = kind_behind(t->word, &w, s);
	if (buf_failed(&s->name) || buf_failed(&s->value)) {
		buf_free(&s->name);
		buf_free(&s->value);
		return &sql_no_session;
	}
	if (!words_at_end(&w))
		s->kind = SQL_SESSION_OTHER;
	t->known |= SQL_SESSION;
	return s;
}
