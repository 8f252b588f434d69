/*
 * What is known of the queues: numbers and low marks (head.h). How it is asked for is head_ask.c, what
 * statements become with it shape.c.
 */
#include <string.h>

#include "count.h"
#include "head_int.h"
#include "lone.h"
#include "mark.h"
#include "spelling.h"

#define HEADS_MAX  5000            /* of a database; the unused ones are forgotten */
#define ABSENT_FOR (2 * USEC_SEC)  /* a queue that is not there is not asked about again */
#define STREAM_FOR (60 * USEC_SEC) /* nor a stream: news of it would say that it is a queue now */
#define FULL_MIN   (1 * USEC_SEC)
#define FULL_MAX   (60 * USEC_SEC)
#define FULL_SHARE 50      /* a take from the front that lasts d comes not before 50 d have gone */
#define CLOCK_BACK 1000000 /* microseconds: it was set back, and not just read in another order */
#define DEAR       2000 /* microseconds: a take from the front that read what has long been taken */
/* One after the other: one alone may have been interrupted, on a busy machine several. */
#define DEAR_MOST   5
#define EVENT_MIN   (20 * USEC_MSEC)
#define EVENT_SHARE 20                /* ... 20 d when something has happened */
#define PAST        (100 * USEC_MSEC) /* longer than most transactions last */

const struct head_mark head_unmarked = {HEAD_UNMARKED, 0};

/* --- the table --- */

struct head *head_find(struct qdb *db, const char *queue)
{
	struct head *l;

	HASH_FIND_STR(db->heads, queue, l);
	return l;
}

struct head *head_find_number(struct qdb *db, int64_t number)
{
	struct head *l;

	HASH_FIND(by_number, db->heads_by_number, &number, sizeof(number), l);
	return l;
}

static void unlist_number(struct head *l)
{
	if (l->by_number.tbl != NULL)
		HASH_DELETE(by_number, l->db->heads_by_number, l);
	l->by_number.tbl = NULL;
}

/* Without memory it is not found by its number, which costs time and nothing else. */
static void set_number(struct head *l, int64_t number)
{
	unlist_number(l);
	l->number = number;
	if (number != 0 && l->db != NULL && head_find_number(l->db, number) == NULL)
		HASH_ADD(by_number, l->db->heads_by_number, number, sizeof(l->number), l);
}

struct tally *head_tally(struct qdb *db, int64_t number)
{
	struct head *l = head_find_number(db, number);

	return l != NULL ? count_get(db, l->name) : NULL;
}

int64_t head_number(struct qdb *db, const char *queue)
{
	const struct head *l = head_find(db, queue);

	return l != NULL ? l->number : 0;
}

int64_t head_stream(struct qdb *db, const char *stream, enum qpayload payload)
{
	const struct head *l = head_find(db, stream);

	return l != NULL && l->number == 0 && l->stream_payload == payload ? l->stream_number : 0;
}

/* Without memory it is asked by its name. */
void head_stream_is(struct qdb *db, const char *stream, int64_t number, enum qpayload payload)
{
	struct head *l = head_ref(db, stream);

	if (l == NULL)
		return;
	l->stream_number = number;
	l->stream_payload = payload;
	head_unref(l);
}

/* FNV-1a. Even numbers, so that each has a neighbour. */
uint64_t head_kind(char verb, const char *queue)
{
	uint64_t h = (0xcbf29ce484222325u ^ (uint8_t)verb) * 0x100000001b3u;

	for (; *queue != '\0'; queue++)
		h = (h ^ (uint8_t)*queue) * 0x100000001b3u;
	return h << 1;
}

static void head_free(struct head *l)
{
	lone_free(l);
	l->magic = 0;
	mem_free(l);
}

/* One that is still referred to is freed by the last who does. */
static void head_drop(struct head *l)
{
	INVARIANT(l->refs > 0 || l->flights == NULL, "a head is dropped under a flight");
	unlist_number(l);
	HASH_DEL(l->db->heads, l);
	l->db = NULL;
	if (l->refs == 0)
		head_free(l);
}

static void forget_unused(struct qdb *db)
{
	struct head *l, *tmp;

	HASH_ITER (hh, db->heads, l, tmp)
		if (l->refs == 0)
			head_drop(l);
}

