/*
 * What a server will answer, and the statements that are prepared on it: which are there as far as
 * is answered, and which are when all that was sent succeeds. The unnamed one, too.
 *
 * Entry points: server_expect() of pool_int.h, extq_server_prepare(), server_has_prepared(),
 * server_expect_free() for answers that have come or never will.
 */
#include "pool/reading.h"
#include "pool/rooms.h"

static unsigned prepared_limit(const struct server *s)
{
	int n = conf_current()->p.max_prepared_statements;

	if (s->use.engine)
		return (unsigned)conf_current()->p.queue_engine_statements;
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

void server_forget_all_prepared(struct server *s)
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
		build_parse(b, name, p->text.sql, p->text.len, pstmt_oids(p), p->n_oids);
	else
		build_close(b, 'S', name);
	sprep_sent(s, sp, parse);
	sp->batch = s->batch.sent;
	sp->pending++;
	if (parse)
		return server_expect(s, EXPECT_PARSE, dest, pstmt_ref(p));
	return server_expect(
		s, EXPECT_CLOSE, dest->beside != NULL ? dest->beside : dest, pstmt_ref(p));
}

/* Makes room for one more. */
static bool close_oldest(struct server *s, const struct dest *dest, struct buf *b)
{
	struct sprep *sp, *tmp;

	DL_FOREACH_SAFE (s->prepared_lru, sp, tmp) {
		if (s->n_prepared < prepared_limit(s))
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
		if (sp->sent && !sp->stale && !in_doubt(s, sp, dest->beside != NULL))
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
	case EXPECT_PARSED:
	case EXPECT_CLOSED:
	case EXPECT_COPY_DATA:
	case EXPECT_COPY_END:
		break;
	}
	e->arg = NULL;
}

void server_expect_failed(
	struct server *s, enum expect_kind kind, const struct dest *dest, void *arg)
{
	CHECK_SERVER(s);
	server_expect_free(
		s, &(struct expect){.kind = (uint8_t)kind, .dest = dest, .arg = arg}, false);
	server_close(s, "too many answers outstanding", NULL);
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
