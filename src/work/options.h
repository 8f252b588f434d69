/*
 * The command line of qbouncer-work. Entry point: work_options_read().
 */
#ifndef QB_WORK_OPTIONS_H
#define QB_WORK_OPTIONS_H

#include "base/util.h"

enum work_options_verdict { WORK_RUN, WORK_DONE, WORK_BAD };
/* What it runs for: until it is told to end, one job, or what is there. */
enum work_until { WORK_ALWAYS, WORK_ONCE, WORK_DRAIN };

struct work_options {
	const char *conninfo; /* NULL: libpq's own environment */
	const char *queue;
	const char *hold;
	const char *name; /* TAKE ... AS */
	char own_name[160];
	char **command;
	enum work_until until;
	int slots;
	size_t result_max;
	usec_t check, grace, timeout; /* 0: none */
	usec_t silence;               /* what the server has for an answer; 0: as long as it takes */
	bool result, verbose;
	bool wait;  /* nobody there when it starts: it tries again */
	bool lines; /* the command stays, and is given jobs line by line */
};

enum work_options_verdict work_options_read(struct work_options *o, int argc, char **argv);

#endif
