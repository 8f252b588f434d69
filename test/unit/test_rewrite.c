/* rewrite.c: the SQL text of statements, the types of parameters, the values of arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "qlang/rewrite.h"
#include "base/mem.h"
#include "queue_samples.h"
#include "wire/sqllex.h"

#define T "::pg_catalog.text"

/* no KEY, no ON DUPLICATE, no GROUP, no RETURNING ID */
#define KEYLESS ", NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, false) AS p"

static struct pg_error err;

/* The lease of job 17 is held on this connection, and no other. */
static const char *token_of(void *arg, int i, const char *text, size_t len)
{
	(void)i;
	++*(int *)arg;
	return len == 2 && !memcmp(text, "17", 2) ? "3-17-9f86d081884c7d65" : NULL;
}

static void check_sql(const char *stmt, const char *sql)
{
	struct qstmt *q = qstmt_parse(stmt, strlen(stmt), true, NULL, 0, &err);
	struct buf b = BUF_INIT;
	int calls = 0;

	if (!q)
		fail_msg("%s: %s", stmt, err.message);
	assert_true(qstmt_sql(q, token_of, &calls, &b, &err));
	assert_string_equal(buf_cstr(&b), sql);
	buf_free(&b);
	qstmt_free(&q);
}

static const struct {
	const char *stmt, *sql;
} shapes[] = {
	{"QUEUE CREATE q",
		"SELECT queue.create(('q')" T ", false, ARRAY[]" T "[], ARRAY[]" T "[])"},
	{"QUEUE CREATE \"a'b\\\" WITH (Lease = '5 min', \"x'\" = Keep, n = $1) IF NOT EXISTS",
		"SELECT queue.create((E'a''b\\\\')" T ", true, ARRAY['lease', 'x''', 'n']" T
		"[], ARRAY[('5 min')" T ", ('keep')" T ", ($1)" T "]" T "[])"},
	{"QUEUE RUN 'x' ON q FORMAT csv WITH (header = true)",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[queue._sql_job(('q')" T
		", ('x')" T ", NULL" T ", false, format => ('csv')" T
		", format_with => pg_catalog.jsonb_object(ARRAY['header']" T "[], ARRAY[('true')" T
		"]" T "[]))], NULL::pg_catalog.int4, NULL::pg_catalog.interval"
		", NULL::pg_catalog.timestamptz, NULL" T ", false, NULL::pg_catalog.interval"
		", NULL::pg_catalog.int4, NULL" T ", NULL" T ", NULL" T ", false) AS p"},
	{"QUEUE DROP 'Q' IF EXISTS", "SELECT queue.drop(('Q')" T ", true, false)"},
	{"QUEUE ALTER q RESET (lease, retry)",
		"SELECT queue.alter(('q')" T ", ARRAY[]" T "[], ARRAY[]" T
		"[], ARRAY['lease', 'retry']" T "[])"},
	{"QUEUE ALTER $1 SET (lease = 5)", "SELECT queue.alter(($1)" T ", ARRAY['lease']" T
					   "[], ARRAY[(5)" T "]" T "[], ARRAY[]" T "[])"},
	{"QUEUE LIST", "SELECT * FROM queue.list()"},
	{"QUEUE ALTER s FOR bi SET (parallel = 4)",
		"SELECT queue.alter_for(('s')" T ", ('bi')" T ", ARRAY['parallel']" T
		"[], ARRAY[(4)" T "]" T "[], ARRAY[]" T "[])"},
	{"QUEUE ALTER job SET (lease = 5)", "SELECT queue.alter(('job')" T ", ARRAY['lease']" T
					    "[], ARRAY[(5)" T "]" T "[], ARRAY[]" T "[])"},
	{"QUEUE ALTER JOB 5 ON q SET (at = now)",
		"SELECT queue FROM queue._alter_job(ARRAY[(5)" T "]" T "[], ARRAY['at']" T
		"[], ARRAY[('now')" T "]" T "[], false, ('q')" T ") AS queue"},
	{"QUEUE PAUSE q PUSH", "SELECT queue.pause(('q')" T ", NULL" T ", false, true)"},
	{"QUEUE RESUME q TAKE", "SELECT queue.resume(('q')" T ", false, NULL" T ", true, false)"},
	{"QUEUE WORKERS", "SELECT * FROM queue._workers(NULL" T ", NULL" T ")"},
	{"QUEUE HEALTH", "SELECT * FROM queue.health(NULL" T ")"},
	{"QUEUE HISTORY 5 ON q", "SELECT * FROM queue.history((5)" T ", ('q')" T ")"},
	{"QUEUE STATS", "SELECT * FROM queue.stats(NULL" T ")"},
	{"QUEUE STATS Q", "SELECT * FROM queue.stats(('q')" T ")"},
	{"QUEUE STATS s FOR Bi BY day", "SELECT * FROM queue._stats_by_for(('s')" T ", ('bi')" T
					", ('day')" T ", NULL::pg_catalog.int4, NULL" T ")"},
	{"QUEUE STATS q BY minute LAST $1", "SELECT * FROM queue._stats_by(('q')" T ", ('minute')" T
					    ", ($1)::pg_catalog.int4, NULL" T ")"},
	{"QUEUE PUSH q '{\"a\":1}'",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[('{\"a\":1}')" T "]" T
		"[], NULL::pg_catalog.int4, NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, "
		"NULL" T ", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4" KEYLESS},
	{"QUEUE PUSH q E'it\\'s', $2::jsonb DELAY ('1h'::interval) PRIORITY -5 HEADERS $1 RETURNING ID",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[(E'it\\'s')" T ", ($2::jsonb)" T
		"]" T "[], (-5)::pg_catalog.int4, (('1h'::interval))::pg_catalog.interval, "
		"NULL::pg_catalog.timestamptz, ($1)" T
		", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4"
		", NULL" T ", NULL" T ", NULL" T ", true) AS p"},
	{"QUEUE PUSH q NULL AT 'tomorrow' -- x",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[(NULL)" T "]" T
		"[], NULL::pg_catalog.int4, NULL::pg_catalog.interval, "
		"('tomorrow')::pg_catalog.timestamptz, NULL" T
		", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4" KEYLESS},
	{"QUEUE PUSH q 'a' -- x\n 'b' DELAY 30",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[('a' -- x\n 'b')" T "]" T
		"[], NULL::pg_catalog.int4, ((30)" T ")::pg_catalog.interval, "
		"NULL::pg_catalog.timestamptz, NULL" T
		", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4" KEYLESS},
	{"QUEUE GRANT Push, 'take' ON q TO \"Bob\", $1",
		"SELECT queue.grant(('q')" T ", ARRAY[('push')" T ", ('take')" T "]" T
		"[], ARRAY[('Bob')" T ", ($1)" T "]" T "[])"},
	{"QUEUE CANCEL 17, $1, '3-18'",
		"SELECT queue, job FROM queue._cancel(ARRAY[('3-17-9f86d081884c7d65')" T ", ($1)" T
		", ('3-18')" T "]" T "[], false) AS c"},
	{"QUEUE CANCEL ANY($1::int8[]), ARRAY[18] ON q",
		"SELECT queue, job FROM queue._cancel(ARRAY[($1)" T ", (18)" T "]" T
		"[], false, ('q')" T ") AS c"},
	{"QUEUE RERUN KEY $1 ON q", "SELECT queue FROM queue._rerun(NULL" T "[], false, ('q')" T
				    ", ($1)" T ") AS queue"},
	{"QUEUE JOB '3-18'", "SELECT * FROM queue.job(('3-18')" T ")"},
	{"QUEUE JOB KEY 'k' ON $2", "SELECT * FROM queue.job(NULL" T ", ($2)" T ", ('k')" T ")"},
	{"QUEUE EXTEND '{1,2}' ON q",
		"SELECT queue FROM queue._extend(queue._of(ARRAY[('{1,2}')" T "]" T "[], ('q')" T
		"), NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, NULL" T ") AS queue"},
	{"QUEUE DONE $1 KEEP", "SELECT queue FROM queue._done(ARRAY[($1)" T "]" T
			       "[], false, NULL" T ", true) AS queue"},
	{"QUEUE DONE $1 PARTIAL", "SELECT job, ok, sqlstate FROM queue._done_partial(ARRAY[($1)" T
				  "]" T "[], NULL" T ") AS d"},
	{"QUEUE PUSH q '1' KEY 'k' FOR 30 ON DUPLICATE REPLACE IF NEWER $1",
		"SELECT p AS id FROM queue._push(('q')" T ", ARRAY[('1')" T "]" T
		"[], NULL::pg_catalog.int4, NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, NULL" T
		", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4, ('k')" T
		", ('replace')" T ", NULL" T ", false, keep_for => ((30)" T
		")::pg_catalog.interval,"
		" newer => ($1)::pg_catalog.timestamptz) AS p"},
	{"QUEUE DONE $1 THEN MOVE TO q KEY 'k' RETURNING ID",
		"SELECT p.id FROM queue._move(ARRAY[($1)" T "]" T "[], NULL" T ", false, ('q')" T
		", NULL::pg_catalog.int4, NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, NULL" T
		", NULL::pg_catalog.interval, NULL::pg_catalog.int4, ('k')" T ", NULL" T ", NULL" T
		", true) AS p"},
	{"QUEUE PUSH q 'x' RETURNING JOB, ID",
		"SELECT p.job, p.id FROM queue._push_jobs(('q')" T ", ARRAY[('x')" T "]" T
		"[], NULL::pg_catalog.int4, NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, "
		"NULL" T ", false, NULL::pg_catalog.interval, NULL::pg_catalog.int4"
		", NULL" T ", NULL" T ", NULL" T ", true) AS p"},
	{"QUEUE DONE 17", "SELECT queue FROM queue._done(ARRAY[('3-17-9f86d081884c7d65')" T "]" T
			  "[], false, NULL" T ") AS queue"},
	{"QUEUE DONE 17 RESULT $1::jsonb",
		"SELECT queue FROM queue._done(ARRAY[('3-17-9f86d081884c7d65')" T "]" T
		"[], false, ($1::jsonb)" T ") AS queue"},
	{"QUEUE DONE ('17'::int8), 18, $1::int8, 'abc', NULL",
		"SELECT queue FROM queue._done(ARRAY[('3-17-9f86d081884c7d65')" T ", (18)" T
		", ($1)" T ", ('abc')" T ", (NULL)" T "]" T "[], false, NULL" T ") AS queue"},
	{"QUEUE DONE 17 THEN TAKE q GROUPED LIMIT 5",
		"SELECT queue FROM queue._done(ARRAY[('3-17-9f86d081884c7d65')" T "]" T
		"[], false, NULL" T ") AS queue"},
	{"QUEUE DONE 17 THEN TAKE q WHERE (id = 1) LIMIT 5",
		"SELECT queue FROM queue._done(ARRAY[('3-17-9f86d081884c7d65')" T "]" T
		"[], false, NULL" T ") AS queue"},
	{"QUEUE DONE '2-d1-9f86d081884c7d65' THEN TAKE s FOR bi WHERE (id = 1)",
		"SELECT queue FROM queue._done(ARRAY[('2-d1-9f86d081884c7d65')" T "]" T
		"[], false, NULL" T ") AS queue"},
	{"QUEUE DONE $2 THEN PUSH q $1 PRIORITY 3",
		"SELECT p AS id FROM (SELECT pg_catalog.count(*) AS jobs FROM (SELECT queue FROM "
		"queue._done(ARRAY[($2)" T "]" T "[], false, NULL" T ") AS queue) AS job) AS done, "
		"LATERAL queue._push(('q')" T ", ARRAY[($1)" T "]" T
		"[], (3)::pg_catalog.int4, NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, "
		"queue._parent(ARRAY[($2)" T "]" T "[], NULL" T
		"), jobs IS NULL, NULL::pg_catalog.interval, NULL::pg_catalog.int4" KEYLESS},
	{"QUEUE FAIL 17 ERROR $$no$$ RETRY IN '5s'",
		"SELECT queue, dead FROM queue._fail(ARRAY[('3-17-9f86d081884c7d65')" T "]" T
		"[], ($$no$$)" T ", ('5s')::pg_catalog.interval, false, false) AS f"},
	{"QUEUE FAIL $1 FINAL", "SELECT queue, dead FROM queue._fail(ARRAY[($1)" T "]" T
				"[], NULL" T ", NULL::pg_catalog.interval, true, false) AS f"},
	{"QUEUE FAIL $1 EVENT 5, $2, ANY($3) FINAL",
		"SELECT queue, dead FROM queue._fail(ARRAY[($1)" T "]" T "[], NULL" T
		", NULL::pg_catalog.interval, true, false, ARRAY[(5)" T ", ($2)" T ", ($3)" T "]" T
		"[]) AS f"},
	{"QUEUE RELEASE 18 DELAY $2", "SELECT queue FROM queue._release(ARRAY[(18)" T "]" T
				      "[], ($2)::pg_catalog.interval, false) AS queue"},
	{"QUEUE EXTEND 18",
		"SELECT queue FROM queue._extend(ARRAY[(18)" T "]" T
		"[], NULL::pg_catalog.interval, NULL::pg_catalog.timestamptz, NULL" T ") AS queue"},
	{"QUEUE PEEK q STATE dead LIMIT $1",
		"SELECT * FROM queue.peek(('q')" T ", ($1)::pg_catalog.int4, ('dead')" T ")"},
	{"QUEUE PURGE q",
		"SELECT queue.purge(('q')" T ", NULL" T ", false, NULL::pg_catalog.interval)"},
	{"QUEUE CANCEL ALL ON q", "SELECT queue.cancel_all(('q')" T ", false)"},
	{"QUEUE CANCEL ALL ON q WHERE (id < 3)",
		"SELECT queue.cancel_all(('q')" T ", false, ARRAY(SELECT id FROM queue.peek(('q')" T
		", 2147483647, NULL) AS peek WHERE ((id < 3))))"},
	{"QUEUE PEEK s FOR bi STATE dead", "SELECT * FROM queue.peek_for(('s')" T ", ('bi')" T
					   ", NULL::pg_catalog.int4, ('dead')" T ")"},
	{"QUEUE TRACK t IN q FOR insert, update",
		"SELECT queue.track((('t')" T ")::pg_catalog.regclass, ('q')" T
		", ARRAY[('insert')" T ", ('update')" T "]" T "[], ARRAY[]" T "[], ARRAY[]" T
		"[], ARRAY[]" T "[], NULL" T ", NULL" T ")"},
	{"QUEUE PURGE s FOR bi OLDER THAN '1 h'",
		"SELECT queue.purge_for(('s')" T ", ('bi')" T ", NULL" T
		", false, coalesce(('1 h')::pg_catalog.interval, '-1 s'))"},
	{"QUEUE PURGE q STATE $1", "SELECT queue.purge(('q')" T ", coalesce(($1)" T
				   ", ''), false, NULL::pg_catalog.interval)"},
	{"QUEUE REDRIVE s FOR $1 LIMIT 3",
		"SELECT queue.redrive_for(('s')" T ", ($1)" T ", (3)::pg_catalog.int4, false)"},
	{"QUEUE REDRIVE q", "SELECT queue.redrive(('q')" T ", NULL::pg_catalog.int4, false)"},
	{"QUEUE REDRIVE q TO $1 STATE later",
		"SELECT queue.redrive(('q')" T
		", NULL::pg_catalog.int4, false, which => ('later')" T ", target => ($1)" T ")"},
};

static void test_shapes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
		check_sql(shapes[i].stmt, shapes[i].sql);
}

/* Whatever the arguments: the text is one statement, and no placeholder is left. */
static void test_every_verb(void **state)
{
	struct buf stmt = BUF_INIT, sql = BUF_INIT;

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		struct qstmt *q;
		struct sql_lexer lx;
		struct sql_token t;
		int parens = 0;

		if (!qverbs[i].sql)
			continue;
		sample_statement(&stmt, &qverbs[i], 0);
		q = qstmt_parse((char *)stmt.data, stmt.len, true, NULL, 0, &err);
		assert_non_null(q);
		buf_reset(&sql);
		assert_true(qstmt_sql(q, NULL, NULL, &sql, &err));
		sql_lex_init(&lx, (char *)sql.data, sql.len, true);
		for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t)) {
			assert_true(t.kind != SQL_SEMICOLON && t.kind != SQL_BAD);
			assert_true(t.kind != SQL_OTHER || !strchr("{}", *t.text));
			parens += t.kind == SQL_OTHER ? (*t.text == '(') - (*t.text == ')') : 0;
			assert_true(parens >= 0);
		}
		assert_int_equal(parens, 0);
		qstmt_free(&q);
	}
	buf_free(&sql);
	buf_free(&stmt);
}

