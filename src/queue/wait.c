/*
 * The waiting room. A TAKE or POP asks the database; when it finds nothing and may wait, it parks in
 * the rooms of its queues, without a server connection. A room is woken by a push that was committed,
 * by a notification, by the time at which something becomes due, and now and then to be sure; it then
 * lets its waiters ask again, the longest first, one for each job that is known to be there.
 *
 * Every wait ends through waiter_end().
 */
#include <stdio.h>
#include <string.h>

#include "wire/msg.h"
#include "merge.h"
#include "queue_int.h"

#define HIDDEN_COLUMNS 2 /* behind the client's: policy, due_ms */
#define LOOK_AGAIN (1 * USEC_SEC) /* after a take, for what may have come that was not announced */

#define DUE_NEVER   (-1)
#define DUE_UNKNOWN (-2) /* the rows went to others of the same batch */

struct room;

struct member {
	struct member *prev, *next; /* of the room, longest waiter first */
	struct room *room;
	struct waiter *waiter;
	uint64_t gen; /* of the room when its waiter last asked */
};

struct room {
	UT_hash_handle hh;
	struct heap_node timer; /* the next time to look */
	struct qdb *db;
	struct member *members;
	unsigned n_members;
	unsigned credits;    /* waiters that may ask now */
	bool unknown;        /* more may be there than credits say: go on while something is found */
	bool ready_marked;
	struct room *ready_next;
	uint64_t gen;        /* counts wakes */
	usec_t due_at;       /* when something becomes ready by itself, as last heard */
	uint64_t wakes, probes, served;
	char name[QSTMT_QUEUE_MAX + 1];
};

struct taken {
	int64_t id;
	enum lease_policy policy;
	char token[TOKEN_MAX];
	char queue[QSTMT_QUEUE_MAX + 1];
};

struct waiter {
	struct heap_node deadline;
	struct waiter *prev, *next; /* all parked ones, the one whose heartbeat is due first in front */
	struct qclient *qc; /* NULL: nobody is interested; only the task still runs */
	struct qdb *db;
	struct pool *pool;
	struct take_args args;
	struct member *members; /* args.n_queues, or NULL: not in the rooms */
	struct merge_item *item; /* asks; NULL: does not */
	int16_t *formats;
	int n_formats, n_columns;
	bool expired;
	bool by_statement_timeout; /* the client's statement_timeout is shorter than its WAIT */
	struct answer answer;
	struct taken *taken;
	int n_taken, cap_taken;
	int64_t due_ms; /* when the next job becomes due; DUE_NEVER, DUE_UNKNOWN */
	uint64_t wakes; /* of the database when it last asked */
	usec_t started, beat_at;
};

static struct heap deadlines, timers;
static struct waiter *parked;
static struct room *ready_head, **ready_tail = &ready_head;
static struct loop_tick *tick;

static bool probe(struct waiter *w);
static void end_error(struct waiter *w, const struct pg_error *err);
static void end_expired(struct waiter *w);

/* --- rooms ------------------------------------------------------------------------------------------------ */

static struct room *room_find(struct qdb *db, const char *name)
{
	struct room *r;

	HASH_FIND_STR(db->rooms, name, r);
	return r;
}

static struct room *room_get(struct qdb *db, const char *name)
{
	struct room *r = room_find(db, name);

	if (r != NULL)
		return r;
	r = mem_zalloc(sizeof(*r));
	if (r == NULL)
		return NULL;
	r->db = db;
	r->due_at = USEC_NEVER;
	util_strlcpy(r->name, name, sizeof(r->name));
	HASH_ADD_STR(db->rooms, name, r);
	return r;
}

static void room_unready(struct room *r)
{
	struct room **at = &ready_head;

	if (!r->ready_marked)
		return;
	while (*at != r)
		at = &(*at)->ready_next;
	*at = r->ready_next;
	if (ready_tail == &r->ready_next)
		ready_tail = at;
	r->ready_marked = false;
}

static void room_free(struct room *r)
{
	room_unready(r);
	heap_remove(&timers, &r->timer);
	HASH_DEL(r->db->rooms, r);
	mem_free(r);
}

