/*
 * What drivers and pools say when a connection is checked out or in (DISCARD ALL, RESET ALL, SET
 * application_name ...), of a client that has no server: it is answered without one.
 */
#include <stdio.h>
#include <string.h>

#include "pool/settings.h"
#include "wire/sqltext.h"
#include "local_int.h"

/* No server has a part in its session. */
static bool is_possible(const struct client *c)
{
	return c->link == NULL && c->tx.virtual == VTX_NONE && c->pool != NULL &&
	       client_pool_mode(c) != POOL_MODE_SESSION && c->pins == 0;
}

/* As Postgres keeps it without changing it. */
static bool is_plain_name(const struct buf *value)
{
	if (value->len == 0 || value->len > 64)
		return false;
	for (size_t i = 0; i + 1 < value->len; i++)
		if (value->data[i] < 32 || value->data[i] > 126)
			return false;
	return true;
}

static const char *text_of(const struct buf *b)
{
	return b->len > 0 ? (const char *)b->data : "";
}

static bool is_ours(const struct client *c, const struct sql_session *st)
{
	const char *name = text_of(&st->name);

	switch (st->kind) {
	case SQL_SESSION_RESET:
		return var_find(name) >= 0 || settings_find(c->extra, name) != NULL ||
		       settings_find(c->origin, name) != NULL;
	case SQL_SESSION_SET:
		return var_find(name) == VAR_APPLICATION_NAME && is_plain_name(&st->value);
	case SQL_SESSION_UNLISTEN:
	case SQL_SESSION_RESET_ALL:
	case SQL_SESSION_DISCARD_ALL:
	case SQL_SESSION_DISCARD_PART:
	case SQL_SESSION_DEALLOCATE_ALL:
	case SQL_SESSION_CLOSE_ALL:
	case SQL_SESSION_UNLOCK_ALL:
		return st->kind != SQL_SESSION_UNLISTEN || st->name.len == 0;
	case SQL_SESSION_OTHER:
	case SQL_SESSION_LISTEN:
	case SQL_SESSION_PREPARE:
	case SQL_SESSION_DEALLOCATE:
		break;
	}
	return false;
}

/* --- doing it --- */

static bool set_name(struct client *c, const char *value, struct buf *status)
{
	vars_set(&c->vars, VAR_APPLICATION_NAME, value);
	build_parameter_status(status, var_name(VAR_APPLICATION_NAME), value);
	return true;
}

static bool reset_one(struct client *c, const char *name, struct buf *status)
{
	const char *value = settings_find(c->origin, name);
	int id = var_find(name);

	/* as in Postgres, the role ends with the identity that it was taken by */
	if (strcmp(name, "session_authorization") == 0 && !settings_set(&c->extra, "role", NULL))
		return client_out_of_memory(c);
	if (id < 0)
		return settings_set(&c->extra, name, value) || client_out_of_memory(c);
	if (value == NULL || strcmp(value, istr_text(c->vars.v[id])) == 0)
		return true;
	vars_set(&c->vars, (enum var_id)id, value);
	build_parameter_status(status, var_name((enum var_id)id), value);
	return true;
}

static bool reset_all(struct client *c, bool identity, struct buf *status)
{
	session_restore_vars(c, NULL, NULL, status);
	return session_restore_all(c, identity);
}

static void put_void_row(struct buf *b)
{
	const struct wire_field field = {"pg_advisory_unlock_all", OID_VOID};
	size_t start;

	build_row_description(b, &field, 1, NULL, 0);
	start = build_row_begin(b, 1);
	build_row_text(b, "");
	build_row_end(b, start);
}

