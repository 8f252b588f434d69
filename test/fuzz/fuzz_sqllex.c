/*
 * The lexer and the statement cutter on any text. The first byte of the input says whether strings
 * are standard. Held against: tokens lie in the text in order, the first word never changes its
 * mind, the quick search agrees with the slow one.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/sqllex.h"

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
	enum sql_peek known = SQL_PEEK_MORE;

	for (size_t n = 0; n <= len && n < 200; n++) {
		enum sql_peek now = sql_first_word_is(text, n, false, "queue");

		require(known == SQL_PEEK_MORE || now == known);
		known = now;
	}
	require(known == SQL_PEEK_MORE || sql_first_word_is(text, len, true, "queue") == known);
}

static void statements(const char *text, size_t len, bool standard)
{
	const char *stmt, *at = text;
	size_t pos = 0, n;
	bool any = false;

	while (sql_statement_next(text, len, &pos, standard, &stmt, &n)) {
		struct buf name = BUF_INIT;

		require(stmt >= at && n > 0 && pos <= len && stmt + n <= text + pos);
		at = stmt + n;
		any = any || sql_first_word_is(stmt, n, true, "queue") == SQL_PEEK_YES;
		require(sql_tx_classify(stmt, n) != SQL_TX_EMPTY);
		(void)sql_prep_classify(stmt, n, &name);
		buf_free(&name);
	}
	require(any == sql_any_statement_is(text, len, standard, "queue"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	bool standard;
	int64_t usec;

	if (!size)
		return 0;
	standard = !(data[0] & 1);
	size--;
	lex_all(text, size, standard);
	first_word(text, size);
	statements(text, size, standard);
	(void)sql_interval_usec(text, size, &usec);
	return 0;
}
