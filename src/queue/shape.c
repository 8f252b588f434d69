/*
 * Statements as they are sent: the functions of one queue called directly, when its number is
 * known, and where a take begins to read. Knows nothing of requests and waiters.
 *
 * A function that is gone (the queue was dropped, and perhaps made anew) is an undefined function;
 * the same batch then goes the long way, by the queue's name, which gives the right answer. One job's statement may be a plain one
 * (lone.h).
 */
#include <stdio.h>
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "queue_call.h"
#include "handoff.h"
#include "head_int.h"
#include "lone.h"
#include "token.h"

struct shape {
	struct head *head; /* or NULL: the number alone */
	struct head *lone; /* whose plain statements it may be; or NULL */
	struct pool *pool;
	int64_t number;
	enum qpayload payload; /* of a take */
	enum shape_push push;
};

static struct shape *shape_new(struct qdb *db, struct pool *pool, const char *queue)
{
	struct shape *s = block_zget(sizeof(*s));

	if (s == NULL)
		return NULL;
	s->pool = pool;
	s->head = head_ref(db, queue);
	if (s->head == NULL) {
		block_put(s, sizeof(*s));
		return NULL;
	}
	return s;
}

static void shape_free(void *arg)
{
	struct shape *s = arg;

	if (s == NULL)
		return;
	if (s->head != NULL)
		head_unref(s->head);
	if (s->lone != NULL)
		head_unref(s->lone);
	block_put(s, sizeof(*s));
}

/* The number was right once: forget it, and ask again when it is used. */
static void shape_refused(void *arg)
{
	struct shape *s = arg;

	if (s->head != NULL)
		head_renew(s->head, 0);
	s->number = 0;
}

static void lone_is_refused(void *arg)
{
	struct shape *s = arg;
	struct head *l = s->lone != NULL ? s->lone : s->head;

	if (l != NULL)
		lone_refused(l);
}

/* Of so many queues each verb is at home on a connection of its own: sessions that all do the same are in each other's
 * way. Of more, a queue is, with all its verbs, of which each knows much that the others need. */
#define FEW 8

/* Its text, if it may be a plain statement and there is one; the values are the caller's to put. Any refusal may be
 * the fault of the text, and the function gives the right one. */
static bool lone_put(
	struct merge_statement *st, struct head *l, struct pool *pool, enum lone_verb verb)
{
	st->known = st->may_be_lone && l != NULL ? lone_text(l, pool, verb, &st->n_params) : NULL;
	if (st->known == NULL)
		return false;
	if (l->db != NULL && HASH_COUNT(l->db->heads) > FEW)
		st->kind = head_kind('L', l->name);
	st->together = lone_together(l, verb);
	st->direct = st->risky = st->lone = true;
	return true;
}

static int64_t number_of(struct shape *s)
{
	if (s->head == NULL)
		return s->number;
	head_used(s->head, s->pool);
	return s->head->number;
}

static struct bind_param binary(const struct buf *b)
{
	return (struct bind_param){.data = b->data, .len = (int32_t)b->len, .format = 1};
}

static struct bind_param number_param(char dst[MERGE_NUMBER_MAX], int64_t n)
{
	return (struct bind_param){.data = (const uint8_t *)dst, .len = util_print_i64(dst, n)};
}

static struct bind_param int8_param(char dst[MERGE_NUMBER_MAX], int64_t n)
{
	uint8_t *p = (uint8_t *)dst;

	build_store_i32(p, n >> 32);
	build_store_i32(p + 4, n);
	return (struct bind_param){.data = p, .len = 8, .format = 1};
}

static struct bind_param int4_param(char dst[MERGE_NUMBER_MAX], int32_t n)
{
	build_store_i32((uint8_t *)dst, n);
	return (struct bind_param){.data = (const uint8_t *)dst, .len = 4, .format = 1};
}

#define YEAR_2000 (946684800 * INT64_C(1000000))

/* A timestamptz, of microseconds since 1970. */
static struct bind_param time_param(char dst[MERGE_NUMBER_MAX], int64_t usec)
{
	return int8_param(dst, usec - YEAR_2000);
}

