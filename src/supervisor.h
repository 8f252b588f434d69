/*
 * Several processes that are one program (`processes`): the one that was started opens the sockets, starts the
 * others and keeps them going; the others do the work.
 */
#ifndef QB_SUPERVISOR_H
#define QB_SUPERVISOR_H

#include "base/util.h"

struct supervisor_hooks {
	int (*work)(void);     /* one of the others: its exit code */
	void (*gone)(int process); /* it has died; before the others hear it */
	void (*started)(void); /* all of them are ready */
	void (*reload)(void);
	void (*end)(int signo, bool again); /* they are told to end by this signal; not the first time */
};

/* How many there are to be; 1: no others. */
int supervisor_size(void);
/* Returns the exit code when all have ended, and in each of the others that of work(). */
int supervise(const struct supervisor_hooks *hooks);
/* One of the others: it can be told to end from now on. */
void supervisor_unblock(void);
/* One of the others: the signal is for all. */
void supervisor_signal(int signo);

#endif
