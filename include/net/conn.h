/*
 * A connection: descriptor, what could not be written yet, what could not be consumed yet, event
 * mask. Owned by exactly one client or server. Knows nothing of messages.
 *
 * Reading. The loop reads into one buffer that all connections share and calls on_data with what
 * has come (preceded by what was left over from before). The owner says how many bytes it consumed;
 * the rest is kept in memory of the connection and shown again, with more behind it, next time.
 *
 * Writing. conn_write() appends to the output of this turn; the flush phase writes it. What the
 * kernel does not take stays; memory is given back when all is written.
 *
 * An idle connection owns no buffers.
 */
#ifndef QB_NET_CONN_H
#define QB_NET_CONN_H

#include "base/util.h"

struct conn;
struct tls_ctx;

#define CONN_ADDR_TEXT 108

struct conn_addr {            /* a resolved address, printable */
	bool is_unix;
	char host[CONN_ADDR_TEXT]; /* "127.0.0.1", "::1", or the socket path's directory / "unix" */
	int port;
};

enum conn_end {
	CONN_END_EOF,        /* orderly end of the peer's output */
	CONN_END_RESET,      /* ECONNRESET, EPIPE, ETIMEDOUT ... */
	CONN_END_NO_MEMORY,  /* a buffer could not grow */
};

struct conn_ops {
	/* connect finished; error_text NULL on success. Only for conn_connect(). */
	void (*on_connect)(struct conn *c, void *owner, const char *error_text);
	/* Returns the bytes consumed, 0..len. Is called again only when more bytes come or after
	 * conn_want_read(c, true) / conn_kick(c). May call conn_close(). */
	size_t (*on_data)(struct conn *c, void *owner, const uint8_t *data, size_t len);
	/* The peer is gone, nothing more will come or go. Called at most once. */
	void (*on_end)(struct conn *c, void *owner, enum conn_end why, int err);
	/* Output fell from above high water to below low water. */
	void (*on_drain)(struct conn *c, void *owner);
	/* The handshake that conn_start_tls() began is over; error_text NULL on success. After a
	 * failure no other handler is called. */
	void (*on_secure)(struct conn *c, void *owner, const char *error_text);
};

/* Takes over an accepted, non-blocking descriptor. NULL without memory (fd is then closed). */
MUST_CHECK struct conn *conn_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops, void *owner);

/* Takes over a connected descriptor from another process: its input begins with what that had read and not used. host:
 * of an outgoing connection, as conn_connect() was told; else NULL. NULL without memory (fd is then closed). */
MUST_CHECK struct conn *conn_adopt(int fd, const struct conn_addr *peer, const char *host, const void *input, size_t len,
	const struct conn_ops *ops, void *owner);
/* As conn_close(), but nothing is said to the peer: the connection lives on in another process. */
void conn_abandon(struct conn **p);
const char *conn_host(const struct conn *c); /* as conn_connect() was told; NULL: it came in */

/* Starts to connect to host (name, address, or a directory: unix socket) and port; never blocks;
 * answers through on_connect, never from inside this call. `host` may be a comma-separated list,
 * tried in order. What is written before the answer is kept. After a failure no other handler is
 * called; error_text lives until the connection is reaped. NULL without memory. */
MUST_CHECK struct conn *conn_connect(const char *host, int port, const struct conn_ops *ops, void *owner);

/* The same, to the very address that `there`, which was made so too, is connected to: its name may
 * have others by now. NULL also when that connection is broken. */
MUST_CHECK struct conn *conn_connect_beside(const struct conn *there, const struct conn_ops *ops, void *owner);

/* In on_connect, after a failure: the last host that was tried has no address. */
bool conn_name_unknown(const struct conn *c);

/* Changes the handlers of a connection (from login to session). */
void conn_set_ops(struct conn *c, const struct conn_ops *ops, void *owner);

/* Reading on (default) or off. Off: bytes stay in the kernel; the peer's end is still noticed
 * (EPOLLRDHUP) and reported by on_end. */
void conn_want_read(struct conn *c, bool on);
/* Shows what is left over to on_data again in this turn, though nothing new came. Nothing is shown
 * while reading is off; conn_want_read(c, true) kicks by itself. */
void conn_kick(struct conn *c);

/* Bytes that wait in memory of the connection to be consumed. Not for use inside on_data. */
size_t conn_pending_input(const struct conn *c);
/* Nothing is read, whatever its owner wants, and the peer's end is not looked for. What is queued is
 * still written. */
void conn_hold(struct conn *c, bool on);

/* Those bytes; for on_end, to see the peer's last words. Borrowed. */
const uint8_t *conn_input(const struct conn *c, size_t *ret_len);

