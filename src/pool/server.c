/*
 * A connection to Postgres: its life, the list it is in, what was prepared on it, and which
 * settings are in force. Logging in is server_login.c, what it says is relay.c.
 *
 *   LOGIN -> IDLE <-> ACTIVE (a client) -> [FINISHING ->] CLEANING -> IDLE
 *                <-> TASK (our own statement)      any -> DEAD, freed by the reaper
 */
#include <stdio.h>
#include <string.h>

#include "relay_int.h"
#include "reading.h"
#include "session_int.h"

#define DISCARD_ALL "DISCARD ALL"
#define CHECK_HOLDS USEC_SEC

struct server_list server_dead;
static struct slab *slab;

static struct server_list *list_of(struct server *s)
{
	return s->state == SERVER_DEAD ? &server_dead : &s->pool->servers[s->state];
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
	INVARIANT(to != SERVER_ACTIVE || s->link != NULL, "a server is active without a client");
	INVARIANT(to != SERVER_TASK || s->task != NULL, "a server runs a task and has none");
	INVARIANT(to != SERVER_FINISHING || s->expect.count > 0, "a server finishes nothing");
	DL_DELETE(l->head, s);
	l->count--;
	s->state = (uint8_t)to;
	list_add(s);
}

struct server *server_adopt(struct pool *p)
{
	struct server *s;

	CHECK_POOL(p);
	if (slab == NULL && (slab = slab_new("server", sizeof(struct server))) == NULL)
		return NULL;
	s = slab_get(slab);
	if (s == NULL)
		return NULL;
	s->magic = SERVER_MAGIC;
	s->state = SERVER_LOGIN;
	s->tx = 'I';
	s->pool = p;
	s->use.alone = true;
	s->id = pooler_next_id();
	s->connect_time = s->request_time = loop_now();
	list_add(s);
	p->db->n_servers++;
	p->account->servers++;
	return s;
}

struct server *server_launch_for(struct pool *p, const struct dest *unasked)
{
	struct server *s = server_adopt(p);

	CHECK_POOL(p);
	if (s == NULL)
		return NULL;
	s->unasked = unasked;
	if (!server_login_start(s)) {
		server_close(s, "out of memory", NULL);
		return NULL;
	}
	return s;
}

struct server *server_launch(struct pool *p)
{
	return server_launch_for(p, NULL);
}

