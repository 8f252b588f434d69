/*
 * What a text may do to the session. First words are read as Postgres' scanner reads them; calls of
 * functions are looked for in the bare text, also in strings and comments: to suspect too much
 * costs a question to the server, to see too little would cost the next client its settings. Entry
 * points: wire/sqlsess.h.
 */
#include "wire/sqlsess.h"

#include <string.h>

#include "sqlwords.h"

#define CALL_MAX    8192 /* how far the end of a call is looked for */
#define UNDO(touch) ((touch) << SQL_TOUCH_UNDO_SHIFT)

/* --- the bare text --------------------------------------------------------------------------- */

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word_char(char c)
{
	return (c >= '0' && c <= '9') || (util_lower(c) >= 'a' && util_lower(c) <= 'z') ||
	       c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static const char *skip_blanks(const char *p, const char *end)
{
	while (p < end && is_blank(*p))
		p++;
	return p;
}

/* Does `word`, in small letters, stand at p? Mostly the first letter tells. */
static inline bool stands(const char *p, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - p) >= n && util_lower(*p) == *word &&
	       util_memcasecmp(p, word, n) == 0;
}

/* The end of a quoted text that begins at p, behind its closing quote. */
static const char *quoted_end(const char *p, const char *end)
{
	const char *q = memchr(p + 1, *p, (size_t)(end - p - 1));

	return q != NULL ? q + 1 : end;
}

/* The last argument of the call whose opening parenthesis is at p is the bare word true. */
static bool is_local_call(const char *p, const char *end)
{
	const char *arg = NULL;
	int depth = 0;

	if (end - p > CALL_MAX)
		end = p + CALL_MAX;
	while (p < end) {
		if (*p == '\'' || *p == '"') {
			p = quoted_end(p, end);
			continue;
		}
		depth += (*p == '(') - (*p == ')');
		if (depth == 0)
			break;
		if (*p == ',' && depth == 1)
			arg = p + 1;
		p++;
	}
	if (arg == NULL || p >= end)
		return false;
	arg = skip_blanks(arg, p);
	return stands(arg, p, "true") && skip_blanks(arg + 4, p) == p;
}

/* Is the _ at p that of a set_config() which lasts? Then what is behind the name. */
static const char *set_config_at(const char *text, const char *p, const char *end)
{
	static const char tail[] = "_config";
	const char *open = p + sizeof(tail) - 1;

	if (p - text < 3 || !stands(p, end, tail) || !stands(p - 3, end, "set"))
		return NULL;
	if (open < end && *open == '"')
		open++;
	open = skip_blanks(open, end);
	if (open < end && *open == '(' && is_local_call(open, end))
		return NULL;
	return open;
}

static bool holds_word(const char *text, size_t len, const char *word)
{
	for (size_t i = 0; i < len; i++)
		if (stands(text + i, text + len, word))
			return true;
	return false;
}

/* p: at a _ with something behind it */
static unsigned function_at(const char *text, const char *p, const char *end)
{
	switch (util_lower(p[1])) {
	case 'c':
		return set_config_at(text, p, end) != NULL ? SQL_TOUCH_SETTINGS : 0;
	case 'a':
		if (util_lower(p[2]) != 'd')
			return 0;
		return stands(p, end, "_advisory_lock")     ? SQL_TOUCH_LOCKS
		       : stands(p, end, "_advisory_unlock") ? UNDO(SQL_TOUCH_LOCKS)
							    : 0;
	case 's': /* the view that may be written to */
		return p - text >= 2 && stands(p - 2, end, "pg_settings") &&
				       holds_word(text, (size_t)(end - text), "update")
			       ? SQL_TOUCH_SETTINGS
			       : 0;
	case 't':
		return p - text >= 2 && stands(p - 2, end, "pg_temp") ? SQL_TOUCH_TEMP : 0;
	default:
		return 0;
	}
}

/* Functions by their names, all of which have a _ in them. */
static unsigned functions(const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	unsigned found = 0;

	for (; p < end && (p = memchr(p, '_', (size_t)(end - p))) != NULL; p++)
		if (end - p > 4)
			found |= function_at(text, p, end);
	return found;
}

/* The word TEMP, as in SELECT INTO TEMP. */
static bool holds_temp(const char *text, size_t len)
{
	static const char m[] = "mM";

	for (int i = 0; i < 2; i++) {
		const char *p = text, *end = text + len;

		for (; p < end && (p = memchr(p, m[i], (size_t)(end - p))) != NULL; p++)
			if (p - text >= 2 && util_lower(p[-1]) == 'e' && stands(p - 2, end, "temp"))
				return true;
	}
	return false;
}

