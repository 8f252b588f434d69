/* parse.c: statements; every verb by its row in the table, then what the rows do not say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "qlang/parse.h"
#include "queue_samples.h"

static struct pg_error err;

static struct qstmt *parse(const char *sql)
{
	memset(&err, 0, sizeof(err));
	return qstmt_parse(sql, strlen(sql), true, NULL, 0, &err);
}

static void accepts(const char *sql)
{
	struct qstmt *q = parse(sql);

	if (!q)
		fail_msg("%s: %s", sql, err.message);
	qstmt_free(&q);
	assert_null(q);
}

static void refuses(const char *sql, const char *sqlstate, int position)
{
	struct qstmt *q = parse(sql);

	if (q)
		fail_msg("accepted: %s", sql);
	if (strcmp(err.sqlstate, sqlstate) != 0 || (position && err.position != position))
		fail_msg("%s: %s at %d: %s", sql, err.sqlstate, err.position, err.message);
	assert_true(err.position > 0);
	assert_true(err.message[0] != '\0');
}

/* --- from the table --- */

static void test_every_verb(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		const struct qverb *verb = &qverbs[i];
		struct qstmt *q;

		sample_statement(&b, verb, 0);
		q = parse(buf_cstr(&b));
		assert_non_null(q);
		assert_ptr_equal(verb->flags & QVERB_BEHIND ? q->then : q->verb, verb);
		qstmt_free(&q);
		buf_puts(&b, " ; -- end");
		accepts(buf_cstr(&b));
		assert_int_equal(verb->id, i);
		assert_int_equal(verb->sql == NULL,
			(verb->flags & (QVERB_AUTONOMOUS | QVERB_LOCAL | QVERB_BEHIND)) != 0);
	}
	buf_free(&b);
}

static bool has_alternative(const struct qverb *verb, int i)
{
	for (int j = 0; j < verb->n_args; j++) {
		if (j != i && verb->args[i].alt && verb->args[j].alt == verb->args[i].alt)
			return true;
	}
	return false;
}

static void test_every_missing_argument(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		const struct qverb *verb = &qverbs[i];

		for (int j = 0; j < verb->n_args; j++) {
			sample_statement(&b, verb, 1u << j);
			if (verb->args[j].need == QNEED_MAY || has_alternative(verb, j)) {
				accepts(buf_cstr(&b));
				continue;
			}
			/* the statement up to it: the positional ones come first */
			sample_statement(&b, verb, ~0u << j);
			if (verb->id == QVERB_CREATE_TOPIC || verb->id == QVERB_DROP_TOPIC) {
				accepts(buf_cstr(&b)); /* it is the queue of that name */
				continue;
			}
			refuses(buf_cstr(&b), "42601", (int)b.len + 1);
			assert_non_null(strstr(err.hint, verb->usage));
		}
	}
	refuses("QUEUE ALTER q", "42601", 14); /* one of two alternatives must be there */
	buf_free(&b);
}

static void test_every_unknown_argument(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		int at;

		sample_statement(&b, &qverbs[i], 0);
		at = (int)b.len + 2;
		buf_puts(&b, " BOGUS 1");
		refuses(buf_cstr(&b), "42601", at);
		assert_string_equal(err.message, "syntax error at or near \"BOGUS\"");
		assert_non_null(strstr(err.hint, qverbs[i].usage));
	}
	buf_free(&b);
}

/* KEY in place of a job, SCHEDULE of a queue: both are one too many. */
static bool stands_for_other(const struct qverb *verb, const struct qverb_arg *arg)
{
	for (int i = 0; i < verb->n_args; i++)
		if (!verb->args[i].keyword && arg->alt && verb->args[i].alt == arg->alt)
			return true;
	return false;
}

