/*
 * qbouncer -R: a new process takes over from the one that runs, on the same machine and of the same
 * unix user. Both sides.
 */
#ifndef QB_TAKEOVER_H
#define QB_TAKEOVER_H

#include <sys/types.h>

#include "net/listen.h"
#include "wire/error.h"

/* --- the new process, before it has changed anything --- */

enum takeover_found {
	TAKEOVER_NOBODY,  /* there is none */
	TAKEOVER_AGREED,  /* its sockets are here, and it waits for takeover_confirm() */
	TAKEOVER_REFUSED, /* somebody is there who cannot: err says why */
};
enum takeover_found takeover_ask(char *err, size_t err_size);
/* Puts into the specification what has been handed over. */
void takeover_sockets(struct listen_spec *spec);
pid_t takeover_from(void);
/* Nothing can fail any more: its connections come. false: it is gone, or there is no memory. */
MUST_CHECK bool takeover_confirm(void);
/* Also when it came to nothing: the other one goes on as if it had not been asked. */
void takeover_end(void);

/* --- the process that runs --- */

/* How it gives up what a new process needs at once, and gets it back when that is gone before its time. */
struct takeover_hooks {
	void (*give)(pid_t to);
	void (*take_back)(void);
};
void takeover_hooks_set(const struct takeover_hooks *hooks);
/* TAKEOVER on the console; see admin_hooks. */
bool takeover_requested(int fd, uint64_t version, struct pg_error *err);

#endif
