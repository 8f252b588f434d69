/*
 * What a server says: each message is taken by the head of `expect` and forwarded, swallowed, or
 * rewritten. Messages for the client go on as they come, without being gathered; only those that
 * change what we know are read as a whole. Runs of messages that go to the client are written in
 * one piece.
 *
 * What ReadyForQuery brings about is relay_ready.c, errors are relay_error.c, answers of replaced
 * statements relay_replace.c.
 */
#include <string.h>

#include "wire/sqltext.h"
#include "relay_int.h"

/* A notice that is longer is somebody else's. */
#define EVENT_MAX (64 * 1024)

/* --- what we say, behind the run --- */

static void emit_bytes(struct relay *r, const char *p, size_t n)
{
	relay_run_flush(r);
	if (r->s->link != NULL && r->s->link->conn != NULL)
		conn_write(r->s->link->conn, p, n);
}

/* Our own answers that have come to the head leave now. */
static void emit_local_heads(struct relay *r)
{
	struct expect *e;

	if (r->s->pass_left > 0)
		return;
	while ((e = expect_head(&r->s->expect)) != NULL && e->kind >= EXPECT_LOCAL) {
		if (e->kind == EXPECT_LOCAL)
			relay_emit(r, e->arg);
		else if (e->kind == EXPECT_PARSED)
			emit_bytes(r, "1\0\0\0\4", 5);
		else if (e->kind == EXPECT_CLOSED)
			emit_bytes(r, "3\0\0\0\4", 5);
		if (r->s->state == SERVER_DEAD)
			return;
		relay_pop(r, true);
	}
}

/* --- messages that may come at any time --- */

static enum relay_step parameter_status(struct relay *r, const struct wire_msg *m)
{
	struct server *s = r->s;
	struct expect *e = expect_head(&s->expect);
	struct wire_reader rd;
	const char *name, *value;
	int id;

	wire_reader_init(&rd, m->body, m->have);
	name = wire_get_cstr(&rd, NULL);
	value = wire_get_cstr(&rd, NULL);
	if (!wire_done(&rd))
		return RELAY_BAD;
	if (strcmp(name, "in_hot_standby") == 0)
		hosts_role_changed(s, value);
	id = var_find(name);
	if (id >= 0)
		vars_set(&s->vars, (enum var_id)id, value);
	if (s->link == NULL || (e != NULL && e->dest->seen < SEEN_STATUS))
		return RELAY_DROP;
	if (id >= 0) {
		/* what we have put in force ourselves the client knows already, unless the server
		 * words it otherwise */
		bool known = s->link->vars.v[id] == s->vars.v[id];

		istr_drop(&s->link->vars.v[id]);
		s->link->vars.v[id] = istr_ref(s->vars.v[id]);
		if (known && e != NULL && e->dest->setup)
			return RELAY_DROP;
	} else if (e != NULL && e->dest->setup) {
		return RELAY_DROP;
	}
	return RELAY_FORWARD;
}

/* What a function of the claimant's says to it, and to nobody else. */
static bool is_event(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	struct client *c = s->link;
	struct wire_notice n;

	if (!wire_complete(m) || (c != NULL && (c->icpt == NULL || c->icpt->event == NULL)))
		return false;
	wire_read_notice(m->body, m->have, &n);
	if (strcmp(n.sqlstate, INTERCEPT_EVENT) != 0)
		return false;
	if (c != NULL)
		c->icpt->event(c, n.message, n.detail);
	else if (e != NULL && e->dest->event != NULL)
		e->dest->event(s, n.message, n.detail);
	else /* its client has said goodbye, and its statement is carried out */
		intercept_orphan_event(s, n.message, n.detail);
	return true;
}

/* Without memory it is not told. */
static void tell_begin(struct server *s, const struct wire_msg *m, const struct dest *dest)
{
	struct buf b = BUF_INIT;
	struct wire_msg cut;

	if (build_cut(&b, m, CUT_AT) && wire_next(b.data, b.len, &cut) == WIRE_NEXT_OK)
		dest->notice(s, &cut);
	buf_free(&b);
}