/* Twice (or an alternative), without its value, and cut in the middle of its keyword. */
static void check_clause(struct buf *b, const struct qverb *verb, const struct qverb_arg *arg)
{
	const char *keyword = arg->keyword;
	size_t start;

	sample_statement(b, verb, 0);
	start = b->len;
	sample_arg(b, arg);
	refuses(buf_cstr(b), "42601", (int)start + 2);

	sample_required(b, verb, arg, arg);
	start = b->len;
	buf_printf(b, " %s", keyword);
	if (arg->kind == QKIND_FLAG || arg->kind == QKIND_MAY_INTERVAL)
		accepts(buf_cstr(b));
	else if (stands_for_other(verb, arg))
		refuses(buf_cstr(b), "42601", (int)start + 2);
	else
		refuses(buf_cstr(b), "42601", (int)b->len + 1);
	if (!strchr(keyword, ' '))
		return;
	sample_positional(b, verb);
	buf_printf(b, " %.*s", (int)strcspn(keyword, " "), keyword);
	refuses(buf_cstr(b), "42601", (int)b->len + 1);
}

static void test_every_clause(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		for (int j = 0; j < qverbs[i].n_args; j++) {
			if (qverbs[i].args[j].keyword)
				check_clause(&b, &qverbs[i], &qverbs[i].args[j]);
		}
	}
	buf_free(&b);
}

static void sample_two(struct buf *b, const struct qverb *verb, int i, int j)
{
	sample_required(b, verb, &verb->args[i], &verb->args[j]);
	sample_arg(b, &verb->args[i]);
	sample_arg(b, &verb->args[j]);
}

static void test_any_two_clauses_in_any_order(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int v = 0; v < QVERB_COUNT; v++) {
		const struct qverb *verb = &qverbs[v];

		for (int i = 0; i < verb->n_args; i++) {
			for (int j = 0; j < verb->n_args; j++) {
				if (!verb->args[i].keyword || !verb->args[j].keyword ||
					(verb->flags & QVERB_BEHIND)) /* that lacks its queue */
					continue;
				/* a PUSH has a KEY of its own */
				if (verb->args[i].kind == QKIND_THEN &&
					stands_for_other(verb, &verb->args[j]))
					continue;
				sample_two(&b, verb, i, j);
				/* what follows THEN is not the verb's own any more */
				if (i == j || verb->args[i].kind == QKIND_THEN ||
					stands_for_other(verb, &verb->args[i]) ||
					stands_for_other(verb, &verb->args[j]) ||
					(verb->args[i].alt &&
						verb->args[i].alt == verb->args[j].alt))
					refuses(buf_cstr(&b), "42601", 0);
				else
					accepts(buf_cstr(&b));
			}
		}
	}
	buf_free(&b);
}

/* A prefix of a statement is a statement or an error, in memory of exactly its size. */
static void test_every_verb_cut_anywhere(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		sample_statement(&b, &qverbs[i], 0);
		for (size_t n = 0; n < b.len; n++) {
			char *copy = malloc(n ? n : 1);
			struct qstmt *q;

			assert_non_null(copy);
			memcpy(copy, b.data, n);
			err.position = 0;
			q = qstmt_parse(copy, n, true, NULL, 0, &err);
			assert_true(q || err.position > 0);
			qstmt_free(&q);
			free(copy);
		}
	}
	buf_free(&b);
}

static void test_every_verb_without_memory(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		struct qstmt *q = NULL;

		sample_statement(&b, &qverbs[i], 0);
		for (unsigned long n = 1; !q; n++) {
			mem_fail_after(n);
			q = qstmt_parse((char *)b.data, b.len, true, NULL, 0, &err);
			if (!q)
				assert_string_equal(err.sqlstate, "53200");
			assert_true(n < 100);
		}
		mem_fail_after(0);
		qstmt_free(&q);
	}
	buf_free(&b);
}

/* --- what the rows do not say --- */

