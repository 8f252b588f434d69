/*
 * The statements of calls.h as data. Entry points: queue_calls, call_task(), call_put().
 */
#include "queue_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* clang-format off */

/* The last entry is empty: a statement may have no parameters, an array may not. */
#define PARAM(type) OID_##type,
#define CALL(name, sql, params, columns) \
	static const uint32_t oids_##name[] = {params 0}; \
	static const struct wire_field columns_##name[] = {columns};
QUEUE_CALLS(CALL, PARAM, ROW_FIELD)
#undef CALL
#define CALL(name, sql, params, columns) \
	{#name, sql, oids_##name, ARRAY_LEN(oids_##name) - 1, columns_##name, ARRAY_LEN(columns_##name)},
const struct queue_call queue_calls[CALL_COUNT] = {QUEUE_CALLS(CALL, PARAM, ROW_FIELD)};

/* clang-format on */

struct task_spec call_task(
	enum call_id id, const struct bind_param *params, const struct task_ops *ops, void *arg)
{
	const struct queue_call *call = &queue_calls[id];

	return (struct task_spec){.ops = ops,
		.arg = arg,
		.sql = call->sql,
		.prepare = true,
		.oids = call->oids,
		.n_params = call->n_params,
		.params = params};
}

void call_put(struct buf *b, enum call_id id, int64_t number)
{
	char digits[24];
	size_t n = (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)number);
	const char *sql = queue_calls[id].sql, *at;

	for (; (at = strchr(sql, '@')) != NULL; sql = at + 1) {
		buf_put(b, sql, (size_t)(at - sql));
		buf_put(b, digits, n);
	}
	buf_puts(b, sql);
}

void call_print(char *dst, size_t size, enum call_id id, ...)
{
	va_list args;
	int n;

	va_start(args, id);
	n = vsnprintf(dst, size, queue_calls[id].sql, args);
	va_end(args);
	INVARIANT(n >= 0 && (size_t)n < size, "a statement is cut");
}
