/*
 * A server is given to a client, and gets the settings of who uses it.
 */
#include <string.h>

#include "pool/rooms.h"
#include "pool/settings.h"
#include "wire/sqltext.h"

/* Must the settings be in force before anything else is sent? A role may be refused, and settings
 * that no server has seen yet too; a task speaks for many. */
static bool must_settle(const struct server *s, struct istr *extra)
{
	if (s->extra == extra)
		return false;
	return s->link == NULL || !s->link->proven || settings_identity_differs(s->extra, extra);
}

void server_put_settings(
	struct server *s, const struct vars *v, struct istr *extra, const struct dest *dest)
{
	struct buf sql = BUF_INIT;

	CHECK_SERVER(s);
	/* the same client as before, or one like it: nearly always */
	if (s->extra == extra && memcmp(&s->vars, v, sizeof(*v)) == 0)
		return;
	if (!vars_diff_sql(&s->vars, v, s->extra, extra, s->settings.extra_stale, &sql))
		return;
	s->settings.settling = must_settle(s, extra);
	s->settings.extra_stale = false;
	s->pool->stats.replays++;
	istr_ref(extra);
	istr_drop(&s->extra);
	s->extra = extra;
	(void)server_query(s, &sql, dest);
}

void server_link(struct server *s, struct client *c)
{
	usec_t now = loop_now();

	CHECK_SERVER(s);
	CHECK_CLIENT(c);
	INVARIANT(s->link == NULL && c->link == NULL, "a server or a client is given away twice");
	INVARIANT(s->expect.count == 0 && s->task == NULL,
		"a server is given away that owes answers");
	INVARIANT(!s->use.engine, "a client gets a server of the engine's own");
	INVARIANT(s->pool == c->pool, "a client gets a server of another pool");
	s->mode = (uint8_t)route_pool_mode(s->pool);
	s->link = c;
	c->link = s;
	s->use.checked = false;
	s->use.served = true;
	s->request_time = s->use.held_since = now;
	s->use.alone &= s->use.holder == 0 || s->use.holder == (int32_t)(c->key >> 32);
	s->use.holder = (int32_t)(c->key >> 32);
	server_move(s, SERVER_ACTIVE);
	s->pool->stats.server_assignments++;
	server_put_settings(s, &c->vars, c->extra, pool_all.calls->settings);
}
