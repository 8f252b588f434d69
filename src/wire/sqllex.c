/*
 * The scanner of SQL text: cuts tokens where Postgres' scan.l cuts them and decodes their values.
 * Must not know any statement; those are in sqlstmt.c. Differences to Postgres, on purpose: an
 * operator comes as single characters (only :: is one token), keywords are plain words, and what
 * Postgres calls an error (unterminated quotes) is a token that reaches to the end of the text.
 * Entry points: sql_first_word, sql_lex_init, sql_lex_next, sql_token_value, sql_char_position.
 */
#include "wire/sqllex.h"

#include <string.h>

enum {
	C_BLANK = 1,
	C_START = 2, /* may begin a bare word */
	C_WORD = 4,  /* may go on in it */
	C_DIGIT = 8,
	C_TAG = 16, /* may stand in a dollar tag */
};

#define LETTER (C_START | C_WORD | C_TAG)
#define DIGIT  (C_DIGIT | C_WORD | C_TAG)

/* clang-format off */
static const uint8_t classes[256] = {
	[' '] = C_BLANK, ['\t' ... '\r'] = C_BLANK,
	['A' ... 'Z'] = LETTER, ['a' ... 'z'] = LETTER, ['_'] = LETTER, [0x80 ... 0xFF] = LETTER,
	['0' ... '9'] = DIGIT, ['$'] = C_WORD,
};
/* clang-format on */

static inline bool is(char c, unsigned class)
{
	return classes[(uint8_t)c] & class;
}

/* --- encodings --- */

/* Bytes of the character at p, as far as they are here. */
static inline size_t char_len(const char *p, const char *end, unsigned dialect)
{
	size_t n = 2;
	uint8_t c = (uint8_t)*p;

	if (c < 0x80 || (dialect & SQL_WIDE_ANY) == 0)
		return 1;
	if ((dialect & SQL_WIDE_ANY) == SQL_WIDE_SJIS && c >= 0xA1 && c <= 0xDF)
		return 1; /* half a kana */
	if ((dialect & SQL_WIDE_ANY) == SQL_WIDE_GB18030 && end - p >= 2 && is(p[1], C_DIGIT))
		n = 4;
	return (size_t)(end - p) < n ? (size_t)(end - p) : n;
}

/* The one of JIS X 0208 becomes the one of ASCII in SHIFT_JIS_2004, and in no other. */
static inline bool is_backslash(const char *p, const char *end, unsigned dialect)
{
	return *p == '\\' ||
	       ((dialect & SQL_WIDE_JIS_2004) && end - p >= 2 && memcmp(p, "\x81\x5F", 2) == 0);
}

/* --- blanks and comments --- */

static const char *line_end(const char *p, const char *end)
{
	while (p < end && *p != '\n' && *p != '\r')
		p++;
	return p;
}

/* p stands behind the opening; NULL: it does not end. */
static const char *comment_end(const char *p, const char *end)
{
	unsigned depth = 1;

	while (end - p >= 2) {
		if (p[0] == '*' && p[1] == '/') {
			p += 2;
			if (--depth == 0)
				return p;
		} else if (p[0] == '/' && p[1] == '*') {
			p += 2;
			depth++;
		} else {
			p++;
		}
	}
	return NULL;
}

enum skip {
	SKIP_TOKEN, /* at the first byte of a token */
	SKIP_END,   /* nothing more */
	SKIP_LINE,  /* the text ends in a -- comment */
	SKIP_BLOCK, /* the text ends in a block comment; *pp stands at its beginning */
};

static enum skip skip_ignored(const char **pp, const char *end)
{
	const char *p = *pp, *stop;
	enum skip result = SKIP_END;

	for (; p < end; p = stop) {
		if (is(*p, C_BLANK)) {
			stop = p + 1;
			result = SKIP_END;
		} else if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
			stop = line_end(p + 2, end);
			result = SKIP_LINE;
		} else if (end - p >= 2 && p[0] == '/' && p[1] == '*') {
			stop = comment_end(p + 2, end);
			result = SKIP_END;
			if (!stop) {
				result = SKIP_BLOCK;
				break;
			}
		} else {
			result = SKIP_TOKEN;
			break;
		}
	}
	*pp = p;
	return result;
}

/* --- the first word --- */

