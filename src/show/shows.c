/*
 * The list of what is shown as a table: names, columns, and a filler for each that goes through
 * records. Entry points: shows, show_number().
 */
#include "show_int.h"

#include "base/mem.h"
#include "conf/conf.h"
#include "net/dns.h"
#include "net/team.h"
#include "pooler/pooler.h"
#include "queue/stat.h"

/* --- columns --- */

#define PROCESS              {"process", OID_INT4},
#define COL(type, name, ...) {#name, OID_##type},
#define SHOW(id, filler, who, help, columns)                                                       \
	static const struct wire_field fields_##id[] = {columns PROCESS};
#define SHOW_EACH(id, record, each, who, help, columns)                                            \
	static const struct wire_field fields_##id[] = {columns PROCESS};
#include "show/list.h"

/* --- fillers --- */

#define COL(type, name, ...) row_put(r, __VA_ARGS__);
#define SHOW_EACH(id, record, each, who, help, columns)                                            \
	static void row_##id(const record *st, void *arg)                                          \
	{                                                                                          \
		struct show_rows *r = arg;                                                         \
                                                                                                   \
		row_begin(r);                                                                      \
		columns row_end(r);                                                                \
	}                                                                                          \
	static void fill_##id(struct show_rows *r)                                                 \
	{                                                                                          \
		each(row_##id, r);                                                                 \
	}
#include "show/list.h"

/* --- the table --- */

const struct show shows[SHOW_COUNT] = {
#define SHOW(id, filler, who, help, columns)                                                       \
	{#id, help, who, fields_##id, ARRAY_LEN(fields_##id) - 1, show_##filler},
#define SHOW_EACH(id, record, each, who, help, columns)                                            \
	{#id, help, who, fields_##id, ARRAY_LEN(fields_##id) - 1, fill_##id},
#include "show/list.h"
};

bool show_is_of_each(enum show_id id)
{
	switch (id) {
	case SHOW_HELP:
	case SHOW_VERSION:
	case SHOW_CONFIG:
	case SHOW_PEERS:
	case SHOW_FDS:
		return false;
	default:
		return team_self() != 0;
	}
}

const struct wire_field *show_fields(enum show_id id, int *ret_n)
{
	*ret_n = shows[id].n_fields + show_is_of_each(id);
	return *ret_n > 0 ? shows[id].fields : NULL;
}

/* --- columns as numbers --- */

static double number_plain(double v)
{
	return v;
}

static double number_maybe(struct put_maybe v)
{
	return v.is ? (double)v.value : 0;
}

#define NUMBER(v)            _Generic((v), struct put_maybe : number_maybe, default : number_plain)(v)
#define NUMBER_TEXT(...)     0
#define NUMBER_INT4(...)     NUMBER(__VA_ARGS__)
#define NUMBER_INT8(...)     NUMBER(__VA_ARGS__)
#define NUMBER_NUMERIC(...)  NUMBER(__VA_ARGS__)

#define COL(type, name, ...) NUMBER_##type(__VA_ARGS__),
#define SHOW_EACH(id, record, each, who, help, columns)                                            \
	static double number_##id(const void *record_, size_t column)                              \
	{                                                                                          \
		const record *st = record_;                                                        \
		const double all[] = {columns};                                                    \
                                                                                                   \
		ASSERT(column < ARRAY_LEN(all));                                                   \
		return all[column];                                                                \
	}
#include "show/list.h"

double show_number(enum show_id id, size_t column, const void *record)
{
	static double (*const numbers[SHOW_COUNT])(const void *, size_t) = {
#define SHOW_EACH(id, record, each, who, help, columns) [SHOW_##id] = number_##id,
#include "show/list.h"
	};

	ASSERT(numbers[id] != NULL);
	return numbers[id](record, column);
}

/* --- SHOW TOTALS: the columns of SHOW STATS as rows --- */

/* All figures of a pool_stats are counts. */
static void add(struct pool_stats *sum, const struct pool_stats *more)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)more;

	_Static_assert(sizeof(*sum) % sizeof(*to) == 0, "pool_stats has counts only");
	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}

static void sum_up(const struct stat_database *st, void *arg)
{
	struct stat_database *sum = arg;

	add(&sum->total, &st->total);
}

static void name_value(struct show_rows *r, const char *name, int64_t v)
{
	row_begin(r);
	row_text(r, name);
	row_int(r, v);
	row_end(r);
}

void show_totals(struct show_rows *r)
{
	struct stat_database sum = {0};
	const struct stat_database *st = &sum;

	each_database(sum_up, &sum);
	stat_averages(&sum.avg);
#define COL(type, name, value) name_value(r, #name, (int64_t)(value));
	STATS_COLUMNS
#undef COL
}
