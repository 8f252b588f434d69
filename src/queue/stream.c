/*
 * QUEUE TAKE ... FOR: a reader of a stream asks the database for the next delivery of its subscription;
 * when there is none it parks, without a server connection, and asks again when something was pushed or
 * a delivery has ended (subscribed.c). What a delivery is, how many may be out, and where a subscription is, knows the
 * database alone.
 *
 * With WHERE it asks on its own server, with the client's SQL (sift.c); what does not fit is passed, so it may ask many
 * times before it gets something, and pauses when it has looked in vain, twice as long each time.
 *
 * A large delivery is shown to its client while it comes (shown.c): until its end it is nobody's, and an error may take its
 * place.
 *
 * Every wait ends through leave() (park.h). Entry points: stream_*.
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "wire/row.h"
#include "back.h"
#include "bound.h"
#include "count.h"
#include "deferred.h"
#include "head.h"
#include "lease.h"
#include "queue_int.h"
#include "registry.h"
#include "schema_int.h"
#include "shown.h"
#include "sift.h"
#include "stream_int.h"
#include "system.h"
#include "token.h"
#include "types.h"
#include "wakes.h"

#define LANE_LOCKED 100  /* ms: what the database says if a lane was not free */
#define BESIDE_SLOW 1000 /* ms: ... and that may be the one of who reads slowly */

struct failure {
	struct pg_error err;
	char event[24];
};

static void ask(struct reader *w);
MUST_CHECK static bool submit_where(struct reader *w, const struct task_ops *ops, bool fails,
	const char *seed, const char *proxy);

/* --- the way out --- */

static void reader_free(struct reader *w)
{
	taking_ended(w->db);
	take_args_free(&w->args);
	delivery_free(&w->got);
	bound_end(&w->bound);
	mem_free(w->failure);
	mem_free(w->passed);
	mem_free(w->least);
	mem_free(w->within);
	mem_free(w->lag);
	mem_free(w);
}

static struct reader *of_park(const struct park *p)
{
	return CONTAINER_OF(p, struct reader, park);
}

/* A statement that already runs ends by itself. */
static struct taker *reader_end(struct park *p)
{
	struct reader *w = of_park(p);
	struct taker *t = w->taker;

	if (w->task != NULL && !task_is_sent(w->task) && task_drop(&w->task))
		w->task = NULL;
	/* nobody knows how long a condition takes, or how much of a large delivery is left */
	if (w->task != NULL && (w->args.where != NULL || w->shown != SHOWN_NOTHING))
		task_cancel(w->task);
	if (w->task != NULL && w->shown == SHOWN_UNREAD)
		task_rest(w->task, false);
	park_leave(p);
	reader_unlist(w);
	if (t != NULL)
		t->park = NULL;
	w->taker = NULL;
	if (w->task == NULL)
		reader_free(w);
	return t;
}

static void lease(struct reader *w)
{
	struct tally *tally = count_get(w->db, w->args.queues[0]);
	struct tally *part = tally != NULL ? count_part(tally, w->name) : NULL;
	struct lease *l;

	count_in(w->taker, tally, false)->n[FIGURE_TAKEN]++;
	if (part != NULL) {
		tally = part;
		part->now.n[FIGURE_TAKEN]++;
		part->now.n[FIGURE_PUSHED] += w->got.n;
	}
	w->taker->answers++;
	l = lease_add(w->taker, 0, w->got.token, w->args.queues[0], LEASE_AUTO, true);
	if (l == NULL)
		return; /* no memory: its time alone ends it */
	l->tally = tally;
	l->until = w->until;
	l->stamped = w->stamp != 0;
	/* the session came up while it was on its way */
	if (w->stamp == 0 && registry_stamp(w->db) != 0)
		registry_adopt(w->taker);
	w->taker->ops->leased(w->taker);
}

static void end_answer(struct park *p)
{
	struct reader *w = of_park(p);
	struct answer a = shown_rest(w);
	struct taker *t;

	w->got.rows = BUF_INIT;
	count_done(p->verb, (unsigned)a.n_rows);
	if (w->taker != NULL && w->got.token[0] != '\0')
		lease(w);
	snprintf(a.tag, sizeof(a.tag), "SELECT %d", a.n_rows);
	t = reader_end(p);
	if (t != NULL)
		t->ops->answer(t, &a);
	else
		answer_free(&a);
}

