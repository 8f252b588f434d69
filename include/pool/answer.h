/*
 * One pass over what a server has sent, for the rows that take its answers. For the rooms of the pooler
 * only.
 */
#ifndef QB_POOL_ANSWER_H
#define QB_POOL_ANSWER_H

#include <string.h>

#include "pool/rooms.h"

struct relay {
	struct server *s;
	const uint8_t *from, *to; /* run of bytes that go to the client as they are */
};

/* Before anything else is said to the client. */
static inline void relay_run_flush(struct relay *r)
{
	struct client *c = r->s->link;

	if (r->to > r->from && c != NULL && c->conn != NULL) {
		conn_write(c->conn, r->from, (size_t)(r->to - r->from));
		r->s->pool->stats.bytes_out += (size_t)(r->to - r->from);
	}
	r->from = r->to = NULL;
}

static inline void relay_run_add(struct relay *r, const uint8_t *p, size_t n)
{
	if (n == 0)
		return;
	if (r->to == p) {
		r->to = p + n;
		return;
	}
	relay_run_flush(r);
	r->from = p;
	r->to = p + n;
}

/* The head has its answer. What it owns is ended when it is off: that may send something. */
static inline void relay_pop(struct relay *r, bool ok)
{
	struct expect_ring *ring = &r->s->expect;
	const struct expect *e = &ring->e[ring->head];

	if (e->kind == EXPECT_SYNC)
		r->s->batch.answered++;
	ring->head = (uint16_t)((ring->head + 1u) & (ring->cap - 1u));
	ring->count--;
	if (e->arg != NULL) {
		struct expect off = *e;

		server_expect_free(r->s, &off, ok);
	}
}

/* Our bytes, behind the run. */
static inline void relay_emit(struct relay *r, const struct buf *b)
{
	relay_run_flush(r);
	if (buf_failed(b)) {
		if (r->s->link != NULL)
			client_out_of_memory(r->s->link);
		return;
	}
	if (r->s->link != NULL)
		client_write(r->s->link, b);
}

/* The server skips to Sync when it fails. */
static inline bool relay_in_batch(const struct expect *e)
{
	return e->kind != EXPECT_QUERY && e->kind != EXPECT_FUNCTION && e->kind != EXPECT_SYNC;
}

static inline bool relay_tells_status(const struct wire_msg *m)
{
	return m->total == WIRE_HEADER + 1 && memchr("ITE", m->body[0], 3) != NULL;
}

/* Whoever asked cannot go on: the server is closed. */
enum relay_step relay_error_ends(struct relay *r, const struct wire_msg *m, bool client_too, const char *reason);

#endif
