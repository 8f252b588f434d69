/*
 * QUEUE AWAIT: the life of a statement that waits for the end of jobs, of all or of any of them, or of
 * a batch, which is as one job that ends when none of the batch is unfinished. It
 * asks the database what has become of them; as long as too few have ended it parks, without a server
 * connection, and asks again when one was ended through this proxy, and otherwise now and then.
 * Statements that ask at the same time ask together (merge.c).
 *
 * Every wait ends through await_end() (park.h). Entry points: await_*.
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "wire/row.h"
#include "await.h"
#include "bound.h"
#include "queue_call.h"
#include "count.h"
#include "deferred.h"
#include "head.h"
#include "heap.h"
#include "jobs.h"
#include "merge.h"
#include "park.h"
#include "queue_int.h"
#include "schema_int.h"
#include "take.h"
#include "token.h"

#define LOOK_FIRST  (250 * USEC_MSEC) /* the shortest time between two looks, except for events */
#define FEWER       "Await fewer jobs at once."
#define BATCH_PAUSE (100 * USEC_MSEC) /* ... at a batch, for events too */
#define TX_ENDED_MAX                                                                               \
	((size_t)64 * 1024) /* bytes; what else a transaction has ended is found by a look */

/* A job that somebody waits for, or, of batches, a queue. */
struct awaited {
	UT_hash_handle hh;
	struct awaited_by *list;
	char ref[TOKEN_MAX]; /* "<queue number>-<id>", "<queue number>-" */
};

/* One of the jobs of a statement. */
struct awaited_by {
	struct awaited_by *same_prev, *same_next; /* of the same job */
	struct awaited *job;                      /* NULL: it does not listen */
	struct awaiting *w;
	const char *how;     /* it ended, as far as this proxy knows; or NULL */
	struct buf row;      /* what has become of it; empty: it has not ended */
	bool asked;          /* the question is about it, too; its answer has one row for it */
	char ref[TOKEN_MAX]; /* as the client named it, until it is resolved */
};

struct awaiting {
	struct park park;
	struct heap_node look;
	struct awaited_by *jobs;
	int n, n_ended;
	int at;              /* the one whose row comes next */
	struct taker *taker; /* NULL: nobody is interested; only the statement still runs */
	struct qdb *db;
	struct pool *pool;
	struct merge_item *item; /* asks; NULL: does not */
	struct bound held;       /* of the rows that it keeps while others are missing */
	char *key;               /* the job, or the batch, as the client named it; or NULL */
	bool batch;
	bool any;      /* one is enough */
	bool resolved; /* the database has said which jobs these are */
	bool listens;  /* to their ends */
	bool again;    /* something ended while it asked */
	bool expired;
	uint64_t seen; /* of the database when it asked */
	usec_t asked_at;
	int16_t formats[BATCH_COLUMNS];
	char queue[QSTMT_QUEUE_MAX + 1];
};

static struct {
	struct heap looks;
	struct loop_tick *tick;
} awaits;

/* --- parking and the way out --- */

static void deafen(struct awaited_by *one)
{
	struct awaited *j = one->job;

	if (j == NULL)
		return;
	DL_DELETE2(j->list, one, same_prev, same_next);
	if (j->list == NULL) {
		HASH_DEL(one->w->db->awaited, j);
		mem_free(j);
	}
	one->job = NULL;
}

static void leave(struct awaiting *w)
{
	park_leave(&w->park);
	heap_remove(&awaits.looks, &w->look);
	for (int i = 0; i < w->n; i++)
		deafen(&w->jobs[i]);
}

/* To hear of the job's end. false: memory. */
static bool listen_to(struct awaited_by *one)
{
	struct qdb *db = one->w->db;
	struct awaited *j;

	HASH_FIND_STR(db->awaited, one->ref, j);
	if (j == NULL) {
		j = mem_zalloc(sizeof(*j));
		if (j == NULL)
			return false;
		util_strlcpy(j->ref, one->ref, sizeof(j->ref));
		HASH_ADD_STR(db->awaited, ref, j);
		if (j->hh.tbl == NULL) {
			mem_free(j);
			return false;
		}
	}
	one->job = j;
	DL_APPEND2(j->list, one, same_prev, same_next);
	return true;
}