/* --- the answer of the database --- */

/* Was it ended by this very transaction, which has not been committed? */
static bool ended_here(const struct reader *w, const char *delivery)
{
	const struct buf *ended;

	if (w->taker == NULL)
		return false;
	ended = &w->taker->ended;
	for (const char *at = (const char *)ended->data, *end = at + ended->len; at < end;
		at += strlen(at) + 1)
		if (token_is_of(at + 1, delivery, strlen(delivery)))
			return true;
	return false;
}

static void note_due(struct reader *w)
{
	if (w->due_ms > 0 && (w->passed_ms == 0 || w->due_ms < w->passed_ms))
		w->passed_ms = w->due_ms;
}

/* With WHERE one lane is looked at, and each of them once, however much is pushed meanwhile: what it has does not fit, or has to
 * wait, and others may have what need not. Those are asked for at once. */
static void note_passed(struct reader *w, const struct wire_col *lanes)
{
	const size_t size = (size_t)lanes->len + 1;

	note_due(w);
	mem_free(w->passed);
	w->passed = mem_alloc(size);
	if (w->passed != NULL && wire_col_copy(lanes, w->passed, size))
		w->due_ms = 0;
}

/* Why there is none. If everything is out, a row for each delivery. With MIN: for how long it is not worth while to ask
 * again, as more come one by one, and how many are missing. */
static void note_nothing(struct reader *w, const struct wire_col *cols)
{
	char delivery[TOKEN_MAX]; /* "<number>-d<id>" */
	int64_t more[PATIENCE_NUMBERS] = {0};

	w->until = 0;
	if (!wire_col_number(&cols[DELIVERY_due_ms], &w->due_ms))
		w->due_ms = DUE_UNTOLD;
	if (cols[DELIVERY_passed].len >= 0)
		note_passed(w, &cols[DELIVERY_passed]);
	if (delivery_numbers(&cols[DELIVERY_out], more, PATIENCE_NUMBERS) > 0) {
		w->quiet.until = loop_now() + (usec_t)more[PATIENCE_PAUSE] * USEC_MSEC;
		patience_told(&w->patience, more);
		return;
	}
	if (!wire_col_copy(&cols[DELIVERY_out], delivery, sizeof(delivery)) || delivery[0] == '\0')
		return;
	w->ours = (w->ours || !w->out) && ended_here(w, delivery);
	w->out = true;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct reader *w = arg;
	struct wire_col cols[SIFTED_COLUMNS];

	w->heard = loop_now();
	if (delivery_row(&w->got, body, len, cols))
		note_nothing(w, cols);
	if (w->got.lasts > 0 && task_sent_at(w->task) != 0)
		w->until = task_sent_at(w->task) + (usec_t)(w->got.lasts - 1) * USEC_MSEC;
	shown_row(w);
}

/* Who asked for it has left: the next one need not wait for the end of its lease. */
static void give_back_delivery(const struct reader *w)
{
	const char *token = w->got.token;

	if (token[0] != '\0')
		give_back(w->db, w->pool, &token, 1, INT64_MAX, NULL);
}

/* The answer was lost: whatever it has delivered is looked for. */
static void look_for_it(const struct reader *w)
{
	char name[1][QSTMT_QUEUE_MAX + 1];
	struct lost_jobs lost = {.names = (const char(*)[QSTMT_QUEUE_MAX + 1]) name,
		.n_names = 1,
		.lease = w->args.lease,
		.seed = w->seed,
		.pid = task_lost_in(w->task),
		.sent_at = task_sent_at(w->task)};

	util_strlcpy(name[0], w->args.queues[0], sizeof(name[0]));
	if (lost.pid != 0)
		back_lost(w->db, w->pool, &lost);
}

/* What was heard of before an error was not committed, or nobody knows; and is no part of the next
 * answer. */
static void forget_rows(struct reader *w)
{
	give_back_delivery(w);
	delivery_forget(&w->got);
	w->until = 0;
}

static void fail_behind_done(struct reader *w)
{
	struct pg_error err;

	pg_error_set(&err, "55000",
		"subscription \"%s\" has a delivery that this transaction has ended", w->name);
	pg_error_detail(&err, "The next one exists when the transaction is committed.");
	pg_error_hint(&err, "COMMIT before the next QUEUE TAKE.");
	park_fail(&w->park, &err);
}

