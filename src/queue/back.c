/*
 * Giving jobs back: of connections that broke, of transactions that were rolled back, of clients
 * who left before their rows came; and those of which we never heard, since the answer to our
 * statement was lost. Each through the pool of the role whose lease it was. What fails as there is
 * no connection, or as something is locked, is tried again: what waits for the same together, and
 * each queue by itself, as the others need not be locked. Nor need all jobs of a queue: what is
 * refused again is cut in two. If both halves are refused they come together again, and are cut
 * when others of the queue have been given back since.
 *
 * What a statement of ours has leased is known by its tokens, which are made of a number that we
 * had sent with it (merge_seed). It may be carried out after we have lost sight of it: so it is
 * looked for until its process is gone.
 *
 * Entry points: give_back(), back_lost(), wake_queues().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "wire/sqllex.h"
#include "back.h"
#include "queue_call.h"
#include "head.h"
#include "jobs.h"
#include "mark.h"
#include "queue_int.h"
#include "siblings.h"
#include "system.h"
#include "token.h"
#include "wakes.h"

/* That wait to be tried again. Half of it is for what comes anew: nothing is cut then. */
#define BACK_MAX    10000

#define AGAIN_FIRST (500 * USEC_MSEC)
#define AGAIN_LAST  (30 * USEC_SEC)
#define TRIED_FOR   (3600 * USEC_SEC)
#define JOINED_FOR  (600 * USEC_SEC) /* others join one that waits, so each has 50 minutes */
#define JOINED_MOST 1000             /* jobs of one statement that were not given back by one */
#define ASKED_MOST  100              /* of its tokens, of which queue they are */

#define UNKNOWN     0 /* was never refused: of whatever queues */

/* Of a queue: what is refused for the second time is cut; a half joins nothing. */
enum cut { CUT_NEVER, CUT_HALF, CUT_IN_VAIN };

struct back {
	struct back *prev, *next;
	struct qdb *db;
	char user[128]; /* as long as a client may say */
	usec_t at;      /* of the next try; USEC_NEVER: it is under way */
	usec_t pause, since;
	int64_t number; /* of the queue that they are of; UNKNOWN */
	enum cut cut;
	bool may_be_cut;   /* nevertheless */
	int n;             /* jobs, as far as they are known */
	struct names jobs; /* tokens, or names of queues */
	bool is_lost;      /* names */
	bool is_mixed;     /* there is an empty token (back.h) */
	const char *error; /* static; NULL, not delivered, or empty, a goodbye: not counted */
	struct head_mark mark;
	/* lost: */
	char *lease;
	int64_t seed;
	int32_t pid;
	usec_t sent_at;
	int handed;
	bool process_gone; /* said the last look */
	/* what the statement under way tells */
	bool goes_on;
	struct names names; /* of the queues: woken when it is committed */
};

static struct {
	struct back *first;
	unsigned n;
	struct loop_tick *tick;
} backs;

static void back_free_one(struct back *b)
{
	names_free(&b->jobs);
	names_free(&b->names);
	mem_free(b->lease);
	mem_free(b);
}

static void back_free(struct back *b)
{
	DL_DELETE(backs.first, b);
	backs.n--;
	back_free_one(b);
}

static void back_add(struct back *b)
{
	DL_APPEND(backs.first, b);
	backs.n++;
}

static struct back *back_new(struct qdb *db, struct pool *pool)
{
	struct back *b = backs.n < BACK_MAX ? mem_zalloc(sizeof(*b)) : NULL;

	if (b == NULL)
		return NULL;
	b->db = db;
	b->since = loop_now();
	b->pause = AGAIN_FIRST;
	util_strlcpy(b->user, pool_user(pool), sizeof(b->user));
	back_add(b);
	return b;
}

/* --- queues --- */

void wake_queues(struct qdb *db, const struct names *names, struct head_mark mark)
{
	CHECK_QDB(db);
	/* without memory the periodic look finds them */
	NAMES_FOREACH (name, names) {
		waitq_wake_from(db, name, 0, mark); /* a name may stand for several jobs */
		siblings_tell(db, name);
		system_notify(db, name);
	}
}

