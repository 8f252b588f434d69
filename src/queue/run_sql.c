/*
 * A job of SQL in a transaction. BEGIN and the look (queue._run_job), each of its statements, and its DONE
 * (queue._run_end) with the COMMIT follow one after the other on one server. So work and DONE are one transaction, and
 * each statement is as it would be for a client: with its tag, its rows, its notices.
 *
 * A statement goes as Parse, Bind and Execute, which takes one and no more, whatever the cutter has made of the text. One
 * that would begin or end a transaction is not sent; and what has ended it nevertheless is seen by its state, and by
 * queue._run_end(), which knows when it began.
 *
 * Must not know: slots, but for the one it is of.
 *
 * Entry points: run_sql_*.
 */
#include <stdio.h>
#include <string.h>

#include "wire/sqltext.h"
#include "queue_call.h"
#include "queue_int.h"
#include "run_slots.h"

struct run_sql *run_sql_new(void)
{
	struct run_sql *r = mem_zalloc(sizeof(*r));

	if (r != NULL)
		r->rows.left = RUN_ROWS_MAX;
	return r;
}

void run_sql_free(struct run_sql **p)
{
	struct run_sql *r = *p;

	*p = NULL;
	if (r == NULL)
		return;
	for (int i = 0; i < r->n; i++)
		mem_free(r->values[i].text);
	mem_free(r->sql);
	run_rows_free(&r->rows);
	mem_free(r);
}

/* --- the look --- */

static bool keep_text(const struct wire_col *c, struct run_value *ret)
{
	*ret = (struct run_value){0};
	if (c->data == NULL)
		return true;
	ret->text = mem_alloc((size_t)c->len + 1);
	if (ret->text == NULL)
		return false;
	memcpy(ret->text, c->data, (size_t)c->len);
	ret->text[c->len] = '\0';
	ret->len = (size_t)c->len;
	return true;
}

bool run_sql_look(struct run_sql *r, const char *name, const struct wire_col *value)
{
	struct run_value v;

	INVARIANT(r->step == STEP_LOOK, "what a job is comes after its look");
	if (strcmp(name, "sql") == 0 && r->sql == NULL) {
		r->is_sql = keep_text(value, &v) && v.text != NULL;
		r->sql = v.text;
		return r->is_sql;
	}
	if (strcmp(name, "handler") == 0)
		return r->is_handler = true;
	if (strcmp(name, "value") == 0 && r->n < VALUES_MAX)
		return keep_text(value, &r->values[r->n]) && r->n++ < VALUES_MAX;
	if (strcmp(name, "began") == 0)
		return wire_col_copy(value, r->began, sizeof(r->began));
	run_rows_option(&r->rows, name, value);
	return true;
}

void look_params(const struct slot *s, bool as_sql, struct bind_param ret[LOOK_PARAMS])
{
	const char *supers = conf_current()->p.queue_run_superuser ? "t" : "f";
	const char *entry = s->queue->db->name, *sql = as_sql ? "t" : "f";

	ret[0] = (struct bind_param){
		.data = (const uint8_t *)s->token, .len = (int32_t)strlen(s->token)};
	ret[1] = (struct bind_param){.data = (const uint8_t *)supers, .len = 1};
	ret[2] = (struct bind_param){.data = (const uint8_t *)entry, .len = (int32_t)strlen(entry)};
	ret[3] = (struct bind_param){.data = (const uint8_t *)sql, .len = 1};
}

/* --- which statements may be sent --- */

static bool is_word(const struct sql_token *t, const char *word)
{
	return t->kind == SQL_IDENT && t->len == strlen(word) &&
	       util_memcasecmp(t->text, word, t->len) == 0;
}

/* COPY to or from the client, that is us. */
static bool copies_here(struct sql_lexer *lx)
{
	struct sql_token t;
	bool to = false;
	int depth = 0;

	do {
		sql_lex_next(lx, &t);
		if (depth == 0 && to && (is_word(&t, "stdout") || is_word(&t, "stdin")))
			return true;
		to = is_word(&t, "to") || is_word(&t, "from");
		if (t.kind == SQL_OTHER && *t.text == '(')
			depth++;
		else if (t.kind == SQL_OTHER && *t.text == ')')
			depth--;
	} while (t.kind != SQL_END && t.kind != SQL_BAD);
	return false;
}

