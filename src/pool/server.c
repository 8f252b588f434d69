/*
 * A connection to Postgres: its life, the list it is in, what was prepared on it, and which
 * settings are in force. Logging in is server_login.c, what it says is relay.c.
 *
 *   LOGIN -> IDLE <-> ACTIVE (a client) -> [FINISHING ->] CLEANING -> IDLE
 *                <-> TASK (our own statement)      any -> DEAD, freed by the reaper
 *                    TASK -> CLEANING -> KEPT -> TASK (kept.c), or -> CLEANING -> IDLE
 */
#include <stdio.h>
#include <string.h>

#include "net/team.h"
#include "pool/answer.h"
#include "pool/places.h"
#include "pool/rooms.h"
#include "pool/settings.h"
#include "wire/sqltext.h"

#define CHECK_HOLDS USEC_SEC

struct server_all server_all;

static struct server_list *list_of(struct server *s)
{
	return s->state == SERVER_DEAD ? &server_all.dead : &s->pool->servers[s->state];
}

static void list_add(struct server *s)
{
	struct server_list *l = list_of(s);

	/* idle servers: the last one used is the first one taken, unless server_round_robin */
	if (s->state == SERVER_IDLE && !conf_current()->p.server_round_robin)
		DL_PREPEND(l->head, s);
	else
		DL_APPEND(l->head, s);
	l->count++;
}

void server_move(struct server *s, enum server_state to)
{
	struct server_list *l = list_of(s);

	CHECK_SERVER(s);
	INVARIANT(s->state != SERVER_DEAD && l->count > 0, "a dead server moves");
	INVARIANT(to != SERVER_LOGIN, "a server is to log in again");
	INVARIANT(to != SERVER_IDLE || (s->link == NULL && s->task == NULL),
		"a server is idle and has work");
	INVARIANT(to == SERVER_CLEANING || to == SERVER_KEPT || to == SERVER_TASK ||
			  to == SERVER_DEAD || s->kept == NULL,
		"a session that is kept is given to others");
	INVARIANT(to != SERVER_ACTIVE || s->link != NULL, "a server is active without a client");
	INVARIANT(to != SERVER_TASK || s->task != NULL, "a server runs a task and has none");
	INVARIANT(to != SERVER_FINISHING || s->expect.count > 0, "a server finishes nothing");
	DL_DELETE(l->head, s);
	l->count--;
	s->state = (uint8_t)to;
	if (to == SERVER_IDLE || to == SERVER_KEPT)
		s->pool->came_free = true;
	if (to == SERVER_DEAD)
		s->pool->place_free = true;
	list_add(s);
}

struct server *server_adopt(struct pool *p)
{
	struct server *s;

	CHECK_POOL(p);
	if (server_all.slab == NULL &&
		(server_all.slab = slab_new("server", sizeof(struct server))) == NULL)
		return NULL;
	s = slab_get(server_all.slab);
	if (s == NULL)
		return NULL;
	s->magic = SERVER_MAGIC;
	s->state = SERVER_LOGIN;
	s->tx = 'I';
	s->pool = p;
	s->use.alone = true;
	s->id = client_next_id();
	s->connect_time = s->request_time = loop_now();
	list_add(s);
	p->db->n_servers++;
	p->account->servers++;
	return s;
}

static struct server *log_in(struct server *s)
{
	if (s == NULL || pool_all.calls->login(s))
		return s;
	server_close(s, "out of memory", NULL);
	return NULL;
}

/* With several processes there may be none although it looked as if: another one was faster. */
static struct server *take_place(struct pool *p, bool engine, unsigned most, usec_t since)
{
	struct server *s;

	if (team_self() == 0)
		return server_adopt(p);
	if (!places_take_server(p, !engine, most, since))
		return NULL;
	s = server_adopt(p);
	if (s == NULL)
		places_give_server(p);
	return s;
}

/* Beyond the limits, as nobody waits in line for it, and it is of no use for those who do. */
struct server *server_launch_for(struct pool *p, const struct dest *unasked)
{
	struct server *s = server_adopt(p);

	CHECK_POOL(p);
	if (s == NULL)
		return NULL;
	s->use.beyond = true;
	p->db->n_beyond++;
	p->account->beyond++;
	s->unasked = unasked;
	return log_in(s);
}

struct server *server_launch_engine(struct pool *p)
{
	struct server *s = take_place(p, true, 0, pool_waits_since(p));

	CHECK_POOL(p);
	if (s == NULL)
		return NULL;
	s->use.engine = true;
	p->engines.n++;
	p->engines.launched_at = loop_now();
	return log_in(s);
}

struct server *server_launch(struct pool *p, unsigned most, usec_t since)
{
	return log_in(take_place(p, false, most, since));
}

const char *server_prefix(const struct server *s)
{
	const char *host = s->host != NULL ? istr_text(s->host) : s->pool->db->host;

	if (host == NULL || *host == '\0' || *host == '/' || *host == '@')
		host = "unix";
	snprintf(server_all.prefix, sizeof(server_all.prefix), "S-0x%llx: %s/%s@%s:%d",
		(unsigned long long)s->id, s->pool->db->name, istr_text(s->pool->user), host,
		s->pool->db->port);
	return server_all.prefix;
}

/* --- the end --- */

