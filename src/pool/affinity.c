/*
 * Affinity: which servers have run tasks of a kind before. A session of Postgres plans the statements
 * of a function when it first calls it, and keeps the plans: the first call costs ten times the
 * second, and memory for as long as the session lives. So a task is sent where its kind has been,
 * if that server is free, and waits for it a little if it is not.
 *
 * A kind is a number that comes with the task (task_spec.kind); what it stands for is not known
 * here. Nothing is lost by forgetting one.
 *
 * How long it waits: while that is less than what a first call takes more than others, as measured; longer for
 * several that share a transaction there (together.c).
 * A kind whose tasks wait for too much of the time gets one more server (of more than AFFINITIES_MAX the
 * one that was used longest ago is forgotten): one that is asked for all the time comes to have
 * several, of a thousand that are rare each keeps to its one. Nobody waits for a server that a
 * client has, or whose statement takes long.
 *
 * While one task comes after the other and none beside it, all of them are better off on one server, whose memory is
 * in the caches of a processor still: of those where its kind has been each gets the one that was used last, and where
 * kinds are few it comes to know that one.
 *
 * Entry points: affinity_* in pool_int.h.
 */
#include "pool/rooms.h"

#define KINDS_MAX      20000 /* of a pool; the oldest is forgotten */
#define AFFINITIES_MAX 8
#define LOOK_MAX       8        /* free servers among which a new one is chosen */
#define WAITING_LOOK   128      /* waiting tasks among which one is looked for */
#define CROWD          8        /* kinds that a server may have without being thought fuller */
#define PERIOD         USEC_SEC /* what tasks of a kind have waited counts half after this */
#define SHARE_OF_KIND  USEC_MSEC
#define SHARE_MAX      (200 * USEC_MSEC)
#define FADE           16 /* what calls have cost is forgotten in so many */
#define GAIN_MIN       (1 * USEC_MSEC)
#define GAIN_MAX       (50 * USEC_MSEC)
#define TOO_LONG       4 /* times the usual: what runs for longer is not waited for */
#define PATIENCE       4 /* of one task, in such times */
#define SPOILT         USEC_SEC
#define APART_MAX      64 /* tasks one after the other, elsewhere than the others are */
#define NEW_WAITS      (500 * USEC_MSEC) /* of one whose kind is nowhere */

struct affinity {
	UT_hash_handle hh;
	uint64_t kind;
	usec_t waited;  /* its tasks in sum, of late, since it got its last server */
	usec_t halved;  /* when `waited` was last */
	usec_t alone;   /* until then its tasks share no transaction */
	unsigned apart; /* so many of its tasks in a row ran alone, and not where others had */
	unsigned n;
	struct server *server[AFFINITIES_MAX]; /* the last one used first */
};

static struct affinity *find(const struct pool *p, uint64_t kind)
{
	struct affinity *h;

	HASH_FIND(hh, p->affinities, &kind, sizeof(kind), h);
	return h;
}

static void drop(struct pool *p, struct affinity *h)
{
	for (unsigned i = 0; i < h->n; i++)
		h->server[i]->n_kinds--;
	HASH_DEL(p->affinities, h);
	mem_free(h);
}

void affinity_free(struct pool *p)
{
	CHECK_POOL(p);
	while (p->affinities != NULL)
		drop(p, p->affinities);
}

void affinity_lost(struct server *s)
{
	struct affinity *h, *tmp;

	CHECK_SERVER(s);
	HASH_ITER (hh, s->pool->affinities, h, tmp) {
		if (s->n_kinds == 0)
			break;
		for (unsigned i = 0; i < h->n; i++)
			if (h->server[i] == s) {
				h->server[i] = h->server[--h->n];
				s->n_kinds--;
				break;
			}
	}
}

/* --- which --- */

static void to_front(struct affinity *h, unsigned i)
{
	struct server *s = h->server[i];

	for (; i > 0; i--)
		h->server[i] = h->server[i - 1];
	h->server[0] = s;
}

