/*
 * The waiting room: the life of a TAKE or POP. It asks the database; when it finds nothing and may
 * wait, it parks in the wait queues of its queues, without a server connection, and asks again when a
 * wait queue is woken (waitq.c). What all have in common who wait is park.c.
 *
 * Every wait ends through waiter_end().
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "agent.h"
#include "await.h"
#include "back.h"
#include "bound.h"
#include "consumer.h"
#include "count.h"
#include "handoff.h"
#include "head.h"
#include "lease.h"
#include "park.h"
#include "registry.h"
#include "schema_int.h"
#include "system.h"
#include "take.h"
#include "token.h"
#include "types.h"
#include "wait_int.h"

/* --- one waiter --- */

static void leave_waitqs(struct waiter *w)
{
	if (w->members == NULL)
		return;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct waitq *r = w->members[i].waitq;

		if (r == NULL)
			continue;
		INVARIANT(r->n_members > 0 && w->members[i].waiter == w,
			"a waiter leaves the place of another");
		DL_DELETE(r->members, &w->members[i]);
		r->n_where -= w->args.where != NULL;
		if (--r->n_members == 0) {
			waitq_free(r);
			continue;
		}
		if (r->credits > waitq_n_plain(r))
			r->credits = waitq_n_plain(r);
		/* those behind it may have waited for its answer */
		r->looks = r->looks || r->n_where > 0;
		/* a credit that was kept for it is for the next one */
		waitq_ready(r);
	}
	mem_free(w->members);
	w->members = NULL;
	park_leave(&w->park);
}

static bool goes_before(const struct waiter *a, const struct waiter *b)
{
	return a->args.rank != b->args.rank ? a->args.rank > b->args.rank : a->number < b->number;
}

/* By rank, then in the order of coming: one that asked first may get here behind one that had no need to ask. */
static void insert_member(struct waitq *r, struct member *m)
{
	struct member *at = r->members != NULL ? r->members->prev : NULL;

	while (at != NULL && goes_before(m->waiter, at->waiter))
		at = at != r->members ? at->prev : NULL;
	if (at != NULL)
		DL_APPEND_ELEM(r->members, at, m);
	else
		DL_PREPEND(r->members, m);
	r->n_members++;
	r->n_where += m->waiter->args.where != NULL;
	m->low = INT64_MAX;
}

static bool enter_waitqs(struct waiter *w)
{
	INVARIANT(w->members == NULL && w->args.n_queues > 0,
		"a waiter enters its wait queues twice");
	w->members = mem_zalloc((size_t)w->args.n_queues * sizeof(*w->members));
	if (w->members == NULL)
		return false;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];
		struct waitq *r = waitq_get(w->db, w->args.queues[i]);

		if (r == NULL)
			return false;
		m->waitq = r;
		m->waiter = w;
		insert_member(r, m);
	}
	if (!park_limit(&w->park))
		return false;
	park_enter(&w->park);
	system_need(w->db, w->pool);
	return true;
}

static void waiter_free(struct waiter *w)
{
	CHECK_WAITER(w);
	INVARIANT(w->members == NULL && !waiter_is_busy(w),
		"a waiter ends and asks on, or stays in its wait queues");
	CHECK_WAITER(w);
	taking_ended(w->db);
	take_args_free(&w->args);
	buf_free(&w->answer.rows);
	mem_free(w->taken);
	mem_free(w->formats);
	w->magic = 0;
	block_put(w, sizeof(*w));
}

/* It was woken and does not ask any more: the next one does in its place. */
static void pass_on(struct waiter *w)
{
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++)
		if (w->members[i].waitq != NULL)
			waitq_wake_one(w->members[i].waitq, 1);
}

static struct waiter *of_park(const struct park *p)
{
	return CONTAINER_OF(p, struct waiter, park);
}

/*
 * The one way out: of the wait queues, the timers, who takes. A statement that already runs is waited
 * for by nobody: what it takes is given back.
 */
static struct taker *waiter_end(struct park *p)
{
	struct waiter *w = of_park(p);
	struct taker *t = w->taker;