#define WORD_MAX 16

struct word {
	char text[WORD_MAX];
	uint8_t len, word;
};

#define ROW(name, text) {text, sizeof(text) - 1, SQL_WORD_##name},

static const struct word words[] = {SQL_WORDS(ROW)};

/* Of each letter the first word with it, and how many there are. */
#define LETTERS(c, from, n) [(c) - 'a'] = {SQL_WORD_##from - SQL_WORD_ABORT, n}

static const struct {
	uint8_t from, n;
} by_letter[26] = {LETTERS('a', ABORT, 1), LETTERS('b', BEGIN, 1), LETTERS('c', CALL, 4),
	LETTERS('d', DEALLOCATE, 5), LETTERS('e', END, 3), LETTERS('l', LISTEN, 2),
	LETTERS('p', PREPARE, 1), LETTERS('q', QUEUE, 1), LETTERS('r', RESET, 2),
	LETTERS('s', SELECT, 3), LETTERS('u', UNLISTEN, 1), LETTERS('w', WITH, 1)};
_Static_assert(SQL_WORD_COUNT - SQL_WORD_ABORT == 1 + 1 + 4 + 5 + 3 + 2 + 1 + 1 + 2 + 3 + 1 + 1,
	"by_letter has them all");
_Static_assert(SQL_WORD_COUNT <= 32, "sets of words have 32 bits");

static inline uint64_t eight(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#define SMALL                                                                                      \
	0x2020202020202020u /* the bit that makes letters small, and no other byte one of them */

/* p: at least WORD_MAX bytes. Eight letters at a time. */
static inline bool word_stands(const struct word *w, const char *p)
{
	/* from the place 8 - n on: n bytes that count */
	static const char masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
	uint64_t differs = (eight(p) | SMALL) ^ eight(w->text);

	if (w->len < 8)
		return (differs & eight(masks + 8 - w->len)) == 0;
	return differs == 0 &&
	       (((eight(p + 8) | SMALL) ^ eight(w->text + 8)) & eight(masks + 16 - w->len)) == 0;
}

/* It may end in the word. */
static enum sql_word word_near_end(const struct word *w, const char *p, size_t left, bool complete)
{
	size_t n = left < w->len ? left : w->len;

	if (left > w->len ? is(p[w->len], C_WORD) : complete && left < w->len)
		return SQL_WORD_OTHER;
	for (size_t i = 0; i < n; i++)
		if (util_lower(p[i]) != w->text[i])
			return SQL_WORD_OTHER;
	return left > w->len || complete ? w->word : SQL_WORD_MORE;
}

/* p: at the first byte of a bare word */
static inline enum sql_word word_at(const char *p, const char *end, bool complete)
{
	size_t left = (size_t)(end - p);
	uint8_t letter = (uint8_t)((uint8_t)*p | 0x20) - 'a';
	const struct word *w, *last;

	if (letter >= ARRAY_LEN(by_letter))
		return SQL_WORD_OTHER;
	w = words + by_letter[letter].from;
	for (last = w + by_letter[letter].n; w < last; w++) {
		enum sql_word found;

		if (left > WORD_MAX) {
			if (word_stands(w, p) && !is(p[w->len], C_WORD))
				return w->word;
			continue;
		}
		found = word_near_end(w, p, left, complete);
		if (found != SQL_WORD_OTHER)
			return found;
	}
	return SQL_WORD_OTHER;
}

enum sql_word sql_first_word(const char *text, size_t len, bool complete)
{
	const char *p = text, *end = text + len;
	enum skip state;

	/* nearly every statement begins with its first word at once */
	if (len && is(*p, C_START))
		return word_at(p, end, complete);
	while ((state = skip_ignored(&p, end)) == SKIP_TOKEN && *p == ';')
		p++;
	if (state != SKIP_TOKEN)
		return complete ? SQL_WORD_NONE : SQL_WORD_MORE;
	if (is(*p, C_START))
		return word_at(p, end, complete);
	if ((*p == '-' || *p == '/') && p + 1 == end && !complete)
		return SQL_WORD_MORE; /* may become a comment */
	return SQL_WORD_OTHER;
}

/* --- tokens --- */

/*
 * Two literals with a line break between them are one. p stands behind a closing quote; returns the
 * place behind the next opening quote, or NULL. A block comment does not count as blank here, and
 * only a -- comment that ends in a line break does.
 */
static const char *continuation(const char *p, const char *end)
{
	bool line = false;

	while (p < end) {
		if (is(*p, C_BLANK)) {
			line = line || *p == '\n' || *p == '\r';
			p++;
		} else if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
			p = line_end(p + 2, end);
			if (p == end)
				return NULL;
		} else {
			return *p == '\'' && line ? p + 1 : NULL;
		}
	}
	return NULL;
}

