/*
 * The verb table as data, and how names are looked up in it. Entry points: qverbs, qverb_find,
 * qverb_nearest, qverb_help.
 */
#include "qlang/verb.h"

#include <string.h>

#include "qlang/rows.h"

/* --- result columns --- */

/* clang-format off */
#define FIELDS(row)          row(ROW_FIELD, )
#define FIELDS_OF(row, type) row(ROW_FIELD, , type)
#define OF_EACH_PAYLOAD(row) {{FIELDS_OF(row, JSONB)}, {FIELDS_OF(row, TEXT)}, {FIELDS_OF(row, BYTEA)}}
#define N_COLUMNS(row)       (0 row(ROW_ONE, , JSONB))
/* clang-format on */

static const struct wire_field columns_taken[QPAYLOAD_COUNT][N_COLUMNS(ROW_TAKEN)] =
	OF_EACH_PAYLOAD(ROW_TAKEN);
static const struct wire_field columns_peek[QPAYLOAD_COUNT][N_COLUMNS(ROW_PEEK)] =
	OF_EACH_PAYLOAD(ROW_PEEK);
static const struct wire_field columns_job[QPAYLOAD_COUNT][N_COLUMNS(ROW_JOB)] =
	OF_EACH_PAYLOAD(ROW_JOB);
static const struct wire_field columns_list[] = {FIELDS(ROW_LIST)};
static const struct wire_field columns_schedules[] = {FIELDS(ROW_SCHEDULES)};
static const struct wire_field columns_stats[] = {FIELDS(ROW_STATS)};
static const struct wire_field columns_await[] = {FIELDS(ROW_AWAIT)};
static const struct wire_field columns_errors[] = {FIELDS(ROW_ERRORS)};
static const struct wire_field columns_history[] = {FIELDS(ROW_HISTORY)};
static const struct wire_field columns_workers[] = {FIELDS(ROW_WORKERS)};
static const struct wire_field columns_health[] = {FIELDS(ROW_HEALTH)};
static const struct wire_field columns_subscriptions[] = {FIELDS(ROW_SUBSCRIPTIONS)};
static const struct wire_field columns_tracked[] = {FIELDS(ROW_TRACKED)};
static const struct wire_field columns_routes[] = {FIELDS(ROW_ROUTES)};
static const struct wire_field columns_help[] = {FIELDS(ROW_HELP)};

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

const struct wire_field qverb_routed_columns[2] = {FIELDS(ROW_ROUTED)};
const struct wire_field qverb_partial_columns[3] = {FIELDS(ROW_PARTIAL)};
const struct wire_field qverb_delivered_columns[QPAYLOAD_COUNT][11] =
	OF_EACH_PAYLOAD(ROW_DELIVERED);
const struct wire_field qverb_figures_columns[10] = {FIELDS(ROW_FIGURES)};
const struct wire_field qverb_batch_columns[11] = {FIELDS(ROW_BATCH)};

/* --- the table --- */

/* clang-format off */
#define COLUMNS(a)    a, ARRAY_LEN(a)
#define COLUMNS_NONE  NULL, 0
#define COLUMNS_OF(a) a[0], ARRAY_LEN(a[0])
#define COLUMNS_TAKEN COLUMNS_OF(columns_taken)
#define COLUMNS_LIST  COLUMNS(columns_list)
#define COLUMNS_SCHEDULES COLUMNS(columns_schedules)
#define COLUMNS_STATS COLUMNS(columns_stats)
#define COLUMNS_PEEK  COLUMNS_OF(columns_peek)
#define COLUMNS_JOB   COLUMNS_OF(columns_job)
#define COLUMNS_AWAIT COLUMNS(columns_await)
#define COLUMNS_ERRORS COLUMNS(columns_errors)
#define COLUMNS_HISTORY COLUMNS(columns_history)
#define COLUMNS_WORKERS COLUMNS(columns_workers)
#define COLUMNS_HEALTH COLUMNS(columns_health)
#define COLUMNS_SUBSCRIPTIONS COLUMNS(columns_subscriptions)
#define COLUMNS_TRACKED       COLUMNS(columns_tracked)
#define COLUMNS_ROUTES COLUMNS(columns_routes)
#define COLUMNS_HELP  COLUMNS(columns_help)

/* The last entry of each list is empty: a verb may have no arguments, an array may not. */
#define ARG(id, name, keyword, kind, need, alt) \
	{QARG_##id, name, keyword, QKIND_##kind, QNEED_##need, alt},
#define VERB(id, name, flags, tag, text, columns, args, sql, usage, help) \
	static const struct qverb_arg args_##id[] = {args {0}};
QUEUE_VERBS(VERB, ARG)
#undef VERB
#define VERB(id, name, flags, tag, text, columns, args, sql, usage, help) \
	{QVERB_##id, name, flags, QTAG_##tag, text, COLUMNS_##columns, \
		args_##id, ARRAY_LEN(args_##id) - 1, sql, usage, help},
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

#define NAME_MAX_LEN 13

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

/* ALTER JOB is shown with ALTER, too. */
static bool helps(const char *name, const char *verb, size_t len)
{
	return same_name(name, verb, len) ||
	       (strlen(name) > len && name[len] == ' ' && !util_memcasecmp(name, verb, len));
}

const struct qverb *qverb_second(const struct qverb *first, const char *word, size_t len)
{
	size_t n = strlen(first->name);

	if (!(first->flags & QVERB_BEGINS)) /* most: nothing is looked up */
		return NULL;
	for (int i = 0; i < QVERB_COUNT; i++) {
		const char *name = qverbs[i].name;

		if (strncmp(name, first->name, n) == 0 && name[n] == ' ' &&
			same_name(name + n + 1, word, len))
			return &qverbs[i];
	}
	return NULL;
}

int qverb_help(const char *verb, size_t len, qverb_help_fn *fn, void *arg)
{
	int n = 0;

	for (int i = 0; i < QVERB_COUNT; i++) {
		if (verb && !helps(qverbs[i].name, verb, len))
			continue;
		fn(arg, qverbs[i].name, qverbs[i].usage, qverbs[i].help);
		n++;
	}
	return n;
}