	if (w->item != NULL && merge_drop(w->item)) {
		w->item = NULL;
		pass_on(w);
	}
	/* nobody knows how long a condition takes */
	if (w->item != NULL && w->args.where != NULL)
		merge_cancel(w->item);
	if (w->handoff != NULL)
		(void)!handoff_leave(w);
	leave_waitqs(w);
	park_leave(p);
	if (w->taker != NULL)
		w->taker->park = NULL;
	w->taker = NULL;
	if (!waiter_is_busy(w))
		waiter_free(w);
	return t;
}

/* Of a simple query. The type may be known only now; in the extended protocol it was told before.
 */
static void set_columns(const struct waiter *w, struct answer *a)
{
	const struct qverb *v = &qverbs[w->args.pop ? QVERB_POP : QVERB_TAKE];

	a->fields = qverb_columns(v, w->args.payload);
	a->n_fields = v->n_columns;
}

static void say_cut(struct answer *a)
{
	struct pg_error notice;

	pg_error_set(&notice, "00000", "not all jobs that are ready were looked at");
	pg_error_severity(&notice, "NOTICE");
	pg_error_detail(&notice, "WHERE reads the first 10000 of a queue.");
	pg_error_hint(&notice,
		"Jobs that are taken apart from the others are better pushed to a queue of their own.");
	build_notice(&a->notices, &notice);
}

static void end_empty(struct park *p)
{
	struct answer a = {0};
	struct taker *t;

	set_columns(of_park(p), &a);
	if (of_park(p)->cut)
		say_cut(&a);
	count_done(p->verb, 0);
	t = waiter_end(p);
	util_strlcpy(a.tag, "SELECT 0", sizeof(a.tag));
	if (t != NULL)
		t->ops->answer(t, &a);
}

static void ask_failed(struct waiter *w)
{
	park_no_memory(&w->park);
}

/* --- the end of a fetch --- */

static void give_back_taken(struct waiter *w)
{
	const char **tokens;
	int64_t place = INT64_MAX;

	if (w->n_taken == 0 || w->args.pop)
		return;
	tokens = mem_alloc((size_t)w->n_taken * sizeof(*tokens));
	if (tokens == NULL)
		return; /* the leases run out by themselves */
	for (int i = 0; i < w->n_taken; i++) {
		tokens[i] = w->taken[i].token;
		if (w->taken[i].place < place)
			place = w->taken[i].place;
	}
	give_back(w->db, w->pool, tokens, w->n_taken, place, NULL);
	mem_free(tokens);
}

static void asks_again(void *arg)
{
	struct waiter *w = arg;

	w->n_taken = 0;
	buf_reset(&w->answer.rows);
	w->answer.n_rows = 0;
}

/* What it was told of was not committed, or nobody knows: then it is not left to the end of the
 * leases. */
static void forget_rows(struct waiter *w)
{
	give_back_taken(w);
	asks_again(w);
}

/* Does the next one in line ask already? It will say whether there is more. */
static bool next_asks(const struct waitq *r, const struct waiter *w)
{
	const struct member *m = r->members;

	if (m != NULL && m->waiter == w)
		m = m->next;
	return m != NULL && waiter_is_busy(m->waiter) && !waiter_is_stuck(m->waiter);
}

/* What the wait queues learn from jobs that were found: there may be more, and leases will end. */
static void found_in_waitqs(struct waiter *w)
{
	usec_t soon = LOOK_AGAIN;

	if (w->due_ms > 0 && (usec_t)w->due_ms * USEC_MSEC < soon)
		soon = (usec_t)w->due_ms * USEC_MSEC;
	for (int i = 0; i < w->n_taken; i++) {
		struct waitq *r;

		if (i > 0 && strcmp(w->taken[i].queue, w->taken[i - 1].queue) == 0)
			continue;
		r = waitq_find(w->db, w->taken[i].queue);
		if (r == NULL)
			continue;
		if (w->args.where != NULL && !r->unknown)
			r->credits -= r->credits > 0;
		if (r->credits == 0 && !r->looks)
			waitq_unready(r);
		r->found += r->unknown;
		if (r->unknown && r->credits == 0 && !next_asks(r, w))
			waitq_go_on(r);
		waitq_ready(r);
		if (r->due_at > loop_now() + soon) {
			r->due_at = loop_now() + soon;
			r->due_told = soon < LOOK_AGAIN;
		}
		waitq_schedule(r);
	}
}

