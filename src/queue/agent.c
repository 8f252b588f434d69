/*
 * With whose login the proxy does what changes rows on its own account: maintenance, and the jobs
 * of proxies that are gone. Code that a table carries runs with the rights of whoever changes it,
 * and SET ROLE is no boundary for it. So each role is there for its own queues and for those that
 * it has taken from through this proxy, and no superuser for any but his own; the functions see to
 * that, they are told what was used (queue._visits). Must not know: what is done.
 *
 * Entry points: agent_*.
 */
#include <string.h>

#include "auth/auth.h"
#include "wire/array.h"
#include "agent.h"
#include "queue_int.h"

#define AGENTS_MAX 1000  /* of a database */
#define USED_MAX   10000 /* of a role */

struct used {
	UT_hash_handle hh;
	/* has it been looked whether a proxy that is gone held something there? */
	enum { USED_NEW, USED_ASKED, USED_LOOKED } looked;
	char queue[QSTMT_QUEUE_MAX + 1];
};

struct agent *agent_get(struct qdb *db, const char *user)
{
	struct agent *a;

	CHECK_QDB(db);
	HASH_FIND_STR(db->agents, user, a);
	if (a != NULL || HASH_COUNT(db->agents) >= AGENTS_MAX)
		return a;
	a = mem_zalloc(sizeof(*a));
	if (a == NULL)
		return NULL;
	util_strlcpy(a->user, user, sizeof(a->user));
	HASH_ADD_STR(db->agents, user, a);
	if (a->hh.tbl != NULL)
		return a;
	mem_free(a);
	return NULL;
}

struct agent *agent_find(struct qdb *db, const char *user)
{
	struct agent *a;

	CHECK_QDB(db);
	HASH_FIND_STR(db->agents, user, a);
	return a;
}

/* Called for each take: the client's last queue is compared, and looked up if it is another one. */
void agent_took(struct taker *t, const char *queue)
{
	struct agent *a;
	struct used *u = NULL;

	CHECK_TAKER(t);
	if (strcmp(t->took, queue) == 0)
		return;
	a = agent_get(t->db, pool_user(t->pool));
	if (a == NULL)
		return;
	HASH_FIND_STR(a->used, queue, u);
	if (u == NULL && HASH_COUNT(a->used) < USED_MAX && (u = mem_zalloc(sizeof(*u))) != NULL) {
		util_strlcpy(u->queue, queue, sizeof(u->queue));
		HASH_ADD_STR(a->used, queue, u);
		if (u->hh.tbl == NULL) {
			mem_free(u);
			return;
		}
		a->n_used++;
		a->n_new++;
		t->scans = 0; /* and what proxies that are gone held there? */
	}
	if (u != NULL)
		util_strlcpy(t->took, queue, sizeof(t->took));
}

/* One that logs in as this role, if there may be one. Where the entry of the database has `user`,
 * all of them do as that. */
struct pool *agent_pool(struct qdb *db, const char *role)
{
	struct pool_target t;
	struct pool *pool;
	struct agent *a;

	for (a = db->agents; a != NULL; a = a->hh.next) {
		pool = pooler_find_pool(db->name, a->user);
		if (pool == NULL)
			continue;
		pool_target(pool, &t);
		if (t.force_user == NULL)
			break;
		return strcmp(t.force_user, role) == 0 ? pool : NULL;
	}
	HASH_FIND_STR(db->agents, role, a);
	return a != NULL || auth_user_find(role) != NULL ? pooler_find_pool(db->name, role) : NULL;
}

struct pool *agent_any_pool(struct qdb *db, unsigned nth)
{
	struct pool *pool, *found = NULL;
	unsigned n = 0;

	for (const struct agent *a = db->agents; a != NULL; a = a->hh.next)
		n += pooler_find_pool(db->name, a->user) != NULL;
	nth = n > 0 ? nth % n : 0;
	for (const struct agent *a = db->agents; a != NULL && found == NULL; a = a->hh.next)
		if ((pool = pooler_find_pool(db->name, a->user)) != NULL && nth-- == 0)
			found = pool;
	return found;
}

void agents_see(struct qdb *db)
{
	struct taker *t;

	CHECK_QDB(db);
	DL_FOREACH (takers(), t)
		if (t->db == db)
			agent_get(db, pool_user(t->pool));
}

static void put_used(struct buf *b, const struct agent *a)
{
	for (const struct used *u = a->used; u != NULL; u = u->hh.next)
		array_put_text(b, u->queue);
}

void agent_put_used(struct buf *b, const struct agent *a)
{
	size_t start = array_begin(b, OID_TEXT, false);

	put_used(b, a);
	array_end(b, start, (int)HASH_COUNT(a->used));
}

void agent_put_asked(struct buf *b, const struct agent *a)
{
	size_t start = array_begin(b, OID_TEXT, false);
	int n = 0;

	for (const struct used *u = a->used; u != NULL; u = u->hh.next)
		if (u->looked == USED_ASKED) {
			array_put_text(b, u->queue);
			n++;
		}
	array_end(b, start, n);
}

void agent_asked(struct agent *a)
{
	ASSERT(a->n_new <= a->n_used);
	for (struct used *u = a->used; u != NULL; u = u->hh.next)
		if (u->looked == USED_NEW)
			u->looked = USED_ASKED;
	a->n_new = 0;
}

void agent_looked(struct agent *a, bool at_all)
{
	ASSERT(!a->scanning);
	for (struct used *u = a->used; u != NULL; u = u->hh.next)
		if (u->looked == USED_ASKED) {
			u->looked = at_all ? USED_LOOKED : USED_NEW;
			a->n_new += !at_all;
		}
}

void agents_put(struct buf *users, struct buf *used, const struct qdb *db, uint64_t round)
{
	size_t at_users = array_begin(users, OID_TEXT, false);
	size_t at_used = array_begin(used, OID_TEXT, false);
	int n_users = 0, n_used = 0;

	CHECK_QDB(db);
	for (const struct agent *a = db->agents; a != NULL; a = a->hh.next) {
		if (a->maintained != round)
			continue;
		array_put_text(users, a->role);
		n_users++;
		if (a->is_super)
			continue;
		put_used(used, a);
		n_used += (int)HASH_COUNT(a->used);
	}
	array_end(users, at_users, n_users);
	array_end(used, at_used, n_used);
}

void agents_free(struct qdb *db)
{
	struct agent *a, *tmp;
	struct used *u, *utmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->agents, a, tmp) {
		HASH_ITER (hh, a->used, u, utmp) {
			HASH_DEL(a->used, u);
			mem_free(u);
		}
		HASH_DEL(db->agents, a);
		names_free(&a->scan_left);
		names_free(&a->left);
		clean_free(&a->clean);
		clean_free(&a->idle);
		mem_free(a);
	}
}
