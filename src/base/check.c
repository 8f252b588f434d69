/*
 * The end of a process whose state is broken. Entry points: INVARIANT().
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

void check_failed(const char *what, const char *expr, const char *file, int line)
{
	log_write(LOG_LVL_FATAL, NULL, "broken invariant: %s (%s, %s:%d)", what, expr, file, line);
	if (!log_is_on_stderr())
		fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, what, expr);
	abort();
}
