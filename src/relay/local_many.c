/*
 * Several statements in one string, some of them a claimant's: each of those is replaced, and the
 * string is sent as one, so that its implicit transaction is kept. So is DEALLOCATE of a statement
 * that the server knows by another name, or not at all.
 *
 * A statement that no server carries out (TAKE) may be the last of a string that leaves a block
 * open, as in "BEGIN; QUEUE TAKE mail": what is before it goes first, without its ReadyForQuery,
 * and `string_at` of the client says how far the string at the head of its input has come.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "extq_int.h"
#include "local_int.h"

/* How many characters a text has, as far as they have been counted: each is counted once. */
struct counted {
	size_t bytes;
	int characters;
};

struct many {
	struct client *c;
	struct replaced *rp;
	struct buf sql;
	struct counted ours, theirs; /* of sql; of the whole string */
	struct pg_error err;
	bool waits; /* for what the claimant has to find out: all of it comes again */
};

static int characters_to(struct counted *k, const char *text, size_t bytes)
{
	k->characters += sql_char_position(text + k->bytes, text + bytes) - 1;
	k->bytes = bytes;
	return k->characters;
}

/* The replacement stands at the end of m->sql, its statement that many characters behind the start.
 */
static void shift_spans(struct many *m, struct replace *r, int statement)
{
	const char *text = buf_cstr(&m->sql);
	int ours;

	if (buf_failed(&m->sql))
		return;
	ours = characters_to(&m->ours, text, m->sql.len);
	for (int i = 0; i < r->n_spans; i++) {
		r->spans[i].ours += ours;
		r->spans[i].theirs += statement;
	}
}

/* start: of the whole string, in which an error has its position. */
static bool add_claimed(struct many *m, const char *start, const struct sql_text *t)
{
	struct lstmt *l = local_claim_simple(m->c, t->sql, t->len, &m->err);
	struct exec x;
	bool ok = false;

	if (l == NULL) {
		if (m->err.position > 0)
			m->err.position += sql_char_position(start, t->sql) - 1;
		return false;
	}
	local_exec_init(&x, m->c, l, true);
	x.alone = x.by_itself = false;
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		m->rp->list[m->rp->at] = x.replace;
		shift_spans(
			m, x.replace, characters_to(&m->theirs, start, (size_t)(t->sql - start)));
		local_put(&m->sql, &x.replace->sql);
		ok = true;
		break;
	case EXEC_ERROR:
		m->err = x.err;
		break;
	case EXEC_WAIT:
		m->waits = true;
		break;
	case EXEC_ANSWER:
	case EXEC_PARK:
	case EXEC_CLOSE:
		answer_free(&x.answer);
		pg_error_set(&m->err, "0A000",
			"this QUEUE statement has to be alone in its query string");
		pg_error_hint(&m->err, "Send it as a statement of its own.");
		break;
	}
	lstmt_drop(&l);
	return ok;
}

/* --- DEALLOCATE --- */

static void deallocated(struct client *c, void *arg, bool ok, uint64_t n)
{
	struct cstmt *st = ok ? extq_find(c, arg) : NULL;

	(void)n;
	if (st != NULL)
		extq_forget(c, &st);
}

/* NULL: it is another statement. */
static const char *deallocated_name(struct sql_text *t)
{
	const struct sql_session *st = sql_session(t);

	return st->kind == SQL_SESSION_DEALLOCATE ? (const char *)st->name.data : NULL;
}

/* A name of ours, by which the server has a statement of other clients too. */
static bool is_of_all(const struct client *c, const char *name)
{
	return cstmt_tracks_names(c) && pstmt_is_name(name);
}

/* One that changes nothing, and fails where it would, stands in its place. */
static bool add_deallocate(struct many *m, const char *name)
{
	struct replace *r = mem_zalloc(sizeof(*r));

	if (r == NULL || (r->arg = mem_strdup(name)) == NULL) {
		mem_free(r);
		pg_error_set(&m->err, "53200", "out of memory");
		return false;
	}
	r->free_arg = mem_free;
	m->c->link->batch.discarding = true; /* what is behind it depends on it */
	r->tag = REPLACE_TAG_FIXED;
	r->tag_text = "DEALLOCATE";
	r->on_done = deallocated;
	m->rp->list[m->rp->at] = r;
	buf_puts(&m->sql, "SELECT");
	return true;
}

/* --- the string --- */

static bool add_statement(struct many *m, const char *start, struct sql_text *t)
{
	const char *name = deallocated_name(t);
	bool ok = true;

	if (m->c->icpt->claim(m->c, t) == CLAIM_MINE)
		ok = add_claimed(m, start, t);
	else if (name != NULL && extq_find(m->c, name) != NULL)
		ok = add_deallocate(m, name);
	else if (name != NULL && is_of_all(m->c, name))
		buf_puts(&m->sql, "DEALLOCATE \"qb_\""); /* there is none, and it fails there */
	else
		buf_put(&m->sql, t->sql, t->len);
	/* on a line of its own: the statement may end in a -- comment */
	buf_puts(&m->sql, "\n;");
	m->rp->at++;
	return ok;
}

/* Sends it, n statements. part: the string goes on when they are answered, but not
 * when one of them failed here (*ret_failed): then all of it is answered. */