static bool subscribe(struct awaiting *w)
{
	w->listens = true;
	for (int i = 0; i < w->n; i++)
		if (w->jobs[i].row.len == 0 && !listen_to(&w->jobs[i]))
			return false;
	return true;
}

static void await_free_one(struct awaiting *w)
{
	for (int i = 0; i < w->n; i++)
		buf_free(&w->jobs[i].row);
	bound_end(&w->held);
	mem_free(w->jobs);
	mem_free(w->key);
	mem_free(w);
}

static struct awaiting *of_park(const struct park *p)
{
	return CONTAINER_OF(p, struct awaiting, park);
}

/* A statement that already runs ends by itself. */
static struct taker *await_end(struct park *p)
{
	struct awaiting *w = of_park(p);
	struct taker *t = w->taker;

	if (w->item != NULL && merge_drop(w->item))
		w->item = NULL;
	leave(w);
	if (w->taker != NULL)
		w->taker->park = NULL;
	w->taker = NULL;
	if (w->item == NULL)
		await_free_one(w);
	return t;
}

/* With what it knows: the rows of those that have ended, or nothing. */
static void end_answer(struct park *p)
{
	struct awaiting *w = of_park(p);
	struct answer a = {.n_rows = w->n_ended};
	struct taker *t;

	for (int i = 0; i < w->n; i++)
		buf_put(&a.rows, w->jobs[i].row.data, w->jobs[i].row.len);
	if (buf_failed(&a.rows)) {
		answer_free(&a);
		park_no_memory(p);
		return;
	}
	count_done(p->verb, (unsigned)a.n_rows);
	snprintf(a.tag, sizeof(a.tag), "SELECT %d", a.n_rows);
	t = await_end(p);
	if (t != NULL)
		t->ops->answer(t, &a);
	else
		answer_free(&a);
}

/* --- the answer of the database --- */

static void keep_row(struct awaited_by *one, const struct wire_col *cols)
{
	struct buf *b = &one->row;
	size_t row = build_row_begin(b, AWAIT_COLUMNS);

	for (int i = 0; i < AWAIT_COLUMNS; i++) {
		if (i == AWAIT_state && one->how != NULL && wire_col_is(&cols[i], "gone"))
			build_row_text(b, one->how);
		else
			build_row_value(b, cols[i].data, cols[i].len);
	}
	build_row_end(b, row);
	one->w->n_ended++;
}

static struct awaited_by *next_asked(struct awaiting *w)
{
	while (w->at < w->n && !w->jobs[w->at].asked)
		w->at++;
	return w->at < w->n ? &w->jobs[w->at++] : NULL;
}

static bool is_true(const struct wire_col *col)
{
	return col->len == 1 && (col->data[0] == 't' || col->data[0] == 1);
}

/* Of who does not wait the numbers as they are. */
static void batch_row(struct awaited_by *one, const uint8_t *body, size_t len)
{
	struct wire_col cols[BATCH_COLUMNS];
	struct buf *b = &one->row;
	char number[TOKEN_MAX - 1];

	if (!wire_row_read(body, len, cols, BATCH_COLUMNS) ||
		!wire_col_copy(&cols[BATCH_number], number, sizeof(number))) {
		log_error("%s: unexpected columns from queue._await_batch()", one->w->db->name);
		return;
	}
	snprintf(one->ref, sizeof(one->ref), "%s-", number);
	if (!is_true(&cols[BATCH_ended]) && one->w->park.wait > 0)
		return;
	build_row(b, cols + 1, BATCH_COLUMNS - 1);
	one->w->n_ended++;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct awaiting *w = arg;
	struct awaited_by *one = next_asked(w);
	struct wire_col cols[AWAIT_COLUMNS];

	if (one != NULL && w->batch) {
		batch_row(one, body, len);
		return;
	}
	if (one == NULL || !wire_row_read(body, len, cols, AWAIT_COLUMNS)) {
		log_error("%s: unexpected rows from queue._await()", w->db->name);
		return;
	}
	if (!w->resolved) {
		wire_col_copy(&cols[AWAIT_job], one->ref, sizeof(one->ref));
		if (w->n == 1)
			wire_col_copy(&cols[AWAIT_queue], w->queue, sizeof(w->queue));
	}
	if (cols[AWAIT_state].len >= 0)
		keep_row(one, cols);
}

