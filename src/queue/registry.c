/*
 * Which proxies serve a database, and what becomes of the leases of one that is gone. Each proxy
 * has a number of its own and holds a shared advisory lock with it in its system session, where it
 * looks who else does (a chore of system.h); takes write the number into the leases that end with
 * their connection. A number whose lock has been away for a while is of a proxy that died: every
 * role that uses queues here gives back what it held, in the queues that this role owns or has taken
 * from (agent.c). So it is when the session comes up, for what happened before.
 *
 * Anybody can hold a lock: it counts if its role takes from some queue, makes queues, or has INSERT
 * on queue.proxies (as queue._is_proxy says); also ours, without which no lease gets our number.
 */
#include <string.h>

#include "net/team.h"
#include "wire/array.h"
#include "wire/row.h"
#include "agent.h"
#include "asleep.h"
#include "back.h"
#include "queue_call.h"
#include "jobs.h"
#include "lease.h"
#include "mark.h"
#include "queue_int.h"
#include "registry.h"
#include "siblings.h"
#include "system.h"
#include "wakes.h"

/* After our own session was lost the database may have been away: other proxies get this long to
 * come back. */
#define COME_BACK     (15 * USEC_SEC)
#define SCAN_AGAIN    (2 * USEC_SEC)

#define WAITED_FOR    100 /* queues that have their turn before others */

#define PEERS_MAX     1000
#define OTHERS_MAX    "1000"
#define NUMBERS_MAX   5 /* that somebody else has locked, one after the other */

#define LOOK_AGAIN    (5 * USEC_SEC) /* also shows that the session is alive */
#define LOOK_IN_HURRY (1 * USEC_SEC) /* while there are others */

/* Anybody may say that he has come: so many are looked for at once, and then one after each pause. */
#define HELLOS_MAX  10
#define HELLO_PAUSE (100 * USEC_MSEC)

/* Class of the advisory locks: "qbou". The object is the number of the proxy. */
#define LOCK_CLASS "1902276469"

/* Another proxy: its number, and the role of its session. A lock with this number by another role
 * is another one. */
struct peer {
	UT_hash_handle hh;
	struct {
		int32_t id;
		uint32_t role;
	} key;
	usec_t gone_since; /* 0: it is there */
	bool dead; /* a process of this program that has ended: its leases are nobody's, its lock may still be there */
};

struct registry {
	int32_t id; /* our own; 0: not drawn yet */
	struct peer *peers;
	bool up, was_up;
	bool looked_back;    /* since it is up: the scan for what happened before is ordered */
	usec_t trust_at;     /* before that nobody is taken for dead */
	usec_t down_at;      /* when it was lost */
	uint64_t scans;      /* that were ordered */
	unsigned announced;  /* proxies that have said that they are there, and were not seen */
	usec_t announced_at; /* the first of them */
	unsigned hellos;     /* of them, since the last look began */
	usec_t hellos_until; /* each look for one moves it by a pause */
	/* what is done in the session */
	enum { STEP_LOCK, STEP_LOOK } step;
	usec_t next_at; /* the next step */
	int numbers;    /* that were tried */
	bool locked;    /* our number is; as the answer says */
	bool counts;    /* our lock does, as it was when we looked last */
	bool told;      /* that it does not */
	/* of the look under way; other proxies among them, but for siblings; of these, who do not sleep */
	unsigned rows, others, awake;
	int32_t siblings[TEAM_MAX + 1];
};

static struct registry *registry_get(struct qdb *db)
{
	if (db->registry == NULL)
		db->registry = mem_zalloc(sizeof(*db->registry));
	return db->registry;
}

int32_t registry_number(struct qdb *db)
{
	struct registry *g = registry_get(db);

	CHECK_QDB(db);
	if (g == NULL)
		return 0;
	if (g->id > 0)
		return g->id;
	while (g->id <= 0) {
		util_random(&g->id, sizeof(g->id));
		g->id &= INT32_MAX;
	}
	siblings_number(db, g->id);
	return g->id;
}

/* Leases with the old one are adopted when the session is up. */
static void other_id(struct qdb *db)
{
	struct registry *g = registry_get(db);
	struct taker *t;
	struct lease *l;

	CHECK_QDB(db);
	if (g == NULL)
		return;
	g->id = 0;
	doubt_forget_all();
	DL_FOREACH (takers(), t)
		if (t->db == db)
			DL_FOREACH (t->leases, l)
				l->stamped = false;
}

