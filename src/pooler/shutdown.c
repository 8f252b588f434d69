/*
 * The end of the process, in the three ways of pgbouncer:
 *
 *   WAIT_CLIENTS  clients leave when they like. Who waits in a QUEUE statement would wait for ever,
 * so its wait ends and it is sent away. WAIT_SERVERS  transactions that were begun end, none is
 * begun any more: who is idle is sent away, who waits for a server is told, and in session pooling
 * who has one keeps it until it leaves. NOW           nothing is waited for.
 *
 * Answer and goodbye go together: a client that is to leave is no longer read from the moment in
 * which it is idle (client_ready()), and is told in the same turn, behind its answer. Otherwise a
 * worker that loops would ask again, and be answered with nothing again, as fast as it can.
 *
 * Entry points: pooler_shutdown() and what is beside it in pool.h; client_send_away();
 * shutdown_client_ready() for every client; shutdown_tick().
 */
#include "pooler/move.h"
#include "pooler_int.h"

/* What is answered at the beginning (waits that end) may leave, with the Sync behind it. */
#define GRACE  (20 * USEC_MSEC)
#define PERIOD (50 * USEC_MSEC)
/* Work of our own for those who have left, such as giving their jobs back, is still carried out. */
#define OWN_GRACE (5 * USEC_SEC)
/* Who is slow to read his last answer has so long for it. */
#define READ_GRACE (5 * USEC_SEC)

static struct {
	enum pooler_shutdown how;
	usec_t begun_at, unused_since;
	void (*on_stopped)(void);
	void (*on_shutdown)(void);
} ending;

void pooler_on_stopped(void (*fn)(void))
{
	ending.on_stopped = fn;
}

void pooler_on_shutdown(void (*fn)(void))
{
	ending.on_shutdown = fn;
}

enum pooler_shutdown pooler_is_shutting_down(void)
{
	return ending.how;
}

/* Who came before the others were told to go elsewhere may stay until it leaves. */
bool pooler_turns_away(const struct client *c)
{
	CHECK_CLIENT(c);
	return ending.how >= SHUTDOWN_WAIT_SERVERS ||
	       (ending.how == SHUTDOWN_WAIT_CLIENTS && c->connect_time > ending.begun_at);
}

/* --- goodbyes --- */

static void say_goodbye(struct client *c)
{
	struct pg_error err;

	pg_error_set(&err, "57P01", "terminating connection due to administrator command");
	pg_error_detail(&err, "The pooler is shutting down.");
	client_fatal_because(c, &err, "server shutting down");
}

/* Owed nothing, in no transaction, and nothing of a batch is carried out that has no Sync yet. */
static bool is_idle(const struct client *c)
{
	return c->state == CLIENT_ACTIVE && c->request_time == 0 && !c->tx.executed &&
	       c->pass_left == 0 && client_tx(c) == CLIENT_TX_IDLE &&
	       (c->link == NULL || (c->link->expect.count == 0 && !c->link->batch.unsynced));
}

static bool keeps_session(const struct client *c)
{
	return c->link != NULL && !c->link->raw && server_keeps_session(c->link);
}

static bool is_to_leave(const struct client *c)
{
	if (c->console)
		return false;
	return c->leaving || (ending.how == SHUTDOWN_WAIT_SERVERS && !keeps_session(c));
}

bool client_is_to_leave(const struct client *c)
{
	return is_to_leave(c);
}

static bool must_go(const struct client *c)
{
	return is_to_leave(c) && is_idle(c);
}

void shutdown_client_ready(struct client *c)
{
	if (move_is_begun() && is_idle(c) && move_take(c))
		return;
	if (!must_go(c))
		return;
	client_move(c, CLIENT_LEAVING);
	pooler_tick_at(loop_now());
}

/* What the kernel does not take would be cut off with the connection. */
static bool has_answer(struct client *c, usec_t now)
{
	usec_t since = c->idle_since > ending.begun_at ? c->idle_since : ending.begun_at;

	return c->conn == NULL || conn_flush(c->conn) || now - since > READ_GRACE;
}

bool shutdown_say_goodbye(void *arg, usec_t now)
{
	struct client *c, *next;
	bool any = false;

	(void)arg;
	DL_FOREACH_SAFE (client_all.leaving.head, c, next) {
		if (!has_answer(c, now))
			continue;
		say_goodbye(c);
		any = true;
	}
	return any;
}

void client_send_away(struct client *c)
{
	CHECK_CLIENT(c);
	c->leaving = true;
	client_all.some_leave = true;
}