/* A pop has no token to tell the end of its jobs by. */
static void popped(struct waiter *w)
{
	char job[TOKEN_MAX];

	for (int i = 0; i < w->n_taken && w->db->awaited != NULL; i++) {
		token_job_put(head_number(w->db, w->taken[i].queue), w->taken[i].id, job);
		await_event(w->db, job, "done");
	}
}

static char *key_of(const struct waiter *w, const struct taken *t)
{
	char *key = mem_alloc((size_t)t->key_len + 1);

	if (key == NULL || buf_failed(&w->answer.rows)) {
		mem_free(key);
		return NULL;
	}
	memcpy(key, w->answer.rows.data + t->key_at, (size_t)t->key_len);
	key[t->key_len] = '\0';
	return key;
}

static void add_leases(struct waiter *w)
{
	if (w->args.pop) {
		popped(w);
		return;
	}
	w->taker->answers++;
	for (int i = 0; i < w->n_taken; i++) {
		struct taken *t = &w->taken[i];
		struct lease *l = lease_add(w->taker, t->id, t->token, t->queue, t->policy, true);

		if (l == NULL) {
			w->answer.rows.failed = true;
			continue;
		}
		if (t->key_len >= 0) /* without memory it has to be named otherwise */
			l->key = key_of(w, t);
		l->place = t->place;
		l->tally = t->tally;
		if (t->lease_ms > 0 && w->taken_since != 0)
			l->until = w->taken_since + (usec_t)(t->lease_ms - 1) * USEC_MSEC;
		l->stamped = w->stamp != 0 && (t->policy != LEASE_KEEP || w->args.hold > 0);
		if (w->args.hold > 0)
			hold_begin(l, w->taken_since != 0 ? w->taken_since : loop_now(),
				w->args.hold, w->args.span);
	}
	/* the session came up while the job was on its way */
	if (w->stamp == 0 && registry_stamp(w->db) != 0)
		registry_adopt(w->taker);
	if (w->taker->ops->leased != NULL)
		w->taker->ops->leased(w->taker);
}

/* Those of one queue stand together, or nearly: looked up once for each run, not for each job. */
static void count_taken(struct waiter *w)
{
	int from = 0;

	for (int i = 1; i <= w->n_taken; i++)
		if (i == w->n_taken || strcmp(w->taken[i].queue, w->taken[from].queue) != 0) {
			struct tally *t =
				count_served(w->db, w->taken[from].queue, (unsigned)(i - from));
			struct figures *f = count_in(w->taker, t, false);

			f->n[FIGURE_TAKEN] += i - from;
			f->n[FIGURE_DONE] += w->args.pop ? i - from : 0;
			for (; from < i; from++) {
				w->taken[from].tally = t;
				if (w->taken[from].waited >= 0)
					figures_waited(f, w->taken[from].waited);
			}
		}
}

/* It would be sent away with the jobs in its hands. */
static bool would_be_cut_off(const struct waiter *w)
{
	return !w->args.pop && w->taker->ops->is_to_leave(w->taker);
}

static void deliver(struct waiter *w)
{
	struct taker *t = w->taker;
	struct answer a = {0};

	INVARIANT(w->n_taken > 0 && w->taker->park == &w->park,
		"jobs for one who does not wait for them");
	found_in_waitqs(w);
	if (would_be_cut_off(w)) {
		forget_rows(w);
		park_send_away(&w->park);
		return;
	}
	if (!t->ops->is_there(t) || buf_failed(&w->answer.rows)) {
		give_back_taken(w);
		park_no_memory(&w->park);
		return;
	}
	if (!w->args.pop)
		system_need(w->db, w->pool); /* its lock says that these leases have somebody */
	count_taken(w);
	add_leases(w);
	w->db->served += (uint64_t)w->n_taken;
	if (w->event_at != 0 && w->members != NULL)
		hist_add(&w->db->delivery, loop_now() - w->event_at);
	count_done(w->park.verb, (unsigned)w->n_taken);
	a.rows = w->answer.rows;
	a.n_rows = w->answer.n_rows;
	answer_tag(&a, "SELECT", a.n_rows);
	set_columns(w, &a);
	w->answer.rows = BUF_INIT;
	t = waiter_end(&w->park);
	if (t != NULL)
		t->ops->deliver(t, &a);
	else
		answer_free(&a);
}

