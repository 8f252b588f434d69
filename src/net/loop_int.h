/*
 * What the files of net/ share about the loop: readiness of one descriptor without a word of
 * libevent, whose types stay in loop.c and resolve.c.
 */
#ifndef QB_NET_LOOP_INT_H
#define QB_NET_LOOP_INT_H

#include "base/util.h"
#include "net/loop.h"

/* For the resolvers, which are libevent's too. NULL before loop_init(). */
struct event_base;
struct event_base *loop_base(void);

/* What a turn does for connections, and the loop's beginning and end: turn.c. */
struct loop_conns {
	bool (*init)(void);
	void (*free_names)(void); /* no name is asked for any more */
	void (*free)(void);
	bool (*kicks)(void); /* true if anything was done */
	bool (*has_kicks)(void);
	void (*flush)(void);
	void (*reap)(void);
	bool (*has_work)(void); /* for the next turn, which must then not sleep */
};
MUST_CHECK bool loop_open(const struct loop_conns *conns);

/* Room for libevent's struct event; checked when loop.c is compiled. */
struct loop_io {
	_Alignas(8) unsigned char opaque[128];
};

/* The values are libevent's, so that nothing is translated on the way of a byte. */
#define LOOP_IO_READ  0x02
#define LOOP_IO_WRITE 0x04
#define LOOP_IO_EDGE  0x20
#define LOOP_IO_CLOSE 0x80

typedef void loop_io_fn(int fd, short what, void *arg);

/* Prepares a persistent registration; nothing is installed yet. */
void loop_io_init(struct loop_io *io, int fd, short mask, loop_io_fn *fn, void *arg);
MUST_CHECK bool loop_io_add(struct loop_io *io);
void loop_io_del(struct loop_io *io);

/* The next poll must not sleep: work was left over. */
void loop_again(void);

#endif