static void test_without_memory(void **state)
{
	static const char stmt[] = "queue push q '0123456789012345678901234567890123456789012345'";
	struct qstmt *q = qstmt_parse(stmt, strlen(stmt), true, NULL, 0, &err);
	bool ok = false;

	(void)state;
	assert_non_null(q);
	for (unsigned long n = 1; !ok; n++) {
		struct buf sql = BUF_INIT;

		mem_fail_after(n);
		ok = qstmt_sql(q, NULL, NULL, &sql, &err);
		mem_fail_after(0);
		if (!ok)
			assert_string_equal(err.sqlstate, "53200");
		buf_free(&sql);
	}
	qstmt_free(&q);
}

/* --- parameters --- */

static void test_param_types(void **state)
{
	static const char stmt[] = "queue fail $2, $4 error $1 retry in $5";
	static const uint32_t declared[] = {OID_VARCHAR, OID_INT8, 0, OID_UUID, OID_INT4};
	uint32_t oids[5];
	struct qstmt *q = qstmt_parse(stmt, strlen(stmt), true, declared, 5, &err);
	struct buf sql = BUF_INIT;

	(void)state;
	assert_non_null(q);
	qstmt_server_oids(q, oids);
	assert_int_equal(oids[0], OID_VARCHAR);
	assert_int_equal(oids[1], OID_TEXT);
	assert_int_equal(oids[2], OID_TEXT);
	assert_int_equal(oids[3], OID_TEXT);
	assert_int_equal(oids[4], OID_INT4);
	assert_true(qstmt_sql(q, NULL, NULL, &sql, &err));
	assert_non_null(strstr(buf_cstr(&sql), "(($5)" T ")::pg_catalog.interval"));
	buf_free(&sql);
	qstmt_free(&q);
}