/* from_front: it has looked at all there is, whatever the head thinks of its low marks. */
static void waitq_was_empty(struct waitq *r, uint64_t asked_gen, int64_t due_ms, bool from_front)
{
	usec_t now = loop_now(), look_at;

	if (due_ms != DUE_UNKNOWN) {
		r->due_at = due_ms >= 0 ? now + (usec_t)due_ms * USEC_MSEC : USEC_NEVER;
		r->due_told = true;
	} else if (r->due_at > now + LOOK_AGAIN) {
		r->due_at = now + LOOK_AGAIN;
		r->due_told = false;
	}
	look_at = head_look_at(r->db, r->name);
	if (r->due_at > look_at && (look_at > now || !from_front)) {
		r->due_at = look_at;
		r->due_told = false;
	}
	if (r->gen == asked_gen) {
		r->credits = 0;
		r->event_at = 0;
		r->unknown = false;
		waitq_unready(r);
	}
	/* woken meanwhile: the answer is older than the news */
	waitq_ready(r);
	waitq_schedule(r);
}

/* What does not fit one says nothing of the others. */
static void waitq_looked_at(struct member *m, const struct waiter *w, bool fresh)
{
	struct waitq *r = m->waitq;
	usec_t now = loop_now(), at = now + LOOK_AGAIN;

	if (fresh && w->looked_in_part)
		m->low = 0;
	if (w->due_ms != DUE_UNKNOWN)
		at = w->due_ms >= 0 ? now + (usec_t)w->due_ms * USEC_MSEC : USEC_NEVER;
	/* what others take in front of it brings more within its reach, and nobody tells */
	if (w->cut && at > now + LOOK_AGAIN)
		at = now + LOOK_AGAIN;
	if (at < r->due_at) {
		r->due_at = at;
		r->due_told = w->due_ms != DUE_UNKNOWN;
	}
	if (m->news && w->quiet.until < r->look_at)
		r->look_at = w->quiet.until;
	r->looks = true;
	waitq_ready(r);
	waitq_schedule(r);
}

static bool enter_or_fail(struct waiter *w)
{
	if (enter_waitqs(w))
		return true;
	park_no_memory(&w->park);
	return false;
}

/* Of those who wait here the consumer is the first: it is asked for what is new. The others follow in the order of
 * coming, whatever their ranks. */
static void goes_behind_it(struct waiter *w)
{
	w->args.rank = w->others ? INT32_MIN : INT32_MAX;
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		struct waitq *r = w->members[i].waitq;

		DL_DELETE(r->members, &w->members[i]);
		r->n_members--;
		insert_member(r, &w->members[i]);
	}
}

static void found_nothing(struct waiter *w)
{
	bool fresh = w->members == NULL;

	if (w->args.where != NULL && looks_vain(w))
		return;
	taken_free(w); /* it may be long before there is a job */
	if (w->over == OVER_CANCELLED) {
		park_cancelled(&w->park);
		return;
	}
	if (w->park.wait == 0 || w->over != OVER_NOT) {
		park_over(&w->park);
		return;
	}
	if (park_must_leave(w->taker)) {
		park_send_away(&w->park);
		return;
	}
	if (w->alone)
		goes_behind_it(w);
	if (fresh && !enter_or_fail(w))
		return;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct member *m = &w->members[i];

		if (fresh)
			m->gen = m->waitq->gen;
		if (w->args.where != NULL)
			waitq_looked_at(m, w, fresh);
		else
			waitq_was_empty(m->waitq, m->gen, w->due_ms, w->args.n_queues > 1);
		/* something was announced before it was in the wait queue: it may have asked too early */
		if (fresh && w->wakes != w->db->wakes) {
			m->low = 0;
			m->news = true;
			waitq_wake_one(m->waitq, 0);
		}
	}
}

