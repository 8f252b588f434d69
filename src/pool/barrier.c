/*
 * A message that waits, and is looked at once more: until the server owes its client nothing any
 * more, or until client_again().
 */
#include "pool/rooms.h"

/* The client's settings on their way to a server that it has just got are nothing to wait for: it
 * would lose the server again when they are there, and two clients with different ones could take
 * it from each other for ever. */
bool client_only_settings(struct server *s)
{
	for (unsigned i = 0; i < s->expect.count; i++)
		if (!expect_at(&s->expect, i)->dest->setup)
			return false;
	return true;
}

bool client_barrier(struct client *c)
{
	struct server *s = c->link;
	struct buf b = BUF_INIT;

	CHECK_CLIENT(c);
	if (s == NULL || (client_only_settings(s) && s->pass_left == 0))
		return true;
	if (s->batch.unsynced) {
		build_simple(&b, 'H');
		if (!server_send(s, &b))
			return false;
	}
	client_move(c, CLIENT_BARRIER);
	return false;
}

enum step client_wait_again(struct client *c)
{
	CHECK_CLIENT(c);
	c->head.repeats = true;
	client_move(c, CLIENT_BARRIER);
	return STEP_WAIT;
}
