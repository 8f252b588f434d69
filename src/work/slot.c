/*
 * A slot: one connection and, while it has a job, one run of the command.
 *
 *   CONNECTING → TAKING → RUNNING ⇄ LOOKING, TELLING → REPORTING → TAKING …
 *        ↑          error, or the connection ends: the command is ended (LOSING)
 *     RESTING   ←   and a while later it connects again
 *
 * The job is held by the connection (HOLD): whatever happens to it or to this program, the job is given back.
 *
 * With --lines the command stays. What ends its job is its answer, or its end; it may be there in any state, and at the
 * end it is waited for (CLOSING). While one is told to end a job may come that is for the next one.
 */
#include "slot.h"

#include <errno.h>
#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

#include "child.h"
#include "lines.h"

#define TAKE_WAIT  (30 * USEC_SEC)
#define REST_FIRST (USEC_SEC / 10)
#define REST_MOST  (10 * USEC_SEC)
/* Without a connect_timeout. */
#define CONNECT_MOST (30 * USEC_SEC)
/* What a command has that stays and has closed a pipe, which it does when it ends; or that is out of step. */
#define LEAVE_MOST USEC_SEC
enum { BYTEA_OID = 17, TEXT_OID = 25, JSONB_OID = 3802 };
enum { TOKEN_MAX = 128, ERROR_TEXT_MAX = 7900, FINAL_STATUS = 65 };

enum slot_state {
	SLOT_RESTING,    /* no connection; the next attempt at s->rest_until */
	SLOT_CONNECTING, /* libpq is at it */
	SLOT_TAKING,     /* TAKE is on its way */
	SLOT_RUNNING,    /* the command runs, the connection is at rest */
	SLOT_LOOKING,    /* the command runs, or has just ended; JOB is on its way */
	SLOT_TELLING,    /* --lines: likewise; EXTEND with the job's progress is on its way */
	SLOT_REPORTING,  /* DONE, FAIL or RELEASE is on its way */
	SLOT_LOSING,     /* no connection; the command is told to end */
	SLOT_CLOSING,    /* no connection, no job; one that stays has heard that there is no more */
	SLOT_ENDED,
};

/* What we told of a job. RAW: DONE with the result as it came, perhaps it is no JSON. FAIL: in any characters. */
enum told { TOLD_OTHER, TOLD_RAW, TOLD_DONE, TOLD_FAIL };

/* What we were told: take no more; end the commands. */
enum stops { STOPS_NOT, STOPS_TAKING, STOPS_ALL };

/* Why we told the command to end. */
enum ended_by { BY_ITSELF, BY_TIMEOUT, BY_STOP, BY_LOSS };

struct slot {
	const struct work_options *options;
	PGconn *conn;
	PostgresPollingStatusType connecting;
	enum slot_state state;
	enum ended_by ended_by;
	struct child child;
	char *take;              /* the statement */
	const char *look;        /* the one for payloads of this type */
	char token[TOKEN_MAX];   /* of the job */
	char job[TOKEN_MAX];     /* its name */
	char takes[16];          /* how often it was taken, by us the last time */
	struct buf result;       /* what the command wrote, while DONE is on its way */
	usec_t rest_until, rest; /* rest_until: also when connecting has taken too long */
	usec_t check_at;
	usec_t answer_by;     /* the server has so long for the statement under way */
	usec_t timeout_at;    /* of the job; when CLOSING of the command */
	struct buf line;      /* --lines: the job that is to be answered; empty: there is none */
	struct answer answer; /* --lines: of the job that is over */
	struct buf
		progress; /* --lines: what the server does not know yet, as JSON; empty: it knows */
	unsigned served;  /* --lines: how many this command has answered */
	int number;
	enum told told;
	enum stops stops;
	bool *met; /* somebody could connect since the start, or a server has said why not */
	bool failed;
	bool given;   /* --lines: the command has the line */
	bool over;    /* the work has ended while we looked */
	bool drained; /* TAKE without WAIT found nothing, or the one job of --once is over */
};

