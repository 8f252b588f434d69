/*
 * How much is kept of an answer (bound.h). Must not know: whose rows they are.
 */
#include "bound.h"

#include <string.h>

#include "conf/conf.h"

#define KB ((int64_t)1024)

void bound_row(struct bound *b, struct task *t, size_t len)
{
	int64_t most = conf_current()->p.queue_answer_max;
	bool first = b->kept == 0;

	b->kept += len;
	if (b->over == 0 && (most == 0 || first || (int64_t)b->kept <= most))
		return;
	if (b->over != 0 && (int64_t)(b->kept - b->asked) < b->over)
		return;
	if (task_is_cancelled(t)) /* what comes until it is heard */
		return;
	if (b->over == 0)
		b->over = most;
	b->asked = b->kept;
	task_cancel(t);
}

void bound_exceeded(struct pg_error *err, int64_t bound, const char *hint)
{
	static const char *const units[] = {"bytes", "kB", "MB", "GB"};
	size_t unit = 0;

	while (unit + 1 < ARRAY_LEN(units) && bound % KB == 0) {
		bound /= KB;
		unit++;
	}
	pg_error_set(err, "54000", "the answer is larger than queue_answer_max (%lld %s)",
		(long long)bound, units[unit]);
	pg_error_hint(err, "%s", hint);
}

const struct pg_error *bound_error(
	const struct bound *b, const struct pg_error *err, const char *hint)
{
	static struct pg_error why;

	if (err == NULL || b->over == 0 || strcmp(err->sqlstate, "57014") != 0)
		return err;
	bound_exceeded(&why, b->over, hint);
	return &why;
}
