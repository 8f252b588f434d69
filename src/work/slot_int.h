/*
 * A slot from inside (slot.c): what it is, and what its files call of each other. Each calls those above it alone:
 * slot_conn.c, the connection; slot_report.c, how a job has ended; slot_take.c, a job and its command; slot.c, the answers
 * and the turns of the loop.
 */
#ifndef QB_WORK_SLOT_INT_H
#define QB_WORK_SLOT_INT_H

#include <libpq-fe.h>

#include "base/buf.h"

#include "child.h"
#include "lines.h"
#include "options.h"
#include "slot.h"

#define REST_FIRST (USEC_SEC / 10)
/* What a command has that stays and has closed a pipe, which it does when it ends; or that is out of step. */
#define LEAVE_MOST USEC_SEC
enum { TOKEN_MAX = 128, FINAL_STATUS = 65 };

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

/* --- slot_conn.c --- */

void PRINTF_LIKE(2, 3) slot_tell(const struct slot *s, const char *fmt, ...);
void slot_disconnect(struct slot *s);
/* Somebody works at it. */
bool slot_has_job(const struct slot *s);
void slot_end(struct slot *s, usec_t now);
/* Nobody can take with this, now or later: the program ends. */
void slot_give_up(struct slot *s, usec_t now);
/* Without a connection, and without a job: the next attempt later. */
void slot_rest(struct slot *s, usec_t now);
/* The connection is of no use any more. The job is given back by its end, so the command must not go on. */
void slot_lose(struct slot *s, usec_t now, const char *why);
void slot_lose_silent(struct slot *s, usec_t now, usec_t waited);
usec_t slot_connect_most(PGconn *conn);
void slot_connect(struct slot *s, usec_t now);
/* The connection begins anew, if there is to be one. */
void slot_again(struct slot *s, usec_t now);
/* Of the error of a statement, or of a login; and the one of a login. NULL: no server has said anything. */
bool slot_is_final(const char *sqlstate);
const char *slot_refusal(const char *text);
bool slot_ask(struct slot *s, const char *sql, int n, const char *const *values, enum slot_state state, usec_t now);
bool slot_is_asked(const struct slot *s);

/* --- slot_report.c --- */

/* The work has ended, and the connection is at rest. */
void slot_report(struct slot *s, usec_t now);
void slot_report_failure(struct slot *s, usec_t now, const char *error, bool final);
void slot_report_failure_plainly(struct slot *s, usec_t now);
void slot_report_done(struct slot *s, usec_t now, bool raw);
void slot_tell_progress(struct slot *s, usec_t now);

/* --- slot_take.c --- */

void slot_take(struct slot *s, usec_t now);
/* With the job that TAKE has given. */
void slot_run(struct slot *s, const PGresult *r, usec_t now);
const char *slot_value(const PGresult *r, const char *column); /* of its first row; NULL: none, or null */
/* false: errno */
bool slot_give_line(struct slot *s, usec_t now);
void slot_cannot_start(struct slot *s, usec_t now);

#endif
