/*
 * What happens to each task, alone or with others: it is about to start, has an error, ends. Knows nothing of how it is
 * sent.
 */
#include <string.h>

#include "task_int.h"

void task_end_events(struct task *t, bool committed)
{
	if (t->events != NULL)
		intercept_queue->task_event_end(t->pool, &t->events, committed);
}

const struct task_session *task_session_of(const struct task *t)
{
	return kept_session(t);
}

unsigned task_sessions(void)
{
	return kept_free();
}

bool task_sessions_end_one(void)
{
	struct server *s = kept_longest_idle(NULL);

	if (s != NULL)
		server_forsake(s);
	return s != NULL;
}

void task_sessions_end(uint64_t key)
{
	struct server *s;

	while ((s = kept_of(key)) != NULL)
		server_forsake(s);
}

void silent_forget(struct task *t)
{
	CHECK_TASK(t);
	if (t->look != NULL)
		t->look->about = NULL;
	t->look = NULL;
}

void task_free(struct task *t)
{
	task_end_events(t, false);
	silent_forget(t);
	if (t->kept != NULL)
		kept_unclaim(t);
	pstmt_drop(&t->stmt);
	mem_free(t->script);
	buf_free(&t->bind);
	buf_free(&t->rows);
	vars_clear(&t->vars);
	istr_drop(&t->extra);
	t->magic = 0;
	block_put(t, sizeof(*t));
}

#define MESSAGES_SIZE                                                                              \
	64 /* of a Bind without its values, an Execute, and a Sync or Parse behind them, nearly */

static size_t size_of_values(const struct task_spec *spec)
{
	size_t size = 6 + 6 * (size_t)spec->n_params + 2 * (size_t)spec->n_formats;

	for (int i = 0; i < spec->n_params; i++)
		size += spec->params[i].len > 0 ? (size_t)spec->params[i].len : 0;
	return size;
}

static uint8_t *put_i16(uint8_t *to, int v)
{
	to[0] = (uint8_t)((unsigned)v >> 8);
	to[1] = (uint8_t)v;
	return to + 2;
}

/* The Bind message behind the names. */
void task_put_values(struct buf *b, const struct task_spec *spec)
{
	size_t size = size_of_values(spec);
	uint8_t *to;

	buf_reserve(b, size);
	if (buf_failed(b))
		return;
	to = put_i16(b->data + b->len, spec->n_params);
	for (int i = 0; i < spec->n_params; i++)
		to = put_i16(to, spec->params[i].format);
	to = put_i16(to, spec->n_params);
	for (int i = 0; i < spec->n_params; i++) {
		const struct bind_param *p = &spec->params[i];

		build_store_i32(to, p->len);
		to += 4;
		if (p->len <= 0)
			continue;
		memcpy(to, p->data, (size_t)p->len);
		to += p->len;
	}
	to = put_i16(to, spec->n_formats);
	for (int i = 0; i < spec->n_formats; i++)
		to = put_i16(to, spec->formats[i]);
	b->len += size;
	ASSERT(to == b->data + b->len);
}

bool task_put_execute(struct server *s, struct buf *b, const char *name, const struct buf *values,
	const struct dest *dest, bool final)
{
	size_t start;

	buf_reserve(b, values->len + MESSAGES_SIZE);
	start = build_begin(b, 'B');
	build_cstr(b, "");
	build_cstr(b, name);
	buf_put(b, values->data, values->len);
	build_end(b, start);
	build_execute(b, "", 0);
	if (!server_expect(s, EXPECT_BIND, dest, NULL) ||
		!server_expect(s, EXPECT_EXECUTE, dest, NULL))
		return false;
	expect_at(&s->expect, s->expect.count - 1u)->final = final;
	return true;
}

bool task_starts(struct task *t, const struct server *s)
{
	struct pg_error err;

	CHECK_TASK(t);
	if (t->ops == NULL || t->ops->starts == NULL || t->ops->starts(t->arg, s->use.engine))
		return true;
	pg_error_set(&err, "53200", "out of memory");
	task_end(t, &err);
	return false;
}

void task_note_error(struct task *t, const uint8_t *body, size_t len)
{
	struct wire_notice n;

	CHECK_TASK(t);
	if (t->failed)
		return;
	wire_read_notice(body, len, &n);
	t->failed = true;
	if (t->ops != NULL && t->ops->error != NULL)
		t->ops->error(t->arg, body, len);
	pg_error_set(&t->err, n.sqlstate, "%s", n.message);
	if (n.detail != NULL)
		pg_error_detail(&t->err, "%s", n.detail);
	if (n.hint != NULL)
		pg_error_hint(&t->err, "%s", n.hint);
}

void task_end(struct task *t, const struct pg_error *err)
{
	CHECK_TASK(t);
	if (t->ops != NULL)
		t->ops->done(t->arg, err);
	task_free(t);
}
