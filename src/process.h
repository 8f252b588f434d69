/*
 * The process in its system: background, user, pid file, file descriptors, systemd. Each function
 * that can fail says why in err.
 */
#ifndef QB_PROCESS_H
#define QB_PROCESS_H

#include <sys/types.h>

#include "base/util.h"

/* Does a process that lives hold the pid file? Empty path: no. */
MUST_CHECK bool pidfile_is_taken(const char *path, char *err, size_t err_size);
/* Its number; 0: there is none, whatever the file says; -1: one that has no number here. */
pid_t pidfile_process(const char *path);
/* SIGTERM to whom pidfile_process() said, if it still holds that file. */
MUST_CHECK bool pidfile_tell_end(pid_t pid);
/* All that can fail, beside the file that is there; held until pidfile_remove(). Not before a fork. */
MUST_CHECK bool pidfile_prepare(const char *path, char *err, size_t err_size);
/* In the place of the one that is there. */
MUST_CHECK bool pidfile_publish(char *err, size_t err_size);
/* Another process puts its own there: it is not ours to remove any more. */
void pidfile_leave(void);
/* It was replaced by the file of another process, which is gone. */
MUST_CHECK bool pidfile_again(char *err, size_t err_size);
/* Removes the file when it is still ours. */
void pidfile_remove(void);

/* Forks. Returns in the child, which keeps the terminal until process_started(); the parent waits
 * for that and ends with 0, or with 1 when the child ended before. */
MUST_CHECK bool process_daemonise(char *err, size_t err_size);
void process_started(void);

/* Root for good no more. The file is given to the user before; NULL: none. */
MUST_CHECK bool process_become(const char *user, const char *file, char *err, size_t err_size);

/* Whether a crash may write the memory into a file, and others of our unix user may look into it. */
void process_allow_core(bool allowed);

unsigned long process_raise_files(void); /* the limit of descriptors as far as it goes; returns it */

/* sd_notify(3), where it was built in; of one of many another process does it. */
void process_is_one_of_many(void);
void process_notify_ready(void);
void process_notify_reloading(void);
void process_notify_stopping(void);
void process_notify_successor(pid_t pid); /* it is the main process from now on */

#endif