static void PRINTF_LIKE(2, 3) tell(const struct slot *s, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	size_t len = strlen(text);
	while (len > 0 && text[len - 1] == '\n')
		text[--len] = '\0';
	fprintf(stderr, "qbouncer-work[%d]: %s\n", s->number, text);
}

static void disconnect(struct slot *s)
{
	PQfinish(s->conn);
	s->conn = NULL;
}

/* Somebody works at it. */
static bool has_job(const struct slot *s)
{
	return s->options->lines ? buf_used(&s->line) > 0 : s->child.pid != 0;
}

static void end(struct slot *s, usec_t now)
{
	ASSERT(!has_job(s));
	disconnect(s);
	s->state = s->child.pid == 0 ? SLOT_ENDED : SLOT_CLOSING;
	s->timeout_at = now + s->options->grace;
	child_close(&s->child);
}

/* Nobody can take with this, now or later: the program ends. */
static void give_up(struct slot *s, usec_t now)
{
	tell(s, "it will not be tried again: this does not go away by itself");
	s->failed = true;
	end(s, now);
}

/* Without a connection, and without a job: the next attempt later. */
static void rest(struct slot *s, usec_t now)
{
	if (s->stops != STOPS_NOT) {
		end(s, now);
		return;
	}
	if (!*s->met && !s->options->wait)
		tell(s, "nobody is there at the start: is it the right host and port? --wait tries again");
	if (*s->met ? s->options->until != WORK_ALWAYS : !s->options->wait) {
		s->failed = true;
		end(s, now);
		return;
	}
	s->state = SLOT_RESTING;
	s->rest_until = now + s->rest;
	s->rest = s->rest * 2 < REST_MOST ? s->rest * 2 : REST_MOST;
}

/* The connection is of no use any more. The job is given back by its end, so the command must not go on. */
static void lose(struct slot *s, usec_t now, const char *why)
{
	tell(s, "%s", why);
	disconnect(s);
	if (!has_job(s)) {
		rest(s, now);
		return;
	}
	if (s->child.kill_at == USEC_NEVER)
		child_end(&s->child, now, s->options->grace);
	s->ended_by = BY_LOSS;
	s->state = SLOT_LOSING;
}

/* libpq's own is not for those who poll. */
static usec_t connect_most(PGconn *conn)
{
	PQconninfoOption *all = PQconninfo(conn);
	usec_t most = CONNECT_MOST;
	for (const PQconninfoOption *o = all; o != NULL && o->keyword != NULL; o++)
		if (strcmp(o->keyword, "connect_timeout") == 0 && o->val != NULL &&
			atoi(o->val) > 0)
			most = (usec_t)atoi(o->val) * USEC_SEC;
	PQconninfoFree(all);
	return most;
}

static void connect_begin(struct slot *s, usec_t now)
{
	/* The first dbname may be a connection string; it wins over what is before it. */
	static const char *const keywords[] = {"fallback_application_name", "keepalives_idle",
		"keepalives_interval", "keepalives_count", "tcp_user_timeout", "dbname",
		"client_encoding", NULL};
	/* A host that is gone without a word is noticed within a minute, as long as the job is leased without it. */
	const char *values[] = {
		"qbouncer-work", "30", "10", "3", "60000", s->options->conninfo, "UTF8", NULL};
	s->conn = PQconnectStartParams(keywords, values, 1);
	PQsetErrorVerbosity(s->conn, PQERRORS_VERBOSE); /* with its SQLSTATE */
	s->state = SLOT_CONNECTING;
	s->connecting = PGRES_POLLING_WRITING;
	s->rest_until = now + (s->conn != NULL ? connect_most(s->conn) : 0);
	if (s->conn == NULL || PQstatus(s->conn) == CONNECTION_BAD)
		lose(s, now, s->conn == NULL ? "out of memory" : PQerrorMessage(s->conn));
}

