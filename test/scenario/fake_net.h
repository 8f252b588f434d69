/*
 * net/ replaced by a script: the same symbols (loop, conn, listen), but the clock is moved by hand
 * and the other ends of the connections are buffers that the test fills and empties.
 *
 * What belongs to the test is allocated with malloc, so that failing the n-th allocation fails one
 * of the program's only.
 */
#ifndef QB_SCENARIO_FAKE_NET_H
#define QB_SCENARIO_FAKE_NET_H

#include "base/util.h"
#include "net/conn.h"
#include "net/loop.h"

struct bytes {
	uint8_t *data;
	size_t len, cap;
};
void bytes_add(struct bytes *b, const void *p, size_t len);
void bytes_drop(struct bytes *b, size_t n); /* from the front */
void bytes_free(struct bytes *b);

/* The other end of a connection. */
struct fake_peer {
	struct fake_peer *next;
	int id;            /* what pooler_accept() takes for a descriptor */
	struct conn *conn; /* NULL before the program made one and after it closed it */
	bool outgoing;     /* the program connected */
	bool answered;     /* outgoing: accepted, or refused */
	char *refusal;     /* outgoing: error text */
	struct bytes to_proxy, from_proxy;
	bool eof, reset; /* this end is gone; bytes before it still arrive */
	bool closed;     /* the program closed its end */
	size_t window;   /* bytes that this end will still take; SIZE_MAX: all */
	void *actor;
};

void fake_net_init(void);
/* Connections that the program has not closed. */
int fake_net_free(void);

/* A new end that is about to connect to the program. */
struct fake_peer *fake_peer_new(void);
/* Called for each connection that the program starts. The hook, or somebody later, must call
 * fake_answer(). */
void fake_on_connect(void (*hook)(struct fake_peer *p, const char *host, int port));
void fake_answer(struct fake_peer *p, const char *refusal); /* NULL: accepted */

void fake_byte_by_byte(bool on);
/* Turns until nothing is left to do at this moment. False: it never comes to rest. */
MUST_CHECK bool fake_settle(void);
/* Lets time pass, stopping at each deadline. */
MUST_CHECK bool fake_time(usec_t span, usec_t late, void (*at_each_stop)(void));

/* Unread, unwritten or unanswered bytes in any connection; text says of what. */
bool fake_pending(char *text, size_t size);
int fake_open_conns(void);

#endif
