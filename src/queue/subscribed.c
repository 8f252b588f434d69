/*
 * Who waits for which subscription of a stream. Of those who wait for one and wish the same the longest asks, and when it
 * leaves the next one: a push wakes as many as get something. Of those who wish something else (LAG, MIN, WHERE) another one
 * asks, one behind the other: two at once would find each other's lock.
 *
 * Who reads its delivery slowly, while the server has it still, is passed over: there may be other lanes.
 *
 * Who wants so many events at least (MIN) does not ask as long as they cannot be there: what is pushed here is counted
 * (patience.h). Behind a delivery that has left nothing the count goes on, so the next TAKE need not ask at once.
 *
 * Must not know: how one asks, and what is answered.
 */
#include <string.h>

#include "spelling.h"
#include "stream_int.h"
#include "system.h"
#include "wakes.h"

#define RESTS (100 * USEC_MSEC) /* so long after a delivery that had all the count is believed */

static struct {
	struct heap looks;
	struct loop_tick *tick;
	reader_ask_fn *ask;
} streams;

/* --- who waits for what --- */

void subscribed_look_at(struct subscribed *s, usec_t when)
{
	if (s->looks && s->look.when <= when)
		return;
	/* without memory the next event has to do */
	s->looks = heap_set(&streams.looks, &s->look, when);
	if (s->looks)
		loop_tick_at(streams.tick, when);
}

/* The longest of those who have no delivery yet; NULL: there is none. */
static struct reader *asker(const struct wish *wish)
{
	struct reader *w;

	DL_FOREACH (wish->readers, w)
		if (!w->slow)
			return w;
	return NULL;
}

/* Of those who have not asked yet the one who waits longest does; if it asks already, once more. */
static void next_asks(struct subscribed *s)
{
	struct reader *w, *first = NULL;
	struct wish *wish;

	if (s->asks != NULL)
		return;
	DL_FOREACH (s->wishes, wish) {
		w = wish->news ? asker(wish) : NULL;
		if (w != NULL && w->quiet.until > loop_now())
			subscribed_look_at(s, w->quiet.until);
		else if (w != NULL && (first == NULL || w->park.started < first->park.started))
			first = w;
	}
	if (first == NULL)
		return;
	first->wish->news = false;
	s->asks = first;
	if (s->asks->task != NULL)
		s->asks->again = true;
	else
		streams.ask(s->asks);
}

static void sub_wake(struct subscribed *s)
{
	struct wish *wish;

	DL_FOREACH (s->wishes, wish)
		wish->news = true;
	next_asks(s);
}

/* It has asked in vain. */
void reader_asked(struct reader *w)
{
	struct subscribed *s = w->wish->sub;

	if (s->asks == w)
		s->asks = NULL;
	next_asks(s);
}

/* It has a delivery, which it may read for long: another lane may have one for the next. */
void reader_is_slow(struct reader *w)
{
	struct subscribed *s = w->wish->sub;

	if (w->slow)
		return;
	w->slow = true;
	s->slow++;
	if (s->asks == w)
		s->asks = NULL;
	subscribed_look_at(s, loop_now());
}

static void sub_free(struct subscribed *s)
{
	struct streamed *of = s->of;

	INVARIANT(s->wishes == NULL && s->asks == NULL,
		"a subscription is forgotten that somebody waits for");
	heap_remove(&streams.looks, &s->look);
	DL_DELETE(of->subs, s);
	if (of->subs == NULL) {
		HASH_DEL(s->db->streams, of);
		mem_free(of);
	}
	mem_free(s->within);
	mem_free(s);
}

/* Nobody waits any more. */
static void sub_leave(struct subscribed *s)
{
	if (s->rests > loop_now())
		subscribed_look_at(s, s->rests);
	if (s->rests <= loop_now() || !s->looks)
		sub_free(s);
}

void reader_unlist(struct reader *w)
{
	struct wish *wish = w->wish;
	struct subscribed *s;

	if (wish == NULL)
		return;
	INVARIANT(wish->readers != NULL, "a reader leaves a list without readers");
	s = wish->sub;
	w->wish = NULL;
	if (s->asks == w)
		s->asks = NULL;
	if (w->slow)
		s->slow--;
	DL_DELETE(wish->readers, w);
	if (wish->readers == NULL) {
		DL_DELETE(s->wishes, wish);
		mem_free(wish);
	}
	if (s->wishes != NULL)
		subscribed_look_at(s, loop_now()); /* it may have been asking for all of them */
	else
		sub_leave(s);
}