int32_t registry_stamp(const struct qdb *db)
{
	return db->registry != NULL && db->registry->up ? db->registry->id : 0;
}

bool registry_was_away(const struct qdb *db)
{
	const struct registry *g = db->registry;

	CHECK_QDB(db);
	return g != NULL && g->was_up && !g->up &&
	       loop_now() - g->down_at >= conf_current()->p.queue_orphan_grace;
}

/* --- whose leases are --- */

struct owning {
	struct qdb *db;
};

static void owned(void *arg, const struct pg_error *err)
{
	struct owning *o = arg;

	if (err != NULL)
		log_debug("%s: leases could not change their proxy: %s", o->db->name, err->message);
	mem_free(o);
}

/* A failure does little harm: these leases end with their time only, or with the proxy too. */
void registry_own(
	struct qdb *db, struct pool *pool, const char *const *tokens, int n, int32_t owner)
{
	static const struct task_ops ops = {.done = owned};
	struct owning *o = mem_zalloc(sizeof(*o));
	struct buf array = BUF_INIT;
	uint8_t id[4];
	struct bind_param params[2] = {
		{.format = 1}, {.data = id, .len = owner > 0 ? 4 : -1, .format = 1}};
	struct task_spec spec = call_task(CALL_OWN, params, &ops, o);

	spec.stays = true;
	CHECK_QDB(db);
	build_store_i32(id, owner);
	array_texts(&array, tokens, n);
	params[0].data = array.data;
	params[0].len = (int32_t)array.len;
	if (o != NULL)
		o->db = db;
	if (o == NULL || buf_failed(&array) || task_submit(pool, &spec) == NULL)
		mem_free(o);
	buf_free(&array);
}

/* Those that were taken while the session was not up. */
void registry_adopt(struct taker *t)
{
	const char **tokens = mem_alloc((t->n_leases + 1) * sizeof(*tokens));
	struct lease *l;
	int n = 0;

	CHECK_TAKER(t);
	if (tokens == NULL)
		return;
	DL_FOREACH (t->leases, l) {
		if (l->stamped || l->policy == LEASE_KEEP)
			continue;
		l->stamped = true;
		tokens[n++] = l->token;
	}
	if (n > 0)
		registry_own(t->db, t->pool, tokens, n, registry_number(t->db));
	mem_free(tokens);
}

/* --- orphans --- */

struct scan {
	struct qdb *db;
	struct agent *role;
	uint64_t number;
	bool only_new; /* queues that the role has not used before, and what was left */
	int32_t next;  /* where to go on; 0: it has come to the end */
	struct task *task;
	bool torn;
	struct names names; /* of queues */
};

/* Body of DataRow: the queue's name, and 0 if it is left; the last one: where to go on, and how many tables it has met. */
static void scan_row(void *arg, const uint8_t *body, size_t len)
{
	struct scan *s = arg;
	struct wire_col col[3];
	int64_t met, next = -1;

	if (!wire_row_read(body, len, col, 3) ||
		(col[1].len >= 0 && (!wire_col_number(&col[1], &next) || next < -INT32_MAX ||
					    next > INT32_MAX)) ||
		col[0].len > QSTMT_QUEUE_MAX) {
		s->torn = true;
		return;
	}
	if (wire_col_number(&col[2], &met) && met >= 0)
		task_met(s->task, (size_t)met);
	if (col[0].len < 0)
		s->next = col[1].len >= 0 ? (int32_t)next : 0;
	else
		names_add_bytes(next == 0 ? &s->role->scan_left : &s->names, col[0].data,
			(size_t)col[0].len);
}

static void scan(struct qdb *db, struct agent *role, struct pool *pool);

static bool is_ordered(const struct qdb *db, const struct agent *role)
{
	return role->scanned != db->registry->scans;
}

/* A look has come to its end, or failed. What it has left is looked at again, and nothing else. One into all queues goes on
 * where it has failed. */
static void scan_ended(struct scan *s, bool failed)
{
	struct agent *r = s->role;
	bool forgets = names_failed(&r->scan_left);

	failed |= forgets;
	agent_looked(r, !failed);
	if (!failed) {
		names_free(&r->left);
		r->left = names_take(&r->scan_left);
	}
	if (!failed && !s->only_new)
		r->scanned = s->number;
	if (forgets || s->only_new) {
		names_free(&r->scan_left);
		r->scan_after = 0;
	}
	if (failed || r->n_new > 0 || !names_none(&r->left))
		r->again_at = loop_now() + SCAN_AGAIN;
}

