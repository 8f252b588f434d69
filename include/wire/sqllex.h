/*
 * SQL text, read as Postgres' scanner reads it (src/backend/parser/scan.l, psqlscan.l): blanks
 * [ \t\n\r\f\v], -- to \n or \r, nested comments, '' and E'' and U&'' and N'' B'' X'' strings, $tag$
 * strings, "" identifiers, bytes >= 0x80 in identifiers, ASCII-only case folding. Pure; a token
 * borrows the text.
 */
#ifndef QB_WIRE_SQLLEX_H
#define QB_WIRE_SQLLEX_H

#include "base/buf.h"

/* --- the first word --- */

/* Those of statements that somebody tells apart, in the order of their letters. */
#define SQL_WORDS(X) \
	X(ABORT, "abort") X(BEGIN, "begin") X(CALL, "call") X(CLOSE, "close") X(COMMIT, "commit") \
	X(CREATE, "create") X(DEALLOCATE, "deallocate") X(DECLARE, "declare") X(DISCARD, "discard") \
	X(DO, "do") X(DROP, "drop") X(END, "end") X(EXECUTE, "execute") X(EXPLAIN, "explain") \
	X(LISTEN, "listen") X(LOAD, "load") X(PREPARE, "prepare") X(QUEUE, "queue") X(RESET, "reset") \
	X(ROLLBACK, "rollback") X(SELECT, "select") X(SET, "set") X(START, "start") \
	X(UNLISTEN, "unlisten") X(WITH, "with")
#define SQL_WORD_ROW(name, text) SQL_WORD_##name,

enum sql_word {
	SQL_WORD_MORE, /* it may become one of them when more bytes come */
	SQL_WORD_NONE, /* nothing but blanks, comments and semicolons */
	SQL_WORD_OTHER,
	SQL_WORDS(SQL_WORD_ROW)
	SQL_WORD_COUNT
};

/*
 * The first token of the text (after blanks, comments and empty statements ";"), if it is one of
 * these bare words, in any case. `complete` says that no more bytes will come. Never changes, but
 * from MORE, when bytes are appended.
 */
enum sql_word sql_first_word(const char *text, size_t len, bool complete);

/* --- dialects --- */

/*
 * What a text means by a backslash and by the bytes above 0x7F depends on the session. The second
 * byte of a character may be one of ASCII (never a quote, a blank or a sign of a comment) in a few
 * client encodings, which Postgres converts before it scans. A text without a backslash and without
 * such bytes means the same in all dialects.
 */
enum sql_dialect {
	SQL_STANDARD = 1, /* standard_conforming_strings: a backslash in '...' is one */
	/* client encodings; UTF8 and all that need no care have none of these */
	SQL_WIDE = 2,         /* BIG5, GBK, UHC: two bytes */
	SQL_WIDE_SJIS = 4,    /* ... or one */
	SQL_WIDE_GB18030 = 6, /* ... or four */
	SQL_WIDE_ANY = 6,
	SQL_WIDE_JIS_2004 = 8, /* with SQL_WIDE_SJIS: two bytes that are a backslash */
};

/* --- tokens --- */

enum sql_token_kind {
	SQL_END,        /* end of text */
	SQL_IDENT,      /* bare word */
	SQL_QIDENT,     /* "..." or U&"..." */
	SQL_STRING,     /* '...', E'...', U&'...', N'...', $tag$...$tag$ */
	SQL_BITS,       /* B'..', X'..' */
	SQL_NUMBER,     /* without sign */
	SQL_PARAM,      /* $n */
	SQL_SEMICOLON,
	SQL_OTHER,      /* any other single character or operator: ( ) , :: + - . */
	SQL_BAD,        /* unterminated string, comment or identifier; from there to the end of text */
};

struct sql_token {
	enum sql_token_kind kind;
	const char *text; /* borrows */
	size_t len;
	int param; /* SQL_PARAM: n */
};

struct sql_lexer {
	const char *text, *pos, *end;
	unsigned dialect; /* enum sql_dialect */
};

void sql_lex_init(struct sql_lexer *lx, const char *text, size_t len, unsigned dialect);
void sql_lex_next(struct sql_lexer *lx, struct sql_token *ret);
/* 1-based character (not byte) position of p in UTF-8 text, for error positions. */
int sql_char_position(const char *text, const char *p);

/* The value of a literal or identifier token as bytes: quotes removed, escapes resolved, bare
 * words folded. false: memory, or an escape that is not valid (\u beyond range, odd U&). */
MUST_CHECK bool sql_token_value(const struct sql_token *t, unsigned dialect, struct buf *out);

/* --- statements --- */

/*
 * Cuts the next statement: up to ';' at depth 0 outside strings, comments, parentheses (CREATE RULE)
 * and BEGIN ATOMIC bodies. *pos starts at 0 and moves behind the ';'. Statements of only blanks and
 * comments are skipped. ret spans the statement without its ';'. false at the end.
 */
MUST_CHECK bool sql_statement_next(const char *text, size_t len, size_t *pos, unsigned dialect,
	const char **ret, size_t *ret_len);

/* As Postgres' interval_in reads the common forms ('30s', '1 hour 5 min', '00:00:30', '1.5 days', 'PT30S', bare
 * number = seconds, optional 'ago'/signs). Months count 30 days. false: not an interval. */
MUST_CHECK bool sql_interval_usec(const char *text, size_t len, int64_t *ret_usec);
size_t sql_interval_text(char *dst, size_t size, int64_t usec); /* as it reads it; its length */

#endif