/* It left its wait queues while it asked in vain: what it was woken for is for those who are there. */
static void others_ask(const struct waiter *w)
{
	for (int i = 0; i < w->args.n_queues; i++) {
		struct waitq *r = waitq_find(w->db, w->args.queues[i]);

		if (r != NULL)
			waitq_wake_one(r, 1);
	}
}

/* Payloads of another type than was thought. Who was not told of one gets the jobs as they are. */
static void refused(struct waiter *w, const struct pg_error *err)
{
	struct pg_error changed;
	enum qpayload payload;

	for (int i = 0; i < w->args.n_queues; i++)
		head_forget(w->db, w->args.queues[i]);
	if (w->again < SENT_AGAIN_MAX && !w->args.described) {
		w->again++;
		if (head_is_refusal(err, &payload))
			w->args.payload = payload;
		if (fetch_start(w))
			return;
	}
	types_changed(&changed);
	pass_on(w);
	park_fail(&w->park, w->args.described ? &changed : err);
}

/* One of its queues is a single consumer's, which was not known. */
static void has_consumer(struct waiter *w, const struct pg_error *err)
{
	struct pg_error several;

	if (w->args.n_queues == 1 && w->again++ < SENT_AGAIN_MAX &&
		consumer_learn(w->db, w->args.queues[0], err->message) && fetch_start(w))
		return;
	pg_error_set(&several, "0A000",
		"a queue with a single consumer has to be the only one of a TAKE or POP");
	pg_error_hint(&several, "Take from it by a statement of its own.");
	pass_on(w);
	park_fail(&w->park, &several);
}

static void waiter_lost(void *arg, const struct merge_lost *lost)
{
	struct waiter *w = arg;
	struct lost_jobs jobs = {.names = (const char(*)[QSTMT_QUEUE_MAX + 1]) w->args.queues,
		.n_names = w->args.n_queues,
		.lease = w->args.lease,
		.seed = lost->seed,
		.pid = lost->pid,
		.sent_at = lost->sent_at};

	if (!w->args.pop)
		back_lost(w->db, w->pool, &jobs);
}

/* Asks again; after that with a statement of its own, which is stopped for nobody else. */
static bool stopped(struct waiter *w)
{
	w->stopped++;
	return fetch_start(w);
}

static void waiter_asked(void *arg, const struct pg_error *err)
{
	struct waiter *w = arg;

	CHECK_WAITER(w);
	INVARIANT(w->handoff == NULL, "a waiter asks while it is handed something");
	w->item = NULL;
	if (err != NULL)
		forget_rows(w);
	else
		w->stopped = 0;
	if (err != NULL && w->args.where != NULL)
		looks_failed(w);
	if (w->taker == NULL) {
		if (w->alone)
			consumer_late(w);
		if (err == NULL)
			give_back_taken(w);
		else
			others_ask(w);
		found_in_waitqs(w);
		waiter_free(w);
		return;
	}
	if (err != NULL && strcmp(err->sqlstate, "08007") == 0 && w->over == OVER_NOT &&
		!w->args.pop && w->park.wait == 0 && w->again++ < SENT_AGAIN_MAX &&
		fetch_start(w)) {
		/* whatever the first one has taken is given back */
	} else if (err != NULL && strcmp(err->sqlstate, "57P03") == 0 &&
		   w->over == OVER_CANCELLED) {
		pass_on(w);
		park_cancelled(&w->park);
	} else if (err != NULL && (w->args.where != NULL || w->args.pop) &&
		   strcmp(err->sqlstate, "57P03") == 0 && w->over == OVER_NOT &&
		   w->stopped < STOPPED_MAX && stopped(w)) {
		/* it was stopped for one who shared it */
	} else if (err != NULL && strcmp(err->sqlstate, CONSUMER_STATE) == 0) {
		has_consumer(w, err);
	} else if (err != NULL && park_may_try_again(&w->park, err)) {
		w->due_ms = (int64_t)(conf_current()->p.queue_safety_poll / USEC_MSEC);
		if (strcmp(err->sqlstate, BOUND_STATE) == 0)
			w->refused_until = loop_now() + conf_current()->p.queue_safety_poll;
		found_nothing(w);
	} else if (err != NULL && strcmp(err->sqlstate, "42804") == 0) {
		refused(w, err);
	} else if (err != NULL) {
		if (strcmp(err->sqlstate, "3F000") == 0)
			schema_suspect(w->db);
		pass_on(w);
		park_fail(&w->park, err);
	} else {
		for (int i = 0; i < w->args.n_queues; i++)
			agent_took(w->taker, w->args.queues[i]);
		if (w->n_taken > 0)
			deliver(w);
		else
			found_nothing(w);
	}
}