/* --- values --- */

static const struct {
	uint32_t oid;
	int16_t format;
	int32_t len;
	const char *data, *text; /* text NULL: BAD */
} params[] = {
	{OID_INT8, 0, 2, "17", "17"},
	{OID_UUID, 0, 1, "x", "x"},
	{OID_TEXT, 0, 0, "", ""},
	{OID_TEXT, 1, 2, "ab", "ab"},
	{OID_VARCHAR, 1, 2, "ab", "ab"},
	{OID_UNKNOWN, 1, 2, "ab", "ab"},
	{OID_JSON, 1, 2, "{}", "{}"},
	{OID_JSONB, 1, 3, "\1{}", "{}"},
	{OID_JSONB, 1, 3, "\2{}", NULL},
	{OID_JSONB, 1, 0, "", NULL},
	{OID_INT2, 1, 2, "\xff\xfe", "-2"},
	{OID_INT4, 1, 4, "\0\0\1\1", "257"},
	{OID_INT4, 1, 4, "\x80\0\0\0", "-2147483648"},
	{OID_INT8, 1, 8, "\0\0\0\1\0\0\0\0", "4294967296"},
	{OID_INT8, 1, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", "-1"},
	{OID_INT8, 1, 4, "\0\0\0\1", NULL},
	{OID_INT2, 1, 0, "", NULL},
	{OID_INTERVAL, 1, 16, "\0\0\0\0\1\xc9\xc3\x80\0\0\0\2\0\0\0\1",
		"1 mons 2 days 00:00:30.000000"},
	{OID_INTERVAL, 1, 16, "\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
		"0 mons 0 days -00:00:00.000001"},
	{OID_INTERVAL, 1, 16, "\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
		"0 mons 0 days -2562047788:00:54.775808"},
	{OID_INTERVAL, 1, 15, "123456789012345", NULL},
	{OID_UUID, 1, 16, "1234567890123456", "31323334-3536-3738-3930-313233343536"},
	{OID_UUID, 1, 15, "123456789012345", NULL},
	{OID_TEXT_ARRAY, 1, 12, "\0\0\0\0\0\0\0\0\0\0\0\x19", "{}"},
	{OID_TEXT_ARRAY, 1, 34,
		"\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1\0\0\0\2\"\\\0\0\0\4"
		"abcd",
		"{\"\\\"\\\\\",\"abcd\"}"},
	{OID_INT8_ARRAY, 1, 32,
		"\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\1\0\0\0\1\0\0\0\x8\0\0\0\0\0\0\0\7", "{\"7\"}"},
	{OID_INT4_ARRAY, 1, 24, "\0\0\0\1\0\0\0\1\0\0\0\x17\0\0\0\1\0\0\0\1\xff\xff\xff\xff",
		"{NULL}"},
	{OID_TEXT_ARRAY, 1, 24, "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\1\0\0\0\1\0\0\0\5", NULL},
	{OID_TEXT_ARRAY, 1, 20, "\0\0\0\1\0\0\0\0\0\0\3\xf1\0\0\0\0\0\0\0\1", NULL},
	{OID_TEXT_ARRAY, 1, 20, "\0\0\0\2\0\0\0\0\0\0\0\x19\0\0\0\1\0\0\0\1", NULL},
	{OID_TEXT_ARRAY, 1, 11, "\0\0\0\0\0\0\0\0\0\0\0", NULL},
	{OID_TEXT, 2, 1, "x", NULL},
};

static void test_param_values(void **state)
{
	struct qvalue v = {.kind = QV_PARAM, .param = 1};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(params); i++) {
		struct qparam p = {(const uint8_t *)params[i].data, params[i].len, params[i].format,
			params[i].oid};
		struct qbind bind = {1, &p};
		struct buf b = BUF_INIT;
		enum qeval got = qvalue_eval(&v, &bind, &b);

		assert_int_equal(got, params[i].text ? QEVAL_OK : QEVAL_BAD);
		if (params[i].text)
			assert_string_equal(buf_cstr(&b), params[i].text);
		buf_free(&b);
	}
}

