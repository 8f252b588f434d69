/*
 * Those who are parked (park.h): their deadlines, their signs of life, and the ends that have nothing to
 * do with what they wait for. Must not know: jobs, queues, statements.
 *
 * Entry points: park_*.
 */
#include <string.h>

#include "qlang/explain.h"
#include "qlang/refusal.h"
#include "queue/stat.h"
#include "bound.h"
#include "count.h"
#include "heap.h"
#include "park.h"

#define FIRST_ANSWER USEC_SEC

/* Signs of life that are due within a tenth of their period go out one behind the other, so many in a
 * turn of the loop: of thousands who wait each would be a turn by itself, on a processor that has gone
 * to sleep, for readers that have, too. */
#define BEATS_TOGETHER 10
#define BEATS_AT_ONCE  16

static struct {
	struct heap deadlines;
	struct park *parked;
	struct loop_tick *tick;
	usec_t beats_until; /* what is due until then goes out now; 0: nothing is on its way */
} parks;

/* --- one of them --- */

void park_init(struct park *p, const struct park_kind *kind, const struct taker *t, int verb,
	usec_t wait, usec_t since)
{
	usec_t timeout = t->ops->statement_timeout != NULL ? t->ops->statement_timeout(t) : 0;

	INVARIANT(p->kind == NULL && kind != NULL, "one is parked twice");
	p->kind = kind;
	p->verb = verb;
	p->wait = wait;
	p->started = since > 0 ? since : loop_now();
	if (timeout == 0 || timeout >= wait)
		return;
	p->wait = timeout;
	p->by_statement_timeout = true;
}

static bool limit(struct park *p, usec_t wait)
{
	if (!heap_set(&parks.deadlines, &p->deadline, p->started + wait))
		return false;
	loop_tick_at(parks.tick, p->deadline.when);
	return true;
}

bool park_limit(struct park *p)
{
	return limit(p, p->wait);
}

bool park_limit_asking(struct park *p)
{
	CHECK_PARK(p);
	return limit(
		p, p->wait < FIRST_ANSWER && !p->by_statement_timeout ? FIRST_ANSWER : p->wait);
}

bool park_again_at(struct park *p, usec_t when)
{
	CHECK_PARK(p);
	if (!heap_set(&parks.deadlines, &p->deadline, when))
		return false;
	loop_tick_at(parks.tick, when);
	return true;
}

bool park_is_over(struct park *p, usec_t since)
{
	return since == 0 || loop_now() - since >= STUCK_AFTER ||
	       !park_again_at(p, since + STUCK_AFTER);
}

static bool park_is_in(const struct park *p)
{
	return p->prev != NULL;
}

void park_enter(struct park *p)
{
	usec_t period = conf_current()->p.queue_heartbeat;

	CHECK_PARK(p);
	if (park_is_in(p))
		return;
	p->entered = p->beaten = loop_now();
	DL_APPEND(parks.parked, p);
	if (p->kind->taker(p)->ops->waits != NULL)
		p->kind->taker(p)->ops->waits(p->kind->taker(p));
	if (period > 0)
		loop_tick_at(parks.tick, p->beaten + period);
}

void park_leave(struct park *p)
{
	CHECK_PARK(p);
	heap_remove(&parks.deadlines, &p->deadline);
	if (park_is_in(p)) {
		struct taker *t = p->kind->taker(p);

		INVARIANT(parks.parked != NULL && t != NULL, "a park ends after who waited in it");
		DL_DELETE(parks.parked, p);
		if (t->ops->waited != NULL)
			t->ops->waited(t, loop_now() - p->entered);
	}
	p->prev = p->next = NULL;
}

bool park_may_try_again(const struct park *p, const struct pg_error *err)
{
	CHECK_PARK(p);
	return p->wait > 0 &&
	       (strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57P", 3) == 0 ||
		       strcmp(err->sqlstate, "53300") == 0 ||
		       strcmp(err->sqlstate, BOUND_STATE) == 0);
}

/* --- ends --- */

static void say_done(struct pg_error *err)
{
	char told[sizeof(err->detail)];

	util_strlcpy(told, err->detail, sizeof(told));
	pg_error_detail(err, "%s%sThe jobs of DONE are done.", told, told[0] != '\0' ? " " : "");
}

void park_fail(struct park *p, const struct pg_error *err)
{
	struct pg_error copy = *err; /* which may be the taker's */
	struct taker *t;

	CHECK_PARK(p);
	if (!refusal_reword(&copy, p->verb == QVERB_AWAIT ? "AWAIT" : "TAKE"))
		(void)explain_value(&copy, &qverbs[p->verb], NULL);
	if (p->behind_done)
		say_done(&copy);
	count_failed(p->verb);
	t = p->kind->leave(p);
	if (t != NULL)
		t->ops->fail(t, &copy);
}