static const char *const good[] = {
	"queue create if not exists if",
	"queue create if if not exists",
	"queue drop if exists q",
	"queue drop if",
	"queue cancel any($1), array[1, '2'], any(array[$2]::text[]) on q",
	"queue done any('{1,2}') on $1 keep result '1' partial",
	"queue job key $1::uuid on q",
	"queue run 'select 1' on q format csv with (delimiter = ';', header = true) keep always",
	"queue done key 'k' on q then move to q2 returning job, id",
	"queue take q hold",
	"queue take q hold;",
	"queue take q hold limit 3",
	"queue take q hold '1h' as 'x'",
	"queue take q hold interval '1h' wait '1s'",
	"queue take q hold 600",
	"queue take q hold $1",
	"queue take q hold (null)::interval",
	"queue take hold hold",
	"queue take q as 'x' hold",
	"queue take q where (payload->>'a' = $1) limit 5",
	"queue take where, q wait '1s' where id > 5 and key is null",
	"queue pop q where (true)",
	"queue take q rank 5 wait '1s'",
	"queue take rank rank -1",
	"queue done 1 then take q rank $1",
	"queue pop q rank $1",
	"queue list",
	";; QUEUE LIST ;;",
	"/* a */ queue -- b\n list /* c */",
	"QUEUE TAKE a, \"B\", 'c', $1, E'd' LIMIT 5",
	"queue take limit",
	"queue take limit limit 5",
	"queue stats",
	"queue stats q",
	"queue stats q by hour",
	"queue stats q by $1 last 3",
	"queue stats by",
	"queue stats by by day",
	"queue stats by day",
	"queue workers",
	"queue health",
	"queue health q",
	"queue purge q older than '7 days' state done",
	"queue purge older older than $1",
	"queue alter job set (lease = 5)",
	"queue alter job reset (lease)",
	"queue alter JOB 17 set (priority = -5, at = 'now')",
	"queue alter job '3-17', $1 on q set (payload = $2)",
	"queue alter job key 'k' on q set (at = infinity)",
	"queue alter \"job\" set (lease = 5)",
	"queue pause take",
	"queue pause take push",
	"queue pause q take",
	"queue resume push push",
	"queue pause schedule take",
	"queue help 'alter job'",
	"queue extend 1 until '2030-01-01' progress '{}'",
	"queue extend 1 progress $1 lease 5",
	"queue history $1 on q",
	"queue history key 'k' on q",
	"queue workers q",
	"queue help",
	"queue help $1",
	"queue help 'nothing'",
	"queue push q 'a', $1, 'b' returning id priority -5",
	"queue push q 'a' DELAY '1h'",
	"queue push q 'a' AT now_is_a_name",
	"queue fail 1, '3-17-9f86d081884c7d65', $3 error 'x' final",
	"queue peek q state \"ready\" limit 3",
	"queue peek q state $1",
	"queue create q with (on_disconnect = keep, unlogged = true, lease = '1 min', x = $1)",
	"queue alter q reset (lease)",
	"queue drop q if exists",
};