/* Without memory it has none: the next one of its kind goes anywhere, too. */
static void settle(struct pool *p, struct affinity *h, uint64_t kind, struct server *s, usec_t now)
{
	if (h == NULL) {
		if (HASH_COUNT(p->affinities) >= KINDS_MAX)
			drop(p, p->affinities);
		h = mem_zalloc(sizeof(*h));
		if (h == NULL)
			return;
		h->kind = kind;
		HASH_ADD(hh, p->affinities, kind, sizeof(kind), h);
		if (h->hh.tbl == NULL) {
			mem_free(h);
			return;
		}
	}
	if (h->n == AFFINITIES_MAX)
		h->server[--h->n]->n_kinds--;
	h->server[h->n] = s;
	to_front(h, h->n++);
	h->waited = h->apart = 0;
	h->halved = now;
	s->n_kinds++;
}

static bool is_free(const struct server *s, bool engine)
{
	return s->state == SERVER_IDLE && s->use.engine == engine && pool_may_use(s);
}

/* The free server that has the fewest kinds, about; of equal ones the first. */
static struct server *emptiest(const struct pool *p, bool engine)
{
	struct server *best = NULL, *s;
	int left = LOOK_MAX;

	if (engine && p->engines.n == 0)
		return NULL;
	DL_FOREACH (p->servers[SERVER_IDLE].head, s) {
		if (!is_free(s, engine))
			continue;
		if (left-- == 0)
			break;
		if (best == NULL || s->n_kinds / CROWD < best->n_kinds / CROWD)
			best = s;
	}
	return best;
}

static void fade(usec_t *v, usec_t latest)
{
	*v = *v == 0 ? latest : *v - *v / FADE + latest / FADE;
}

/* Of those that share a transaction: how many there are, and how many of them are first calls. */
static unsigned count(const struct task *leader, unsigned *firsts)
{
	unsigned n = 0;

	*firsts = 0;
	for (const struct task *t = leader; t != NULL; t = t->after) {
		n++;
		*firsts += t->first;
	}
	return n;
}

void affinity_took(const struct task *leader, usec_t time)
{
	struct pool *p = leader->pool;
	unsigned firsts, n = count(leader, &firsts);
	usec_t others = (n - firsts) * p->later_call;

	CHECK_TASK(leader);
	if (leader->kind == 0)
		return;
	if (firsts == 0)
		fade(&p->later_call, time / n);
	else if (time > others)
		fade(&p->first_call, (time - others) / firsts);
}

/* What it takes longer where it has not been before. */
static usec_t gain(const struct pool *p)
{
	usec_t t = p->first_call > p->later_call ? p->first_call - p->later_call : 0;

	return t < GAIN_MIN ? GAIN_MIN : t > GAIN_MAX ? GAIN_MAX : t;
}

static usec_t usual(const struct pool *p, unsigned n, unsigned firsts)
{
	return (1 + firsts) * gain(p) + n * TOO_LONG * p->later_call;
}

/* Others wait longer for several than for one. */
void affinity_began(const struct task *leader, struct server *s)
{
	unsigned firsts, n = count(leader, &firsts);

	CHECK_TASK(leader);
	s->usual = n > 1 ? usual(s->pool, n, firsts) : 0;
}

/* What the tasks of a kind wait before it gets one more server, times those it has. One that is not
 * needed costs little where kinds are few. */
static usec_t share(const struct pool *p)
{
	usec_t t = HASH_COUNT(p->affinities) * SHARE_OF_KIND, least = gain(p);

	return t < least ? least : t > SHARE_MAX ? SHARE_MAX : t;
}

static bool has_had_enough(const struct pool *p, const struct affinity *h, usec_t waited)
{
	return h->waited + waited >= share(p) * h->n;
}

/* One of its servers will be free in a moment. */
static bool will_be_free(
	const struct pool *p, const struct affinity *h, bool engine, usec_t waited, usec_t now)
{
	usec_t least = usual(p, 1, 0);

	for (unsigned i = 0; i < h->n; i++) {
		const struct server *s = h->server[i];
		usec_t most = s->usual > least ? s->usual : least;

		if (s->state == SERVER_TASK && (engine || !s->use.engine) &&
			now - s->request_time < most && waited < PATIENCE * most)
			return true;
	}
	return false;
}

