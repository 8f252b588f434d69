/*
 * What is heard of a job that runs: what it is, its notices, its tag, its error, how it was put back. The ops of its
 * tasks, but for their end.
 *
 * Must not know: what becomes of it (run_outcome.c).
 *
 * Entry points: heard_*.
 */
#include <string.h>

#include "wire/msg.h"
#include "queue_int.h"
#include "run_int.h"

/* What is not part of the transaction of its DONE is not begun when somebody else may have begun it since the look. */
static bool may_begin(struct slot *s)
{
	bool by_itself =
		(s->alone != NULL && s->alone->sent) || (s->there != NULL && s->there->sent);

	if (by_itself && !worker_holds(s->worker, s->token))
		s->lost = true;
	return !s->lost;
}

bool heard_start(void *arg, bool engine)
{
	struct slot *s = arg;

	(void)engine;
	if (!may_begin(s))
		return false;
	s->started = true;
	s->began = loop_now();
	if (s->timeout > 0)
		slot_look_at(s, loop_now() + s->timeout);
	return true;
}

void heard_notice(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_notice n;

	wire_read_notice(body, len, &n);
	told_notice(&s->told, &n);
}

static void heard_tag(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;

	told_tag(&s->told, body, len);
}

void heard_error(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_notice n;

	wire_read_notice(body, len, &n);
	told_error(&s->told, &n);
}

/* How long it may run, whatever its queue says. */
static void hear_timeout(struct slot *s, const struct wire_col *c)
{
	int64_t ms;

	if (s->lost || s->late || !wire_col_number(c, &ms))
		return;
	s->timeout = (usec_t)ms * USEC_MSEC;
	slot_look_at(s, s->began + s->timeout);
}

static void hear_keep(struct slot *s, const struct wire_col *c)
{
	static const char *const words[] = {[KEEP_RESULT] = "result",
		[KEEP_ALWAYS] = "always",
		[KEEP_ERROR] = "error",
		[KEEP_NONE] = "none"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (wire_col_is(c, words[i]))
			s->keep = (enum keep)i;
}

/* A part of what the job is. false: no memory. */
static bool hear_part(struct slot *s, const char *what, const struct wire_col *value)
{
	if (strcmp(what, "timeout") == 0) {
		hear_timeout(s, value);
	} else if (strcmp(what, "keep") == 0) {
		hear_keep(s, value);
	} else if (strcmp(what, "database") == 0 ||
		   (s->there != NULL && strcmp(what, "session") == 0)) {
		s->outcome = OUTCOME_ALONE;
		return there_look(&s->there, what, value);
	} else if (strcmp(what, "session") == 0 && s->alone != NULL) {
		wire_col_copy(value, s->alone->name, sizeof(s->alone->name));
	} else if (strcmp(what, "alone") == 0 || s->alone != NULL) {
		s->outcome = OUTCOME_ALONE;
		return alone_add(&s->alone, value);
	} else {
		return s->script != NULL && run_sql_look(s->script, what, value);
	}
	return true;
}

static bool is_put_back(const struct wire_col *ended, enum outcome *ret)
{
	if (wire_col_is(ended, "failed"))
		*ret = OUTCOME_FAILED;
	else if (wire_col_is(ended, "released"))
		*ret = OUTCOME_RELEASED;
	else
		return false;
	return true;
}

void heard_batch_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_col col[2];
	char token[TOKEN_MAX];
	struct batch_job *j;

	if (!wire_row_read(body, len, col, 2) || !wire_col_copy(&col[0], token, sizeof(token)) ||
		(j = batch_find(&s->batch, token)) == NULL)
		return;
	if (!is_put_back(&col[1], &j->outcome))
		j->outcome = OUTCOME_DONE;
}

void heard_look_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;
	struct wire_col col[3];
	char what[16];

	if (s->outcome == OUTCOME_UNREAD)
		return;
	if (!wire_row_read(body, len, col, 3) || !wire_col_copy(&col[1], what, sizeof(what)))
		s->outcome = OUTCOME_UNREAD;
	else if (is_put_back(&col[1], &s->outcome))
		return;
	else if (strcmp(what, "done") != 0 && !hear_part(s, what, &col[2]))
		s->outcome = OUTCOME_UNREAD;
}

void heard_step_row(void *arg, const uint8_t *body, size_t len)
{
	struct slot *s = arg;

	if (s->script->step == STEP_LOOK)
		heard_look_row(s, body, len);
	else
		run_sql_row(s, body, len);
}

void heard_step_tag(void *arg, const uint8_t *body, size_t len)
{
	heard_tag(arg, body, len);
	run_sql_tag(arg, body, len);
}