/* Both wait, and were woken for the same: who came first is not passed over because he has asked first. */
static bool asks_on(void *arg, const void *behind)
{
	struct waiter *w = arg;
	const struct waiter *other = behind;
	struct member *m = w->members;

	CHECK_WAITER(w);
	CHECK_WAITER(other);
	if (m == NULL || other->members == NULL || w->taker == NULL || w->args.n_queues != 1 ||
		w->args.where != NULL || w->over != OVER_NOT || w->alone ||
		park_must_leave(w->taker) || !goes_before(w, other))
		return false;
	/* the credit that a later wake has kept for it (waitq.c) */
	if (m->gen != m->waitq->gen && m->waitq->credits > 0 && --m->waitq->credits == 0)
		m->waitq->event_at = 0;
	if (m->waitq->credits == 0 && !m->waitq->looks)
		waitq_unready(m->waitq);
	m->gen = m->waitq->gen;
	m->waitq->n.fetches++;
	w->db->fetches++;
	w->wakes = w->db->wakes;
	w->n_taken = 0;
	w->due_ms = DUE_UNKNOWN;
	return true;
}

/* Those whose jobs were not among what was pushed wait on, where they were. */
static void waiter_handed(struct waiter *w, bool ok)
{
	struct waitq *r = ok && w->n_taken > 0 ? waitq_find(w->db, w->taken[0].queue) : NULL;

	CHECK_WAITER(w);
	w->handoff = NULL;
	if (r != NULL)
		r->n.handed += (uint64_t)w->n_taken;
	if (!ok)
		forget_rows(w);
	if (w->taker == NULL) {
		give_back_taken(w);
		found_in_waitqs(w);
		waiter_free(w);
	} else if (w->n_taken > 0) {
		deliver(w);
	} else if (w->over != OVER_NOT) {
		park_over(&w->park);
	} else {
		taken_free(w);
		for (int i = 0; i < w->args.n_queues; i++)
			waitq_ready(w->members[i].waitq);
	}
}

static void common_row(void *arg, const uint8_t *body, size_t len, int first)
{
	(void)first;
	taken_row(arg, body, len);
}

const struct waiter_ops waiter_ops = {.ask = fetch_start,
	.asks_with = fetch_is_shared,
	.ask_failed = ask_failed,
	.handed = waiter_handed,
	.fetch = {.row = taken_row,
		.common = common_row,
		.again = asks_again,
		.asks_on = asks_on,
		.lost = waiter_lost,
		.done = waiter_asked}};

/* --- the beginning --- */

static bool same_question(const struct take_args *a, const struct take_args *b)
{
	return take_same_text(a->lease, b->lease) && a->pop == b->pop && a->where == NULL &&
	       b->where == NULL;
}

/* Does somebody of the same role wait already in each of its wait queues, who asked for the same? Then
 * nothing is there, and nothing is wrong. */
static bool nothing_there(const struct waiter *w)
{
	if (park_must_leave(w->taker))
		return false;
	for (int i = 0; i < w->args.n_queues; i++) {
		struct waitq *r = waitq_find(w->db, w->args.queues[i]);

		if (r == NULL || r->credits > 0 || r->members == NULL ||
			r->members->prev->waiter->alone ||
			r->members->prev->waiter->pool != w->pool ||
			waiter_is_busy(r->members->prev->waiter) ||
			!same_question(&r->members->prev->waiter->args, &w->args))
			return false;
	}
	return true;
}