static void on_again(void *arg)
{
	struct awaiting *w = arg;

	w->at = 0;
	for (int i = 0; i < w->n; i++) {
		struct awaited_by *one = &w->jobs[i];

		w->n_ended -= one->asked && one->row.len > 0;
		if (one->asked)
			buf_reset(&one->row);
	}
}

/* The longer it waits the less often it looks; at round times, so that many look together. */
static usec_t next_look(const struct awaiting *w)
{
	usec_t now = loop_now(), most = conf_current()->p.queue_await_poll;
	usec_t pause = (now - w->park.started) / 8;

	pause = pause < LOOK_FIRST ? LOOK_FIRST : pause;
	return ((now + (pause < most ? pause : most)) / LOOK_FIRST + 1) * LOOK_FIRST;
}

/* When something has ended. */
static usec_t soon(const struct awaiting *w)
{
	usec_t now = loop_now();

	return w->batch && w->asked_at + BATCH_PAUSE > now ? w->asked_at + BATCH_PAUSE : now;
}

static void look_at(struct awaiting *w, usec_t when)
{
	if (heap_set(&awaits.looks, &w->look, when))
		loop_tick_at(awaits.tick, when);
	else
		park_no_memory(&w->park);
}

static bool rows_failed(const struct awaiting *w)
{
	for (int i = 0; i < w->n; i++)
		if (buf_failed(&w->jobs[i].row))
			return true;
	return false;
}

/* Rows of several looks together. */
static bool keeps_too_much(struct awaiting *w, struct pg_error *err)
{
	const int64_t most = conf_current()->p.queue_answer_max;
	size_t kept = 0;

	for (int i = 0; i < w->n; i++)
		kept += w->jobs[i].row.len;
	if (most <= 0 || w->n_ended <= 1 || kept <= (size_t)most)
		return bound_keeps(&w->held, kept, err);
	bound_exceeded(err, most, FEWER);
	return true;
}

static bool has_ended(const struct awaiting *w)
{
	return w->n_ended >= (w->any && w->n > 0 ? 1 : w->n);
}

static void not_yet(struct awaiting *w)
{
	bool fresh = !w->listens;
	bool again = w->again || (fresh && w->seen != w->db->ended_events);

	if (w->park.wait == 0 || w->expired) {
		park_over(&w->park);
		return;
	}
	if (park_must_leave(w->taker)) {
		park_send_away(&w->park);
		return;
	}
	if (!park_limit(&w->park) || (fresh && !subscribe(w))) {
		park_no_memory(&w->park);
		return;
	}
	park_enter(&w->park);
	for (int i = 0; i < w->n && !w->again; i++)
		w->jobs[i].how = NULL; /* it was to run again: this is not how it ends */
	w->again = false;
	look_at(w, again ? soon(w) : next_look(w));
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct awaiting *w = arg;
	struct pg_error large;

	w->item = NULL;
	if (w->taker == NULL) {
		await_free_one(w);
		return;
	}
	if (err != NULL && park_may_try_again(&w->park, err)) {
		on_again(w);
		if (w->expired) {
			park_over(&w->park);
			return;
		}
		if (park_must_leave(w->taker)) {
			park_send_away(&w->park);
			return;
		}
		park_enter(&w->park);
		look_at(w, loop_now() + conf_current()->p.queue_safety_poll);
	} else if (err != NULL) {
		if (strcmp(err->sqlstate, "3F000") == 0)
			schema_suspect(w->db);
		park_fail(&w->park, err);
	} else if (rows_failed(w)) {
		park_no_memory(&w->park);
	} else if (keeps_too_much(w, &large)) {
		park_fail(&w->park, &large);
	} else if (has_ended(w)) {
		end_answer(&w->park);
	} else {
		w->resolved = true;
		not_yet(w);
	}
}