struct head *head_ref(struct qdb *db, const char *queue)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l == NULL) {
		if (HASH_COUNT(db->heads) >= HEADS_MAX)
			forget_unused(db);
		l = mem_zalloc(sizeof(*l));
		if (l == NULL)
			return NULL;
		l->magic = HEAD_MAGIC;
		l->db = db;
		util_strlcpy(l->name, queue, sizeof(l->name));
		qdb_is_spelt(db, queue);
		HASH_ADD_STR(db->heads, name, l);
		if (l->hh.tbl == NULL) {
			mem_free(l);
			return NULL;
		}
	}
	l->refs++;
	return l;
}

void head_unref(struct head *l)
{
	CHECK_HEAD(l);
	INVARIANT(l->refs > 0, "a head is let go by more than hold it");
	if (--l->refs == 0 && l->db == NULL)
		head_free(l);
}

void heads_free(struct qdb *db)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		head_drop(l);
}

/* --- what was told --- */

bool head_payload(struct qdb *db, const char *queue, enum qpayload *ret)
{
	const struct head *l = head_find(db, queue);

	if (l == NULL || (l->number == 0 && !(l->stream && head_is_absent(db, queue))))
		return false;
	*ret = l->payload;
	return true;
}

bool head_is_absent(struct qdb *db, const char *queue)
{
	const struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	return l != NULL && l->number == 0 && l->absent_at != 0 &&
	       loop_now() - l->absent_at < (l->stream ? STREAM_FOR : ABSENT_FOR);
}

static void forget(struct head *l)
{
	head_renew(l, 0);
	l->question = NULL; /* what it will say may be old */
	l->forgotten++;
	l->absent_at = 0;
	l->stream = false;
	l->stream_number = 0;
	l->suspect = true;
	l->event_at = 0;
}

void head_forget(struct qdb *db, const char *queue)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l != NULL)
		forget(l);
}

void heads_forget(struct qdb *db)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		forget(l);
}

bool head_is_refusal(const struct pg_error *err, enum qpayload *ret)
{
	static const char *const begins[] = {
		"The queue was created with payload = ", "The stream was created with payload = "};

	for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
		const size_t len = strlen(begins[i]);

		if (strcmp(err->sqlstate, "42804") == 0 &&
			strncmp(err->detail, begins[i], len) == 0)
			return qpayload_read(
				err->detail + len, strcspn(err->detail + len, "."), ret);
	}
	return false;
}

bool head_is_torn(const struct pg_error *err)
{
	enum qpayload payload;

	return strcmp(err->sqlstate, "42804") == 0 && !head_is_refusal(err, &payload);
}

/* --- low marks --- */

/*
 * Not the low marks of now: those are on the ground while a take reads from the front, and pushers
 * that follow each other closely would then keep them there for each other.
 */
struct head_mark head_now(struct qdb *db, const char *queue)
{
	const struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	return l != NULL ? l->reached : (struct head_mark){0};
}

struct head_mark head_now_number(struct qdb *db, int64_t number)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		if (l->number == number)
			return l->reached;
	return (struct head_mark){0};
}

static void lower_to(int64_t *v, int64_t to)
{
	if (*v > to)
		*v = to;
}

void head_mark_min(struct head_mark *mark, struct head_mark to)
{
	lower_to(&mark->place, to.place);
	lower_to(&mark->since, to.since);
}

static void raise_to(int64_t *v, int64_t to)
{
	if (*v < to)
		*v = to;
}

void head_saw(struct qdb *db, const char *queue, int64_t number, int64_t place)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l != NULL && l->number == number)
		raise_to(&l->reached.place, place);
}

/* Takes that are under way will not raise them above it: what they saw may be older. */
static void lower(struct head *l, struct head_mark to)
{
	struct flight *f;

	for (int i = 0; i < l->n_low_marks; i++)
		lower_to(&l->low_marks[i].place, to.place);
	if (l->since > to.since) {
		l->since = to.since;
		l->since_at = 0; /* long before what was looked for last */
	}
	LL_FOREACH (l->flights, f) {
		lower_to(&f->cap.place, to.place);
		lower_to(&f->cap.since, to.since);
	}
}

