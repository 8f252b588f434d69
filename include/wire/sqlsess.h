/*
 * What a text may do to the session that carries it out, beyond its transaction: settings, temporary
 * tables, locks. A look at the text, not at what the server did: it may suspect too much, and does not
 * see into functions. Pure.
 */
#ifndef QB_WIRE_SQLSESS_H
#define QB_WIRE_SQLSESS_H

#include "wire/sqllex.h"

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
	SQL_TOUCH_EXECUTE = 1 << 19, /* it runs what was prepared: sql_session_executed() */
	SQL_TOUCH_UNNAMED = 1 << 20, /* of sql_session_custom_names(): a name is bound, or there are too many */
};
/* What may undo one of them has it shifted by so much: of interest only where there is one. */
#define SQL_TOUCH_UNDO_SHIFT 8

/* enum sql_touch, of all statements of the text. Cheap for the usual statement. dialect: enum
 * sql_dialect. */
unsigned sql_session_touches(const char *text, size_t len, unsigned dialect);
/* The same of a text that is refused when it is more than one statement: of any dialect. */
unsigned sql_session_touches_prepared(const char *text, size_t len);

/* Names with a dot in them that the text may set, which no view of the server lists: each with its
 * terminator, lower case. SQL_TOUCH_UNNAMED, SQL_TOUCH_UNSEEN: it may set some that it does not
 * tell. */
unsigned sql_session_custom_names(const char *text, size_t len, struct buf *ret);
/* Does it hold a word of those that take settings back: RESET, DISCARD, DEFAULT? */
bool sql_session_may_reset(const char *text, size_t len);
/* Does it hold the word EXECUTE? */
bool sql_session_may_execute(const char *text, size_t len);
/* What stands behind each word EXECUTE, as a name, each with its terminator. false: not all of it
 * can be read. */
bool sql_session_executed(const char *text, size_t len, struct buf *ret);

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
	SQL_SESSION_DEALLOCATE, /* name */
};

struct sql_session {
	enum sql_session_kind kind;
	struct buf name;  /* lower case unless quoted, with terminator */
	struct buf value; /* as set_config() takes it, with terminator */
};

/* A single statement (optional trailing ';', nothing else). Free name and value. */
enum sql_session_kind sql_session_classify(
	const char *text, size_t len, unsigned dialect, struct sql_session *ret);
void sql_session_free(struct sql_session *s);

#endif
