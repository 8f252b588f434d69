/*
 * Statements of our own on a server of a pool. Values are bound; a script is simple protocol.
 */
#include <string.h>

#include "pool/reading.h"
#include "task_int.h"

static struct {
	uint64_t last_seq;
	/* of the client that asked last: those of others are the same nearly always */
	struct task_settings *settings;
} tasks;

/* --- settings --- */

struct task_settings {
	unsigned refs;
	struct vars vars;
	struct istr *extra;
};

static struct task_settings *settings_new(void)
{
	struct task_settings *s = mem_zalloc(sizeof(*s));

	if (s != NULL)
		s->refs = 1;
	return s;
}

static bool are_settings_of(const struct task_settings *s, const struct client *c)
{
	for (int i = 0; i < VAR_COUNT; i++)
		if (i != VAR_APPLICATION_NAME && s->vars.v[i] != c->vars.v[i])
			return false;
	return s->extra == c->extra;
}

struct task_settings *task_settings_of(const struct client *c)
{
	struct task_settings *s = tasks.settings;

	CHECK_CLIENT(c);
	if (s == NULL || !are_settings_of(s, c)) {
		s = settings_new();
		if (s == NULL)
			return NULL;
		vars_copy_missing(&s->vars, &c->vars);
		istr_drop(&s->vars.v[VAR_APPLICATION_NAME]);
		s->extra = istr_ref(c->extra);
		task_settings_free(&tasks.settings);
		tasks.settings = s;
	}
	s->refs++;
	return s;
}

struct task_settings *task_settings_of_pool(const struct pool *p)
{
	struct task_settings *s = settings_new();

	CHECK_POOL(p);
	if (s == NULL)
		return NULL;
	vars_copy_missing(&s->vars, &p->db->defaults);
	vars_copy_missing(&s->vars, &p->welcome);
	istr_drop(&s->vars.v[VAR_APPLICATION_NAME]);
	return s;
}

bool task_settings_name(struct task_settings *s, const char *application_name)
{
	vars_set(&s->vars, VAR_APPLICATION_NAME, application_name);
	return s->vars.v[VAR_APPLICATION_NAME] != NULL;
}

bool task_settings_utf8(struct task_settings *s)
{
	vars_set(&s->vars, VAR_CLIENT_ENCODING, "UTF8");
	return s->vars.v[VAR_CLIENT_ENCODING] != NULL;
}

void task_settings_free(struct task_settings **p)
{
	struct task_settings *s = *p;

	*p = NULL;
	if (s == NULL || --s->refs > 0)
		return;
	vars_clear(&s->vars);
	istr_drop(&s->extra);
	mem_free(s);
}

void task_settings_key(const struct task_settings *s, struct buf *key)
{
	buf_put(key, s->vars.v, sizeof(s->vars.v));
	buf_put(key, &s->extra, sizeof(s->extra));
}

bool pool_has_engine(const struct pool *p, const struct task_settings *s)
{
	CHECK_POOL(p);
	return (s == NULL || s->extra == NULL) && p->engines.n > 0;
}

/* --- life --- */

struct pstmt *task_text(const char *sql, size_t len, const uint32_t *oids, int n_oids)
{
	struct sql_text t;

	sql_text_init(&t, sql, len, SQL_STANDARD, SQL_OF_PARSE);
	return pstmt_get(NULL, &t, oids, n_oids);
}

void task_text_free(struct pstmt **p)
{
	pstmt_drop(p);
}

/* With a client: some of its own text may be in it. */
static struct pstmt *statement_of(const struct task_spec *spec)
{
	struct sql_text t;

	if (spec->text != NULL)
		return pstmt_ref(spec->text);
	if (spec->client == NULL)
		return task_text(spec->sql, strlen(spec->sql), spec->oids, spec->n_params);
	sql_text_init(&t, spec->sql, strlen(spec->sql), SQL_STANDARD, SQL_OF_PARSE);
	return reading_statement(spec->client, &t, spec->oids, spec->n_params);
}

static void put_how(struct task *t, const struct task_spec *spec)
{
	t->steps.describe = spec->describe;
	t->steps.slow = spec->slow;
	t->steps.row_max = spec->row_max;
	t->steps.before = spec->before;
	t->steps.behind = spec->behind;
}

