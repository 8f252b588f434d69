/*
 * What a text of SQL may be and do: the answers of wire/sqltext.h. Its effects on the session that carries it out
 * are a look at its letters, not at what the server did: it may suspect too much, and does not see into functions.
 */
#ifndef QB_WIRE_SQLKIND_H
#define QB_WIRE_SQLKIND_H

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

#endif