/* From now on they may be ready, below the heads that are remembered; when that is known for sure
 * the wait queues are woken. */
static void expect_returned(struct qdb *db, const char *const *tokens, int n, struct head_mark mark)
{
	int64_t number, last = 0;

	for (int i = 0; i < n; i++) {
		number = token_number(tokens[i]);
		if (number != last)
			head_lower_number(db, number, mark);
		last = number;
	}
}

/* --- one try --- */

/* Body of DataRow with one text column: the queue's name; NULL: what has been looked for may come
 * yet. */
static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct back *b = arg;
	struct wire_col queue = wire_row_value(body, len);

	if (queue.len <= 0)
		b->goes_on = true;
	else if (queue.len <= QSTMT_QUEUE_MAX)
		names_add_bytes(&b->names, queue.data, (size_t)queue.len);
}

/* The same statement can succeed later, whatever queues it is about. */
static bool is_of_all(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57P", 3) == 0 ||
	       strncmp(err->sqlstate, "53", 2) == 0;
}

/* Of the connection, or of what others did meanwhile to one of the queues. Time may be over for what a job had to wait for.
 */
static bool may_pass(const struct back *b, const struct pg_error *err)
{
	return is_of_all(err) || strcmp(err->sqlstate, "55P03") == 0 ||
	       strcmp(err->sqlstate, "42P01") == 0 || merge_may_repeat(err, 0) ||
	       (!b->is_lost && strcmp(err->sqlstate, "57014") == 0);
}

static void try_later(struct back *b)
{
	b->at = loop_now() + b->pause;
	b->pause = 2 * b->pause < AGAIN_LAST ? 2 * b->pause : AGAIN_LAST;
	loop_tick_at(backs.tick, b->at);
}

/* --- those that wait for the same --- */

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool may_join(const struct back *b, const struct back *to)
{
	return to != b && to->at != USEC_NEVER && !to->is_lost && to->number == b->number &&
	       to->cut != CUT_HALF && b->cut != CUT_HALF && to->db == b->db &&
	       same_text(to->error, b->error) && same_text(to->user, b->user) && !to->is_mixed &&
	       !b->is_mixed && to->n + b->n <= JOINED_MOST && loop_now() - to->since < JOINED_FOR &&
	       loop_now() - b->since < JOINED_FOR;
}

/* false: memory; both are as they were. */
static bool join(struct back *b, struct back *to)
{
	usec_t soon = loop_now() + b->pause;
	struct names all = {0};

	buf_put(&all.buf, to->jobs.buf.data, to->jobs.buf.len);
	buf_put(&all.buf, b->jobs.buf.data, b->jobs.buf.len);
	if (names_failed(&all))
		return false;
	names_free(&to->jobs);
	to->jobs = all;
	to->n += b->n;
	to->since = b->since < to->since ? b->since : to->since;
	to->pause = b->pause < to->pause ? b->pause : to->pause;
	to->cut = b->cut == CUT_IN_VAIN ? CUT_IN_VAIN : to->cut;
	to->at = soon < to->at ? soon : to->at;
	head_mark_min(&to->mark, b->mark);
	loop_tick_at(backs.tick, to->at);
	return true;
}

/* With one that waits already, or by itself. */
static void settle(struct back *b)
{
	struct back *to;

	DL_FOREACH (backs.first, to)
		if (b->number != UNKNOWN && may_join(b, to) && join(b, to)) {
			back_free(b);
			return;
		}
	try_later(b);
}

/* A job that is to be tried again, and with which others. */
struct piece {
	const char *token;
	int64_t number;
	bool got; /* by somebody */
};

static int piece_order(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->number != y->number ? (x->number > y->number ? 1 : -1) : x->got - y->got;
}

/* NULL: memory. */
static struct piece *pieces_of(const struct back *b)
{
	struct piece *all = mem_alloc((size_t)b->n * sizeof(*all));
	int n = 0;

