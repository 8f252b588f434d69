/*
 * What a text may do to the session. First words are read as Postgres' scanner reads them; calls of
 * functions are looked for in the bare text, also in strings and comments, so that nothing hides in
 * how these are read: to suspect too much costs a question to the server, to see too little would
 * cost the next client its settings. What may escape even that is UNSEEN. All of it reads a text a
 * fixed number of times, whatever it is (test/unit/test_qlang_linear.c).
 *
 * Entry points: sql_find_touches, sql_custom_names, sql_executed.
 */
#include <string.h>

#include "sqlwords.h"

#define UNDO(touch) ((touch) << SQL_TOUCH_UNDO_SHIFT)

/* --- the bare text --- */

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

/* Does it stand in front of p? */
static bool stands_before(const char *text, const char *p, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(p - text) >= n && util_memcasecmp(p - n, word, n) == 0;
}

/* --- calls --- */

static const char set_config_tail[] = "_config";

/* p stands behind an opening quote; returns the place behind the next one, or NULL. What is read
 * ends before another set_config, which is looked at by itself: so all of them together read the
 * text once. */
static const char *plain_literal(const char *p, const char *end)
{
	for (; p < end && *p != '\''; p++)
		if (*p == '\\' || (*p == '_' && stands(p, end, set_config_tail)))
			return NULL;
	return p < end ? p + 1 : NULL;
}

/* A word, which may be a number; no $, which may begin a literal. */
static const char *plain_words(const char *p, const char *end)
{
	while (p < end && is_word_char(*p) && (unsigned char)*p < 0x80 && *p != '$')
		if (*p++ == '_' && stands(p - 1, end, set_config_tail))
			return NULL;
	return p;
}

/* A literal, a parameter, a number or a name, with a cast; then what is to follow. No comment, no
 * call, nothing that could mean something else. NULL: it is none of it. */
static const char *plain_argument(const char *p, const char *end, char then)
{
	const char *start = p = skip_blanks(p, end);

	if (p < end && *p == '\'') {
		p = plain_literal(p + 1, end);
	} else if (end - p > 1 && *p == '$' && p[1] >= '0' && p[1] <= '9') {
		p = plain_words(p + 1, end);
	} else {
		p = plain_words(p, end);
		while (p != NULL && p > start && p < end && *p == '.')
			p = plain_words(p + 1, end);
	}
	if (p == NULL || p == start)
		return NULL;
	if (end - p > 2 && p[0] == ':' && p[1] == ':' && (p = plain_words(p + 2, end)) == NULL)
		return NULL;
	p = skip_blanks(p, end);
	return p < end && *p == then ? p + 1 : NULL;
}

/* Is the call whose opening parenthesis is at p, beyond doubt, one whose last argument is true? */
static bool is_local_call(const char *p, const char *end)
{
	p = plain_argument(p + 1, end, ',');
	if (p == NULL || (p = plain_argument(p, end, ',')) == NULL)
		return false;
	p = skip_blanks(p, end);
	if (!stands(p, end, "true"))
		return false;
	p = skip_blanks(p + 4, end);
	return p < end && *p == ')';
}

/* Is the _ at p that of a set_config()? Then what is behind the name. */
static const char *set_config_at(const char *text, const char *p, const char *end)
{
	const char *open = p + sizeof(set_config_tail) - 1;

	if (!stands(p, end, set_config_tail) || !stands_before(text, p, "set"))
		return NULL;
	if (open < end && *open == '"')
		open++;
	return skip_blanks(open, end);
}

static bool is_local_at(const char *open, const char *end)
{
	return open < end && *open == '(' && is_local_call(open, end);
}

/* Functions by their names, all of which have a _ in them; pg_settings is a view that may be
 * written to. */
struct calls {
	unsigned found;
	bool settings_view;
};