struct task *task_submit(struct pool *p, const struct task_spec *spec)
{
	struct task *t = !pool_all.ends ? block_get(sizeof(*t)) : NULL;

	CHECK_POOL(p);
	INVARIANT(spec->ops != NULL && (spec->sql != NULL || spec->text != NULL),
		"a task without a text, or that nobody waits for");
	INVARIANT(spec->session == 0 || (!spec->prepare && !spec->engine && spec->client == NULL),
		"a task in a session that is kept knows what is prepared there, or has settings");
	if (t == NULL)
		return NULL;
	memset(t, 0, offsetof(struct task, err));
	t->magic = TASK_MAGIC;
	t->pool = p;
	t->ops = spec->ops;
	t->arg = spec->arg;
	t->prepare = spec->prepare;
	put_how(t, spec);
	t->kind = spec->kind;
	t->stays = spec->stays;
	t->leaves = spec->leaves;
	t->session = spec->session;
	t->time = spec->time;
	t->since = loop_now();
	t->seq = ++tasks.last_seq;
	if (spec->script) {
		t->script = mem_strdup(spec->sql);
	} else {
		t->stmt = statement_of(spec);
		task_put_values(&t->bind, spec);
	}
	if ((spec->script ? t->script == NULL : t->stmt == NULL) || buf_failed(&t->bind)) {
		task_free(t);
		return NULL;
	}
	if (spec->client != NULL) {
		vars_copy_missing(&t->vars, &spec->client->vars);
		t->extra = istr_ref(spec->client->extra);
	}
	if (spec->settings != NULL) {
		vars_copy_missing(&t->vars, &spec->settings->vars);
		t->extra = istr_ref(spec->settings->extra);
	}
	t->engine = spec->engine && t->extra == NULL;
	t->together = t->engine ? spec->together : 0;
	DL_APPEND(p->tasks, t);
	p->n_tasks++;
	kept_claim(t);
	pool_mark_ready(p);
	return t;
}

bool task_drop(struct task **pp)
{
	struct task *t = *pp;

	*pp = NULL;
	if (t == NULL)
		return true;
	CHECK_TASK(t);
	INVARIANT(t->ops != NULL, "a task is dropped twice");
	t->ops = NULL;
	if (t->server != NULL)
		return false;
	INVARIANT(t->pool->n_tasks > 0, "more tasks leave a pool than wait there");
	DL_DELETE(t->pool->tasks, t);
	t->pool->n_tasks--;
	task_free(t);
	return true;
}

bool task_is_sent(const struct task *t)
{
	return t->server != NULL;
}

int32_t task_backend_pid(const struct task *t)
{
	CHECK_TASK(t);
	return t->server != NULL ? t->server->pid : 0;
}

void task_met(struct task *t, size_t tables)
{
	struct server *s = t->server;

	CHECK_TASK(t);
	INVARIANT(s != NULL && s->task == t, "what was not sent has met something");
	s->tables += tables < TASK_MET_MOST ? tables : TASK_MET_MOST;
	if (s->tables >= TASK_MET_MOST)
		s->close_needed = true;
}

usec_t task_sent_at(const struct task *t)
{
	return t->server != NULL ? t->server->request_time : 0;
}

unsigned task_dialect(const struct task *t)
{
	CHECK_TASK(t);
	return vars_dialect(&t->server->vars);
}

bool task_cancel(struct task *t)
{
	CHECK_TASK(t);
	if (t->server == NULL)
		return false;
	t->together = 0; /* if it is undone with others, it does not come again */
	return cancel_server(t->server);
}

bool task_is_cancelled(const struct task *t)
{
	CHECK_TASK(t);
	return t->server != NULL && t->server->cancels > 0;
}

bool task_may_rest(const struct task *t)
{
	int most = conf_current()->p.queue_pool_size / 2, n = 0;
	const struct server *s;

	CHECK_TASK(t);
	DL_FOREACH (t->pool->servers[SERVER_TASK].head, s)
		n += s->task != NULL && s->task != t && s->task->heard_at == USEC_NEVER;
	return n < (most > 1 ? most : 1);
}