static const struct {
	const char *sql, *sqlstate;
	int position;
} bad[] = {
	{"", "42601", 1},
	{"select 1", "42601", 1},
	{"queue", "42601", 6},
	{"queue;", "42601", 6},
	{"queue 'push'", "42601", 7},
	{"queue psuh q 'x'", "42601", 7},
	{"queue xyz", "42601", 7},
	{"queue list; queue list", "42601", 13},
	{"queue list; select 1", "42601", 13},
	{"queue done 1 then", "42601", 18},
	{"queue done 1 then done 2", "42601", 19},
	{"queue done 1 then push", "42601", 23},
	{"queue done 1 then push q", "42601", 25},
	{"queue done 1 then push q from stdin", "0A000", 26},
	{"queue done 1 then take limit", "42601", 29},
	{"queue done 1 then take q, wait '1s'", "42601", 32},
	{"queue done 1 then take q priority 3", "42601", 26},
	{"queue done 1 then push q 'x' limit 3", "42601", 30},
	{"queue done 1 then take q hold lease '1s'", "42601", 31},
	{"queue done 1 then take q then take q", "42601", 26},
	{"queue take q,", "42601", 14},
	{"queue take a b", "42601", 14},
	{"queue take a.b", "42601", 13},
	{"queue take \xc3\xa9 'x'", "42601", 14},
	{"queue take null", "22004", 12},
	{"queue take ''", "42602", 12},
	{"queue take \"\"", "42602", 12},
	{"queue take a, aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx", "42622", 15},
	{"queue take 'aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx'", "42622", 12},
	{"queue push q", "42601", 13},
	{"queue push q ,", "42601", 14},
	{"queue push q 'a' 'b'", "42601", 18},
	{"queue push q 'a' delay '1s' at 'now'", "42601", 29},
	{"queue push q 'a' priority 1 priority 2", "42601", 29},
	{"queue push q 'a' returning *", "42601", 28},
	{"queue push q 'a", "42601", 14},
	{"queue push q 'a' /* ", "42601", 18},
	{"queue push q $0", "42P02", 14},
	{"queue push q $65536", "42P02", 14},
	{"queue push q E'\\u12'", "22025", 14},
	{"queue fail 1 final retry in '1s'", "42601", 20},
	{"queue fail 1 retry '1s'", "42601", 20},
	{"queue create q if exists", "42601", 19},
	{"queue create q with ()", "42601", 22},
	{"queue create q with (a)", "42601", 23},
	{"queue create q with (a = )", "42601", 26},
	{"queue create q with (a = 1, A = 2)", "42601", 29},
	{"queue create q with (a = 1", "42601", 27},
	{"queue create q with (a => 1)", "42601", 25},
	{"queue alter q", "42601", 14},
	{"queue alter job", "42601", 16},
	{"queue alter job 17", "42601", 19},
	{"queue alter job x set (priority = 1)", "42601", 17},
	{"queue alter job 17 reset (priority)", "42601", 20},
	{"queue alter job key 'k' set (priority = 1)", "42601", 21},
	{"queue pause q take push", "42601", 20},
	{"queue extend 1 lease 5 until 'x'", "42601", 24},
	{"queue alter q set (a = 1) reset (b)", "42601", 27},
	{"queue alter q reset (a = 1)", "42601", 24},
	{"queue list q", "42601", 12},
	{"queue help psuh", "42601", 12},
	{"queue push q 'x' select 1", "42601", 18},
	{"queue take q hold lease '1s'", "42601", 19},
	{"queue take q lease '1s' hold", "42601", 25},
	{"queue take q hold 'a' 'b'", "42601", 23},
	{"queue take q hold now", "42601", 19},
	{"queue take q hold hold", "42601", 19},
	{"queue pop q hold", "42601", 13},
	{"queue done 17 result", "42601", 21},
	{"queue cancel key 'k'", "42601", 18},
	{"queue cancel key 'k', 'l' on q", "42601", 21},
	{"queue cancel any", "42601", 14},
	{"queue cancel any(1", "42601", 19},
	{"queue cancel array[1 2]", "42601", 22},
	{"queue move to q", "42601", 7},
	{"queue done 1 then move q", "42601", 24},
	{"queue done 1 partial then take q", "42601", 22},
	{"queue push q 1 returning id, id", "42601", 30},
	{"queue create if not exists q if not exists", "42601", 30},
	{"queue done 17 then take q result '{}'", "42601", 27},
};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		if (strstr(good[i], "now_is_a_name"))
			refuses(good[i], "42601", 21);
		else
			accepts(good[i]);
	}
}

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refuses(bad[i].sql, bad[i].sqlstate, bad[i].position);
}