static void room_ready(struct room *r)
{
	if (r->ready_marked || r->credits == 0)
		return;
	r->ready_marked = true;
	r->ready_next = NULL;
	*ready_tail = r;
	ready_tail = &r->ready_next;
}

/* Looks again when something is due, and after a while in any case. */
static void room_schedule(struct room *r)
{
	const struct params *p = &conf_current()->p;
	usec_t at = loop_now() + (system_is_up(r->db) ? p->queue_rescan : p->queue_safety_poll);

	if (r->due_at < at)
		at = r->due_at;
	/* without memory for the timer the next push or notification has to do */
	if (heap_set(&timers, &r->timer, at))
		loop_tick_at(tick, at);
}

static void wake(struct room *r, unsigned jobs)
{
	r->gen++;
	r->wakes++;
	if (jobs == 0)
		r->unknown = true;
	r->credits += jobs > 0 ? jobs : 1;
	if (r->credits > r->n_members)
		r->credits = r->n_members;
	room_ready(r);
}

void room_wake(struct qdb *db, const char *queue, unsigned jobs)
{
	struct room *r = room_find(db, queue);

	db->wakes++;
	if (r != NULL && r->n_members > 0)
		wake(r, jobs);
}

void rooms_wake_all(struct qdb *db)
{
	struct room *r, *tmp;

	db->wakes++;
	HASH_ITER(hh, db->rooms, r, tmp)
		wake(r, 0);
}

bool rooms_have_waiters(const struct qdb *db)
{
	return db->rooms != NULL;
}

static void ask_failed(struct waiter *w)
{
	struct pg_error err;

	pg_error_set(&err, "53200", "out of memory");
	end_error(w, &err);
}

/* Who cannot ask leaves its rooms, and the last one of a room ends it: r is not looked at again then. */
static bool serve_room(struct room *r)
{
	struct member *m;
	bool any = false;

	for (m = r->members; m != NULL && r->credits > 0; m = m->next) {
		struct waiter *w = m->waiter;

		if (w->item != NULL)
			continue;
		any = true;
		r->credits--;
		if (probe(w))
			continue;
		room_ready(r);
		ask_failed(w);
		break;
	}
	return any;
}

/* The loop phase: lets waiters ask. */
static bool serve_ready(void *arg, usec_t now)
{
	struct room *r;
	bool any = false;

	(void)arg;
	(void)now;
	while ((r = ready_head) != NULL) {
		ready_head = r->ready_next;
		if (ready_head == NULL)
			ready_tail = &ready_head;
		r->ready_marked = false;
		any |= serve_room(r);
	}
	return any;
}

/* --- one waiter -------------------------------------------------------------------------------------------- */

static void leave_rooms(struct waiter *w)
{
	if (w->members == NULL)
		return;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct room *r = w->members[i].room;

		if (r == NULL)
			continue;
		DL_DELETE(r->members, &w->members[i]);
		if (--r->n_members == 0)
			room_free(r);
		else if (r->credits > r->n_members)
			r->credits = r->n_members;
	}
	mem_free(w->members);
	w->members = NULL;
	DL_DELETE(parked, w);
	heap_remove(&deadlines, &w->deadline);
}

static bool enter_rooms(struct waiter *w)
{
	usec_t now = loop_now();

	w->members = mem_zalloc((size_t)w->args.n_queues * sizeof(*w->members));
	if (w->members == NULL)
		return false;
	w->beat_at = now + conf_current()->p.queue_heartbeat;
	DL_APPEND(parked, w);
	for (int i = 0; i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];
		struct room *r = room_get(w->db, w->args.queues[i]);

		if (r == NULL)
			return false;
		m->room = r;
		m->waiter = w;
		DL_APPEND(r->members, m);
		r->n_members++;
	}
	if (!heap_set(&deadlines, &w->deadline, w->started + w->args.wait))
		return false;
	loop_tick_at(tick, heap_deadline(&deadlines));
	if (conf_current()->p.queue_heartbeat > 0)
		loop_tick_at(tick, w->beat_at);
	system_need(w->db, w->pool);
	return true;
}

