/*
 * A text and what is known of it: when it is read for what. Must not know what a statement does;
 * that is in sqltouch.c and sqlsess.c. Entry points: sql_text_init, sql_text_next, sql_text_free.
 */
#include "wire/sqltext.h"

#include <string.h>

#include "sqlwords.h"

void sql_text_init(
	struct sql_text *t, const char *sql, size_t len, unsigned dialect, enum sql_of of)
{
	t->sql = sql;
	t->len = len;
	t->dialect = dialect;
	t->of = (uint8_t)of;
	t->known = t->facts = 0;
	t->word = (uint8_t)sql_first_word(sql, len, of != SQL_OF_PART);
}

static void release(struct sql_text *t, enum sql_fact f, struct buf *b)
{
	if (t->known & f)
		buf_free(b);
}

void sql_text_release(struct sql_text *t)
{
	release(t, SQL_SESSION, &t->session.name);
	release(t, SQL_SESSION, &t->session.value);
	release(t, SQL_CUSTOM, &t->custom);
	release(t, SQL_EXECUTED, &t->executed);
	t->known &= (uint16_t)~SQL_OWNED;
}

void sql_text_move(struct sql_text *to, struct sql_text *from, const char *sql)
{
	*to = *from;
	to->sql = sql;
	from->known &= (uint16_t)~SQL_OWNED;
}

bool sql_text_next(const struct sql_text *t, size_t *pos, struct sql_text *ret)
{
	const char *one;
	size_t n;

	if (!sql_statement_next(t->sql, t->len, pos, t->dialect, &one, &n))
		return false;
	sql_text_init(ret, one, n, t->dialect, SQL_OF_QUERY);
	return true;
}

/* --- marks --- */

/* Many bytes at once: the compiler finds the instructions. */
typedef uint8_t block __attribute__((vector_size(16)));

struct found {
	block semicolon, underscore, ampersand, mp;
};

static inline block at(const char *p)
{
	block b;

	memcpy(&b, p, sizeof(b));
	return b;
}

static inline bool any(block b)
{
	uint64_t half[2];

	memcpy(half, &b, sizeof(half));
	return (half[0] | half[1]) != 0;
}

/* The first 16 of 17 bytes. */
static inline void look(const char *p, struct found *f)
{
	block b = at(p);

	f->semicolon |= (block)(b == ';');
	f->underscore |= (block)(b == '_');
	f->ampersand |= (block)(b == '&');
	f->mp |= (block)((b | 0x20) == 'm') & (block)((at(p + 1) | 0x20) == 'p');
}

/* Without a semicolon at the end, and blanks behind it. */
static size_t before_end(const char *sql, size_t len)
{
	const char *end = sql + len;

	while (end > sql && (end[-1] == ' ' || (end[-1] >= '\t' && end[-1] <= '\r')))
		end--;
	return end > sql && end[-1] == ';' ? (size_t)(end - sql) - 1 : len;
}

/* 17 bytes or more */
static inline unsigned look_through(const char *p, size_t n, bool semicolon)
{
	struct found f = {.semicolon = {semicolon}};

	for (; n > 17; p += 16, n -= 16)
		look(p, &f);
	look(p + n - 17, &f);
	return (any(f.semicolon) ? SQL_MARK_SEMICOLON : 0u) |
	       (any(f.underscore) ? SQL_MARK_UNDERSCORE : 0u) |
	       (any(f.ampersand) ? SQL_MARK_AMPERSAND : 0u) | (any(f.mp) ? SQL_MARK_MP : 0u);
}

/* The last byte begins nothing that is looked for but a statement. */
void sql_find_marks(struct sql_text *t)
{
	char few[17] = "";
	const char *p = t->sql;
	size_t n = before_end(p, t->len);
	bool semicolon = n > 0 && p[n - 1] == ';';

	if (n < sizeof(few)) {
		if (n > 0)
			memcpy(few, p, n);
		p = few;
		n = sizeof(few);
	}
	t->marks = (uint8_t)look_through(p, n, semicolon);
	t->known |= SQL_MARKS;
}

/* --- what is yes or no --- */

const char *const sql_rare_settings[SQL_RARE_COUNT] = {"array_nulls", "backslash_quote",
	"bytea_output", "extra_float_digits", "lc_monetary", "quote_all_identifiers",
	"timezone_abbreviations", "transform_null_equals", "xmlbinary", "xmloption"};

static bool stands(const char *p, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - p) >= n && util_memcasecmp(p, word, n) == 0;
}

static bool names_rare(const char *sql, size_t len)
{
	const char *p = sql, *end = sql + len;

	for (; p < end; p++) {
		if (strchr("abelqtx", util_lower(*p)) == NULL)
			continue;
		if (stands(p, end, "xml")) /* SET XML OPTION */
			return true;
		for (size_t i = 0; i < ARRAY_LEN(sql_rare_settings); i++)
			if (stands(p, end, sql_rare_settings[i]))
				return true;
	}
	return false;
}

static bool is_ascii(const char *p, const char *end)
{
	uint64_t bytes, high = 0;

	for (; end - p >= 8; p += 8) {
		memcpy(&bytes, p, sizeof(bytes));
		high |= bytes;
	}
	for (; p < end; p++)
		high |= (uint8_t)*p;
	return (high & 0x8080808080808080u) == 0;
}

static bool is_plain(const char *sql, size_t len)
{
	return len == 0 || (memchr(sql, '\\', len) == NULL && is_ascii(sql, sql + len));
}

static bool has_literals(const char *sql, size_t len)
{
	const char *p = sql, *end = sql + len;

	if (len == 0)
		return false;
	if (memchr(sql, '\'', len) != NULL)
		return true;
	while ((p = memchr(p, '$', (size_t)(end - p))) != NULL)
		if (++p == end || *p < '0' || *p > '9')
			return true;
	return !is_ascii(sql, end); /* of some encoding */
}

bool sql_find_fact(struct sql_text *t, enum sql_fact f)
{
	bool yes;

	if (f == SQL_PLAIN)
		yes = is_plain(t->sql, t->len);
	else if (f == SQL_LITERALS)
		yes = has_literals(t->sql, t->len);
	else if (f == SQL_RARE)
		yes = names_rare(t->sql, t->len);
	else if (f == SQL_RESETS)
		yes = words_hold(t->sql, t->len, "reset") ||
		      words_hold(t->sql, t->len, "discard") ||
		      words_hold(t->sql, t->len, "default");
	else
		yes = words_hold(t->sql, t->len, "execute");
	t->known |= (uint16_t)f;
	if (yes)
		t->facts |= (uint16_t)f;
	return yes;
}
