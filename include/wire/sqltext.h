/*
 * A text of SQL and what is known of it. It is made once, where a Query or a Parse comes in, and handed on by
 * pointer; a statement that is prepared keeps its own. The first word is read at once, all else when it is asked
 * for the first time. None of it reads the text more often than a fixed number of times, whatever it is
 * (test/unit/test_qlang_linear.c).
 *
 * What a text may do to the session that carries it out is a look at its letters, not at what the server did: it
 * may suspect too much, and does not see into functions. Pure.
 */
#ifndef QB_WIRE_SQLTEXT_H
#define QB_WIRE_SQLTEXT_H

#include "wire/sqllex.h"

/* --- the effects of a text --- */

/* What to ask the server about when the transaction has ended. */
enum sql_touch {
	SQL_TOUCH_SETTINGS = 1,
	SQL_TOUCH_TEMP = 2,     /* temporary tables */
	SQL_TOUCH_LOCKS = 4,    /* advisory locks of the session */
	SQL_TOUCH_CURSORS = 8,  /* WITH HOLD */
	SQL_TOUCH_PREPARED = 16,/* PREPARE */
	SQL_TOUCH_LISTEN = 32,
	SQL_TOUCH_LOAD = 64,    /* LOAD: nothing undoes it */
	SQL_TOUCH_ALL = 63,
	SQL_TOUCH_GUESS = 1 << 16, /* it may well leave nothing behind */
	/* what it does cannot be read: all of the above, and settings whose names nobody can ask for */
	SQL_TOUCH_UNSEEN = SQL_TOUCH_ALL | SQL_TOUCH_GUESS | 1 << 17,
	SQL_TOUCH_HIDDEN = 1 << 17,  /* the bit of that */
	SQL_TOUCH_DIALECT = 1 << 18, /* client_encoding or the meaning of a backslash, which are reported */
	SQL_TOUCH_EXECUTE = 1 << 19, /* it runs what was prepared: sql_executed() */
	SQL_TOUCH_UNNAMED = 1 << 20, /* of sql_custom_names(): a name is bound, or there are too many */
};
/* What may undo one of them has it shifted by so much: of interest only where there is one. */
#define SQL_TOUCH_UNDO_SHIFT 8

/* --- a single statement that is understood as a whole (optional trailing ';', nothing else) --- */

/* What it does to the transaction. */
enum sql_tx {
	SQL_TX_OTHER,       /* anything else */
	SQL_TX_EMPTY,       /* nothing but blanks and comments */
	SQL_TX_BEGIN,       /* BEGIN|START TRANSACTION [WORK|TRANSACTION] [known modes] */
	SQL_TX_COMMIT,      /* COMMIT|END [WORK|TRANSACTION] [AND NO CHAIN] */
	SQL_TX_ROLLBACK,    /* ROLLBACK|ABORT [WORK|TRANSACTION] [AND NO CHAIN] */
};

/* What it does to the session. */
enum sql_session_kind {
	SQL_SESSION_OTHER,
	SQL_SESSION_SET,        /* SET [SESSION] name = value */
	SQL_SESSION_RESET,      /* RESET name; SET name TO DEFAULT: value has the tag */
	SQL_SESSION_RESET_ALL,
	SQL_SESSION_DISCARD_ALL,
	SQL_SESSION_DISCARD_PART, /* PLANS, SEQUENCES, TEMP: value has the tag */
	SQL_SESSION_DEALLOCATE_ALL,
	SQL_SESSION_CLOSE_ALL,
	SQL_SESSION_UNLISTEN,   /* UNLISTEN name, or no name: all */
	SQL_SESSION_LISTEN,     /* name */
	SQL_SESSION_UNLOCK_ALL, /* SELECT pg_advisory_unlock_all() */
	SQL_SESSION_PREPARE,    /* PREPARE name [(types)] AS statement */
	SQL_SESSION_DEALLOCATE, /* [PREPARE] name, of any length */
};

struct sql_session {
	enum sql_session_kind kind;
	struct buf name;  /* lower case unless quoted, with terminator */
	struct buf value; /* as set_config() takes it, with terminator */
};

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