static struct streamed *streamed_get(struct qdb *db, const char *name)
{
	struct streamed *of;

	HASH_FIND_STR(db->streams, name, of);
	if (of != NULL || (of = mem_zalloc(sizeof(*of))) == NULL)
		return of;
	util_strlcpy(of->name, name, sizeof(of->name));
	HASH_ADD_STR(db->streams, name, of);
	qdb_is_spelt(db, name);
	if (of->hh.tbl != NULL)
		return of;
	mem_free(of);
	return NULL;
}

static bool same_wish(const struct reader *a, const struct reader *b)
{
	return take_same_text(a->least, b->least) && take_same_text(a->within, b->within) &&
	       take_same_text(a->lag, b->lag) &&
	       (a->args.where == NULL || b->args.where == NULL
			       ? a->args.where == b->args.where
			       : take_where_equal(a->args.where, b->args.where));
}

/* NULL: memory. */
static struct subscribed *subscribed_get(struct qdb *db, const char *stream, const char *name)
{
	struct streamed *of = streamed_get(db, stream);
	struct subscribed *s;

	if (of == NULL)
		return NULL;
	DL_FOREACH (of->subs, s)
		if (strcmp(s->name, name) == 0)
			return s;
	s = mem_zalloc(sizeof(*s));
	if (s == NULL) {
		if (of->subs == NULL) {
			HASH_DEL(db->streams, of);
			mem_free(of);
		}
		return NULL;
	}
	util_strlcpy(s->name, name, sizeof(s->name));
	s->of = of;
	s->db = db;
	DL_APPEND(of->subs, s);
	return s;
}

/* false: memory. */
bool reader_enlist(struct reader *w)
{
	struct wish *fresh = mem_zalloc(sizeof(*fresh)), *wish;
	struct subscribed *s =
		fresh != NULL ? subscribed_get(w->db, w->args.queues[0], w->name) : NULL;

	if (s == NULL) {
		mem_free(fresh);
		return false;
	}
	DL_FOREACH (s->wishes, wish)
		if (same_wish(wish->readers, w))
			break;
	if (wish == NULL) {
		wish = fresh;
		wish->sub = s;
		DL_APPEND(s->wishes, wish);
	} else {
		mem_free(fresh);
	}
	w->wish = wish;
	DL_APPEND(wish->readers, w);
	system_need(w->db, w->pool);
	return true;
}

/* Who asks may leave, but not before it is answered: the list stays as it is. */
static void stream_wake(struct streamed *of)
{
	struct subscribed *s;

	of->uncounted++;
	DL_FOREACH (of->subs, s) {
		s->rests = 0;
		subscribed_look_at(s, loop_now());
	}
}

/* More was pushed: when is that worth a look to this one, who wants so many at least? Who asks now decides behind the answer. */
static usec_t more_for(struct reader *w, uint64_t counted)
{
	usec_t at;

	INVARIANT(w->wish != NULL, "news for one who does not wait");
	/* who ends one of the deliveries that are out says so, and its time was told */
	if (w->task == NULL && w->out)
		return USEC_NEVER;
	if (w->least == NULL || (w->task == NULL && w->patience.missing == 0))
		return loop_now();
	if (w->task != NULL)
		return USEC_NEVER;
	at = patience_counted(&w->patience, counted, loop_now());
	if (w->quiet.until > at)
		w->quiet.until = at;
	return at;
}

static void stream_counted(struct streamed *of, unsigned n)
{
	struct subscribed *s;
	struct wish *wish;

	of->counted += n;
	DL_FOREACH (of->subs, s) {
		usec_t at = USEC_NEVER;

		if (s->rest.first == 0)
			s->rest.first = loop_now();
		DL_FOREACH (s->wishes, wish) {
			struct reader *w = asker(wish);
			usec_t one = w != NULL ? more_for(w, of->counted) : USEC_NEVER;

			at = one < at ? one : at;
		}
		if (at != USEC_NEVER)
			subscribed_look_at(s, at);
	}
}