/* Low marks of priorities above this one. Three more parameters. */
static void put_low_marks(struct merge_statement *st, const struct head *l, int64_t above)
{
	int n = st->n_params, used = 0;
	size_t priorities, places;

	while (used < l->n_low_marks && l->low_marks[used].priority > above)
		used++;
	priorities = array_begin(&st->bytes[0], OID_INT8, false);
	places = array_begin(&st->bytes[1], OID_INT8, false);
	for (int i = 0; i < used; i++) {
		array_put_i64(&st->bytes[0], l->low_marks[i].priority);
		array_put_i64(&st->bytes[1], l->low_marks[i].place);
	}
	array_end(&st->bytes[0], priorities, used);
	array_end(&st->bytes[1], places, used);
	st->params[n] = binary(&st->bytes[0]);
	st->params[n + 1] = binary(&st->bytes[1]);
	st->params[n + 2] = number_param(st->small[0], l->since);
	st->n_params = n + 3;
}

/* --- rows --- */

/* What a row tells of the head. */
struct event {
	bool has_place;
	int32_t priority;
	int64_t place, edge;    /* edge 0: none */
	struct wire_col behind; /* the first column behind them */
};

/* Three columns in binary, place, edge and priority; so many others are behind them. */
static struct event event_read(const uint8_t *body, size_t len, int behind)
{
	struct event ret = {0};
	struct wire_col last[3] = {{.len = -1}, {.len = -1}, {.len = -1}};
	struct wire_row row;
	int n = wire_row_begin(&row, body, len);
	int64_t priority;

	wire_row_skip(&row, n - behind - 3);
	for (int i = 0; i < 3 && i < n - behind; i++) {
		last[0] = last[1];
		last[1] = last[2];
		last[2] = wire_row_next(&row);
	}
	ret.behind = behind > 0 ? wire_row_next(&row) : (struct wire_col){.len = -1};
	if (row.failed)
		return ret;
	if (!wire_col_int(&last[1], 8, &ret.edge))
		ret.edge = 0;
	ret.has_place =
		wire_col_int(&last[2], 4, &priority) && wire_col_int(&last[0], 8, &ret.place);
	if (ret.has_place)
		ret.priority = (int32_t)priority;
	return ret;
}

/* --- push --- */

struct shape *shape_push(struct qdb *db, struct pool *pool, const char *queue, enum shape_push push)
{
	struct shape *s = shape_new(db, pool, queue);

	CHECK_QDB(db);
	if (s != NULL)
		s->push = push;
	return s;
}

/* Which tells what this statement has leased; one more parameter. */
static void put_seed(struct merge_statement *st)
{
	st->params[st->n_params++] = number_param(st->small[2], merge_seed(st->batch));
}

static int64_t low_mark_of(const struct head *l, int64_t priority)
{
	for (int i = 0; i < l->n_low_marks; i++)
		if (l->low_marks[i].priority == priority)
			return l->low_marks[i].place;
	return 0;
}

/* Of a push without it: 0. false: Postgres is to say what is wrong with it. */
static bool priority_of(const struct bind_param *p, int64_t *ret)
{
	*ret = 0;
	return p->len < 0 || (util_parse_i64((const char *)p->data, (size_t)p->len, ret) &&
				     *ret >= INT32_MIN && *ret <= INT32_MAX);
}

/* Their statement that hands over, and how many values each job has. */
static const struct {
	enum call_id call;
	int values;
} handoffs[] = {
	[SHAPE_PLAIN] = {CALL_HAND, 1},
	[SHAPE_OPTIONS] = {CALL_HAND_OPTIONS, 1},
	[SHAPE_KEYED] = {CALL_HAND_KEYED, 3},
};

/* Its first jobs go to those who wait for them. That it may be so says that nothing is ready before
 * them. */
struct handing {
	struct handoff *handoff;
	struct flight *flight; /* or NULL */
};

