/*
 * One run of the command: a process in a group of its own, and the pipes to it. Its owner polls, and says
 * when it has ended. With --lines it stays, and is given line after line. Entry points: child_start(), child_step(),
 * child_ended(), child_give().
 */
#ifndef QB_WORK_CHILD_H
#define QB_WORK_CHILD_H

#include <poll.h>
#include <sys/types.h>

#include "base/buf.h"

/* Of its stderr so much is kept, the last: what FAIL takes. */
#define CHILD_ERROR_MAX 8192

struct child {
	pid_t pid;                    /* 0: there is none */
	int in, out, err;             /* our ends; -1: closed */
	struct buf input, result;     /* what is still to be written; stdout */
	char error[CHILD_ERROR_MAX];  /* a ring: the last bytes of stderr */
	size_t error_bytes;           /* how many came in all */
	size_t result_max;
	usec_t kill_at;               /* USEC_NEVER: it has not been told to end */
	int status;                   /* of waitpid(), when it has ended */
	size_t line_end;              /* of one that stays: the line that is next in result ends before here; 0: not yet */
	size_t unread;                /* of one that stayed and has ended: what it has not read of its input */
	bool result_over;             /* stdout was longer than result_max: the rest is dropped */
	bool stays;                   /* for more than one input: it is not told that one is over */
};

enum { CHILD_FDS = 3 };

struct child_variable {
	const char *name, *value; /* value NULL: not in its environment */
};

void child_init(struct child *c);
/* Takes the bytes of input. false: errno tells why it could not be started. */
MUST_CHECK bool child_start(struct child *c, char **command, struct buf *input, const struct child_variable *variables,
			    bool result, size_t result_max);
/* These bytes behind those before; it stays from then on. Its last words on stderr are forgotten. false: no memory. */
MUST_CHECK bool child_give(struct child *c, const struct buf *input);
void child_next_line(struct child *c);   /* The line that it has written is forgotten: what is behind it is next */
void child_forget_line(struct child *c); /* ... and what is behind it */
/* To one that stays: there is no more. */
void child_close(struct child *c);
/* What to wait for; fills CHILD_FDS of them, unused ones with -1. */
void child_poll(const struct child *c, struct pollfd *fds);
void child_step(struct child *c, const struct pollfd *fds);
/* true, once: it has ended, with all of its group, and what it wrote is read. Its pid is 0. */
MUST_CHECK bool child_ended(struct child *c);
/* SIGTERM to the group, SIGKILL after grace. Again: SIGKILL at once. */
void child_end(struct child *c, usec_t now, usec_t grace);
void child_tick(struct child *c, usec_t now);
/* The end of its stderr as text: whole characters of UTF-8, no NUL, at most max bytes. */
void child_error_text(const struct child *c, size_t max, struct buf *ret);
void child_free(struct child *c);

#endif