void park_no_memory(struct park *p)
{
	struct pg_error err;

	CHECK_PARK(p);
	pg_error_set(&err, "53200", "out of memory");
	park_fail(p, &err);
}

void park_over(struct park *p)
{
	struct pg_error err;

	CHECK_PARK(p);
	if (!p->by_statement_timeout) {
		p->kind->answer(p);
		return;
	}
	pg_error_set(&err, "57014", "canceling statement due to statement timeout");
	park_fail(p, &err);
}

void park_send_away(struct park *p)
{
	struct taker *t = p->kind->taker(p);

	CHECK_PARK(p);
	t->ops->send_away(t);
	p->kind->answer(p);
}

static bool lets_go(struct park *p, bool cancelled)
{
	return p->kind->lets_go == NULL || p->kind->lets_go(p, cancelled);
}

void park_cancelled(struct park *p)
{
	struct pg_error err;

	CHECK_PARK(p);
	pg_error_set(&err, "57014", "canceling statement due to user request");
	park_fail(p, &err);
}

void park_cancel(struct taker *t)
{
	CHECK_TAKER(t);
	if (lets_go(t->park, true))
		park_cancelled(t->park);
}

void park_taker_ended(struct taker *t)
{
	CHECK_TAKER(t);
	if (t->park != NULL)
		t->park->kind->leave(t->park);
}

bool park_must_leave(const struct taker *t)
{
	enum pooler_shutdown how = pooler_is_shutting_down();

	CHECK_TAKER(t);
	/* who holds a job may finish it, and take the next one, while we wait for clients */
	return how >= SHUTDOWN_WAIT_SERVERS || (how == SHUTDOWN_WAIT_CLIENTS && t->leases == NULL);
}

void parks_shutdown(void)
{
	struct park *p, *tmp;

	DL_FOREACH_SAFE (parks.parked, p, tmp)
		if (park_must_leave(p->kind->taker(p)) && lets_go(p, false))
			park_send_away(p);
}

/* --- time --- */

static void expire(usec_t now)
{
	struct heap_node *n;

	while ((n = heap_first(&parks.deadlines)) != NULL && n->when <= now) {
		struct park *p = CONTAINER_OF(n, struct park, deadline);

		heap_remove(&parks.deadlines, n);
		if (p->kind->expire(p))
			park_over(p);
	}
}

static usec_t next_beat(usec_t period)
{
	return period > 0 && parks.parked != NULL ? parks.parked->beaten + period : USEC_NEVER;
}

static usec_t beat(usec_t now)
{
	usec_t period = conf_current()->p.queue_heartbeat;
	int n = 0;

	if (parks.beats_until == 0) {
		if (next_beat(period) > now)
			return next_beat(period);
		parks.beats_until = now + period / BEATS_TOGETHER;
	}
	while (next_beat(period) <= parks.beats_until) {
		struct park *p = parks.parked;
		struct taker *t = p->kind->taker(p);

		if (n++ == BEATS_AT_ONCE)
			return now;
		DL_DELETE(parks.parked, p);
		p->beaten = now;
		DL_APPEND(parks.parked, p);
		if (t->ops->heartbeat != NULL)
			t->ops->heartbeat(t);
	}
	parks.beats_until = 0;
	return next_beat(period);
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next, at;

	(void)arg;
	expire(now);
	next = beat(now);
	at = heap_deadline(&parks.deadlines);
	return at < next ? at : next;
}

void parks_reloaded(void)
{
	parks.beats_until = 0;
	loop_tick_at(parks.tick, loop_now());
}

bool park_start(void)
{
	parks.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return parks.tick != NULL;
}

void park_free(void)
{
	loop_tick_free(&parks.tick);
	heap_free(&parks.deadlines);
}

/* --- snapshots --- */

void queue_stat_each_waiter(void (*fn)(const struct queue_stat_waiter *st, void *arg), void *arg)
{
	usec_t now = loop_now();
	struct park *p;

	DL_FOREACH (parks.parked, p) {
		const struct taker *t = p->kind->taker(p);
		struct buf names = BUF_INIT;
		struct queue_stat_waiter st = {.kind = t->ops->kind,
			.client_id = t->ops->id(t),
			.database = t->db->name,
			.user = t->ops->user(t),
			.address = t->ops->address(t),
			.waited_us = now - p->started};

		p->kind->stat(p, &st, &names);
		st.queues = buf_cstr(&names);
		if (p->deadline.when > now)
			st.left_us = p->deadline.when - now;
		fn(&st, arg);
		buf_free(&names);
	}
}
