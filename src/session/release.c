/*
 * From a client, or from a task, back to the pool: what has to be put right on a server before it
 * is anybody's again, and what becomes of one whose client has gone.
 *
 * Entry points: server_release() of one that is at rest; server_unlink_abandoned(); server_forsake() of one that is kept;
 * server_check() of one that was idle for long.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/answer.h"
#include "session_int.h"

#define DISCARD_ALL "DISCARD ALL"

/* What is left of a session that nobody has read may be a statement_timeout of a millisecond. When that is over at the
 * end of DISCARD ALL, Postgres notes it and tells the next statement, which is somebody else's (57014). Behind this one
 * it is DISCARD ALL that is told, and the server goes. */
#define NO_TIMEOUT "SET statement_timeout = 0"

/* Of a session that is kept for the next job: what would end or change the statements of ours around that, and what it
 * would keep from others (locks, notifications, the memory of cursors). The rest stays; encoding and styles are put in
 * force with the next task. */
#define TIDY                                                                                       \
	"RESET SESSION AUTHORIZATION; RESET ROLE; RESET statement_timeout; RESET lock_timeout;"    \
	" RESET idle_in_transaction_session_timeout; RESET default_transaction_isolation;"         \
	" RESET default_transaction_read_only; RESET default_transaction_deferrable;"              \
	" RESET application_name; RESET qbouncer.tell; CLOSE ALL; UNLISTEN *;"                     \
	" SELECT pg_catalog.pg_advisory_unlock_all()"

/* What ends a session, or a transaction, by the clock, in versions that have it. */
#define TIDY_14 "RESET idle_session_timeout; "
#define TIDY_17 "RESET transaction_timeout; "

/* As the servers of its pool have said; 0: they have not. */
static int server_major(const struct pool *p)
{
	struct wire_reader r;

	wire_reader_init(&r, p->welcome_rest.data, p->welcome_rest.len);
	while (wire_left(&r) > 0) {
		const char *name, *value;

		(void)wire_get_u8(&r);
		(void)wire_get_i32(&r);
		name = wire_get_cstr(&r, NULL);
		value = wire_get_cstr(&r, NULL);
		if (!r.failed && strcmp(name, "server_version") == 0)
			return atoi(value);
	}
	return 0;
}

static const char *tidy(const struct server *s)
{
	int major = server_major(s->pool);

	return major >= 17 ? TIDY_17 TIDY_14 TIDY : major >= 14 ? TIDY_14 TIDY : TIDY;
}

static enum relay_step reset_failed(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)e;
	return relay_error_ends(r, m, false, "reset failed");
}

const struct dest dest_reset = {.tells = true, .error = reset_failed};

/* A client that has gone, or does not read, may have stopped it. */
static void read_again(struct server *s)
{
	conn_want_read(s->conn, true);
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
	read_again(s);
	if (!put_reset(s, &b, rollback ? "ROLLBACK" : NULL) ||
		!put_reset(s, &b, s->trace.dirty || s->kept != NULL ? NO_TIMEOUT : NULL) ||
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
	intercept_orphan_events_end(s);
	s->throttled = s->batch.discarding = s->settings.settling = false;
	s->trace.dialect_doubt = s->trace.rare_doubt = false;
	copy_forget(s);
	s->settings.vars_stale = s->settings.discarded = false;
	session_released(s);
	s->mode = POOL_MODE_UNSET;
	server_drop_raw_unnamed(s);
	if (kept_needs_tidying(s)) {
		kept_is_tidy(s);
		clean(s, false, tidy(s));
		return;
	}
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
	server_move(s, s->kept != NULL  ? SERVER_KEPT
		       : s->cancels > 0 ? SERVER_CANCELLED
					: SERVER_IDLE);
	read_again(s);
	pool_mark_ready(s->pool);
}

void server_forsake(struct server *s)
{
	CHECK_SERVER(s);
	INVARIANT(s->kept != NULL && s->task == NULL, "a session is discarded that is not kept");
	kept_lost(s);
	s->trace.unseen = true;
	if (s->state == SERVER_KEPT)
		server_release(s);
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
	read_again(s);
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
