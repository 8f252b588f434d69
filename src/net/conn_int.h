/*
 * The inside of a connection, shared by conn.c (life, turn), conn_mark.c (what it waits for), conn_in.c
 * (reading), conn_out.c (writing), conn_sock.c (the socket), dial.c (connecting) and tls.c. Nobody outside net/ may look.
 */
#ifndef QB_NET_CONN_INT_H
#define QB_NET_CONN_INT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <string.h>

#include "base/util.h"
#include "conn_mark.h"
#include "loop_int.h"
#include "net/conn.h"

struct chunk;
struct dial;
struct tls;

/* A socket address of any family that we speak. */
struct net_addr {
	socklen_t len;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	} u;
};

/* What a connection keeps of its peer's address: a printable one is made when asked for. */
struct addr_brief {
	union {
		struct in_addr v4;
		struct in6_addr v6;
	} u;
	uint16_t port;
	uint8_t family; /* AF_INET, AF_INET6, AF_UNIX; 0 unknown */
};

enum {
	F_WANT_READ = 1 << 0,
	F_NOISY = 1 << 1,      /* readable while reading is off: only edges are of interest */
	F_BLOCKED = 1 << 2,    /* the kernel took no more output; a write event will tell */
	F_FULL = 1 << 3,       /* was above high water and on_drain not yet called */
	F_BROKEN = 1 << 4,     /* a write failed; what the peer sent before is still read */
	F_NO_MEMORY = 1 << 5,  /* to be reported in the flush phase */
	F_ENDED = 1 << 6,      /* on_end was called, or connecting failed */
	F_CLOSED = 1 << 7,     /* conn_close() was called; on the dead list */
	F_DIRTY = 1 << 8,      /* on the dirty list */
	F_KICKED = 1 << 9,     /* on the kick list */
	F_IN_READ = 1 << 10,   /* installed: the reading event */
	F_IN_WRITE = 1 << 11,  /* installed: the writing event */
	F_IN_EDGE = 1 << 12,   /* installed events are edge triggered */
	F_CONNECTING = 1 << 13, /* from conn_connect() until just before on_connect */
	F_TLS = 1 << 14,        /* conn_start_tls() was called */
	F_TLS_NEW = 1 << 15,    /* ... and the handshake has not begun */
	F_HANDSHAKE = 1 << 16,  /* ... or is not over */
	F_TLS_END = 1 << 17,    /* the peer's TLS ended, or went wrong; to be reported */
	F_HELD = 1 << 18,       /* conn_hold(): F_WANT_READ does not count */
	F_KEPT = 1 << 19,       /* conn_keep_back(): what is queued waits for more */
	F_COUNTED = 1 << 20     /* conn_count_unread() */
};

struct stash { /* input that the owner left: conn_in.c */
	size_t off, len, cap; /* data[off..len) is to be shown */
	uint8_t data[];
};

struct conn {
	struct loop_io io;
	struct loop_io *wio; /* exists only while output is blocked or a connect is under way */
	const struct conn_ops *ops;
	void *owner;
	struct chunk *out_head, *out_tail;
	size_t out_len;
	struct stash *in;    /* NULL: nothing was left */
	uint64_t bytes_in, bytes_out;
	struct conn *next_dirty; /* has output or an error to report; the flush phase empties it */
	struct conn *next_kick;  /* to be shown its input, or to go on connecting, in this turn */
	struct conn *next_dead;  /* closed; the reap phase frees */
	struct dial *dial;       /* while connecting and after it failed */
	struct tls *tls;         /* since conn_start_tls() */
	char *host;              /* of an outgoing connection: name, address or socket directory */
	struct addr_brief peer;
	int fd;
	int err; /* of the failed write */
	uint32_t flags;
};

MUST_CHECK bool conn_module_init(void);
void conn_module_free(void);
/* The three hooks of a turn. Kicks: true if anything was done. */
bool conn_turn_kicks(void);
void conn_turn_flush(void);
void conn_turn_reap(void);

/* conn.c, for its neighbours: a connection without a descriptor, about to be connected; NULL without memory */
MUST_CHECK struct conn *conn_blank(const struct conn_ops *ops, void *owner);
void conn_end(struct conn *c, enum conn_end why, int err);
static inline bool conn_is_reading(const struct conn *c)
{
	return (c->flags & (F_WANT_READ | F_HELD)) == F_WANT_READ;
}

/* conn_in.c */
MUST_CHECK bool in_module_init(void);
void in_module_free(void);
void in_event(int fd, short what, void *arg); /* readable, or at its end */
void in_kick(struct conn *c);                 /* what is there is shown to its owner, who reads */
void in_drop(struct conn *c);
MUST_CHECK bool in_unread(struct conn *c, const void *data, size_t len); /* its input begins with that */

/* conn_sock.c */
void conn_tune_accepted(int fd, int family);
void conn_tune_made(int fd, int family);
void conn_tune_listener(int fd, int family);
size_t conn_piece(void); /* so much is given to the kernel at once */
int conn_fd_error(int fd); /* what it has failed with; 0: it has not */
void conn_set_peer(struct conn *c, const struct net_addr *a);
void conn_set_peer_text(struct conn *c, const struct conn_addr *peer);

/* conn_out.c */
void out_flush(struct conn *c); /* writes what the kernel takes; calls nobody */
void out_drop(struct conn *c);
void out_flush_together(struct conn *first); /* of the list of dirty ones: what can go with one system call */
size_t out_send(struct conn *c, const void *data, size_t len); /* sorts out what the kernel says; returns what it took */
void out_module_free(void);

/* dial.c */
void dial_step(struct conn *c);      /* kick phase */
void dial_writable(struct conn *c);  /* the connect under way has an outcome */
void dial_no_memory(struct conn *c); /* ends it; the owner is told through on_connect */
void dial_cancel(struct conn *c);    /* no answer of the resolver will come */
void dial_free(struct conn *c);      /* not while the owner may look at the error text */

/* tls.c */
MUST_CHECK bool tls_module_init(void);
void tls_module_free(void);
void tls_begin(struct conn *c); /* kick phase: F_TLS_NEW */
/* As recv(): what came, in plain text. EAGAIN also while the handshake goes on; EPROTO: the TLS of
 * the peer is broken. May call on_secure. */
ssize_t tls_recv(struct conn *c, void *dst, size_t size);
/* Encrypts, to be sent by the next tls_push(). false: F_BROKEN or F_NO_MEMORY says why. */
MUST_CHECK bool tls_encrypt(struct conn *c, const void *data, size_t len);
size_t tls_gathered(void); /* bytes that wait for it */
void tls_push(struct conn *c);
bool tls_has_unsent(const struct conn *c);
void tls_fail(struct conn *c, const char *reason); /* ends the handshake */
void tls_goodbye(struct conn *c);
void tls_free(struct conn *c);

/* tls_ctx.c */
struct ssl_st;
/* A session of the context's role. NULL without memory. */
struct ssl_st *tls_ctx_session(struct tls_ctx *x);
bool tls_ctx_is_server(const struct tls_ctx *x);
/* The newest error of the library in words. A scratch. */
const char *tls_error(void);

/* addr.c */
/* host is a directory ("@..." abstract); false when the path is too long. */
MUST_CHECK bool net_addr_unix(struct net_addr *a, const char *dir, int port);
/* The same directory, a name that nobody knows. false: too long. */
MUST_CHECK bool net_addr_unix_beside(struct net_addr *a);
/* host is a number; false when it is a name. */
MUST_CHECK bool net_addr_numeric(struct net_addr *a, const char *host, int port);
void net_addr_print(const struct net_addr *a, struct conn_addr *out);

#endif