static void on_wake(struct qdb *db, const char *name, unsigned n)
{
	struct streamed *of;

	CHECK_QDB(db);
	if (name != NULL) {
		HASH_FIND_STR(db->streams, name, of);
		if (of != NULL && n > 0)
			stream_counted(of, n);
		else if (of != NULL)
			stream_wake(of);
		if (qdb_may_be_spelt(db, name))
			for (of = db->streams; of != NULL; of = of->hh.next)
				if (strcmp(of->name, name) != 0 && spelling_may_be(of->name, name))
					stream_wake(of);
		return;
	}
	for (of = db->streams; of != NULL; of = of->hh.next)
		stream_wake(of);
}

/* It is told in the encoding of whoever has ended it: what is not ASCII may be any such name. */
static bool is_named(const struct subscribed *s, const char *name, size_t len)
{
	size_t n = strlen(s->name);

	return (n == len && memcmp(s->name, name, n) == 0) ||
	       (!spelling_is_ascii(s->name, n) && !spelling_is_ascii(name, len));
}

/* A delivery has ended: another one may be possible for those who wait for the same subscription. */
static void on_event(struct qdb *db, const char *event)
{
	const struct streamed *of;
	struct subscribed *s;

	if (strncmp(event, ENDED_EVENT, strlen(ENDED_EVENT)) != 0)
		return;
	event += strlen(ENDED_EVENT);
	for (of = db->streams; of != NULL; of = of->hh.next) {
		size_t len = spelling_before(event, of->name); /* of the subscription */

		if (len == 0)
			continue;
		DL_FOREACH (of->subs, s)
			if (is_named(s, event, len))
				subscribed_look_at(s, loop_now());
	}
}

/* --- those who need not ask yet --- */

/* It was all that there is, unless there was news meanwhile that it may not have seen. */
void reader_had_all(struct reader *w)
{
	struct subscribed *s = w->wish->sub;
	bool sure = w->uncounted == s->of->uncounted;

	INVARIANT(w->got.n > 0 && w->got.all, "a delivery that had all had nothing");
	mem_free(s->within);
	s->within = w->within != NULL ? mem_dup(w->within, strlen(w->within) + 1) : NULL;
	s->rests = s->within != NULL && sure ? loop_now() + RESTS : 0;
	s->rest = w->patience;
	patience_told(&s->rest, w->got.more);
	(void)patience_answered(&s->rest, s->of->counted, loop_now());
}

/* Nothing is there but what was pushed since the last delivery, which may be too little: it need not ask yet. */
bool reader_rests(struct reader *w)
{
	struct subscribed *s = w->wish->sub;
	usec_t now = loop_now(), at;
	int64_t least;

	if (s->rests <= now || w->least == NULL || !take_same_text(w->within, s->within) ||
		w->lag != NULL || w->args.where != NULL || s->wishes->next != NULL ||
		w->wish->readers != w || w->next != NULL ||
		w->park.started + w->park.wait <= s->rests || park_must_leave(w->taker) ||
		!util_parse_i64(w->least, strlen(w->least), &least) || least < 2 ||
		least > w->args.limit)
		return false;
	w->patience = s->rest;
	w->patience.missing = least;
	at = patience_counted(&w->patience, s->of->counted, now);
	if (at <= now || !park_limit(&w->park))
		return false;
	park_enter(&w->park);
	subscribed_look_at(s, at < s->rests ? at : s->rests);
	return true;
}

/* --- time --- */

static usec_t on_tick(void *arg, usec_t now)
{
	struct heap_node *n;

	(void)arg;
	while ((n = heap_first(&streams.looks)) != NULL && n->when <= now) {
		struct subscribed *s = CONTAINER_OF(n, struct subscribed, look);

		heap_remove(&streams.looks, n);
		s->looks = false;
		if (s->wishes != NULL)
			sub_wake(s);
		else
			sub_leave(s);
	}
	return heap_deadline(&streams.looks);
}

bool subscribed_start(reader_ask_fn *asks)
{
	static const struct system_listener listener = {.event = on_event};

	streams.ask = asks;
	waitq_also(on_wake);
	system_listen(&listener);
	streams.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return streams.tick != NULL;
}

/* Nobody waits any more: what is left are memories. */
void subscribed_free(void)
{
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		while (db->streams != NULL)
			sub_free(db->streams->subs);
	loop_tick_free(&streams.tick);
	heap_free(&streams.looks);
}
