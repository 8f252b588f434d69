/*
 * What is known of the queues: numbers and floors (lane.h). What statements become with it is
 * shape.c.
 */
#include <string.h>

#include "lane_int.h"

#define LANES_MAX   5000 /* of a database; the unused ones are forgotten */
#define ASK_AFTER   5    /* statements of a queue whose number is not known */
#define FULL_MIN    (1 * USEC_SEC)
#define FULL_MAX    (60 * USEC_SEC)
#define FULL_SHARE  50 /* a take from the front that lasts d comes not before 50 d have gone */
#define EVENT_MIN   (100 * USEC_MSEC)
#define EVENT_SHARE 3 /* ... 3 d when something has happened */

/* --- the table
 * -------------------------------------------------------------------------------------------- */

static struct lane *lane_find(struct qdb *db, const char *queue)
{
	struct lane *l;

	HASH_FIND_STR(db->lanes, queue, l);
	return l;
}

/* One that is still referred to is freed by the last who does. */
static void lane_drop(struct lane *l)
{
	HASH_DEL(l->db->lanes, l);
	l->db = NULL;
	if (l->refs == 0)
		mem_free(l);
}

static void forget_unused(struct qdb *db)
{
	struct lane *l, *tmp;

	HASH_ITER (hh, db->lanes, l, tmp)
		if (l->refs == 0)
			lane_drop(l);
}

struct lane *lane_ref(struct qdb *db, const char *queue)
{
	struct lane *l = lane_find(db, queue);

	if (l == NULL) {
		if (HASH_COUNT(db->lanes) >= LANES_MAX)
			forget_unused(db);
		l = mem_zalloc(sizeof(*l));
		if (l == NULL)
			return NULL;
		l->db = db;
		util_strlcpy(l->name, queue, sizeof(l->name));
		HASH_ADD_STR(db->lanes, name, l);
	}
	l->refs++;
	return l;
}

void lane_unref(struct lane *l)
{
	if (--l->refs == 0 && l->db == NULL)
		mem_free(l);
}

void lanes_free(struct qdb *db)
{
	struct lane *l, *tmp;

	HASH_ITER (hh, db->lanes, l, tmp)
		lane_drop(l);
}

/* --- numbers
 * ---------------------------------------------------------------------------------------------- */

static void number_row(void *arg, const uint8_t *body, size_t len)
{
	struct lane *l = arg;
	int64_t n;

	if (len > 6 && util_parse_i64((const char *)body + 6, len - 6, &n) && n > 0)
		lane_renew(l, n);
}

static void number_done(void *arg, const struct pg_error *err)
{
	struct lane *l = arg;

	(void)err;
	l->asking = false;
	lane_unref(l);
}

/* Queues that are used again and again are worth asking about. */
void lane_used(struct lane *l, struct pool *pool)
{
	static const struct task_ops ops = {.row = number_row, .done = number_done};
	static const uint32_t oids[] = {OID_TEXT};
	struct bind_param name = {
		.data = (const uint8_t *)l->name, .len = (int32_t)strlen(l->name)};
	struct task_spec spec = {.ops = &ops,
		.arg = l,
		.sql = "SELECT number FROM queue.queues WHERE name OPERATOR(pg_catalog.=) $1",
		.prepare = true,
		.oids = oids,
		.n_params = 1,
		.params = &name};

	if (l->number != 0 || l->asking || ++l->uses % ASK_AFTER != 0)
		return;
	if (task_submit(pool, &spec) == NULL)
		return;
	l->asking = true;
	l->refs++;
}

/* --- floors
 * ------------------------------------------------------------------------------------------------
 */

/*
 * Not the floors of now: those are on the ground while a take reads from the front, and pushers
 * that follow each other closely would then keep them there for each other.
 */
struct lane_mark lane_now(struct qdb *db, const char *queue)
{
	const struct lane *l = lane_find(db, queue);

	return l != NULL ? l->reached : (struct lane_mark){0};
}

static void lower_to(int64_t *v, int64_t to)
{
	if (*v > to)
		*v = to;
}

static void raise_to(int64_t *v, int64_t to)
{
	if (*v < to)
		*v = to;
}