static void waiter_free(struct waiter *w)
{
	take_args_free(&w->args);
	answer_free(&w->answer);
	mem_free(w->taken);
	mem_free(w->formats);
	mem_free(w);
}

/* It was woken and does not ask any more: the next one does in its place. */
static void pass_on(struct waiter *w)
{
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++)
		if (w->members[i].room != NULL)
			wake(w->members[i].room, 1);
}

/*
 * The one way out: of the rooms, the timers, the client. Gives the client, to be answered by the
 * caller. A statement that already runs is waited for by nobody: what it takes is given back.
 */
static struct client *waiter_end(struct waiter *w)
{
	struct client *c = w->qc != NULL ? w->qc->client : NULL;

	if (w->item != NULL && merge_drop(w->item)) {
		w->item = NULL;
		pass_on(w);
	}
	leave_rooms(w);
	if (w->qc != NULL)
		w->qc->waiter = NULL;
	w->qc = NULL;
	if (w->item == NULL)
		waiter_free(w);
	return c;
}

static void end_empty(struct waiter *w)
{
	struct answer a = {0};
	struct client *c = waiter_end(w);

	util_strlcpy(a.tag, "SELECT 0", sizeof(a.tag));
	if (c != NULL)
		client_answer(c, &a);
}

static void end_error(struct waiter *w, const struct pg_error *err)
{
	struct pg_error copy = *err;
	struct client *c = waiter_end(w);

	if (c != NULL)
		client_fail(c, &copy);
}

/* --- rows ----------------------------------------------------------------------------------------------------- */

struct column {
	const uint8_t *data;
	int32_t len; /* -1: NULL */
};

enum { COL_ID = 0, COL_TOKEN = 1, COL_QUEUE = 2 };

static bool get_columns(struct wire_reader *rd, struct column *cols, int n)
{
	if (wire_get_i16(rd) != n)
		return false;
	for (int i = 0; i < n; i++) {
		cols[i].len = wire_get_i32(rd);
		cols[i].data = cols[i].len >= 0 ? wire_get_bytes(rd, (size_t)cols[i].len) : NULL;
	}
	return wire_done(rd);
}

static void get_text(const struct column *c, char *dst, size_t size)
{
	size_t n = c->len > 0 ? (size_t)c->len : 0;

	if (n >= size)
		n = size - 1;
	if (n > 0)
		memcpy(dst, c->data, n);
	dst[n] = '\0';
}

static bool get_id(const struct waiter *w, const struct column *c, int64_t *ret)
{
	uint64_t v = 0;

	if (w->n_formats == 0 || w->formats[0] == 0)
		return util_parse_i64((const char *)c->data, (size_t)c->len, ret);
	if (c->len != 8)
		return false;
	for (int i = 0; i < 8; i++)
		v = v << 8 | c->data[i];
	*ret = (int64_t)v;
	return true;
}

static enum lease_policy get_policy(const struct column *c)
{
	if (c->len == 7 && memcmp(c->data, "release", 7) == 0)
		return LEASE_RELEASE;
	if (c->len == 4 && memcmp(c->data, "keep", 4) == 0)
		return LEASE_KEEP;
	return LEASE_AUTO;
}

static struct taken *taken_add(struct waiter *w)
{
	if (w->n_taken == w->cap_taken) {
		int cap = w->cap_taken == 0 ? 1 : w->cap_taken * 4;
		struct taken *t = mem_realloc(w->taken, (size_t)cap * sizeof(*t));

		if (t == NULL)
			return NULL;
		w->taken = t;
		w->cap_taken = cap;
	}
	return &w->taken[w->n_taken++];
}

