/*
 * What a connection waits for: its events, and its places in the lists of the turn (conn_mark.c).
 */
#ifndef QB_NET_CONN_MARK_H
#define QB_NET_CONN_MARK_H

#include "loop_int.h"

struct conn;

/* readable, writable: what is called when a descriptor can be read, or is at its end, and when it can be written. */
MUST_CHECK bool mark_module_init(loop_io_fn *readable, loop_io_fn *writable);
void mark_module_free(void);
void conn_install(struct conn *c); /* the events that its flags ask for */
void conn_mark_dirty(struct conn *c);
void conn_mark_kick(struct conn *c);
struct conn *mark_take_dirty(void); /* all of the list, which is empty then */
struct conn *mark_take_kicks(void);
bool mark_has_dirty(void);
bool conn_has_kicks(void);
bool conn_has_work(void); /* left over for the next turn, which must then not sleep */

#endif
