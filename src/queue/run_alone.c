/*
 * A job of SQL that is no part of the transaction of its DONE: one statement, which is sent by itself.
 *
 * Must not know: when it runs, and what becomes of the job (run_job.c).
 *
 * Entry points: alone_*.
 */
#include <string.h>

#include "queue_int.h"
#include "run_int.h"

void alone_free(struct alone **p)
{
	struct alone *a = *p;

	*p = NULL;
	if (a == NULL)
		return;
	for (int i = 0; i < a->n; i++)
		mem_free(a->values[i].text);
	mem_free(a->sql);
	mem_free(a);
}

bool alone_add(struct alone **p, const struct wire_col *col)
{
	struct alone *a = *p;
	char *text = NULL;

	if (col->len >= 0 && (text = mem_alloc((size_t)col->len + 1)) == NULL)
		return false;
	if (text != NULL) {
		memcpy(text, col->data, (size_t)col->len);
		text[col->len] = '\0';
	}
	if (a == NULL && text != NULL) {
		*p = a = mem_zalloc(sizeof(*a));
		if (a != NULL)
			a->sql = text;
	} else if (a != NULL && a->n < VALUES_MAX) {
		a->values[a->n].text = text;
		a->values[a->n++].len = text != NULL ? (size_t)col->len : 0;
	} else {
		a = NULL;
	}
	if (a == NULL)
		mem_free(text);
	return a != NULL;
}

/* Its values are texts, as the statement wants them. */
struct task *alone_submit(struct slot *s, const struct task_ops *ops)
{
	static const uint32_t any[VALUES_MAX]; /* types: as the statement has them */
	struct alone *a = s->alone;
	struct bind_param params[VALUES_MAX];
	struct task_settings *settings = task_settings_of_pool(s->pool);
	struct task *t = NULL;
	struct task_spec spec = {.ops = ops,
		.arg = s,
		.settings = settings,
		.sql = a->sql,
		.describe = true,
		.row_max = RUN_ROWS_MAX,
		.oids = any,
		.n_params = a->n,
		.params = params,
		.leaves = TASK_LEAVES_SESSION,
		.session = s->queue->session.key,
		.time = TASK_BESIDE,
		.stays = true};

	INVARIANT(!a->sent, "a statement is carried out twice");
	for (int i = 0; i < a->n; i++)
		params[i] = (struct bind_param){.data = (const uint8_t *)a->values[i].text,
			.len = a->values[i].text != NULL ? (int32_t)a->values[i].len : -1};
	if (settings != NULL && task_settings_utf8(settings) &&
		task_settings_name(settings, a->name))
		t = task_submit(s->pool, &spec);
	task_settings_free(&settings);
	run_sql_alone(s->script);
	a->sent = t != NULL;
	return t;
}
