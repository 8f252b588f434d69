/*
 * QUEUE AWAIT: the life of a statement that waits for the end of a job. It asks the database what
 * has become of the job; as long as that has not ended it parks, without a server connection, and
 * asks again when the job was ended through this proxy, and otherwise now and then. Statements that
 * ask at the same time ask together (merge.c).
 *
 * Every wait ends through await_end() (park.h). Entry points: await_*.
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "wire/row.h"
#include "await.h"
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

#define LOOK_FIRST (250 * USEC_MSEC) /* the shortest time between two looks, except for events */
#define TX_ENDED_MAX                                                                               \
	((size_t)64 * 1024) /* bytes; what else a transaction has ended is found by a look */

/* A job that somebody waits for. */
struct awaited {
	UT_hash_handle hh;
	struct awaiting *list;
	char ref[TOKEN_MAX]; /* "<queue number>-<id>" */
};

struct awaiting {
	struct park park;
	struct heap_node look;
	struct awaiting *same_prev, *same_next; /* of the same job */
	struct awaited *job;                    /* NULL: not known yet */
	struct taker *taker; /* NULL: nobody is interested; only the statement still runs */
	struct qdb *db;
	struct pool *pool;
	struct merge_item *item; /* asks; NULL: does not */
	char *text;              /* the job as the client named it */
	bool by_key;             /* that is its key */
	bool resolved;           /* ref and queue are known */
	bool ended;              /* the database said so */
	bool again;              /* something ended while it asked */
	bool expired;
	const char *how; /* it ended, as far as this proxy knows; or NULL */
	uint64_t seen;   /* of the database when it asked */
	int16_t formats[AWAIT_COLUMNS];
	struct buf rows; /* none, or the one of the answer */
	int n_rows;
	char ref[TOKEN_MAX];
	char queue[QSTMT_QUEUE_MAX + 1];
};

static struct {
	struct heap looks;
	struct loop_tick *tick;
} awaits;

/* --- parking and the way out --- */

static void leave(struct awaiting *w)
{
	struct awaited *j = w->job;

	park_leave(&w->park);
	heap_remove(&awaits.looks, &w->look);
	if (j == NULL)
		return;
	DL_DELETE2(j->list, w, same_prev, same_next);
	if (j->list == NULL) {
		HASH_DEL(w->db->awaited, j);
		mem_free(j);
	}
	w->job = NULL;
}

/* To hear of the job's end. false: memory. */
static bool subscribe(struct awaiting *w)
{
	struct awaited *j;

	HASH_FIND_STR(w->db->awaited, w->ref, j);
	if (j == NULL) {
		j = mem_zalloc(sizeof(*j));
		if (j == NULL)
			return false;
		util_strlcpy(j->ref, w->ref, sizeof(j->ref));
		HASH_ADD_STR(w->db->awaited, ref, j);
		if (j->hh.tbl == NULL) {
			mem_free(j);
			return false;
		}
	}
	w->job = j;
	DL_APPEND2(j->list, w, same_prev, same_next);
	return true;
}

