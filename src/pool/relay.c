/*
 * What a server says: each message is taken by the head of `expect` and forwarded, swallowed, or
 * rewritten. Messages for the client go on as they come, without being gathered; only those that
 * change what we know are read as a whole. Runs of messages that go to the client are written in
 * one piece.
 *
 * Errors are relay_error.c, answers of replaced statements relay_replace.c.
 */
#include <string.h>

#include "wire/sqlsess.h"
#include "pool_int.h"
#include "relay_int.h"

/* --- the run of bytes for the client
 * --------------------------------------------------------------- */

static void run_flush(struct relay *r)
{
	struct client *c = r->s->link;

	if (r->to > r->from && c != NULL && c->conn != NULL) {
		conn_write(c->conn, r->from, (size_t)(r->to - r->from));
		r->s->pool->stats.bytes_out += (size_t)(r->to - r->from);
	}
	r->from = r->to = NULL;
}

static void run_add(struct relay *r, const uint8_t *p, size_t n)
{
	if (n == 0)
		return;
	if (r->to == p) {
		r->to = p + n;
		return;
	}
	run_flush(r);
	r->from = p;
	r->to = p + n;
}

void relay_emit(struct relay *r, const struct buf *b)
{
	run_flush(r);
	if (buf_failed(b)) {
		if (r->s->link != NULL)
			client_out_of_memory(r->s->link);
		return;
	}
	if (r->s->link != NULL)
		client_write(r->s->link, b);
}

static void emit_bytes(struct relay *r, const char *p, size_t n)
{
	run_flush(r);
	if (r->s->link != NULL && r->s->link->conn != NULL)
		conn_write(r->s->link->conn, p, n);
}

/* --- the FIFO
 * ------------------------------------------------------------------------------------------ */

static void pop(struct server *s, bool ok)
{
	struct expect e = *expect_head(&s->expect);

	s->expect.head = (uint16_t)((s->expect.head + 1u) & (s->expect.cap - 1u));
	s->expect.count--;
	if (e.kind == EXPECT_SYNC)
		s->batch_now++;
	if (e.arg != NULL)
		server_expect_free(s, &e, ok);
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
		pop(r->s, true);
	}
}

/* --- ReadyForQuery
 * ------------------------------------------------------------------------------------------ */

static void count_transaction(struct server *s, struct client *c)
{
	stat_query(s->pool, c);
	if (c->tx_start == 0)
		c->tx_start = c->request_time;
	if (s->tx == 'I')
		stat_transaction(s->pool, c);
}

static void client_done(struct server *s)
{
	struct client *c = s->link;

	count_transaction(s, c);
	session_ask_again(s);
	client_ready(c, false);
}

/* Anything outstanding between the server and whom it works for? */
static void settle(struct relay *r)
{
	struct server *s = r->s;
	struct client *c = s->link;

	if (s->state == SERVER_DEAD || s->expect.count > 0)
		return;
	if (s->state == SERVER_FINISHING) {
		server_unlink_abandoned(s, false);
		return;
	}
	if (s->state == SERVER_CLEANING) {
		if (s->tx != 'I')
			server_close(s, "transaction still open after the reset", NULL);
		else
			server_release(s);
		return;
	}
	if (c == NULL)
		return;
	/* a message of the client that the server has not got to its end belongs to this client
	 * (data of a copy that has failed): to whom the server is given next would have to finish
	 * it */
	if (c->pass_left > 0 && !c->pass_discard)
		return;
	if (s->copy_doubt) {
		(void)copy_ask(s);
		return;
	}
	if (s->settling) {
		s->settling = false;
		client_resume(c);
		return;
	}
	if (server_wants_fast_close(s)) {
		run_flush(r);
		server_close_fast(s);
		return;
	}
	if (s->tx == 'I' && !s->unsynced && !s->copy_in &&
		(!server_keeps_session(s) || s->touched != 0)) {
		run_flush(r);
		if (!session_holds(s))
			server_release(s);
		if (c->state == CLIENT_DEAD)
			return;
	}
	if (c->state == CLIENT_BARRIER || conn_pending_input(c->conn) > 0)
		client_resume(c);
	else /* it may have been stopped because this server did not read */
		conn_want_read(c->conn, true);
}

void relay_settle(struct server *s)
{
	struct relay r = {.s = s};

	if (s->pass_left == 0)
		settle(&r);
}

/* As the server words them: what it did not report was the same to it, and need not be set again.
 */