/* Behind the word ROLLBACK: to a savepoint of its own. */
static bool goes_back_within(struct sql_lexer *lx)
{
	struct sql_token t;

	sql_lex_next(lx, &t);
	if (is_word(&t, "work") || is_word(&t, "transaction"))
		sql_lex_next(lx, &t);
	return is_word(&t, "to");
}

/* Why it may not be sent; NULL: it may. */
static const char *refused(const struct sql_text *t)
{
	static const char bounds[] = "a job is one transaction: it can neither begin nor end one";
	struct sql_lexer lx;
	struct sql_token first, second;

	sql_lex_init(&lx, t->sql, t->len, t->dialect);
	sql_lex_next(&lx, &first);
	switch ((enum sql_word)t->word) {
	case SQL_WORD_BEGIN:
	case SQL_WORD_START:
	case SQL_WORD_COMMIT:
	case SQL_WORD_END:
	case SQL_WORD_ABORT:
		return bounds;
	case SQL_WORD_ROLLBACK:
		return goes_back_within(&lx) ? NULL : bounds;
	case SQL_WORD_PREPARE:
		sql_lex_next(&lx, &second);
		return is_word(&second, "transaction") ? bounds : NULL;
	default:
		return is_word(&first, "copy") && copies_here(&lx)
			       ? "COPY to or from the client is not possible in a job"
			       : NULL;
	}
}

/* --- one step after the other --- */

static void fail(struct run_sql *r, const char *sqlstate, const char *message)
{
	if (r->failed)
		return;
	r->failed = true;
	pg_error_set(&r->err, sqlstate, "%s", message);
}

/* false: nothing follows, and the server is given up with what it has begun. */
static bool go_on(struct slot *s, const struct task_spec *spec, bool undoes)
{
	if (task_go_on(s->task, spec, undoes))
		return true;
	fail(s->script, "53200", "out of memory");
	return false;
}

static void end_transaction(struct slot *s, bool commits)
{
	const struct task_spec spec = {.sql = commits ? "COMMIT" : "ROLLBACK"};

	INVARIANT(s->script->step != STEP_OVER, "a job ends twice");
	s->script->step = STEP_OVER;
	s->script->commits = commits;
	(void)go_on(s, &spec, !commits);
}

static void send_statement(struct slot *s, const struct sql_text *t)
{
	static const uint32_t texts[VALUES_MAX] = {OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT,
		OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT,
		OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT};
	struct run_sql *r = s->script;
	struct bind_param params[VALUES_MAX];
	char *sql = mem_alloc(t->len + 1);
	struct task_spec spec = {.sql = sql,
		.describe = true,
		.row_max = RUN_ROWS_MAX,
		.oids = texts,
		.n_params = r->n,
		.params = params};

	for (int i = 0; i < r->n; i++)
		params[i] = (struct bind_param){.data = (const uint8_t *)r->values[i].text,
			.len = r->values[i].text != NULL ? (int32_t)r->values[i].len : -1};
	if (sql == NULL) {
		fail(r, "53200", "out of memory");
		end_transaction(s, false);
		return;
	}
	memcpy(sql, t->sql, t->len);
	sql[t->len] = '\0';
	r->statement++;
	r->tag[0] = '\0';
	(void)go_on(s, &spec, false);
	mem_free(sql);
}

/* Memory may have failed there. */
static void put_outcome(const struct slot *s, struct buf *ret)
{
	INVARIANT(s->script != NULL, "the outcome of a job that is no SQL");
	run_rows_outcome(&s->script->rows, ret);
	told_notices(&s->told, ret);
	buf_putc(ret, '}');
}

static const char *keep_of(const struct slot *s)
{
	static const char *const words[] = {[KEEP_RESULT] = "result",
		[KEEP_ALWAYS] = "always",
		[KEEP_ERROR] = "error",
		[KEEP_NONE] = "none"};

	return words[s->keep];
}

