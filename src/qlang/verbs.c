/*
 * The verb table as data, and how names are looked up in it. Entry points: qverbs, qverb_find,
 * qverb_nearest, qverb_help.
 */
#include "qlang/verb.h"

#include <string.h>

/* --- result columns, as DESIGN.md and the functions in sql/ have them --- */

/* clang-format off */
#define OF_EACH_PAYLOAD(columns) {columns(OID_JSONB), columns(OID_TEXT), columns(OID_BYTEA)}

#define JOBS_COLUMNS(payload_type) \
	{ \
		{"id", OID_INT8}, \
		{"token", OID_TEXT}, \
		{"queue", OID_TEXT}, \
		{"attempt", OID_INT4}, \
		{"payload", payload_type}, \
		{"headers", OID_JSONB}, \
		{"key", OID_TEXT}, \
		{"group", OID_TEXT}, \
		{"priority", OID_INT4}, \
		{"pushed_at", OID_TIMESTAMPTZ}, \
		{"lease_until", OID_TIMESTAMPTZ}, \
	}

static const struct wire_field columns_jobs[QPAYLOAD_COUNT][11] = OF_EACH_PAYLOAD(JOBS_COLUMNS);
/* clang-format on */

static const struct wire_field columns_list[] = {
	{"queue", OID_TEXT},
	{"lease", OID_TEXT},
	{"max_attempts", OID_INT4},
	{"retry", OID_TEXT},
	{"on_disconnect", OID_TEXT},
	{"durability", OID_TEXT},
	{"owner", OID_TEXT},
	{"created_at", OID_TIMESTAMPTZ},
	{"paused", OID_BOOL},
	{"max_length", OID_INT4},
	{"unlogged", OID_BOOL},
	{"payload", OID_TEXT},
	{"retain_done", OID_TEXT},
	{"retain_dead", OID_TEXT},
	{"number", OID_INT4},
};

static const struct wire_field columns_stats[] = {
	{"queue", OID_TEXT},
	{"ready", OID_INT8},
	{"later", OID_INT8},
	{"leased", OID_INT8},
	{"dead", OID_INT8},
	{"oldest_ready", OID_TIMESTAMPTZ},
	{"next_due", OID_TIMESTAMPTZ},
	{"blocked", OID_INT8},
	{"done", OID_INT8},
	{"number", OID_INT4},
};

/* clang-format off */
#define PEEK_COLUMNS(payload_type) \
	{ \
		{"id", OID_INT8}, \
		{"state", OID_TEXT}, \
		{"attempt", OID_INT4}, \
		{"failures", OID_INT4}, \
		{"payload", payload_type}, \
		{"headers", OID_JSONB}, \
		{"priority", OID_INT4}, \
		{"run_at", OID_TIMESTAMPTZ}, \
		{"lease_until", OID_TIMESTAMPTZ}, \
		{"error", OID_TEXT}, \
		{"worker", OID_TEXT}, \
		{"pushed_at", OID_TIMESTAMPTZ}, \
		{"key", OID_TEXT}, \
		{"group", OID_TEXT}, \
		{"ended_at", OID_TIMESTAMPTZ}, \
		{"result", OID_JSONB}, \
		{"job", OID_TEXT}, \
	}

static const struct wire_field columns_peek[QPAYLOAD_COUNT][17] = OF_EACH_PAYLOAD(PEEK_COLUMNS);

#define JOB_COLUMNS(payload_type) \
	{ \
		{"job", OID_TEXT}, \
		{"id", OID_INT8}, \
		{"queue", OID_TEXT}, \
		{"state", OID_TEXT}, \
		{"cancelled", OID_BOOL}, \
		{"attempt", OID_INT4}, \
		{"max_attempts", OID_INT4}, \
		{"failures", OID_INT4}, \
		{"priority", OID_INT4}, \
		{"payload", payload_type}, \
		{"headers", OID_JSONB}, \
		{"key", OID_TEXT}, \
		{"group", OID_TEXT}, \
		{"pushed_at", OID_TIMESTAMPTZ}, \
		{"run_at", OID_TIMESTAMPTZ}, \
		{"lease_until", OID_TIMESTAMPTZ}, \
		{"expires_at", OID_TIMESTAMPTZ}, \
		{"failed_at", OID_TIMESTAMPTZ}, \
		{"ended_at", OID_TIMESTAMPTZ}, \
		{"worker", OID_TEXT}, \
		{"error", OID_TEXT}, \
		{"result", OID_JSONB}, \
	}

static const struct wire_field columns_job[QPAYLOAD_COUNT][22] = OF_EACH_PAYLOAD(JOB_COLUMNS);
/* clang-format on */

static const struct wire_field columns_await[] = {
	{"job", OID_TEXT},
	{"id", OID_INT8},
	{"queue", OID_TEXT},
	{"state", OID_TEXT},
	{"result", OID_JSONB},
	{"error", OID_TEXT},
	{"attempt", OID_INT4},
	{"ended_at", OID_TIMESTAMPTZ},
};

static const struct wire_field columns_errors[] = {
	{"error", OID_TEXT},
	{"jobs", OID_INT8},
	{"last", OID_TIMESTAMPTZ},
	{"job", OID_TEXT},
};