/* What comes first of all lanes is waited for. */
static void note_all_passed(struct reader *w)
{
	note_due(w);
	w->due_ms = w->passed_ms > 0 ? w->passed_ms : DUE_UNTOLD;
	w->passed_ms = 0;
	mem_free(w->passed);
	w->passed = NULL;
}

static void wait_on(struct reader *w)
{
	const struct params *p = &conf_current()->p;
	usec_t at = loop_now() + (system_is_up(w->db) ? p->queue_rescan : p->queue_safety_poll);
	usec_t counted, due;

	if (w->due_ms != 0)
		note_all_passed(w);
	if (w->due_ms == LANE_LOCKED && w->wish->sub->slow > 0)
		w->due_ms = BESIDE_SLOW;
	due = w->due_ms > 0 ? loop_now() + (usec_t)w->due_ms * USEC_MSEC : USEC_NEVER;
	if (w->due_ms == 0 && !w->expired && !park_must_leave(w->taker)) {
		ask(w); /* what there was did not fit, and there is more */
		return;
	}
	if (w->args.where != NULL || (w->lag != NULL && due != USEC_NEVER))
		quiet_longer(&w->quiet, loop_now());
	if (w->args.where == NULL && w->quiet.until > due)
		w->quiet.until = due; /* it need not wait for what is pushed */
	if (w->park.wait == 0 || w->expired) {
		park_over(&w->park);
		return;
	}
	if (park_must_leave(w->taker)) {
		park_send_away(&w->park);
		return;
	}
	if (!park_limit(&w->park)) {
		park_no_memory(&w->park);
		return;
	}
	park_enter(&w->park);
	at = due < at ? due : at;
	if (w->again)
		at = loop_now();
	w->again = false;
	counted = w->least != NULL
			  ? patience_answered(&w->patience, w->wish->sub->of->counted, loop_now())
			  : USEC_NEVER;
	at = counted < at ? counted : at;
	subscribed_look_at(w->wish->sub, at);
	reader_asked(w);
}

/* --- a condition that fails --- */

/* It names the events in their order. */
static void fails_row(void *arg, const uint8_t *body, size_t len)
{
	struct reader *w = arg;
	struct wire_col cols[SIFT_COLUMNS];

	if (w->failure != NULL && wire_row_read(body, len, cols, SIFT_COLUMNS))
		(void)!wire_col_copy(&cols[SIFT_id], w->failure->event, sizeof(w->failure->event));
}

static void fails_done(void *arg, const struct pg_error *err)
{
	struct reader *w = arg;
	struct failure *f = w->failure;

	INVARIANT(f != NULL, "a condition that has not failed was looked into");
	w->task = NULL;
	if (w->taker == NULL) {
		reader_free(w);
		return;
	}
	/* no more, or another one: nobody knows which event it was */
	if (err != NULL && strcmp(err->sqlstate, f->err.sqlstate) == 0 && f->event[0] != '\0')
		sift_error(&f->err, w->args.queues[0], f->event);
	park_fail(&w->park, &f->err);
}

/* false: it is told as it is. */
static bool ask_where_it_fails(struct reader *w, const struct pg_error *err)
{
	static const struct task_ops ops = {.row = fails_row, .done = fails_done};

	if (w->args.where == NULL || w->expired || !sift_blames(err) ||
		(w->failure = mem_zalloc(sizeof(*w->failure))) == NULL)
		return false;
	w->failure->err = *err;
	return submit_where(w, &ops, true, NULL, "");
}