static void scan_done(void *arg, const struct pg_error *err)
{
	struct scan *s = arg;
	struct agent *r = s->role;
	struct pool *pool = pooler_find_pool(s->db->name, r->user);
	bool failed = err != NULL || s->torn, goes_on;

	r->scanning = false;
	if (!failed)
		r->scan_after = s->next;
	goes_on = !failed && s->next != 0 && pool != NULL;
	if (!goes_on)
		scan_ended(s, failed || s->next != 0);
	/* or another proxy was gone while it went on, whose jobs it may have passed over */
	if (goes_on || (pool != NULL && is_ordered(s->db, r) && loop_now() >= r->again_at))
		scan(s->db, r, pool);
	if (err != NULL)
		log_warning("%s: jobs of proxies that are gone cannot be given back: %s",
			s->db->name, err->message);
	if (err == NULL && !names_none(&s->names))
		log_info("%s: jobs of a proxy that is gone were given back", s->db->name);
	if (err == NULL)
		wake_queues(s->db, &s->names, head_unmarked);
	names_free(&s->names);
	mem_free(s);
}

/* int4[] in binary: those that are there, or may come back. */
static void put_ids(struct buf *b, const struct registry *g)
{
	size_t start = array_begin(b, OID_INT4, false);

	int n = 1;

	array_put_i32(b, g->id);
	for (const struct peer *p = g->peers; p != NULL; p = p->hh.next)
		if (!p->dead) {
			array_put_i32(b, p->key.id);
			n++;
		}
	array_end(b, start, n);
}

/* Those that were left; if all have their turn, at the beginning those for which somebody waits. */
static void put_rest(
	struct buf *b, const struct qdb *db, const struct agent *role, bool all, bool begins)
{
	size_t start = array_begin(b, OID_TEXT, false);
	int n = all && begins ? waitqs_put(b, db, WAITED_FOR) : 0;

	if (!all)
		NAMES_FOREACH (queue, &role->left) {
			array_put_text(b, queue);
			n++;
		}
	array_end(b, start, n);
}

/* For a proxy that is gone each queue is looked into; for one that is new to the role, that queue; and those that were left. */
static void scan(struct qdb *db, struct agent *role, struct pool *pool)
{
	static const struct task_ops ops = {.row = scan_row, .done = scan_done};
	struct scan *s = mem_zalloc(sizeof(*s));
	bool begins = role->scan_after == 0;
	bool only_new = role->scanned == (begins ? db->registry->scans : role->scan);
	uint8_t after[4];
	struct buf ids = BUF_INIT, used = BUF_INIT, fresh = BUF_INIT, left = BUF_INIT;
	struct bind_param params[5] = {{.format = 1}, {.format = 1}, {.len = -1, .format = 1},
		{.data = after, .len = 4, .format = 1}, {.format = 1}};
	struct task_spec spec = call_task(CALL_ORPHANS, params, &ops, s);

	spec.time = TASK_SLOW;
	put_ids(&ids, db->registry);
	params[0].data = ids.data;
	params[0].len = (int32_t)ids.len;
	agent_put_used(&used, role);
	params[1].data = used.data;
	params[1].len = (int32_t)used.len;
	if (begins) {
		role->scan = db->registry->scans;
		agent_asked(role);
	}
	build_store_i32(after, role->scan_after);
	put_rest(&left, db, role, !only_new, begins);
	params[4].data = left.data;
	params[4].len = (int32_t)left.len;
	if (only_new) {
		agent_put_asked(&fresh, role);
		params[2].data = fresh.data;
		params[2].len = (int32_t)fresh.len;
	}
	if (s != NULL) {
		s->db = db;
		s->role = role;
		s->number = role->scan;
		s->only_new = only_new;
	}
	if (s != NULL && !buf_failed(&ids) && !buf_failed(&used) && !buf_failed(&fresh) &&
		!buf_failed(&left))
		s->task = task_submit(pool, &spec);
	if (s != NULL && s->task != NULL) {
		role->scanning = true;
	} else { /* no memory: another time, from the beginning */
		agent_looked(role, false);
		names_free(&role->scan_left);
		role->scan_after = 0;
		role->again_at = loop_now() + SCAN_AGAIN;
		mem_free(s);
	}
	buf_free(&ids);
	buf_free(&used);
	buf_free(&fresh);
	buf_free(&left);
}

/* Is there anything to look at but what a scan was ordered for? Who has made it so may be gone: any client of the role
 * will do. */