enum quote {
	QUOTE_PLAIN,  /* '' is a quote */
	QUOTE_ESCAPE, /* and a backslash escapes */
	QUOTE_BITS,   /* nothing special */
};

/* p stands at a backslash, or at one of its two bytes in SHIFT_JIS_2004: the place behind what is
 * escaped, which may be behind the end. */
static const char *escaped_end(const char *p, const char *end, unsigned dialect)
{
	p += char_len(p, end, dialect);
	return p < end ? p + char_len(p, end, dialect) : p + 1;
}

/* To the next quote that no backslash escapes. */
static const char *escapes_end(const char *p, const char *end, unsigned dialect)
{
	while (p < end && *p != '\'')
		p = is_backslash(p, end, dialect) ? escaped_end(p, end, dialect)
						  : p + char_len(p, end, dialect);
	return p;
}

/* p stands behind the opening quote; returns the place behind the literal, or NULL. */
static const char *string_end(const char *p, const char *end, enum quote quote, unsigned dialect)
{
	const char *next;

	for (;;) {
		if (quote == QUOTE_ESCAPE) {
			p = escapes_end(p, end, dialect);
			if (p >= end)
				return NULL;
		} else {
			p = memchr(p, '\'', (size_t)(end - p));
			if (!p)
				return NULL;
		}
		p++;
		if (quote != QUOTE_BITS && p < end && *p == '\'') {
			p++;
			continue;
		}
		next = continuation(p, end);
		if (!next)
			return p;
		p = next;
	}
}

static const char *ident_end(const char *p, const char *end)
{
	for (;;) {
		p = memchr(p, '"', (size_t)(end - p));
		if (!p)
			return NULL;
		p++;
		if (p == end || *p != '"')
			return p;
		p++;
	}
}

static const char *skip_class(const char *p, const char *end, unsigned class)
{
	while (p < end && is(*p, class))
		p++;
	return p;
}

/* The same where a character may have bytes of others in it. */
static const char *skip_word(const char *p, const char *end, unsigned class, unsigned dialect)
{
	if (!(dialect & SQL_WIDE_ANY))
		return skip_class(p, end, class);
	while (p < end && is(*p, class) && !is_backslash(p, end, dialect))
		p += char_len(p, end, dialect);
	return p;
}

/* p stands at a $. The length of the delimiter $tag$, or 0: there is none. */
static size_t dollar_tag(const char *p, const char *end, unsigned dialect)
{
	const char *q = p + 1;

	if (q < end && is(*q, C_START))
		q = skip_word(q, end, C_TAG, dialect);
	return q < end && *q == '$' ? (size_t)(q + 1 - p) : 0;
}

static const char *dollar_end(const char *p, const char *end, size_t tag)
{
	const char *found = memmem(p + tag, (size_t)(end - p) - tag, p, tag);

	return found ? found + tag : NULL;
}

/* p stands at a digit, or at a dot with a digit behind it. */
static const char *number_end(const char *p, const char *end)
{
	const char *q;

	p = skip_class(p, end, C_DIGIT);
	if (p < end && *p == '.' && !(end - p >= 2 && p[1] == '.'))
		p = skip_class(p + 1, end, C_DIGIT);
	if (p == end || util_lower(*p) != 'e')
		return p;
	q = p + 1;
	if (q < end && (*q == '+' || *q == '-'))
		q++;
	return q < end && is(*q, C_DIGIT) ? skip_class(q, end, C_DIGIT) : p;
}

/* Parameters are at most 65535 in the protocol: a longer number stays at INT32_MAX. */
static int param_number(const char *p, const char *end)
{
	int64_t n = 0;

	for (; p < end; p++) {
		n = n * 10 + (*p - '0');
		if (n > INT32_MAX)
			return INT32_MAX;
	}
	return (int)n;
}