/* Of the error of a statement, or of a login. Whoever is away comes back; a wrong name or password stays wrong. */
static bool is_final(const char *sqlstate)
{
	static const char *const classes[] = {"0A", "22", "28", "3D", "3F", "42", NULL};
	for (int i = 0; classes[i] != NULL; i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return true;
	return false;
}

/* libpq has the SQLSTATE of a login that was refused in its text alone: "FATAL:  28P01: ...", and of several hosts
 * that of the last is at the end. The word in front may be of any language. NULL: no server has said anything. */
static const char *refusal_of(const char *text)
{
	const char *found = NULL;
	for (const char *at = strstr(text, ":  "); at != NULL; at = strstr(at, ":  ")) {
		at += 3;
		if (strspn(at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && at[5] == ':')
			found = at;
	}
	return found;
}

static void again(struct slot *s, usec_t now)
{
	disconnect(s);
	if (s->stops != STOPS_NOT || s->drained)
		end(s, now);
	else
		connect_begin(s, now);
}

static bool ask(struct slot *s, const char *sql, int n, const char *const *values,
	enum slot_state state, usec_t now)
{
	if (PQsendQueryParams(s->conn, sql, n, NULL, values, NULL, NULL, 0) == 0 ||
		PQflush(s->conn) < 0) {
		lose(s, now, PQerrorMessage(s->conn));
		return false;
	}
	s->state = state;
	s->answer_by = s->options->silence > 0 ? now + s->options->silence : USEC_NEVER;
	return true;
}

static bool is_asked(const struct slot *s)
{
	return s->state == SLOT_TAKING || s->state == SLOT_LOOKING || s->state == SLOT_TELLING ||
	       s->state == SLOT_REPORTING;
}

/* A server that is stopped, or a way to it that swallows all: its TCP may still say that it is there. */
static void lose_silent(struct slot *s, usec_t now, usec_t waited)
{
	char text[300];
	snprintf(text, sizeof(text),
		"no answer from %.200s, port %.20s, for %g s: the connection is given up",
		PQhost(s->conn) != NULL ? PQhost(s->conn) : "the server",
		PQport(s->conn) != NULL ? PQport(s->conn) : "?", (double)waited / (double)USEC_SEC);
	lose(s, now, text);
}

/* ------------------------------------------------------------------------------------------------
 * Taking a job
 * ------------------------------------------------------------------------------------------------ */

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

static void take(struct slot *s, usec_t now)
{
	if (s->stops != STOPS_NOT || s->drained) {
		end(s, now);
		return;
	}
	if (!write_take(s)) {
		lose(s, now, PQerrorMessage(s->conn));
		return;
	}
	const char *const values[] = {s->options->hold, s->options->name};
	buf_free(&s->progress);
	answer_free(&s->answer); /* of a job whose connection was lost before it could be told */
	s->ended_by = BY_ITSELF;
	s->over = false;
	ask(s, s->take, 2, values, SLOT_TAKING, now);
}

static const char *value(const PGresult *r, const char *column)
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

static void report_failure(struct slot *s, usec_t now, const char *error, bool final);

/* With the job of a run of its own: the payload on stdin, the rest in the environment. */
static bool start_once(struct slot *s, const PGresult *r, struct buf *payload)
{
	const struct work_options *o = s->options;
	const struct child_variable variables[] = {
		{"QUEUE_JOB", s->job},
		{"QUEUE_TOKEN", s->token},
		{"QUEUE_ID", value(r, "id")},
		{"QUEUE_NAME", value(r, "queue")},
		{"QUEUE_ATTEMPT", value(r, "attempt")},
		{"QUEUE_KEY", value(r, "key")},
		{"QUEUE_GROUP", value(r, "group")},
		{"QUEUE_PRIORITY", value(r, "priority")},
		{"QUEUE_HEADERS", value(r, "headers")},
		{"QUEUE_PUSHED_AT", value(r, "pushed_at")},
		{NULL, NULL},
	};
	return child_start(&s->child, o->command, payload, variables, o->result, o->result_max);
}

/* To the command that is there, or a new one. One that is about to end is waited for. */
static bool give_line(struct slot *s, usec_t now)
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

static void cannot_start(struct slot *s, usec_t now)
{
	char text[200];
	snprintf(text, sizeof(text), "cannot start the command: %s", strerror(errno));
	tell(s, "%s", text);
	buf_free(&s->line);
	report_failure(s, now, text, false);
}

static void run(struct slot *s, const PGresult *r, usec_t now)
{
	const struct work_options *o = s->options;
	struct buf payload = BUF_INIT;
	bool named = copy(s->token, sizeof(s->token), value(r, "token")) &&
		     copy(s->job, sizeof(s->job), s->token) &&
		     copy(s->takes, sizeof(s->takes), value(r, "takes")) &&
		     strrchr(s->job, '-') != NULL;
	if (!named || !(o->lines ? lines_job(r, &s->line) : payload_of(r, &payload))) {
		buf_free(&payload);
		buf_free(&s->line);
		lose(s, now, "an answer of TAKE that is not understood, or no memory for it");
		return;
	}
	*strrchr(s->job, '-') = '\0';
	s->look = look_of(r);
	s->drained = o->until == WORK_ONCE;
	s->check_at = o->check > 0 ? now + o->check : USEC_NEVER;
	s->timeout_at = o->timeout > 0 ? now + o->timeout : USEC_NEVER;
	if (!(o->lines ? give_line(s, now) : start_once(s, r, &payload))) {
		buf_free(&payload);
		cannot_start(s, now);
		return;
	}
	if (o->verbose)
		tell(s, "job %s, attempt %s: process %ld", s->job, value(r, "attempt"),
			(long)s->child.pid);
	s->state = SLOT_RUNNING;
}

/* ------------------------------------------------------------------------------------------------
 * Telling how it has ended
 * ------------------------------------------------------------------------------------------------ */

static void report_failure(struct slot *s, usec_t now, const char *error, bool final)
{
	const char *const values[] = {s->token, error};
	s->told = TOLD_FAIL;
	if (s->options->verbose)
		tell(s, "job %s has failed%s: %s", s->job, final ? " for good" : "", error);
	ask(s, final ? "QUEUE FAIL $1 ERROR $2 FINAL" : "QUEUE FAIL $1 ERROR $2", 2, values,
		SLOT_REPORTING, now);
}

/* An encoding of the database that does not know the characters, say. */
static void report_failure_plainly(struct slot *s, usec_t now)
{
	const char *const values[] = {s->token};
	s->told = TOLD_OTHER;
	ask(s, "QUEUE FAIL $1 ERROR 'qbouncer-work could not store why; its standard error tells'",
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

static void report_done(struct slot *s, usec_t now, bool raw)
{
	const char *values[] = {s->token, NULL};
	if (buf_used(&s->result) == 0) {
		s->told = TOLD_DONE;
		ask(s, "QUEUE DONE $1", 1, values, SLOT_REPORTING, now);
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
		report_failure(s, now, "no memory for the result", false);
	else
		ask(s, "QUEUE DONE $1 RESULT $2", 2, values, SLOT_REPORTING, now);
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
	report_failure(s, now, buf_cstr(&error), final);
	buf_free(&error);
}

static void report_release(struct slot *s, usec_t now, const char *delay)
{
	const char *const values[] = {s->token, delay};
	s->told = delay != NULL ? TOLD_DONE : TOLD_OTHER;
	ask(s, delay != NULL ? "QUEUE RELEASE $1 DELAY $2" : "QUEUE RELEASE $1",
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
			report_failure(s, now, text, false);
		else
			report_done(s, now, true);
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
		report_done(s, now, true);
	} else if (delay == NULL)
		report_failure(s, now, values[1], a->kind == ANSWER_FINAL);
	else {
		s->told =
			TOLD_DONE; /* if the delay is none, the job fails with what is said of it */
		ask(s, "QUEUE FAIL $1 ERROR $2 RETRY IN $3", 3, values, SLOT_REPORTING, now);
	}
	answer_free(a);
}

static void tell_progress(struct slot *s, usec_t now)
{
	struct buf progress = s->progress;
	const char *const values[] = {s->token, buf_cstr(&progress)};
	s->progress = BUF_INIT;
	ask(s, "QUEUE EXTEND $1 PROGRESS $2", 2, values, SLOT_TELLING, now);
	buf_free(&progress);
}

/* The work has ended, and the connection is at rest. */
static void report(struct slot *s, usec_t now)
{
	if (s->ended_by == BY_LOSS)
		/* Cancelled, or of somebody else: there is nothing to say. The end of the connection ends the HOLD. */
		again(s, now);
	else if (buf_used(&s->progress) > 0) {
		s->over = true;
		tell_progress(s, now);
	} else if (s->options->lines)
		report_answer(s, now);
	else
		report_end(s, now);
}

/* ------------------------------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------------------------------ */

static bool is_state(const PGresult *r, const char *sqlstate)
{
	const char *is = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	return is != NULL && strcmp(is, sqlstate) == 0;
}

static void answer_take(struct slot *s, const PGresult *r, usec_t now)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	if (PQresultStatus(r) != PGRES_TUPLES_OK && state != NULL && is_final(state)) {
		tell(s, "%s", PQresultErrorMessage(r));
		give_up(s, now);
		return;
	}
	if (PQresultStatus(r) != PGRES_TUPLES_OK) {
		lose(s, now, PQresultErrorMessage(r));
		return;
	}
	s->rest = REST_FIRST;
	if (PQntuples(r) > 0) {
		run(s, r, now);
		return;
	}
	s->drained = s->options->until == WORK_DRAIN;
	take(s, now);
}

/* Still ours: leased, not cancelled, and not taken by somebody since. */
static bool still_ours(const struct slot *s, const PGresult *r)
{
	if (PQntuples(r) == 0)
		return false;
	const char *state = value(r, "state"), *cancelled = value(r, "cancelled"),
		   *takes = value(r, "takes");
	return state != NULL && strcmp(state, "leased") == 0 && cancelled != NULL &&
	       *cancelled == 'f' && takes != NULL && strcmp(takes, s->takes) == 0;
}

static void end_lost(struct slot *s, usec_t now)
{
	if (s->ended_by != BY_ITSELF)
		return;
	tell(s, "job %s is cancelled, or no longer ours: its command is ended", s->job);
	s->ended_by = BY_LOSS;
	child_end(&s->child, now, s->options->grace);
}

static void answer_look(struct slot *s, const PGresult *r, usec_t now)
{
	bool gone =
		is_state(r, "QB003") || (PQresultStatus(r) == PGRES_TUPLES_OK && !still_ours(s, r));
	s->state = SLOT_RUNNING;
	s->check_at = now + s->options->check;
	if (s->over) {
		report(s, now); /* DONE and FAIL find out themselves */
		return;
	}
	if (PQresultStatus(r) != PGRES_TUPLES_OK && !gone)
		tell(s, "%s", PQresultErrorMessage(r)); /* perhaps the next one knows more */
	if (gone)
		end_lost(s, now);
}

/* What is no JSON, or more than the database takes, is told here and goes nowhere else. */
static void answer_tell(struct slot *s, const PGresult *r, usec_t now)
{
	s->state = SLOT_RUNNING;
	if (PQresultStatus(r) != PGRES_COMMAND_OK)
		tell(s, "job %s: the progress is not stored: %s", s->job, PQresultErrorMessage(r));
	if (s->over)
		report(s, now);
	else if (is_state(r, "QB001") || is_state(r, "QB002") || is_state(r, "QB003"))
		end_lost(s, now);
}

static void answer_report(struct slot *s, const PGresult *r, usec_t now)
{
	if (PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK) {
		if (s->options->verbose)
			tell(s, "job %s: %s", s->job, PQcmdStatus((PGresult *)r));
		take(s, now);
		return;
	}
	bool alive = PQstatus(s->conn) == CONNECTION_OK;
	bool gone = is_state(r, "QB001") || is_state(r, "QB002") || is_state(r, "QB003");
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	/* Class 22, data exception: no JSON, or not what jsonb takes. */
	if (alive && s->told == TOLD_RAW && state != NULL && strncmp(state, "22", 2) == 0) {
		report_done(s, now, false);
		return;
	}
	tell(s, "job %s: %s", s->job, PQresultErrorMessage(r));
	/* A job whose DONE is refused must not run for ever; nor one of which the database cannot store why it failed. */
	if (alive && !gone && s->told == TOLD_FAIL)
		report_failure_plainly(s, now);
	else if (alive && !gone && s->told != TOLD_OTHER)
		report_failure(s, now, PQresultErrorMessage(r), false);
	else if (alive && gone)
		again(s, now); /* the end of the connection gives back what is still held */
	else
		lose(s, now, "the connection begins anew");
}

static void answer(struct slot *s, PGresult *r, usec_t now)
{
	if (s->state == SLOT_TAKING)
		answer_take(s, r, now);
	else if (s->state == SLOT_LOOKING)
		answer_look(s, r, now);
	else if (s->state == SLOT_TELLING)
		answer_tell(s, r, now);
	else if (s->state == SLOT_REPORTING)
		answer_report(s, r, now);
}

/* All results of the statement are there: the last one counts, there is only one. */
static void read_answer(struct slot *s, usec_t now)
{
	PGresult *last = NULL;
	if (PQconsumeInput(s->conn) == 0 || PQstatus(s->conn) != CONNECTION_OK) {
		lose(s, now, PQerrorMessage(s->conn));
		return;
	}
	if (s->state == SLOT_RUNNING || PQisBusy(s->conn))
		return;
	for (PGresult *r = PQgetResult(s->conn); r != NULL; r = PQgetResult(s->conn)) {
		PQclear(last);
		last = r;
	}
	if (last != NULL)
		answer(s, last, now);
	PQclear(last);
}

static void connect_step(struct slot *s, usec_t now)
{
	s->connecting = PQconnectPoll(s->conn);
	const char *refusal =
		s->connecting == PGRES_POLLING_FAILED ? refusal_of(PQerrorMessage(s->conn)) : NULL;
	*s->met = *s->met || refusal != NULL || s->connecting == PGRES_POLLING_OK;
	if (s->connecting == PGRES_POLLING_FAILED &&
		(PQconnectionNeedsPassword(s->conn) || (refusal != NULL && is_final(refusal)))) {
		tell(s, "%s", PQerrorMessage(s->conn));
		give_up(s, now);
	} else if (s->connecting == PGRES_POLLING_FAILED)
		lose(s, now, PQerrorMessage(s->conn));
	else if (s->connecting == PGRES_POLLING_OK) {
		PQsetnonblocking(s->conn, 1);
		take(s, now);
	}
}

/* ------------------------------------------------------------------------------------------------
 * The turns of the loop
 * ------------------------------------------------------------------------------------------------ */

struct slot *slot_new(const struct work_options *options, int number, bool *met)
{
	struct slot *s = mem_zalloc(sizeof(*s));
	if (s == NULL)
		return NULL;
	s->options = options;
	s->number = number;
	s->met = met;
	s->rest = REST_FIRST;
	child_init(&s->child);
	return s;
}

void slot_free(struct slot *s)
{
	if (s == NULL)
		return;
	disconnect(s);
	child_free(&s->child);
	buf_free(&s->result);
	buf_free(&s->line);
	buf_free(&s->progress);
	answer_free(&s->answer);
	mem_free(s->take);
	mem_free(s);
}

void slot_start(struct slot *s, usec_t now)
{
	connect_begin(s, now);
}

void slot_poll(const struct slot *s, struct pollfd *fds)
{
	struct pollfd *sock = &fds[CHILD_FDS];
	child_poll(&s->child, fds);
	*sock = (struct pollfd){.fd = s->conn != NULL ? PQsocket(s->conn) : -1, .events = POLLIN};
	if (s->state == SLOT_CONNECTING)
		sock->events = s->connecting == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
	else if (s->conn != NULL && PQflush(s->conn) == 1)
		sock->events = POLLIN | POLLOUT;
}

void slot_step(struct slot *s, const struct pollfd *fds, usec_t now)
{
	child_step(&s->child, fds);
	if (s->conn == NULL || fds[CHILD_FDS].revents == 0)
		return;
	if (s->state == SLOT_CONNECTING)
		connect_step(s, now);
	else
		read_answer(s, now);
}

/* What QUEUE JOB does, without the payload, which Postgres then does not even read. */
static void look(struct slot *s, usec_t now)
{
	const char *const values[] = {s->job};
	ask(s, s->look, 1, values, SLOT_LOOKING, now);
}

static usec_t earlier(usec_t a, usec_t b)
{
	return a < b ? a : b;
}

static void work_is_over(struct slot *s, usec_t now)
{
	buf_free(&s->line);
	if (s->state == SLOT_LOSING) {
		answer_free(&s->answer);
		rest(s, now);
	} else if (s->state == SLOT_LOOKING || s->state == SLOT_TELLING)
		s->over = true; /* the answer comes first */
	else
		report(s, now);
}

/* One that stayed was to take this line, and ended as it may between two jobs: it has not begun to read it. */
static bool left_in_between(const struct slot *s)
{
	const struct child *c = &s->child;
	return s->served > 0 && s->ended_by == BY_ITSELF && WIFEXITED(c->status) &&
	       WEXITSTATUS(c->status) == 0 && c->unread >= buf_used(&s->line);
}

/* It is out of step: what it writes next would be taken for the answer of another job. */
static void replace(struct slot *s, usec_t now, const char *why)
{
	if (s->child.pid == 0 || s->child.kill_at != USEC_NEVER)
		return;
	tell(s, "the command has written %s: it is replaced", why);
	child_end(&s->child, now, earlier(s->options->grace, LEAVE_MOST));
}

/* Nobody asks one that is about to end. */
static void forget_unasked(struct slot *s, usec_t now)
{
	if (buf_used(&s->child.result) == 0 && !s->child.result_over)
		return;
	if (s->state != SLOT_CLOSING)
		replace(s, now, "without being asked");
	child_forget_line(&s->child);
}

/* Is it the last word? Of several progresses that come while the server is asked only the last one counts. */
static bool read_answer_line(struct slot *s)
{
	struct child *c = &s->child;
	char text[100];
	snprintf(text, sizeof(text), "the command's answer is longer than %zu bytes",
		s->options->result_max);
	if (c->result_over)
		answer_bad(&s->answer, text);
	else
		answer_read(
			&s->answer, (const char *)c->result.data + c->result.off, c->line_end - 1);
	if (s->answer.kind != ANSWER_PROGRESS)
		return true;
	buf_free(&s->progress);
	s->progress = s->answer.text;
	s->answer.text = BUF_INIT;
	answer_free(&s->answer);
	child_next_line(c);
	return false;
}

/* What it says after it was told that its time is over does not count. */
static void read_line(struct slot *s, usec_t now)
{
	struct child *c = &s->child;
	if (buf_used(&s->line) == 0 || !s->given) {
		forget_unasked(s, now);
		return;
	}
	if (s->ended_by == BY_TIMEOUT || s->ended_by == BY_LOSS)
		return;
	do
		if (c->line_end == 0 && !c->result_over)
			return;
	while (!read_answer_line(s));
	if (s->answer.kind == ANSWER_BAD)
		replace(s, now, "what is no answer");
	else if (buf_used(&c->result) > c->line_end)
		replace(s, now, "more than an answer");
	child_forget_line(c);
	s->served++;
	work_is_over(s, now);
}

static void line_child_ended(struct slot *s, usec_t now)
{
	const struct child *c = &s->child;
	if (s->state == SLOT_CLOSING)
		s->state = SLOT_ENDED;
	else if (buf_used(&s->line) == 0) {
		if (WIFSIGNALED(c->status) || WEXITSTATUS(c->status) != 0)
			tell(s, "the command has ended between two jobs: the next job starts it anew");
	} else if (s->state == SLOT_LOSING || s->ended_by != BY_ITSELF ||
		   (s->given && !left_in_between(s)))
		work_is_over(s, now);
	else if (!give_line(s, now))
		cannot_start(s, now);
}

static void tick_lines(struct slot *s, usec_t now)
{
	struct child *c = &s->child;
	bool ended = child_ended(c);
	read_line(s, now);
	if (ended)
		line_child_ended(s, now);
	/* It can no more answer. */
	if (c->pid != 0 && buf_used(&s->line) > 0 && c->kill_at == USEC_NEVER &&
		(c->in < 0 || c->out < 0))
		c->kill_at = now + LEAVE_MOST;
	if (s->state == SLOT_CLOSING && s->timeout_at <= now) {
		s->timeout_at = USEC_NEVER;
		child_end(c, now, s->options->grace);
	}
}

void slot_tick(struct slot *s, usec_t now)
{
	if (s->state == SLOT_RESTING && s->rest_until <= now)
		connect_begin(s, now);
	else if (s->state == SLOT_CONNECTING && s->rest_until <= now)
		lose_silent(s, now, connect_most(s->conn));
	else if (is_asked(s) && s->answer_by <= now)
		lose_silent(s, now, s->options->silence);
	if (s->options->lines)
		tick_lines(s, now);
	else if (child_ended(&s->child))
		work_is_over(s, now);
	child_tick(&s->child, now);
	if (!has_job(s))
		return;
	if (s->timeout_at <= now && s->ended_by == BY_ITSELF) {
		s->ended_by = BY_TIMEOUT;
		child_end(&s->child, now, s->options->grace);
	}
	if (s->state == SLOT_RUNNING && buf_used(&s->progress) > 0 &&
		(s->ended_by == BY_ITSELF || s->ended_by == BY_STOP))
		tell_progress(s, now);
	else if (s->state == SLOT_RUNNING && s->check_at <= now && s->ended_by == BY_ITSELF)
		look(s, now);
}

usec_t slot_due(const struct slot *s)
{
	usec_t due = s->child.pid != 0 ? s->child.kill_at : USEC_NEVER;
	if (s->state == SLOT_RESTING || s->state == SLOT_CONNECTING)
		return earlier(due, s->rest_until);
	if (is_asked(s))
		due = earlier(due, s->answer_by);
	if (s->state == SLOT_CLOSING)
		return earlier(due, s->timeout_at);
	if (has_job(s) && s->ended_by == BY_ITSELF)
		due = earlier(due, earlier(s->timeout_at,
					   s->state == SLOT_RUNNING ? s->check_at : USEC_NEVER));
	return due;
}

void slot_stop(struct slot *s, usec_t now)
{
	s->stops = STOPS_TAKING;
	/* A job that is on its way to a connection that is closed is ready again at once, and nothing counts. */
	if (s->state == SLOT_RESTING || s->state == SLOT_CONNECTING || s->state == SLOT_TAKING)
		end(s, now);
}

void slot_abort(struct slot *s, usec_t now)
{
	bool again = s->stops == STOPS_ALL;
	s->stops = STOPS_ALL;
	if (s->child.pid != 0) {
		if (has_job(s) && s->ended_by == BY_ITSELF)
			s->ended_by = BY_STOP;
		child_end(&s->child, now, s->options->grace);
	}
	/* Its server does not answer; the end of the connection gives the job back. */
	if (again && !has_job(s) && s->state != SLOT_CLOSING && s->state != SLOT_ENDED)
		end(s, now);
}

bool slot_ended(const struct slot *s)
{
	return s->state == SLOT_ENDED;
}

bool slot_failed(const struct slot *s)
{
	return s->failed;
}