static bool fill_handoff(struct shape *s, struct merge_statement *st, int64_t number)
{
	int64_t priority;
	struct handing *h;

	if (!priority_of(&st->params[2], &priority) || (h = block_zget(sizeof(*h))) == NULL)
		return false;
	h->handoff = handoff_begin(
		s->head->db, s->pool, s->head->name, st->n_values / handoffs[s->push].values, st);
	if (h->handoff == NULL) {
		block_put(h, sizeof(*h));
		return false;
	}
	h->flight = flight_of_push(s->head);
	for (int i = 0; i < 3; i++)
		st->params[st->n_params++] = binary(&st->bytes[2 + i]);
	st->params[st->n_params++] = number_param(st->small[1], low_mark_of(s->head, priority));
	put_low_marks(st, s->head, priority);
	put_seed(st);
	st->oids = queue_calls[handoffs[s->push].call].oids;
	INVARIANT(st->n_params == queue_calls[handoffs[s->push].call].n_params,
		"parameters of a handing push");
	call_put(&st->text, handoffs[s->push].call, number);
	st->kind++; /* another function */
	st->direct = st->risky = true;
	st->flight = h;
	return true;
}

/* Payload and priority. */
static void put_lone_push(struct merge_statement *st)
{
	struct wire_row row;
	struct wire_col payload;

	wire_row_values(&row, st->values->data, st->values->len, 1);
	payload = wire_row_next(&row);
	st->params[0] = (struct bind_param){.data = payload.data, .len = payload.len};
	st->params[1] = st->params[2];
}

static void fill_push(void *arg, struct merge_statement *st)
{
	struct shape *s = arg;
	int64_t number = number_of(s);

	if (number == 0 || fill_handoff(s, st, number))
		return;
	s->head->drained = false;
	if (s->push != SHAPE_PLAIN)
		return;
	if (st->n_values == 1 && lone_put(st, s->head, s->pool, LONE_PUSH)) {
		put_lone_push(st);
		return;
	}
	call_put(&st->text, CALL_PUSH_DIRECT, number);
	st->direct = true;
}

static bool push_row(void *arg, const uint8_t **body, size_t *len)
{
	const struct handing *h = arg;
	struct event ev = event_read(*body, *len, 1); /* before it becomes the row of who pushes */
	bool handed = handoff_row(h->handoff, body, len);

	if (handed && h->flight != NULL && ev.has_place)
		flight_saw(h->flight, ev.priority, ev.place);
	return handed;
}

static void push_ended(void *arg, const struct pg_error *err)
{
	struct handing h = *(struct handing *)arg;

	block_put(arg, sizeof(h));
	if (h.flight != NULL)
		flight_end(h.flight, err == NULL);
	handoff_end(h.handoff, err);
}

static void push_lost(void *arg, const struct merge_lost *lost)
{
	const struct handing *h = arg;

	if (h->flight != NULL)
		handoff_lost(h->handoff, h->flight->head->name, lost);
}

const struct merge_shape head_push = {.fill = fill_push,
	.row = push_row,
	.lost = push_lost,
	.end = push_ended,
	.refused = shape_refused,
	.refused_lone = lone_is_refused,
	.free = shape_free};

/* --- done --- */

struct shape *shape_done(struct qdb *db, struct pool *pool, int number)
{
	struct shape *s = block_zget(sizeof(*s));

	CHECK_QDB(db);
	if (s == NULL)
		return NULL;
	s->number = number;
	s->pool = pool;
	s->lone = head_find_number(db, number);
	if (s->lone != NULL)
		s->lone->refs++;
	return s;
}

struct part {
	struct token token;
	struct wire_col result;
};

static int part_order(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return (x->token.id > y->token.id) - (x->token.id < y->token.id);
}

static bool are_ascending(const struct part *parts, int n)
{
	for (int i = 1; i < n; i++)
		if (parts[i - 1].token.id >= parts[i].token.id)
			return false;
	return true;
}

/* Each job once; false: one is there twice, which the long way sorts out. */
static bool read_parts(const struct merge_statement *st, struct part *parts, int n, bool paired)
{
	struct wire_row row;

	wire_row_values(&row, st->values->data, st->values->len, st->n_values);
	for (int i = 0; i < n; i++) {
		struct wire_col token = wire_row_next(&row);

		if (token.len <= 0 ||
			!token_read((const char *)token.data, (size_t)token.len, &parts[i].token))
			return false;
		if (!paired)
			continue;
		parts[i].result = wire_row_next(&row);
		if (parts[i].result.len < 0)
			return false;
	}
	if (are_ascending(parts, n))
		return true;
	qsort(parts, (size_t)n, sizeof(*parts), part_order);
	return are_ascending(parts, n);
}

