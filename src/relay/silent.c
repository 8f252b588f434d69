/*
 * A server that does not answer a statement of our own: its host has gone without a word, its
 * process is stopped, or the statement just takes long. Many clients may be behind that statement,
 * so it is not waited for without end (queue_engine_timeout). Before the time is over another
 * connection of the pool is asked whether the process waits for a lock or for a synchronous
 * standby: then the server is there, and its answer will come. Otherwise the connection is closed,
 * without a cancel: the statement may be in its commit. The question goes before all that waits for a
 * connection, and has one more than the others may have (launch.c): who waits for a lock may be all of these.
 *
 * Entry point: silent_tick().
 */
#include "task_int.h"

#define SLOW 6 /* times the limit: statements that may take longer */

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct silent_look *l = arg;

	(void)body;
	(void)len;
	l->waits = true;
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct silent_look *l = arg;

	if (l->about != NULL) {
		l->about->look = NULL;
		if (err == NULL && l->waits && l->about->heard_at != USEC_NEVER) {
			l->about->heard_at = loop_now();
			l->about->asked_at = 0;
		}
	}
	mem_free(l);
}

/* Who is locked out is seen by everybody, whom a commit waits for by the same role. Without memory
 * it is not asked. */
static void look(struct task *t)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	static const uint32_t oid = OID_INT4;
	struct silent_look *l = mem_zalloc(sizeof(*l));
	uint32_t pid = (uint32_t)t->server->pid;
	uint8_t be[4] = {
		(uint8_t)(pid >> 24), (uint8_t)(pid >> 16), (uint8_t)(pid >> 8), (uint8_t)pid};
	struct bind_param param = {.data = be, .len = sizeof(be), .format = 1};
	struct task_spec spec = {.ops = &ops,
		.arg = l,
		.sql = "SELECT 1 WHERE EXISTS (SELECT FROM pg_catalog.pg_locks"
		       " WHERE pid OPERATOR(pg_catalog.=) $1 AND NOT granted) OR EXISTS"
		       " (SELECT FROM pg_catalog.pg_stat_activity"
		       " WHERE pid OPERATOR(pg_catalog.=) $1"
		       " AND wait_event OPERATOR(pg_catalog.=) 'SyncRep')",
		.prepare = true,
		.stays = true,
		.oids = &oid,
		.n_params = 1,
		.params = &param};
	struct task *question = l != NULL ? task_submit(t->pool, &spec) : NULL;

	if (question == NULL) {
		mem_free(l);
		return;
	}
	question->is_inspection = true;
	DL_DELETE(t->pool->tasks, question);
	DL_PREPEND(t->pool->tasks, question);
	l->about = t;
	t->look = l;
}

static usec_t limit_of(const struct task *t)
{
	usec_t limit = conf_current()->p.queue_engine_timeout;
	usec_t slow = limit < USEC_NEVER / SLOW ? limit * SLOW : limit;

	switch (t->time) {
	case TASK_BRIEF:
		return limit;
	case TASK_SLOW:
		return slow;
	case TASK_BESIDE:
		return t->steps.slow ? slow : 0;
	case TASK_UNLIMITED:
		break;
	}
	return 0;
}

/* What has been unused since then may be as dead as that one. */
static void close_unproven(struct database *db, usec_t since)
{
	struct server *s, *tmp;

	for (struct pool *p = db->pools; p != NULL; p = p->next)
		DL_FOREACH_SAFE (p->servers[SERVER_IDLE].head, s, tmp)
			if (s->idle_since < since)
				server_close(s, "another one of this database is silent", NULL);
}

static void give_up(struct server *s, usec_t limit)
{
	struct database *db = s->pool->db;
	usec_t since = s->request_time;
	struct pg_error err;

	pg_error_set(&err, "08007", "the server has not answered within %llu ms",
		(unsigned long long)(limit / USEC_MSEC));
	pg_error_detail(&err, "Whether the statement was carried out is not known.");
	pg_error_hint(&err, "The limit is queue_engine_timeout.");
	log_warning(
		"%s: a statement of the queue engine has no answer for %llu s, its connection is closed",
		server_prefix(s), (unsigned long long)((loop_now() - since) / USEC_SEC));
	conn_abort(&s->conn);
	server_close(s, "no answer within queue_engine_timeout", &err);
	close_unproven(db, since);
}

static void check(struct server *s, usec_t now)
{
	struct task *t = s->task;
	usec_t limit = limit_of(t), since, waited;

	since = t->heard_at != 0 ? t->heard_at : s->request_time;
	waited = now > since ? now - since : 0;
	if (limit == 0)
		return;
	if (waited >= limit)
		give_up(s, limit);
	else if (!t->is_inspection && t->asked_at == 0 && waited >= limit / 2) {
		t->asked_at = now;
		look(t);
	}
}

void silent_tick(struct pool *p, usec_t now)
{
	struct server *s, *tmp;

	CHECK_POOL(p);
	DL_FOREACH_SAFE (p->servers[SERVER_TASK].head, s, tmp)
		if (s->state == SERVER_TASK && s->task != NULL)
			check(s, now);
}