static bool knows_engine(const struct affinity *h)
{
	for (unsigned i = 0; h != NULL && i < h->n; i++)
		if (h->server[i]->use.engine)
			return true;
	return false;
}

static bool known_is_free(const struct affinity *h)
{
	for (unsigned i = 0; i < h->n; i++)
		if (is_free(h->server[i], true))
			return true;
	return false;
}

bool affinity_waits(const struct task *t, usec_t now)
{
	const struct affinity *h = t->kind != 0 ? find(t->pool, t->kind) : NULL;

	CHECK_TASK(t);
	if (!knows_engine(h))
		return now - t->since < NEW_WAITS;
	return known_is_free(h) || will_be_free(t->pool, h, true,
					   now - (t->held_since != 0 ? t->held_since : now), now);
}

static void wait_for_it(struct task *t, usec_t now)
{
	if (t->held_since == 0)
		t->held_since = now;
}

static void add_waited(struct affinity *h, usec_t waited, usec_t now)
{
	h->waited += waited;
	if (now - h->halved < PERIOD)
		return;
	h->waited /= now - h->halved < 2 * PERIOD ? 2 : 4;
	h->halved = now;
}

/* Nothing runs or waits but this one task. */
static bool is_quiet(const struct pool *p)
{
	return p->servers[SERVER_TASK].head == NULL && p->n_tasks <= 1;
}

/* A free one where such a task has been. */
static struct server *known(struct affinity *h, bool engine, bool quiet)
{
	unsigned n = h != NULL ? h->n : 0, at = n;

	for (unsigned i = 0; i < n && (quiet || at == n); i++)
		if (is_free(h->server[i], engine) &&
			(at == n || h->server[i]->request_time > h->server[at]->request_time))
			at = i;
	if (at == n)
		return NULL;
	to_front(h, at);
	return h->server[0];
}

/* The free one of the engine's own that was used last, of any kind. */
static struct server *last_used(const struct pool *p)
{
	struct server *last = NULL, *s;
	int left = LOOK_MAX;

	DL_FOREACH (p->servers[SERVER_IDLE].head, s) {
		if (!is_free(s, true))
			continue;
		if (left-- == 0)
			break;
		if (last == NULL || s->request_time > last->request_time)
			last = s;
	}
	return last;
}

static struct server *first_on(struct task *t, struct affinity *h, struct server *s, usec_t now)
{
	t->first = true;
	if (s != NULL)
		settle(t->pool, h, t->kind, s, now);
	return s;
}

/* Where the others are, if its tasks have been alone for long and kinds are few. */
static struct server *joined(struct task *t, struct affinity *h, usec_t now)
{
	struct server *s, *at = h->server[0];

	if (HASH_COUNT(t->pool->affinities) > CROWD)
		return NULL;
	s = last_used(t->pool);
	if (s == NULL || s->request_time <= at->request_time)
		h->apart = 0;
	else if (++h->apart == APART_MAX)
		return first_on(t, h, s, now);
	return NULL;
}

static struct server *known_engine(struct task *t, struct affinity *h, usec_t now)
{
	bool quiet = is_quiet(t->pool);
	struct server *s = known(h, true, quiet), *other = NULL;

	if (s == NULL || !quiet) {
		if (h != NULL)
			h->apart = 0;
		return s;
	}
	other = joined(t, h, now);
	return other != NULL ? other : s;
}

/* The engine's own with the fewest kinds, free or not. */
static struct server *emptiest_of_all(const struct pool *p)
{
	static const enum server_state states[] = {SERVER_IDLE, SERVER_TASK};
	struct server *best = NULL, *s;

	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		DL_FOREACH (p->servers[states[i]].head, s)
			if (s->use.engine && !s->close_needed &&
				(best == NULL || s->n_kinds < best->n_kinds))
				best = s;
	return best;
}

/* It would be better off there: that one has come later than the others. */
static bool is_much_emptier(const struct server *s, const struct affinity *h)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->server[i]->use.engine && h->server[i]->n_kinds / 2 <= s->n_kinds)
			return false;
	return true;
}