const char *server_prefix(const struct server *s)
{
	static char text[512];
	const char *host = s->host != NULL ? istr_text(s->host) : s->pool->db->host;

	if (host == NULL || *host == '\0' || *host == '/' || *host == '@')
		host = "unix";
	snprintf(text, sizeof(text), "S-0x%llx: %s/%s@%s:%d", (unsigned long long)s->id,
		s->pool->db->name, istr_text(s->pool->user), host, s->pool->db->port);
	return text;
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

void server_close(struct server *s, const char *reason, const struct pg_error *for_client)
{
	struct pool *p = s->pool;
	struct task *t = s->task;
	struct pg_error err;

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
	cancel_forget_server(s);
	affinity_lost(s);
	if (p->for_inspection == s)
		p->for_inspection = NULL;
	if (s->unasked != NULL && s->unasked->lost != NULL)
		s->unasked->lost(s, for_client);
	pool_mark_ready(p);
	s->task = NULL;
	if (t != NULL) {
		if (for_client == NULL)
			for_client = pg_error_set(
				&err, "08006", "server closed the connection unexpectedly");
		t->lost_in = s->pid != 0 ? s->pid : -1;
		task_end(t, t->failed ? &t->err : for_client);
	}
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

void server_expect_failed(
	struct server *s, enum expect_kind kind, const struct dest *dest, void *arg)
{
	CHECK_SERVER(s);
	server_expect_free(
		s, &(struct expect){.kind = (uint8_t)kind, .dest = dest, .arg = arg}, false);
	server_close(s, "too many answers outstanding", NULL);
}

static enum relay_step reset_failed(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)e;
	return relay_error_ends(r, m, false, "reset failed");
}

const struct dest dest_reset = {.note = dest_note, .error = reset_failed};

/* --- prepared statements --- */

static unsigned prepared_limit(void)
{
	int n = conf_current()->p.max_prepared_statements;

	return n > 0 ? (unsigned)n : 100;
}

static void sprep_free(struct server *s, struct sprep *sp)
{
	if (sp->sent)
		s->n_prepared--;
	HASH_DEL(s->prepared, sp);
	DL_DELETE(s->prepared_lru, sp);
	pstmt_drop(&sp->p);
	mem_free(sp);
}

static void sprep_sent(struct server *s, struct sprep *sp, bool sent)
{
	s->n_prepared += (sent ? 1u : 0u) - (sp->sent ? 1u : 0u);
	sp->sent = sent;
}

static struct sprep *sprep_find(const struct server *s, struct pstmt *p)
{
	struct sprep *sp;

	HASH_FIND_PTR(s->prepared, &p, sp);
	return sp;
}

static void forget_all_prepared(struct server *s)
{
	while (s->prepared_lru != NULL)
		sprep_free(s, s->prepared_lru);
}

void server_forget_prepared(struct server *s)
{
	struct sprep *sp, *tmp;

	CHECK_SERVER(s);
	DL_FOREACH_SAFE (s->prepared_lru, sp, tmp) {
		sp->there = false;
		if (sp->pending == 0)
			sprep_free(s, sp);
	}
}

void server_plans_stale(struct database *db)
{
	struct server *s;
	struct sprep *sp;

	CHECK_DATABASE(db);
	for (struct pool *p = db->pools; p != NULL; p = p->next)
		for (int i = 0; i < SERVER_DEAD; i++)
			DL_FOREACH (p->servers[i].head, s)
				DL_FOREACH (s->prepared_lru, sp)
					sp->stale = true;
}

void server_drop_unnamed(struct server *s)
{
	CHECK_SERVER(s);
	pstmt_drop(&s->unnamed.p);
	s->unnamed.state = UNNAMED_NONE;
}

void server_unnamed_is_raw(struct server *s, unsigned touches)
{
	CHECK_SERVER(s);
	server_drop_unnamed(s);
	s->unnamed.state = UNNAMED_RAW;
	s->unnamed.touches = touches;
}

void server_drop_raw_unnamed(struct server *s)
{
	CHECK_SERVER(s);
	if (server_has_raw_unnamed(s))
		s->unnamed.state = UNNAMED_NONE;
}

bool server_has_unnamed(const struct server *s, const struct pstmt *p)
{
	CHECK_SERVER(s);
	return s->unnamed.p == p &&
	       (s->unnamed.state == UNNAMED_THERE || s->unnamed.batch == s->batch.sent);
}

/* The answer to a Parse or a Close of ours has come, or it was skipped. */
static void sprep_answered(struct server *s, struct pstmt *p, bool parse, bool ok)
{
	struct sprep *sp = sprep_find(s, p);

	if (sp == NULL)
		return;
	INVARIANT(sp->pending > 0, "more Parse and Close were answered than were sent");
	sp->pending--;
	if (ok)
		sp->there = parse;
	else if (sp->pending == 0)
		sprep_sent(s, sp, sp->there);
	if (sp->pending == 0 && !sp->there)
		sprep_free(s, sp);
}

bool server_expect_unnamed(struct server *s, struct pstmt *p, const struct dest *dest)
{
	CHECK_SERVER(s);
	pstmt_ref(p);
	server_drop_unnamed(s);
	s->unnamed.p = p;
	s->unnamed.state = UNNAMED_SENT;
	s->unnamed.batch = s->batch.sent;
	if (!server_expect(s, EXPECT_PARSE, dest, pstmt_ref(p)))
		return false;
	expect_at(&s->expect, s->expect.count - 1u)->unnamed = true;
	return true;
}

#define SEARCHED_FOR_BEGIN 64

/* A block is aborted, or may be when what is outstanding has been answered. One that is not open
 * yet begins in a string, or where the client has executed BEGIN (local_execute_tx). */
static bool block_in_doubt(struct server *s)
{
	if (s->tx != 'I' || s->expect.count > SEARCHED_FOR_BEGIN)
		return s->tx == 'E' || s->expect.count > 0;
	for (unsigned i = 0; i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		if ((e->dest->may_begin & 1u << e->kind) != 0)
			return true;
	}
	return false;
}

/* What was sent for it is in a batch that may fail before it; or it will be gone when DISCARD ALL
 * has run. Parsed in an aborted block: the server has to say whether it takes that statement there.
 */
static bool in_doubt(struct server *s, const struct sprep *sp, bool parse)
{
	if (sp->pending > 0)
		return sp->batch != s->batch.sent;
	return s->batch.discarding || (parse && block_in_doubt(s));
}

bool server_has_prepared(struct server *s, struct pstmt *p)
{
	const struct sprep *sp = sprep_find(s, p);

	CHECK_SERVER(s);
	return sp != NULL && sp->sent && !sp->stale && !in_doubt(s, sp, true);
}

static struct sprep *sprep_add(struct server *s, struct pstmt *p)
{
	struct sprep *sp = mem_zalloc(sizeof(*sp));

	if (sp == NULL)
		return NULL;
	sp->p = p;
	HASH_ADD_PTR(s->prepared, p, sp);
	if (sp->hh.tbl == NULL) {
		mem_free(sp);
		return NULL;
	}
	pstmt_ref(p);
	DL_APPEND(s->prepared_lru, sp);
	return sp;
}

/* Adds a Parse or a Close to b. */
static bool sprep_change(
	struct server *s, struct sprep *sp, bool parse, const struct dest *dest, struct buf *b)
{
	char name[PSTMT_NAME_SIZE];
	struct pstmt *p = sp->p;

	pstmt_name(p, name);
	if (parse)
		build_parse(b, name, pstmt_sql(p), p->sql_len, pstmt_oids(p), p->n_oids);
	else
		build_close(b, 'S', name);
	sprep_sent(s, sp, parse);
	sp->batch = s->batch.sent;
	sp->pending++;
	if (parse)
		return server_expect(s, EXPECT_PARSE, dest, pstmt_ref(p));
	return server_expect(
		s, EXPECT_CLOSE, dest == &dest_client ? &dest_swallow : dest, pstmt_ref(p));
}

/* Makes room for one more. */
static bool close_oldest(struct server *s, const struct dest *dest, struct buf *b)
{
	struct sprep *sp, *tmp;

	DL_FOREACH_SAFE (s->prepared_lru, sp, tmp) {
		if (s->n_prepared < prepared_limit())
			return true;
		if (sp->sent && !sprep_change(s, sp, false, dest, b))
			return false;
	}
	return true;
}

/* Makes the statement known on the server, under its own name. dest: for whom ParseComplete is. */
bool extq_server_prepare(struct server *s, struct pstmt *p, const struct dest *dest)
{
	struct sprep *sp = sprep_find(s, p);
	struct buf b = BUF_INIT;
	bool ok = true, is_new = false;

	CHECK_SERVER(s);
	if (sp != NULL) {
		DL_DELETE(s->prepared_lru, sp);
		DL_APPEND(s->prepared_lru, sp);
		if (sp->sent && !sp->stale && !in_doubt(s, sp, dest == &dest_client))
			return true;
	} else if ((sp = sprep_add(s, p)) == NULL) {
		server_close(s, "out of memory", NULL);
		return false;
	} else {
		is_new = true;
	}
	if (!server_put_reading(s, p, false))
		return false;
	if (!is_new)
		ok = sprep_change(s, sp, false, dest, &b);
	ok = ok && close_oldest(s, dest, &b) && sprep_change(s, sp, true, dest, &b);
	if (!ok) {
		buf_free(&b);
		return false;
	}
	sp->stale = reading_is_missed(s, p);
	s->pool->stats.server_parses++;
	return server_send(s, &b) && server_put_reading(s, p, true);
}

/* The answer to a Parse or a Close has come, or was skipped. Takes the reference. */
static void statement_answered(struct server *s, const struct expect *e, struct pstmt *p, bool ok)
{
	if (!e->unnamed)
		sprep_answered(s, p, e->kind == EXPECT_PARSE, ok);
	else if (s->unnamed.p == p && ok)
		s->unnamed.state = UNNAMED_THERE;
	else if (s->unnamed.p == p)
		server_drop_unnamed(s);
	pstmt_drop(&p);
}

/* What an entry owns. ok: its answer came without error. */
void server_expect_free(struct server *s, struct expect *e, bool ok)
{
	void *arg = e->arg;

	if (arg == NULL)
		return;
	if (e->dest->free != NULL) {
		e->dest->free(s, e, ok);
		return;
	}
	switch ((enum expect_kind)e->kind) {
	case EXPECT_QUERY:
		istr_drop((struct istr **)&e->arg);
		break;
	case EXPECT_PARSED:
	case EXPECT_CLOSED:
		extq_local_done(s->link, e, ok);
		break;
	case EXPECT_LOCAL:
		buf_free(arg);
		mem_free(arg);
		break;
	case EXPECT_PARSE:
	case EXPECT_CLOSE:
		statement_answered(s, e, arg, ok);
		break;
	case EXPECT_FUNCTION:
	case EXPECT_BIND:
	case EXPECT_DESCRIBE:
	case EXPECT_EXECUTE:
	case EXPECT_SYNC:
	case EXPECT_COPY_DATA:
	case EXPECT_COPY_END:
		break;
	}
	e->arg = NULL;
}

/* --- the reaper --- */

static void free_one(struct server *s)
{
	struct expect *e;

	while ((e = expect_head(&s->expect)) != NULL) {
		server_expect_free(s, e, false);
		s->expect.head = (uint16_t)((s->expect.head + 1u) & (s->expect.cap - 1u));
		s->expect.count--;
	}
	mem_free(s->expect.e);
	server_login_free(s);
	forget_all_prepared(s);
	server_drop_unnamed(s);
	vars_clear(&s->vars);
	istr_drop(&s->extra);
	istr_drop(&s->sqlprep);
	session_forget_prepared(s);
	buf_free(&s->trace.custom);
	inspect_free(s);
	istr_drop(&s->host);
	util_erase(s->key, sizeof(s->key));
	s->magic = 0;
	slab_put(slab, s);
}

void server_free_slabs(void)
{
	slab_free(&slab);
}

void server_reap(void)
{
	struct server *s, *tmp;

	DL_FOREACH_SAFE (server_dead.head, s, tmp) {
		DL_DELETE(server_dead.head, s);
		server_dead.count--;
		free_one(s);
	}
}

/* --- settings --- */

/* Must the settings be in force before anything else is sent? A role may be refused, and settings
 * that no server has seen yet too; a task speaks for many. */
static bool must_settle(const struct server *s, struct istr *extra)
{
	if (s->extra == extra)
		return false;
	return s->link == NULL || !s->link->proven || settings_identity_differs(s->extra, extra);
}

void server_put_settings(
	struct server *s, const struct vars *v, struct istr *extra, const struct dest *dest)
{
	struct buf sql = BUF_INIT;

	CHECK_SERVER(s);
	/* the same client as before, or one like it: nearly always */
	if (s->extra == extra && memcmp(&s->vars, v, sizeof(*v)) == 0)
		return;
	if (!vars_diff_sql(&s->vars, v, s->extra, extra, s->settings.extra_stale, &sql))
		return;
	s->settings.settling = must_settle(s, extra);
	s->settings.extra_stale = false;
	s->pool->stats.replays++;
	istr_ref(extra);
	istr_drop(&s->extra);
	s->extra = extra;
	(void)server_query(s, &sql, dest);
}

/* --- to a client and back --- */

enum pool_mode server_pool_mode(const struct server *s)
{
	return s->mode != POOL_MODE_UNSET ? (enum pool_mode)s->mode : route_pool_mode(s->pool);
}

enum pool_mode client_pool_mode(const struct client *c)
{
	return c->link != NULL ? server_pool_mode(c->link) : route_pool_mode(c->pool);
}

void server_link(struct server *s, struct client *c)
{
	usec_t now = loop_now();

	CHECK_SERVER(s);
	CHECK_CLIENT(c);
	INVARIANT(s->link == NULL && c->link == NULL, "a server or a client is given away twice");
	INVARIANT(s->expect.count == 0 && s->task == NULL,
		"a server is given away that owes answers");
	INVARIANT(s->pool == c->pool, "a client gets a server of another pool");
	s->mode = (uint8_t)route_pool_mode(s->pool);
	s->link = c;
	c->link = s;
	s->use.checked = false;
	s->use.served = true;
	s->request_time = s->use.held_since = now;
	s->use.alone &= s->use.holder == 0 || s->use.holder == (int32_t)(c->key >> 32);
	s->use.holder = (int32_t)(c->key >> 32);
	server_move(s, SERVER_ACTIVE);
	s->pool->stats.server_assignments++;
	server_put_settings(s, &c->vars, c->extra, &dest_vars);
}

/* A query that may be NULL or empty. */
static bool put_reset(struct server *s, struct buf *b, const char *query)
{
	if (query == NULL || query[0] == '\0')
		return true;
	build_query(b, query);
	return server_expect(s, EXPECT_QUERY, &dest_reset, NULL);
}

static void clean(struct server *s, bool rollback, const char *reset_query)
{
	struct buf b = BUF_INIT;

	if (s->state != SERVER_CLEANING)
		server_move(s, SERVER_CLEANING);
	conn_want_read(s->conn, true);
	if (!put_reset(s, &b, rollback ? "ROLLBACK" : NULL) ||
		!put_reset(s, &b, s->trace.dirty ? DISCARD_ALL : NULL) ||
		!put_reset(s, &b, reset_query))
		goto out;
	s->request_time = loop_now();
	s->trace.touched_behind = 0;
	server_drop_unnamed(s);
	server_send(s, &b);
out:
	buf_free(&b);
}

void server_release(struct server *s)
{
	struct client *c = s->link;

	CHECK_SERVER(s);
	INVARIANT(s->task == NULL, "a server is released in its task");
	if (c != NULL) {
		INVARIANT(c->link == s, "client and server are not linked both ways");
		c->link = NULL;
		s->link = NULL;
	}
	if (s->expect.count > 0 || s->pass_left > 0 || s->tx != 'I' || copy_takes_data(s) ||
		s->batch.unsynced) {
		log_write(
			LOG_LVL_ERROR, server_prefix(s), "not at rest when it was to be released");
		server_close(s, "not at rest", NULL);
		return;
	}
	s->throttled = s->batch.discarding = s->settings.settling = false;
	s->trace.dialect_doubt = s->trace.rare_doubt = false;
	copy_forget(s);
	s->settings.vars_stale = s->settings.discarded = false;
	session_released(s);
	s->mode = POOL_MODE_UNSET;
	server_drop_raw_unnamed(s);
	if (s->trace.unseen) {
		s->trace.dirty = true;
		s->pool->stats.resets++;
		clean(s, false, NULL);
		return;
	}
	expect_shrink(&s->expect);
	s->idle_since = loop_now();
	if (s->close_needed) {
		server_close(s, "close_needed", NULL);
		return;
	}
	if (s->use.served && s->pool->db->server_lifetime == 0) {
		server_close(s, "server lifetime over", NULL);
		return;
	}
	server_move(s, s->cancels > 0 ? SERVER_CANCELLED : SERVER_IDLE);
	/* a client that does not read may have stopped it */
	conn_want_read(s->conn, true);
	pool_mark_ready(s->pool);
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

void server_check(struct server *s)
{
	const char *query = conf_current()->p.server_check_query;

	CHECK_SERVER(s);
	clean(s, false, strcmp(query, "<empty>") == 0 ? ";" : query);
	s->use.checked = true;
}

/* Statements that were sent whole run to their end, as in Postgres; nobody hears the answers. */
static void finish_first(struct server *s)
{
	s->pass_discard = true;
	s->request_time = loop_now();
	server_move(s, SERVER_FINISHING);
	conn_want_read(s->conn, true);
}

/* Answers to what we asked on behalf of the client, or for it. */
static bool owes_only_us(struct server *s)
{
	for (unsigned i = 0; i < s->expect.count; i++) {
		const struct dest *dest = expect_at(&s->expect, i)->dest;

		if (dest->seen != SEEN_NOTHING && !dest->setup)
			return false;
	}
	return s->pass_left == 0;
}

/*
 * Its client is gone. A server that owes nothing is rolled back, reset if the pool mode asks for
 * it, and kept; one in the middle of a statement is cancelled and closed, unless the client said
 * goodbye behind it.
 */
void server_unlink_abandoned(struct server *s, bool said_goodbye)
{
	const struct params *p = &conf_current()->p;
	bool reset = server_keeps_session(s) || p->server_reset_query_always;
	const char *query = reset ? p->server_reset_query : NULL;
	bool rollback = s->tx != 'I', dirty = session_is_dirty(s);

	CHECK_SERVER(s);
	/* whatever the operator's query does beside it */
	if (dirty && query != NULL && util_strcasecmp(query, DISCARD_ALL) == 0)
		query = NULL;
	s->trace.dirty = dirty;
	s->settings.settling = false;

	if (s->link != NULL)
		s->link->link = NULL;
	s->link = NULL;
	if (s->expect.count > 0 && !copy_takes_data(s) && !s->batch.unsynced &&
		(said_goodbye || owes_only_us(s))) {
		finish_first(s);
	} else if (s->expect.count > 0 || copy_takes_data(s) || s->pass_left > 0 ||
		   s->batch.unsynced) {
		/* a Sync of ours would commit what the client had not finished */
		if (s->expect.count > 0)
			cancel_server(s);
		server_close(s, "client left in the middle of a statement", NULL);
	} else if (rollback || dirty || (query != NULL && query[0] != '\0')) {
		s->pool->stats.resets += dirty || (query != NULL && query[0] != '\0');
		clean(s, rollback, query);
	} else {
		server_release(s);
	}
}