/* --- statements by their first words ---------------------------------------------------------- */

static unsigned touches_of_set(struct words *w)
{
	static const char *const harmless[] = {
		"local", "transaction", "constraints", "names", "time"};

	for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
		if (words_accept(w, harmless[i]))
			return 0;
	return SQL_TOUCH_SETTINGS;
}

/* ON COMMIT DROP, or a guess at it */
static unsigned touches_of_create(struct words *w, const char *text, size_t len)
{
	unsigned guess;

	if (words_accept(w, "or"))
		(void)words_accept(w, "replace");
	if (!words_accept(w, "global"))
		(void)words_accept(w, "local");
	if (!words_accept(w, "temp") && !words_accept(w, "temporary"))
		return 0;
	guess = holds_word(text, len, "drop") ? SQL_TOUCH_GUESS : 0;
	return SQL_TOUCH_TEMP | guess;
}

/* Of a query that has the word somewhere: a table called temperature will do. */
static unsigned touches_of_into(const char *text, size_t len)
{
	return holds_temp(text, len) ? SQL_TOUCH_TEMP | SQL_TOUCH_GUESS : 0;
}

static unsigned touches_of_discard(struct words *w)
{
	if (words_accept(w, "all"))
		return SQL_TOUCH_SETTINGS | UNDO(SQL_TOUCH_ALL);
	return words_accept(w, "temp") || words_accept(w, "temporary") ? UNDO(SQL_TOUCH_TEMP) : 0;
}

static unsigned touches_by_word(struct words *w, const char *text, size_t len)
{
	if (words_accept(w, "set"))
		return touches_of_set(w);
	if (words_accept(w, "create"))
		return touches_of_create(w, text, len);
	if (words_accept(w, "discard"))
		return touches_of_discard(w);
	if (words_accept(w, "reset"))
		return SQL_TOUCH_SETTINGS;
	if (words_accept(w, "prepare"))
		return words_token_is(&w->t, "transaction") ? 0 : SQL_TOUCH_PREPARED;
	if (words_accept(w, "deallocate"))
		return UNDO(SQL_TOUCH_PREPARED);
	if (words_accept(w, "listen"))
		return SQL_TOUCH_LISTEN;
	if (words_accept(w, "unlisten"))
		return UNDO(SQL_TOUCH_LISTEN);
	if (words_accept(w, "load"))
		return SQL_TOUCH_LOAD;
	if (words_accept(w, "drop"))
		return UNDO(SQL_TOUCH_TEMP);
	if (words_accept(w, "close"))
		return UNDO(SQL_TOUCH_CURSORS);
	if (words_accept(w, "declare"))
		return holds_word(text, len, "hold") ? SQL_TOUCH_CURSORS : 0;
	if (words_accept(w, "do"))
		return SQL_TOUCH_ALL | SQL_TOUCH_GUESS;
	if (words_accept(w, "select") || words_accept(w, "with") || words_accept(w, "explain"))
		return touches_of_into(text, len);
	return 0;
}

/* Most statements are told by their first letters. */
static unsigned touches_of_one(const char *text, size_t len)
{
	struct words w;
	const char *p = skip_blanks(text, text + len), *end = text + len;

	while (p < end && *p == '(')
		p = skip_blanks(p + 1, end);
	if (stands(p, end, "sel"))
		return touches_of_into(p, (size_t)(end - p));
	if (stands(p, end, "ins") || stands(p, end, "upd") || stands(p, end, "del"))
		return 0;
	if (p < end && strchr("bfgijkmnoqvrxyz", util_lower(*p)) != NULL && !stands(p, end, "res"))
		return 0;
	words_init(&w, p, (size_t)(end - p), true);
	return touches_by_word(&w, p, (size_t)(end - p));
}

static bool is_one(const char *text, size_t len)
{
	const char *semicolon = memchr(text, ';', len);

	if (semicolon == NULL)
		return true;
	return skip_blanks(semicolon + 1, text + len) == text + len;
}

unsigned sql_session_touches(const char *text, size_t len, bool standard_strings)
{
	unsigned found = functions(text, len);
	const char *one;
	size_t pos = 0, n;

	if (is_one(text, len))
		return found | touches_of_one(text, len);
	while (sql_statement_next(text, len, &pos, standard_strings, &one, &n))
		found |= touches_of_one(one, n);
	return found;
}