static void await_free_one(struct awaiting *w)
{
	buf_free(&w->rows);
	mem_free(w->text);
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

/* With what it knows: the row of a job that has ended, or nothing. */
static void end_answer(struct park *p)
{
	struct awaiting *w = of_park(p);
	struct answer a = {.rows = w->rows, .n_rows = w->n_rows};
	struct taker *t;

	w->rows = BUF_INIT;
	count_done(p->verb, (unsigned)a.n_rows);
	snprintf(a.tag, sizeof(a.tag), "SELECT %d", a.n_rows);
	t = await_end(p);
	if (t != NULL)
		t->ops->answer(t, &a);
	else
		answer_free(&a);
}

/* --- the answer of the database --- */

static void keep_row(struct awaiting *w, const struct wire_col *cols)
{
	struct buf *b = &w->rows;
	size_t row = build_row_begin(b, AWAIT_COLUMNS);

	for (int i = 0; i < AWAIT_COLUMNS; i++) {
		if (i == AWAIT_state && w->how != NULL && wire_col_is(&cols[i], "gone"))
			build_row_text(b, w->how);
		else
			build_row_value(b, cols[i].data, cols[i].len);
	}
	build_row_end(b, row);
	w->n_rows++;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct awaiting *w = arg;
	struct wire_col cols[AWAIT_COLUMNS];

	if (!wire_row_read(body, len, cols, AWAIT_COLUMNS)) {
		log_error("%s: unexpected columns from queue._await()", w->db->name);
		return;
	}
	if (!w->resolved) {
		w->resolved = wire_col_copy(&cols[AWAIT_job], w->ref, sizeof(w->ref)) &&
			      w->ref[0] != '\0';
		wire_col_copy(&cols[AWAIT_queue], w->queue, sizeof(w->queue));
	}
	w->ended = cols[AWAIT_state].len >= 0;
	if (w->ended)
		keep_row(w, cols);
}

static void on_again(void *arg)
{
	struct awaiting *w = arg;

	buf_reset(&w->rows);
	w->n_rows = 0;
	w->ended = false;
}

/* The longer it waits the less often it looks; at round times, so that many look together. */
static usec_t next_look(const struct awaiting *w)
{
	usec_t now = loop_now(), most = conf_current()->p.queue_await_poll;
	usec_t pause = (now - w->park.started) / 8;

	pause = pause < LOOK_FIRST ? LOOK_FIRST : pause;
	return ((now + (pause < most ? pause : most)) / LOOK_FIRST + 1) * LOOK_FIRST;
}

static void look_at(struct awaiting *w, usec_t when)
{
	if (heap_set(&awaits.looks, &w->look, when))
		loop_tick_at(awaits.tick, when);
	else
		park_no_memory(&w->park);
}

static void not_yet(struct awaiting *w)
{
	bool fresh = w->resolved && w->job == NULL;
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
	if (!w->again)
		w->how = NULL; /* it was to run again: this is not how it ends */
	w->again = false;
	look_at(w, again ? loop_now() : next_look(w));
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct awaiting *w = arg;

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
	} else if (buf_failed(&w->rows)) {
		park_no_memory(&w->park);
	} else if (w->ended) {
		end_answer(&w->park);
	} else {
		not_yet(w);
	}
}

