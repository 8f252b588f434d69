/*
 * What a server will answer next, and for whom: the FIFO `expect`, and the rows that say what comes of
 * an answer. Each row stands in the file of who asks: the relay follows them, and knows none by name but
 * the client's.
 */
#ifndef QB_POOL_EXPECT_H
#define QB_POOL_EXPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct expect;
struct pg_error;
struct relay;
struct server;
struct wire_msg;

enum expect_kind {
	EXPECT_QUERY,    /* answer to Query: all up to ReadyForQuery */
	EXPECT_FUNCTION, /* FunctionCall: up to ReadyForQuery */
	EXPECT_PARSE,
	EXPECT_BIND,
	EXPECT_DESCRIBE, /* t?, then T or n */
	EXPECT_EXECUTE,
	EXPECT_CLOSE,
	EXPECT_SYNC,
	EXPECT_LOCAL,  /* nothing from the server: our bytes, when they come to the head */
	EXPECT_PARSED, /* as LOCAL: ParseComplete, for dest_local */
	EXPECT_CLOSED, /* as LOCAL: CloseComplete, for dest_local; an error before it brings the statement back */
	EXPECT_COPY_DATA, /* nothing from the server: CopyData was sent, once or more */
	EXPECT_COPY_END, /* nothing from the server: CopyDone or CopyFail was sent */
};

enum relay_step {
	RELAY_FORWARD, /* the message goes to the client */
	RELAY_DONE,    /* what goes to the client is in the run already; the rest follows it */
	RELAY_DROP,    /* the message ends here */
	RELAY_MORE,    /* more of it is needed */
	RELAY_BAD,     /* not possible here */
	RELAY_GONE,    /* the server was closed */
};

/* What the client gets to see of an answer. */
enum dest_seen {
	SEEN_NOTHING,
	SEEN_STATUS,  /* settings that are reported, and the last word of the server */
	SEEN_NOTICES, /* notices as well */
	SEEN_ALL,     /* it is the client's */
};

struct dest {
	enum dest_seen seen;
	bool setup;          /* puts in force on a server what its client has: the client knows that */
	bool apart;          /* in a block of its own: neither tags nor status tell anything of the session */
	bool outlives_batch; /* an error before it does not skip it */
	bool tells; /* CommandComplete, ParseComplete, CopyInResponse: of the session and its statements */
	/* The client's: for whom is what we send beside it, of which it hears nothing. Else NULL. */
	const struct dest *beside;
	uint16_t may_begin; /* bits of enum expect_kind: what it answers may open a block */
	/* Each may be NULL, but for error. */
	void (*row)(struct server *s, const struct wire_msg *m, const struct expect *e);
	void (*columns)(struct server *s, const struct wire_msg *m); /* RowDescription that was asked for */
	/* A row that is not worth gathering: row() gets what has come of it. */
	bool (*passes_over)(const struct server *s, const struct wire_msg *m);
	void (*tag)(struct server *s, const struct wire_msg *m, const struct expect *e); /* CommandComplete */
	/* A notice that the client does not see; and one that is an event of a claimant's. */
	void (*notice)(struct server *s, const struct wire_msg *m);
	void (*event)(struct server *s, const char *text, const char *tx);
	/* Takes what the answer consists of, but ReadyForQuery. end: its last message. */
	enum relay_step (*answer)(struct relay *r, const struct wire_msg *m, struct expect *e, bool end);
	/* ReadyForQuery: with the entry still there, if it has an arg; and when it is gone. */
	void (*ending)(struct relay *r, struct expect *e);
	void (*ready)(struct relay *r, bool last);
	/* What follows from an ErrorResponse that has come in place of the answer. */
	enum relay_step (*error)(struct relay *r, const struct wire_msg *m, struct expect *e);
	/* What fits no answer; e NULL: nothing is expected, and the server is `unasked` for this row. */
	enum relay_step (*stray)(struct relay *r, const struct wire_msg *m, struct expect *e);
	/* Ends e->arg, which is not NULL; the row has none: by its kind. ok: the answer came without error. */
	void (*free)(struct server *s, struct expect *e, bool ok);
	/* Of a server that is `unasked` for this row. Nothing is expected any more; it has logged in; a
	 * notification has come; it is closed (why may be NULL). */
	void (*rest)(struct server *s);
	void (*up)(struct server *s);
	void (*notified)(struct server *s, const struct wire_msg *m);
	void (*lost)(struct server *s, const struct pg_error *why);
};

struct expect {
	const struct dest *dest;
	void *arg;  /* PARSE, CLOSE: struct pstmt * (a reference) or NULL; LOCAL: struct buf *; QUERY of a client: what it sets
	              * (session_effect), struct istr *; else as the row of dest says */
	uint8_t kind;
	bool unnamed; /* PARSE: of the unnamed statement */
	bool final; /* fail, replace of a simple query: ReadyForQuery goes to the client; copy: the one to our own Sync is
	             * not to come any more; task: the last one of its statement */
};

struct expect_ring {
	struct expect *e;
	uint16_t cap, head, count;
};
bool expect_grow(struct expect_ring *r); /* false: memory, or too long */
void expect_shrink(struct expect_ring *r);
static inline bool expect_push(struct expect_ring *r, enum expect_kind kind, const struct dest *dest, void *arg)
{
	struct expect *e;

	if (r->count == r->cap && !expect_grow(r))
		return false;
	e = &r->e[(r->head + r->count++) & (r->cap - 1u)];
	e->dest = dest;
	e->arg = arg;
	e->kind = (uint8_t)kind;
	e->unnamed = e->final = false;
	return true;
}
static inline struct expect *expect_at(struct expect_ring *r, unsigned i)
{
	return &r->e[(r->head + i) & (r->cap - 1u)];
}
static inline struct expect *expect_head(struct expect_ring *r)
{
	return r->count > 0 ? &r->e[r->head] : NULL;
}

#endif