/* The row without our columns. */
static void keep_row(struct waiter *w, const struct column *cols)
{
	struct buf *b = &w->answer.rows;
	size_t row = build_row_begin(b, w->n_columns);

	for (int i = 0; i < w->n_columns; i++)
		build_row_value(b, cols[i].data, cols[i].len);
	build_row_end(b, row);
	w->answer.n_rows++;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct waiter *w = arg;
	struct column cols[16];
	struct wire_reader rd;
	struct taken *t;

	wire_reader_init(&rd, body, len);
	if (!get_columns(&rd, cols, w->n_columns + HIDDEN_COLUMNS)) {
		log_error("%s: unexpected columns from queue._take()", w->db->name);
		return;
	}
	if (cols[COL_ID].len < 0) {
		const struct column *due = &cols[w->n_columns + 1];

		if (due->len <= 0 || !util_parse_i64((const char *)due->data, (size_t)due->len, &w->due_ms))
			w->due_ms = DUE_NEVER;
		return;
	}
	t = taken_add(w);
	if (t == NULL) {
		w->answer.rows.failed = true; /* the whole answer fails, and its leases run out */
		return;
	}
	if (!get_id(w, &cols[COL_ID], &t->id))
		t->id = 0;
	get_text(&cols[COL_TOKEN], t->token, sizeof(t->token));
	get_text(&cols[COL_QUEUE], t->queue, sizeof(t->queue));
	t->policy = get_policy(&cols[w->n_columns]);
	keep_row(w, cols);
}

/* --- the end of a probe ------------------------------------------------------------------------------------------ */

static void give_back_taken(struct waiter *w)
{
	const char **tokens;

	if (w->n_taken == 0 || w->args.pop)
		return;
	tokens = mem_alloc((size_t)w->n_taken * sizeof(*tokens));
	if (tokens == NULL)
		return; /* the leases run out by themselves */
	for (int i = 0; i < w->n_taken; i++)
		tokens[i] = w->taken[i].token;
	give_back(w->db, w->pool, tokens, w->n_taken, NULL);
	mem_free(tokens);
}

/* What the rooms learn from jobs that were found: there may be more, and leases will end. */
static void found_in_rooms(struct waiter *w)
{
	for (int i = 0; i < w->n_taken; i++) {
		struct room *r;

		if (i > 0 && strcmp(w->taken[i].queue, w->taken[i - 1].queue) == 0)
			continue;
		r = room_find(w->db, w->taken[i].queue);
		if (r == NULL)
			continue;
		r->served++;
		if (r->unknown && r->credits == 0)
			r->credits = 1;
		room_ready(r);
		if (r->due_at > loop_now() + LOOK_AGAIN)
			r->due_at = loop_now() + LOOK_AGAIN;
		room_schedule(r);
	}
}

static void add_leases(struct waiter *w)
{
	if (w->args.pop)
		return;
	w->qc->answers++;
	for (int i = 0; i < w->n_taken; i++) {
		struct taken *t = &w->taken[i];

		if (!lease_add(w->qc, t->id, t->token, t->queue, t->policy, true))
			w->answer.rows.failed = true;
	}
	client_watch_tx(w->qc->client);
}

static void deliver(struct waiter *w)
{
	struct client *c = w->qc->client;
	struct answer a;

	found_in_rooms(w);
	if (!client_is_alive(c) || buf_failed(&w->answer.rows)) {
		struct pg_error err;

		give_back_taken(w);
		pg_error_set(&err, "53200", "out of memory");
		end_error(w, &err);
		return;
	}
	add_leases(w);
	w->db->served += (uint64_t)w->n_taken;
	snprintf(w->answer.tag, sizeof(w->answer.tag), "SELECT %d", w->answer.n_rows);
	a = w->answer;
	w->answer = (struct answer){0};
	c = waiter_end(w);
	if (c != NULL)
		client_answer(c, &a);
	else
		answer_free(&a);
}

static void room_was_empty(struct room *r, uint64_t asked_gen, int64_t due_ms)
{
	usec_t now = loop_now();

	if (due_ms != DUE_UNKNOWN)
		r->due_at = due_ms >= 0 ? now + (usec_t)due_ms * USEC_MSEC : USEC_NEVER;
	else if (r->due_at > now + LOOK_AGAIN)
		r->due_at = now + LOOK_AGAIN;
	if (r->gen == asked_gen) {
		r->credits = 0;
		r->unknown = false;
		room_unready(r);
	}
	room_schedule(r);
}

