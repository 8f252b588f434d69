/*
 * The figures of SHOW STATS and its like, in pgbouncer's order. Entry points: show.h.
 */
#include "show.h"

#include <stdio.h>

#include "pool/stat.h"

/* One figure: its name behind "total_" and "avg_" in SHOW TOTALS, where they differ. */
struct figure {
	const char *total, *avg;
	size_t offset;
};
static const struct figure figures[] = {
#define FIGURE(total, avg, field)                                                                  \
	{                                                                                          \
		total, avg, offsetof(struct pool_stats, field)                                     \
	}
	FIGURE("server_assignment_count", "server_assignment_count", server_assignments),
	FIGURE("xact_count", "xact_count", xacts),
	FIGURE("query_count", "query_count", queries),
	FIGURE("received", "recv", bytes_in),
	FIGURE("sent", "sent", bytes_out),
	FIGURE("xact_time", "xact_time", xact_time),
	FIGURE("query_time", "query_time", query_time),
	FIGURE("wait_time", "wait_time", wait_time),
	FIGURE("client_parse_count", "client_parse_count", client_parses),
	FIGURE("server_parse_count", "server_parse_count", server_parses),
	FIGURE("bind_count", "bind_count", binds),
	FIGURE("client_login_count", "client_login_count", logins),
};
/* Ours, behind those of pgbouncer: totals only. */
static const struct figure own_figures[] = {
	FIGURE("pin_count", "", pins),
	FIGURE("look_count", "", looks),
	FIGURE("replay_count", "", replays),
	FIGURE("reset_count", "", resets),
#undef FIGURE
};

static int64_t figure_of(const struct pool_stats *s, const struct figure *f)
{
	return (int64_t) * (const uint64_t *)((const char *)s + f->offset);
}

static void figures_put(struct show_rows *r, const struct pool_stats *s)
{
	for (size_t i = 0; i < ARRAY_LEN(figures); i++)
		row_int(r, figure_of(s, &figures[i]));
}

static void own_figures_put(struct show_rows *r, const struct pool_stats *s)
{
	for (size_t i = 0; i < ARRAY_LEN(own_figures); i++)
		row_int(r, figure_of(s, &own_figures[i]));
}

static void one_both(const struct stat_database *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	figures_put(r, &st->total);
	figures_put(r, &st->avg);
	own_figures_put(r, &st->total);
	row_end(r);
}

/* The databases, and the console behind them. */
static void each(void (*fn)(const struct stat_database *st, void *arg), void *arg)
{
	struct stat_database console;

	stat_each_database(fn, arg);
	stat_console_database(&console);
	fn(&console, arg);
}

void show_stats(struct show_rows *r)
{
	each(one_both, r);
}

static void one_total(const struct stat_database *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	figures_put(r, &st->total);
	own_figures_put(r, &st->total);
	row_end(r);
}

void show_stats_totals(struct show_rows *r)
{
	each(one_total, r);
}

static void one_average(const struct stat_database *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->name);
	figures_put(r, &st->avg);
	row_end(r);
}

void show_stats_averages(struct show_rows *r)
{
	each(one_average, r);
}

struct sums {
	int64_t total[ARRAY_LEN(figures)], own[ARRAY_LEN(own_figures)];
};

static void sum_up(const struct stat_database *st, void *arg)
{
	struct sums *s = arg;

	for (size_t i = 0; i < ARRAY_LEN(figures); i++)
		s->total[i] += figure_of(&st->total, &figures[i]);
	for (size_t i = 0; i < ARRAY_LEN(own_figures); i++)
		s->own[i] += figure_of(&st->total, &own_figures[i]);
}

static void name_value(struct show_rows *r, const char *prefix, const char *name, int64_t v)
{
	char text[64];

	snprintf(text, sizeof(text), "%s_%s", prefix, name);
	row_begin(r);
	row_text(r, text);
	row_int(r, v);
	row_end(r);
}

void show_totals(struct show_rows *r)
{
	struct sums s = {0};
	struct pool_stats avg;

	each(sum_up, &s);
	stat_averages(&avg);
	for (size_t i = 0; i < ARRAY_LEN(figures); i++)
		name_value(r, "total", figures[i].total, s.total[i]);
	for (size_t i = 0; i < ARRAY_LEN(figures); i++)
		name_value(r, "avg", figures[i].avg, figure_of(&avg, &figures[i]));
	for (size_t i = 0; i < ARRAY_LEN(own_figures); i++)
		name_value(r, "total", own_figures[i].total, s.own[i]);
}
