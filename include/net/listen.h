/*
 * Listening sockets: TCP addresses and one unix socket. Out of descriptors (EMFILE) accepting
 * pauses for a while instead of spinning.
 */
#ifndef QB_NET_LISTEN_H
#define QB_NET_LISTEN_H

#include "base/util.h"
#include "net/conn.h"

struct listen_spec {
	const char *addrs;     /* comma separated; "*" all; "" none */
	int port;
	int backlog;
	bool reuseport, defer_accept;
	const char *unix_dir;  /* "" none */
	int unix_mode;
	const char *unix_group;
	bool unix_replace;     /* another process listens there and is to be relieved */
	const int *handed;     /* sockets that listen already, from that process; the caller's if it fails */
	int n_handed;
	bool handed_tcp, handed_unix; /* they are all of this kind that are wanted */
};

/* on_accept owns the descriptor (non-blocking, close-on-exec, tuned). Writes a message for the
 * operator into err on failure and closes what it had opened. Also takes systemd's sockets. */
MUST_CHECK bool listen_open(const struct listen_spec *spec,
	void (*on_accept)(int fd, const struct conn_addr *peer, void *arg), void *arg, char *err, size_t err_size);
/* We stay. Until then listen_close() gives the unix socket's name back to whom it was taken from. */
void listen_confirm(void);
/* Accepting stops as long as there is a reason. */
enum listen_reason { LISTEN_SUSPENDED, LISTEN_CROWDED, LISTEN_UNEVEN, LISTEN_HANDED };
void listen_pause(enum listen_reason why, bool paused);
/* Accepts those who wait already; listen_close() would turn them away. */
void listen_drain(void);
void listen_tune(void); /* conn_tune() has said something else */
void listen_close(void);        /* removes the unix socket file, unless another process has replaced it */
void listen_close_tcp(void);    /* behind those who wait already; the unix socket stays */
/* Another process has the same sockets, and accepts from now on (or not any more). listen_close() leaves the name of the
 * unix socket alone then. */
void listen_hand_over(bool over);
/* After a fork, with the sockets of the process that has opened them: accepts, and leaves their names alone. */
void listen_share(void);
int listen_count(void);
void listen_each(void (*fn)(int fd, const struct conn_addr *addr, void *arg), void *arg);

#endif