void task_rest(struct task *t, bool rests)
{
	CHECK_TASK(t);
	INVARIANT(t->server != NULL, "a task rests that was not sent");
	t->heard_at = rests ? USEC_NEVER : loop_now();
	t->asked_at = 0;
	if (t->server->conn != NULL)
		conn_want_read(t->server->conn, !rests);
}

void task_abandon(struct task *t)
{
	struct pg_error err;

	CHECK_TASK(t);
	if (t->server == NULL)
		return;
	pg_error_set(&err, "08006", "the server does not answer");
	pg_error_detail(&err, "Whether the statement was carried out is not known.");
	conn_abort(&t->server->conn);
	server_close(t->server, "no answer to a cancel", &err);
}

int32_t task_lost_in(const struct task *t)
{
	return t->lost_in;
}

bool task_change(struct task *t, const struct task_spec *spec)
{
	struct pstmt *stmt = statement_of(spec);
	struct buf bind = BUF_INIT;

	CHECK_TASK(t);
	task_put_values(&bind, spec);
	if (stmt == NULL || buf_failed(&bind)) {
		pstmt_drop(&stmt);
		buf_free(&bind);
		return false;
	}
	pstmt_drop(&t->stmt);
	buf_free(&t->bind);
	t->stmt = stmt;
	t->bind = bind;
	t->kind = spec->kind;
	t->together = t->engine ? spec->together : 0;
	return true;
}

bool task_go_on(struct task *t, const struct task_spec *spec, bool undoes)
{
	CHECK_TASK(t);
	INVARIANT(t->server != NULL && t->script == NULL && t->after == NULL && !t->prepare,
		"a task goes on that is not under way, or is one of several");
	if (!task_change(t, spec))
		return false;
	put_how(t, spec);
	t->steps.undone |= undoes;
	t->steps.goes_on = true;
	return true;
}

/* --- running --- */

static bool send_script(struct task *t, struct server *s, struct buf *b)
{
	build_query(b, t->script);
	server_drop_unnamed(s);
	if (!server_expect(s, EXPECT_QUERY, &dest_task, NULL))
		return false;
	expect_at(&s->expect, s->expect.count - 1u)->final = true;
	return true;
}

/* A statement that has no values and gives no rows. */
static bool send_plain(struct server *s, struct buf *b, const char *sql)
{
	static const struct task_spec none;
	struct buf values = BUF_INIT;
	bool ok;

	if (sql == NULL)
		return true;
	task_put_values(&values, &none);
	build_parse(b, "", sql, strlen(sql), NULL, 0);
	server_drop_unnamed(s);
	ok = !buf_failed(&values) && server_expect(s, EXPECT_PARSE, &dest_task, NULL) &&
	     task_put_execute(s, b, "", &values, &dest_task, false);
	buf_free(&values);
	return ok;
}

static bool send_statement(struct task *t, struct server *s, struct buf *b)
{
	char name[PSTMT_NAME_SIZE] = "";

	if (!send_plain(s, b, t->steps.before))
		return false;
	if (t->prepare) {
		if (!extq_server_prepare(s, t->stmt, &dest_task))
			return false;
		pstmt_name(t->stmt, name);
	} else {
		build_parse(b, "", t->stmt->text.sql, t->stmt->text.len, pstmt_oids(t->stmt),
			t->stmt->n_oids);
		server_drop_unnamed(s);
		if (!server_expect(s, EXPECT_PARSE, &dest_task, NULL))
			return false;
	}
	if (t->steps.describe) {
		build_describe(b, 'S', name);
		if (!server_expect(s, EXPECT_DESCRIBE, &dest_task, NULL))
			return false;
	}
	if (!task_put_execute(s, b, name, &t->bind, &dest_task, false) ||
		!send_plain(s, b, t->steps.behind))
		return false;
	build_simple(b, 'S');
	if (!server_expect(s, EXPECT_SYNC, &dest_task, NULL))
		return false;
	expect_at(&s->expect, s->expect.count - 1u)->final = true;
	return true;
}