static enum step send_statements(
	struct client *c, struct sql_text *t, int n, bool part, bool *ret_failed)
{
	struct many m = {.c = c, .rp = replaced_new(n)};
	struct sql_text one;
	size_t pos = 0;
	bool ok = true, refused;

	if (m.rp == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	while (ok && sql_text_next(t, &pos, &one)) {
		ok = add_statement(&m, t->sql, &one);
		sql_text_free(&one);
	}
	refused = ok && session_pin_refused(c, t);
	*ret_failed = !ok || refused;
	m.rp->at = 0;
	if (m.waits) {
		replaced_free(&m.rp, NULL, false);
		buf_free(&m.sql);
		return client_wait_again(c);
	}
	if (!ok || refused) {
		replaced_free(&m.rp, c, false);
		buf_free(&m.sql);
		return refused ? client_refuse_pin(c, true) : client_error(c, &m.err, true);
	}
	session_touch(c, t, session_touches(c, t));
	m.rp->part = part;
	return local_send_string(c, m.rp, &m.sql);
}

/* --- a last statement that is apart --- */

struct string {
	int n;                       /* statements */
	struct sql_text first, last; /* of which no more is known than the first word */
	bool begins, ends;           /* a block, before the last */
};

static void read_string(const struct sql_text *t, struct string *ret)
{
	size_t pos = 0;
	struct sql_text one;

	*ret = (struct string){0};
	while (sql_text_next(t, &pos, &one)) {
		if (ret->n++ == 0) {
			ret->first = one;
		} else {
			enum sql_tx tx = sql_tx(&ret->last);

			ret->begins |= tx == SQL_TX_BEGIN;
			ret->ends |= tx == SQL_TX_COMMIT || tx == SQL_TX_ROLLBACK;
		}
		ret->last = one;
	}
}

/* Is it one that no server carries out, behind a part that leaves a block open? */
static bool is_apart(struct client *c, struct string *str)
{
	struct stmt_shape shape = {0};
	struct pg_error err;
	struct lstmt *l;

	if (str->ends || !(str->begins || client_tx(c) != CLIENT_TX_IDLE) || c->pool == NULL ||
		client_pool_mode(c) == POOL_MODE_STATEMENT ||
		c->icpt->claim(c, &str->last) != CLAIM_MINE)
		return false;
	l = local_claim_simple(c, str->last.sql, str->last.len, &err);
	if (l == NULL)
		return false;
	l->icpt->stmt_shape(l->stmt, &shape);
	lstmt_drop(&l);
	return (!shape.in_place || shape.barrier) && !shape.own_server;
}

/* BEGIN and nothing else before it needs no server. */
static enum step send_first_part(
	struct client *c, const struct sql_text *t, const struct string *str)
{
	size_t at = (size_t)(str->last.sql - t->sql);
	enum step step = STEP_MORE;
	bool failed = false;

	if (str->n == 2 && str->begins)
		step = local_begin(c, &str->first);
	if (step == STEP_MORE) {
		struct sql_text part;

		if (!client_need_server(c))
			return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
		sql_text_init(&part, t->sql, at, t->dialect, SQL_OF_QUERY);
		step = send_statements(c, &part, str->n - 1, true, &failed);
		sql_text_free(&part);
	}
	if (step != STEP_NEXT || failed || c->state == CLIENT_DEAD)
		return step;
	c->head.string_at = (uint32_t)at;
	return local_string_rest(c, t->sql, at + str->last.len);
}

enum step local_string_rest(struct client *c, const char *sql, size_t len)
{
	CHECK_CLIENT(c);
	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	if (c->head.string_at == STRING_FAILED)
		return STEP_NEXT;
	return local_simple(c, sql + c->head.string_at, len - c->head.string_at);
}

enum step local_simple_many(struct client *c, struct sql_text *t)
{
	struct string str;
	bool failed;

	CHECK_CLIENT(c);
	read_string(t, &str);
	if (str.n == 1)
		return local_simple(c, t->sql, t->len);
	if (client_tx(c) == CLIENT_TX_FAILED && c->tx.virtual == VTX_FAILED)
		return local_aborted(c, true);
	if (c->icpt->ready != NULL && !c->icpt->ready(c))
		return client_wait_again(c);
	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	if (is_apart(c, &str))
		return send_first_part(c, t, &str);
	if (!client_need_server(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	return send_statements(c, t, str.n, false, &failed);
}

/* Among others. STEP_MORE: it has nothing of this. */
enum step local_deallocate_string(struct client *c, struct sql_text *t)
{
	struct sql_text one;
	size_t pos = 0;
	bool found = false;

	CHECK_CLIENT(c);
	if ((c->stmts == NULL && !cstmt_tracks_names(c)) ||
		!sql_has_statement(t, SQL_WORD_DEALLOCATE))
		return STEP_MORE;
	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	while (!found && sql_text_next(t, &pos, &one)) {
		const char *name = deallocated_name(&one);

		found = name != NULL && (extq_find(c, name) != NULL || is_of_all(c, name));
		sql_text_free(&one);
	}
	return found ? local_simple_many(c, t) : STEP_MORE;
}
