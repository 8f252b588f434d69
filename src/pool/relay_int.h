/*
 * Between relay.c, relay_error.c and relay_replace.c: one pass over what a server has sent.
 */
#ifndef QB_RELAY_INT_H
#define QB_RELAY_INT_H

#include "pool_int.h"

struct relay {
	struct server *s;
	const uint8_t *from, *to; /* run of bytes that go to the client as they are */
};

enum relay_step {
	RELAY_FORWARD, /* the message goes to the client */
	RELAY_DONE,    /* what goes to the client is in the run already; the rest follows it */
	RELAY_DROP,    /* the message ends here */
	RELAY_MORE,    /* more of it is needed */
	RELAY_BAD,     /* not possible here */
	RELAY_GONE,    /* the server was closed */
};

void relay_emit(struct relay *r, const struct buf *b); /* our bytes, behind the run */
void relay_pop(struct relay *r, bool ok);              /* the head has its answer */
void relay_run_add(struct relay *r, const uint8_t *p, size_t n);
void relay_run_flush(struct relay *r); /* before anything else is said to the client */
enum relay_step relay_error(struct relay *r, const struct wire_msg *m);

enum relay_step relay_replace_answer(struct relay *r, const struct wire_msg *m, struct expect *e, bool end);
/* The replacement that the head belongs to; NULL: to none. */
struct replaced *relay_replaced(struct server *s);
void relay_replace_error(struct relay *r, const struct wire_msg *m, struct replaced *rp);

#endif
