/*
 * What the end of a client or a server brings about. client_close() and server_close() only mark:
 * nothing is read from the connection any more, and the marked one is in a list. Here, in one phase
 * of the loop and before anything else of it, it leaves who knows it: the server goes on to the next
 * client or is closed, the claimant hears of it, what was asked for it is dropped. That may end
 * others, which are dealt with in the same go.
 *
 * What was dealt with is freed by the reaper, behind the last flush of the turn.
 *
 * Entry points: ends_phase(), ends_are_due(), ends_reap().
 */
#include "pool/settings.h"
#include "wire/sqltext.h"
#include "pooler_int.h"

static struct {
	struct client *clients; /* dealt with */
	struct server *servers;
} ended;

/* --- what follows --- */

static void client_has_ended(struct client *c)
{
	struct server *s = c->left;
	enum client_end how = (enum client_end)c->end;

	INVARIANT(c->link == NULL && c->conn == NULL, "a client has ended that is not closed");
	c->left = NULL;
	if (s != NULL && s->state != SERVER_DEAD)
		server_unlink_abandoned(s, how == CLIENT_END_TERMINATE);
	if (c->icpt != NULL && c->told == TOLD_BEGUN) {
		c->told = TOLD_ENDED;
		c->icpt->client_ended(c, how);
	}
	if (c->login != NULL) {
		cancel_drop_asker(c);
		client_auth_closing(c);
	}
	listen_end(c);
}

static void server_has_ended(struct server *s)
{
	struct task *t = s->task;
	const struct pg_error *why = s->end;
	struct pg_error err;

	INVARIANT(s->link == NULL && s->conn == NULL, "a server has ended that is not closed");
	cancel_forget_server(s);
	intercept_orphan_events_end(s);
	if (s->unasked != NULL && s->unasked->lost != NULL)
		s->unasked->lost(s, why);
	s->task = NULL;
	if (t == NULL)
		return;
	if (why == NULL)
		why = pg_error_set(&err, "08006", "server closed the connection unexpectedly");
	together_end_all(t, why, s->pid != 0 ? s->pid : -1);
}

/* --- the phase --- */

static __attribute__((noinline)) void deal_with_all(void)
{
	struct client *c;
	struct server *s;

	while (ends_are_due())
		if ((c = client_all.dead.head) != NULL) {
			DL_DELETE(client_all.dead.head, c);
			client_all.dead.count--;
			DL_APPEND(ended.clients, c);
			client_has_ended(c);
		} else {
			s = server_all.dead.head;
			DL_DELETE(server_all.dead.head, s);
			server_all.dead.count--;
			DL_APPEND(ended.servers, s);
			server_has_ended(s);
		}
}

bool ends_phase(void *arg, usec_t now)
{
	(void)arg;
	(void)now;
	if (!ends_are_due()) /* nearly always */
		return false;
	deal_with_all();
	return true;
}

/* --- the reaper --- */

static void free_client(struct client *c)
{
	client_login_free(c);
	extq_free(c);
	portal_drop_all(c);
	client_free(c);
}

static void free_server(struct server *s)
{
	struct expect *e;

	while ((e = expect_head(&s->expect)) != NULL) {
		server_expect_free(s, e, false);
		s->expect.head = (uint16_t)((s->expect.head + 1u) & (s->expect.cap - 1u));
		s->expect.count--;
	}
	server_login_free(s);
	server_forget_all_prepared(s);
	server_drop_unnamed(s);
	session_forget_prepared(s);
	inspect_free(s);
	server_free(s);
}

static __attribute__((noinline)) void free_all(void)
{
	struct client *c, *ctmp;
	struct server *s, *stmp;

	DL_FOREACH_SAFE (ended.clients, c, ctmp) {
		DL_DELETE(ended.clients, c);
		free_client(c);
	}
	DL_FOREACH_SAFE (ended.servers, s, stmp) {
		DL_DELETE(ended.servers, s);
		free_server(s);
	}
}

void ends_reap(void)
{
	if (ends_are_due())
		deal_with_all();
	if (ended.clients != NULL || ended.servers != NULL)
		free_all();
}
