/*
 * A slot takes a job, and starts the command for it or gives it to the one that is there.
 *
 * Must not know: how the job ends.
 *
 * Entry points: slot_int.h.
 */
#include "slot_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define TAKE_WAIT (30 * USEC_SEC)
enum { BYTEA_OID = 17, TEXT_OID = 25, JSONB_OID = 3802 };

/* The name of the queue cannot be bound. */
static bool write_take(struct slot *s)
{
	if (s->take != NULL)
		return true;
	char *name = PQescapeIdentifier(s->conn, s->options->queue, strlen(s->options->queue));
	struct buf sql = BUF_INIT;
	if (name == NULL)
		return false;
	/* A wait that ends by itself is an answer. */
	usec_t wait = s->options->silence > 0 && s->options->silence / 2 < TAKE_WAIT
			      ? s->options->silence / 2
			      : TAKE_WAIT;
	buf_printf(&sql, "QUEUE TAKE %s", name);
	if (s->options->until != WORK_DRAIN)
		buf_printf(&sql, " WAIT '%lld ms'", (long long)(wait / USEC_MSEC));
	buf_puts(&sql, " HOLD $1 AS $2");
	PQfreemem(name);
	s->take = mem_strdup(buf_cstr(&sql));
	buf_free(&sql);
	return s->take != NULL;
}

void slot_take(struct slot *s, usec_t now)
{
	if (s->stops != STOPS_NOT || s->drained) {
		slot_end(s, now);
		return;
	}
	if (!write_take(s)) {
		slot_lose(s, now, PQerrorMessage(s->conn));
		return;
	}
	const char *const values[] = {s->options->hold, s->options->name};
	buf_free(&s->progress);
	answer_free(&s->answer); /* of a job whose connection was lost before it could be told */
	s->ended_by = BY_ITSELF;
	s->over = false;
	slot_ask(s, s->take, 2, values, SLOT_TAKING, now);
}

const char *slot_value(const PGresult *r, const char *column)
{
	int at = PQfnumber(r, column);
	return at < 0 || PQgetisnull(r, 0, at) ? NULL : PQgetvalue(r, 0, at);
}

static bool copy(char *to, size_t size, const char *text)
{
	return text != NULL && util_strlcpy(to, text, size) < size;
}

static const char *look_of(const PGresult *r)
{
	switch (PQftype(r, PQfnumber(r, "payload"))) {
	case JSONB_OID:
		return "SELECT state, cancelled, takes FROM queue.job($1)";
	case TEXT_OID:
		return "SELECT state, cancelled, takes FROM queue.job_text($1)";
	case BYTEA_OID:
		return "SELECT state, cancelled, takes FROM queue.job_bytea($1)";
	default:
		return "QUEUE JOB $1";
	}
}

/* The payload's bytes: text as it is, those of a queue of bytea decoded. */
static bool payload_of(const PGresult *r, struct buf *ret)
{
	int at = PQfnumber(r, "payload");
	if (at < 0)
		return false;
	if (PQftype(r, at) != BYTEA_OID) {
		buf_put(ret, PQgetvalue(r, 0, at), (size_t)PQgetlength(r, 0, at));
		return !buf_failed(ret);
	}
	size_t len = 0;
	unsigned char *bytes = PQunescapeBytea((const unsigned char *)PQgetvalue(r, 0, at), &len);
	if (bytes == NULL)
		return false;
	buf_put(ret, bytes, len);
	PQfreemem(bytes);
	return !buf_failed(ret);
}

/* With the job of a run of its own: the payload on stdin, the rest in the environment. */
static bool start_once(struct slot *s, const PGresult *r, struct buf *payload)
{
	const struct work_options *o = s->options;
	const struct child_variable variables[] = {
		{"QUEUE_JOB", s->job},
		{"QUEUE_TOKEN", s->token},
		{"QUEUE_ID", slot_value(r, "id")},
		{"QUEUE_NAME", slot_value(r, "queue")},
		{"QUEUE_ATTEMPT", slot_value(r, "attempt")},
		{"QUEUE_KEY", slot_value(r, "key")},
		{"QUEUE_GROUP", slot_value(r, "group")},
		{"QUEUE_PRIORITY", slot_value(r, "priority")},
		{"QUEUE_HEADERS", slot_value(r, "headers")},
		{"QUEUE_PUSHED_AT", slot_value(r, "pushed_at")},
		{NULL, NULL},
	};
	return child_start(&s->child, o->command, payload, variables, o->result, o->result_max);
}

/* To the command that is there, or a new one. One that is about to end is waited for. */
bool slot_give_line(struct slot *s, usec_t now)
{
	struct child *c = &s->child;
	const struct work_options *o = s->options;
	const struct child_variable variables[] = {{"QUEUE_NAME", o->queue}, {NULL, NULL}};
	struct buf nothing = BUF_INIT;
	s->given = false;
	if (c->pid != 0 && c->kill_at == USEC_NEVER && (c->in < 0 || c->out < 0))
		c->kill_at = now + LEAVE_MOST;
	if (c->pid != 0 && c->kill_at != USEC_NEVER)
		return true;
	if (c->pid == 0) {
		s->served = 0;
		if (!child_start(c, o->command, &nothing, variables, true, o->result_max))
			return false;
	}
	s->given = child_give(c, &s->line);
	if (!s->given) {
		child_end(c, now, 0);
		errno = ENOMEM;
	}
	return s->given;
}

void slot_cannot_start(struct slot *s, usec_t now)
{
	char text[200];
	snprintf(text, sizeof(text), "cannot start the command: %s", strerror(errno));
	slot_tell(s, "%s", text);
	buf_free(&s->line);
	slot_report_failure(s, now, text, false);
}

void slot_run(struct slot *s, const PGresult *r, usec_t now)
{
	const struct work_options *o = s->options;
	struct buf payload = BUF_INIT;
	bool named = copy(s->token, sizeof(s->token), slot_value(r, "token")) &&
		     copy(s->job, sizeof(s->job), s->token) &&
		     copy(s->takes, sizeof(s->takes), slot_value(r, "takes")) &&
		     strrchr(s->job, '-') != NULL;
	if (!named || !(o->lines ? lines_job(r, &s->line) : payload_of(r, &payload))) {
		buf_free(&payload);
		buf_free(&s->line);
		slot_lose(s, now, "an answer of TAKE that is not understood, or no memory for it");
		return;
	}
	*strrchr(s->job, '-') = '\0';
	s->look = look_of(r);
	s->drained = o->until == WORK_ONCE;
	s->check_at = o->check > 0 ? now + o->check : USEC_NEVER;
	s->timeout_at = o->timeout > 0 ? now + o->timeout : USEC_NEVER;
	if (!(o->lines ? slot_give_line(s, now) : start_once(s, r, &payload))) {
		buf_free(&payload);
		slot_cannot_start(s, now);
		return;
	}
	if (o->verbose)
		slot_tell(s, "job %s, attempt %s: process %ld", s->job, slot_value(r, "attempt"),
			(long)s->child.pid);
	s->state = SLOT_RUNNING;
}