void head_renew(struct head *l, int64_t number)
{
	struct flight *f;

	CHECK_HEAD(l);
	set_number(l, number);
	lone_forget(l);
	l->reached = l->past[0] = l->past[1] = (struct head_mark){0};
	lower(l, l->reached);
	LL_FOREACH (l->flights, f)
		f->stale = true;
}

void head_lower(struct qdb *db, const char *queue, struct head_mark to)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l != NULL)
		lower(l, to);
}

void head_suspect(struct qdb *db, const char *queue)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l == NULL)
		return;
	/* who gives a job back and takes gets it: the next take begins at the front */
	l->suspect = true;
	l->event_at = 0;
}

void head_lower_number(struct qdb *db, int64_t number, struct head_mark to)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		if (l->number == number)
			lower(l, to);
}

/* What is remembered is PAST old at least; of a head that is used, not much older. */
static void remember(struct head *l)
{
	usec_t now = loop_now();

	if (now - l->past_at < PAST)
		return;
	l->past[0] = l->past[1];
	l->past[1] = l->reached;
	l->past_at = now;
}

struct head_mark head_past(struct qdb *db, const char *queue)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l == NULL)
		return (struct head_mark){0};
	remember(l);
	return l->past[0];
}

static void event(struct head *l)
{
	remember(l);
	lower(l, l->past[0]);
	l->suspect = true;
}

void head_event(struct qdb *db, const char *queue)
{
	struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l != NULL)
		event(l);
}

void heads_event_spelt(struct qdb *db, const char *queue)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		if (strcmp(l->name, queue) != 0 && spelling_may_be(l->name, queue))
			event(l);
}

void head_suspect_all(struct qdb *db)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp)
		l->suspect = true;
}

void heads_to_ground(struct qdb *db)
{
	struct head *l, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->heads, l, tmp) {
		lower(l, (struct head_mark){0});
		l->suspect = true;
		l->event_at = 0;
	}
}

usec_t head_look_at(struct qdb *db, const char *queue)
{
	const struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	if (l == NULL)
		return USEC_NEVER;
	/* otherwise the next take looks anyway */
	if (l->suspect && l->event_at > loop_now())
		return l->event_at;
	if (!l->unproven)
		return USEC_NEVER;
	return l->full_at > loop_now() ? l->full_at : loop_now();
}

/* Ordered by priority, the highest first, as the take reads them. */
static void raise_low_mark(struct head *l, int32_t priority, int64_t place)
{
	struct flight *f;
	int i = 0;

	while (i < l->n_low_marks && l->low_marks[i].priority > priority)
		i++;
	if (i < l->n_low_marks && l->low_marks[i].priority == priority) {
		raise_to(&l->low_marks[i].place, place);
		return;
	}
	if (l->n_low_marks == LOW_MARKS_MAX)
		return;
	memmove(&l->low_marks[i + 1], &l->low_marks[i],
		(size_t)(l->n_low_marks - i) * sizeof(l->low_marks[0]));
	l->low_marks[i] = (struct low_mark){priority, place};
	l->n_low_marks++;
	INVARIANT(i == 0 || l->low_marks[i - 1].priority > priority,
		"low marks are not in the order of priorities");
	/* those that are under way have read jobs of this priority from the front */
	LL_FOREACH (l->flights, f)
		f->from.place = 0;
}

static struct head_mark lowest(const struct head *l)
{
	struct head_mark mark = {l->n_low_marks > 0 ? INT64_MAX : 0, l->since};

	for (int i = 0; i < l->n_low_marks; i++)
		lower_to(&mark.place, l->low_marks[i].place);
	return mark;
}

struct head_mark head_lowest(struct qdb *db, const char *queue)
{
	const struct head *l = head_find(db, queue);

	CHECK_QDB(db);
	return l != NULL ? lowest(l) : (struct head_mark){0};
}

/* --- takes under way --- */

static struct flight *flight_new(struct head *l)
{
	struct flight *f = block_zget(sizeof(*f));

	if (f == NULL)
		return NULL;
	f->magic = FLIGHT_MAGIC;
	f->head = l;
	f->cap = (struct head_mark){INT64_MAX, INT64_MAX};
	f->began = loop_now();
	return f;
}