/* Queues bytes. Errors surface as on_end. */
void conn_write(struct conn *c, const void *data, size_t len);
/* Writes what is queued, as far as the kernel takes it at once; calls nobody. false: it has not taken all. */
bool conn_flush(struct conn *c);
/* What is queued, if it is not much, stays until more is queued: the beginning of an answer whose rest is expected in a
 * moment, as a Postgres keeps it, too. conn_show_kept(): the rest may be long in coming, it goes out in this turn. */
void conn_keep_back(struct conn *c);
void conn_show_kept(struct conn *c);
size_t conn_pending_output(const struct conn *c); /* bytes that are queued and not yet accepted by the kernel */
size_t conn_all_unread(void); /* of those that count, what waits to be written beyond CONN_HIGH_WATER of each */
void conn_count_unread(struct conn *c, bool on); /* it is one of them; at first it is not */
/* Where what was written so far ends; UINT64_MAX: some of it was lost. */
uint64_t conn_output_end(const struct conn *c);
/* Up to where the kernel has taken it, also when more was lost. What TLS has encrypted and not sent may be any of it. */
uint64_t conn_sent(const struct conn *c);
/* Above high water: stop the source; on_drain tells when to go on. */
bool conn_is_full(const struct conn *c);

/*
 * Begins TLS, in the role that the context says; answers through on_secure, never from inside this
 * call. What was written before goes out in plain text, what is written from now on after the
 * handshake. Input that on_data leaves unconsumed in this moment makes it fail: it came before TLS
 * and must not be taken for what came through it. direct: the peer did not ask, or was not asked;
 * what on_data leaves is then the beginning of the peer's handshake, and it must agree on the
 * protocol "postgresql". false: no memory, or what was written before did not go out.
 */
MUST_CHECK bool conn_start_tls(struct conn *c, struct tls_ctx *ctx, bool direct);
/* Has its handshake behind it. */
bool conn_is_tls(const struct conn *c);
/* "TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519"; "" without TLS. A scratch. */
const char *conn_tls_text(const struct conn *c);

#define CONN_TLS_NAME 256
struct conn_tls_peer {            /* what the peer's certificate says */
	bool verified;            /* by a certificate authority that we trust; the names count only then */
	char cn[CONN_TLS_NAME];   /* "" if there is none, or it is too long */
	char dn[2 * CONN_TLS_NAME]; /* of the subject, as RFC 2253 writes it */
};
/* false: no TLS, or the peer showed no certificate. */
MUST_CHECK bool conn_tls_peer(const struct conn *c, struct conn_tls_peer *ret);
#define CONN_TLS_BINDING_MAX 64
/* RFC 5929, tls-server-end-point: the hash of the certificate of whichever side is the server.
 * Returns its length, 0 when there is none. */
size_t conn_tls_binding(const struct conn *c, uint8_t ret[CONN_TLS_BINDING_MAX]);

/* Idempotent. After the return no handler is called any more; queued output is still tried to be
 * written, once without waiting; memory is freed in the reap phase. Clears *p. */
void conn_close(struct conn **p);
/* The same, and nothing that the kernel still holds is sent to the peer any more. */
void conn_abort(struct conn **p);

int conn_fd(const struct conn *c); /* -1 when closed */
/* Each returns a scratch that its next call overwrites. */
const struct conn_addr *conn_peer(const struct conn *c);
const struct conn_addr *conn_local(const struct conn *c);
/* Is the peer still there, as far as the kernel knows now (MSG_PEEK)? */
bool conn_alive(const struct conn *c);
/* uid of the peer of a unix socket; false for TCP. */
MUST_CHECK bool conn_peer_uid(const struct conn *c, unsigned *ret_uid);
int conn_peer_pid(const struct conn *c); /* likewise; 0 for TCP */

/* Bytes accepted by the kernel and read from it, since the start. */
uint64_t conn_bytes_in(const struct conn *c);
uint64_t conn_bytes_out(const struct conn *c);

/* Socket options for new TCP connections: those that are accepted, and those that we make. Seconds; 0: the
 * system's own. */
struct conn_tuning {
	bool keepalive;
	int keepidle, keepintvl, keepcnt, user_timeout_ms, socket_buffer;
};
void conn_tune(const struct conn_tuning *accepted, const struct conn_tuning *made);
/* What is queued for several connections goes to the kernel with one call, where it has io_uring. */
void conn_send_together(bool on);

#define CONN_HIGH_WATER (64 * 1024)
#define CONN_LOW_WATER  (16 * 1024)

#endif
