/*
 * The lexer and the statement cutter on any text. The first byte of the input says whether strings
 * are standard, and of what the text is. Held against: tokens lie in the text in order, the first word never changes
 * its mind, what is known of a text is that of its statements and does not change when it is asked for again.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/sqltext.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void lex_all(const char *text, size_t len, bool standard)
{
	struct sql_lexer lx;
	struct sql_token t;
	const char *at = text;

	sql_lex_init(&lx, text, len, standard);
	do {
		struct buf value = BUF_INIT;

		sql_lex_next(&lx, &t);
		require(t.text >= at && t.len <= (size_t)(text + len - t.text));
		require((t.kind == SQL_END) == (t.len == 0));
		at = t.text + t.len;
		if (sql_token_value(&t, standard, &value))
			require(buf_used(&value) <= 4 * t.len);
		buf_free(&value);
	} while (t.kind != SQL_END);
}

static void first_word(const char *text, size_t len)
{
	enum sql_word known = SQL_WORD_MORE;

	for (size_t n = 0; n <= len && n < 200; n++) {
		enum sql_word now = sql_first_word(text, n, false);

		require(known == SQL_WORD_MORE || now == known);
		known = now;
	}
	require(known == SQL_WORD_MORE || sql_first_word(text, len, true) == known);
}

static void statements(struct sql_text *t)
{
	const char *at = t->sql;
	struct sql_text one;
	size_t pos = 0;
	bool any = false;

	while (sql_text_next(t, &pos, &one)) {
		require(one.sql >= at && one.len > 0 && pos <= t->len &&
			one.sql + one.len <= t->sql + pos);
		at = one.sql + one.len;
		any = any || one.word == SQL_WORD_QUEUE;
		require(sql_tx(&one) != SQL_TX_EMPTY);
		require((sql_touches(t) & sql_touches(&one)) == sql_touches(&one));
		(void)sql_session(&one);
		sql_text_free(&one);
	}
	require(any == sql_has_statement(t, SQL_WORD_QUEUE));
}

struct known {
	unsigned touches, unnamed, facts;
	enum sql_tx tx;
	enum sql_session_kind kind;
	bool executed;
};

static struct known ask(struct sql_text *t)
{
	const struct buf *names;
	struct known k = {.touches = sql_touches(t),
		.unnamed = sql_custom_names(t, &names),
		.tx = sql_tx(t),
		.kind = sql_session(t)->kind,
		.executed = sql_executed(t, &names),
		.facts = (unsigned)sql_is_plain(t) | (unsigned)sql_has_literals(t) << 1 |
			 (unsigned)sql_names_rare(t) << 2 | (unsigned)sql_may_reset(t) << 3 |
			 (unsigned)sql_may_execute(t) << 4 | (unsigned)sql_is_one(t) << 5 |
			 (unsigned)sql_forgets_all(t) << 6};

	return k;
}

static void known_once(struct sql_text *t)
{
	struct known first = ask(t), again;
	struct sql_text moved;

	sql_text_move(&moved, t, t->sql);
	again = ask(&moved);
	require(first.touches == again.touches && first.unnamed == again.unnamed &&
		first.facts == again.facts && first.tx == again.tx && first.kind == again.kind &&
		first.executed == again.executed);
	require((first.kind == SQL_SESSION_OTHER) || first.tx == SQL_TX_OTHER);
	sql_text_free(&moved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct sql_text t;
	bool standard;
	int64_t usec;

	if (!size)
		return 0;
	standard = !(data[0] & 1);
	size--;
	lex_all(text, size, standard);
	first_word(text, size);
	sql_text_init(&t, text, size, standard ? SQL_STANDARD : 0, SQL_OF_QUERY);
	statements(&t);
	known_once(&t);
	sql_text_free(&t);
	sql_text_init(
		&t, text, size, standard ? SQL_STANDARD : 0, (enum sql_of)(data[0] >> 1 & 3) % 3);
	known_once(&t);
	sql_text_free(&t);
	(void)sql_interval_usec(text, size, &usec);
	return 0;
}
