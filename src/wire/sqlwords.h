/*
 * Reading a statement word by word. Between sqlstmt.c and sqlsess.c.
 */
#ifndef QB_SQLWORDS_H
#define QB_SQLWORDS_H

#include "wire/sqllex.h"

/* `t` is the next token. */
struct words {
	struct sql_lexer lx;
	struct sql_token t;
};

void words_init(struct words *w, const char *text, size_t len, bool standard_strings);
bool words_token_is(const struct sql_token *t, const char *word);
bool words_accept(struct words *w, const char *word); /* takes it */
bool words_accept_other(struct words *w, char c);
bool words_at_end(struct words *w); /* but for semicolons */

#endif