/* A quote that belongs to the letter before it. Returns false when p begins a bare word. */
static bool lex_prefixed(
	const struct sql_lexer *lx, const char *p, struct sql_token *ret, const char **ret_stop)
{
	const char *end = lx->end;
	enum quote plain = lx->dialect & SQL_STANDARD ? QUOTE_PLAIN : QUOTE_ESCAPE;
	char letter = util_lower(*p);

	if (end - p >= 2 && p[1] == '\'' && strchr("ebxn", letter)) {
		enum quote quote = letter == 'e'   ? QUOTE_ESCAPE
				   : letter == 'n' ? plain
						   : QUOTE_BITS;

		ret->kind = quote == QUOTE_BITS ? SQL_BITS : SQL_STRING;
		*ret_stop = string_end(p + 2, end, quote, lx->dialect);
		return true;
	}
	if (letter != 'u' || end - p < 3 || p[1] != '&' || (p[2] != '\'' && p[2] != '"'))
		return false;
	ret->kind = p[2] == '"' ? SQL_QIDENT : SQL_STRING;
	*ret_stop = p[2] == '"' ? ident_end(p + 3, end)
				: string_end(p + 3, end, QUOTE_PLAIN, lx->dialect);
	return true;
}

static const char *lex_dollar(
	const char *p, const char *end, unsigned dialect, struct sql_token *ret)
{
	size_t tag;

	if (end - p >= 2 && is(p[1], C_DIGIT)) {
		const char *stop = skip_class(p + 1, end, C_DIGIT);

		ret->kind = SQL_PARAM;
		ret->param = param_number(p + 1, stop);
		return stop;
	}
	tag = dollar_tag(p, end, dialect);
	if (!tag) {
		ret->kind = SQL_OTHER;
		return p + 1;
	}
	ret->kind = SQL_STRING;
	return dollar_end(p, end, tag);
}

static const char *lex_other(const char *p, const char *end, struct sql_token *ret)
{
	ret->kind = *p == ';' ? SQL_SEMICOLON : SQL_OTHER;
	return p + (end - p >= 2 && p[0] == ':' && p[1] == ':' ? 2 : 1);
}

void sql_lex_init(struct sql_lexer *lx, const char *text, size_t len, unsigned dialect)
{
	lx->text = lx->pos = text;
	lx->end = text + len;
	lx->dialect = dialect;
}

void sql_lex_next(struct sql_lexer *lx, struct sql_token *ret)
{
	const char *end = lx->end, *p = lx->pos, *stop = end;
	enum skip state = skip_ignored(&p, end);

	ret->kind = state == SKIP_BLOCK ? SQL_BAD : SQL_END;
	ret->param = 0;
	if (state != SKIP_TOKEN) {
		/* nothing, or an open comment */
	} else if (is(*p, C_START) && !is_backslash(p, end, lx->dialect)) {
		if (!lex_prefixed(lx, p, ret, &stop)) {
			ret->kind = SQL_IDENT;
			stop = skip_word(p, end, C_WORD, lx->dialect);
		}
	} else if (*p == '\'') {
		ret->kind = SQL_STRING;
		stop = string_end(p + 1, end,
			lx->dialect & SQL_STANDARD ? QUOTE_PLAIN : QUOTE_ESCAPE, lx->dialect);
	} else if (*p == '"') {
		ret->kind = SQL_QIDENT;
		stop = ident_end(p + 1, end);
	} else if (*p == '$') {
		stop = lex_dollar(p, end, lx->dialect, ret);
	} else if (is(*p, C_DIGIT) || (*p == '.' && end - p >= 2 && is(p[1], C_DIGIT))) {
		ret->kind = SQL_NUMBER;
		stop = number_end(p, end);
	} else {
		stop = lex_other(p, end, ret);
	}
	if (!stop) {
		ret->kind = SQL_BAD;
		stop = end;
	}
	ret->text = p;
	ret->len = (size_t)(stop - p);
	lx->pos = stop;
}

int sql_char_position(const char *text, const char *p)
{
	int n = 1;

	for (; text < p; text++)
		n += ((uint8_t)*text & 0xC0) != 0x80;
	return n;
}

/* --- values --- */