	if (all == NULL)
		return NULL;
	NAMES_FOREACH (at, &b->jobs) {
		if (*at != '\0')
			all[n++] = (struct piece){at, token_number(at), true};
		else
			for (int i = 0; i < n; i++)
				all[i].got = false;
	}
	INVARIANT(n == b->n, "jobs are given back that nobody has counted");
	qsort(all, (size_t)n, sizeof(*all), piece_order);
	return all;
}

static struct back *part_new(const struct back *b, int64_t number)
{
	struct back *part = mem_zalloc(sizeof(*part));

	if (part == NULL)
		return NULL;
	part->db = b->db;
	memcpy(part->user, b->user, sizeof(part->user));
	part->since = b->since;
	part->pause = b->pause;
	part->number = number > 0 ? number : UNKNOWN;
	if (b->number != UNKNOWN) {
		part->cut = CUT_HALF;
		part->pause = AGAIN_FIRST;
	}
	part->mark = b->mark;
	return part;
}

static void part_add(struct back *part, const struct piece *p, const char *error)
{
	if (p->got && part->n > 0 && part->error == NULL && error != NULL) {
		names_add(&part->jobs, "");
		part->is_mixed = true;
	}
	if (p->got)
		part->error = error;
	names_add(&part->jobs, p->token);
	part->n++;
}

/* Of one queue: two halves of it; else each of its queues. Each an entry that is in no list but this. How many they are;
 * 0: memory. */
static unsigned parts_of(const struct back *b, struct back **ret)
{
	struct piece *all = pieces_of(b);
	struct back *last = NULL;
	unsigned n = 0;
	bool failed = all == NULL;

	for (int i = 0; !failed && i < b->n; i++) {
		bool half = b->number != UNKNOWN && i == b->n / 2;

		if (last == NULL || half || last->number != all[i].number) {
			last = part_new(b, all[i].number);
			if (last == NULL) {
				failed = true;
				break;
			}
			DL_APPEND(*ret, last);
			n++;
		}
		part_add(last, &all[i], b->error);
		failed = names_failed(&last->jobs);
	}
	mem_free(all);
	return failed ? 0 : n;
}

static void parts_free(struct back *parts)
{
	struct back *part, *tmp;

	DL_FOREACH_SAFE (parts, part, tmp) {
		DL_DELETE(parts, part);
		back_free_one(part);
	}
}

static bool is_to_cut(const struct back *b, bool refused)
{
	if (b->is_lost)
		return false;
	if (b->number == UNKNOWN)
		return true;
	return refused && b->n > 1 && !b->is_mixed && (b->may_be_cut || b->cut == CUT_NEVER);
}

/* Without memory, or room, all of it waits as it is. */
static void keep(struct back *b, bool refused)
{
	struct back *parts = NULL, *part, *tmp;
	unsigned n;

	INVARIANT(b->at != USEC_NEVER, "what is under way is not cut, nor does it join others");
	if (!is_to_cut(b, refused)) {
		if (refused && b->cut == CUT_HALF)
			b->cut = CUT_IN_VAIN;
		settle(b);
		return;
	}
	n = parts_of(b, &parts);
	if (n == 0 || (n > 1 && backs.n - 1 + n > BACK_MAX / 2)) {
		parts_free(parts);
		try_later(b);
		return;
	}
	DL_FOREACH_SAFE (parts, part, tmp) {
		DL_DELETE(parts, part);
		back_add(part);
		settle(part);
	}
	back_free(b);
}

static bool has_of(const struct back *b, int64_t number)
{
	int left = ASKED_MOST;

	if (b->number != UNKNOWN)
		return b->number == number;
	NAMES_FOREACH (at, &b->jobs)
		if (token_number(at) == number)
			return true;
		else if (--left == 0)
			break;
	return false;
}

