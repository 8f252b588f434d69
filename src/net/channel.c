/*
 * Messages and descriptors to another process (channel.h), over a pair of SOCK_SEQPACKET sockets:
 * what is sent in one piece comes in one piece, with its descriptors (unix(7), SCM_RIGHTS).
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/channel.h"

union control {
	struct cmsghdr align;
	char space[CMSG_SPACE(sizeof(int) * CHANNEL_FDS)];
};

bool channel_pair(int ret[2])
{
	int room = 4 * CHANNEL_MAX;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret) != 0)
		return false;
	/* as much as the system allows */
	for (int i = 0; i < 2; i++)
		(void)setsockopt(ret[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return true;
}

static ssize_t send_once(int fd, const void *data, size_t len, const int *fds, int n_fds)
{
	union control control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *h;

	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.space;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)n_fds);
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL);
}

enum channel_result channel_send(int fd, const void *data, size_t len, const int *fds, int n_fds)
{
	ssize_t n;

	do {
		n = send_once(fd, data, len, fds, n_fds);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return CHANNEL_OK;
	/* ETOOMANYREFS: too many descriptors are on their way */
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS
		       ? CHANNEL_LATER
		       : CHANNEL_END;
}

/* Descriptors beyond what the caller has room for are closed. */
static int take_fds(struct msghdr *m, int *ret_fds, int most)
{
	int n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
		size_t count;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (n < most)
				ret_fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

static ssize_t receive_once(int fd, void *data, size_t size, int *ret_fds, int most, int *ret_n)
{
	union control control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space)};
	ssize_t n;

	*ret_n = 0;
	do {
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		*ret_n = take_fds(&m, ret_fds, most);
	return n;
}

enum channel_result channel_receive(int fd, struct buf *ret, int ret_fds[CHANNEL_FDS], int *ret_n)
{
	ssize_t n;

	buf_reset(ret);
	buf_reserve(ret, CHANNEL_MAX);
	if (buf_failed(ret))
		return CHANNEL_END;
	n = receive_once(fd, ret->data, CHANNEL_MAX, ret_fds, CHANNEL_FDS, ret_n);
	/* It has gone and had not read all: the kernel says so once, before what it had said. */
	if (n < 0 && errno == ECONNRESET)
		n = receive_once(fd, ret->data, CHANNEL_MAX, ret_fds, CHANNEL_FDS, ret_n);
	if (n > 0)
		ret->len = (size_t)n;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return CHANNEL_LATER;
	return n > 0 ? CHANNEL_OK : CHANNEL_END;
}

bool channel_wait(int fd, struct buf *ret, int ret_fds[CHANNEL_FDS], int *ret_n, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	enum channel_result r;

	while ((r = channel_receive(fd, ret, ret_fds, ret_n)) == CHANNEL_LATER)
		if (poll(&p, 1, ms) <= 0)
			return false;
	return r == CHANNEL_OK;
}

bool channel_give(int stream, const void *data, size_t len, int fd)
{
	return send_once(stream, data, len, &fd, 1) == (ssize_t)len;
}

int channel_take(int stream, void *data, size_t size, int *ret_fd)
{
	int fd, n_fds;
	ssize_t n = receive_once(stream, data, size, &fd, 1, &n_fds);

	if (n_fds > 0 && ret_fd != NULL)
		*ret_fd = fd;
	else if (n_fds > 0)
		close(fd);
	return n < 0 ? -errno : (int)n;
}
