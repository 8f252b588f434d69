/*
 * How many may be there that have not logged in: who is slow makes room, and until there is some
 * nobody is accepted.
 */
#include "net/listen.h"
#include "pooler_int.h"

#define LOGIN_GRACE (2 * USEC_SEC) /* nobody is sent away before, however crowded it is */
static bool gated;

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
	if (gated == is_crowded())
		return;
	gated = !gated;
	if (gated)
		log_warning("%u connections have not logged in (max_unauthenticated_conn): no more "
			    "are accepted until there are fewer",
			client_all.logins.count);
	listen_pause(LISTEN_CROWDED, gated);
}

/* One has logged in, or gone. */
void pooler_gate_moved(void)
{
	if (gated)
		pooler_gate(loop_now());
}