/* --- asking --- */

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){
		.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

/* Those of one queue ask together once they know which it is. */
static void put_key(struct buf *key, const struct awaiting *w, const struct task_settings *settings)
{
	const char *dash = strchr(w->ref, '-');

	buf_put(key, &w->pool, sizeof(w->pool));
	buf_putc(key, w->resolved ? 'W' : w->by_key ? 'k' : 'w');
	task_settings_key(settings, key);
	buf_put(key, w->formats, sizeof(w->formats));
	if (w->resolved && dash != NULL)
		buf_put(key, w->ref, (size_t)(dash - w->ref));
	else
		buf_put(key, w->queue, strlen(w->queue));
}

/* Never calls back before it returns. false: memory. */
static bool ask(struct awaiting *w)
{
	static const struct merge_ops ops = {.row = on_row, .again = on_again, .done = on_done};
	const char *ref = w->resolved ? w->ref : w->text;
	const struct bind_param params[] = {{.len = -1},
		text_param(w->resolved || w->queue[0] == '\0' ? NULL : w->queue),
		text_param(w->resolved ? "t" : "f"), text_param("t")};
	bool by_key = w->by_key && !w->resolved;
	const struct queue_call *call = &queue_calls[by_key ? CALL_AWAIT_KEY : CALL_AWAIT];
	struct merge_spec spec = {.sql = call->sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 0,
		.count_param = -1,
		.params = params,
		.n_formats = AWAIT_COLUMNS,
		.formats = w->formats,
		.settings = w->taker->ops->settings(w->taker),
		.split = true};
	struct buf key = BUF_INIT, values = BUF_INIT;

	w->seen = w->db->ended_events;
	w->again = false;
	if (spec.settings != NULL) {
		put_key(&key, w, spec.settings);
		build_row_value(&values, (const uint8_t *)ref, (int32_t)strlen(ref));
		w->item = merge_add(w->pool, &key, &spec, &values, 1, 1, &ops, w);
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
	return since == 0 || loop_now() - since >= STUCK_AFTER ||
	       !park_again_at(p, since + STUCK_AFTER);
}

static void stat_awaiting(const struct park *p, struct queue_stat_waiter *st, struct buf *names)
{
	const struct awaiting *w = of_park(p);

	buf_put(names, w->queue, strlen(w->queue));
	st->state = "awaiting";
	st->limit = 1;
}

/* Takes text. false: memory. */
static bool begin(struct taker *t, char *text, bool by_key, const struct take_args *args,
	const struct bind_values *bind)
{
	static const struct park_kind kind = {.taker = taker_of,
		.expire = is_over,
		.leave = await_end,
		.answer = end_answer,
		.stat = stat_awaiting};
	struct awaiting *w = mem_zalloc(sizeof(*w));

	if (w == NULL) {
		mem_free(text);
		return false;
	}
	w->text = text;
	w->by_key = by_key;
	w->taker = t;
	w->db = t->db;
	w->pool = t->pool;
	park_init(&w->park, &kind, t, QVERB_AWAIT, args->wait, args->since);
	if (args->n_queues > 0)
		util_strlcpy(w->queue, args->queues[0], sizeof(w->queue));
	for (int i = 0; i < AWAIT_COLUMNS && bind->n_formats > 0; i++)
		w->formats[i] = bind->formats[bind->n_formats == 1 ? 0 : i];
	if ((w->park.wait > 0 && !park_limit_asking(&w->park)) || !ask(w)) {
		leave(w);
		await_free_one(w);
		return false;
	}
	t->park = &w->park;
	return true;
}

enum exec_verdict await_execute(struct exec *x, const struct qstmt *q, struct qclient *qc)
{
	struct take_args args = {0};
	bool by_key = qstmt_has(q, QARG_BY_KEY);
	enum exec_verdict v = EXEC_ERROR;
	struct jobs jobs = {0};
	char *text = NULL;

	CHECK_QCLIENT(qc);
	args.since = deferred_since(qc, q);
	if (!take_check(x, q, NULL, &args, &x->err) ||
		!jobs_resolve(&qc->taker, q, &x->bind, &jobs, &x->err) ||
		!take_text(&text, qstmt_one(q, by_key ? QARG_BY_KEY : QARG_REF), &x->bind, &x->err,
			by_key ? "KEY" : "a job"))
		goto out;
	if (text != NULL && jobs_text(&jobs, 0) != NULL) { /* one that is held here */
		mem_free(text);
		text = mem_strdup(jobs_text(&jobs, 0));
		if (text == NULL) {
			pg_error_set(&x->err, "53200", "out of memory");
			goto out;
		}
	}
	if (text == NULL)
		pg_error_set(&x->err, "22004", "%s must not be null", by_key ? "KEY" : "a job");
	else if (text[0] == '{' && !by_key)
		pg_error_set(&x->err, "22023", "QUEUE AWAIT waits for one job"), mem_free(text);
	else if (begin(&qc->taker, text, by_key, &args, &x->bind))
		v = EXEC_PARK;
	else
		pg_error_set(&x->err, "53200", "out of memory");
out:
	jobs_free(&jobs);
	take_args_free(&args);
	return v;
}

/* --- events --- */

static void wake(struct awaited *j, const char *how)
{
	struct awaiting *w, *tmp;

	DL_FOREACH_SAFE2 (j->list, w, tmp, same_next) {
		if (how != NULL)
			w->how = how;
		w->again = true;
		if (w->item == NULL)
			look_at(w, loop_now());
	}
}

/* By the id alone, of whichever queue. */
static void event_of_id(struct qdb *db, const char *id)
{
	struct awaited *j, *tmp;

	HASH_ITER (hh, db->awaited, j, tmp) {
		const char *its = token_job_id(j->ref);

		if (its != NULL && strcmp(its, id) == 0)
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
