/*
 * The parser and the rewriter of QUEUE statements on any text. The first byte of the input says
 * whether strings are standard. Held against: nothing in a statement makes the rewritten text more
 * than one call, whatever the client wrote.
 */
#include <stdlib.h>
#include <string.h>

#include "qlang/rewrite.h"
#include "wire/sqllex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static const char *token_of(void *arg, int i, const char *text, size_t len)
{
	(void)arg;
	(void)text;
	return (i + (int)len) & 1 ? "3-17-9f86d081884c7d65" : NULL;
}

/* One statement: no semicolon, nothing open, balanced; only parameters that are known. */
static void check_sql(const struct qstmt *q)
{
	struct buf sql = BUF_INIT;
	struct qspan spans[QBULK_SPANS];
	struct pg_error err;
	struct sql_lexer lx;
	struct sql_token t;
	int parens = 0;

	require(q->bulk.kind != QBULK_NONE ? qbulk_sql(q, &sql, spans)
					   : qstmt_sql(q, token_of, NULL, &sql, &err));
	sql_lex_init(&lx, (const char *)sql.data, sql.len, q->standard_strings);
	for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t)) {
		require(t.kind != SQL_SEMICOLON && t.kind != SQL_BAD);
		require(t.kind != SQL_PARAM || (t.param >= 1 && t.param <= q->n_params));
		if (t.kind == SQL_OTHER)
			parens += (*t.text == '(') - (*t.text == ')');
		require(parens >= 0);
	}
	require(parens == 0);
	buf_free(&sql);
}

static void check_values(const struct qstmt *q)
{
	for (int i = 0; i < q->n_values; i++) {
		const struct qvalue *v = &q->values[i];
		struct buf b = BUF_INIT;

		require(v->src >= q->text && v->src + v->src_len <= q->text + q->text_len);
		require(v->kind != QV_PARAM || (v->param >= 1 && v->param <= q->n_params));
		(void)!qvalue_eval(v, NULL, &b);
		buf_free(&b);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pg_error err = {.severity = NULL};
	struct qstmt *q;

	if (!size)
		return 0;
	q = qstmt_parse((const char *)data + 1, size - 1, !(data[0] & 1), NULL, 0, &err);
	if (!q) {
		require(strlen(err.sqlstate) == 5 && err.message[0] && err.position >= 0);
		return 0;
	}
	check_values(q);
	if (q->verb->sql)
		check_sql(q);
	qstmt_free(&q);
	return 0;
}