/* Reads exactly n digits; a negative number when they are not all there. */
static int64_t hex_digits(const char *p, const char *end, int n)
{
	int64_t v = 0;

	if (end - p < n)
		return -1;
	for (; n > 0; n--, p++) {
		char c = util_lower(*p);

		if (is(c, C_DIGIT))
			v = v * 16 + (c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (c - 'a' + 10);
		else
			return -1;
	}
	return v;
}

static void put_utf8(struct buf *out, uint32_t c)
{
	if (c < 0x80) {
		buf_putc(out, (char)c);
		return;
	}
	if (c < 0x800) {
		buf_putc(out, (char)(0xC0 | c >> 6));
	} else {
		if (c < 0x10000) {
			buf_putc(out, (char)(0xE0 | c >> 12));
		} else {
			buf_putc(out, (char)(0xF0 | c >> 18));
			buf_putc(out, (char)(0x80 | (c >> 12 & 0x3F)));
		}
		buf_putc(out, (char)(0x80 | (c >> 6 & 0x3F)));
	}
	buf_putc(out, (char)(0x80 | (c & 0x3F)));
}

/* The two halves of a surrogate pair come as two escapes, with nothing between them. */
static bool put_code_point(struct buf *out, int64_t c, uint32_t *high)
{
	bool low = c >= 0xDC00 && c <= 0xDFFF;

	if (c <= 0 || c > 0x10FFFF || low != (*high != 0))
		return false;
	if (c >= 0xD800 && c <= 0xDBFF) {
		*high = (uint32_t)c;
		return true;
	}
	put_utf8(
		out, low ? 0x10000 + ((*high & 0x3FF) << 10) + ((uint32_t)c & 0x3FF) : (uint32_t)c);
	*high = 0;
	return true;
}

/* p stands behind the backslash of U&; returns the place behind the escape, or NULL. */
static const char *unicode_escape(const char *p, const char *end, struct buf *out, uint32_t *high)
{
	bool plus = p < end && *p == '+';
	int digits = plus ? 6 : 4;

	if (p < end && *p == '\\' && !*high) {
		buf_putc(out, '\\');
		return p + 1;
	}
	p += plus;
	if (!put_code_point(out, hex_digits(p, end, digits), high))
		return NULL;
	return p + digits;
}

static const char *octal_escape(const char *p, const char *end, struct buf *out)
{
	unsigned v = 0;
	int n;

	for (n = 0; n < 3 && p < end && *p >= '0' && *p <= '7'; n++, p++)
		v = v * 8 + (unsigned)(*p - '0');
	if (!(v & 0xFF))
		return NULL;
	buf_putc(out, (char)v);
	return p;
}

static const char *hex_escape(const char *p, const char *end, struct buf *out)
{
	int digits = hex_digits(p + 1, end, 2) >= 0 ? 2 : hex_digits(p + 1, end, 1) >= 0 ? 1 : 0;
	int64_t v = hex_digits(p + 1, end, digits);

	if (digits && !v)
		return NULL;
	buf_putc(out, digits ? (char)v : *p);
	return p + 1 + digits;
}

/* p stands behind the backslash of E'', where the literal goes on; returns the place behind the
 * escape, or NULL. */
static const char *c_escape(const char *p, const char *end, struct buf *out, uint32_t *high)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *known;

	if (*p == 'u' || *p == 'U') {
		int digits = *p == 'u' ? 4 : 8;

		if (!put_code_point(out, hex_digits(p + 1, end, digits), high))
			return NULL;
		return p + 1 + digits;
	}
	if (*high)
		return NULL;
	if (*p >= '0' && *p <= '7')
		return octal_escape(p, end, out);
	if (*p == 'x')
		return hex_escape(p, end, out);
	known = *p ? strchr(from, *p) : NULL;
	buf_putc(out, known ? to[known - from] : *p);
	return p + 1;
}

/* p stands at a backslash. What is behind it may be more than a byte, and itself then. */
static const char *escape(
	const char *p, const char *end, unsigned dialect, struct buf *out, uint32_t *high)
{
	size_t n;

	p += char_len(p, end, dialect);
	n = char_len(p, end, dialect);
	if (n == 1)
		return c_escape(p, end, out, high);
	if (*high)
		return NULL;
	buf_put(out, p, n);
	return p + n;
}