static void test_interval_is_read_again(void **state)
{
	struct qvalue v = {.kind = QV_PARAM, .param = 1};
	struct qparam p = {
		(const uint8_t *)"\0\0\0\0\1\xc9\xc3\x80\0\0\0\1\0\0\0\0", 16, 1, OID_INTERVAL};
	struct qbind bind = {1, &p};
	struct buf b = BUF_INIT;
	int64_t usec;

	(void)state;
	assert_int_equal(qvalue_eval(&v, &bind, &b), QEVAL_OK);
	assert_true(sql_interval_usec((char *)b.data, b.len, &usec));
	assert_int_equal(usec, INT64_C(86430000000));
	buf_free(&b);
}

static void test_payloads(void **state)
{
	static const char *const peek[] = {"queue.peek(", "queue.peek_text(", "queue.peek_bytea("};
	static const char *const value[] = {"push.payload::pg_catalog.text::pg_catalog.jsonb AS",
		"push.payload::pg_catalog.text AS", "push.payload::pg_catalog.bytea AS"};
	static const char rows[] = "queue peek q", bulk[] = "queue push q select 1";
	struct qstmt *p = qstmt_parse(rows, strlen(rows), true, NULL, 0, &err);
	struct qstmt *b = qstmt_parse(bulk, strlen(bulk), true, NULL, 0, &err);
	struct buf sql = BUF_INIT;
	struct qspan spans[QBULK_SPANS];
	int n;

	(void)state;
	assert_non_null(p);
	assert_non_null(b);
	for (int i = 0; i < QPAYLOAD_COUNT; i++) {
		p->payload = b->payload = (enum qpayload)i;
		buf_reset(&sql);
		assert_true(qstmt_sql(p, NULL, NULL, &sql, &err));
		assert_non_null(strstr(buf_cstr(&sql), peek[i]));
		buf_reset(&sql);
		assert_true(qbulk_sql(b, &sql, spans));
		assert_non_null(strstr(buf_cstr(&sql), value[i]));
		assert_string_equal(qstmt_columns(p, &n)[4].name, "payload");
		assert_int_equal(qstmt_columns(p, &n)[4].oid, qpayloads[i].oid);
	}
	buf_free(&sql);
	qstmt_free(&p);
	qstmt_free(&b);
}