#define SQL_IN(word, set) ((set) >> (word) & 1u)

static inline enum sql_tx sql_tx(struct sql_text *t)
{
	const uint32_t may_be = 1u << SQL_WORD_NONE | 1u << SQL_WORD_BEGIN | 1u << SQL_WORD_START |
				1u << SQL_WORD_COMMIT | 1u << SQL_WORD_END | 1u << SQL_WORD_ROLLBACK |
				1u << SQL_WORD_ABORT;

	return SQL_IN(t->word, may_be) ? sql_find_tx(t) : SQL_TX_OTHER;
}
/* The command tag Postgres gives for it: "BEGIN" or "START TRANSACTION", "COMMIT", "ROLLBACK". */
const char *sql_tx_tag(enum sql_tx kind, const struct sql_text *t);

extern const struct sql_session sql_no_session;
/* Without memory: SQL_SESSION_OTHER. Stays the text's. */
static inline const struct sql_session *sql_session(struct sql_text *t)
{
	const uint32_t may_be = 1u << SQL_WORD_SET | 1u << SQL_WORD_RESET | 1u << SQL_WORD_DISCARD |
				1u << SQL_WORD_DEALLOCATE | 1u << SQL_WORD_PREPARE | 1u << SQL_WORD_CLOSE |
				1u << SQL_WORD_LISTEN | 1u << SQL_WORD_UNLISTEN | 1u << SQL_WORD_SELECT;

	/* of a SELECT it is known what it may undo */
	if (!SQL_IN(t->word, may_be) ||
		(t->word == SQL_WORD_SELECT && !(sql_touches(t) & SQL_TOUCH_LOCKS << SQL_TOUCH_UNDO_SHIFT)))
		return &sql_no_session;
	return sql_find_session(t);
}
/* DISCARD ALL or DEALLOCATE ALL: names of statements mean nothing behind it. */
static inline bool sql_forgets_all(struct sql_text *t)
{
	const uint32_t may_be = 1u << SQL_WORD_DISCARD | 1u << SQL_WORD_DEALLOCATE;
	enum sql_session_kind kind = SQL_IN(t->word, may_be) ? sql_session(t)->kind : SQL_SESSION_OTHER;

	return kind == SQL_SESSION_DISCARD_ALL || kind == SQL_SESSION_DEALLOCATE_ALL;
}

static inline bool sql_fact(struct sql_text *t, enum sql_fact f)
{
	return t->known & f ? (t->facts & f) != 0 : sql_find_fact(t, f);
}
/* No backslash and no byte above 0x7F: it means the same in all dialects. */
static inline bool sql_is_plain(struct sql_text *t)
{
	return sql_fact(t, SQL_PLAIN);
}
/* May settings change what it means? */
static inline bool sql_has_literals(struct sql_text *t)
{
	return sql_fact(t, SQL_LITERALS);
}
/* Does it hold the name of one of sql_rare_settings? */
static inline bool sql_names_rare(struct sql_text *t)
{
	return sql_fact(t, SQL_RARE);
}
/* Does it hold a word of those that take settings back: RESET, DISCARD, DEFAULT? */
static inline bool sql_may_reset(struct sql_text *t)
{
	return sql_fact(t, SQL_RESETS);
}
/* Does it hold the word EXECUTE? */
static inline bool sql_may_execute(struct sql_text *t)
{
	return sql_fact(t, SQL_EXECUTES);
}
/* Settings with which Postgres reads literals, and which it does not report; some matter only to what
 * is computed of literals when a plan is made. */
#define SQL_RARE_COUNT 10
extern const char *const sql_rare_settings[SQL_RARE_COUNT];

/* Names with a dot in them that the text may set, which no view of the server lists: each with its
 * terminator, lower case; they stay the text's. SQL_TOUCH_UNNAMED, SQL_TOUCH_UNSEEN: it may set some that
 * it does not tell. */
unsigned sql_custom_names(struct sql_text *t, const struct buf **ret);
/* What stands behind each word EXECUTE, as a name, each with its terminator. false: not all of it
 * can be read. */
bool sql_executed(struct sql_text *t, const struct buf **ret);

#endif