/* --- as one who is parked --- */

static struct taker *taker_of(const struct park *p)
{
	return of_park(p)->taker;
}

/* What is on its way comes in a moment, or nobody waits for it: what it takes is given back. What
 * is popped could not be: that is stopped, and its end waited for. What waits for a server may wait
 * for long. */
static bool is_over(struct park *p)
{
	struct waiter *w = of_park(p);
	usec_t since = waiter_asks_since(w);

	w->over = OVER_EXPIRED;
	if (w->handoff != NULL && handoff_leave(w))
		since = 0;
	if (since == 0 || (waiter_is_stuck(w) && !w->args.pop))
		return true;
	if (waiter_is_stuck(w))
		merge_cancel(w->item);
	else if (!park_again_at(p, since + STUCK_AFTER))
		return !w->args.pop;
	return false;
}

/* As is_over(), but at once. */
static bool lets_go(struct park *p, bool cancelled)
{
	struct waiter *w = of_park(p);

	if (!w->args.pop || waiter_asks_since(w) == 0)
		return true;
	if (cancelled) {
		w->over = OVER_CANCELLED;
		merge_cancel(w->item);
	}
	return false;
}

static void stat_waiter(const struct park *p, struct queue_stat_waiter *st, struct buf *names)
{
	const struct waiter *w = of_park(p);

	for (int i = 0; i < w->args.n_queues; i++)
		buf_printf(names, "%s%s", i > 0 ? ", " : "", w->args.queues[i]);
	st->state = waiter_is_busy(w) ? "asking" : "parked";
	st->limit = w->args.limit;
	st->rank = w->args.rank;
	st->worker = w->args.as;
	st->takes_from = (const char(*)[QSTMT_QUEUE_MAX + 1]) w->args.queues;
	st->n_takes_from = w->args.n_queues;
}

bool waiter_start(
	struct taker *t, struct take_args *args, const struct bind_values *bind, int n_columns)
{
	static const struct park_kind kind = {.taker = taker_of,
		.expire = is_over,
		.lets_go = lets_go,
		.leave = waiter_end,
		.answer = end_empty,
		.stat = stat_waiter};
	struct waiter *w = block_zget(sizeof(*w));

	CHECK_TAKER(t);
	if (w == NULL)
		return false;
	if (bind->n_formats > 0) {
		w->formats = mem_dup(bind->formats, (size_t)bind->n_formats * sizeof(*w->formats));
		if (w->formats == NULL) {
			block_put(w, sizeof(*w));
			return false;
		}
		w->n_formats = bind->n_formats;
	}
	INVARIANT(t->park == NULL && t->request == NULL, "one waits for two things");
	w->magic = WAITER_MAGIC;
	w->ops = &waiter_ops;
	w->taker = t;
	w->db = t->db;
	taking_begins(w->db);
	w->pool = t->pool;
	w->args = *args;
	*args = (struct take_args){0};
	w->n_columns = n_columns;
	w->number = ++w->db->last_waiter;
	park_init(&w->park, &kind, t, w->args.pop ? QVERB_POP : QVERB_TAKE, w->args.wait,
		w->args.since);
	w->park.behind_done = w->args.behind_done;
	t->park = &w->park;
	w->due_ms = -1;
	if (w->park.wait > 0 && nothing_there(w) && enter_waitqs(w))
		return true;
	leave_waitqs(w);
	if (fetch_start(w)) {
		/* it may be long until a server is there to be asked; without memory it is that
		 * long */
		if (w->park.wait > 0)
			(void)!park_limit_asking(&w->park);
		return true;
	}
	t->park = NULL;
	waiter_free(w);
	return false;
}

void queue_stat_each_delivery(
	void (*fn)(const char *database, const struct hist *h, void *arg), void *arg)
{
	struct qdb *db, *tmp;

	HASH_ITER (hh, qdb_first(), db, tmp)
		fn(db->name, &db->delivery, arg);
}
