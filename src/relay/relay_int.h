/*
 * Between the files of the room: messages of clients, statements that we answer, and one pass over what
 * a server has sent.
 */
#ifndef QB_RELAY_INT_H
#define QB_RELAY_INT_H

#include <string.h>

#include "pool/answer.h"
#include "relay/relay.h"
#include "session/session.h"

/* Statements of one simple query, or one Execute, some of them replaced. */
struct replaced {
	int n, at;            /* at: the statement whose answer is under way */
	bool simple;
	bool part; /* of a string: the rest follows, unless one of them fails */
	bool dropping_rows;
	uint64_t rows;        /* rows seen of it */
	int64_t value;        /* first column of the first row, as a number */
	struct replace **list; /* NULL entries: the client's own statements */
	bool failed; /* the server refused one of them */
};
/* c: told by on_done of those that are not told yet; may be NULL */
void replaced_free(struct replaced **p, struct client *c, bool ok);

/* say.c */
/* Bytes for the client in the order of answers: at once, or behind what its server still owes. Takes
 * the contents of b. */
void client_emit(struct client *c, struct buf *b);
bool client_ask_for_answers(struct client *c); /* those that are kept back until Flush or Sync */
enum step client_refuse_pin(struct client *c, bool simple);
enum step local_aborted(struct client *c, bool simple); /* the block is */
enum step client_error(struct client *c, const struct pg_error *err, bool simple);
enum step client_query(struct client *c, const struct wire_msg *m); /* client_query.c */
enum step client_function(struct client *c, const struct wire_msg *m);
/* The message as it is, to the linked server. */
static inline enum step client_forward(struct client *c, const struct wire_msg *m)
{
	conn_write(c->link->conn, m->data, WIRE_HEADER + m->have);
	c->pass_left = m->total - WIRE_HEADER - (uint32_t)m->have;
	c->pass_discard = false;
	return c->pass_left > 0 ? STEP_STREAM : STEP_NEXT;
}
bool client_get_server(struct client *c);
/* true: linked and ready for its message; false: waits, or closed */
static inline bool client_need_server(struct client *c)
{
	const struct server *s = c->link;

	/* as it was for the message before this one */
	if (s != NULL && s->extra == c->extra && s->sqlprep == c->sqlprep && !s->settings.settling &&
		!s->settings.vars_stale && c->tx.virtual != VTX_OPEN)
		return true;
	return client_get_server(c);
}
static inline bool client_expect(struct client *c, enum expect_kind kind, const struct dest *dest, void *arg)
{
	return server_expect(c->link, kind, dest, arg);
}
enum step client_bad_message(struct client *c, const struct wire_msg *m);
void client_ready(struct client *c, bool local); /* after ReadyForQuery went to it */

/* extq.c: Parse, Bind, Describe, Execute, Close */
enum step extq_parse(struct client *c, const struct wire_msg *m);
enum step extq_bind(struct client *c, const struct wire_msg *m);
enum step extq_describe(struct client *c, const struct wire_msg *m);
enum step extq_execute(struct client *c, const struct wire_msg *m);
enum step extq_close(struct client *c, const struct wire_msg *m);
struct cstmt *extq_find(struct client *c, const char *name);
void extq_forget(struct client *c, struct cstmt **p);
/* There is no statement of that name. */
enum step extq_refuse_unknown(struct client *c, const char *name, bool simple);
/* This batch has failed; at_parse: in the Parse of the unnamed statement, which ends the one before. */
void extq_forget_unconfirmed(struct client *c, uint16_t batch, bool at_parse);
void extq_forget_all(struct client *c); /* DEALLOCATE ALL, DISCARD ALL: not what was parsed behind it */
void extq_confirm(struct client *c, struct pstmt *p, bool unnamed);
void extq_local_done(struct server *s, struct expect *e, bool ok); /* PARSED, CLOSED: takes the reference */

/* local.c: statements that we answer */
enum step local_simple(struct client *c, const char *sql, size_t len);
enum step local_simple_many(struct client *c, struct sql_text *t);
enum step local_deallocate_string(struct client *c, struct sql_text *t);
#define STRING_FAILED UINT32_MAX /* in string_at: the rest is dropped */
enum step local_string_rest(struct client *c, const char *sql, size_t len);
enum step local_tx_simple(struct client *c, enum sql_tx tx, const struct sql_text *t);
enum step local_execute(struct client *c, struct portal *p, int32_t max_rows);
/* Describe of a statement that only the server can describe. */
enum step local_describe(struct client *c, struct lstmt *l);
struct portal *portal_search(struct client *c, const char *name);
/* Nearly always there are none of ours. */
static inline struct portal *portal_find(struct client *c, const char *name)
{
	return c->portals != NULL ? portal_search(c, name) : NULL;
}
void portal_free(struct portal **p);
void portal_drop(struct client *c, struct portal *p); /* p may be NULL */
void portal_drop_synced(struct client *c);
void portal_synced(struct client *c);

/* local_session.c */
enum step local_session_simple(struct client *c, struct sql_text *t); /* STEP_MORE: forward it */
bool local_session_is(const struct client *c, struct sql_text *t);
enum step local_session_execute(struct client *c, const struct sql_session *st);

/* copy.c: which Syncs a server answers that was sent them in a COPY FROM STDIN */
/* One has failed, or may have: how many Syncs were answered since is being asked for. */
static inline bool copy_is_doubted(const struct server *s)
{
	return s->unasked == &dest_copy;
}
void copy_began(struct server *s); /* CopyInResponse */
void copy_done(struct server *s);  /* CommandComplete of COPY, if there is one */
void copy_failed(struct server *s); /* it was so; the statement is off `expect`, unless it is a Query */
bool copy_holds(struct client *c, uint8_t type); /* the message may not be sent now: the client waits, or is dead */
enum step copy_sync(struct client *c, const struct wire_msg *m);
enum step copy_message(struct client *c, const struct wire_msg *m); /* CopyData, CopyDone, CopyFail; something is outstanding */
bool copy_is_refused(const struct server *s, const struct wire_msg *m); /* by this error */
enum relay_step copy_refuse_stray(struct relay *r);
/* An error ends it. true: how many of the Syncs in it are answered is not known; copy_failed() follows. */
bool copy_ended_by_error(struct server *s);

/* relay_ready.c */
enum relay_step relay_ready(struct relay *r, const struct wire_msg *m, struct expect *e);

/* relay_error.c */
enum relay_step relay_error(struct relay *r, const struct wire_msg *m);

/* dest.c */
/* Of any answer: what its tags tell of the session and the transaction. */
void dest_note(struct server *s, const struct wire_msg *m, const struct expect *e);
/* An error that is for the client: `say` tells it, and what follows from it is done. */
typedef enum relay_step dest_say_error(struct relay *r, const struct wire_msg *m, struct expect *e);
enum relay_step dest_error(struct relay *r, const struct wire_msg *m, struct expect *e, dest_say_error *say);
enum relay_step dest_client_error(struct relay *r, const struct wire_msg *m, struct expect *e); /* as it is */
/* After an error in a batch the server skips to Sync: so do we. */
void relay_batch_failed(struct relay *r);
/* It goes to the client. */
enum relay_step dest_client_ready(struct relay *r, const struct wire_msg *m);
/* Something was dealt with. If nothing is outstanding any more: what waits for that. */
void relay_rest(struct relay *r);
void relay_settle(struct server *s); /* the client has sent the rest of a message */

#endif