/* Payloads of another type than was thought. Who was not told of one gets the events as they are. */
static void refused(struct reader *w, const struct pg_error *err)
{
	struct pg_error changed;

	head_forget(w->db, w->args.queues[0]);
	if (!w->args.described && w->tries < SENT_AGAIN_MAX &&
		head_is_refusal(err, &w->args.payload)) {
		w->tries++;
		ask(w);
		return;
	}
	types_changed(&changed);
	park_fail(&w->park, w->args.described ? &changed : err);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct reader *w = arg;
	enum qpayload payload;

	look_for_it(w);
	w->task = NULL;
	err = bound_error(&w->bound, err, BOUND_LIMIT);
	bound_end(&w->bound);
	w->shown = w->shown != SHOWN_NOTHING ? SHOWN_ROWS : SHOWN_NOTHING;
	if (w->taker == NULL) {
		give_back_delivery(w);
		reader_free(w);
		return;
	}
	if (err != NULL)
		forget_rows(w);
	else
		w->repeats = 0;
	if (err != NULL && w->shown != SHOWN_NOTHING) {
		if (!ask_where_it_fails(w, err))
			park_fail(&w->park, err);
	} else if (merge_may_repeat(err, w->repeats)) {
		w->repeats++;
		ask(w);
	} else if (err != NULL && park_may_try_again(&w->park, err)) {
		w->due_ms = (int64_t)(conf_current()->p.queue_safety_poll / USEC_MSEC);
		wait_on(w);
	} else if (err != NULL && w->direct && strcmp(err->sqlstate, "42883") == 0) {
		/* it was dropped, and perhaps made anew */
		head_stream_is(w->db, w->args.queues[0], 0, w->args.payload);
		ask(w);
	} else if (err != NULL && head_is_refusal(err, &payload)) {
		refused(w, err);
	} else if (err != NULL) {
		if (strcmp(err->sqlstate, "3F000") == 0)
			schema_suspect(w->db);
		if (!ask_where_it_fails(w, err))
			park_fail(&w->park, err);
	} else if (buf_failed(&w->got.rows) || w->got.torn) {
		give_back_delivery(w);
		park_no_memory(&w->park);
	} else if (w->got.n > 0) {
		if (w->got.all)
			reader_had_all(w);
		if (!w->direct && w->got.stream > 0)
			head_stream_is(w->db, w->args.queues[0], w->got.stream, w->args.payload);
		end_answer(&w->park);
	} else if (w->out && w->ours) {
		fail_behind_done(w);
	} else {
		wait_on(w);
	}
}

/* --- asking --- */

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){
		.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

/* Of each TAKE its own. */
static const char *draw_seed(struct reader *w, char dst[24])
{
	do
		util_random(&w->seed, sizeof(w->seed));
	while (w->seed == 0);
	snprintf(dst, 24, "%lld", (long long)w->seed);
	return dst;
}

static bool submit_where(struct reader *w, const struct task_ops *ops, bool fails, const char *seed,
	const char *proxy)
{
	const struct sift sift = {.args = &w->args,
		.name = w->name,
		.least = w->least,
		.within = w->within,
		.lag = w->lag,
		.proxy = proxy,
		.seed = seed,
		.passed = w->passed};
	struct task_settings *settings = w->taker->ops->settings(w->taker);
	struct where_statement st;
	bool ok = sift_statement(&sift, fails, &st) && settings != NULL;
	const struct task_spec spec = {.ops = ops,
		.arg = w,
		.settings = settings,
		.sql = st.sql,
		.time = TASK_UNLIMITED,
		.leaves = st.leaves,
		.oids = st.oids,
		.n_params = st.n_params,
		.params = st.params,
		.n_formats = fails ? 0 : SIFTED_COLUMNS,
		.formats = w->formats};

	if (ok)
		w->task = task_submit(w->pool, &spec);
	task_settings_free(&settings);
	where_statement_free(&st);
	return w->task != NULL;
}

/* Never calls back before it returns. */
static bool submit(struct reader *w)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	static const enum call_id calls[QPAYLOAD_COUNT] = {
		[QPAYLOAD_JSONB] = CALL_TAKE_FOR,
		[QPAYLOAD_TEXT] = CALL_TAKE_FOR_TEXT,
		[QPAYLOAD_BYTEA] = CALL_TAKE_FOR_BYTEA,
	};
	const int64_t stream = head_stream(w->db, w->args.queues[0], w->args.payload);
	const struct queue_call *call = &queue_calls[calls[w->args.payload]];
	struct buf text = BUF_INIT;
	struct task_settings *settings = NULL;
	char limit[24], proxy[16], number[24];
	const int limit_len = snprintf(limit, sizeof(limit), "%d", w->args.limit);
	const int32_t stamp = registry_stamp(w->db);
	const int proxy_len = snprintf(proxy, sizeof(proxy), "%.0d", stamp); /* 0: empty */
	const char *seed = draw_seed(w, number);
	const struct bind_param params[] = {text_param(w->args.queues[0]), text_param(w->name),
		{.data = (const uint8_t *)limit, .len = limit_len}, text_param(w->least),
		text_param(w->within), text_param(w->args.lease), text_param(w->args.as),
		{.data = (const uint8_t *)proxy, .len = proxy_len}, text_param(seed),
		text_param(w->lag)};
	struct task_spec spec = {.ops = &ops,
		.arg = w,
		.sql = call->sql,
		.prepare = true,
		.engine = true,
		.oids = call->oids,
		.n_params = call->n_params,
		.params = params,
		.n_formats = DELIVERY_COLUMNS,
		.formats = w->formats};

	w->stamp = stamp;
	w->again = w->again &&
		   w->passed != NULL; /* there may be something in a lane that has been looked at */
	w->got.as_jsonb = w->args.payload == QPAYLOAD_JSONB && w->formats[DELIVERY_payload] != 0;
	patience_sent(&w->patience, w->wish->sub->of->counted);
	w->uncounted = w->wish->sub->of->uncounted;
	w->due_ms = DUE_UNTOLD;
	w->got.sifted = w->args.where != NULL;
	w->out = w->ours = false;
	w->direct = w->args.where == NULL && stream > 0;
	if (w->args.where != NULL)
		return submit_where(w, &ops, false, seed, proxy);
	if (w->direct) {
		call_put(&text, CALL_TAKE_FOR_DIRECT, stream);
		spec.sql = buf_cstr(&text);
	}
	settings = w->taker->ops->settings(w->taker);
	spec.settings = settings;
	if (settings != NULL && !buf_failed(&text))
		w->task = task_submit(w->pool, &spec);
	task_settings_free(&settings);
	buf_free(&text);
	return w->task != NULL;
}