static void send_done(struct slot *s)
{
	struct run_sql *r = s->script;
	struct buf outcome = BUF_INIT;
	const char *keep = keep_of(s);
	struct bind_param params[4];
	const struct task_spec spec = {.sql = queue_calls[CALL_RUN_END].sql,
		.oids = queue_calls[CALL_RUN_END].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.behind = "COMMIT"};

	INVARIANT(!r->failed && s->token[0] != '\0', "DONE of a job that has failed, or of none");
	put_outcome(s, &outcome);
	params[0] = (struct bind_param){
		.data = (const uint8_t *)s->token, .len = (int32_t)strlen(s->token)};
	params[1] = (struct bind_param){
		.data = (const uint8_t *)r->began, .len = (int32_t)strlen(r->began)};
	params[2] = (struct bind_param){.data = outcome.data, .len = (int32_t)outcome.len};
	params[3] =
		(struct bind_param){.data = (const uint8_t *)keep, .len = (int32_t)strlen(keep)};
	r->step = STEP_DONE;
	r->commits = true;
	if (buf_failed(&outcome)) {
		fail(r, "53200", "out of memory");
		end_transaction(s, false);
	} else {
		(void)go_on(s, &spec, false);
	}
	buf_free(&outcome);
}

void run_sql_alone(struct run_sql *r)
{
	INVARIANT(r->statement == 0, "a job that is one statement has had others");
	r->step = STEP_ALONE;
	r->commits = false;
	r->tag[0] = '\0';
}

/* A statement of ours, however long the job was: a server that does not answer to it is given up. Then it is not known
 * whether it is done, and FAIL says so, or has it carried out again. */
struct task *run_sql_submit_done(struct slot *s, const struct task_ops *ops)
{
	enum call_id call = s->there != NULL ? CALL_RAN_THERE : CALL_RAN_ALONE;
	const char *keep = keep_of(s);
	struct run_sql *r = s->script;
	struct buf outcome = BUF_INIT;
	struct bind_param params[3];
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task *t = NULL;
	struct task_spec spec = {.ops = ops,
		.arg = s,
		.settings = settings,
		.sql = queue_calls[call].sql,
		.oids = queue_calls[call].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params,
		.time = TASK_SLOW,
		.stays = true};

	INVARIANT(!r->failed && s->token[0] != '\0', "a job is done that was not carried out");
	if (r->step == STEP_ALONE)
		run_rows_ended(&r->rows, r->tag);
	r->step = STEP_OVER;
	put_outcome(s, &outcome);
	params[0] = (struct bind_param){
		.data = (const uint8_t *)s->token, .len = (int32_t)strlen(s->token)};
	params[1] = (struct bind_param){.data = outcome.data, .len = (int32_t)outcome.len};
	params[2] =
		(struct bind_param){.data = (const uint8_t *)keep, .len = (int32_t)strlen(keep)};
	if (!buf_failed(&outcome) && settings != NULL && task_settings_utf8(settings))
		t = task_submit(s->pool, &spec);
	buf_free(&outcome);
	task_settings_free(&settings);
	return t;
}

static void next_statement(struct slot *s)
{
	struct run_sql *r = s->script;
	struct sql_text all, one;
	const char *why;

	INVARIANT(r->step <= STEP_STATEMENTS && !r->failed, "a statement of a job that is over");
	INVARIANT(r->is_sql && r->sql != NULL, "a statement of a job that is no SQL");
	r->step = STEP_STATEMENTS;
	sql_text_init(&all, r->sql, strlen(r->sql), task_dialect(s->task), SQL_OF_QUERY);
	if (!sql_text_next(&all, &r->pos, &one)) {
		if (s->there != NULL)
			end_transaction(s, true);
		else
			send_done(s);
	} else if ((why = refused(&one)) != NULL) {
		fail(r, "0A000", why);
		end_transaction(s, false);
	} else {
		send_statement(s, &one);
	}
	sql_text_free(&all);
}

static void statement_ended(struct slot *s, char tx)
{
	struct run_sql *r = s->script;

	if (r->statement > 0 && !r->failed)
		run_rows_ended(&r->rows, r->tag);
	if (tx != 'T')
		fail(r, "25000", "the job has ended its transaction");
	if (r->failed && tx != 'I')
		end_transaction(s, false);
	else if (!r->failed)
		next_statement(s);
}

/* What queue._sql_of() says. */
static bool is_of_payload(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "22", 2) == 0 || strcmp(err->sqlstate, "0A000") == 0 ||
	       strcmp(err->sqlstate, "54023") == 0;
}