static void test_hints(void **state)
{
	(void)state;
	refuses("queue psuh q 'x'", "42601", 7);
	assert_string_equal(err.message, "unknown QUEUE verb \"psuh\"");
	assert_non_null(strstr(err.hint, "Did you mean QUEUE PUSH?"));
	refuses("queue wxyz", "42601", 7);
	for (int i = 0; i < QVERB_COUNT; i++)
		assert_non_null(strstr(err.hint, qverbs[i].name));
	refuses("queue push q now()", "42601", 14);
	assert_non_null(strstr(err.hint, "Bind the value"));
	refuses("queue push q;", "42601", 13);
	assert_null(strstr(err.hint, "Bind the value")); /* there is none */
	assert_non_null(strstr(err.hint, "QUEUE PUSH q payload"));
	refuses("queue done 'x' then push q select 1", "0A000", 28);
	assert_non_null(strstr(err.hint, "two statements"));
	refuses("queue list \"x", "42601", 12);
	assert_string_equal(err.message, "unterminated quoted identifier at or near \"\"x\"");
}

static void test_arguments(void **state)
{
	struct qstmt *q = parse("queue take Mail, \"Mail\", 'Mail', $2 limit (5) as 'it''s'");
	static const char *const names[] = {"mail", "Mail", "Mail"};
	int n;

	(void)state;
	assert_non_null(q);
	assert_int_equal(q->verb->id, QVERB_TAKE);
	assert_int_equal(qstmt_count(q, QARG_QUEUE), 4);
	for (int i = 0; i < 3; i++) {
		const struct qvalue *v = qstmt_value(q, QARG_QUEUE, i);

		assert_int_equal(v->kind, i < 2 ? QV_NAME : QV_LITERAL);
		assert_int_equal(v->text_len, strlen(names[i]));
		assert_memory_equal(v->text, names[i], v->text_len);
	}
	assert_int_equal(qstmt_value(q, QARG_QUEUE, 3)->param, 2);
	assert_int_equal(q->n_params, 2);
	assert_int_equal(q->param_oids[0], OID_TEXT);
	assert_memory_equal(qstmt_one(q, QARG_LIMIT)->text, "5", 1);
	assert_memory_equal(qstmt_one(q, QARG_AS)->text, "it's", 4);
	assert_null(qstmt_one(q, QARG_WAIT));
	assert_false(qstmt_has(q, QARG_WAIT));
	assert_ptr_equal(qstmt_columns(q, &n), q->verb->columns);
	assert_int_equal(n, 15);
	qstmt_free(&q);

	q = parse("queue done $1, 17 then take limit 2 hold");
	assert_non_null(q);
	assert_int_equal(q->verb->id, QVERB_DONE);
	assert_true(qstmt_then(q, QVERB_TAKE));
	assert_int_equal(qstmt_count(q, QARG_JOB), 2);
	assert_int_equal(qstmt_count(q, QARG_QUEUE), 0);
	assert_memory_equal(qstmt_one(q, QARG_LIMIT)->text, "2", 1);
	assert_true(qstmt_has(q, QARG_HOLD));
	assert_ptr_equal(qstmt_columns(q, &n), qverbs[QVERB_TAKE].columns);
	qstmt_free(&q);
	q = parse("queue done 17 then take \"limit\", $1 wait $2");
	assert_int_equal(qstmt_count(q, QARG_QUEUE), 2);
	assert_int_equal(q->n_params, 2);
	qstmt_free(&q);
	q = parse("queue done 17 then push limit 'x', $1 returning id");
	assert_true(qstmt_then(q, QVERB_PUSH));
	assert_int_equal(qstmt_count(q, QARG_PAYLOAD), 2);
	assert_ptr_equal(qstmt_columns(q, &n), qverb_push_columns);
	qstmt_free(&q);

	q = parse("queue push q $1");
	assert_null(qstmt_columns(q, &n));
	assert_int_equal(n, 0);
	qstmt_free(&q);
	q = parse("queue push q $1 returning id");
	assert_string_equal(qstmt_columns(q, &n)->name, "id");
	assert_int_equal(n, 1);
	qstmt_free(&q);
}

