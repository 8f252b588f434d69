/*
 * The console of several processes: what one is asked the others do too.
 */
#ifndef QB_ADMIN_OTHERS_H
#define QB_ADMIN_OTHERS_H

#include "admin_int.h"

/* Who of them does the same, and what they have said; or who has asked us, under which number. */
struct others {
	uint64_t awaited; /* a bit for each, the lowest for process 1 */
	uint32_t number;
	int process; /* has asked us; 0: nobody */
	usec_t until;
	struct buf rows;
	int n_rows;
	bool done, failed;   /* by some of them */
	struct pg_error err; /* the first */
};

/* Who knows what commands do. */
struct others_ops {
	/* Another process asks: it is done, and ends with others_answer(). */
	void (*run)(const struct others *asked, const struct command *cmd, struct exec *x);
	struct others *(*find)(uint32_t number); /* who waits under it; NULL */
	void (*moved)(void);                     /* an answer has come */
	void (*gone)(int process);
};

void others_start(const struct others_ops *ops);
/* They do it too; o NULL: and say nothing. x: with the formats of rows. */
void others_ask(const struct command *cmd, const struct exec *x, struct others *o);
/* To who has asked, if somebody has: the rows of x, or err. */
void others_answer(const struct others *o, const struct exec *x, const struct pg_error *err);

#endif