static enum relay_step notice(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);

	if (is_event(r->s, m, e))
		return RELAY_DROP;
	if (r->s->link != NULL && (e == NULL || e->dest->seen >= SEEN_NOTICES))
		return RELAY_FORWARD;
	if (e != NULL && e->dest->notice != NULL) {
		if (m->have <= CUT_AT && !wire_complete(m))
			return RELAY_MORE;
		if (m->total > EVENT_MAX)
			tell_begin(r->s, m, e->dest);
		else
			e->dest->notice(r->s, m);
	}
	if (log_enabled(LOG_LVL_DEBUG) && wire_complete(m)) {
		struct wire_notice n;

		wire_read_notice(m->body, m->have, &n);
		log_write(LOG_LVL_DEBUG, server_prefix(r->s), "notice: %s", n.message);
	}
	return RELAY_DROP;
}

/* --- answers --- */

/* What comes between the beginning and the end of an answer. */
static bool is_part(uint8_t type)
{
	switch (type) {
	case 'D':
	case 'G':
	case 'H':
	case 'd':
	case 'c':
	case 'W':
		return true;
	default:
		return false;
	}
}

/* Does this message belong to the answer that the head waits for, and does it end it? */
enum fit { FIT_NO, FIT_PART, FIT_END };

static enum fit fits(enum expect_kind kind, uint8_t type)
{
	switch (kind) {
	case EXPECT_QUERY:
		if (type == 'T' || type == 'C' || type == 'I' || is_part(type))
			return FIT_PART;
		return type == 'Z' ? FIT_END : FIT_NO;
	case EXPECT_FUNCTION:
		return type == 'Z' ? FIT_END : type == 'V' ? FIT_PART : FIT_NO;
	case EXPECT_PARSE:
		return type == '1' ? FIT_END : FIT_NO;
	case EXPECT_BIND:
		return type == '2' ? FIT_END : FIT_NO;
	case EXPECT_DESCRIBE:
		return type == 'T' || type == 'n' ? FIT_END : type == 't' ? FIT_PART : FIT_NO;
	case EXPECT_EXECUTE:
		if (is_part(type))
			return FIT_PART;
		return type == 'C' || type == 'I' || type == 's' ? FIT_END : FIT_NO;
	case EXPECT_CLOSE:
		return type == '3' ? FIT_END : FIT_NO;
	case EXPECT_SYNC:
		return type == 'Z' ? FIT_END : FIT_NO;
	case EXPECT_LOCAL:
	case EXPECT_PARSED:
	case EXPECT_CLOSED:
	case EXPECT_COPY_DATA:
	case EXPECT_COPY_END:
		break;
	}
	return FIT_NO;
}

/* Must the whole message be here before it can be dealt with? */
static bool needs_whole(const struct server *s, const struct wire_msg *m, const struct expect *e)
{
	switch (m->type) {
	case 'Z':
	case 'S':
	case 'C':
	case '1':
		return true;
	case 'E':
		return m->total <= CONTROL_MAX; /* a longer one is cut */
	case 'A':
		return e == NULL || e->dest->notified != NULL;
	case 'N':
		return m->total <= EVENT_MAX;
	case 'D':
		if (e != NULL && e->dest->passes_over != NULL && e->dest->passes_over(s, m))
			return false;
		return e != NULL && (e->dest->row != NULL || e->dest->answer != NULL);
	case 'T':
		return e != NULL && (e->dest->row != NULL || e->dest->answer != NULL);
	default:
		return false;
	}
}