/* --- asking --- */

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){
		.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

/* The number of the queue that all jobs of a statement are of; 0: of several. */
static int64_t common_number(const struct awaiting *w)
{
	int64_t number = token_number(w->jobs[0].ref);

	for (int i = 1; i < w->n; i++)
		if (token_number(w->jobs[i].ref) != number)
			return 0;
	return number;
}

/* Those of one queue ask together once they know which it is. */
static void put_key(struct buf *key, const struct awaiting *w, const struct task_settings *settings)
{
	buf_put(key, &w->pool, sizeof(w->pool));
	buf_putc(key, w->resolved ? 'W' : w->key != NULL ? 'k' : 'w');
	task_settings_key(settings, key);
	buf_put(key, w->formats, sizeof(w->formats));
	if (w->batch)
		buf_putc(key, w->park.wait > 0 ? 'b' : 'B');
	if (w->resolved && !w->batch)
		build_i32(key, common_number(w));
	else
		buf_put(key, w->queue, strlen(w->queue));
}

/* The jobs that have not ended, as elements of an array. Returns how many. */
static int put_asked(struct awaiting *w, struct buf *values)
{
	int n = 0;

	w->at = 0;
	for (int i = 0; i < w->n; i++) {
		struct awaited_by *one = &w->jobs[i];
		const char *text = w->key != NULL && (!w->resolved || w->batch) ? w->key : one->ref;

		one->asked = one->row.len == 0;
		if (!one->asked)
			continue;
		build_row_value(values, (const uint8_t *)text, (int32_t)strlen(text));
		n++;
	}
	return n;
}

/* Never calls back before it returns. false: memory. */
static bool ask(struct awaiting *w)
{
	static const struct merge_ops ops = {.row = on_row, .again = on_again, .done = on_done};
	const struct bind_param params[] = {{.len = -1},
		text_param(w->resolved || w->queue[0] == '\0' ? NULL : w->queue),
		text_param(w->resolved ? "t" : "f"), text_param("t")};
	const struct bind_param of_batch[] = {
		{.len = -1}, text_param(w->queue), text_param(w->park.wait > 0 ? "f" : "t")};
	bool by_key = w->key != NULL && !w->resolved;
	const struct queue_call *call = &queue_calls[w->batch ? CALL_AWAIT_BATCH
						     : by_key ? CALL_AWAIT_KEY
							      : CALL_AWAIT];
	struct merge_spec spec = {.sql = call->sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 0,
		.count_param = -1,
		.params = w->batch ? of_batch : params,
		.n_formats = w->batch ? BATCH_COLUMNS : AWAIT_COLUMNS,
		.formats = w->formats,
		.settings = w->taker->ops->settings(w->taker),
		.split = true,
		.bounded = FEWER};
	struct buf key = BUF_INIT, values = BUF_INIT;
	int n;

	w->seen = w->db->ended_events;
	w->asked_at = loop_now();
	w->again = false;
	if (spec.settings != NULL) {
		put_key(&key, w, spec.settings);
		n = put_asked(w, &values);
		w->item = merge_add(w->pool, &key, &spec, &values, n, n, &ops, w);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	buf_free(&values);
	return w->item != NULL;
}

/* --- the beginning --- */

static struct taker *taker_of(const struct park *p)
{
	return of_park(p)->taker;
}

static bool is_over(struct park *p)
{
	struct awaiting *w = of_park(p);
	usec_t since = w->item != NULL ? merge_sent_at(w->item) : 0;

	w->expired = true;
	return park_is_over(p, since);
}

static void stat_awaiting(const struct park *p, struct queue_stat_waiter *st, struct buf *names)
{
	const struct awaiting *w = of_park(p);

	buf_put(names, w->queue, strlen(w->queue));
	st->state = "awaiting";
	st->limit = 1;
}

static struct awaiting *awaiting_new(struct taker *t, int n)
{
	struct awaiting *w = mem_zalloc(sizeof(*w));

	if (w == NULL)
		return NULL;
	w->jobs = mem_zalloc((size_t)(n > 0 ? n : 1) * sizeof(*w->jobs));
	if (w->jobs == NULL) {
		mem_free(w);
		return NULL;
	}
	w->taker = t;
	w->db = t->db;
	w->pool = t->pool;
	return w;
}

static bool begin(struct awaiting *w, const struct take_args *args, const struct bind_values *bind)
{
	static const struct park_kind kind = {.taker = taker_of,
		.expire = is_over,
		.leave = await_end,
		.answer = end_answer,
		.stat = stat_awaiting};

	park_init(&w->park, &kind, w->taker, QVERB_AWAIT, args->wait, args->since);
	if (args->n_queues > 0)
		util_strlcpy(w->queue, args->queues[0], sizeof(w->queue));
	for (int i = 0; i < (w->batch ? BATCH_COLUMNS - 1 : AWAIT_COLUMNS) && bind->n_formats > 0;
		i++)
		w->formats[i + w->batch] = bind->formats[bind->n_formats == 1 ? 0 : i];
	if ((w->park.wait > 0 && !park_limit_asking(&w->park)) || !ask(w)) {
		leave(w);
		return false;
	}
	w->taker->park = &w->park;
	return true;
}

/* --- which jobs --- */

static void count_job(void *arg, const char *text, size_t len)
{
	int *n = arg;

	(void)text;
	(void)len;
	++*n;
}

static void add_job(void *arg, const char *text, size_t len)
{
	struct awaiting *w = arg;
	struct awaited_by *one = &w->jobs[w->n++];

	one->w = w;
	/* anything longer was refused (jobs_resolve) */
	util_strlcpy(one->ref, text, sizeof(one->ref));
	(void)len;
}

/* What stands for it is a job that is held here, or an array with such among them. */
static bool each_named(const struct qstmt *q, const struct exec *x, const struct jobs *jobs,
	each_job_fn *fn, void *arg)
{
	for (int i = 0; i < qstmt_count(q, QARG_REF); i++) {
		const char *known = jobs_text(jobs, i);

		if (known != NULL ? !each_job_text(known, strlen(known), fn, arg)
				  : !each_job(qstmt_value(q, QARG_REF, i), &x->bind, fn, arg))
			return false;
	}
	return true;
}

/* A job by its key, or a batch. NULL: with an error. */
static struct awaiting *of_name(
	struct exec *x, const struct qstmt *q, struct qclient *qc, enum qarg_id id)
{
	const char *what = id == QARG_BATCH ? "the name of a BATCH" : "KEY";
	struct awaiting *w = NULL;
	char *key;

	if (!take_text(&key, qstmt_one(q, id), &x->bind, &x->err, what))
		return NULL;
	if (key == NULL)
		pg_error_set(&x->err, "22004", "%s must not be null", what);
	else if ((w = awaiting_new(&qc->taker, 1)) == NULL)
		pg_error_set(&x->err, "53200", "out of memory");
	if (w == NULL) {
		mem_free(key);
		return NULL;
	}
	w->key = key;
	w->batch = id == QARG_BATCH;
	add_job(w, "", 0);
	return w;
}

static struct awaiting *of_jobs(
	struct exec *x, const struct qstmt *q, struct qclient *qc, const struct jobs *jobs)
{
	struct awaiting *w;
	int n = 0;

	if (!each_named(q, x, jobs, count_job, &n)) {
		pg_error_set(&x->err, "22023", "a job cannot be read");
		pg_error_hint(&x->err, "Bind it as text.");
		return NULL;
	}
	w = awaiting_new(&qc->taker, n);
	if (w == NULL || !each_named(q, x, jobs, add_job, w)) {
		pg_error_set(&x->err, "53200", "out of memory");
		if (w != NULL)
			await_free_one(w);
		return NULL;
	}
	return w;
}

enum exec_verdict await_execute(struct exec *x, const struct qstmt *q, struct qclient *qc)
{
	struct take_args args = {0};
	enum exec_verdict v = EXEC_ERROR;
	struct jobs jobs = {0};
	struct awaiting *w = NULL;

	CHECK_QCLIENT(qc);
	args.since = deferred_since(qc, q);
	if (take_check(x, q, NULL, &args, &x->err) &&
		jobs_resolve(&qc->taker, q, &x->bind, &jobs, &x->err))
		w = qstmt_has(q, QARG_BY_KEY)  ? of_name(x, q, qc, QARG_BY_KEY)
		    : qstmt_has(q, QARG_BATCH) ? of_name(x, q, qc, QARG_BATCH)
					       : of_jobs(x, q, qc, &jobs);
	if (w != NULL) {
		w->any = qstmt_has(q, QARG_ANY);
		v = EXEC_PARK;
		if (w->n == 0) {
			snprintf(x->answer.tag, sizeof(x->answer.tag), "SELECT 0");
			await_free_one(w);
			v = EXEC_ANSWER;
		} else if (!begin(w, &args, &x->bind)) {
			await_free_one(w);
			pg_error_set(&x->err, "53200", "out of memory");
			v = EXEC_ERROR;
		}
	}
	jobs_free(&jobs);
	take_args_free(&args);
	return v;
}

/* --- events --- */

static void wake(struct awaited *j, const char *how)
{
	struct awaited_by *one, *tmp;

	DL_FOREACH_SAFE2 (j->list, one, tmp, same_next) {
		struct awaiting *w = one->w;

		if (one->row.len > 0)
			continue;
		if (how != NULL)
			one->how = how;
		w->again = true;
		if (w->item == NULL)
			look_at(w, soon(w));
	}
}

/* By the id alone, of whichever queue. */
static void event_of_id(struct qdb *db, const char *id)
{
	struct awaited *j, *tmp;

	HASH_ITER (hh, db->awaited, j, tmp) {
		const char *its = token_job_id(j->ref);

		if (its != NULL && (*its == '\0' || strcmp(its, id) == 0))
			wake(j, NULL);
	}
}

void await_event(struct qdb *db, const char *job, const char *how)
{
	char ref[TOKEN_MAX];
	struct awaited *j;

	CHECK_QDB(db);
	db->ended_events++;
	if (db->awaited == NULL)
		return;
	if (token_job_id(job) == NULL) {
		event_of_id(db, job);
		return;
	}
	if (!token_job(job, ref))
		return;
	HASH_FIND_STR(db->awaited, ref, j);
	if (j != NULL)
		wake(j, how);
	ref[token_job_id(ref) - ref] = '\0';
	HASH_FIND_STR(db->awaited, ref, j);
	if (j != NULL)
		wake(j, NULL);
}

void await_ended(struct taker *t, const char *job, bool done, bool in_tx)
{
	CHECK_TAKER(t);
	if (!in_tx) {
		await_event(t->db, job, done ? "done" : NULL);
		return;
	}
	if (t->ended.len >= TX_ENDED_MAX)
		return;
	buf_putc(&t->ended, done ? 'd' : '-');
	buf_put(&t->ended, job, strlen(job) + 1);
}

void await_tx_ended(struct taker *t, bool committed, bool in_part)
{
	const char *at = (const char *)t->ended.data, *end = at + t->ended.len;

	CHECK_TAKER(t);
	/* without memory the next look finds it */
	if (committed && !buf_failed(&t->ended))
		for (; at < end; at += strlen(at) + 1)
			await_event(t->db, at + 1, *at == 'd' && !in_part ? "done" : NULL);
	buf_free(&t->ended);
}

/* --- time --- */

static usec_t on_tick(void *arg, usec_t now)
{
	struct heap_node *n;

	(void)arg;
	while ((n = heap_first(&awaits.looks)) != NULL && n->when <= now) {
		struct awaiting *w = CONTAINER_OF(n, struct awaiting, look);

		heap_remove(&awaits.looks, n);
		if (w->item == NULL && !ask(w))
			park_no_memory(&w->park);
	}
	return heap_deadline(&awaits.looks);
}

bool await_start(void)
{
	awaits.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return awaits.tick != NULL;
}

void await_free(void)
{
	loop_tick_free(&awaits.tick);
	heap_free(&awaits.looks);
}