/* paired: each job is followed by its result. */
static void fill_jobs(struct shape *s, struct merge_statement *st, bool paired)
{
	enum call_id call = paired ? CALL_DONE_DIRECT_RESULTS : CALL_DONE_DIRECT;
	int n = paired ? st->n_values / 2 : st->n_values;
	struct part *parts = mem_alloc(((size_t)n + 1) * sizeof(*parts));
	size_t at[3];

	if (parts == NULL || s->number == 0 || !read_parts(st, parts, n, paired)) {
		mem_free(parts);
		return;
	}
	for (int i = 0; i < 3; i++)
		at[i] = array_begin(&st->bytes[i], i == 0 ? OID_INT8 : OID_TEXT, false);
	for (int i = 0; i < n; i++) {
		const struct part *p = &parts[i];

		array_put_i64(&st->bytes[0], p->token.id);
		build_row_value(&st->bytes[1], p->token.digits, (int32_t)p->token.n_digits);
		if (paired)
			build_row_value(&st->bytes[2], p->result.data, p->result.len);
	}
	mem_free(parts);
	for (int i = 0; i < 3; i++) {
		array_end(&st->bytes[i], at[i], i < 2 || paired ? n : 0);
		st->params[i] = binary(&st->bytes[i]);
	}
	st->oids = queue_calls[call].oids;
	st->n_params = queue_calls[call].n_params;
	call_put(&st->text, call, s->number);
	st->direct = true;
}

/* Id and token. */
static bool fill_lone_done(struct shape *s, struct merge_statement *st)
{
	struct part part;

	/* the head may be that of another queue of this name by now */
	if (st->n_values != 1 || s->lone == NULL || s->lone->number != s->number ||
		!read_parts(st, &part, 1, false) || !lone_put(st, s->lone, s->pool, LONE_DONE))
		return false;
	st->params[0] = int8_param(st->small[0], part.token.id);
	st->params[1] = (struct bind_param){
		.data = (const uint8_t *)part.token.digits, .len = (int32_t)part.token.n_digits};
	return true;
}

static void fill_done(void *arg, struct merge_statement *st)
{
	if (!fill_lone_done(arg, st))
		fill_jobs(arg, st, false);
}

static void fill_results(void *arg, struct merge_statement *st)
{
	fill_jobs(arg, st, true);
}

const struct merge_shape head_done = {.fill = fill_done,
	.refused = shape_refused,
	.refused_lone = lone_is_refused,
	.free = shape_free};
const struct merge_shape head_done_results = {
	.fill = fill_results, .refused = shape_refused, .free = shape_free};

/* --- take --- */

struct shape *shape_take(
	struct qdb *db, struct pool *pool, const char *queue, enum qpayload payload)
{
	struct shape *s = shape_new(db, pool, queue);

	CHECK_QDB(db);
	if (s != NULL)
		s->payload = payload;
	return s;
}

/* What is due was looked for so lately that nobody has to again: microseconds, as in _take_<number>. The clock may have
 * been set back a little. */
#define LATELY 20000
#define AHEAD  1000000
#define SOON   (15 * USEC_MSEC) /* by our clock: it takes a while until the statement runs */
#define ALIKE                                                                                      \
	2 /* so many before: a queue that is asked for now and then is not worth one more statement */

/* The queue's own lease, no connection that holds it, and nothing to look for. */
static bool take_is_usual(struct head *l, const struct bind_param old[6])
{
	if (l->since <= 0 || loop_now() - l->since_at >= SOON) {
		l->alike = 0;
		return false;
	}
	return l->alike++ >= ALIKE && old[2].len < 0 && (old[5].len <= 0 || old[5].data[0] != '-');
}

/* One job, of the one priority that is known. From where a take from the front begins that is the priority which was the
 * only one until now: nothing of a higher one may be ready, and lower ones come after it anyway. */