/* p: at a _ with something behind it */
static void function_at(const char *text, const char *p, const char *end, struct calls *ret)
{
	const char *open;

	switch (util_lower(p[1])) {
	case 'c':
		open = set_config_at(text, p, end);
		if (open != NULL)
			ret->found |=
				is_local_at(open, end) ? SQL_TOUCH_DIALECT : SQL_TOUCH_SETTINGS;
		break;
	case 'a':
		if (util_lower(p[2]) != 'd')
			break;
		if (stands(p, end, "_advisory_lock"))
			ret->found |= SQL_TOUCH_LOCKS;
		else if (stands(p, end, "_advisory_unlock"))
			ret->found |= UNDO(SQL_TOUCH_LOCKS);
		break;
	case 's':
		ret->settings_view |= stands(p, end, "_settings") && stands_before(text, p, "pg");
		/* they carry out a text, which may be put together */
		if (stands(p, end, "_stat") && stands_before(text, p, "ts"))
			ret->found |= SQL_TOUCH_UNSEEN;
		break;
	case 'r':
		if (stands(p, end, "_rewrite") && stands_before(text, p, "ts"))
			ret->found |= SQL_TOUCH_UNSEEN;
		break;
	case 't':
		if (stands(p, end, "_to_xml") && stands_before(text, p, "query"))
			ret->found |= SQL_TOUCH_UNSEEN;
		if (stands(p, end, "_temp") && stands_before(text, p, "pg"))
			ret->found |= SQL_TOUCH_TEMP;
		break;
	default:
		break;
	}
}

/* U&"..." may be any name. */
static bool holds_escaped_name(const char *text, size_t len)
{
	const char *p = text, *end = text + len;

	for (; p < end && (p = memchr(p, '&', (size_t)(end - p))) != NULL; p++)
		if (p > text && util_lower(p[-1]) == 'u' && end - p > 1 && p[1] == '"')
			return true;
	return false;
}