/* Any failure closes the server, and that ends the task. */
static void send_task(struct task *t, struct server *s)
{
	struct buf b = BUF_INIT;

	if (t->script != NULL      ? send_script(t, s, &b)
		: t->after != NULL ? together_send(t, s, &b)
				   : send_statement(t, s, &b)) {
		server_send(s, &b);
	} else {
		buf_free(&b);
		server_close(s, "out of memory", NULL);
	}
}

/* A SET of who has left the session stays in force, but for what tells how to read it. */
static void put_settings(struct task *t, struct server *s)
{
	if (s->kept != NULL)
		istr_drop(&t->vars.v[VAR_TIMEZONE]);
	server_put_settings(s, &t->vars, t->extra, &dest_task);
}

void task_start(struct task *t, struct server *s)
{
	CHECK_TASK(t);
	CHECK_SERVER(s);
	INVARIANT(t->server == NULL && s->task == NULL,
		"a task is started twice, or two on one server");
	INVARIANT(
		s->link == NULL && s->expect.count == 0, "a task gets a server that somebody has");
	INVARIANT(t->engine || !s->use.engine, "a task gets a server that is not for its like");
	if (s->use.engine && affinity_may_share(t, loop_now()))
		together_gather(t, s, loop_now());
	for (struct task *each = t; each != NULL; each = each->after)
		each->server = s;
	affinity_began(t, s);
	kept_begins(t, s);
	s->task = t;
	s->use.checked = false;
	s->use.served = true;
	s->request_time = loop_now();
	server_move(s, SERVER_TASK);
	put_settings(t, s);
	if (s->state != SERVER_DEAD && !s->settings.settling)
		send_task(t, s);
}

/* A server that waits for data ignores the Sync that was sent behind its statement (protocol: "COPY Operations"). */
void task_refuse_copy(struct server *s)
{
	struct buf b = BUF_INIT;
	size_t start = build_begin(&b, 'f');

	build_cstr(&b, "nobody is there to send data");
	build_end(&b, start);
	if (s->task->script == NULL)
		build_simple(&b, 'S');
	server_send(s, &b);
}

/* The rows of its own statement, not of the settings before it. */
static void row(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	const struct task *t = s->task;

	if (t == NULL || t->ops == NULL || t->ops->row == NULL ||
		(e->kind != EXPECT_EXECUTE && !e->final))
		return;
	if (wire_complete(m))
		t->ops->row(t->arg, m->body, m->have);
	else
		t->ops->row(t->arg, NULL, m->total);
}

static bool passes_over(const struct server *s, const struct wire_msg *m)
{
	const struct task *t = s->task;

	return t != NULL && t->ops != NULL && t->steps.row_max > 0 && m->total > t->steps.row_max;
}

static void columns(struct server *s, const struct wire_msg *m)
{
	const struct task *t = s->task;

	if (t != NULL && t->ops != NULL && t->ops->columns != NULL)
		t->ops->columns(t->arg, m->body, m->have);
}

static void tag(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	const struct task *t = s->task;

	if (t != NULL && t->ops != NULL && t->ops->tag != NULL && wire_complete(m) &&
		(e->kind == EXPECT_EXECUTE || e->final))
		t->ops->tag(t->arg, m->body, m->have);
}

static void notice(struct server *s, const struct wire_msg *m)
{
	const struct task *t = s->task;

	if (t != NULL && t->ops != NULL && t->ops->notice != NULL && !s->settings.settling)
		t->ops->notice(t->arg, m->body, m->have);
}

static void event(struct server *s, const char *text, const char *tx)
{
	struct task *t = s->task;

	if (t != NULL && intercept_queue != NULL && intercept_queue->task_event != NULL)
		intercept_queue->task_event(t->pool, text, tx, &t->events);
}

static enum relay_step error(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	bool batch = relay_in_batch(e);

	if (r->s->task != NULL)
		task_note_error(r->s->task, m->body, m->have);
	if (batch)
		relay_batch_failed(r);
	return RELAY_DROP;
}

/* Another statement of it follows. */
static bool goes_on(struct task *t, struct server *s)
{
	if (t->ops == NULL || t->ops->next == NULL)
		return false;
	t->steps.goes_on = false;
	t->ops->next(t->arg, s->tx, t->failed ? &t->err : NULL);
	if (!t->steps.goes_on)
		return false;
	t->failed = false;
	send_task(t, s);
	return true;
}

