/*
 * The private face of what is shown: fillers, and the values of columns that are no member as it is.
 *
 *   include/show/list.h  what there is
 *   shows.c              the list as a table, and its fillers
 *   fill.c               the fillers that are written by hand; what those of the list go through
 *   rows.c               rows, in the formats that were asked for
 */
#ifndef QB_SHOW_SHOW_INT_H
#define QB_SHOW_SHOW_INT_H

#include "pooler/stat.h"
#include "show/show.h"

struct conf_peer;

/* --- values --- */

struct put_short {
	char text[64];
};
struct put_maybe {
	bool is; /* else SQL NULL */
	int64_t value;
};

void row_short(struct show_rows *r, struct put_short v);
void row_maybe(struct show_rows *r, struct put_maybe v);

/* A value by its C type; a number or a truth (0 or 1) in the type of the column. */
#define row_put(r, v)                                                                              \
	_Generic((v),                                                                              \
		const char *: row_text,                                                            \
		char *: row_text,                                                                  \
		struct put_short: row_short,                                                       \
		struct put_maybe: row_maybe,                                                       \
		default: row_int)(r, v)

struct put_short put_time(usec_t wall);       /* "2026-01-31 12:00:00 UTC"; 0: empty */
struct put_short put_object(uint64_t id);     /* the number, where pgbouncer has an address in memory */
struct put_short put_optional(int v);         /* negative: empty */
struct put_maybe put_unless_negative(int64_t v);
struct put_short put_socket_state(const struct stat_session *st); /* in pgbouncer's words for sockets */

/* --- records --- */

/* With the console's behind the others. */
void each_database(void (*fn)(const struct stat_database *st, void *arg), void *arg);
void each_pool(void (*fn)(const struct stat_pool *st, void *arg), void *arg);
void each_socket(void (*fn)(const struct stat_session *st, void *arg), void *arg);
void each_active_socket(void (*fn)(const struct stat_session *st, void *arg), void *arg);
void each_peer(void (*fn)(const struct conf_peer *st, void *arg), void *arg);

/* --- fillers --- */

void show_nothing(struct show_rows *r);
void show_version(struct show_rows *r);
void show_state(struct show_rows *r);
void show_config(struct show_rows *r);
void show_lists(struct show_rows *r);
void show_totals(struct show_rows *r);
void show_dns_zones(struct show_rows *r);
void show_fds(struct show_rows *r);

#endif
