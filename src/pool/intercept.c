/*
 * Who claims statements: two, one for the console and one for everybody else.
 */
#include "pool/rooms.h"

static enum claim pass_claim(struct client *c, struct sql_text *t)
{
	(void)c;
	(void)t;
	return CLAIM_PASS;
}

static void pass_ended(struct client *c, enum client_end how)
{
	(void)c;
	(void)how;
}

/* Nobody registered: everything is forwarded. */
static const struct interceptor pass_all = {
	.name = "none", .claim = pass_claim, .client_ended = pass_ended};

const struct interceptor *intercept_queue = &pass_all, *intercept_console = &pass_all;

void intercept_register(const struct interceptor *i, bool console)
{
	if (console)
		intercept_console = i;
	else
		intercept_queue = i;
}

void intercept_orphan_event(struct server *s, const char *text, const char *tx)
{
	CHECK_SERVER(s);
	if (intercept_queue->task_event != NULL)
		intercept_queue->task_event(s->pool, text, tx, &s->events);
}

/* Whether it was committed nobody has listened to: who looks in vain waits on. */
void intercept_orphan_events_end(struct server *s)
{
	CHECK_SERVER(s);
	if (s->events != NULL)
		intercept_queue->task_event_end(s->pool, &s->events, true);
}