static void settings_in_force(struct server *s)
{
	struct vars *v = &s->link->vars;

	for (int i = 0; i < VAR_COUNT; i++)
		if (v->v[i] != s->vars.v[i] && v->v[i] != NULL && s->vars.v[i] != NULL) {
			istr_drop(&v->v[i]);
			v->v[i] = istr_ref(s->vars.v[i]);
		}
}

static enum relay_step refuse_block(struct relay *r)
{
	struct pg_error err;

	run_flush(r);
	pg_error_set(&err, "0A000", "transaction blocks not allowed in statement pooling mode");
	client_fatal(r->s->link, &err);
	return RELAY_DROP;
}

/* What is left of the client's string is not carried out. */
static bool part_failed(struct server *s, const struct expect *e)
{
	const struct replaced *rp = e->arg;

	if (e->kind != EXPECT_QUERY || e->dest != DEST_REPLACE || !rp->part || !rp->failed)
		return false;
	if (s->link != NULL)
		s->link->string_at = STRING_FAILED;
	return true;
}

/* A Sync that follows nothing, or a Close, ends no transaction. PostgreSQL 18 says so of one that a
 * Query in the middle of a batch has made, and goes on holding its locks: the next statement would
 * fail. */
static void look_for_left_open(struct server *s, const struct expect *e, char tx)
{
	if (e->kind == EXPECT_SYNC && s->tx == 'T' && tx == 'I' && !s->completed) {
		log_write(LOG_LVL_WARNING, server_prefix(s),
			"Sync has left the transaction open that a Query in a batch began");
		s->close_needed = true;
	}
	s->completed = false;
}

static enum relay_step ready(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	enum expect_dest dest = e->dest;
	bool final = e->final || part_failed(s, e);

	if (m->total != WIRE_HEADER + 1)
		return RELAY_BAD;
	if (strchr("ITE", m->body[0]) == NULL || m->body[0] == '\0')
		return RELAY_BAD;
	look_for_left_open(s, e, (char)m->body[0]);
	/* a block of ours is none of the client's */
	if (dest != DEST_PREPARE)
		s->tx = (char)m->body[0];
	if (dest == DEST_CLIENT && e->kind == EXPECT_QUERY && e->arg != NULL && s->link != NULL &&
		(s->tx == 'I' || sqlprep_is_effect(e->arg))) {
		run_flush(r);
		session_apply(s, e->arg);
	}
	if (s->discarded && s->link != NULL && s->tx == 'I') {
		run_flush(r); /* settings are reported in front of ReadyForQuery */
		session_restore_discarded(s);
	}
	pop(s, true);
	if (s->expect.count == 0)
		s->discarding = false;
	if (dest == DEST_TASK) {
		if (s->task != NULL)
			task_ready(s, final);
		return RELAY_DROP;
	}
	if (s->link != NULL && dest == DEST_VARS) {
		settings_in_force(s);
		s->link->proven = true;
	}
	if (dest == DEST_LOOK) {
		run_flush(r);
		look_done(s);
	}
	if (dest == DEST_COPY)
		s->copy_doubt = false;
	if (dest == DEST_LISTEN)
		listen_answered(s);
	if (s->link != NULL && (dest == DEST_CLIENT || final)) {
		if (s->tx != 'I' && server_pool_mode(s) == POOL_MODE_STATEMENT)
			return refuse_block(r);
		if (s->link->listening != NULL && s->tx == 'I') {
			run_flush(r);
			listen_flush(s->link);
		}
		run_add(r, m->data, m->total);
		client_done(s);
		return RELAY_DONE;
	}
	return RELAY_DROP;
}

/* To a Sync that was sent in a copy which had failed, or to ours behind it: they are alike. */
static enum relay_step ready_in_doubt(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;

	if (m->total != WIRE_HEADER + 1 || strchr("ITE", m->body[0]) == NULL || m->body[0] == '\0')
		return RELAY_BAD;
	s->tx = (char)m->body[0];
	if (e != NULL && !e->final) {
		e->final = true;
		return RELAY_DROP;
	}
	if (s->link == NULL)
		return RELAY_DROP;
	s->link->skip_to_sync = false;
	run_add(r, m->data, m->total);
	client_done(s);
	return RELAY_DONE;
}