/* Queues of what was given back are not locked: if others of them are refused again, it is for some of their jobs. */
static void others_may_be_cut(const struct back *b)
{
	struct back *other;

	if (b->is_lost)
		return;
	DL_FOREACH (backs.first, other)
		if (other->db == b->db && other->number != UNKNOWN && !other->may_be_cut &&
			has_of(b, other->number))
			other->may_be_cut = true;
}

static bool is_of_several(const struct back *b)
{
	int64_t number = UNKNOWN;

	NAMES_FOREACH (at, &b->jobs) {
		if (*at != '\0' && number != UNKNOWN && token_number(at) != number)
			return true;
		if (*at != '\0')
			number = token_number(at);
	}
	return false;
}

static void give_up(struct back *b, const char *why)
{
	if (b->is_lost)
		log_warning(
			"%s: what a statement of the queue engine had leased when its connection was lost "
			"cannot be given back, the leases will run out: %s",
			b->db->name, why);
	else
		log_warning("%s: %d jobs could not be given back, their leases will run out: %s",
			b->db->name, b->n, why);
	back_free(b);
}

/* A look that began when the process was gone has seen all that it did. */
static void looked(struct back *b)
{
	bool was_gone = b->process_gone;

	b->process_gone = !b->goes_on;
	if (b->process_gone && was_gone)
		back_free(b);
	else if (loop_now() - b->since > TRIED_FOR)
		give_up(b, "its process is still there");
	else
		try_later(b);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct back *b = arg;

	b->at = 0;
	if (err != NULL && loop_now() - b->since <= TRIED_FOR &&
		(may_pass(b, err) || (!b->is_lost && b->number == UNKNOWN && is_of_several(b)))) {
		keep(b, !is_of_all(err));
		return;
	}
	if (err != NULL) {
		give_up(b, err->message);
		return;
	}
	if (b->is_lost && !names_none(&b->names))
		log_info("%s: jobs of a statement whose answer was lost were given back",
			b->db->name);
	wake_queues(b->db, &b->names, b->mark);
	others_may_be_cut(b);
	if (b->is_lost)
		looked(b);
	else
		back_free(b);
}

static bool send_tokens(
	struct back *b, const struct buf *tokens, struct pool *pool, const struct task_ops *ops)
{
	struct bind_param params[3] = {
		{.data = tokens->data, .len = (int32_t)tokens->len, .format = 1}, {.len = -1},
		{.data = (const uint8_t *)"f", .len = 1}};
	struct task_spec spec = call_task(CALL_GIVE_BACK, params, ops, b);

	spec.stays = true;
	if (b->error != NULL) {
		params[1] = (struct bind_param){
			.data = (const uint8_t *)b->error, .len = (int32_t)strlen(b->error)};
		if (b->error[0] != '\0')
			params[2].data = (const uint8_t *)"t";
	}
	return task_submit(pool, &spec) != NULL;
}

static struct bind_param number_param(char dst[24], int64_t n)
{
	return (struct bind_param){.data = (const uint8_t *)dst,
		.len = (int32_t)snprintf(dst, 24, "%lld", (long long)n)};
}

static bool send_lost(
	struct back *b, const struct buf *queues, struct pool *pool, const struct task_ops *ops)
{
	char seed[24], handed[24], pid[24], age[40];
	struct bind_param params[6] = {
		{.data = queues->data, .len = (int32_t)queues->len, .format = 1},
		{.data = (const uint8_t *)b->lease,
			.len = b->lease != NULL ? (int32_t)strlen(b->lease) : -1},
		number_param(seed, b->seed), number_param(handed, b->handed),
		{.data = (const uint8_t *)age,
			.len = (int32_t)sql_interval_text(
				age, sizeof(age), (int64_t)(loop_now() - b->sent_at))},
		number_param(pid, b->pid)};
	struct task_spec spec = call_task(CALL_GIVE_BACK_LOST, params, ops, b);

	spec.stays = true;
	spec.time = TASK_SLOW;
	return task_submit(pool, &spec) != NULL;
}