static unsigned functions(const char *text, size_t len, unsigned marks)
{
	const char *p = text, *end = text + len;
	struct calls calls = {0};

	if (marks & SQL_MARK_UNDERSCORE)
		for (; p < end && (p = memchr(p, '_', (size_t)(end - p))) != NULL; p++)
			if (end - p > 4)
				function_at(text, p, end, &calls);
	if (calls.settings_view && words_hold(text, len, "update"))
		calls.found |= SQL_TOUCH_SETTINGS;
	if ((marks & SQL_MARK_AMPERSAND) && holds_escaped_name(text, len))
		calls.found |= SQL_TOUCH_UNSEEN;
	return calls.found;
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

/* --- statements by their first words --- */

/* Of a text, or of one of the statements in it. */
struct one {
	const char *text;
	size_t len;
	enum sql_word word;
	unsigned marks; /* of the text */
};

/* To what stands behind the first word. */
static void read_behind(struct words *w, const struct one *o)
{
	words_init(w, o->text, o->len, SQL_STANDARD);
	while (words_accept_other(w, '('))
		;
	sql_lex_next(&w->lx, &w->t);
}

static bool holds(const struct one *o, const char *word)
{
	return words_hold(o->text, o->len, word);
}

static unsigned touches_of_set(const struct one *o)
{
	struct words w;

	read_behind(&w, o);
	if (words_accept_keyword(&w, "transaction") || words_accept_keyword(&w, "constraints"))
		return 0;
	/* a setting that is reported; and for the transaction, any */
	if (words_accept_keyword(&w, "local") || words_accept_keyword(&w, "names") ||
		words_accept_keyword(&w, "time"))
		return SQL_TOUCH_DIALECT;
	return SQL_TOUCH_SETTINGS;
}

/* CREATE TABLE ... AS EXECUTE; EXPLAIN EXECUTE */
static unsigned touches_of_executing(const struct one *o)
{
	return holds(o, "execute") ? SQL_TOUCH_EXECUTE : 0;
}

/* ON COMMIT DROP, or a guess at it. What stands behind a body of BEGIN ATOMIC may have been taken
 * for a part of it. */
static unsigned touches_of_create(const struct one *o)
{
	struct words w;
	unsigned guess;

	read_behind(&w, o);
	if (words_accept(&w, "or"))
		(void)words_accept(&w, "replace");
	if (words_token_is(&w.t, "function") || words_token_is(&w.t, "procedure"))
		return memchr(o->text, ';', o->len) != NULL && holds(o, "atomic") ? SQL_TOUCH_UNSEEN
										  : 0;
	if (words_token_is(&w.t, "table") || words_token_is(&w.t, "unlogged"))
		return touches_of_executing(o);
	if (!words_accept(&w, "global"))
		(void)words_accept(&w, "local");
	if (!words_accept(&w, "temp") && !words_accept(&w, "temporary"))
		return 0;
	guess = holds(o, "drop") ? SQL_TOUCH_GUESS : 0;
	return SQL_TOUCH_TEMP | guess | touches_of_executing(o);
}

/* Of a query that has the word somewhere: a table called temperature will do. */
static unsigned touches_of_into(const struct one *o)
{
	return (o->marks & SQL_MARK_MP) && holds_temp(o->text, o->len)
		       ? SQL_TOUCH_TEMP | SQL_TOUCH_GUESS
		       : 0;
}

static unsigned touches_of_discard(const struct one *o)
{
	struct words w;

	read_behind(&w, o);
	if (words_accept(&w, "all"))
		return SQL_TOUCH_SETTINGS | UNDO(SQL_TOUCH_ALL);
	return words_accept(&w, "temp") || words_accept(&w, "temporary") ? UNDO(SQL_TOUCH_TEMP) : 0;
}

static unsigned touches_of_prepare(const struct one *o)
{
	struct words w;

	read_behind(&w, o);
	return words_token_is(&w.t, "transaction") ? 0 : SQL_TOUCH_PREPARED | touches_of_into(o);
}

/* Names of settings that it puts together, or that escapes hide, cannot be asked for. */
static unsigned touches_of_do(const struct one *o)
{
	bool hides = memchr(o->text, '\\', o->len) != NULL ||
		     memmem(o->text, o->len, "\x81\x5F", 2) != NULL || holds(o, "execute") ||
		     holds(o, "u&'") || (holds(o, "language") && !holds(o, "plpgsql"));

	return SQL_TOUCH_ALL | SQL_TOUCH_GUESS | (hides ? SQL_TOUCH_UNSEEN : 0);
}

static unsigned touches_by_word(const struct one *o)
{
	switch (o->word) {
	case SQL_WORD_SELECT:
	case SQL_WORD_WITH:
		return touches_of_into(o);
	case SQL_WORD_SET:
		return touches_of_set(o);
	case SQL_WORD_CREATE:
		return touches_of_create(o);
	case SQL_WORD_DISCARD:
		return touches_of_discard(o);
	case SQL_WORD_RESET:
		return SQL_TOUCH_SETTINGS;
	case SQL_WORD_PREPARE:
		return touches_of_prepare(o);
	case SQL_WORD_DEALLOCATE:
		return UNDO(SQL_TOUCH_PREPARED);
	case SQL_WORD_EXECUTE:
		return SQL_TOUCH_EXECUTE;
	case SQL_WORD_LISTEN:
		return SQL_TOUCH_LISTEN;
	case SQL_WORD_UNLISTEN:
		return UNDO(SQL_TOUCH_LISTEN);
	case SQL_WORD_LOAD:
		return SQL_TOUCH_LOAD;
	case SQL_WORD_DROP:
		return UNDO(SQL_TOUCH_TEMP);
	case SQL_WORD_CLOSE:
		return UNDO(SQL_TOUCH_CURSORS);
	case SQL_WORD_DECLARE:
		return holds(o, "hold") ? SQL_TOUCH_CURSORS : 0;
	case SQL_WORD_DO:
		return touches_of_do(o);
	case SQL_WORD_CALL: /* made for what a function is not */
		return SQL_TOUCH_ALL | SQL_TOUCH_GUESS;
	case SQL_WORD_EXPLAIN:
		return touches_of_into(o) | touches_of_executing(o);
	default:
		return 0;
	}
}

/* The first word in parentheses; else there is none that matters here. */
static void read_parens(struct one *o)
{
	const char *end = o->text + o->len, *p = skip_blanks(o->text, end);
	struct words w;

	if (p < end && is_word_char(*p))
		return;
	while (p < end && *p == '(')
		p = skip_blanks(p + 1, end);
	o->text = p;
	o->len = (size_t)(end - p);
	words_init(&w, p, o->len, SQL_STANDARD);
	while (words_accept_other(&w, '('))
		;
	if (w.t.kind == SQL_IDENT)
		o->word = sql_first_word(w.t.text, w.t.len, true);
}

static unsigned touches_of_one(const char *text, size_t len, enum sql_word word, unsigned marks)
{
	struct one o = {text, len, word, marks};

	if (word == SQL_WORD_SELECT)
		return touches_of_into(&o);
	if (word == SQL_WORD_OTHER)
		read_parens(&o);
	return touches_by_word(&o);
}

/* What a character of two bytes means as a backslash is told apart by the scanner alone. */
static unsigned double_backslash(const struct sql_text *t)
{
	return (t->dialect & SQL_WIDE_JIS_2004) && memmem(t->sql, t->len, "\x81\x5F", 2) != NULL
		       ? SQL_TOUCH_UNSEEN
		       : 0;
}

/* Of a Query with a semicolon in it. */
static unsigned touches_of_all(struct sql_text *t)
{
	unsigned found = double_backslash(t);
	const char *one;
	size_t pos = 0, n;

	while (sql_statement_next(t->sql, t->len, &pos, t->dialect, &one, &n)) {
		enum sql_word word = sql_first_word(one, n, true);

		t->words |= 1u << word;
		found |= touches_of_one(one, n, word, t->marks);
	}
	return found;
}

void sql_find_touches(struct sql_text *t)
{
	unsigned marks = sql_marks(t), found = functions(t->sql, t->len, marks);

	t->words = 1u << t->word;
	if (t->of == SQL_OF_PARSE || !(marks & SQL_MARK_SEMICOLON))
		found |= touches_of_one(t->sql, t->len, t->word, marks);
	else
		found |= touches_of_all(t);
	t->touches = found;
	t->known |= SQL_TOUCHES;
}

/* --- names of settings that no view lists --- */

#define NAMES_MAX 16384 /* bytes of them in a text */

/* Each but once, as far as a small table can tell. */
struct names {
	struct buf *list;
	uint16_t at[1024]; /* place of a name in the list, and one; by its hash */
	bool full;
};

static bool is_listed(const struct names *ns, uint16_t at, const char *name)
{
	return at > 0 && strcmp((const char *)ns->list->data + at - 1, name) == 0;
}

static void names_add(struct names *ns, const char *name)
{
	uint32_t hash = 5381;
	uint16_t *at;

	for (const char *p = name; *p != '\0'; p++)
		hash = hash * 33 + (uint8_t)*p;
	at = &ns->at[hash % ARRAY_LEN(ns->at)];
	if (ns->list->failed || is_listed(ns, *at, name))
		return;
	ns->full |= ns->list->len >= NAMES_MAX;
	if (ns->full)
		return;
	*at = (uint16_t)(ns->list->len + 1);
	buf_put(ns->list, name, strlen(name) + 1);
}

/* One part of a name: a word, or a word in quotes. NULL: it is none that is understood here. */
static const char *name_part(const char *p, const char *end, char *ret, size_t *ret_len)
{
	bool quoted = p < end && *p == '"';
	const char *start = quoted ? ++p : p;

	while (p < end && p - start <= WORDS_NAME_MAX &&
		(is_word_char(*p) || (quoted && *p == '.')))
		p++;
	if (p == start || p - start > WORDS_NAME_MAX || (quoted && (p == end || *p != '"')))
		return NULL;
	for (; start < p; start++)
		ret[(*ret_len)++] = util_lower(*start);
	return quoted ? p + 1 : p;
}

static bool comment_begins(const char *p, const char *end)
{
	return end - p > 1 && ((p[0] == '/' && p[1] == '*') || (p[0] == '-' && p[1] == '-'));
}

/* Behind SET, in whatever it stands: the name, if it has a dot in it. false: who knows. */
static bool name_behind_set(const char *p, const char *end, struct names *ret)
{
	static const char *const skipped[] = {"session", "local"};
	char name[(WORDS_NAME_MAX + 1) * 4];
	size_t len = 0;
	int dots = 0;

	p = skip_blanks(p, end);
	for (size_t i = 0; i < ARRAY_LEN(skipped); i++) {
		const char *next = p + strlen(skipped[i]);

		if (!stands(p, end, skipped[i]) || (next < end && is_word_char(*next)))
			continue;
		next = skip_blanks(next, end);
		if (next == end || *next != '.')
			p = next;
	}
	for (;; dots++) {
		/* SET (a, b) = ...: of an UPDATE */
		if (p == end || (dots == 0 && *p != '"' && !is_word_char(*p)))
			return !comment_begins(p, end);
		if (dots > 3 || (p = name_part(p, end, name, &len)) == NULL)
			return false;
		p = skip_blanks(p, end);
		if (p == end || *p != '.')
			break;
		name[len++] = '.';
		p = skip_blanks(p + 1, end);
	}
	name[len] = '\0';
	if (dots > 0)
		names_add(ret, name);
	return !comment_begins(p, end);
}

/* First argument of set_config(), when it is a plain literal of letters; in a literal its quotes
 * are two. */
static bool name_in_call(const char *p, const char *end, struct names *ret)
{
	char name[(WORDS_NAME_MAX + 1) * 4];
	size_t len = 0;
	int quotes = 0;

	if (p >= end || *p != '(')
		return false;
	p = skip_blanks(p + 1, end);
	for (; p < end && *p == '\'' && quotes < 2; p++)
		quotes++;
	while (p < end && (is_word_char(*p) || *p == '.') && len + 1 < sizeof(name))
		name[len++] = util_lower(*p++);
	for (int i = 0; i < quotes; i++, p++)
		if (p >= end || *p != '\'')
			return false;
	p = skip_blanks(p, end);
	if (quotes == 0 || len == 0 || p >= end || *p != ',')
		return false;
	name[len] = '\0';
	if (memchr(name, '.', len) != NULL)
		names_add(ret, name);
	return true;
}

/* A SET that is a statement of its own is read as Postgres reads it. Its name goes to names if it
 * has a dot in it. */
static bool read_set(const char *text, size_t len, struct names *names, unsigned *ret)
{
	struct buf name = BUF_INIT;
	struct words w, ahead;
	bool is_set;

	words_init(&w, text, len, SQL_STANDARD);
	is_set = words_accept(&w, "set");
	ahead = w;
	if (is_set && words_accept(&ahead, "session") && !words_accept_other(&ahead, '.'))
		(void)words_accept(&w, "session");
	if (is_set && words_accept_name(&w, &name) && !buf_failed(&name)) {
		if (memchr(name.data, '.', name.len) != NULL)
			names_add(names, (const char *)name.data);
	} else if (is_set) {
		*ret = SQL_TOUCH_UNSEEN;
	}
	buf_free(&name);
	return is_set;
}

static unsigned find_names(struct sql_text *t, struct buf *ret)
{
	const char *p = t->sql, *end = t->sql + t->len, *call;
	struct names names = {.list = ret};
	unsigned unknown = 0;

	if (sql_is_one(t) && read_set(t->sql, t->len, &names, &unknown))
		return unknown;
	for (; end - p > 4; p++)
		if (util_lower(*p) == 's' && stands(p, end, "set") &&
			(p == t->sql || !is_word_char(p[-1])) && !is_word_char(p[3]) &&
			!name_behind_set(p + 3, end, &names))
			unknown |= SQL_TOUCH_UNSEEN;
	for (p = t->sql; p < end && (p = memchr(p, '_', (size_t)(end - p))) != NULL; p++)
		if ((call = set_config_at(t->sql, p, end)) != NULL && !is_local_at(call, end) &&
			!name_in_call(call, end, &names))
			unknown |= SQL_TOUCH_UNNAMED;
	return unknown | (names.full ? SQL_TOUCH_UNNAMED : 0);
}

/* What had no memory is read again when it is asked for again. */
static void keep(struct sql_text *t, struct buf *b, enum sql_fact f)
{
	if (!b->failed) {
		t->known |= (uint16_t)f;
		return;
	}
	buf_free(b);
	b->failed = true;
}

unsigned sql_custom_names(struct sql_text *t, const struct buf **ret)
{
	*ret = &t->custom;
	if (!(t->known & SQL_CUSTOM)) {
		t->custom = BUF_INIT;
		t->unnamed = find_names(t, &t->custom);
		keep(t, &t->custom, SQL_CUSTOM);
	}
	return t->unnamed;
}

/* The name behind the word. NULL: it is none that is understood here. */
static const char *executed_at(const char *p, const char *end, struct buf *ret)
{
	bool quoted;
	const char *start;

	p = skip_blanks(p, end);
	quoted = p < end && *p == '"';
	start = p += quoted;
	while (p < end && p - start <= WORDS_NAME_MAX && is_word_char(*p))
		p++;
	if (p == start || p - start > WORDS_NAME_MAX || (quoted && (p == end || *p != '"')))
		return NULL;
	for (; start < p; start++)
		buf_putc(ret, quoted ? *start : util_lower(*start));
	buf_putc(ret, '\0');
	return p;
}

static bool find_executed(const char *text, size_t len, struct buf *ret)
{
	static const char word[] = "execute";
	const char *p = text, *end = text + len;

	while (p < end) {
		if (!stands(p, end, word) || (p > text && is_word_char(p[-1]))) {
			p++;
			continue;
		}
		p = executed_at(p + sizeof(word) - 1, end, ret);
		if (p == NULL)
			return false;
	}
	return true;
}

bool sql_executed(struct sql_text *t, const struct buf **ret)
{
	*ret = &t->executed;
	if (!(t->known & SQL_EXECUTED)) {
		t->executed = BUF_INIT;
		t->facts &= (uint16_t)~SQL_EXECUTED;
		if (find_executed(t->sql, t->len, &t->executed))
			t->facts |= SQL_EXECUTED;
		keep(t, &t->executed, SQL_EXECUTED);
	}
	return (t->facts & SQL_EXECUTED) && !t->executed.failed;
}
