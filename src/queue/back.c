/*
 * Giving jobs back: of connections that broke, of transactions that were rolled back, of clients
 * who left before their rows came; and those of which we never heard, since the answer to our
 * statement was lost. Each through the pool of the role whose lease it was. What fails as there is
 * no connection is tried again.
 *
 * What a statement of ours has leased is known by its tokens, which are made of a number that we
 * had sent with it (merge_seed). It may be carried out after we have lost sight of it: so it is
 * looked for until its process is gone.
 *
 * Entry points: give_back(), back_lost(), wake_queues().
 */
#include <stdio.h>
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

#define BACK_MAX    10000 /* that wait to be tried again */
#define AGAIN_FIRST (500 * USEC_MSEC)
#define AGAIN_LAST  (30 * USEC_SEC)
#define TRIED_FOR   (3600 * USEC_SEC)

struct back {
	struct back *prev, *next;
	struct qdb *db;
	char user[128]; /* as long as a client may say */
	usec_t at;      /* of the next try; USEC_NEVER: it is under way */
	usec_t pause, since;
	int n;             /* jobs, as far as they are known */
	struct buf tokens; /* or names of queues: text[] in binary */
	bool is_lost;      /* names */
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

static void back_free(struct back *b)
{
	DL_DELETE(backs.first, b);
	backs.n--;
	buf_free(&b->tokens);
	names_free(&b->names);
	mem_free(b->lease);
	mem_free(b);
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
	DL_APPEND(backs.first, b);
	backs.n++;
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

/* Of the connection, or of what others did meanwhile. */
static bool passes(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57P", 3) == 0 ||
	       strncmp(err->sqlstate, "53", 2) == 0 || strcmp(err->sqlstate, "55P03") == 0 ||
	       strcmp(err->sqlstate, "42P01") == 0 || merge_may_repeat(err, 0);
}

static void try_later(struct back *b)
{
	b->at = loop_now() + b->pause;
	b->pause = 2 * b->pause < AGAIN_LAST ? 2 * b->pause : AGAIN_LAST;
	loop_tick_at(backs.tick, b->at);
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
	if (err != NULL && passes(err) && loop_now() - b->since <= TRIED_FOR) {
		try_later(b);
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
	if (b->is_lost)
		looked(b);
	else
		back_free(b);
}

static bool send_tokens(struct back *b, struct pool *pool, const struct task_ops *ops)
{
	struct bind_param params[3] = {
		{.data = b->tokens.data, .len = (int32_t)b->tokens.len, .format = 1}, {.len = -1},
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

static bool send_lost(struct back *b, struct pool *pool, const struct task_ops *ops)
{
	char seed[24], handed[24], pid[24], age[40];
	struct bind_param params[6] = {
		{.data = b->tokens.data, .len = (int32_t)b->tokens.len, .format = 1},
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

/* Frees what cannot be sent. */
static void submit(struct back *b, struct pool *pool)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};

	b->goes_on = false;
	names_reset(&b->names);
	b->at = USEC_NEVER;
	if (!buf_failed(&b->tokens) &&
		(b->is_lost ? send_lost(b, pool, &ops) : send_tokens(b, pool, &ops)))
		return;
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
			"%s: out of memory: %d jobs are not given back, their leases will run out",
			db->name, n);
		return;
	}
	array_texts(&b->tokens, tokens, n);
	b->n = n;
	b->error = error;
	/* it makes nothing due */
	b->mark = (struct head_mark){.place = place, .since = INT64_MAX};
	expect_returned(db, tokens, n, b->mark);
	submit(b, pool);
}

bool back_has(const struct qdb *db, const char *token)
{
	const struct back *b;

	DL_FOREACH (backs.first, b)
		if (b->db == db && !b->is_lost && !buf_failed(&b->tokens) &&
			memmem(b->tokens.data, b->tokens.len, token, strlen(token)) != NULL)
			return true;
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
	const char **names;
	struct back *b;

	CHECK_QDB(db);
	if (lost->seed == 0 || is_known(lost))
		return;
	names = mem_alloc((size_t)lost->n_names * sizeof(*names));
	b = names != NULL ? back_new(db, pool) : NULL;
	if (b == NULL || (lost->lease != NULL && (b->lease = mem_strdup(lost->lease)) == NULL)) {
		mem_free(names);
		if (b != NULL)
			back_free(b);
		log_warning(
			"%s: out of memory: the jobs of a lost answer are not looked for, their leases will "
			"run out",
			db->name);
		return;
	}
	for (int i = 0; i < lost->n_names; i++)
		names[i] = lost->names[i];
	array_texts(&b->tokens, names, lost->n_names);
	mem_free(names);
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