/* --- names of settings that no view lists -------------------------------------------------------
 */

static void put_lower(struct buf *b, const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf_putc(b, util_lower(p[i]));
	buf_putc(b, '\0');
}

/* The name behind SET, if it has a dot in it. */
static void name_behind_set(const char *p, const char *end, struct buf *ret)
{
	static const char *const skipped[] = {"session", "local"};
	const char *start;
	bool dot = false;

	p = skip_blanks(p, end);
	for (size_t i = 0; i < ARRAY_LEN(skipped); i++)
		if (stands(p, end, skipped[i]))
			p = skip_blanks(p + strlen(skipped[i]), end);
	for (start = p; p < end && (is_word_char(*p) || *p == '.' || *p == '"'); p++)
		dot |= *p == '.';
	if (!dot || p == start)
		return;
	for (; start < p; start++)
		if (*start != '"')
			buf_putc(ret, util_lower(*start));
	buf_putc(ret, '\0');
}

/* First argument of set_config(), when it is a plain literal. */
static bool name_in_call(const char *p, const char *end, struct buf *ret)
{
	const char *close;

	if (p >= end || *p != '(')
		return false;
	p = skip_blanks(p + 1, end);
	if (p >= end || *p != '\'')
		return false;
	close = memchr(p + 1, '\'', (size_t)(end - p - 1));
	if (close == NULL || memchr(p, '\\', (size_t)(close - p)) != NULL)
		return false;
	if (memchr(p, '.', (size_t)(close - p)) != NULL)
		put_lower(ret, p + 1, (size_t)(close - p - 1));
	return true;
}

bool sql_session_custom_names(const char *text, size_t len, struct buf *ret)
{
	const char *p = text, *end = text + len, *call;
	bool all = true;

	for (; end - p > 4; p++)
		if (util_lower(*p) == 's' && stands(p, end, "set") &&
			(p == text || !is_word_char(p[-1])) && is_blank(p[3]))
			name_behind_set(p + 3, end, ret);
	for (p = text; p < end && (p = memchr(p, '_', (size_t)(end - p))) != NULL; p++)
		if ((call = set_config_at(text, p, end)) != NULL)
			all &= name_in_call(call, end, ret);
	return all;
}

bool sql_session_may_reset(const char *text, size_t len)
{
	return holds_word(text, len, "reset") || holds_word(text, len, "discard") ||
	       holds_word(text, len, "default");
}

bool sql_session_may_execute(const char *text, size_t len)
{
	return holds_word(text, len, "execute");
}

/* --- single statements that are understood ------------------------------------------------------
 */

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

static bool take_name_part(struct words *w, struct buf *ret)
{
	struct buf part = BUF_INIT;
	bool ok = (w->t.kind == SQL_IDENT || w->t.kind == SQL_QIDENT) &&
		  sql_token_value(&w->t, true, &part);

	for (size_t i = 0; ok && i < part.len; i++)
		buf_putc(ret, util_lower((char)part.data[i]));
	buf_free(&part);
	if (ok)
		sql_lex_next(&w->lx, &w->t);
	return ok;
}

/* name or class.name */
static bool take_name(struct words *w, struct buf *ret)
{
	do {
		if (ret->len > 0)
			buf_putc(ret, '.');
		if (!take_name_part(w, ret))
			return false;
	} while (words_accept_other(w, '.'));
	buf_putc(ret, '\0');
	return true;
}

static bool is_plain_number(const struct sql_token *t)
{
	for (size_t i = 0; i < t->len; i++)
		if ((t->text[i] < '0' || t->text[i] > '9') && t->text[i] != '.')
			return false;
	return t->kind == SQL_NUMBER;
}