static bool more_is_left(const struct qdb *db)
{
	for (const struct agent *r = db->agents; r != NULL; r = r->hh.next)
		if (r->n_new > 0 || !names_none(&r->left))
			return true;
	return false;
}

/* The clients of each role that has not looked since the last scan was ordered: through one of
 * them. */
static void scan_all(struct qdb *db)
{
	struct registry *g = db->registry;
	bool more = more_is_left(db);
	struct taker *t;

	DL_FOREACH (takers(), t) {
		struct pool *pool = t->pool;
		struct agent *r;

		if (t->db != db || (t->scans == g->scans && !more))
			continue;
		r = agent_get(db, pool_user(pool));
		if (r == NULL || r->scanning || loop_now() < r->again_at)
			continue;
		if (!is_ordered(db, r) && r->n_new == 0 && names_none(&r->left))
			t->scans = g->scans;
		else
			scan(db, r, pool);
	}
}

/* --- what is there --- */

static void lock_counts(struct qdb *db)
{
	struct registry *g = registry_get(db);
	usec_t grace = conf_current()->p.queue_orphan_grace;
	struct taker *t;

	CHECK_QDB(db);
	if (g == NULL || g->up)
		return;
	if (registry_was_away(db))
		doubt_forget_all();
	if (g->was_up && grace < COME_BACK)
		grace = COME_BACK;
	g->up = g->was_up = true;
	g->looked_back = false;
	g->trust_at = loop_now() + grace;
	DL_FOREACH (takers(), t)
		if (t->db == db && t->leases != NULL)
			registry_adopt(t);
}

static void lock_is_lost(struct qdb *db)
{
	struct registry *g = db->registry;
	struct peer *p;

	CHECK_QDB(db);
	if (g == NULL)
		return;
	if (!g->up)
		return;
	g->up = false;
	g->down_at = loop_now();
	for (p = g->peers; p != NULL; p = p->hh.next)
		p->gone_since = 0;
}

static bool is_sibling(const struct registry *g, int32_t id)
{
	for (int i = 1; i <= team_size(); i++)
		if (g->siblings[i] == id)
			return true;
	return false;
}

static void see(struct qdb *db, int32_t id, uint32_t role)
{
	struct registry *g = db->registry;
	struct peer *p, of = {.key = {id, role}};

	CHECK_QDB(db);
	if (g == NULL || id == g->id)
		return;
	HASH_FIND(hh, g->peers, &of.key, sizeof(of.key), p);
	if (p == NULL && HASH_COUNT(g->peers) < PEERS_MAX && (p = mem_zalloc(sizeof(*p))) != NULL) {
		p->key = of.key;
		g->announced -= g->announced > 0;
		HASH_ADD(hh, g->peers, key, sizeof(p->key), p);
		if (p->hh.tbl == NULL) {
			mem_free(p);
			p = NULL;
		} else if (!is_sibling(g, id)) {
			log_info("%s: another proxy has come", db->name);
		}
	}
	if (p != NULL)
		p->gone_since = 0;
}

static void begin_look(struct qdb *db)
{
	struct peer *p;

	CHECK_QDB(db);
	for (p = db->registry != NULL ? db->registry->peers : NULL; p != NULL; p = p->hh.next)
		if (p->gone_since == 0)
			p->gone_since = loop_now();
}

static void end_look(struct qdb *db)
{
	struct registry *g = db->registry;
	usec_t now = loop_now(), grace = conf_current()->p.queue_orphan_grace;
	struct peer *p, *tmp;
	unsigned gone = 0;
	bool unseen;

	CHECK_QDB(db);
	if (g == NULL || !g->up || now < g->trust_at)
		return;
	HASH_ITER (hh, g->peers, p, tmp) {
		if (p->gone_since == 0 || now - p->gone_since < grace)
			continue;
		HASH_DEL(g->peers, p);
		mem_free(p);
		gone++;
	}
	if (gone == 1)
		log_warning("%s: another proxy is gone, what it held is given back", db->name);
	else if (gone > 1)
		log_warning("%s: %u other proxies are gone, what they held is given back", db->name,
			gone);
	/* one that came and went between two looks may have held something, too */
	unseen = g->announced > 0 && now - g->announced_at >= grace;
	if (unseen)
		g->announced = 0;
	if (gone > 0 || unseen || !g->looked_back)
		g->scans++;
	g->looked_back = true;
	scan_all(db);
}

