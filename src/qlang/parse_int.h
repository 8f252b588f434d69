/*
 * What parse.c (statements), parse_bulk.c (PUSH of a query or a copy), parse_value.c (values) and parser.c (tokens)
 * share. The functions return false with the error filled; on success the current token is the one behind what was read.
 */
#ifndef QB_QLANG_PARSE_INT_H
#define QB_QLANG_PARSE_INT_H

#include <string.h>

#include "qlang/parse.h"
#include "wire/sqllex.h"

struct qchunk {
	struct qchunk *next;
	char data[];
};

struct parser {
	struct qstmt *q; /* being built */
	struct sql_lexer lx;
	struct sql_token t;   /* the current token */
	const char *prev_end; /* end of the token before it */
	int max_param;
	bool may_compute; /* what stands here may be an expression */
	bool trying;      /* if it is no value it is one: a syntax error is not told, and is no_value */
	bool no_value;
	bool computed; /* the value is in parentheses: an error in it is an expression */
	struct buf scratch;
	struct pg_error *err;
};

typedef bool value_fn(struct parser *p, struct qvalue *v);

#define NEAR_MAX 60 /* bytes of the statement that a message quotes */

/* parser.c */
bool parser_syntax_error(struct parser *p);  /* at the current token; always false */
bool parser_out_of_memory(struct parser *p); /* always false */
void parser_hint_usage(struct parser *p);
struct pg_error *parser_place(struct parser *p, const char *at);
int parser_near(const struct sql_token *t); /* how many of its bytes a message shows */

/* --- the current token --- */

static inline void parser_advance(struct parser *p)
{
	p->prev_end = p->t.text + p->t.len;
	sql_lex_next(&p->lx, &p->t);
}

static inline bool parser_word_is(const struct sql_token *t, const char *word, size_t len)
{
	return t->kind == SQL_IDENT && t->len == len && !util_memcasecmp(t->text, word, len);
}

static inline bool parser_at(const struct parser *p, const char *word)
{
	return parser_word_is(&p->t, word, strlen(word));
}

static inline bool parser_at_char(const struct parser *p, char c)
{
	return p->t.kind == SQL_OTHER && p->t.len == 1 && *p->t.text == c;
}

static inline bool parser_expect_char(struct parser *p, char c)
{
	if (!parser_at_char(p, c))
		return parser_syntax_error(p);
	parser_advance(p);
	return true;
}

/* parse_bulk.c: PUSH q ... instead of payloads, up to the end of the statement */
bool parser_at_bulk(const struct parser *p);
bool parser_bulk(struct parser *p);

/* parse_value.c */
bool parser_param(struct parser *p); /* notes the number of the current token */
bool parser_value(struct parser *p, struct qvalue *v);
bool parser_at_array(const struct parser *p); /* ANY( or ARRAY[ */
bool parser_array_end(struct parser *p);      /* ] and casts of the array */
bool parser_condition(struct parser *p, struct qvalue *v); /* in parentheses, or to the end */
bool parser_table(struct parser *p, struct qvalue *v);     /* a name, with its schema or without, or a value */
bool parser_kept(struct parser *p, struct qvalue *v);      /* in parentheses; its text */
bool parser_queue(struct parser *p, struct qvalue *v);
bool parser_name(struct parser *p, struct qvalue *v);
bool parser_name_or_value(struct parser *p, struct qvalue *v);
bool parser_returning(struct parser *p); /* behind the word */
bool parser_routed(struct parser *p);
bool parser_contains(struct parser *p); /* @> */

#endif
