/*
 * How many may be there that have not logged in: who is slow makes room, and until there is some
 * nobody is accepted.
 */
#include "net/listen.h"
#include "net/team.h"
#include "pooler_int.h"

#define LOGIN_GRACE  (2 * USEC_SEC)  /* nobody is sent away before, however crowded it is */
#define UNEVEN_PAUSE (2 * USEC_MSEC) /* for the others to accept */
static struct {
	bool closed;
	struct loop_tick *even; /* it opens again */
} gate;

static bool is_crowded(void)
{
	int most = conf_current()->p.max_unauthenticated_conn;

	return most > 0 && client_all.logins.count >= (unsigned)most;
}

static void send_away_slow(usec_t now)
{
	struct client *c, *tmp;
	struct pg_error err;

	DL_FOREACH_SAFE (client_all.logins.head, c, tmp) {
		if (!is_crowded())
			return;
		if (now < client_login_slow_since(c) + LOGIN_GRACE)
			continue;
		pg_error_set(&err, "53300", "too many connections that have not logged in");
		pg_error_hint(&err, "The limit is max_unauthenticated_conn.");
		client_fatal(c, &err);
	}
}

/* Who is slow makes room; until there is some, nobody is accepted. */
void pooler_gate(usec_t now)
{
	if (is_crowded())
		send_away_slow(now);
	if (gate.closed == is_crowded())
		return;
	gate.closed = !gate.closed;
	if (gate.closed)
		log_warning("%u connections have not logged in (max_unauthenticated_conn): no more "
			    "are accepted until there are fewer",
			client_all.logins.count);
	listen_pause(LISTEN_CROWDED, gate.closed);
}

static usec_t on_even(void *arg, usec_t now)
{
	(void)arg;
	(void)now;
	listen_pause(LISTEN_UNEVEN, false);
	return USEC_NEVER;
}

/* With several processes: who has accepted more than its part leaves the next to the others, for a moment. */
void pooler_gate_even(void)
{
	if (!team_has_more_than_its_part())
		return;
	if (gate.even == NULL && (gate.even = loop_tick_new(on_even, NULL, USEC_NEVER)) == NULL)
		return;
	listen_pause(LISTEN_UNEVEN, true);
	loop_tick_at(gate.even, loop_now() + UNEVEN_PAUSE);
}

void pooler_gate_stop(void)
{
	loop_tick_free(&gate.even);
}

/* One has logged in, or gone. */
void pooler_gate_moved(void)
{
	if (gate.closed)
		pooler_gate(loop_now());
}