/* Longer than what is converted at a time. */
static void test_bytes(void **state)
{
	uint8_t data[1000];
	struct qparam bytes = {data, sizeof(data), 1, OID_BYTEA};
	struct qbind bind = {1, &bytes};
	struct qvalue v = {.kind = QV_PARAM, .param = 1};
	struct buf b = BUF_INIT;
	char hex[3];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	assert_int_equal(qvalue_eval(&v, &bind, &b), QEVAL_OK);
	assert_int_equal(b.len, 2 + 2 * sizeof(data));
	assert_memory_equal(b.data, "\\x", 2);
	for (size_t i = 0; i < sizeof(data); i++) {
		util_hex(hex, data + i, 1);
		assert_memory_equal(b.data + 2 + 2 * i, hex, 2);
	}
	buf_free(&b);
}

static void test_other_values(void **state)
{
	struct qparam null = {NULL, -1, 0, OID_TEXT};
	struct qbind bind = {1, &null};
	struct buf b = BUF_INIT;
	struct qvalue v = {.kind = QV_NULL};

	(void)state;
	assert_int_equal(qvalue_eval(&v, NULL, &b), QEVAL_NULL);
	v.kind = QV_LITERAL;
	v.text = "a'b";
	v.text_len = 3;
	assert_int_equal(qvalue_eval(&v, NULL, &b), QEVAL_OK);
	assert_string_equal(buf_cstr(&b), "a'b");
	v.kind = QV_PARAM;
	v.param = 1;
	assert_int_equal(qvalue_eval(&v, NULL, &b), QEVAL_BAD);
	assert_int_equal(qvalue_eval(&v, &bind, &b), QEVAL_NULL);
	v.param = 2;
	assert_int_equal(qvalue_eval(&v, &bind, &b), QEVAL_BAD);
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_every_verb),
		cmocka_unit_test(test_without_memory),
		cmocka_unit_test(test_param_types),
		cmocka_unit_test(test_param_values),
		cmocka_unit_test(test_interval_is_read_again),
		cmocka_unit_test(test_payloads),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_other_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
