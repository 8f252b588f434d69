/*
 * A large delivery is shown to its client while it comes: until its end it is nobody's, and an error may take its place.
 * While the client does not read it the server is not read (rest()), for a minute, and while its lease would last.
 *
 * Must not know: how it was asked for.
 */
#include "shown.h"

#include "types.h"

#define PART_SIZE      (16 * 1024) /* bytes of rows that do not wait for those behind them */
#define PART_OF_WHERE  (1024 * 1024)
#define UNREAD_LONGEST (60 * USEC_SEC)
#define UNREAD_MUCH                                                                                \
	(1024 * 1024) /* bytes of who does not read and cannot rest: what he has, or more */

struct answer shown_rest(const struct reader *w)
{
	return (struct answer){.n_rows = w->got.n,
		.rows = w->got.rows,
		.fields = qverb_delivered_columns[w->args.payload], /* may be known only now */
		.n_fields = DELIVERY_due_ms};
}

/* It holds a connection of the engine, its subscription and a snapshot: it ends with its lease, and sooner when nothing is
 * read for UNREAD_LONGEST. If too many rest already it goes on, and is kept here; so it is without memory. */
static bool rests_on(struct reader *w)
{
	usec_t at = loop_now() + UNREAD_LONGEST;

	w->sent = w->taker->ops->sent(w->taker);
	return park_again_at(&w->park, at < w->until ? at : w->until);
}

static void rest(struct reader *w)
{
	INVARIANT(w->task != NULL && w->taker != NULL, "nobody reads what nobody sends");
	if (!task_may_rest(w->task) || !rests_on(w))
		return;
	w->shown = SHOWN_UNREAD;
	task_rest(w->task, true);
	reader_is_slow(w);
}

void shown_goes_on(struct park *p)
{
	struct reader *w = CONTAINER_OF(p, struct reader, park);
	usec_t at = p->started + p->wait, now = loop_now();

	CHECK_PARK(p);
	if (w->shown != SHOWN_UNREAD)
		return;
	w->shown = SHOWN_ROWS;
	w->heard = now;
	task_rest(w->task, false);
	/* from now on the end of WAIT counts again */
	if (p->wait > 0)
		(void)!park_again_at(p, at > now + STUCK_AFTER ? at : now + STUCK_AFTER);
}

/* Returns how much of it is kept for its client. */
static size_t show_part(struct reader *w)
{
	struct taker *t = w->taker;
	struct answer a = shown_rest(w);
	enum part_taken taken;

	if (t == NULL) {
		buf_reset(&w->got.rows);
		return 0;
	}
	if (t->ops->part == NULL || w->got.torn || buf_failed(&w->got.rows) || w->until == 0)
		return w->got.rows.len;
	taken = t->ops->part(t, &a);
	if (taken == PART_REFUSED)
		return w->got.rows.len;
	w->got.rows = a.rows;
	if (w->shown == SHOWN_UNREAD)
		return 0;
	w->shown = SHOWN_ROWS;
	task_rest(w->task, false);
	if (taken == PART_FULL)
		rest(w);
	return taken == PART_FULL && w->shown != SHOWN_UNREAD ? UNREAD_MUCH : 0;
}

/* A condition may still fail, which would say at which event. */
static size_t part_size(const struct reader *w)
{
	return w->args.where != NULL ? PART_OF_WHERE : PART_SIZE;
}

void shown_row(struct reader *w)
{
	if (w->got.rows.len >= part_size(w))
		bound_part(&w->bound, w->task, show_part(w));
}

static void fail_unread(struct reader *w)
{
	bool lease = loop_now() >= w->until;
	struct pg_error err;

	pg_error_set(&err, "57014",
		lease ? "the lease of a delivery was over before it was read"
		      : "nothing of a delivery was read for a minute");
	pg_error_detail(
		&err, "While rows are not read their connection to the server is not free.");
	pg_error_hint(&err,
		"Its events are delivered again. Read the answer to its end before working on it, or TAKE with a lower LIMIT%s.",
		lease ? " or a longer LEASE" : "");
	park_fail(&w->park, &err);
}

void shown_is_over(struct reader *w)
{
	INVARIANT(w->shown == SHOWN_UNREAD, "the time of one that does not rest is not over");
	if (loop_now() >= w->until || w->taker->ops->sent(w->taker) == w->sent || !rests_on(w))
		fail_unread(w);
}