static void end_client(struct server *s, const struct pg_error *for_client)
{
	struct client *c = s->link;
	struct pg_error err;

	s->link = NULL;
	if (c == NULL || c->state == CLIENT_DEAD)
		return;
	INVARIANT(c->link == s, "a server ends the client of another one");
	c->link = NULL;
	if (s->pass_left > 0 && !s->pass_discard) {
		client_close(c, CLIENT_END_BY_US,
			"server closed the connection in the middle of a message");
		return;
	}
	if (s->fatal_seen) {
		/* what the server said has been passed on; it was the last word */
		client_close(c, CLIENT_END_BY_US, "server closed the connection");
		return;
	}
	if (for_client == NULL) {
		pg_error_set(&err, "08006", "server closed the connection unexpectedly");
		pg_error_detail(&err, "This probably means the server terminated abnormally "
				      "before or while processing the request.");
		for_client = &err;
	}
	client_fatal(c, for_client);
}

/* Only marks, its client too: what follows from it is ends.c. */
void server_close(struct server *s, const char *reason, const struct pg_error *for_client)
{
	struct pool *p = s->pool;
	CHECK_SERVER(s);
	if (s->state == SERVER_DEAD)
		return;
	log_write(conf_current()->p.log_disconnections ? LOG_LVL_INFO : LOG_LVL_DEBUG,
		server_prefix(s), "closing because: %s (age=%llus)", reason,
		(unsigned long long)((loop_now() - s->connect_time) / USEC_SEC));
	server_move(s, SERVER_DEAD);
	if (s->conn != NULL)
		conn_close(&s->conn);
	INVARIANT(p->db->n_servers > 0 && p->account->servers > 0,
		"more servers end than have begun");
	p->db->n_servers--;
	p->account->servers--;
	if (s->use.beyond) {
		p->db->n_beyond--;
		p->account->beyond--;
	}
	affinity_lost(s);
	kept_lost(s);
	if (s->use.engine) {
		INVARIANT(p->engines.n > 0, "more servers of the engine end than have begun");
		p->engines.n--;
	}
	if (p->for_inspection == s)
		p->for_inspection = NULL;
	if (team_self() != 0 && !s->use.beyond)
		places_give_server(p);
	pool_mark_ready(p);
	if (for_client != NULL && (s->task != NULL || s->unasked != NULL))
		s->end = mem_dup(for_client, sizeof(*for_client));
	end_client(s, for_client);
}

bool server_wants_fast_close(const struct server *s)
{
	CHECK_SERVER(s);
	return s->close_needed && conf_current()->p.server_fast_close && s->link != NULL &&
	       s->mode == POOL_MODE_SESSION && s->tx == 'I' && !s->batch.unsynced &&
	       s->expect.count == 0 && s->pass_left == 0;
}

void server_close_fast(struct server *s)
{
	struct pg_error err;

	CHECK_SERVER(s);
	pg_error_set(&err, "57P01", "database configuration changed");
	pg_error_detail(&err, "The server connection of this session is being replaced.");
	pg_error_hint(&err, "Connect again; server_fast_close ends sessions whose server "
			    "connection is to be closed.");
	server_close(s, "database configuration changed", &err);
}

/* --- sending --- */

bool server_send(struct server *s, struct buf *b)
{
	CHECK_SERVER(s);
	if (buf_failed(b)) {
		buf_free(b);
		server_close(s, "out of memory", NULL);
		return false;
	}
	if (s->conn != NULL)
		conn_write(s->conn, b->data, b->len);
	buf_free(b);
	return true;
}

void server_free(struct server *s)
{
	INVARIANT(s->state == SERVER_DEAD && s->conn == NULL, "a server is freed that lives");
	mem_free(s->expect.e);
	vars_clear(&s->vars);
	istr_drop(&s->extra);
	istr_drop(&s->sqlprep);
	buf_free(&s->trace.custom);
	istr_drop(&s->host);
	mem_free(s->end);
	util_erase(s->key, sizeof(s->key));
	s->magic = 0;
	slab_put(server_all.slab, s);
}

void server_free_slabs(void)
{
	slab_free(&server_all.slab);
}

static void error_fields(const struct wire_msg *m, struct pg_error *ret)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	pg_error_set(ret, n.sqlstate, "%s", n.message);
	if (n.detail != NULL)
		pg_error_detail(ret, "%s", n.detail);
	if (n.hint != NULL)
		pg_error_hint(ret, "%s", n.hint);
}

enum relay_step relay_error_ends(
	struct relay *r, const struct wire_msg *m, bool client_too, const char *reason)
{
	struct server *s = r->s;
	struct client *c = s->link;
	struct pg_error err;

	relay_run_flush(r);
	error_fields(m, &err);
	if (c != NULL && client_too)
		client_fatal(c, &err);
	if (s->state != SERVER_DEAD)
		server_close(s, reason, &err);
	return RELAY_GONE;
}

/* With a short server_check_delay, such as 0, each is asked once after each use: who has just
 * answered is given away, or nobody would ever be served. */
bool server_is_stale(const struct server *s)
{
	const struct params *p = &conf_current()->p;
	usec_t delay = p->server_check_delay;

	if (s->use.checked && delay < CHECK_HOLDS)
		delay = CHECK_HOLDS;
	return p->server_check_query[0] != '\0' && loop_now() - s->idle_since >= delay;
}
