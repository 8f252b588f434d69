/*
 * What is spoken with a command of --lines: a job is a line of JSON, and so is its answer.
 * Entry points: lines_job(), answer_read().
 */
#ifndef QB_WORK_LINES_H
#define QB_WORK_LINES_H

#include <libpq-fe.h>

#include "base/buf.h"

enum answer_kind {
	ANSWER_NONE, /* the command has ended without one */
	ANSWER_DONE,
	ANSWER_FAIL,
	ANSWER_FINAL, /* failed, and not to be tried again */
	ANSWER_RELEASE,
	ANSWER_PROGRESS, /* of a job that goes on */
	ANSWER_BAD /* what it has written is none: text says why */
};

struct answer {
	enum answer_kind kind;
	struct buf text;  /* the result as JSON, empty: none; the error; the progress as JSON */
	struct buf delay; /* an interval; empty: as the queue says */
};

/* The first row of a TAKE as a line. false: it has not the columns. */
MUST_CHECK bool lines_job(const PGresult *r, struct buf *ret);
void answer_read(struct answer *a, const char *line, size_t len);
void answer_bad(struct answer *a, const char *why);
void answer_free(struct answer *a);

#endif