/* Rows go to b; false: the client is closed. */
static bool carry_out(struct client *c, const struct sql_session *st, struct buf *b,
	struct buf *status, const char **ret_tag)
{
	switch (st->kind) {
	case SQL_SESSION_SET:
		*ret_tag = "SET";
		return set_name(c, text_of(&st->value), status);
	case SQL_SESSION_RESET:
		*ret_tag = st->value.len > 0 ? text_of(&st->value) : "RESET";
		return reset_one(c, text_of(&st->name), status);
	case SQL_SESSION_RESET_ALL:
		*ret_tag = "RESET";
		return reset_all(c, false, status);
	case SQL_SESSION_DISCARD_ALL:
		*ret_tag = "DISCARD ALL";
		extq_forget_all(c);
		sqlprep_forget(c, NULL);
		return listen_unlisten_all(c) && reset_all(c, true, status);
	case SQL_SESSION_DISCARD_PART:
		*ret_tag = text_of(&st->value);
		return true;
	case SQL_SESSION_DEALLOCATE_ALL:
		*ret_tag = "DEALLOCATE ALL";
		extq_forget_all(c);
		sqlprep_forget(c, NULL);
		return true;
	case SQL_SESSION_CLOSE_ALL:
		*ret_tag = "CLOSE CURSOR ALL";
		return true;
	case SQL_SESSION_UNLOCK_ALL:
		*ret_tag = "SELECT 1";
		put_void_row(b);
		return true;
	case SQL_SESSION_UNLISTEN:
		*ret_tag = "UNLISTEN";
		return listen_unlisten_all(c);
	case SQL_SESSION_OTHER:
	case SQL_SESSION_LISTEN:
	case SQL_SESSION_PREPARE:
	case SQL_SESSION_DEALLOCATE:
		break;
	}
	return false;
}

/* --- simple protocol --- */

/* Each statement of the string: is it ours? At most a few of them, as pools send. */
static int count_ours(const struct client *c, const struct sql_text *t)
{
	struct sql_text one;
	size_t pos = 0;
	int count = 0;
	bool alone = false, ok = true;

	while (ok && sql_text_next(t, &pos, &one)) {
		const struct sql_session *st = sql_session(&one);

		ok = is_ours(c, st);
		alone |= st->kind == SQL_SESSION_DISCARD_ALL;
		sql_text_free(&one);
		count++;
	}
	/* DISCARD ALL is refused among others */
	return !ok || (alone && count > 1) ? 0 : count;
}

/* --- LISTEN and UNLISTEN that are not the server's --- */

static bool is_listen(const struct sql_session *st)
{
	return st->kind == SQL_SESSION_LISTEN || st->kind == SQL_SESSION_UNLISTEN;
}

