/*
 * How much is told at once, and after which pause again (telling.h). Must not know: to whom, and by which statement.
 */
#include "base/check.h"
#include "telling.h"

unsigned telling_most(const struct telling *t)
{
	return t->most > 0 ? t->most : TELL_MAX;
}

void telling_begins(struct telling *t)
{
	INVARIANT(outbox_is_empty(&t->told), "news are told while others are under way");
	outbox_take_first(&t->told, &t->next, telling_most(t));
}

void telling_ended(struct telling *t)
{
	outbox_clear(&t->told);
	t->pause = 0;
	t->most = telling_most(t) < TELL_MAX / 2 ? 2 * t->most : TELL_MAX;
}

static void pause(struct telling *t, usec_t now, bool at_once)
{
	if (t->pause == 0 && !at_once)
		t->pause = TELL_AGAIN;
	t->at = now + t->pause;
	t->pause = 2 * t->pause > TELL_AGAIN ? 2 * t->pause : TELL_AGAIN;
	t->pause = t->pause < TELL_LAST ? t->pause : TELL_LAST;
}

void telling_failed(struct telling *t, enum telling_failure how, usec_t now)
{
	if (outbox_is_empty(&t->told))
		return;
	if (t->told.n > 1)
		t->most = t->told.n / 2;
	if (how != TELLING_UNFIT || t->told.n <= 1)
		pause(t, now, how == TELLING_CUT_OFF);
	if (how == TELLING_UNFIT && t->told.n == 1) {
		t->pause = 0; /* it is done with */
		t->next.any = true;
		t->next.urgent |= t->told.urgent;
		outbox_clear(&t->told);
	}
	outbox_take(&t->next, &t->told, TELL_EVENTS);
}

void telling_clear(struct telling *t)
{
	outbox_clear(&t->next);
	outbox_clear(&t->told);
}
