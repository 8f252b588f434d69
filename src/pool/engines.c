/*
 * Connections of the queue engine's own: servers of a pool that no client is ever given, whose settings
 * are pinned from the start-up packet on. Statements that speak for many clients run there rather than
 * on what clients use too.
 *
 * There are fewer than queue_pool_size of a pool, beside what its clients may have: the last place stays for
 * statements that cannot run there, which the very client may wait for that has the pool's only server. They never push
 * anybody aside: where a limit of the database or the user is reached, they are what goes first, and
 * statements run on the clients' servers as before. One is launched when so many statements had to do
 * without (queue_engine_after): a connection costs what it saves in about that many.
 */
#include "pool/rooms.h"
#include "pool/settings.h"

#define PERIOD (60 * USEC_SEC) /* statements that were missed longer ago do not count */
#define UNUSED                                                                                     \
	(5 * USEC_SEC) /* a server of the clients that has not been used for so long may go for one */
#define AFTER_ERROR (60 * USEC_SEC) /* the server wanted none: nobody asks again for so long */
#define CROWD                                                                                      \
	16 /* statements that wait at the same moment for each connection are worth one more */
#define FRESH                                                                                      \
	(1 * USEC_SEC) /* as long behind the coming of one, they are for whatever can run there */
#define LOOK 128       /* waiting statements that are looked at */

/* What the role or the database has for its sessions does not count: what is sent at start-up is stronger. */
static const char *const pins[] = {"application_name", "qbouncer", "default_transaction_isolation",
	"read committed", "search_path", "pg_catalog, pg_temp", "plan_cache_mode",
	"force_generic_plan", "enable_seqscan", "off", "enable_bitmapscan", "off", "jit", "off"};

void engines_pins(const char **pairs, int *n, int max)
{
	for (size_t i = 0; i < ARRAY_LEN(pins) && *n < max; i += 2, ++*n) {
		pairs[2 * *n] = pins[i];
		pairs[2 * *n + 1] = pins[i + 1];
	}
}

/* connect_query may have set something else. */
void engines_pins_sql(struct buf *sql)
{
	for (size_t i = 0; i < ARRAY_LEN(pins); i += 2)
		settings_put_set(sql, pins[i], pins[i + 1]);
}

unsigned engines_others(const struct pool *p)
{
	unsigned total = pool_servers_total(p);

	INVARIANT(p->engines.n <= total, "a pool has more servers of the engine than servers");
	return total - p->engines.n;
}

struct server *engines_idle(const struct pool *p)
{
	struct server *s;

	if (p->engines.n == 0 || pool_tasks_stopped(p))
		return NULL;
	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (s->use.engine && pool_may_use(s))
			return s;
	return NULL;
}

struct server *engines_longest_idle(const struct pool *p)
{
	struct server *s, *found = NULL;

	if (p->engines.n == 0)
		return NULL;
	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (s->use.engine && (found == NULL || s->idle_since < found->idle_since))
			found = s;
	return found;
}

void engines_missed(struct pool *p, usec_t now)
{
	CHECK_POOL(p);
	if (now - p->engines.since > PERIOD) {
		p->engines.since = now;
		p->engines.missed = 0;
	}
	p->engines.missed++;
}

unsigned engines_shared(const struct pool *p, usec_t now)
{
	bool fresh = now - p->engines.launched_at < FRESH;
	unsigned n = 0, left = LOOK;

	if (p->engines.n == 0)
		return 0;
	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next, left--)
		n += t->engine && (fresh || t->together != 0 || t->kind == 0) &&
		     affinity_waits(t, now);
	return n;
}

/* Of several that clients have: one that none of them has needed for a while. Statements may run there as well, but
 * for no good. */
static struct server *spare(const struct pool *p, usec_t now)
{
	unsigned others = engines_others(p);
	struct server *s, *found = NULL;

	if (others < 2 || others <= (unsigned)p->db->min_pool_size || p->waiting.count > 0)
		return NULL;
	DL_FOREACH (p->servers[SERVER_IDLE].head, s)
		if (!s->use.engine && s != p->for_inspection && now - s->idle_since >= UNUSED &&
			(found == NULL || s->idle_since < found->idle_since))
			found = s;
	return found;
}

static bool has_room(const struct pool *p)
{
	return !pool_db_is_full(p) && !pool_user_is_full(p);
}

bool engines_make_room(struct pool *p, usec_t now)
{
	struct server *s = has_room(p) ? NULL : spare(p, now);

	CHECK_POOL(p);
	if (s != NULL)
		server_close(s, "makes room for the queue engine", NULL);
	return has_room(p);
}

/* Those that wait need connections anyway: one for all of them costs less than one for each. */
static bool is_crowded(const struct pool *p)
{
	unsigned n = 0, left = LOOK;

	if (p->n_tasks < CROWD)
		return false;
	for (const struct task *t = p->tasks; t != NULL && left > 0; t = t->next, left--)
		n += t->engine;
	return n >= CROWD * (p->engines.n + 1);
}

bool engines_pay(const struct pool *p, usec_t now)
{
	const struct params *conf = &conf_current()->p;

	return (p->engines.missed >= (unsigned)conf->queue_engine_after || is_crowded(p)) &&
	       conf->queue_engine_after > 0 && p->engines.n + 1 < (unsigned)conf->queue_pool_size &&
	       p->db->server_lifetime > 0 &&
	       (p->engines.failed_at == 0 || now - p->engines.failed_at >= AFTER_ERROR);
}

void engines_failed(struct server *s, const struct pg_error *err)
{
	struct pool *p = s->pool;

	CHECK_SERVER(s);
	if (p->engines.failed_at == 0)
		log_write(LOG_LVL_WARNING, server_prefix(s),
			"no connection of the queue engine's own: %s; its statements run on those of the clients",
			err->message);
	p->engines.failed_at = loop_now();
}
