/*
 * A text of SQL, and when it is read for what: wire/sqltext.h asks. Nobody else reads its parts.
 */
#ifndef QB_WIRE_SQLREAD_H
#define QB_WIRE_SQLREAD_H

#include "wire/sqlkind.h"

/* --- the text --- */

enum sql_of {
	SQL_OF_QUERY,
	SQL_OF_PARSE, /* it is refused when it is more than one statement */
	SQL_OF_PART,  /* of a Query: the rest is not here */
};

struct sql_text {
	const char *sql; /* borrows */
	size_t len;
	unsigned dialect; /* enum sql_dialect */
	uint8_t of;       /* enum sql_of */
	uint8_t word;     /* enum sql_word: the first one */
	/* sqltext.c, sqltouch.c, sqlsess.c: through the functions below */
	uint8_t marks, tx;
	uint16_t known, facts; /* enum sql_fact: what has been read; of those that are yes or no, which are so */
	unsigned touches, unnamed;
	uint32_t words;
	struct sql_session session;
	struct buf custom, executed;
};

enum sql_fact {
	SQL_MARKS = 1,
	SQL_TOUCHES = 2, /* and words */
	SQL_TX = 4,
	SQL_PLAIN = 8,
	SQL_LITERALS = 16,
	SQL_RARE = 32,
	SQL_RESETS = 64,
	SQL_EXECUTES = 128,
	/* they have memory */
	SQL_SESSION = 256,
	SQL_CUSTOM = 512,
	SQL_EXECUTED = 1024,
	SQL_OWNED = SQL_SESSION | SQL_CUSTOM | SQL_EXECUTED,
};

void sql_text_init(struct sql_text *t, const char *sql, size_t len, unsigned dialect, enum sql_of of);
void sql_text_release(struct sql_text *t);
static inline void sql_text_free(struct sql_text *t)
{
	if (t->known & SQL_OWNED)
		sql_text_release(t);
}
/* What is known of `from` becomes that of `to`, which has the same text at another place. */
void sql_text_move(struct sql_text *to, struct sql_text *from, const char *sql);
/* The next statement of it, as sql_statement_next() cuts; to be freed. */
MUST_CHECK bool sql_text_next(const struct sql_text *t, size_t *pos, struct sql_text *ret);

void sql_find_marks(struct sql_text *t);
void sql_find_touches(struct sql_text *t);
bool sql_find_fact(struct sql_text *t, enum sql_fact f);
enum sql_tx sql_find_tx(struct sql_text *t);
const struct sql_session *sql_find_session(struct sql_text *t);

/* Bytes that the scanners of sqltouch.c stop at, but for a semicolon at the end. */
enum sql_mark { SQL_MARK_SEMICOLON = 1, SQL_MARK_UNDERSCORE = 2, SQL_MARK_AMPERSAND = 4, SQL_MARK_MP = 8 };

static inline unsigned sql_marks(struct sql_text *t)
{
	if (!(t->known & SQL_MARKS))
		sql_find_marks(t);
	return t->marks;
}
/* Beyond doubt: it has no semicolon, but one at its end. */
static inline bool sql_is_one(struct sql_text *t)
{
	return !(sql_marks(t) & SQL_MARK_SEMICOLON);
}
/* enum sql_touch, of all its statements. */
static inline unsigned sql_touches(struct sql_text *t)
{
	if (!(t->known & SQL_TOUCHES))
		sql_find_touches(t);
	return t->touches;
}
/* Does one of its statements begin with the word? */
static inline bool sql_has_statement(struct sql_text *t, enum sql_word word)
{
	if (t->word == word || sql_is_one(t))
		return t->word == word;
	(void)sql_touches(t);
	return t->words >> word & 1;
}

#endif