static bool hurries(const struct qdb *db)
{
	const struct registry *g = db->registry;

	CHECK_QDB(db);
	return g != NULL &&
	       (g->peers != NULL || !g->looked_back || g->announced > 0 || more_is_left(db));
}

/* --- other processes of this program --- */

/* Another one has that number; ours. */
static int32_t sibling_number(struct qdb *db, int process, int32_t id)
{
	struct registry *g = registry_get(db);

	CHECK_QDB(db);
	if (g == NULL)
		return 0;
	g->siblings[process] = id;
	return g->id;
}

/* What its backends carry out to their end is found by the look that finds its lock gone. */
static void sibling_gone(struct qdb *db, int process)
{
	struct registry *g = db->registry;
	int32_t id = g != NULL ? g->siblings[process] : 0;

	CHECK_QDB(db);
	if (id == 0)
		return;
	g->siblings[process] = 0;
	for (struct peer *p = g->peers; p != NULL; p = p->hh.next)
		p->dead |= p->key.id == id;
	/* before that others may be there that were not seen yet */
	if (!g->up || loop_now() < g->trust_at)
		return;
	g->scans++;
	scan_all(db);
}

/* --- in the system session --- */

static void session_up(struct qdb *db)
{
	struct registry *g = registry_get(db);

	if (g == NULL)
		return; /* nobody is told of anything, until it is up once more */
	g->step = STEP_LOCK;
	g->numbers = 0;
	g->next_at = 0;
}

/* When may be looked for one that has come? */
static usec_t hello_due(const struct registry *g)
{
	const usec_t most = (HELLOS_MAX - 1) * HELLO_PAUSE;

	return g->hellos > 0 ? g->hellos_until - (most < g->hellos_until ? most : g->hellos_until)
			     : USEC_NEVER;
}

/* Who is there, and awake? The look under way may have begun before that was said. */
static void look_soon(struct qdb *db)
{
	struct registry *g = db->registry;
	usec_t due;

	if (g == NULL)
		return;
	g->hellos++;
	due = hello_due(g);
	g->next_at = due < g->next_at ? due : g->next_at;
	system_work(db);
}

/* Another proxy has come. */
static void hello(struct qdb *db)
{
	struct registry *g = db->registry;

	if (g != NULL && g->announced++ == 0)
		g->announced_at = loop_now();
	look_soon(db);
}

static void hello_answered(struct registry *g)
{
	usec_t now = loop_now();

	if (g->hellos == 0)
		return;
	g->hellos = 0;
	g->hellos_until = (now < g->hellos_until ? g->hellos_until : now) + HELLO_PAUSE;
}

static usec_t step_due(const struct qdb *db)
{
	return db->registry != NULL ? db->registry->next_at : USEC_NEVER;
}

static const char look_sql[] =
	"WITH held AS MATERIALIZED (SELECT l.objid, l.pid, a.usesysid AS role, "
	"pg_catalog.bool_or(l.classid = " ASLEEP_CLASS ") AS asleep FROM pg_catalog.pg_locks AS l "
	"JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted "
	"AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) "
	"AND l.classid IN (" LOCK_CLASS ", " ASLEEP_CLASS ") AND l.objsubid = 2 "
	"GROUP BY 1, 2, 3 HAVING pg_catalog.bool_or(l.classid = " LOCK_CLASS ")), "
	"rightful AS MATERIALIZED (SELECT r.role FROM (SELECT DISTINCT role FROM held) AS r "
	"WHERE pg_catalog.has_table_privilege(r.role, pg_catalog.to_regclass('queue.queues'), 'INSERT') "
	"OR pg_catalog.has_table_privilege(r.role, pg_catalog.to_regclass('queue.proxies'), 'INSERT') "
	"OR EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.relnamespace = pg_catalog.to_regnamespace('queue') "
	"AND c.relkind = 'r' AND pg_catalog.left(c.relname, 2) = 'q_' "
	"AND pg_catalog.has_table_privilege(r.role, c.oid, 'UPDATE'))) "
	"SELECT h.objid AS proxy, h.role, pg_catalog.bool_or(h.pid = pg_catalog.pg_backend_pid()) AS own, "
	"pg_catalog.bool_and(h.asleep) AS asleep "
	"FROM held AS h JOIN rightful AS r ON r.role = h.role GROUP BY 1, 2 ORDER BY 3 DESC, 4 LIMIT " OTHERS_MAX;

/* A shared lock that is not to be had: somebody has locked our number alone. The empty notification
 * tells others that we are there. */
