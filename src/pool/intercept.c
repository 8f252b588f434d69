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