/* Others are at home there, and wait for it: it would be taken from them, and learn what another one knows. */
static bool is_waited_for(const struct server *s, const struct task *by)
{
	unsigned left = WAITING_LOOK;

	for (const struct task *t = s->pool->tasks; t != NULL && left > 0; t = t->next, left--) {
		const struct affinity *h =
			t != by && t->together != 0 ? find(s->pool, t->kind) : NULL;

		for (unsigned i = 0; h != NULL && i < h->n; i++)
			if (h->server[i] == s)
				return true;
	}
	return false;
}

/* Of what is best on one of the engine's own. true: there (NULL: it waits for it). */
static bool choose_engine(
	struct task *t, struct affinity *h, usec_t waited, usec_t now, struct server **ret)
{
	struct pool *p = t->pool;
	struct server *s = known_engine(t, h, now);

	if (s != NULL) {
		add_waited(h, waited, now);
		*ret = s;
		return true;
	}
	s = emptiest(p, true);
	if (s != NULL && (!knows_engine(h) || s->n_kinds < CROWD || is_much_emptier(s, h) ||
				 (has_had_enough(p, h, waited) && !is_waited_for(s, t)))) {
		*ret = first_on(t, h, s, now);
		return true;
	}
	if (!knows_engine(h) && (s = emptiest_of_all(p)) != NULL) {
		(void)first_on(t, h, s, now);
		h = find(p, t->kind);
	}
	if (h == NULL || !will_be_free(p, h, true, waited, now))
		return false;
	wait_for_it(t, now);
	*ret = NULL;
	return true;
}

/* Is it not much fuller than the others? */
static bool is_empty_enough(const struct server *s)
{
	const struct server *best = emptiest_of_all(s->pool);

	return best == NULL || s->n_kinds / CROWD <= best->n_kinds / CROWD;
}

void affinity_spoilt(const struct task *t, usec_t now)
{
	struct affinity *h = find(t->pool, t->kind);

	CHECK_TASK(t);
	if (h != NULL)
		h->alone = now + SPOILT;
}

bool affinity_may_share(const struct task *t, usec_t now)
{
	const struct affinity *h = find(t->pool, t->kind);

	CHECK_TASK(t);
	return t->together != 0 && (h == NULL || now >= h->alone);
}

bool affinity_follows(struct task *t, struct server *s, usec_t now)
{
	struct affinity *h = find(t->pool, t->kind);

	CHECK_TASK(t);
	if (!affinity_may_share(t, now))
		return false;
	for (unsigned i = 0; h != NULL && i < h->n; i++)
		if (h->server[i] == s) {
			to_front(h, i);
			add_waited(h, t->held_since != 0 ? now - t->held_since : 0, now);
			return true;
		}
	if (knows_engine(h) || !is_empty_enough(s))
		return false;
	(void)first_on(t, h, s, now);
	return true;
}

struct server *affinity_choose(struct task *t, usec_t now)
{
	struct pool *p = t->pool;
	struct affinity *h = find(p, t->kind);
	usec_t waited = t->held_since != 0 ? now - t->held_since : 0;
	struct server *s;

	CHECK_TASK(t);
	if (t->together != 0 && p->engines.n > 0) {
		if (choose_engine(t, h, waited, now, &s))
			return s;
		h = find(p, t->kind);
	}
	/* where it is cheapest in the long run: one of the engine's own, even if it has not been there */
	s = t->engine ? known_engine(t, h, now) : NULL;
	if (s == NULL && t->engine && (s = emptiest(p, true)) != NULL) {
		if (!knows_engine(h) || s->n_kinds < CROWD)
			return first_on(t, h, s, now);
		s = NULL;
	}
	if (s == NULL)
		s = known(h, false, false);
	if (s != NULL) {
		add_waited(h, waited, now);
		return s;
	}
	if (h != NULL && !has_had_enough(p, h, waited) &&
		will_be_free(p, h, t->engine, waited, now)) {
		wait_for_it(t, now);
		return NULL;
	}
	s = t->engine ? emptiest(p, true) : NULL;
	if (s == NULL)
		s = emptiest(p, false);
	return first_on(t, h, s, now);
}