/* A word, a string or a number. */
static bool take_value(struct words *w, bool standard_strings, struct buf *ret)
{
	bool minus = words_accept_other(w, '-'), number = is_plain_number(&w->t);

	if (minus && !number)
		return false;
	if (minus)
		buf_putc(ret, '-');
	if (number)
		buf_put(ret, w->t.text, w->t.len);
	else if ((w->t.kind != SQL_IDENT && w->t.kind != SQL_QIDENT && w->t.kind != SQL_STRING) ||
		 !sql_token_value(&w->t, standard_strings, ret))
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

static enum sql_session_kind set_role(struct words *w, bool standard, struct sql_session *s)
{
	put_text(&s->name, "role");
	return take_value(w, standard, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind set_authorization(
	struct words *w, bool standard, struct sql_session *s)
{
	put_text(&s->name, "session_authorization");
	if (words_accept(w, "default"))
		return set_default(s);
	return take_value(w, standard, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind set_kind(struct words *w, bool standard, struct sql_session *s)
{
	static const char *const other[] = {
		"local", "transaction", "constraints", "names", "time", "xml", "characteristics"};

	if (words_accept(w, "session")) {
		if (words_accept(w, "authorization"))
			return set_authorization(w, standard, s);
	}
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		if (words_token_is(&w->t, other[i]))
			return SQL_SESSION_OTHER;
	if (words_accept(w, "role"))
		return set_role(w, standard, s);
	if (!take_name(w, &s->name) || (!words_accept_other(w, '=') && !words_accept(w, "to")))
		return SQL_SESSION_OTHER;
	if (words_accept(w, "default"))
		return set_default(s);
	if (buf_failed(&s->name) || is_list_of_names((const char *)s->name.data))
		return SQL_SESSION_OTHER;
	return take_value(w, standard, &s->value) ? SQL_SESSION_SET : SQL_SESSION_OTHER;
}

static enum sql_session_kind reset_kind(struct words *w, struct sql_session *s)
{
	if (words_accept(w, "all"))
		return SQL_SESSION_RESET_ALL;
	if (words_accept(w, "time")) {
		put_text(&s->name, "timezone");
		return words_accept(w, "zone") ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
	}
	if (words_accept(w, "session")) {
		put_text(&s->name, "session_authorization");
		return words_accept(w, "authorization") ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
	}
	return take_name(w, &s->name) ? SQL_SESSION_RESET : SQL_SESSION_OTHER;
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

/* One name; it keeps its case when it is quoted. */
static bool take_channel(struct words *w, struct buf *ret)
{
	if ((w->t.kind != SQL_IDENT && w->t.kind != SQL_QIDENT) ||
		!sql_token_value(&w->t, true, ret) || ret->len == 0 || ret->len > 63)
		return false;
	buf_putc(ret, '\0');
	sql_lex_next(&w->lx, &w->t);
	return true;
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

static enum sql_session_kind deallocate_kind(struct words *w, struct sql_session *s)
{
	(void)words_accept(w, "prepare");
	if (words_accept(w, "all"))
		return SQL_SESSION_DEALLOCATE_ALL;
	return take_channel(w, &s->name) ? SQL_SESSION_DEALLOCATE : SQL_SESSION_OTHER;
}

static enum sql_session_kind kind_by_word(struct words *w, bool standard, struct sql_session *s)
{
	if (words_accept(w, "set"))
		return set_kind(w, standard, s);
	if (words_accept(w, "reset"))
		return reset_kind(w, s);
	if (words_accept(w, "discard"))
		return discard_kind(w, s);
	if (words_accept(w, "deallocate"))
		return deallocate_kind(w, s);
	if (words_accept(w, "prepare"))
		return prepare_kind(w, s);
	if (words_accept(w, "close"))
		return words_accept(w, "all") ? SQL_SESSION_CLOSE_ALL : SQL_SESSION_OTHER;
	if (words_accept(w, "unlisten"))
		return words_accept_other(w, '*') || take_channel(w, &s->name)
			       ? SQL_SESSION_UNLISTEN
			       : SQL_SESSION_OTHER;
	if (words_accept(w, "listen"))
		return take_channel(w, &s->name) ? SQL_SESSION_LISTEN : SQL_SESSION_OTHER;
	if (words_accept(w, "select"))
		return select_kind(w);
	return SQL_SESSION_OTHER;
}

enum sql_session_kind sql_session_classify(
	const char *text, size_t len, bool standard_strings, struct sql_session *ret)
{
	struct words w;

	*ret = (struct sql_session){.kind = SQL_SESSION_OTHER};
	words_init(&w, text, len, standard_strings);
	ret->kind = kind_by_word(&w, standard_strings, ret);
	if (!words_at_end(&w) || buf_failed(&ret->name) || buf_failed(&ret->value))
		ret->kind = SQL_SESSION_OTHER;
	return ret->kind;
}

void sql_session_free(struct sql_session *s)
{
	buf_free(&s->name);
	buf_free(&s->value);
}
