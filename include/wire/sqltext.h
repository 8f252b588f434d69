/*
 * A text of SQL and what is known of it. It is made once, where a Query or a Parse comes in, and handed on by
 * pointer; a statement that is prepared keeps its own. The first word is read at once, all else when it is asked
 * for the first time. None of it reads the text more often than a fixed number of times, whatever it is
 * (test/unit/test_qlang_linear.c). Pure.
 */
#ifndef QB_WIRE_SQLTEXT_H
#define QB_WIRE_SQLTEXT_H

#include "wire/sqlread.h"

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
