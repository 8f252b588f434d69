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
#include "slot_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"

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
	if (PQresultStatus(r) != PGRES_TUPLES_OK && state != NULL && slot_is_final(state)) {
		slot_tell(s, "%s", PQresultErrorMessage(r));
		slot_give_up(s, now);
		return;
	}
	if (PQresultStatus(r) != PGRES_TUPLES_OK) {
		slot_lose(s, now, PQresultErrorMessage(r));
		return;
	}
	s->rest = REST_FIRST;
	if (PQntuples(r) > 0) {
		slot_run(s, r, now);
		return;
	}
	s->drained = s->options->until == WORK_DRAIN;
	slot_take(s, now);
}

/* Still ours: leased, not cancelled, and not taken by somebody since. */
static bool still_ours(const struct slot *s, const PGresult *r)
{
	if (PQntuples(r) == 0)
		return false;
	const char *state = slot_value(r, "state"), *cancelled = slot_value(r, "cancelled"),
		   *takes = slot_value(r, "takes");
	return state != NULL && strcmp(state, "leased") == 0 && cancelled != NULL &&
	       *cancelled == 'f' && takes != NULL && strcmp(takes, s->takes) == 0;
}

static void end_lost(struct slot *s, usec_t now)
{
	if (s->ended_by != BY_ITSELF)
		return;
	slot_tell(s, "job %s is cancelled, or no longer ours: its command is ended", s->job);
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
		slot_report(s, now); /* DONE and FAIL find out themselves */
		return;
	}
	if (PQresultStatus(r) != PGRES_TUPLES_OK && !gone)
		slot_tell(s, "%s", PQresultErrorMessage(r)); /* perhaps the next one knows more */
	if (gone)
		end_lost(s, now);
}

/* What is no JSON, or more than the database takes, is told here and goes nowhere else. */
static void answer_tell(struct slot *s, const PGresult *r, usec_t now)
{
	s->state = SLOT_RUNNING;
	if (PQresultStatus(r) != PGRES_COMMAND_OK)
		slot_tell(s, "job %s: the progress is not stored: %s", s->job,
			PQresultErrorMessage(r));
	if (s->over)
		slot_report(s, now);
	else if (is_state(r, "QB001") || is_state(r, "QB002") || is_state(r, "QB003"))
		end_lost(s, now);
}