static const struct wire_field columns_help[] = {
	{"verb", OID_TEXT},
	{"usage", OID_TEXT},
	{"description", OID_TEXT},
};

const struct qpayload_type qpayloads[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = {"jsonb", "", OID_JSONB},
	[QPAYLOAD_TEXT] = {"text", "_text", OID_TEXT},
	[QPAYLOAD_BYTEA] = {"bytea", "_bytea", OID_BYTEA},
};

bool qpayload_read(const char *name, size_t len, enum qpayload *ret)
{
	for (int i = 0; i < QPAYLOAD_COUNT; i++)
		if (strlen(qpayloads[i].name) == len && memcmp(qpayloads[i].name, name, len) == 0) {
			*ret = (enum qpayload)i;
			return true;
		}
	return false;
}

const struct wire_field *qverb_columns(const struct qverb *verb, enum qpayload payload)
{
	return verb->columns + (size_t)payload * (size_t)verb->n_columns;
}

const struct wire_field qverb_push_columns[QRETURN_COUNT][2] = {
	[QRETURN_ID] = {{"id", OID_INT8}},
	[QRETURN_JOB] = {{"job", OID_TEXT}},
	[QRETURN_ID_JOB] = {{"id", OID_INT8}, {"job", OID_TEXT}},
	[QRETURN_JOB_ID] = {{"job", OID_TEXT}, {"id", OID_INT8}},
};

const struct wire_field qverb_partial_columns[3] = {
	{"job", OID_TEXT}, {"ok", OID_BOOL}, {"sqlstate", OID_TEXT}};

/* --- the table --- */

/* clang-format off */
#define COLUMNS(a)    a, ARRAY_LEN(a)
#define COLUMNS_NONE  NULL, 0
#define COLUMNS_OF(a) a[0], ARRAY_LEN(a[0])
#define COLUMNS_JOBS  COLUMNS_OF(columns_jobs)
#define COLUMNS_LIST  COLUMNS(columns_list)
#define COLUMNS_STATS COLUMNS(columns_stats)
#define COLUMNS_PEEK  COLUMNS_OF(columns_peek)
#define COLUMNS_JOB   COLUMNS_OF(columns_job)
#define COLUMNS_AWAIT COLUMNS(columns_await)
#define COLUMNS_ERRORS COLUMNS(columns_errors)
#define COLUMNS_HELP  COLUMNS(columns_help)

/* The last entry of each list is empty: a verb may have no arguments, an array may not. */
#define ARG(id, name, keyword, kind, need, alt) \
	{QARG_##id, name, keyword, QKIND_##kind, QNEED_##need, alt},
#define VERB(name, flags, tag, text, columns, args, sql, usage, help) \
	static const struct qverb_arg args_##name[] = {args {0}};
QUEUE_VERBS(VERB, ARG)
#undef VERB
#define VERB(name, flags, tag, text, columns, args, sql, usage, help) \
	{QVERB_##name, #name, flags, QTAG_##tag, text, COLUMNS_##columns, \
		args_##name, ARRAY_LEN(args_##name) - 1, sql, usage, help},
const struct qverb qverbs[QVERB_COUNT] = {QUEUE_VERBS(VERB, ARG)};
/* clang-format on */

/* --- names --- */

static bool same_name(const char *a, const char *name, size_t len)
{
	return strlen(a) == len && !util_memcasecmp(a, name, len);
}

const struct qverb *qverb_find(const char *name, size_t len)
{
	for (int i = 0; i < QVERB_COUNT; i++) {
		if (same_name(qverbs[i].name, name, len))
			return &qverbs[i];
	}
	return NULL;
}

#define NAME_MAX_LEN 12

/* Changes that make b out of a: a letter more, less, other, or two letters exchanged. */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
	int d[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];

	for (size_t i = 0; i <= na; i++) {
		for (size_t j = 0; j <= nb; j++) {
			int best, cost;

			if (!i || !j) {
				d[i][j] = (int)(i + j);
				continue;
			}
			cost = util_lower(a[i - 1]) != util_lower(b[j - 1]);
			best = d[i - 1][j - 1] + cost;
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && util_lower(a[i - 1]) == util_lower(b[j - 2]) &&
				util_lower(a[i - 2]) == util_lower(b[j - 1]) &&
				d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[na][nb];
}

const struct qverb *qverb_nearest(const char *name, size_t len)
{
	const struct qverb *nearest = NULL;
	int least = 3;

	if (len < 2 || len > NAME_MAX_LEN)
		return NULL;
	for (int i = 0; i < QVERB_COUNT; i++) {
		int n = distance(name, len, qverbs[i].name, strlen(qverbs[i].name));

		if (n < least && n < (int)len - 1) {
			least = n;
			nearest = &qverbs[i];
		}
	}
	return nearest;
}

int qverb_help(const char *verb, size_t len, qverb_help_fn *fn, void *arg)
{
	int n = 0;

	for (int i = 0; i < QVERB_COUNT; i++) {
		if (verb && !same_name(qverbs[i].name, verb, len))
			continue;
		fn(arg, qverbs[i].name, qverbs[i].usage, qverbs[i].help);
		n++;
	}
	return n;
}