/* It is called as those are that were known before: it may take any time. */
static void call_handler(struct slot *s)
{
	struct bind_param params[LOOK_PARAMS];
	const struct task_spec spec = {.sql = queue_calls[CALL_RUN_JOB].sql,
		.oids = queue_calls[CALL_RUN_JOB].oids,
		.n_params = (int)ARRAY_LEN(params),
		.params = params};

	look_params(s, false, params);
	(void)go_on(s, &spec, false);
}

static void look_ended(struct slot *s)
{
	struct run_sql *r = s->script;
	bool is_handler = r->is_handler;

	r->is_handler = false;
	r->in_vain = r->failed && is_of_payload(&r->err) && !s->told.of_handler;
	if (r->failed || s->outcome == OUTCOME_ALONE || s->outcome == OUTCOME_UNREAD)
		end_transaction(s, false);
	else if (r->is_sql)
		next_statement(s);
	else if (is_handler)
		call_handler(s);
	else /* it has run */
		end_transaction(s, true);
}

/* Elsewhere: nothing of an earlier attempt is there. */
static void before_ended(struct slot *s)
{
	static const uint32_t any[VALUES_MAX]; /* types: as the statement has them */
	struct run_sql *r = s->script;
	const struct alone *a = s->alone;
	struct task_spec spec = {.sql = "BEGIN"};
	struct bind_param params[VALUES_MAX];

	INVARIANT(s->there != NULL && s->there->sent, "a job begins elsewhere that is not there");
	if (r->failed)
		return;
	r->step = STEP_BEGIN;
	if (a != NULL) {
		run_sql_alone(r);
		spec = (struct task_spec){.sql = a->sql,
			.describe = true,
			.row_max = RUN_ROWS_MAX,
			.oids = any,
			.n_params = a->n,
			.params = params};
		for (int i = 0; i < a->n; i++)
			params[i] = (struct bind_param){.data = (const uint8_t *)a->values[i].text,
				.len = a->values[i].text != NULL ? (int32_t)a->values[i].len : -1};
	}
	(void)go_on(s, &spec, false);
}

static void begin_ended(struct slot *s, char tx)
{
	if (!s->script->failed)
		next_statement(s);
	else if (tx != 'I')
		end_transaction(s, false);
}

void run_sql_next(void *arg, char tx, const struct pg_error *err)
{
	struct slot *s = arg;
	struct run_sql *r = s->script;

	INVARIANT(s->state == SLOT_RUNS && s->task != NULL, "a job goes on that does not run");
	if (err != NULL && !r->failed) {
		r->failed = true;
		r->err = *err;
	}
	if (r->step <= STEP_STATEMENTS && (s->lost || s->late))
		fail(r, "57014", "ended between two of its statements");
	switch (r->step) {
	case STEP_LOOK:
		look_ended(s);
		break;
	case STEP_BEFORE:
		before_ended(s);
		break;
	case STEP_BEGIN:
		begin_ended(s, tx);
		break;
	case STEP_STATEMENTS:
		statement_ended(s, tx);
		break;
	case STEP_DONE:
	case STEP_OVER:
		if (r->commits && strcmp(r->tag, "COMMIT") != 0)
			fail(r, "25000", "the transaction of the job was not committed");
		if (tx != 'I' && r->step == STEP_DONE)
			end_transaction(s, false);
		break;
	case STEP_ALONE:
		break;
	}
}

/* --- what its statements say --- */

void run_sql_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;

	if (s->script->step == STEP_STATEMENTS || s->script->step == STEP_ALONE)
		run_rows_add(&s->script->rows, body, len);
}

void run_sql_columns(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct run_sql *r = s->script;
	struct pg_error err;

	if ((r->step != STEP_STATEMENTS && r->step != STEP_ALONE) ||
		run_rows_columns(&r->rows, body, len, &err) || r->failed)
		return;
	r->failed = true;
	r->err = err;
	r->in_vain = r->step == STEP_ALONE;
}

/* The last one counts. */
void run_sql_tag(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_col tag = {.data = body, .len = len > 0 ? (int32_t)len - 1 : 0};

	(void)wire_col_copy(&tag, s->script->tag, sizeof(s->script->tag));
}
