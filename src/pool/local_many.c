/*
 * Several statements in one string, some of them a claimant's: each of those is replaced, and the
 * string is sent as one, so that its implicit transaction is kept.
 */
#include <string.h>

#include "local_int.h"

struct many {
	struct client *c;
	struct replaced *rp;
	struct buf sql;
	struct pg_error err;
	bool failed;
};

/* The replacement stands behind `before`, its statement that many characters behind the start. */
static void shift_spans(struct replace *r, struct buf *before, int statement)
{
	const char *text = buf_cstr(before);
	int ours;

	if (buf_failed(before))
		return;
	ours = sql_char_position(text, text + before->len) - 1;
	for (size_t i = 0; i < ARRAY_LEN(r->spans); i++) {
		r->spans[i].ours += ours;
		r->spans[i].theirs += statement;
	}
}

/* start: of the whole string, in which an error has its position. */
static bool add_claimed(struct many *m, const char *start, const char *sql, size_t len)
{
	struct lstmt *l = local_claim_simple(m->c, sql, len, &m->err);
	struct exec x;
	bool ok = false;

	if (l == NULL) {
		if (m->err.position > 0)
			m->err.position += sql_char_position(start, sql) - 1;
		return false;
	}
	local_exec_init(&x, m->c, l);
	x.alone = false;
	switch (l->icpt->execute(&x)) {
	case EXEC_REPLACE:
		x.replace->held = lstmt_ref(l);
		m->rp->list[m->rp->at] = x.replace;
		shift_spans(x.replace, &m->sql, sql_char_position(start, sql) - 1);
		local_put(&m->sql, &x.replace->sql);
		ok = true;
		break;
	case EXEC_ERROR:
		m->err = x.err;
		break;
	case EXEC_ANSWER:
		answer_free(&x.answer);
		/* fall through */
	case EXEC_PARK:
	case EXEC_CLOSE:
	case EXEC_WAIT:
		pg_error_set(&m->err, "0A000",
			"this QUEUE statement has to be alone in its query string");
		pg_error_hint(&m->err, "Send it as a statement of its own.");
		break;
	}
	lstmt_drop(&l);
	return ok;
}

static int count_statements(struct client *c, const char *sql, size_t len)
{
	size_t pos = 0, n;
	const char *one;
	int count = 0;

	while (sql_statement_next(sql, len, &pos, client_standard_strings(c), &one, &n))
		count++;
	return count;
}

static void add_statements(struct many *m, const char *sql, size_t len)
{
	size_t pos = 0, n;
	const char *one;

	while (!m->failed &&
		sql_statement_next(sql, len, &pos, client_standard_strings(m->c), &one, &n)) {
		if (m->c->icpt->claim(m->c, one, n, true) == CLAIM_MINE)
			m->failed = !add_claimed(m, sql, one, n);
		else
			buf_put(&m->sql, one, n);
		/* on a line of its own: the statement may end in a -- comment */
		buf_puts(&m->sql, "\n;");
		m->rp->at++;
	}
	m->rp->at = 0;
}

enum step local_simple_many(struct client *c, const char *sql, size_t len)
{
	int n = count_statements(c, sql, len);
	struct many m = {.c = c};

	if (n == 1)
		return local_simple(c, sql, len);
	if (client_tx(c) == CLIENT_TX_FAILED && c->vtx == VTX_FAILED)
		return local_aborted(c, true);
	if (c->icpt->ready != NULL && !c->icpt->ready(c))
		return local_wait_again(c);
	if (!local_barrier(c) || !client_need_server(c))
		return c->state == CLIENT_DEAD ? STEP_END : STEP_WAIT;
	m.rp = replaced_new(n);
	if (m.rp == NULL) {
		client_out_of_memory(c);
		return STEP_END;
	}
	add_statements(&m, sql, len);
	if (m.failed) {
		replaced_free(&m.rp, c, false);
		buf_free(&m.sql);
		return client_error(c, &m.err, true);
	}
	return local_send_string(c, m.rp, &m.sql);
}