/* Takes that are under way will not raise them above it: what they saw may be older. */
static void lower(struct lane *l, struct lane_mark to)
{
	struct flight *f;

	for (int i = 0; i < l->n_floors; i++)
		lower_to(&l->floors[i].place, to.place);
	lower_to(&l->since, to.since);
	LL_FOREACH (l->flights, f) {
		lower_to(&f->cap.place, to.place);
		lower_to(&f->cap.since, to.since);
	}
}

void lane_renew(struct lane *l, int64_t number)
{
	struct flight *f;

	l->number = number;
	l->reached = (struct lane_mark){0};
	lower(l, l->reached);
	LL_FOREACH (l->flights, f)
		f->stale = true;
}

void lane_lower(struct qdb *db, const char *queue, struct lane_mark to)
{
	struct lane *l = lane_find(db, queue);

	if (l != NULL)
		lower(l, to);
}

void lane_suspect(struct qdb *db, const char *queue)
{
	struct lane *l = lane_find(db, queue);

	if (l == NULL)
		return;
	/* who gives a job back and takes gets it: the next take begins at the front */
	l->suspect = true;
	l->event_at = 0;
}

void lane_suspect_all(struct qdb *db)
{
	struct lane *l, *tmp;

	HASH_ITER (hh, db->lanes, l, tmp)
		l->suspect = true;
}

usec_t lane_look_at(struct qdb *db, const char *queue)
{
	const struct lane *l = lane_find(db, queue);

	/* otherwise the next take looks anyway */
	return l != NULL && l->suspect && l->event_at > loop_now() ? l->event_at : USEC_NEVER;
}

/* Ordered by priority, the highest first, as the take reads them. */
static void raise_floor(struct lane *l, int32_t priority, int64_t place)
{
	int i = 0;

	while (i < l->n_floors && l->floors[i].priority > priority)
		i++;
	if (i < l->n_floors && l->floors[i].priority == priority) {
		raise_to(&l->floors[i].place, place);
		return;
	}
	if (l->n_floors == FLOORS_MAX)
		return;
	memmove(&l->floors[i + 1], &l->floors[i], (size_t)(l->n_floors - i) * sizeof(l->floors[0]));
	l->floors[i] = (struct floor){priority, place};
	l->n_floors++;
}

/* --- takes under way
 * --------------------------------------------------------------------------------------- */

struct flight *flight_begin(struct lane *l)
{
	struct flight *f = mem_zalloc(sizeof(*f));
	usec_t now = loop_now();

	if (f == NULL)
		return NULL;
	f->lane = l;
	f->cap = (struct lane_mark){INT64_MAX, INT64_MAX};
	f->began = now;
	f->full = now >= l->full_at || (l->suspect && now >= l->event_at);
	if (f->full) {
		l->suspect = false;
		l->n_floors = 0;
		l->since = 0;
		/* others that begin meanwhile need not look again */
		l->full_at = now + FULL_MIN;
	}
	LL_PREPEND(l->flights, f);
	l->refs++;
	return f;
}

void flight_saw(struct flight *f, int32_t priority, int64_t place)
{
	int i = 0;

	while (i < f->n_seen && f->seen[i].priority != priority)
		i++;
	if (i == FLOORS_MAX)
		return;
	if (i == f->n_seen)
		f->seen[f->n_seen++] = (struct floor){priority, place + 1};
	else
		raise_to(&f->seen[i].place, place + 1);
}

static usec_t share(usec_t spent, usec_t times, usec_t least)
{
	usec_t t = spent * times;

	return t < least ? least : t > FULL_MAX ? FULL_MAX : t;
}

void flight_end(struct flight *f, bool ok)
{
	struct lane *l = f->lane;
	usec_t now = loop_now();

	LL_DELETE(l->flights, f);
	ok = ok && !f->stale;
	for (int i = 0; ok && i < f->n_seen; i++) {
		raise_to(&l->reached.place, f->seen[i].place);
		lower_to(&f->seen[i].place, f->cap.place);
		raise_floor(l, f->seen[i].priority, f->seen[i].place);
	}
	if (ok) {
		raise_to(&l->reached.since, f->edge);
		lower_to(&f->edge, f->cap.since);
		raise_to(&l->since, f->edge);
	}
	if (f->full) {
		l->full_at = now + share(now - f->began, FULL_SHARE, FULL_MIN);
		l->event_at = now + share(now - f->began, EVENT_SHARE, EVENT_MIN);
	}
	/* what it had locked was passed over by others */
	if (!ok)
		l->suspect = true;
	mem_free(f);
	lane_unref(l);
}