static void end_idle_client(struct client *c, void *arg)
{
	(void)arg;
	if (move_is_begun() && is_idle(c) && move_take(c))
		return;
	if (must_go(c))
		client_move(c, CLIENT_LEAVING);
}

/* It would get a server for a transaction that is not begun yet. */
static void end_waiting_client(struct client *c, void *arg)
{
	(void)arg;
	if (!c->console && (c->state == CLIENT_WAITING || c->greeting) &&
		c->tx.virtual == VTX_NONE && c->link == NULL)
		say_goodbye(c);
}

/* Who is still there when all servers are free: in a block that no server knows of, or in
 * mid-batch. */
static void end_other_client(struct client *c, void *arg)
{
	(void)arg;
	if (!c->console && c->state != CLIENT_DEAD && c->state != CLIENT_MOVING)
		say_goodbye(c);
}

/* --- is it over? --- */

/* Servers of clients, and servers and waiting tasks of our own. */
static void count_work(unsigned *ret_clients, unsigned *ret_own)
{
	*ret_clients = *ret_own = 0;
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next) {
			*ret_clients += p->servers[SERVER_ACTIVE].count +
					p->servers[SERVER_FINISHING].count;
			*ret_own += p->servers[SERVER_TASK].count +
				    p->servers[SERVER_CLEANING].count + p->n_tasks;
		}
}

/* Not those who came too late and have not been told yet. */
static void count_client(struct client *c, void *arg)
{
	if (!c->console && c->state != CLIENT_DEAD &&
		!(c->state == CLIENT_LOGIN && pooler_turns_away(c)))
		++*(unsigned *)arg;
}

static unsigned clients_left(void)
{
	unsigned n = 0;

	client_each(count_client, &n);
	return n;
}

/* Nobody has a server, and what is done on our own account is done, or had its time. */
static bool is_at_rest(usec_t now)
{
	unsigned in_use, own;

	/* what those leave behind who were just sent away is work, too */
	(void)ends_phase(NULL, now);
	count_work(&in_use, &own);
	in_use += client_all.leaving.count;
	if (in_use > 0 || clients_left() > 0)
		ending.unused_since = now;
	return in_use == 0 && (own == 0 || now - ending.unused_since > OWN_GRACE);
}

static bool wait_servers(usec_t now)
{
	client_each(end_waiting_client, NULL);
	client_each(end_idle_client, NULL);
	if (now < ending.begun_at + GRACE || !is_at_rest(now))
		return false;
	client_each(end_other_client, NULL);
	/* what they held is being given back; who is on its way is another process's, or is told
	 * next time */
	return is_at_rest(now) && client_all.moving.count == 0;
}

static bool wait_clients(usec_t now)
{
	bool at_rest;

	client_each(end_idle_client, NULL);
	at_rest = is_at_rest(now);
	/* who has no other way to the next process than through this one comes yet */
	return at_rest && clients_left() == 0 && !(move_is_begun() && adopt_goes_on());
}

usec_t shutdown_tick(usec_t now)
{
	bool done = false;

	switch (ending.how) {
	case SHUTDOWN_NONE:
		return USEC_NEVER;
	case SHUTDOWN_NOW:
		done = true;
		break;
	case SHUTDOWN_WAIT_SERVERS:
		done = wait_servers(now);
		break;
	case SHUTDOWN_WAIT_CLIENTS:
		done = wait_clients(now);
		break;
	}
	if (done && ending.on_stopped != NULL)
		ending.on_stopped();
	return now + PERIOD;
}

/* --- the beginning --- */

void pooler_shutdown(enum pooler_shutdown how)
{
	if (how <= ending.how)
		return;
	suspend_end();
	ending.how = how;
	ending.begun_at = ending.unused_since = loop_now();
	client_all.some_leave = how == SHUTDOWN_WAIT_SERVERS || move_is_begun();
	if (ending.on_shutdown != NULL)
		ending.on_shutdown();
	pooler_tick_at(how == SHUTDOWN_WAIT_SERVERS ? ending.begun_at + GRACE : ending.begun_at);
}

static void may_stay(struct client *c, void *arg)
{
	(void)arg;
	c->leaving = false;
}

void pooler_shutdown_undo(void)
{
	if (ending.how != SHUTDOWN_WAIT_CLIENTS)
		return;
	shutdown_reset();
	client_each(may_stay, NULL);
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			pool_mark_ready(p);
}

void shutdown_reset(void)
{
	ending.how = SHUTDOWN_NONE;
	client_all.some_leave = false;
}