/* p stands behind the opening quote, end behind the closing one. */
static bool unquote(
	const char *p, const char *end, char quote, bool escapes, unsigned dialect, struct buf *out)
{
	uint32_t high = 0;

	while (p < end) {
		const char *run = p;
		bool backslash;

		while (p < end && *p != quote && !(escapes && is_backslash(p, end, dialect)))
			p += escapes ? char_len(p, end, dialect) : 1;
		buf_put(out, run, (size_t)(p - run));
		backslash = p < end && *p != quote;
		if (p == end || (high && (p != run || !backslash)))
			return false;
		if (backslash) {
			p = escape(p, end, dialect, out, &high);
			if (!p)
				return false;
			continue;
		}
		if (++p == end)
			return true;
		if (*p == quote) {
			buf_putc(out, quote);
			p++;
		} else {
			p = continuation(p, end);
			if (!p)
				return false;
		}
	}
	return false;
}

/* The escapes of U& are resolved when the quotes are gone: one may span the pieces of a literal. */
static bool unquote_unicode(const char *p, const char *end, char quote, struct buf *out)
{
	struct buf plain = BUF_INIT;
	uint32_t high = 0;
	bool ok = unquote(p, end, quote, false, SQL_STANDARD, &plain);

	p = buf_cstr(&plain);
	ok = ok && !buf_failed(&plain);
	out->failed = out->failed || buf_failed(&plain);
	end = ok ? p + plain.len : p;
	while (ok && p < end) {
		const char *run = p;

		while (p < end && *p != '\\')
			p++;
		buf_put(out, run, (size_t)(p - run));
		ok = !high || p == run;
		if (ok && p < end) {
			p = unicode_escape(p + 1, end, out, &high);
			ok = p != NULL;
		}
	}
	buf_free(&plain);
	return ok && !high;
}

/* As a cast of the bits to text gives them: X'1F' is 00011111. */
static bool bits_value(const char *p, const char *end, bool hex, struct buf *out)
{
	for (; p < end; p++) {
		int64_t v;
		int bit;

		if (*p == '\'') {
			if (p + 1 == end)
				return true;
			p = continuation(p + 1, end);
			if (!p)
				return false;
			p--;
			continue;
		}
		v = hex_digits(p, end, 1);
		if (v < 0 || (!hex && v > 1))
			return false;
		for (bit = hex ? 3 : 0; bit >= 0; bit--)
			buf_putc(out, '0' + (char)(v >> bit & 1));
	}
	return false;
}

static bool string_value(const char *p, const char *end, unsigned dialect, struct buf *out)
{
	bool standard_strings = dialect & SQL_STANDARD;

	switch (util_lower(*p)) {
	case '\'':
		return unquote(p + 1, end, '\'', !standard_strings, dialect, out);
	case 'n':
		return unquote(p + 2, end, '\'', !standard_strings, dialect, out);
	case 'e':
		return unquote(p + 2, end, '\'', true, dialect, out);
	case 'u': /* Postgres refuses it without standard strings */
		return standard_strings && unquote_unicode(p + 3, end, '\'', out);
	case '$': {
		size_t tag = dollar_tag(p, end, dialect);

		buf_put(out, p + tag, (size_t)(end - p) - 2 * tag);
		return true;
	}
	default:
		return false;
	}
}

bool sql_token_value(const struct sql_token *t, unsigned dialect, struct buf *out)
{
	const char *p = t->text, *end = p + t->len;
	bool ok = true;

	switch (t->kind) {
	case SQL_IDENT:
		for (; p < end; p++)
			buf_putc(out, util_lower(*p));
		break;
	case SQL_QIDENT:
		ok = *p == '"' ? unquote(p + 1, end, '"', false, dialect, out)
			       : (dialect & SQL_STANDARD) && unquote_unicode(p + 3, end, '"', out);
		break;
	case SQL_STRING:
		ok = string_value(p, end, dialect, out);
		break;
	case SQL_BITS:
		ok = bits_value(p + 2, end, util_lower(*p) == 'x', out);
		break;
	case SQL_BAD:
	case SQL_END:
		ok = false;
		break;
	default:
		buf_put(out, p, t->len);
		break;
	}
	return ok && !buf_failed(out);
}