static void ask(struct reader *w)
{
	if (!submit(w))
		park_no_memory(&w->park);
}

/* --- the beginning --- */

static struct taker *taker_of(const struct park *p)
{
	return of_park(p)->taker;
}

/* Part of a delivery is none: it is heard to the end, or was in vain. */
static bool is_over(struct park *p)
{
	struct reader *w = of_park(p);
	usec_t since = w->task != NULL ? task_sent_at(w->task) : 0;
	struct pg_error err;

	if (w->shown == SHOWN_UNREAD) {
		shown_is_over(w);
		return false;
	}
	w->expired = true;
	if (since != 0 && w->got.n > 0 && w->heard > since)
		since = w->heard;
	if (!park_is_over(p, since))
		return false;
	if (since == 0 || w->got.n == 0)
		return true;
	pg_error_set(&err, "08006", "the server stopped in the middle of a delivery");
	pg_error_hint(&err, "Its events are delivered again.");
	park_fail(p, &err);
	return false;
}

/* When the process is to end: a delivery that is coming is heard to the end. */
static bool lets_go(struct park *p, bool cancelled)
{
	return cancelled || of_park(p)->got.n == 0;
}

static void stat_reader(const struct park *p, struct queue_stat_waiter *st, struct buf *names)
{
	const struct reader *w = of_park(p);

	buf_puts(names, w->args.queues[0]);
	st->state = w->task != NULL ? "fetching" : "waiting";
	st->limit = w->args.limit;
	st->worker = w->args.as;
	st->takes_from = (const char(*)[QSTMT_QUEUE_MAX + 1]) w->args.queues;
	st->n_takes_from = w->args.n_queues;
}

static bool begin(struct reader *w)
{
	static const struct park_kind kind = {.taker = taker_of,
		.expire = is_over,
		.lets_go = lets_go,
		.leave = reader_end,
		.drained = shown_goes_on,
		.answer = end_answer,
		.stat = stat_reader};

	park_init(&w->park, &kind, w->taker, QVERB_TAKE, w->args.wait, w->args.since);
	w->park.behind_done = w->args.behind_done;
	if ((w->park.wait > 0 && !park_limit_asking(&w->park)) || !reader_enlist(w) ||
		(!reader_rests(w) && !submit(w))) {
		park_leave(&w->park);
		reader_unlist(w);
		return false;
	}
	w->taker->park = &w->park;
	return true;
}

static bool name_read(struct reader *w, const char *text, struct pg_error *err)
{
	if (text == NULL || text[0] == '\0') {
		pg_error_set(err, "22004", "the name of the subscription is missing");
		return false;
	}
	if (strlen(text) > SUBSCRIPTION_MAX) {
		pg_error_set(err, "42622", "the name of the subscription is longer than %d bytes",
			SUBSCRIPTION_MAX);
		return false;
	}
	util_strlcpy(w->name, text, sizeof(w->name));
	return true;
}

