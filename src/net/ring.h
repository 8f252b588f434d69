/*
 * Sends of several connections in one system call, where the kernel has io_uring: one entry into the kernel
 * costs about as much as what a small send does there. Nothing waits: a send that would block fails as send()
 * does, so that all are done when ring_run() returns. For conn_out.c alone.
 */
#ifndef QB_NET_RING_H
#define QB_NET_RING_H

#include <stdbool.h>
#include <stddef.h>

#define RING_SIZE 64 /* sends at once */

/* on: from the next flush, if there is io_uring here. */
void ring_want(bool on);
/* Is it there? Makes it, the first time that it is wanted. */
bool ring_is_ready(void);
/* One more; fewer than RING_SIZE were added since the last run. The bytes stay where they are until then. */
void ring_add(int fd, const void *data, size_t len, void *arg);
/* result: as of send(), or what errno would be, negative. Who is not told of one was not sent. */
void ring_run(void (*told)(void *arg, int result));
void ring_free(void);

#endif