static void test_options(void **state)
{
	struct qstmt *q = parse("queue create q with (Lease = '5 min', \"X\" = Keep, n = -3)");
	const struct qvalue *v;

	(void)state;
	assert_non_null(q);
	assert_int_equal(qstmt_count(q, QARG_WITH), 3);
	v = qstmt_value(q, QARG_WITH, 0);
	assert_int_equal(v->option_len, 5);
	assert_memory_equal(v->option, "lease", 5);
	v = qstmt_value(q, QARG_WITH, 1);
	assert_memory_equal(v->option, "X", 1);
	assert_int_equal(v->kind, QV_NAME);
	assert_memory_equal(v->text, "keep", 4);
	v = qstmt_value(q, QARG_WITH, 2);
	assert_memory_equal(v->text, "-3", 2);
	qstmt_free(&q);
}

static void test_declared_types(void **state)
{
	static const uint32_t oids[] = {OID_INT8, 0, OID_JSONB, OID_UUID};
	static const char sql[] = "queue push q $3 priority $1";
	struct qstmt *q = qstmt_parse(sql, strlen(sql), true, oids, 4, &err);

	(void)state;
	assert_non_null(q);
	assert_int_equal(q->n_params, 4);
	assert_int_equal(q->param_oids[0], OID_INT8);
	assert_int_equal(q->param_oids[1], OID_TEXT);
	assert_int_equal(q->param_oids[2], OID_JSONB);
	assert_int_equal(q->param_oids[3], OID_UUID);
	qstmt_free(&q);
}

static void test_limits(void **state)
{
	struct buf b = BUF_INIT;
	struct qstmt *q;

	(void)state;
	buf_puts(&b, "queue push q 'it''s'");
	for (int i = 1; i < QSTMT_LIST_MAX; i++)
		buf_puts(&b, ", 'x'");
	q = parse(buf_cstr(&b));
	assert_non_null(q);
	assert_int_equal(qstmt_count(q, QARG_PAYLOAD), QSTMT_LIST_MAX);
	qstmt_free(&q);
	buf_puts(&b, ", 'x'");
	refuses(buf_cstr(&b), "54000", 0);

	buf_reset(&b);
	buf_reserve(&b, QSTMT_TEXT_MAX + 1);
	memset(b.data, ' ', QSTMT_TEXT_MAX + 1);
	memcpy(b.data, "queue list", 10);
	q = qstmt_parse((char *)b.data, QSTMT_TEXT_MAX, true, NULL, 0, &err);
	assert_non_null(q);
	qstmt_free(&q);
	q = qstmt_parse((char *)b.data, QSTMT_TEXT_MAX + 1, true, NULL, 0, &err);
	assert_null(q);
	assert_string_equal(err.sqlstate, "54000");
	buf_free(&b);
}

static void test_without_memory(void **state)
{
	static const char sql[] =
		"queue push Q 'it''s', E'\\n', 1, 2, 3, 4, 5, - 6, $1 headers U&'\\0061'";
	struct qstmt *q = NULL;

	(void)state;
	for (unsigned long n = 1; !q; n++) {
		mem_fail_after(n);
		q = qstmt_parse(sql, strlen(sql), true, NULL, 0, &err);
		assert_true(q || !strcmp(err.sqlstate, "53200"));
	}
	mem_fail_after(0);
	qstmt_free(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_verb),
		cmocka_unit_test(test_every_missing_argument),
		cmocka_unit_test(test_every_unknown_argument),
		cmocka_unit_test(test_every_clause),
		cmocka_unit_test(test_any_two_clauses_in_any_order),
		cmocka_unit_test(test_every_verb_cut_anywhere),
		cmocka_unit_test(test_every_verb_without_memory),
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_declared_types),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