static enum relay_step answer(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	const struct dest *dest = e->dest;
	enum fit fit = fits((enum expect_kind)e->kind, m->type);

	if (fit == FIT_NO)
		return dest->stray != NULL ? dest->stray(r, m, e) : RELAY_BAD;
	if (m->type == 'Z')
		return relay_ready(r, m, e);
	if (fit == FIT_END && e->kind != EXPECT_CLOSE)
		s->batch.completed = true;
	if (m->type == 'G' && s->state == SERVER_FINISHING) {
		server_close(s, "client left before its COPY", NULL);
		return RELAY_GONE;
	}
	if (m->type == 'G' && s->task != NULL) {
		task_refuse_copy(s);
		return RELAY_DROP;
	}
	if (dest->tells && (m->type == 'C' || m->type == '1' || m->type == 'G'))
		dest_note(s, m, e);
	if (dest->row != NULL && m->type == 'D')
		dest->row(s, m, e);
	if (dest->columns != NULL && m->type == 'T' && e->kind == EXPECT_DESCRIBE)
		dest->columns(s, m);
	if (dest->answer != NULL)
		return dest->answer(r, m, e, fit == FIT_END);
	if (dest->seen == SEEN_ALL)
		relay_run_add(r, m->data, WIRE_HEADER + m->have);
	if (fit == FIT_END)
		relay_pop(r, true);
	return dest->seen == SEEN_ALL ? RELAY_DONE : RELAY_DROP;
}

static enum relay_step message(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);
	const struct dest *unasked = r->s->unasked;

	if (needs_whole(r->s, m, e) && !wire_complete(m))
		return m->total > CONTROL_MAX && m->type != 'D' ? RELAY_BAD : RELAY_MORE;
	switch (m->type) {
	case 'S':
		return parameter_status(r, m);
	case 'N':
		return notice(r, m);
	case 'E':
		return relay_error(r, m);
	case 'A':
		if (unasked != NULL && unasked->notified != NULL)
			unasked->notified(r->s, m);
		/* a channel that some client listened on is nobody's in transaction pooling */
		return r->s->link != NULL && (server_keeps_session(r->s) ||
						     (r->s->link->pins & SQL_TOUCH_LISTEN) != 0)
			       ? RELAY_FORWARD
			       : RELAY_DROP;
	default:
		break;
	}
	if (e != NULL)
		return answer(r, m, e);
	return unasked != NULL && unasked->stray != NULL ? unasked->stray(r, m, NULL) : RELAY_BAD;
}

/* --- the loop over what has come --- */

static void bad_message(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);
	struct pg_error err;

	relay_run_flush(r);
	log_write(LOG_LVL_ERROR, server_prefix(r->s),
		"unexpected message %s (0x%02x) from the server, expecting %d",
		wire_type_name(m->type, false), m->type, e != NULL ? (int)e->kind : -1);
	pg_error_set(&err, "08P01", "unexpected message from the server");
	server_close(r->s, "protocol violation by the server", &err);
}

static void too_long(struct relay *r)
{
	struct pg_error err;

	relay_run_flush(r);
	pg_error_set(&err, "54000", "a message of the server is longer than max_packet_size");
	pg_error_hint(&err, "A row is one message. The limit is max_packet_size = %lld.",
		(long long)conf_current()->p.max_packet_size);
	server_close(r->s, "message is longer than max_packet_size", &err);
}

/* Something was dealt with: what waits for it. */
static void answered(struct relay *r)
{
	emit_local_heads(r);
	if (r->s->pass_left == 0 && r->s->expect.count == 0)
		relay_rest(r);
}

/* What goes on to the client without a thought, by what the head waits for. A tag that tells
 * something about the session or the transaction does not: the row's note. */
static enum fit plain_fit(const struct wire_msg *m, enum expect_kind kind)
{
	switch (m->type) {
	case 'D':
		return kind == EXPECT_QUERY || kind == EXPECT_EXECUTE ? FIT_PART : FIT_NO;
	case 'T':
		return kind == EXPECT_QUERY ? FIT_PART : kind == EXPECT_DESCRIBE ? FIT_END : FIT_NO;
	case 'C':
		if (m->have == 0 || (m->body[0] != 'S' && m->body[0] != 'I' && m->body[0] != 'U'))
			return FIT_NO;
		return kind == EXPECT_QUERY ? FIT_PART : kind == EXPECT_EXECUTE ? FIT_END : FIT_NO;
	case '2':
		return kind == EXPECT_BIND ? FIT_END : FIT_NO;
	default:
		return FIT_NO;
	}
}