static bool enter_or_fail(struct waiter *w)
{
	struct pg_error err;

	if (enter_rooms(w))
		return true;
	pg_error_set(&err, "53200", "out of memory");
	end_error(w, &err);
	return false;
}

static void found_nothing(struct waiter *w)
{
	bool fresh = w->members == NULL;

	if (w->args.wait == 0 || w->expired || pooler_is_shutting_down() >= SHUTDOWN_WAIT_SERVERS) {
		end_expired(w);
		return;
	}
	if (fresh && !enter_or_fail(w))
		return;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];

		if (fresh)
			m->gen = m->room->gen;
		room_was_empty(m->room, m->gen, w->due_ms);
		/* something was announced before it was in the room: it may have asked too early */
		if (fresh && w->wakes != w->db->wakes)
			wake(m->room, 0);
	}
}

/* Those who may wait go on waiting while the database is away. */
static bool may_try_again(const struct waiter *w, const struct pg_error *err)
{
	return w->args.wait > 0 && !w->expired &&
		(strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57P", 3) == 0 ||
			strcmp(err->sqlstate, "53300") == 0);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct waiter *w = arg;

	w->item = NULL;
	if (w->qc == NULL) {
		if (err == NULL)
			give_back_taken(w);
		found_in_rooms(w);
		waiter_free(w);
		return;
	}
	if (err != NULL && may_try_again(w, err)) {
		w->due_ms = (int64_t)(conf_current()->p.queue_safety_poll / USEC_MSEC);
		found_nothing(w);
	} else if (err != NULL) {
		if (strcmp(err->sqlstate, "3F000") == 0)
			schema_suspect(w->db);
		end_error(w, err);
	} else if (w->n_taken > 0) {
		deliver(w);
	} else {
		found_nothing(w);
	}
}

/* --- asking ---------------------------------------------------------------------------------------------------------- */

static void put_queues(struct buf *b, const struct take_args *a)
{
	build_i32(b, 1);
	build_i32(b, 0);
	build_i32(b, OID_TEXT);
	build_i32(b, a->n_queues);
	build_i32(b, 1);
	for (int i = 0; i < a->n_queues; i++)
		build_row_value(b, a->queues[i], (int32_t)strlen(a->queues[i]));
}

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

/* The row that says what will become due has no id. */
static bool is_due_row(const uint8_t *body, size_t len)
{
	return len >= 6 && memcmp(body + 2, "\xff\xff\xff\xff", 4) == 0;
}

static void put_key_text(struct buf *key, const char *s)
{
	buf_putc(key, s != NULL ? 't' : 'n');
	if (s != NULL)
		buf_put(key, s, strlen(s) + 1);
}

/* Takes that are alike in everything but how many jobs they want become one. */
static void put_key(struct buf *key, const struct waiter *w, const struct task_settings *settings, const int16_t *formats,
	int n_formats)
{
	buf_put(key, &w->pool, sizeof(w->pool));
	buf_putc(key, w->args.pop ? 'p' : 't');
	task_settings_key(settings, key);
	buf_put(key, formats, (size_t)n_formats * sizeof(*formats));
	put_key_text(key, w->args.lease);
	put_key_text(key, w->args.as);
	for (int i = 0; i < w->args.n_queues; i++)
		put_key_text(key, w->args.queues[i]);
}

static struct merge_item *ask(struct waiter *w, const struct bind_param *params, const int16_t *formats)
{
	static const struct merge_ops ops = {.row = on_row, .common = on_row, .done = on_done};
	static const uint32_t oids[] = {1009, OID_INT4, OID_INTERVAL, OID_TEXT, OID_BOOL};
	struct merge_spec spec = {
		.sql = "SELECT id, token, queue, attempt, payload, headers, key, \"group\", priority, pushed_at, "
		       "lease_until, policy, due_ms FROM "
		       "pg_catalog.set_config('qbouncer.autonomous', 'on', true) AS own, "
		       "LATERAL queue._take($1, $2, $3, $4, $5 AND own IS NOT NULL)",
		.oids = oids,
		.n_params = 5,
		.array_param = -1,
		.count_param = 1,
		.params = params,
		.n_formats = w->n_columns + HIDDEN_COLUMNS,
		.formats = formats,
		.settings = task_settings_of(w->qc->client),
		.is_common = is_due_row};
	struct buf key = BUF_INIT, none = BUF_INIT;
	struct merge_item *i = NULL;