bool stream_takes(const struct qstmt *q, struct pg_error *err)
{
	if (!qstmt_has(q, QARG_RANK))
		return true;
	pg_error_set(err, "0A000", "RANK is not possible with a stream");
	pg_error_hint(err, "Who waits for a subscription longest is served first.");
	return false;
}

/* THEN TAKE FOR may leave out the stream: that of the delivery. */
static bool fits(const struct reader *w, const struct qstmt *q, struct pg_error *err)
{
	if (w->args.n_queues > 1 || (w->args.n_queues == 0 && q->then == NULL)) {
		pg_error_set(err, "0A000", "QUEUE TAKE ... FOR takes from one stream");
		pg_error_hint(err, "Take from each stream by a statement of its own.");
		return false;
	}
	if (qstmt_has(q, QARG_HOLD)) {
		pg_error_set(err, "0A000", "HOLD is not possible with a stream");
		pg_error_hint(err,
			"Say how long the work takes: LEASE interval; QUEUE EXTEND moves its end.");
		return false;
	}
	return true;
}

static bool reader_read(struct reader *w, struct exec *x, const struct qstmt *q,
	const struct names *names, struct pg_error *err)
{
	const struct bind_values *b = &x->bind;
	char *name = NULL;
	bool ok = take_check(x, q, names, &w->args, err) && fits(w, q, err) &&
		  take_text(&name, qstmt_one(q, QARG_READER), b, err, "FOR") &&
		  name_read(w, name, err) &&
		  take_text(&w->least, qstmt_one(q, QARG_LEAST), b, err, "MIN") &&
		  take_text(&w->within, qstmt_one(q, QARG_WITHIN), b, err, "WITHIN") &&
		  take_text(&w->lag, qstmt_one(q, QARG_LAG), b, err, "LAG");

	mem_free(name);
	for (int i = 0; i < DELIVERY_due_ms && b->n_formats > 0; i++)
		w->formats[i] = b->formats[b->n_formats == 1 ? 0 : i];
	return ok;
}

struct reader *stream_reader(
	struct exec *x, const struct qstmt *q, struct qclient *qc, const struct names *names)
{
	struct reader *w = mem_zalloc(sizeof(*w));

	CHECK_QCLIENT(qc);
	if (w == NULL) {
		pg_error_set(&x->err, "53200", "out of memory");
		return NULL;
	}
	w->taker = &qc->taker;
	w->db = qc->taker.db;
	taking_begins(w->db);
	w->pool = qc->taker.pool;
	w->args.since = deferred_since(qc, q);
	if (reader_read(w, x, q, names, &x->err))
		return w;
	reader_free(w);
	return NULL;
}

void stream_reader_free(struct reader **p)
{
	struct reader *w = *p;

	*p = NULL;
	if (w != NULL)
		reader_free(w);
}

bool stream_reader_knows(const struct reader *w)
{
	return w->args.n_queues > 0;
}

bool stream_reader_of(struct reader *w, const struct names *names)
{
	return take_args_queues(&w->args, names);
}

bool stream_begin_behind_done(struct reader **p, const struct names *names, struct pg_error *err)
{
	struct reader *w = *p;

	INVARIANT(w->wish == NULL && w->task == NULL, "a reader begins twice");
	w->args.behind_done = true;
	w->args.since = 0;
	if (w->args.n_queues == 0 && !take_args_queues(&w->args, names))
		pg_error_set(err, "53200", "out of memory");
	else if (w->args.n_queues != 1)
		pg_error_set(err, "42P01", "the stream of the delivery does not exist any more");
	else if (!begin(w))
		pg_error_set(err, "53200", "out of memory");
	else
		*p = NULL;
	return *p == NULL;
}

enum exec_verdict stream_take(struct exec *x, const struct qstmt *q, struct qclient *qc)
{
	struct reader *w = stream_reader(x, q, qc, &qc->then_names);

	if (w == NULL)
		return EXEC_ERROR;
	if (w->args.n_queues == 1 && begin(w))
		return EXEC_PARK;
	pg_error_set(&x->err, w->args.n_queues == 1 ? "53200" : "42P01", "%s",
		w->args.n_queues == 1 ? "out of memory"
				      : "the stream of the delivery does not exist any more");
	reader_free(w);
	return EXEC_ERROR;
}

bool stream_start(void)
{
	return subscribed_start(ask);
}

void stream_free(void)
{
	subscribed_free();
}