/* The usual messages of the usual statements: those that are here as a whole go as one. */
static size_t plain(struct relay *r, const uint8_t *data, size_t len)
{
	struct server *s = r->s;
	const struct expect *e;
	enum fit fit = FIT_NO;
	struct wire_msg m;
	bool ended = false;
	size_t pos = 0, most = (size_t)conf_current()->p.max_packet_size;

	while ((e = expect_head(&s->expect)) != NULL && e->dest == &dest_client &&
		wire_next(data + pos, len - pos, &m) == WIRE_NEXT_OK && wire_complete(&m) &&
		m.total <= most && (fit = plain_fit(&m, e->kind)) != FIT_NO) {
		pos += m.total;
		if (fit == FIT_END) {
			relay_pop(r, true);
			ended = true;
		}
	}
	relay_run_add(r, data, pos);
	if (ended) {
		s->batch.completed = true;
		answered(r);
	}
	return pos;
}

/* One message, as far as it is here. Returns the bytes that are dealt with; 0: stop. */
static size_t one(struct relay *r, const uint8_t *data, size_t len)
{
	struct server *s = r->s;
	struct wire_msg m;
	enum relay_step step;

	switch (wire_next(data, len, &m)) {
	case WIRE_NEXT_MORE:
		return 0;
	case WIRE_NEXT_BAD:
		m.type = data[0];
		bad_message(r, &m);
		return 0;
	case WIRE_NEXT_OK:
		break;
	}
	if ((int64_t)m.total > conf_current()->p.max_packet_size) {
		too_long(r);
		return 0;
	}
	step = message(r, &m);
	if (step == RELAY_MORE || step == RELAY_GONE || s->state == SERVER_DEAD)
		return 0;
	if (step == RELAY_BAD) {
		bad_message(r, &m);
		return 0;
	}
	if (step == RELAY_FORWARD)
		relay_run_add(r, data, WIRE_HEADER + m.have);
	s->pass_left = m.total - WIRE_HEADER - (uint32_t)m.have;
	s->pass_discard = step == RELAY_DROP;
	answered(r);
	return WIRE_HEADER + m.have;
}

/* In this turn, by its client: what becomes of it is not decided yet. */
static bool was_left(const struct server *s)
{
	return s->link == NULL && s->state == SERVER_ACTIVE;
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct relay r = {.s = owner};
	struct server *s = owner;
	size_t pos = 0, n;

	while (pos < len && s->state != SERVER_DEAD && !was_left(s)) {
		if (s->pass_left > 0) {
			n = len - pos < s->pass_left ? len - pos : s->pass_left;
			if (!s->pass_discard)
				relay_run_add(&r, data + pos, n);
			s->pass_left -= (uint32_t)n;
			pos += n;
			answered(&r);
			continue;
		}
		n = plain(&r, data + pos, len - pos);
		if (n == 0)
			n = one(&r, data + pos, len - pos);
		if (n == 0)
			break;
		pos += n;
	}
	relay_run_flush(&r);
	if (s->state == SERVER_DEAD)
		return len;
	if (s->throttled && s->expect.count < EXPECT_LOW) {
		s->throttled = false;
		if (s->link != NULL)
			client_resume(s->link);
	}
	if (s->link != NULL && s->link->conn != NULL && conn_is_full(s->link->conn))
		conn_want_read(conn, false);
	return pos;
}

static void on_end(struct conn *conn, void *owner, enum conn_end why, int err)
{
	struct server *s = owner;

	(void)conn;
	(void)err;
	server_close(s, why == CONN_END_NO_MEMORY ? "out of memory" : "server conn crashed?", NULL);
}

/* The server has room again: its client may be read. */
static void on_drain(struct conn *conn, void *owner)
{
	struct server *s = owner;

	(void)conn;
	if (s->link != NULL && s->link->conn != NULL)
		client_resume(s->link);
}

const struct conn_ops server_ops = {.on_data = on_data, .on_end = on_end, .on_drain = on_drain};
