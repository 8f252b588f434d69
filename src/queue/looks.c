/*
 * Those in a wait queue who wait with a condition: when it is their turn to look. Nobody can tell whether a job fits
 * but the server, so each of them looks when there is news, but
 *
 *   - from the first place on that is new: what it has looked at does not fit;
 *   - one condition at a time, in the order of the line; equal ones together, as one statement;
 *   - after a look in vain it pauses, twice as long each time, up to QUIET_MAX: a push that fits nobody costs each of
 *     them a small and bounded part of the time; after one that was too much for all together, until refused_until;
 *   - those without a condition who came later wait for its answer, as what is there may be for who waits longer; not
 *     while it pauses, nor when its answer takes long.
 *
 * Must not know: how it asks (where.c), what becomes of the jobs (wait.c).
 */
#include "head.h"
#include "wait_int.h"

#define LOOKS_MAX                                                                                  \
	1 /* different conditions at a time, in a wait queue: what fits both is for the first in line */
#define AGAIN_MAX 3

void looks_news(struct waitq *r, int64_t low)
{
	struct member *m;

	CHECK_WAITQ(r);
	if (r->n_where == 0)
		return;
	DL_FOREACH (r->members, m) {
		if (m->waiter->args.where == NULL)
			continue;
		m->news = true;
		if (low < m->low)
			m->low = low;
	}
	r->looks = true;
}

void looks_begin(struct waiter *w)
{
	CHECK_WAITER(w);
	w->looked_in_part = w->look_again = w->cut = false;
	w->saw = 0;
	w->saw_number = w->args.n_queues == 1 ? head_number(w->db, w->args.queues[0]) : 0;
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];

		m->asked_low = m->low;
		m->low = INT64_MAX;
		m->news = false;
	}
}

/* What it has not looked at it looks at the next time. */
static void unlook(struct waiter *w)
{
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];

		if (m->asked_low < m->low)
			m->low = m->asked_low;
	}
}

bool looks_vain(struct waiter *w)
{
	CHECK_WAITER(w);
	if (w->saw > 0 && w->saw_number > 0)
		head_saw(w->db, w->args.queues[0], w->saw_number, w->saw);
	if (w->looked_in_part || w->look_again)
		unlook(w);
	if (w->look_again && w->over == OVER_NOT && w->looks_again++ < AGAIN_MAX && w->ops->ask(w))
		return true;
	w->looks_again = 0;
	quiet_longer(&w->quiet, loop_now());
	if (w->quiet.until < w->refused_until)
		w->quiet.until = w->refused_until;
	return false;
}

void looks_failed(struct waiter *w)
{
	CHECK_WAITER(w);
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		w->members[i].low = 0;
		w->members[i].news = true;
	}
	quiet_longer(&w->quiet, loop_now());
}

struct looking {
	const struct waiter *of[LOOKS_MAX]; /* different ones */
	int n;
};

/* Is there room for it, or does one that is equal look? */
static bool may_look(struct looking *l, const struct waiter *w)
{
	for (int i = 0; i < l->n; i++)
		if (take_where_equal(l->of[i]->args.where, w->args.where))
			return true;
	if (l->n == LOOKS_MAX)
		return false;
	l->of[l->n++] = w;
	return true;
}

/*
 * Lets them look. first: in the line, of those whose answer is to come or who could not look yet. false: one could not, for lack of memory; r is not looked at again then.
 */
bool looks_serve(struct waitq *r, const struct member **ret_first, bool *ret_any)
{
	struct looking l = {.n = 0};
	usec_t now = loop_now();
	unsigned credits = r->credits;
	bool ahead = false; /* what is there may be for one without a condition */
	struct member *m;

	CHECK_WAITQ(r);
	r->looks = false;
	DL_FOREACH (r->members, m)
		if (m->waiter->args.where != NULL && waiter_is_busy(m->waiter) &&
			!waiter_is_stuck(m->waiter))
			(void)!may_look(&l, m->waiter);
	DL_FOREACH (r->members, m) {
		struct waiter *w = m->waiter;

		if (waiter_is_stuck(w))
			continue;
		if (w->args.where == NULL) {
			ahead = ahead || waiter_is_busy(w) || credits > 0;
			credits -= credits > 0;
			continue;
		}
		if (!waiter_is_busy(w)) {
			if (!m->news)
				continue;
			if (w->quiet.until > now) {
				if (w->quiet.until < r->look_at)
					r->look_at = w->quiet.until;
				continue;
			}
			r->looks = r->looks || ahead;
			if (!ahead && may_look(&l, w)) {
				*ret_any = true;
				w->event_at = r->event_at != 0 ? r->event_at : now;
				if (!w->ops->ask(w)) {
					w->ops->ask_failed(w);
					return false;
				}
			} else if (!ahead && r->look_at > now + STUCK_AFTER) {
				/* the answer of who looks may take longer than that */
				r->look_at = now + STUCK_AFTER;
			}
		}
		if (*ret_first == NULL)
			*ret_first = m;
	}
	return true;
}
