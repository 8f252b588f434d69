/*
 * A slot's connection: made, lost, made anew; what is asked of the server.
 *
 * Must not know: what is asked, and what comes of it.
 *
 * Entry points: slot_int.h.
 */
#include "slot_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_MOST (10 * USEC_SEC)
/* Without a connect_timeout. */
#define CONNECT_MOST (30 * USEC_SEC)

void slot_tell(const struct slot *s, const char *fmt, ...)
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

void slot_disconnect(struct slot *s)
{
	PQfinish(s->conn);
	s->conn = NULL;
}

/* Somebody works at it. */
bool slot_has_job(const struct slot *s)
{
	return s->options->lines ? buf_used(&s->line) > 0 : s->child.pid != 0;
}

void slot_end(struct slot *s, usec_t now)
{
	ASSERT(!slot_has_job(s));
	slot_disconnect(s);
	s->state = s->child.pid == 0 ? SLOT_ENDED : SLOT_CLOSING;
	s->timeout_at = now + s->options->grace;
	child_close(&s->child);
}

/* Nobody can take with this, now or later: the program ends. */
void slot_give_up(struct slot *s, usec_t now)
{
	slot_tell(s, "it will not be tried again: this does not go away by itself");
	s->failed = true;
	slot_end(s, now);
}

/* Without a connection, and without a job: the next attempt later. */
void slot_rest(struct slot *s, usec_t now)
{
	if (s->stops != STOPS_NOT) {
		slot_end(s, now);
		return;
	}
	if (!*s->met && !s->options->wait)
		slot_tell(s,
			"nobody is there at the start: is it the right host and port? --wait tries again");
	if (*s->met ? s->options->until != WORK_ALWAYS : !s->options->wait) {
		s->failed = true;
		slot_end(s, now);
		return;
	}
	s->state = SLOT_RESTING;
	s->rest_until = now + s->rest;
	s->rest = s->rest * 2 < REST_MOST ? s->rest * 2 : REST_MOST;
}

/* The connection is of no use any more. The job is given back by its end, so the command must not go on. */
void slot_lose(struct slot *s, usec_t now, const char *why)
{
	slot_tell(s, "%s", why);
	slot_disconnect(s);
	if (!slot_has_job(s)) {
		slot_rest(s, now);
		return;
	}
	if (s->child.kill_at == USEC_NEVER)
		child_end(&s->child, now, s->options->grace);
	s->ended_by = BY_LOSS;
	s->state = SLOT_LOSING;
}

/* libpq's own is not for those who poll. */
usec_t slot_connect_most(PGconn *conn)
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

void slot_connect(struct slot *s, usec_t now)
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
	s->rest_until = now + (s->conn != NULL ? slot_connect_most(s->conn) : 0);
	if (s->conn == NULL || PQstatus(s->conn) == CONNECTION_BAD)
		slot_lose(s, now, s->conn == NULL ? "out of memory" : PQerrorMessage(s->conn));
}

/* Of the error of a statement, or of a login. Whoever is away comes back; a wrong name or password stays wrong. */
bool slot_is_final(const char *sqlstate)
{
	static const char *const classes[] = {"0A", "22", "28", "3D", "3F", "42", NULL};
	for (int i = 0; classes[i] != NULL; i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return true;
	return false;
}

/* libpq has the SQLSTATE of a login that was refused in its text alone: "FATAL:  28P01: ...", and of several hosts
 * that of the last is at the end. The word in front may be of any language. NULL: no server has said anything. */
const char *slot_refusal(const char *text)
{
	const char *found = NULL;
	for (const char *at = strstr(text, ":  "); at != NULL; at = strstr(at, ":  ")) {
		at += 3;
		if (strspn(at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && at[5] == ':')
			found = at;
	}
	return found;
}

void slot_again(struct slot *s, usec_t now)
{
	slot_disconnect(s);
	if (s->stops != STOPS_NOT || s->drained)
		slot_end(s, now);
	else
		slot_connect(s, now);
}

bool slot_ask(struct slot *s, const char *sql, int n, const char *const *values,
	enum slot_state state, usec_t now)
{
	if (PQsendQueryParams(s->conn, sql, n, NULL, values, NULL, NULL, 0) == 0 ||
		PQflush(s->conn) < 0) {
		slot_lose(s, now, PQerrorMessage(s->conn));
		return false;
	}
	s->state = state;
	s->answer_by = s->options->silence > 0 ? now + s->options->silence : USEC_NEVER;
	return true;
}

bool slot_is_asked(const struct slot *s)
{
	return s->state == SLOT_TAKING || s->state == SLOT_LOOKING || s->state == SLOT_TELLING ||
	       s->state == SLOT_REPORTING;
}

/* A server that is stopped, or a way to it that swallows all: its TCP may still say that it is there. */
void slot_lose_silent(struct slot *s, usec_t now, usec_t waited)
{
	char text[300];
	snprintf(text, sizeof(text),
		"no answer from %.200s, port %.20s, for %g s: the connection is given up",
		PQhost(s->conn) != NULL ? PQhost(s->conn) : "the server",
		PQport(s->conn) != NULL ? PQport(s->conn) : "?", (double)waited / (double)USEC_SEC);
	slot_lose(s, now, text);
}
