/*
 * DONE statements of which nobody knows whether they were committed, as the connection was lost.
 * Who repeats one whose jobs are gone since has its answer: nobody else could end them. That is so
 * only as long as their leases run, for certain: not after an end that is not known, and not if
 * something else was said of a job, or it was given back: then another may have taken it and finished
 * it, or it was cancelled and has gone away. (Other proxies may have given it back, too, if we were
 * away: registry_was_away(), which who asks looks at first.)
 *
 * Entry points: doubt_remember(), doubt_is_over(), doubt_forget().
 */
#include <string.h>

#include "jobs.h"
#include "lease.h"
#include "queue_int.h"
#include "token.h"

#define DOUBT_MAX 4096
/* The loop's time is that of its round; and the clock that leases go by is another one. */
#define MARGIN (1 * USEC_SEC)

struct doubt {
	UT_hash_handle hh;
	uint64_t statement; /* they were committed together, or not at all */
	usec_t until; /* the lease does not end before; 0: it may have ended, in whatever way */
	char token[TOKEN_MAX];
};

static struct {
	struct doubt *table;
	struct doubt *ring[DOUBT_MAX];
	unsigned next;
	uint64_t last_statement;
} doubts;

static struct doubt *find(const char *token)
{
	struct doubt *d;

	HASH_FIND_STR(doubts.table, token, d);
	return d;
}

static void free_one(struct doubt **p)
{
	if (*p != NULL) {
		HASH_DEL(doubts.table, *p);
		mem_free(*p);
	}
	*p = NULL;
}

/* The oldest is forgotten. Without memory the repeated one is QB001: safe. */
static void remember(const char *token, usec_t until)
{
	struct doubt *d = find(token);

	if (until == 0 || (d != NULL && d->until == 0))
		return;
	if (d == NULL) {
		if ((d = mem_zalloc(sizeof(*d))) == NULL)
			return;
		util_strlcpy(d->token, token, sizeof(d->token));
		HASH_ADD_STR(doubts.table, token, d);
		if (d->hh.tbl == NULL) {
			mem_free(d);
			return;
		}
		free_one(&doubts.ring[doubts.next]);
		doubts.ring[doubts.next] = d;
		doubts.next = (doubts.next + 1) % DOUBT_MAX;
	}
	d->statement = doubts.last_statement;
	d->until = until;
}

void doubt_remember(struct taker *t, const struct jobs *jobs)
{
	doubts.last_statement++;
	for (int i = 0; i < jobs->n; i++) {
		const struct lease *l = t != NULL ? lease_find(t, jobs->tokens[i]) : NULL;

		remember(jobs->tokens[i], l != NULL ? l->until : 0);
	}
}

bool doubt_is_over(const struct jobs *jobs)
{
	uint64_t statement = 0;

	for (int i = 0; i < jobs->n; i++) {
		const struct doubt *d = find(jobs->tokens[i]);

		if (d == NULL || (i > 0 && d->statement != statement) ||
			d->until < loop_now() + MARGIN)
			return false;
		statement = d->statement;
	}
	return jobs->n > 0;
}

/* For good: it stays in the ring. */
void doubt_forget(const char *token)
{
	struct doubt *d = find(token);

	if (d != NULL)
		d->until = 0;
}

void doubt_forget_all(void)
{
	for (unsigned i = 0; i < DOUBT_MAX; i++)
		free_one(&doubts.ring[i]);
	doubts.next = 0;
}
