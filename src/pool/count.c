/*
 * What is counted as it happens: queries, transactions and how long they took, errors that clients
 * get. What is told of it is stat.c.
 */
#include <string.h>

#include "pool/rooms.h"

/* Kinds that are told apart; what is more is in the last one: a server says what it likes. */
#define ERRORS_MAX 200

static struct {
	struct pool_stats console;
	struct {
		char sqlstate[6];
		uint64_t count;
	} errors[ERRORS_MAX];
} counted;

struct pool_stats *count_console(void)
{
	return &counted.console;
}

void count_query(struct pool *p, const struct client *c)
{
	usec_t now = loop_now();

	p->stats.queries++;
	if (c->request_time == 0 || now < c->request_time)
		return;
	p->stats.query_time += now - c->request_time;
	hist_add(&p->times.query, now - c->request_time);
}

void count_end_of_transaction(struct pool *p, struct client *c)
{
	usec_t now = loop_now();

	p->stats.xacts++;
	if (c->tx.start != 0 && now >= c->tx.start) {
		p->stats.xact_time += now - c->tx.start;
		hist_add(&p->times.transaction, now - c->tx.start);
	}
	c->tx.start = 0;
}

/* --- errors --- */

void count_error_of(const char *sqlstate)
{
	int i = 0;

	while (i < ERRORS_MAX - 1 && counted.errors[i].count > 0 &&
		strcmp(counted.errors[i].sqlstate, sqlstate) != 0)
		i++;
	if (counted.errors[i].count++ == 0)
		util_strlcpy(counted.errors[i].sqlstate, i < ERRORS_MAX - 1 ? sqlstate : "other",
			sizeof(counted.errors[i].sqlstate));
}

void count_each_error(void (*fn)(const char *sqlstate, uint64_t count, void *arg), void *arg)
{
	for (int i = 0; i < ERRORS_MAX && counted.errors[i].count > 0; i++)
		fn(counted.errors[i].sqlstate, counted.errors[i].count, arg);
}