	if (spec.settings != NULL) {
		put_key(&key, w, spec.settings, formats, spec.n_formats);
		i = merge_add(w->pool, &key, &spec, &none, 0, w->args.limit, &ops, w);
	}
	task_settings_free(&spec.settings);
	buf_free(&key);
	return i;
}

/* Never calls back before it returns. false: memory. */
static bool probe(struct waiter *w)
{
	int16_t formats[16] = {0};
	struct buf queues = BUF_INIT;
	struct bind_param params[5];

	put_queues(&queues, &w->args);
	params[0] = (struct bind_param){.data = queues.data, .len = (int32_t)queues.len, .format = 1};
	params[1] = text_param(NULL); /* how many: the sum of the batch */
	params[2] = text_param(w->args.lease);
	params[3] = text_param(w->args.as);
	params[4] = text_param(w->args.pop ? "t" : "f");
	for (int i = 0; i < w->n_columns && w->n_formats > 0; i++)
		formats[i] = w->formats[w->n_formats == 1 ? 0 : i];
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		w->members[i].gen = w->members[i].room->gen;
		w->members[i].room->probes++;
	}
	w->n_taken = 0;
	w->due_ms = DUE_UNKNOWN;
	w->wakes = w->db->wakes;
	w->db->probes++;
	if (!buf_failed(&queues))
		w->item = ask(w, params, formats);
	buf_free(&queues);
	return w->item != NULL;
}

/* Does somebody of the same role wait already in each of its rooms? Then nothing is there. */
static bool nothing_there(const struct waiter *w)
{
	for (int i = 0; i < w->args.n_queues; i++) {
		struct room *r = room_find(w->db, w->args.queues[i]);

		if (r == NULL || r->credits > 0 || r->members == NULL || r->members->prev->waiter->pool != w->pool ||
			r->members->prev->waiter->item != NULL)
			return false;
	}
	return true;
}

/* As Postgres would, statement_timeout ends the wait with an error. */
static void limit_wait(struct waiter *w)
{
	usec_t limit = client_statement_timeout(w->qc->client);

	if (limit == 0 || limit >= w->args.wait)
		return;
	w->args.wait = limit;
	w->by_statement_timeout = true;
}

bool waiter_start(struct qclient *qc, struct take_args *args, const struct bind_values *bind, int n_columns)
{
	struct waiter *w = mem_zalloc(sizeof(*w));

	if (w == NULL)
		return false;
	if (bind->n_formats > 0) {
		w->formats = mem_dup(bind->formats, (size_t)bind->n_formats * sizeof(*w->formats));
		if (w->formats == NULL) {
			mem_free(w);
			return false;
		}
		w->n_formats = bind->n_formats;
	}
	w->qc = qc;
	w->db = qc->db;
	w->pool = client_pool(qc->client);
	w->args = *args;
	*args = (struct take_args){0};
	w->n_columns = n_columns;
	w->started = loop_now();
	limit_wait(w);
	qc->waiter = w;
	w->due_ms = -1;
	if (w->args.wait > 0 && nothing_there(w) && enter_rooms(w))
		return true;
	leave_rooms(w);
	if (probe(w))
		return true;
	qc->waiter = NULL;
	waiter_free(w);
	return false;
}

/* --- ends ------------------------------------------------------------------------------------------------------------- */

void waiter_cancel(struct qclient *qc)
{
	struct pg_error err;

	pg_error_set(&err, "57014", "canceling statement due to user request");
	end_error(qc->waiter, &err);
}

void waiter_client_ended(struct qclient *qc)
{
	if (qc->waiter != NULL)
		waiter_end(qc->waiter);
}

void waiters_shutdown(void)
{
	struct waiter *w, *tmp;

	DL_FOREACH_SAFE(parked, w, tmp)
		end_empty(w);
}