static bool step(struct qdb *db, struct buf *sql)
{
	struct registry *g = db->registry;

	g->rows = g->others = g->awake = 0;
	g->locked = g->counts = false;
	if (g->step == STEP_LOOK) {
		hello_answered(g);
		buf_puts(sql, look_sql);
		return true;
	}
	g->numbers++;
	buf_printf(sql,
		"SELECT pg_catalog.pg_try_advisory_lock_shared(" LOCK_CLASS
		", %d) AS locked, pg_catalog.pg_notify('" SYSTEM_CHANNEL "', '')",
		registry_number(db));
	return true;
}

static void step_row(struct qdb *db, const char *const *cols, int n)
{
	struct registry *g = db->registry;
	int64_t id, role;
	bool other;

	if (g->step == STEP_LOCK) {
		g->locked = cols[0] != NULL && cols[0][0] == 't';
		return;
	}
	if (g->rows++ == 0)
		begin_look(db);
	if (n != 4 || cols[0] == NULL || cols[1] == NULL || cols[2] == NULL || cols[3] == NULL ||
		!util_parse_i64(cols[0], strlen(cols[0]), &id) ||
		!util_parse_i64(cols[1], strlen(cols[1]), &role) || id <= 0 || id > INT32_MAX)
		return;
	if (id == registry_number(db) && cols[2][0] == 't')
		g->counts = true;
	other = id != registry_number(db) && !is_sibling(g, (int32_t)id);
	g->others += other;
	g->awake += other && cols[3][0] != 't';
	see(db, (int32_t)id, (uint32_t)role);
}

static void lock_tried(struct qdb *db, bool failed)
{
	struct registry *g = db->registry;

	g->step = STEP_LOOK;
	if (g->locked || failed)
		return;
	if (g->numbers < NUMBERS_MAX) {
		g->step = STEP_LOCK;
		other_id(db);
		return;
	}
	log_warning(
		"%s: somebody else has locked all numbers that were tried: what is taken here is given back with the "
		"end of its lease only, if this proxy dies",
		db->name);
}

/* Who has said meanwhile that he is to be told was perhaps not seen yet. */
static enum system_others others_seen(const struct registry *g)
{
	if (g->awake > 0 || g->hellos > 0)
		return OTHERS_AWAKE;
	return g->others > 0 ? OTHERS_ASLEEP : OTHERS_NONE;
}

/* Leases get our number as long as others see that it is ours. */
static void looked(struct qdb *db)
{
	struct registry *g = db->registry;
	const char *role = system_role(db);

	if (g->rows == 0)
		begin_look(db);
	if (g->counts)
		lock_counts(db);
	else
		lock_is_lost(db);
	if (!g->counts && !g->told && role != NULL)
		log_warning(
			"%s: the lock of role %s says nothing to other proxies: they do not tell us of their pushes, and what is "
			"taken here is given back with the end of its lease only, if this proxy dies. "
			"GRANT INSERT ON queue.proxies TO %s",
			db->name, role, role);
	g->told = !g->counts && role != NULL;
	system_looked(db, others_seen(g), g->counts);
	end_look(db);
}

static void step_ended(struct qdb *db, bool failed)
{
	struct registry *g = db->registry;
	usec_t due;

	if (g->step == STEP_LOCK) {
		lock_tried(db, failed);
		return;
	}
	if (!failed)
		looked(db);
	due = hello_due(g);
	g->next_at = loop_now() + (hurries(db) || !g->counts ? LOOK_IN_HURRY : LOOK_AGAIN);
	g->next_at = due < g->next_at ? due : g->next_at;
}

void registry_start(void)
{
	static const struct system_listener listener = {
		.up = session_up, .down = lock_is_lost, .hello = hello, .awake = look_soon};
	static const struct system_chore chore = {
		.due = step_due, .step = step, .row = step_row, .ended = step_ended};

	static const struct siblings_ops siblings = {
		.number = sibling_number, .gone = sibling_gone};

	siblings_start(&siblings);
	system_listen(&listener);
	system_add_chore(&chore);
}

void registry_free(struct qdb *db)
{
	struct registry *g = db->registry;
	struct peer *p, *tmp;

	CHECK_QDB(db);
	if (g == NULL)
		return;
	HASH_ITER (hh, g->peers, p, tmp) {
		HASH_DEL(g->peers, p);
		mem_free(p);
	}
	mem_free(g);
	db->registry = NULL;
}
