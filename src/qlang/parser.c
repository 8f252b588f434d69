/*
 * What the QUEUE parser says of a token that is wrong. Must not know: any grammar. Entry points:
 * parser_syntax_error(), parser_hint_usage().
 */
#include <string.h>

#include "parse_int.h"

bool parser_out_of_memory(struct parser *p)
{
	pg_error_set(p->err, "53200", "out of memory");
	return false;
}

struct pg_error *parser_place(struct parser *p, const char *at)
{
	p->err->position = sql_char_position(p->q->text, at);
	return p->err;
}

int parser_near(const struct sql_token *t)
{
	size_t n = t->len;

	if (n > NEAR_MAX) {
		n = NEAR_MAX;
		while (n > 0 && ((uint8_t)t->text[n] & 0xC0) == 0x80)
			n--;
	}
	return (int)n;
}

static void hint_verbs(struct pg_error *err)
{
	char text[600];
	size_t n = 0;

	for (int i = 0; i < QVERB_COUNT && n + 20 < sizeof(text); i++) {
		if (i)
			n += util_strlcpy(text + n, ", ", sizeof(text) - n);
		n += util_strlcpy(text + n, qverbs[i].name, sizeof(text) - n);
	}
	pg_error_hint(err, "The verbs are %s. QUEUE HELP shows their usage.", text);
}

void qverb_unknown(const char *name, size_t len, struct pg_error *err)
{
	const struct sql_token t = {.text = name, .len = len};
	const struct qverb *nearest = qverb_nearest(name, len);

	pg_error_set(err, "42601", "unknown QUEUE verb \"%.*s\"", parser_near(&t), name);
	if (nearest)
		pg_error_hint(
			err, "Did you mean QUEUE %s? Usage: %s", nearest->name, nearest->usage);
	else
		hint_verbs(err);
}

void parser_hint_usage(struct parser *p)
{
	if (p->q->then && (p->q->then->flags & QVERB_BEHIND))
		pg_error_hint(p->err, "Usage: %s", p->q->then->usage);
	else if (p->q->verb)
		pg_error_hint(p->err, "Usage: %s", p->q->verb->usage);
	else
		hint_verbs(p->err);
}

bool parser_syntax_error(struct parser *p)
{
	const struct sql_token *t = &p->t;

	if (p->trying) {
		p->no_value = true;
		return false;
	}
	if (t->kind == SQL_END)
		pg_error_set(p->err, "42601", "syntax error at end of input");
	else if (t->kind == SQL_BAD)
		pg_error_set(p->err, "42601", "unterminated %s at or near \"%.*s\"",
			*t->text == '/'   ? "/* comment"
			: *t->text == '"' ? "quoted identifier"
					  : "quoted string",
			parser_near(t), t->text);
	else
		pg_error_set(p->err, "42601", "syntax error at or near \"%.*s\"", parser_near(t),
			t->text);
	parser_place(p, t->text);
	parser_hint_usage(p);
	return false;
}