/* --- time ------------------------------------------------------------------------------------------------------------------ */

static void end_expired(struct waiter *w)
{
	struct pg_error err;

	if (!w->by_statement_timeout) {
		end_empty(w);
		return;
	}
	pg_error_set(&err, "57014", "canceling statement due to statement timeout");
	end_error(w, &err);
}

static void expire(usec_t now)
{
	struct heap_node *n;

	while ((n = heap_first(&deadlines)) != NULL && n->when <= now) {
		struct waiter *w = CONTAINER_OF(n, struct waiter, deadline);

		heap_remove(&deadlines, n);
		w->expired = true;
		if (w->item == NULL || !merge_is_sent(w->item))
			end_expired(w);
	}
}

static void look(usec_t now)
{
	struct heap_node *n;

	while ((n = heap_first(&timers)) != NULL && n->when <= now) {
		struct room *r = CONTAINER_OF(n, struct room, timer);

		r->due_at = USEC_NEVER;
		wake(r, 0);
		room_schedule(r);
	}
}

static usec_t beat(usec_t now)
{
	usec_t period = conf_current()->p.queue_heartbeat;
	struct waiter *w;

	if (period == 0)
		return USEC_NEVER;
	while ((w = parked) != NULL && w->beat_at <= now) {
		DL_DELETE(parked, w);
		w->beat_at = now + period;
		DL_APPEND(parked, w);
		client_heartbeat(w->qc->client);
	}
	return parked != NULL ? parked->beat_at : USEC_NEVER;
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next, at;

	(void)arg;
	expire(now);
	look(now);
	next = beat(now);
	at = heap_deadline(&deadlines);
	next = at < next ? at : next;
	at = heap_deadline(&timers);
	return at < next ? at : next;
}

bool wait_start(void)
{
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	loop_phase(LOOP_PHASE_QUEUES, serve_ready, NULL);
	return tick != NULL;
}

void wait_free(void)
{
	loop_tick_free(&tick);
	heap_free(&deadlines);
	heap_free(&timers);
}

/* --- snapshots ------------------------------------------------------------------------------------------------------------------ */

static unsigned count_asking(const struct room *r)
{
	const struct member *m;
	unsigned n = 0;

	DL_FOREACH(r->members, m)
		n += m->waiter->item != NULL;
	return n;
}

void queue_stat_each_queue(void (*fn)(const struct queue_stat_queue *st, void *arg), void *arg)
{
	struct qdb *db, *tmp;
	struct room *r, *rtmp;

	HASH_ITER(hh, qdb_first(), db, tmp)
		HASH_ITER(hh, db->rooms, r, rtmp) {
			struct queue_stat_queue st = {.database = db->name,
				.queue = r->name,
				.system = system_state(db),
				.waiters = r->n_members,
				.probing = count_asking(r),
				.next_due_us = r->due_at == USEC_NEVER ? -1 : (int64_t)(r->due_at - loop_now()),
				.wakes = r->wakes,
				.probes = r->probes,
				.served = r->served};

			fn(&st, arg);
		}
}

static void join_names(struct buf *b, const struct take_args *a)
{
	for (int i = 0; i < a->n_queues; i++)
		buf_printf(b, "%s%s", i > 0 ? ", " : "", a->queues[i]);
}

void queue_stat_each_waiter(void (*fn)(const struct queue_stat_waiter *st, void *arg), void *arg)
{
	usec_t now = loop_now();
	struct waiter *w;

	DL_FOREACH(parked, w) {
		struct buf names = BUF_INIT;
		struct queue_stat_waiter st = {.client_id = client_id(w->qc->client),
			.database = w->db->name,
			.user = client_user(w->qc->client),
			.state = w->item != NULL ? "asking" : "parked",
			.limit = w->args.limit,
			.waited_us = now - w->started};

		join_names(&names, &w->args);
		st.queues = buf_cstr(&names);
		if (w->deadline.when > now)
			st.left_us = w->deadline.when - now;
		fn(&st, arg);
		buf_free(&names);
	}
}
