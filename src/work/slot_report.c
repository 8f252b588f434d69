/*
 * How a slot's job has ended, as it is told to the queue: DONE, FAIL, RELEASE; and how far it has come.
 *
 * Must not know: what the server answers.
 *
 * Entry points: slot_int.h.
 */
#include "slot_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/json.h"

enum { ERROR_TEXT_MAX = 7900 };

void slot_report_failure(struct slot *s, usec_t now, const char *error, bool final)
{
	const char *const values[] = {s->token, error};
	s->told = TOLD_FAIL;
	if (s->options->verbose)
		slot_tell(s, "job %s has failed%s: %s", s->job, final ? " for good" : "", error);
	slot_ask(s, final ? "QUEUE FAIL $1 ERROR $2 FINAL" : "QUEUE FAIL $1 ERROR $2", 2, values,
		SLOT_REPORTING, now);
}

/* An encoding of the database that does not know the characters, say. */
void slot_report_failure_plainly(struct slot *s, usec_t now)
{
	const char *const values[] = {s->token};
	s->told = TOLD_OTHER;
	slot_ask(s,
		"QUEUE FAIL $1 ERROR 'qbouncer-work could not store why; its standard error tells'",
		1, values, SLOT_REPORTING, now);
}

/* What is no JSON becomes a string of it, without the newlines at its end. */
static void quote(const struct buf *b, struct buf *ret)
{
	const char *text = (const char *)b->data + b->off;
	size_t len = buf_used(b);
	while (len > 0 && text[len - 1] == '\n')
		len--;
	json_quote(ret, text, len);
}

void slot_report_done(struct slot *s, usec_t now, bool raw)
{
	const char *values[] = {s->token, NULL};
	if (buf_used(&s->result) == 0) {
		s->told = TOLD_DONE;
		slot_ask(s, "QUEUE DONE $1", 1, values, SLOT_REPORTING, now);
		return;
	}
	/* Text that is bound ends at a NUL, so it would not be all of it. */
	raw = raw && memchr(s->result.data + s->result.off, '\0', buf_used(&s->result)) == NULL;
	struct buf text = BUF_INIT;
	if (!raw)
		quote(&s->result, &text);
	values[1] = buf_cstr(raw ? &s->result : &text);
	s->told = raw && !s->options->lines ? TOLD_RAW : TOLD_DONE;
	if (buf_failed(&text) || buf_failed(&s->result))
		slot_report_failure(s, now, "no memory for the result", false);
	else
		slot_ask(s, "QUEUE DONE $1 RESULT $2", 2, values, SLOT_REPORTING, now);
	buf_free(&text);
}

static void report_status(struct slot *s, usec_t now)
{
	const struct child *c = &s->child;
	struct buf error = BUF_INIT;
	bool final = !s->options->lines && WIFEXITED(c->status) &&
		     WEXITSTATUS(c->status) == FINAL_STATUS;
	if (s->ended_by == BY_TIMEOUT) {
		buf_printf(&error, "timed out after %g s",
			(double)s->options->timeout / (double)USEC_SEC);
		final = false;
	} else if (WIFSIGNALED(c->status))
		buf_printf(&error, "ended by signal %d (%s)", WTERMSIG(c->status),
			strsignal(WTERMSIG(c->status)));
	else
		buf_printf(&error, "exit status %d", WEXITSTATUS(c->status));
	if (s->options->lines && s->ended_by != BY_TIMEOUT)
		buf_puts(&error, buf_used(&c->result) > 0 ? " in the middle of an answer"
							  : " without an answer");
	if (c->error_bytes > 0) {
		buf_puts(&error, ": ");
		child_error_text(c, ERROR_TEXT_MAX, &error);
	}
	slot_report_failure(s, now, buf_cstr(&error), final);
	buf_free(&error);
}

static void report_release(struct slot *s, usec_t now, const char *delay)
{
	const char *const values[] = {s->token, delay};
	s->told = delay != NULL ? TOLD_DONE : TOLD_OTHER;
	slot_ask(s, delay != NULL ? "QUEUE RELEASE $1 DELAY $2" : "QUEUE RELEASE $1",
		delay != NULL ? 2 : 1, values, SLOT_REPORTING, now);
}

/* Done, or not to be done: believed also of one that we have just told to end. */
static bool says_how_it_went(const struct child *c)
{
	return WIFEXITED(c->status) &&
	       (WEXITSTATUS(c->status) == 0 || WEXITSTATUS(c->status) == FINAL_STATUS);
}

/* Without --lines: the command has ended. */
static void report_end(struct slot *s, usec_t now)
{
	struct child *c = &s->child;
	ASSERT(c->pid == 0);
	if (s->ended_by == BY_STOP && !says_how_it_went(c)) {
		report_release(s, now, NULL);
	} else if (s->ended_by != BY_TIMEOUT && WIFEXITED(c->status) &&
		   WEXITSTATUS(c->status) == 0) {
		char text[100];
		snprintf(text, sizeof(text), "the result is longer than %zu bytes",
			s->options->result_max);
		buf_free(&s->result);
		s->result = c->result;
		c->result = BUF_INIT;
		if (c->result_over)
			slot_report_failure(s, now, text, false);
		else
			slot_report_done(s, now, true);
	} else
		report_status(s, now);
}

static void report_answer(struct slot *s, usec_t now)
{
	struct answer *a = &s->answer;
	const char *delay = buf_used(&a->delay) > 0 ? buf_cstr(&a->delay) : NULL;
	const char *const values[] = {s->token, buf_cstr(&a->text), delay};
	if (a->kind == ANSWER_NONE && s->ended_by == BY_STOP)
		report_release(s, now, NULL);
	else if (a->kind == ANSWER_NONE)
		report_status(s, now);
	else if (a->kind == ANSWER_RELEASE)
		report_release(s, now, delay);
	else if (a->kind == ANSWER_DONE) {
		buf_free(&s->result);
		s->result = a->text;
		a->text = BUF_INIT;
		slot_report_done(s, now, true);
	} else if (delay == NULL)
		slot_report_failure(s, now, values[1], a->kind == ANSWER_FINAL);
	else {
		s->told =
			TOLD_DONE; /* if the delay is none, the job fails with what is said of it */
		slot_ask(s, "QUEUE FAIL $1 ERROR $2 RETRY IN $3", 3, values, SLOT_REPORTING, now);
	}
	answer_free(a);
}

void slot_tell_progress(struct slot *s, usec_t now)
{
	struct buf progress = s->progress;
	const char *const values[] = {s->token, buf_cstr(&progress)};
	s->progress = BUF_INIT;
	slot_ask(s, "QUEUE EXTEND $1 PROGRESS $2", 2, values, SLOT_TELLING, now);
	buf_free(&progress);
}

/* The work has ended, and the connection is at rest. */
void slot_report(struct slot *s, usec_t now)
{
	if (s->ended_by == BY_LOSS)
		/* Cancelled, or of somebody else: there is nothing to say. The end of the connection ends the HOLD. */
		slot_again(s, now);
	else if (buf_used(&s->progress) > 0) {
		s->over = true;
		slot_tell_progress(s, now);
	} else if (s->options->lines)
		report_answer(s, now);
	else
		report_end(s, now);
}