/* text[] in binary. */
static void put_array(struct buf *dst, const struct names *names)
{
	size_t start = array_begin(dst, OID_TEXT, false);
	int n = 0;

	NAMES_FOREACH (at, names) {
		array_put_text(dst, at);
		n++;
	}
	array_end(dst, start, n);
}

/* Frees what cannot be sent. */
static void submit(struct back *b, struct pool *pool)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct buf array = BUF_INIT;
	bool sent;

	b->goes_on = false;
	names_reset(&b->names);
	b->at = USEC_NEVER;
	put_array(&array, &b->jobs);
	sent = !names_failed(&b->jobs) && !buf_failed(&array) &&
	       (b->is_lost ? send_lost(b, &array, pool, &ops) : send_tokens(b, &array, pool, &ops));
	buf_free(&array);
	if (!sent)
		give_up(b, "out of memory");
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER;
	struct back *b, *tmp;

	(void)arg;
	DL_FOREACH_SAFE (backs.first, b, tmp) {
		struct pool *pool;

		if (b->at > now) {
			next = b->at < next ? b->at : next;
			continue;
		}
		pool = pooler_find_pool(b->db->name, b->user);
		if (pool != NULL)
			submit(b, pool);
		else
			give_up(b, "nobody of its role is here any more");
	}
	return next;
}

/* --- what is given back --- */

void give_back(struct qdb *db, struct pool *pool, const char *const *tokens, int n, int64_t place,
	const char *error)
{
	struct back *b = back_new(db, pool);

	CHECK_QDB(db);
	for (int i = 0; i < n; i++)
		doubt_forget(tokens[i]);
	if (b == NULL) {
		log_warning(
			"%s: %d jobs are not given back, as too many wait for that or there is no memory; their leases will run out",
			db->name, n);
		return;
	}
	for (int i = 0; i < n; i++) {
		names_add(&b->jobs, tokens[i]);
		b->n += tokens[i][0] != '\0';
	}
	b->error = error;
	/* it makes nothing due */
	b->mark = (struct head_mark){.place = place, .since = INT64_MAX};
	expect_returned(db, tokens, n, b->mark);
	submit(b, pool);
}

bool back_has(const struct qdb *db, const char *token)
{
	const struct back *b;

	DL_FOREACH (backs.first, b) {
		if (b->db != db || b->is_lost)
			continue;
		NAMES_FOREACH (at, &b->jobs)
			if (strcmp(at, token) == 0)
				return true;
	}
	return false;
}

static bool same_lease(const struct back *b, const struct lost_jobs *lost)
{
	if (b->lease == NULL || lost->lease == NULL)
		return b->lease == lost->lease;
	return strcmp(b->lease, lost->lease) == 0;
}

static bool is_known(const struct lost_jobs *lost)
{
	const struct back *b;

	DL_FOREACH (backs.first, b)
		if (b->is_lost && b->seed == lost->seed && same_lease(b, lost))
			return true;
	return false;
}

void back_lost(struct qdb *db, struct pool *pool, const struct lost_jobs *lost)
{
	struct back *b;

	CHECK_QDB(db);
	if (lost->seed == 0 || is_known(lost))
		return;
	b = back_new(db, pool);
	if (b == NULL || (lost->lease != NULL && (b->lease = mem_strdup(lost->lease)) == NULL)) {
		if (b != NULL)
			back_free(b);
		log_warning(
			"%s: out of memory: the jobs of a lost answer are not looked for, their leases will "
			"run out",
			db->name);
		return;
	}
	for (int i = 0; i < lost->n_names; i++)
		names_add(&b->jobs, lost->names[i]);
	b->is_lost = true;
	b->mark = head_unmarked;
	b->seed = lost->seed;
	b->pid = lost->pid;
	b->sent_at = lost->sent_at;
	b->handed = lost->handed;
	submit(b, pool);
}

bool back_start(void)
{
	backs.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return backs.tick != NULL;
}

void back_stop(void)
{
	loop_tick_free(&backs.tick);
	while (backs.first != NULL)
		back_free(backs.first);
}