/* Its last ReadyForQuery has come: the server first, then the news. */
static void finished(struct server *s)
{
	struct task *t = s->task;

	INVARIANT(t->server == s, "a task ends on another server");
	if (goes_on(t, s))
		return;
	if (t->heard_at == USEC_NEVER)
		task_rest(t, false); /* its last rows came with its end */
	s->task = NULL;
	if (!kept_leave(t, s) && t->leaves == TASK_LEAVES_SESSION)
		s->trace.unseen = true;
	if (!t->failed)
		affinity_took(t, loop_now() - s->request_time);
	if (s->tx != 'I')
		server_close(s, "transaction left open by a task", NULL);
	else
		server_release(s);
	task_end_events(t, !t->failed && !t->steps.undone);
	task_end(t, t->failed ? &t->err : NULL);
}

static void ready(struct relay *r, bool last)
{
	struct server *s = r->s;
	struct task *t = s->task;

	if (t == NULL)
		return;
	if (last) {
		finished(s);
	} else if (s->settings.settling && t->failed) {
		/* they were refused: what is in force is not what we noted */
		server_close(s, "settings refused", &t->err);
	} else if (s->settings.settling) {
		s->settings.settling = false;
		send_task(t, s);
	}
}

const struct dest dest_task = {.tells = true,
	.row = row,
	.columns = columns,
	.passes_over = passes_over,
	.tag = tag,
	.notice = notice,
	.event = event,
	.ready = ready,
	.error = error};

static struct task *first_to_fail(
	const struct pool *p, uint64_t last, usec_t until, bool has_engine)
{
	struct task *t;

	DL_FOREACH (p->tasks, t)
		if (t->seq > last || t->since > until)
			return NULL;
		else if (!(has_engine && t->engine))
			return t;
	return NULL;
}

void task_fail_waiting(struct pool *p, const struct pg_error *err, usec_t until, bool has_engine)
{
	uint64_t last = tasks.last_seq;
	struct task *t;

	CHECK_POOL(p);
	/* done() may drop others that wait, and bring in new ones, which are not failed with this
	 * error */
	while ((t = first_to_fail(p, last, until, has_engine)) != NULL) {
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		task_end(t, err);
	}
}

static struct task *first_late(const struct pool *p, usec_t limit, usec_t now)
{
	struct task *t;

	DL_FOREACH (p->tasks, t)
		if (now - t->since > limit && !t->stays)
			return t;
		else if (now - t->since <= limit && !t->is_inspection)
			return NULL;
	return NULL;
}

void task_fail_late(struct pool *p, usec_t limit, usec_t now)
{
	struct pg_error err;
	struct task *t;

	CHECK_POOL(p);
	while ((t = first_late(p, limit, now)) != NULL) {
		pg_error_set(&err, "53300", "query_wait_timeout");
		pool_explain_limit(p, &err);
		DL_DELETE(p->tasks, t);
		p->n_tasks--;
		task_end(t, &err);
	}
}

/* --- pools as the owners of tasks know them --- */

const char *pool_database(const struct pool *p)
{
	return p->db->name;
}

const char *pool_user(const struct pool *p)
{
	return istr_text(p->user);
}

static const char *find_address(const struct pool *p, char *dst, size_t size)
{
	const struct server *s;

	dst[0] = '\0';
	for (int i = SERVER_IDLE; i < SERVER_DEAD; i++)
		DL_FOREACH (p->servers[i].head, s)
			if (s->conn != NULL && !s->close_needed && !conn_peer(s->conn)->is_unix) {
				util_strlcpy(dst, conn_peer(s->conn)->host, size);
				return istr_text(s->host);
			}
	return p->db->host;
}

void pool_target(const struct pool *p, struct pool_target *ret)
{
	CHECK_POOL(p);
	ret->host = find_address(p, ret->address, sizeof(ret->address));
	ret->hosts = p->db->host;
	ret->port = p->db->port;
	ret->dbname = p->db->dbname;
	ret->queue_user = p->db->queue_user;
	ret->queue_password = p->db->queue_password;
	ret->force_user = p->db->user;
	ret->force_password = p->db->password;
}