/* --- messages that may come at any time
 * --------------------------------------------------------------------- */

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
	if (strcmp(name, "in_hot_standby") == 0)
		hosts_role_changed(s, value);
	if (!wire_done(&rd))
		return RELAY_BAD;
	id = var_find(name);
	if (id >= 0)
		vars_set(&s->vars, (enum var_id)id, value);
	if (s->link == NULL ||
		(e != NULL && (e->dest == DEST_RESET || e->dest == DEST_TASK ||
				      e->dest == DEST_LOOK || e->dest == DEST_PREPARE)))
		return RELAY_DROP;
	if (id >= 0) {
		/* what we have put in force ourselves the client knows already, unless the server
		 * words it otherwise */
		bool known = s->link->vars.v[id] == s->vars.v[id];

		istr_drop(&s->link->vars.v[id]);
		s->link->vars.v[id] = istr_ref(s->vars.v[id]);
		if (known && e != NULL && e->dest == DEST_VARS)
			return RELAY_DROP;
	} else if (e != NULL && e->dest == DEST_VARS) {
		return RELAY_DROP;
	}
	return RELAY_FORWARD;
}

static enum relay_step notice(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);

	if (r->s->link != NULL && (e == NULL || e->dest == DEST_CLIENT || e->dest == DEST_REPLACE ||
					  e->dest == DEST_BEGIN))
		return RELAY_FORWARD;
	if (log_enabled(LOG_LVL_DEBUG) && wire_complete(m)) {
		struct wire_notice n;

		wire_read_notice(m->body, m->have, &n);
		log_write(LOG_LVL_DEBUG, server_prefix(r->s), "notice: %s", n.message);
	}
	return RELAY_DROP;
}

/* --- the others
 * ---------------------------------------------------------------------------------------------------
 */

static bool tag_is(const struct wire_msg *m, const char *tag)
{
	size_t n = strlen(tag) + 1;

	return m->have == n && memcmp(m->body, tag, n) == 0;
}

/* Tags that tell what happened to the session or the transaction. */
static void command_complete(struct server *s, const struct wire_msg *m)
{
	struct client *c = s->link;

	switch (m->have > 0 ? m->body[0] : 0) {
	case 'C':
		if (s->copying && m->have > 5 && memcmp(m->body, "COPY ", 5) == 0)
			copy_done(s);
		if (c != NULL && tag_is(m, "COMMIT"))
			c->tx_committed = true;
		else if (c != NULL && tag_is(m, "COMMIT PREPARED") && c->icpt != NULL &&
			 c->icpt->prepared_committed != NULL)
			c->icpt->prepared_committed(c);
		break;
	case 'P':
		if (c != NULL && tag_is(m, "PREPARE TRANSACTION"))
			c->tx_committed = c->tx_failed =
				true; /* what comes of it is not known yet */
		break;
	case 'D':
		if (tag_is(m, "DISCARD ALL") || tag_is(m, "DEALLOCATE ALL")) {
			server_forget_prepared(s);
			sqlprep_forget(c, s);
			if (c != NULL)
				extq_forget_all(c);
			if (m->body[1] == 'I') {
				session_discarded(s);
				if (c != NULL)
					(void)!listen_unlisten_all(c);
			}
		}
		break;
	case 'R':
		if (tag_is(m, "RESET")) {
			s->extra_stale = s->extra != NULL;
		} else if (c != NULL && tag_is(m, "ROLLBACK")) {
			c->tx_failed = true; /* also of ROLLBACK TO: a COMMIT then outweighs it */
		}
		break;
	}
}

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
static bool needs_whole(const struct wire_msg *m, const struct expect *e)
{
	switch (m->type) {
	case 'Z':
	case 'E':
	case 'S':
	case 'C':
	case '1':
		return true;
	case 'A':
		return e == NULL || e->dest == DEST_LISTEN;
	case 'D':
	case 'T':
		return e != NULL &&
		       (e->dest == DEST_TASK || e->dest == DEST_REPLACE || e->dest == DEST_LOOK);
	default:
		return false;
	}
}

static enum relay_step answer(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	enum expect_dest dest = e->dest;
	enum fit fit = fits((enum expect_kind)e->kind, m->type);

	if (fit == FIT_NO)
		return RELAY_BAD;
	if (m->type == 'Z')
		return ready(r, m, e);
	if (fit == FIT_END && e->kind != EXPECT_CLOSE)
		s->completed = true;
	if (m->type == 'C' && dest != DEST_PREPARE)
		command_complete(s, m);
	if (m->type == 'G' && s->state == SERVER_FINISHING) {
		server_close(s, "client left before its COPY", NULL);
		return RELAY_GONE;
	}
	if (m->type == 'G')
		copy_began(s);
	if (m->type == '1' && e->arg != NULL && s->link != NULL && dest == DEST_CLIENT)
		extq_confirm(s->link, e->arg, e->unnamed);
	/* the rows of its own statement, not of the settings before it */
	if (dest == DEST_TASK && m->type == 'D' && s->task != NULL &&
		(e->kind == EXPECT_EXECUTE || e->final))
		task_row(s->task, m->body, m->have);
	if (dest == DEST_LOOK && m->type == 'D')
		look_row(s, m->body, m->have);
	if (dest == DEST_REPLACE && (e->kind == EXPECT_QUERY || e->kind == EXPECT_EXECUTE))
		return relay_replace_answer(r, m, e, fit == FIT_END);
	/* what describes a replacement is for the client */
	if (dest == DEST_CLIENT || dest == DEST_REPLACE)
		run_add(r, m->data, WIRE_HEADER + m->have);
	if (fit == FIT_END)
		pop(s, true);
	return dest == DEST_CLIENT || dest == DEST_REPLACE ? RELAY_DONE : RELAY_DROP;
}