static void flight_enter(struct flight *f)
{
	struct head *l = f->head;

	f->from = lowest(l);
	f->since = l->reached.since;
	LL_PREPEND(l->flights, f);
	l->refs++;
}

struct flight *flight_of_push(struct head *l)
{
	struct flight *f = flight_new(l);

	CHECK_HEAD(l);
	if (f == NULL)
		return NULL;
	f->pushes = true;
	flight_enter(f);
	return f;
}

struct flight *flight_begin(struct head *l)
{
	struct flight *f = flight_new(l), *before;
	usec_t now = loop_now();

	CHECK_HEAD(l);
	if (f == NULL)
		return NULL;
	f->full = now >= l->full_at || (l->suspect && now >= l->event_at);
	if (f->full) {
		l->suspect = l->unproven = false;
		l->n_low_marks = 0;
		l->since = 0;
		/* they did not look below the low marks that are not believed any more */
		LL_FOREACH (l->flights, before)
			before->cap = (struct head_mark){0};
		/* others that begin meanwhile need not look again */
		l->full_at = now + FULL_MIN;
	}
	flight_enter(f);
	return f;
}

void flight_sent(struct flight *f)
{
	f->began = loop_now();
}

void flight_saw(struct flight *f, int32_t priority, int64_t place)
{
	int i = 0;

	CHECK_FLIGHT(f);
	if (place < INT64_MAX)
		place++; /* from behind it on */
	while (i < f->n_seen && f->seen[i].priority != priority)
		i++;
	if (i == LOW_MARKS_MAX)
		return;
	if (i == f->n_seen)
		f->seen[f->n_seen++] = (struct low_mark){priority, place};
	else
		raise_to(&f->seen[i].place, place);
}

bool flight_may_front(const struct flight *f)
{
	CHECK_FLIGHT(f);
	return f->full || f->head->dear < DEAR_MOST;
}

void flight_spent(struct flight *f, int64_t usec)
{
	CHECK_FLIGHT(f);
	if (usec < DEAR)
		f->head->dear = 0;
	else if (f->head->dear < DEAR_MOST)
		f->head->dear++;
}

static usec_t share(usec_t spent, usec_t times, usec_t least)
{
	usec_t t = spent * times;

	return t < least ? least : t > FULL_MAX ? FULL_MAX : t;
}

void flight_end(struct flight *f, bool ok)
{
	struct head *l = f->head;
	usec_t now = loop_now();
	bool capped;

	CHECK_FLIGHT(f);
	LL_DELETE(l->flights, f);
	remember(l);
	ok = ok && !f->stale;
	if (ok && (f->n_seen > 0 || !f->pushes))
		l->drained = f->n_seen == 0;
	for (int i = 0; ok && i < f->n_seen; i++) {
		raise_to(&l->reached.place, f->seen[i].place);
		lower_to(&f->seen[i].place, f->cap.place);
		raise_low_mark(l, f->seen[i].priority, f->seen[i].place);
		l->unproven |= !f->pushes;
	}
	if (ok && f->edge > 0 && f->edge < f->since - CLOCK_BACK) {
		l->reached.since = f->edge;
		lower_to(&l->past[0].since, f->edge);
		lower_to(&l->past[1].since, f->edge);
		lower(l, (struct head_mark){INT64_MAX, f->edge});
	}
	INVARIANT(f->n_seen <= LOW_MARKS_MAX, "a flight has seen more priorities than it can");
	if (ok) {
		capped = f->edge > f->cap.since;
		raise_to(&l->reached.since, f->edge);
		lower_to(&f->edge, f->cap.since);
		if (f->edge > l->since)
			l->since_at = capped ? 0 : f->began;
		raise_to(&l->since, f->edge);
	}
	if (f->full) {
		l->full_at = now + share(now - f->began, FULL_SHARE, FULL_MIN);
		l->event_at = now + share(now - f->began, EVENT_SHARE, EVENT_MIN);
	}
	/* what it had locked was passed over by others, also by those that see it still */
	if (!ok && !f->pushes)
		lower(l, f->from);
	f->magic = 0;
	block_put(f, sizeof(*f));
	head_unref(l);
}