static void answer_report(struct slot *s, const PGresult *r, usec_t now)
{
	if (PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK) {
		if (s->options->verbose)
			slot_tell(s, "job %s: %s", s->job, PQcmdStatus((PGresult *)r));
		slot_take(s, now);
		return;
	}
	bool alive = PQstatus(s->conn) == CONNECTION_OK;
	bool gone = is_state(r, "QB001") || is_state(r, "QB002") || is_state(r, "QB003");
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	/* Class 22, data exception: no JSON, or not what jsonb takes. */
	if (alive && s->told == TOLD_RAW && state != NULL && strncmp(state, "22", 2) == 0) {
		slot_report_done(s, now, false);
		return;
	}
	slot_tell(s, "job %s: %s", s->job, PQresultErrorMessage(r));
	/* A job whose DONE is refused must not run for ever; nor one of which the database cannot store why it failed. */
	if (alive && !gone && s->told == TOLD_FAIL)
		slot_report_failure_plainly(s, now);
	else if (alive && !gone && s->told != TOLD_OTHER)
		slot_report_failure(s, now, PQresultErrorMessage(r), false);
	else if (alive && gone)
		slot_again(s, now); /* the end of the connection gives back what is still held */
	else
		slot_lose(s, now, "the connection begins anew");
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
		slot_lose(s, now, PQerrorMessage(s->conn));
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
	const char *refusal = s->connecting == PGRES_POLLING_FAILED
				      ? slot_refusal(PQerrorMessage(s->conn))
				      : NULL;
	*s->met = *s->met || refusal != NULL || s->connecting == PGRES_POLLING_OK;
	if (s->connecting == PGRES_POLLING_FAILED &&
		(PQconnectionNeedsPassword(s->conn) ||
			(refusal != NULL && slot_is_final(refusal)))) {
		slot_tell(s, "%s", PQerrorMessage(s->conn));
		slot_give_up(s, now);
	} else if (s->connecting == PGRES_POLLING_FAILED)
		slot_lose(s, now, PQerrorMessage(s->conn));
	else if (s->connecting == PGRES_POLLING_OK) {
		PQsetnonblocking(s->conn, 1);
		slot_take(s, now);
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
	slot_disconnect(s);
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
	slot_connect(s, now);
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
	slot_ask(s, s->look, 1, values, SLOT_LOOKING, now);
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
		slot_rest(s, now);
	} else if (s->state == SLOT_LOOKING || s->state == SLOT_TELLING)
		s->over = true; /* the answer comes first */
	else
		slot_report(s, now);
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
	slot_tell(s, "the command has written %s: it is replaced", why);
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
			slot_tell(s,
				"the command has ended between two jobs: the next job starts it anew");
	} else if (s->state == SLOT_LOSING || s->ended_by != BY_ITSELF ||
		   (s->given && !left_in_between(s)))
		work_is_over(s, now);
	else if (!slot_give_line(s, now))
		slot_cannot_start(s, now);
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
		slot_connect(s, now);
	else if (s->state == SLOT_CONNECTING && s->rest_until <= now)
		slot_lose_silent(s, now, slot_connect_most(s->conn));
	else if (slot_is_asked(s) && s->answer_by <= now)
		slot_lose_silent(s, now, s->options->silence);
	if (s->options->lines)
		tick_lines(s, now);
	else if (child_ended(&s->child))
		work_is_over(s, now);
	child_tick(&s->child, now);
	if (!slot_has_job(s))
		return;
	if (s->timeout_at <= now && s->ended_by == BY_ITSELF) {
		s->ended_by = BY_TIMEOUT;
		child_end(&s->child, now, s->options->grace);
	}
	if (s->state == SLOT_RUNNING && buf_used(&s->progress) > 0 &&
		(s->ended_by == BY_ITSELF || s->ended_by == BY_STOP))
		slot_tell_progress(s, now);
	else if (s->state == SLOT_RUNNING && s->check_at <= now && s->ended_by == BY_ITSELF)
		look(s, now);
}

usec_t slot_due(const struct slot *s)
{
	usec_t due = s->child.pid != 0 ? s->child.kill_at : USEC_NEVER;
	if (s->state == SLOT_RESTING || s->state == SLOT_CONNECTING)
		return earlier(due, s->rest_until);
	if (slot_is_asked(s))
		due = earlier(due, s->answer_by);
	if (s->state == SLOT_CLOSING)
		return earlier(due, s->timeout_at);
	if (slot_has_job(s) && s->ended_by == BY_ITSELF)
		due = earlier(due, earlier(s->timeout_at,
					   s->state == SLOT_RUNNING ? s->check_at : USEC_NEVER));
	return due;
}

void slot_stop(struct slot *s, usec_t now)
{
	s->stops = STOPS_TAKING;
	/* A job that is on its way to a connection that is closed is ready again at once, and nothing counts. */
	if (s->state == SLOT_RESTING || s->state == SLOT_CONNECTING || s->state == SLOT_TAKING)
		slot_end(s, now);
}

void slot_abort(struct slot *s, usec_t now)
{
	bool again = s->stops == STOPS_ALL;
	s->stops = STOPS_ALL;
	if (s->child.pid != 0) {
		if (slot_has_job(s) && s->ended_by == BY_ITSELF)
			s->ended_by = BY_STOP;
		child_end(&s->child, now, s->options->grace);
	}
	/* Its server does not answer; the end of the connection gives the job back. */
	if (again && !slot_has_job(s) && s->state != SLOT_CLOSING && s->state != SLOT_ENDED)
		slot_end(s, now);
}

bool slot_ended(const struct slot *s)
{
	return s->state == SLOT_ENDED;
}

bool slot_failed(const struct slot *s)
{
	return s->failed;
}