/* Not before everything that was said before it has ended. STEP_NEXT: now. */
static enum step listen_begin(struct client *c, bool simple)
{
	if (!client_barrier(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	return client_tx(c) == CLIENT_TX_FAILED ? local_aborted(c, simple) : STEP_MORE;
}

/* STEP_WAIT: until the channel is listened to. */
static enum step listen_say(struct client *c, const struct sql_session *st, struct buf *b)
{
	const char *name = st->name.len > 0 ? (const char *)st->name.data : NULL;
	bool listen = st->kind == SQL_SESSION_LISTEN;

	if (!is_listen(st)) { /* read once more, without memory */
		client_out_of_memory(c);
		return STEP_END;
	}
	switch (listen_prepare(c, listen ? name : NULL)) {
	case LISTEN_READY:
		break;
	case LISTEN_WAITS:
		return STEP_WAIT;
	case LISTEN_NO_MEMORY:
		client_out_of_memory(c);
		return STEP_END;
	}
	if (!listen_change(c, name, listen))
		return STEP_END;
	build_complete(b, listen ? "LISTEN" : "UNLISTEN");
	return STEP_NEXT;
}

static enum step listen_end_simple(struct client *c, struct buf *b)
{
	build_ready(b, client_status(c));
	if (local_emit(c, b) == STEP_END)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

static enum step listen_statement(struct client *c, const struct sql_session *st, bool simple)
{
	struct buf b = BUF_INIT;
	enum step step = listen_begin(c, simple);

	CHECK_CLIENT(c);
	if (step != STEP_MORE)
		return step;
	step = listen_say(c, st, &b);
	/* what its own server listens to */
	if (step == STEP_NEXT && st->kind == SQL_SESSION_UNLISTEN &&
		(c->pins & SQL_TOUCH_LISTEN) != 0)
		step = STEP_MORE;
	if (step != STEP_NEXT) {
		buf_free(&b);
		return step;
	}
	return simple ? listen_end_simple(c, &b) : local_emit(c, &b);
}

/* A string of several that are nothing else, as libraries say them. */
static bool is_listen_string(const struct sql_text *t)
{
	struct sql_text one;
	size_t pos = 0;
	int n = 0;
	bool ok = true;

	while (ok && sql_text_next(t, &pos, &one)) {
		ok = is_listen(sql_session(&one));
		sql_text_free(&one);
		n++;
	}
	return ok && n > 1;
}

/* While one of them waits those before it are noted already, and hold their channels: when it comes
 * again they are said once more, which changes nothing. */
static enum step listen_string(struct client *c, const struct sql_text *t)
{
	struct buf b = BUF_INIT;
	struct sql_text one;
	size_t pos = 0;
	enum step step = listen_begin(c, true);

	if (step != STEP_MORE)
		return step;
	step = STEP_NEXT;
	while (step == STEP_NEXT && sql_text_next(t, &pos, &one)) {
		step = listen_say(c, sql_session(&one), &b);
		sql_text_free(&one);
	}
	if (step == STEP_NEXT)
		return listen_end_simple(c, &b);
	buf_free(&b);
	return step;
}

enum step local_session_simple(struct client *c, struct sql_text *t)
{
	struct buf b = BUF_INIT, status = BUF_INIT;
	struct sql_text one;
	size_t pos = 0;
	const char *tag = "";
	bool ok = true;

	CHECK_CLIENT(c);
	if (is_listen(sql_session(t)) && listen_is_ours(c))
		return listen_statement(c, sql_session(t), true);
	/* who has a server that listens for it is heard there */
	if ((c->pins & SQL_TOUCH_LISTEN) == 0 && listen_is_ours(c) && is_listen_string(t))
		return listen_string(c, t);
	if (!is_possible(c) || count_ours(c, t) == 0)
		return STEP_MORE;
	while (ok && sql_text_next(t, &pos, &one)) {
		ok = carry_out(c, sql_session(&one), &b, &status, &tag);
		build_complete(&b, tag);
		sql_text_free(&one);
	}
	if (ok) {
		local_put(&b, &status);
		build_ready(&b, client_status(c));
		ok = local_emit(c, &b) != STEP_END;
	}
	buf_free(&b);
	buf_free(&status);
	if (!ok)
		return STEP_END;
	client_ready(c, true);
	return c->state == CLIENT_DEAD ? STEP_END : STEP_NEXT;
}

/* --- prepared and executed --- */

/* Rows would have to be described; what is a setting of the client's may have changed until it is
 * executed. */
bool local_session_is(const struct client *c, struct sql_text *t)
{
	const struct sql_session *st;

	CHECK_CLIENT(c);
	if (t->word == SQL_WORD_SELECT || c->pool == NULL ||
		client_pool_mode(c) == POOL_MODE_SESSION)
		return false;
	st = sql_session(t);
	return is_listen(st) || (is_ours(c, st) && (st->kind != SQL_SESSION_RESET ||
							   var_find(text_of(&st->name)) >= 0));
}

/* By an error behind it in the batch, which is a transaction: one that a server has to carry out.
 */
static bool may_be_undone(const struct sql_session *st)
{
	return st->kind == SQL_SESSION_SET || st->kind == SQL_SESSION_RESET ||
	       st->kind == SQL_SESSION_RESET_ALL;
}

/* LISTEN and UNLISTEN are answered whatever else there is. STEP_MORE: the server has to do it. */
enum step local_session_execute(struct client *c, const struct sql_session *st)
{
	struct buf b = BUF_INIT, status = BUF_INIT;
	const char *tag = "";
	bool ok;

	CHECK_CLIENT(c);
	if (is_listen(st))
		return listen_statement(c, st, false);
	if (!is_possible(c) || (may_be_undone(st) && c->head.next != 'S'))
		return STEP_MORE;
	ok = carry_out(c, st, &b, &status, &tag);
	build_complete(&b, tag);
	local_put(&b, &status);
	buf_free(&status);
	if (!ok) {
		buf_free(&b);
		return STEP_END;
	}
	return local_emit(c, &b);
}