void relay_pop(struct relay *r, bool ok)
{
	pop(r->s, ok);
}

void relay_run_flush(struct relay *r)
{
	run_flush(r);
}

void relay_run_add(struct relay *r, const uint8_t *p, size_t n)
{
	run_add(r, p, n);
}

static enum relay_step message(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);

	if (needs_whole(m, e) && !wire_complete(m))
		return m->total > CONTROL_MAX && m->type != 'D' ? RELAY_BAD : RELAY_MORE;
	switch (m->type) {
	case 'S':
		return parameter_status(r, m);
	case 'N':
		return notice(r, m);
	case 'E':
		return relay_error(r, m);
	case 'A':
		if (r->s->state == SERVER_LISTENING)
			listen_notified(r->s, m->body, m->have);
		/* a channel that some client listened on is nobody's in transaction pooling */
		return r->s->link != NULL && (server_keeps_session(r->s) ||
						     (r->s->link->pins & SQL_TOUCH_LISTEN) != 0)
			       ? RELAY_FORWARD
			       : RELAY_DROP;
	case 'Z':
		if (e == NULL ? r->s->copy_doubt : e->dest == DEST_COPY && e->kind == EXPECT_CLOSE)
			return ready_in_doubt(r, m, e);
		break;
	default:
		break;
	}
	return e != NULL ? answer(r, m, e) : RELAY_BAD;
}

/* --- the loop over what has come
 * ------------------------------------------------------------------------------------ */

static void bad_message(struct relay *r, const struct wire_msg *m)
{
	struct expect *e = expect_head(&r->s->expect);
	struct pg_error err;

	run_flush(r);
	log_write(LOG_LVL_ERROR, server_prefix(r->s),
		"unexpected message %s (0x%02x) from the server, expecting %d",
		wire_type_name(m->type, false), m->type, e != NULL ? (int)e->kind : -1);
	pg_error_set(&err, "08P01", "unexpected message from the server");
	server_close(r->s, "protocol violation by the server", &err);
}

static void too_long(struct relay *r)
{
	struct pg_error err;

	run_flush(r);
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
		settle(r);
}

/* What goes on to the client without a thought, by what the head waits for. A tag that tells
 * something about the session or the transaction does not: command_complete(). */
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

	while ((e = expect_head(&s->expect)) != NULL && e->dest == DEST_CLIENT &&
		wire_next(data + pos, len - pos, &m) == WIRE_NEXT_OK && wire_complete(&m) &&
		m.total <= most && (fit = plain_fit(&m, e->kind)) != FIT_NO) {
		pos += m.total;
		if (fit == FIT_END) {
			pop(s, true);
			ended = true;
		}
	}
	run_add(r, data, pos);
	if (ended) {
		s->completed = true;
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
		run_add(r, data, WIRE_HEADER + m.have);
	s->pass_left = m.total - WIRE_HEADER - (uint32_t)m.have;
	s->pass_discard = step == RELAY_DROP;
	answered(r);
	return WIRE_HEADER + m.have;
}

static size_t on_data(struct conn *conn, void *owner, const uint8_t *data, size_t len)
{
	struct relay r = {.s = owner};
	struct server *s = owner;
	size_t pos = 0, n;

	while (pos < len && s->state != SERVER_DEAD) {
		if (s->pass_left > 0) {
			n = len - pos < s->pass_left ? len - pos : s->pass_left;
			if (!s->pass_discard)
				run_add(&r, data + pos, n);
			s->pass_left -= (uint32_t)n;
			pos += n;
			emit_local_heads(&r);
			if (s->pass_left == 0)
				settle(&r);
			continue;
		}
		n = plain(&r, data + pos, len - pos);
		if (n == 0)
			n = one(&r, data + pos, len - pos);
		if (n == 0)
			break;
		pos += n;
	}
	run_flush(&r);
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
