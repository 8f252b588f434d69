/*
 * Reading a statement word by word. Between sqlstmt.c, sqltext.c, sqlsess.c and sqltouch.c.
 */
#ifndef QB_SQLWORDS_H
#define QB_SQLWORDS_H

#include "wire/sqltext.h"

#define WORDS_NAME_MAX 63 /* Postgres cuts off what is longer, of each part of a name */

/* `t` is the next token. */
struct words {
	struct sql_lexer lx;
	struct sql_token t;
};

void words_init(struct words *w, const char *text, size_t len, unsigned dialect);
bool words_token_is(const struct sql_token *t, const char *word);
bool words_accept(struct words *w, const char *word); /* takes it */
bool words_accept_other(struct words *w, char c);
/* Not in front of a dot: there it is the class of a setting of one's own, as in SET local.tenant. */
bool words_accept_keyword(struct words *w, const char *word);
/* name or class.name of a setting, in small letters, with its terminator. */
bool words_accept_name(struct words *w, struct buf *ret);
bool words_at_end(struct words *w); /* but for semicolons */
/* Does it stand anywhere in the text, in whatever it is? */
bool words_hold(const char *text, size_t len, const char *word);

#endif