static void put_usual_take(struct shape *s, struct merge_statement *st, struct low_mark last,
	const struct bind_param old[6])
{
	const struct head *l = s->head;
	struct low_mark from = l->n_low_marks == 1 ? l->low_marks[0] : last;

	st->params[0] = old[3];
	st->params[1] = old[5];
	st->params[2] = int8_param(st->small[0], merge_seed(st->batch));
	st->params[3] = int4_param(st->small[1], from.priority);
	st->params[4] = int8_param(st->small[2], from.place);
	st->params[5] = time_param(st->small[3], l->since - AHEAD);
	st->params[6] = time_param(st->small[4], l->since + LATELY);
}

/* From the front, whatever low marks say. One more column tells what that took. */
static void put_front_take(struct shape *s, struct merge_statement *st, struct flight *f,
	const struct bind_param old[6])
{
	int64_t since = s->head->since;

	st->params[0] = old[3];
	st->params[1] = old[5];
	st->params[2] = old[2];
	st->params[3] = int8_param(st->small[0], merge_seed(st->batch));
	st->params[4] = time_param(st->small[1], since);
	st->params[5] = time_param(st->small[2], since - AHEAD);
	st->formats[st->n_formats++] = 1;
	f->front = true;
}

static bool fill_lone_take(
	struct shape *s, struct merge_statement *st, struct flight *f, struct low_mark last)
{
	struct bind_param old[6];
	bool usual;

	if (s->head->drained || st->params[1].len != 1 || st->params[1].data[0] != '1' ||
		st->params[4].data[0] != 'f')
		return false;
	memcpy(old, st->params, sizeof(old));
	usual = take_is_usual(s->head, old) && s->head->n_low_marks <= 1;
	if ((!usual && !flight_may_front(f)) ||
		!lone_put(st, s->head, s->pool, usual ? LONE_USUAL : LONE_TAKE))
		return false;
	if (usual)
		put_usual_take(s, st, last, old);
	else
		put_front_take(s, st, f, old);
	return true;
}

static void fill_take(void *arg, struct merge_statement *st)
{
	struct shape *s = arg;
	int64_t number = number_of(s);
	struct low_mark last = {
		s->head->n_low_marks > 0 ? s->head->low_marks[0].priority : 0, INT64_MIN};
	struct flight *f = flight_begin(s->head);

	st->flight = f;
	/* payloads that are not what the client expects: the long way refuses them */
	if (number == 0 || f == NULL || s->head->payload != s->payload)
		return;
	if (st->params[5].len == 0) /* no proxy: a setting is empty then, a number is not there */
		st->params[5].len = -1;
	if (fill_lone_take(s, st, f, last))
		return;
	st->n_params = 6; /* the seed has another place and type */
	put_low_marks(st, s->head, INT64_MIN);
	if (st->n_values == 0) /* nobody waits: nobody asks when something will be due */
		st->params[st->n_params - 1] = number_param(st->small[0], -(s->head->since + 1));
	put_seed(st);
	st->oids = queue_calls[CALL_TAKE_DIRECT].oids;
	INVARIANT(st->n_params == queue_calls[CALL_TAKE_DIRECT].n_params, "parameters of a take");
	call_put(&st->text, CALL_TAKE_DIRECT, number);
	st->direct = true;
}

static bool saw_row(void *arg, const uint8_t **body, size_t *len)
{
	struct flight *f = arg;
	struct event ev = event_read(*body, *len, f->front);
	int64_t now;

	if (ev.edge > 0)
		f->edge = ev.edge;
	if (f->front && ev.edge > 0 && wire_col_int(&ev.behind, 8, &now))
		flight_spent(f, now + YEAR_2000 - ev.edge);
	if (ev.has_place)
		flight_saw(f, ev.priority, ev.place);
	return false;
}

static void take_ended(void *flight, const struct pg_error *err)
{
	flight_end(flight, err == NULL);
}

static void take_sent(void *flight)
{
	flight_sent(flight);
}

const struct merge_shape head_take = {.fill = fill_take,
	.sent = take_sent,
	.row = saw_row,
	.end = take_ended,
	.refused = shape_refused,
	.refused_lone = lone_is_refused,
	.free = shape_free};
