/*
 * A channel to another process on this machine: messages with their bounds, and descriptors that
 * go with them. Knows nothing of what they mean.
 */
#ifndef QB_NET_CHANNEL_H
#define QB_NET_CHANNEL_H

#include "base/buf.h"

#define CHANNEL_MAX (96 * 1024) /* bytes of a message */
#define CHANNEL_FDS 2           /* descriptors that may go with one */

/* Both ends, non-blocking. */
MUST_CHECK bool channel_pair(int ret[2]);
/* LATER: nothing was sent, or nothing has come. END: the other one has gone, or it is broken. */
enum channel_result { CHANNEL_OK, CHANNEL_LATER, CHANNEL_END };
/* The descriptors stay the caller's. */
enum channel_result channel_send(int fd, const void *data, size_t len, const int *fds, int n_fds);
/* One message, in the place of what the buffer had; the descriptors are the caller's. */
enum channel_result channel_receive(int fd, struct buf *ret, int ret_fds[CHANNEL_FDS], int *ret_n);
/* Waits for one, so many milliseconds at most. */
MUST_CHECK bool channel_wait(int fd, struct buf *ret, int ret_fds[CHANNEL_FDS], int *ret_n, int ms);
/* The same over any unix socket: for the first descriptor, which is that of a channel. */
MUST_CHECK bool channel_give(int stream, const void *data, size_t len, int fd);
/* What has come of at most size bytes, and the descriptor, which stays as it was if none came with them. Blocks.
 * 0: the end; below 0: errno. */
int channel_take(int stream, void *data, size_t size, int *ret_fd);

#endif
