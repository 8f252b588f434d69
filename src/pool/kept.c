/*
 * Sessions that are kept: what one task has left there is for the next one with the same key (task_spec.session), and for
 * nobody else. Such a server is SERVER_KEPT, which is in no list that others are given servers from; before that it is
 * tidied (SERVER_CLEANING), and already belongs to whoever claims it. A task claims one when it begins to wait, or when
 * one has become free meanwhile, and then waits for that one alone.
 *
 * Must not know: what a key stands for, and how long a session is worth keeping (task_ops.leaves); how what was left
 * there is put right or discarded (session/release.c).
 *
 * Entry points: kept_*.
 */
#include "pool/rooms.h"

struct kept {
	struct kept *prev, *next; /* while it is free; idle for longest first */
	struct server *server;
	struct task *task; /* that waits for it, or runs there; NULL: it is free */
	bool tidy;
	struct task_session of;
};

static struct {
	struct kept *free;
	unsigned n_free;
} all;

static void set_free(struct kept *k)
{
	k->task = NULL;
	DL_APPEND(all.free, k);
	all.n_free++;
}

static void take(struct kept *k, struct task *t)
{
	INVARIANT(k->task == NULL && all.n_free > 0, "a session is claimed twice");
	DL_DELETE(all.free, k);
	all.n_free--;
	k->task = t;
	t->kept = k;
}

/* --- those who want one --- */

static struct kept *last_used(const struct task *t)
{
	struct kept *k, *found = NULL;

	DL_FOREACH (all.free, k)
		if (k->of.key == t->session && k->server->pool == t->pool &&
			!k->server->close_needed)
			found = k;
	return found;
}

void kept_claim(struct task *t)
{
	struct kept *k = t->session != 0 && t->kept == NULL ? last_used(t) : NULL;

	CHECK_TASK(t);
	if (k == NULL)
		return;
	take(k, t);
	t->pool->n_claims++;
}

struct server *kept_server(const struct task *t)
{
	struct server *s = t->kept->server;

	CHECK_TASK(t);
	return s->state == SERVER_KEPT && pool_may_use(s) && !route_stopped(t->pool->db) ? s : NULL;
}

/* It does not wait any more. */
static void claim_ends(struct task *t)
{
	INVARIANT(t->pool->n_claims > 0, "more claims end than there are");
	t->pool->n_claims--;
	t->kept = NULL;
}

void kept_unclaim(struct task *t)
{
	struct kept *k = t->kept;

	CHECK_TASK(t);
	if (k == NULL)
		return;
	INVARIANT(k->task == t && t->server == NULL, "a claim is given up that is none");
	claim_ends(t);
	set_free(k);
}

void kept_begins(struct task *t, const struct server *s)
{
	CHECK_TASK(t);
	INVARIANT(s->kept == t->kept, "a task is given the session of others");
	if (t->kept == NULL)
		return;
	t->pool->n_claims--;
	t->kept->tidy = false;
}

/* --- what they leave --- */

static struct kept *kept_new(struct server *s, uint64_t key)
{
	struct kept *k = mem_zalloc(sizeof(*k));

	if (k == NULL)
		return NULL;
	k->server = s;
	k->of = (struct task_session){.key = key, .until = USEC_NEVER};
	s->kept = k;
	return k;
}

/* A cancel request that is on its way would meet the next one. */
static bool is_well(const struct task *t, const struct server *s)
{
	return t->session != 0 && !t->failed && t->ops != NULL && t->ops->leaves != NULL &&
	       s->tx == 'I' && s->cancels == 0 && !s->close_needed;
}

bool kept_leave(struct task *t, struct server *s)
{
	struct kept *k = s->kept;

	CHECK_TASK(t);
	CHECK_SERVER(s);
	INVARIANT(k == t->kept, "a task has run in a session that is not its own");
	if (k == NULL && is_well(t, s))
		k = kept_new(s, t->session);
	if (k == NULL)
		return false;
	t->kept = NULL;
	k->task = NULL;
	if (!is_well(t, s) || !t->ops->leaves(t->arg, &k->of)) {
		s->kept = NULL;
		mem_free(k);
		return false;
	}
	set_free(k);
	return true;
}

bool kept_needs_tidying(const struct server *s)
{
	CHECK_SERVER(s);
	return s->kept != NULL && !s->kept->tidy;
}

void kept_is_tidy(struct server *s)
{
	CHECK_SERVER(s);
	s->kept->tidy = true;
}

/* --- the end --- */

void kept_lost(struct server *s)
{
	struct kept *k = s->kept;

	CHECK_SERVER(s);
	if (k == NULL)
		return;
	s->kept = NULL;
	if (k->task == NULL) {
		DL_DELETE(all.free, k);
		all.n_free--;
	} else if (k->task->server == NULL) {
		claim_ends(k->task);
	} else {
		k->task->kept = NULL;
	}
	mem_free(k);
}

bool kept_is_over(const struct server *s, usec_t now)
{
	CHECK_SERVER(s);
	return s->kept->task == NULL && now >= s->kept->of.until;
}

unsigned kept_free(void)
{
	return all.n_free;
}

struct server *kept_longest_idle(const struct pool *p)
{
	struct kept *k;

	DL_FOREACH (all.free, k)
		if (p == NULL || (k->server->pool == p && k->server->state == SERVER_KEPT))
			return k->server;
	return NULL;
}

static bool is_under(const struct kept *k, const struct pool *p, bool of_db)
{
	return of_db ? k->server->pool->db == p->db : k->server->pool->account == p->account;
}

unsigned kept_unused(const struct pool *p, bool of_db)
{
	const struct kept *k;
	unsigned n = 0;

	CHECK_POOL(p);
	DL_FOREACH (all.free, k)
		n += is_under(k, p, of_db);
	return n;
}

void kept_makes_room(struct pool *p, bool of_db)
{
	struct kept *k;

	CHECK_POOL(p);
	DL_FOREACH (all.free, k)
		if (is_under(k, p, of_db))
			break;
	if (k == NULL)
		return;
	server_close(k->server, "makes room for another job", NULL);
	pool_mark_ready(p);
}

struct server *kept_of(uint64_t key)
{
	struct kept *k;

	DL_FOREACH (all.free, k)
		if (k->of.key == key)
			return k->server;
	return NULL;
}

const struct task_session *kept_session(const struct task *t)
{
	CHECK_TASK(t);
	return t->kept != NULL ? &t->kept->of : NULL;
}
