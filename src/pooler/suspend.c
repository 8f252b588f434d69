/*
 * SUSPEND: nothing is read from clients and servers any more, nobody is accepted, and no server is
 * given to anybody; what was read before is written out. It is complete when nothing is left to be
 * written and no login is under way; who holds that up for longer than suspend_timeout is closed.
 * The console goes on.
 *
 * Entry points: suspend_begin, suspend_end, suspend_tick; pooler_is_suspended for all.
 */
#include "net/listen.h"
#include "pooler_int.h"

static struct {
	enum pooler_suspended state;
	usec_t begun_at;
} suspension;

enum pooler_suspended pooler_is_suspended(void)
{
	return suspension.state;
}

/* --- who is in the way --- */

struct unwritten {
	unsigned left;
	bool force;
};

static void close_late(struct client *c)
{
	client_close(c, CLIENT_END_BY_US, "suspend_timeout");
}

static void hold_client(struct client *c, void *arg)
{
	struct unwritten *u = arg;
	bool login = c->state == CLIENT_LOGIN && !c->greeting;

	if (c->console || c->state == CLIENT_DEAD || c->conn == NULL)
		return;
	if (!login)
		conn_hold(c->conn, true);
	if (!login && conn_pending_output(c->conn) == 0)
		return;
	conn_show_kept(c->conn); /* its end comes from a server, which is not read */
	if (u->force)
		close_late(c);
	else
		u->left++;
}

static void hold_server(struct server *s, struct unwritten *u)
{
	bool login = s->state == SERVER_LOGIN;

	if (!login)
		conn_hold(s->conn, true);
	if (!login && conn_pending_output(s->conn) == 0)
		return;
	if (u->force)
		server_close(s, "suspend_timeout", NULL);
	else
		u->left++;
}

static void each_server(void (*fn)(struct server *s, struct unwritten *u), struct unwritten *u)
{
	struct server *s, *tmp;

	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			for (int i = 0; i < SERVER_DEAD; i++)
				DL_FOREACH_SAFE (p->servers[i].head, s, tmp)
					if (s->conn != NULL)
						fn(s, u);
}

/* --- on and off --- */

bool suspend_tick(usec_t now)
{
	usec_t limit = conf_current()->p.suspend_timeout;
	struct unwritten u = {.force = limit > 0 && now - suspension.begun_at > limit};

	if (suspension.state == SUSPENDED_NO)
		return false;
	client_each(hold_client, &u);
	each_server(hold_server, &u);
	if (u.left == 0 && suspension.state == SUSPENDED_SOON) {
		suspension.state = SUSPENDED_YES;
		log_info("suspended");
	}
	return true;
}

void suspend_begin(void)
{
	suspension.state = SUSPENDED_SOON;
	pool_all.suspended = true;
	suspension.begun_at = loop_now();
	listen_pause(LISTEN_SUSPENDED, true);
	(void)suspend_tick(suspension.begun_at);
}

static void release_client(struct client *c, void *arg)
{
	(void)arg;
	if (c->state != CLIENT_DEAD && c->state != CLIENT_MOVING && c->conn != NULL)
		conn_hold(c->conn, false);
}

static void release_server(struct server *s, struct unwritten *u)
{
	(void)u;
	/* on its way to another process, which may read it already */
	if (s->state != SERVER_MOVING && (s->link == NULL || s->link->state != CLIENT_MOVING))
		conn_hold(s->conn, false);
}

void suspend_end(void)
{
	if (suspension.state == SUSPENDED_NO)
		return;
	suspension.state = SUSPENDED_NO;
	pool_all.suspended = false;
	listen_pause(LISTEN_SUSPENDED, false);
	client_each(release_client, NULL);
	each_server(release_server, NULL);
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			pool_mark_ready(p);
	log_info("resumed");
}
