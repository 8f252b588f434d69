/*
 * Limits over several processes (places.h). What is limited has a row in a memory that all of them see: its
 * name, how many places each process has, and since when one waits for a place there. A lock that
 * outlives whoever holds it makes it exact; it is taken when a server or a client comes or goes, or while anybody waits
 * for a place, and to look whether a limit of the database or the user is full.
 *
 * Who finds no place says since when it waits, and tells the others: one that has a free server closes it, if
 * it has more. The place is for who waits longest. What is wanted is said again and again, as long as it is:
 * who has got what it wanted, or has gone, need not take it back.
 */
#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "net/team.h"
#include "pool/demand.h"
#include "pool/places.h"
#include "pool/rooms.h"

#define ROWS       2048
#define WINDOW     64 /* rows in which a name may stand */
#define NAME_MAX_  192
#define CACHE_LINE 64
#define WANT_AGAIN (20 * USEC_MSEC)
#define WANT_HOLDS (100 * USEC_MSEC)
#define PATIENCE   (5 * USEC_MSEC) /* of who waits there, while others wait here */

struct row {
	char name[NAME_MAX_];
	uint32_t total, used[TEAM_MAX + 1];
	usec_t meant;   /* somebody has looked for it, perhaps to count in it */
	usec_t free_at; /* a server that has a place of it was free, and others could have had that */
	struct want {
		usec_t said;   /* 0: never */
		unsigned most; /* one may be used there while there are fewer, in all processes */
		struct demand demand;
		const struct row *
			with; /* of that, too, a place is lacked, and this one alone is of no use; or NULL */
		bool exceeds; /* clients may have one beyond the pool's size: tasks elsewhere have those, and more */
	} want[TEAM_MAX + 1];
	/* servers that clients have, of a pool, when somebody has last asked */
	uint32_t linked[TEAM_MAX + 1];
	usec_t linked_at[TEAM_MAX + 1];
	usec_t tasks_at; /* a task of that pool began, in some process */
};

struct table {
	pthread_mutex_t lock;
	/* nothing that anybody has said holds for longer; read without the lock, and not beside what is often written */
	alignas(CACHE_LINE) _Atomic usec_t wanted_until;
	alignas(CACHE_LINE) struct row rows[ROWS];
};
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock of one process would be none for the others");

static struct {
	struct table *table;
	struct loop_tick *tick;
	enum { LACKS_NONE, LACKS, LACKS_TOLD } lacks; /* some row was not to be had */
} places;

/* --- the memory --- */

bool places_create(void)
{
	pthread_mutexattr_t a;
	void *p = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool ok;

	if (p == MAP_FAILED)
		return false;
	places.table = p;
	if (pthread_mutexattr_init(&a) != 0)
		return false;
	ok = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0 &&
	     pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST) == 0 &&
	     pthread_mutex_init(&places.table->lock, &a) == 0;
	(void)pthread_mutexattr_destroy(&a);
	return ok;
}

static void add_up(struct row *r)
{
	r->total = 0;
	for (int i = 1; i <= TEAM_MAX; i++)
		r->total += r->used[i];
}

/* Whoever held it when it died may have been half way through. */
static void lock(void)
{
	if (pthread_mutex_lock(&places.table->lock) != EOWNERDEAD)
		return;
	for (size_t i = 0; i < ROWS; i++)
		add_up(&places.table->rows[i]);
	(void)pthread_mutex_consistent(&places.table->lock);
}

static void unlock(void)
{
	(void)pthread_mutex_unlock(&places.table->lock);
}

void places_drop(int process)
{
	lock();
	for (size_t i = 0; i < ROWS; i++) {
		struct row *r = &places.table->rows[i];

		r->used[process] = 0;
		r->want[process].said = 0;
		r->linked_at[process] = 0;
		add_up(r);
	}
	unlock();
}

static bool is_unused(const struct row *r, usec_t now)
{
	if (r->total > 0 || r->meant + WANT_HOLDS > now)
		return false;
	for (int i = 1; i <= team_size(); i++)
		if (r->want[i].said + WANT_HOLDS > now)
			return false;
	return true;
}

/* NULL: there is none, and, where it is to be made, no room. */
static struct row *find(const char *name, bool make)
{
	unsigned h = hash_bytes(name, strlen(name));
	struct row *unused = NULL;
	usec_t now = loop_now();

	for (unsigned i = 0; i < WINDOW; i++) {
		struct row *r = &places.table->rows[(h + i) % ROWS];

		if (strcmp(r->name, name) == 0) {
			if (make)
				r->meant = now;
			return r;
		}
		if (unused == NULL && is_unused(r, now))
			unused = r;
	}
	if (!make || unused == NULL)
		return NULL;
	memset(unused, 0, sizeof(*unused));
	util_strlcpy(unused->name, name, sizeof(unused->name));
	unused->meant = now;
	return unused;
}

/* --- names --- */

struct name {
	char text[NAME_MAX_];
};

/* A database and a user, parted by what neither has. */
static struct name name_of(char kind, const char *db, const char *user)
{
	struct name n;

	snprintf(n.text, sizeof(n.text), "%c%s\x01%s", kind, db, user);
	return n;
}

static struct name of_db(const struct pool *p)
{
	return name_of('d', p->db->name, "");
}

static struct name of_user(const struct pool *p)
{
	return name_of('u', "", istr_text(p->user));
}

static struct name of_pool(const struct pool *p)
{
	return name_of('p', p->db->name, istr_text(p->user));
}

/* Only those have a size of their own. */
static bool is_sized(const struct pool *p)
{
	return !p->lookup && p->startup == NULL;
}

static unsigned user_most(const struct pool *p)
{
	int n = account_limits(p->account)->max_servers;

	return n > 0 ? (unsigned)n : 0;
}

static unsigned db_most(const struct pool *p)
{
	return p->db->max_connections > 0 ? (unsigned)p->db->max_connections : 0;
}

/* --- taking and giving --- */

/* Not within the lock, as the log may stand still. */
static void say_if_full(void)
{
	if (places.lacks == LACKS)
		log_warning(
			"the memory of limits over several processes is full: some hold for each alone");
	if (places.lacks != LACKS_NONE)
		places.lacks = LACKS_TOLD;
}

static bool is_full(const struct row *r, unsigned most)
{
	return r != NULL && most > 0 && r->total >= most;
}

static bool is_said(const struct row *r, int i)
{
	return r->want[i].said + WANT_HOLDS > loop_now();
}

/* Of another process, to what self may have beside so many. */
static bool goes_before(const struct row *r, int i, usec_t since, unsigned has)
{
	struct demand c = r->want[i].demand;

	c.has = r->used[i];
	return i != team_self() && is_said(r, i) && demand_goes_before(&c, since, has);
}

/* Those of the free ones that others have waited for longer are theirs, and of no use to them once there are more than
 * they may have. */
static bool has_room(const struct row *r, unsigned most, usec_t since)
{
	unsigned theirs = 0, bound = most;

	if (r == NULL || most == 0)
		return true;
	if (is_full(r, most))
		return false;
	for (int i = 1; i <= team_size(); i++) {
		const struct want *w = &r->want[i];

		if (w->with != NULL || r->total >= w->most ||
			!goes_before(r, i, since, r->used[team_self()]))
			continue;
		theirs++;
		if (w->most < bound)
			bound = w->most;
	}
	return r->total + theirs < bound;
}

static void set(struct row *r, uint32_t n)
{
	r->total += n - r->used[team_self()];
	r->used[team_self()] = n;
}

static void enter(struct row *r)
{
	if (r == NULL) {
		if (places.lacks == LACKS_NONE)
			places.lacks = LACKS;
		return;
	}
	set(r, r->used[team_self()] + 1);
	r->want[team_self()].said = 0;
	r->want[team_self()].exceeds = false;
}

static void leave(const char *name)
{
	struct row *r = find(name, false);

	if (r != NULL && r->used[team_self()] > 0)
		set(r, r->used[team_self()] - 1);
}

/* Which of its servers count changes while they are there: some run beside the pool, or listen. */
static void count_pool(struct pool *p)
{
	unsigned n = pool_servers_counted(p);
	struct name own = of_pool(p);
	struct row *r = find(own.text, n > 0);

	if (r != NULL)
		set(r, n);
	p->places_told = n;
}

usec_t pool_client_waits_since(const struct pool *p)
{
	const struct client *c = p->waiting.head, *g = p->greeting.head;
	usec_t since = c != NULL ? c->request_time : USEC_NEVER;

	return g != NULL && g->request_time < since ? g->request_time : since;
}

usec_t pool_waits_since(const struct pool *p)
{
	usec_t since = pool_client_waits_since(p);

	return p->tasks != NULL && p->tasks->since < since ? p->tasks->since : since;
}

bool places_take_server(struct pool *p, bool counts, unsigned most, usec_t since)
{
	struct name d = of_db(p), u = of_user(p), own = of_pool(p);
	struct row *rd, *ru, *rp;
	bool ok;

	CHECK_POOL(p);
	lock();
	rd = find(d.text, true);
	ru = find(u.text, true);
	rp = counts && is_sized(p) ? find(own.text, true) : NULL;
	ok = has_room(rd, db_most(p), since) && has_room(ru, user_most(p), since) &&
	     has_room(rp, most, since);
	if (ok) {
		enter(rd);
		enter(ru);
		if (counts && is_sized(p))
			enter(rp);
		if (rp != NULL)
			p->places_told = rp->used[team_self()];
	}
	unlock();
	say_if_full();
	return ok;
}

void places_count_pool(struct pool *p)
{
	CHECK_POOL(p);
	if (!is_sized(p) || p->places_told == pool_servers_counted(p))
		return;
	lock();
	count_pool(p);
	unlock();
}

/* Whom it may be for looks. */
static void tell(const struct pool *p)
{
	(void)team_send_all(TEAM_PLACE, p->db->name, strlen(p->db->name));
}

static bool others_want(const char *name)
{
	const struct row *r = find(name, false);

	for (int i = 1; r != NULL && i <= team_size(); i++)
		if (i != team_self() && is_said(r, i))
			return true;
	return false;
}

void places_give_server(struct pool *p)
{
	struct name d = of_db(p), u = of_user(p), own = of_pool(p);
	bool wanted;

	CHECK_POOL(p);
	lock();
	leave(d.text);
	leave(u.text);
	if (is_sized(p))
		count_pool(p);
	wanted = others_want(d.text) || others_want(u.text) || others_want(own.text);
	unlock();
	if (wanted)
		tell(p);
}

static unsigned total_of(struct name n)
{
	const struct row *r;
	unsigned total;

	lock();
	r = find(n.text, false);
	total = r != NULL ? r->total : 0;
	unlock();
	return total;
}

unsigned places_of_pool(const struct pool *p)
{
	CHECK_POOL(p);
	return total_of(of_pool(p));
}

unsigned places_of_db(const struct pool *p)
{
	CHECK_POOL(p);
	return total_of(of_db(p));
}

unsigned places_of_user(const struct pool *p)
{
	CHECK_POOL(p);
	return total_of(of_user(p));
}

unsigned places_linked(const struct pool *p)
{
	unsigned n = p->servers[SERVER_ACTIVE].count;
	struct name own = of_pool(p);
	const struct row *r;

	CHECK_POOL(p);
	lock();
	r = is_sized(p) ? find(own.text, false) : NULL;
	for (int i = 1; r != NULL && i <= team_size(); i++)
		if (i != team_self() && r->linked_at[i] + WANT_HOLDS > loop_now())
			n += r->linked[i];
	unlock();
	return n;
}

void places_task_began(const struct pool *p)
{
	struct name own = of_pool(p);
	struct row *r;

	CHECK_POOL(p);
	lock();
	r = is_sized(p) ? find(own.text, false) : NULL;
	if (r != NULL)
		r->tasks_at = loop_now();
	unlock();
}

usec_t places_tasks_at(const struct pool *p)
{
	struct name own = of_pool(p);
	const struct row *r;
	usec_t at;

	CHECK_POOL(p);
	lock();
	r = find(own.text, false);
	at = r != NULL ? r->tasks_at : 0;
	unlock();
	return at;
}

/* --- who waits --- */

/* As long as it is said without a pause. */
static bool exceeds(const struct row *r)
{
	return r != NULL && r->want[team_self()].exceeds && is_said(r, team_self());
}

bool places_may_exceed(const struct pool *p)
{
	struct name own = of_pool(p);
	bool ret;

	CHECK_POOL(p);
	lock();
	ret = is_sized(p) && exceeds(find(own.text, false));
	unlock();
	return ret;
}

/* Who has its part of the places waits for what it has, unless that stays in use. */
static bool has_claim(const struct row *r, unsigned most, const struct place_want *w)
{
	return w->starves || r->used[team_self()] == 0 ||
	       r->used[team_self()] < most / (unsigned)team_size();
}

/* with: another limit, without a place of which nobody shall give up anything yet; or NULL */
static bool want(struct row *r, unsigned most, const struct place_want *w, const struct row *with)
{
	usec_t now = loop_now(), starves_since = w->starves ? w->since : USEC_NEVER;
	struct want *own;
	bool news;

	if (r == NULL || most == 0 || !has_claim(r, most, w))
		return false;
	own = &r->want[team_self()];
	own->exceeds = exceeds(r);
	news = own->said + WANT_AGAIN / 2 < now;
	if (news || (with == NULL && own->with != NULL)) {
		own->demand = (struct demand){.since = w->since, .starves_since = starves_since};
		own->most = most;
		own->with = with;
	} else if ((with == NULL) == (own->with == NULL)) {
		if (w->since < own->demand.since) {
			own->demand.since = w->since;
			own->with = with;
		}
		if (starves_since < own->demand.starves_since)
			own->demand.starves_since = starves_since;
		if (most < own->most)
			own->most = most;
	}
	if (news) {
		own->said = now;
		/* the clocks of others may be later: each is that of its turn */
		if (atomic_load(&places.table->wanted_until) < now + WANT_HOLDS)
			atomic_store(&places.table->wanted_until, now + WANT_HOLDS);
	}
	return news;
}

/* Of two limits that are full, one place is of no use, unless the other comes soon: then it is wanted, or kept. */
static bool want_both(struct pool *p, const struct place_want *w)
{
	struct name d = of_db(p), u = of_user(p);
	struct row *rd = find(d.text, true), *ru = find(u.text, true);
	bool db_full = is_full(rd, db_most(p)), user_full = is_full(ru, user_most(p));
	bool news = false;

	if (!db_full && !user_full)
		return false;
	if (!db_full || !w->db.is_idle)
		news |= want(rd, db_most(p), w, user_full && w->user.is_lacked ? ru : NULL);
	if (!user_full || !w->user.is_idle)
		news |= want(ru, user_most(p), w, db_full && w->db.is_lacked ? rd : NULL);
	return news;
}

void places_want(struct pool *p, const struct place_want *w)
{
	struct name own = of_pool(p);
	bool clients_full, tasks_full, may_exceed, news = false;
	struct place_want of_clients = *w;
	unsigned for_clients;
	struct row *r;

	CHECK_POOL(p);
	of_clients.since = pool_client_waits_since(p);
	lock();
	r = is_sized(p) ? find(own.text, true) : NULL;
	may_exceed = w->for_clients > 0 && exceeds(r);
	for_clients = may_exceed ? w->most : w->for_clients;
	clients_full = is_full(r, for_clients);
	tasks_full = is_full(r, w->for_tasks);
	/* where tasks, too, have all they may, one less is of no use yet for the clients */
	if (tasks_full)
		news = want(r, w->for_tasks, w, NULL);
	else if (clients_full || may_exceed)
		news = want(r, for_clients, &of_clients, NULL);
	/* where the pool has all it may, a place of another pool is of no use */
	if ((w->for_clients > 0 && !clients_full) || (w->for_tasks > 0 && !tasks_full))
		news |= want_both(p, w);
	unlock();
	if (news)
		tell(p);
	loop_tick_at(places.tick, loop_now() + WANT_AGAIN);
}

/* Would one less be of use there? Not while there are more than that, and who waits here may launch another. */
static bool would_help(const struct row *r, const struct want *w, unsigned most)
{
	return r->total == w->most || (r->total > w->most && r->total > most);
}

/* A server that has places of both rows; who lacks them goes before who waits here, since then, and may have `most`. */
static bool is_wanted(const struct row *r, const struct row *beside, usec_t since, unsigned most)
{
	unsigned others;

	if (r == NULL || r->used[team_self()] == 0)
		return false;
	others = r->used[team_self()] - 1;
	for (int i = 1; i <= team_size(); i++) {
		const struct want *w = &r->want[i];
		bool is_new = since != USEC_NEVER && w->demand.since + PATIENCE >= loop_now();

		if (would_help(r, w, most) && (w->with == NULL || w->with == beside) && !is_new &&
			goes_before(r, i, since, others))
			return true;
	}
	return false;
}

/* Clients elsewhere wait for one of those that count, and tasks here have got more than clients may. These would launch
 * another one in its place, so the clients may have one more, as they would get that of a task if it was theirs. Not
 * where clients here have all that they may. */
static bool let_exceed(struct row *r, const struct pool *p, usec_t since)
{
	bool news = false;

	for (int i = 1; r != NULL && r->used[team_self()] > 0 && i <= team_size(); i++) {
		struct want *w = &r->want[i];

		if (w->exceeds || r->total <= w->most ||
			p->servers[SERVER_ACTIVE].count >= w->most ||
			!goes_before(r, i, since, r->used[team_self()] - 1))
			continue;
		w->exceeds = news = true;
	}
	return news;
}

static void was_free(struct row *r)
{
	if (r != NULL)
		r->free_at = loop_now();
}

bool places_claimed(void)
{
	return atomic_load(&places.table->wanted_until) > loop_now();
}

bool places_wanted(const struct server *s, usec_t since, unsigned most)
{
	const struct pool *p = s->pool;
	bool counts = is_sized(p) && s->state != SERVER_KEPT && !s->use.engine, found;
	struct name d, u, own;
	struct row *rd, *ru, *rp;
	bool news;

	CHECK_SERVER(s);
	d = of_db(p);
	u = of_user(p);
	own = of_pool(p);
	lock();
	rd = find(d.text, false);
	ru = find(u.text, false);
	rp = counts ? find(own.text, false) : NULL;
	found = is_wanted(rd, ru, since, 0) || is_wanted(ru, rd, since, 0) ||
		is_wanted(rp, NULL, since, most);
	news = !found && let_exceed(rp, p, since);
	was_free(rd);
	was_free(ru);
	unlock();
	if (news)
		tell(p);
	return found;
}

static usec_t free_at(struct name n)
{
	const struct row *r;
	usec_t at;

	lock();
	r = find(n.text, false);
	at = r != NULL ? r->free_at : 0;
	unlock();
	return at;
}

usec_t places_db_free_at(const struct pool *p)
{
	CHECK_POOL(p);
	return free_at(of_db(p));
}

usec_t places_user_free_at(const struct pool *p)
{
	CHECK_POOL(p);
	return free_at(of_user(p));
}

static void look(void)
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			if (pool_waits_since(p) != USEC_NEVER ||
				p->servers[SERVER_IDLE].count + p->servers[SERVER_KEPT].count > 0)
				pool_mark_ready(p);
}

static void say_linked(struct pool *p)
{
	struct name own = of_pool(p);
	struct row *r;

	lock();
	r = find(own.text, false);
	if (r != NULL) {
		r->linked[team_self()] = p->servers[SERVER_ACTIVE].count;
		r->linked_at[team_self()] = loop_now();
	}
	unlock();
}

/* Of a user there may be servers in each database. */
static void on_place(int from, const uint8_t *text, size_t len)
{
	(void)from;
	look();
	for (struct database *db = route_first(); db != NULL; db = db->next)
		if (strlen(db->name) == len && memcmp(db->name, text, len) == 0)
			for (struct pool *p = db->pools; p != NULL; p = p->next)
				if (is_sized(p) && p->servers[SERVER_ACTIVE].count > 0)
					say_linked(p);
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	(void)now;
	look();
	return USEC_NEVER;
}

/* --- clients --- */

enum place_limit places_take_client(
	const struct database *db, const struct account *a, unsigned most_db, unsigned most_user)
{
	struct name d = name_of('D', db->name, ""), u = name_of('U', "", istr_text(a->name));
	enum place_limit ret = PLACE_GOOD;
	struct row *rd, *ru;

	lock();
	rd = find(d.text, true);
	ru = find(u.text, true);
	if (!has_room(rd, most_db, USEC_NEVER))
		ret = PLACE_DB;
	else if (!has_room(ru, most_user, USEC_NEVER))
		ret = PLACE_USER;
	if (ret == PLACE_GOOD) {
		enter(rd);
		enter(ru);
	}
	unlock();
	say_if_full();
	return ret;
}

void places_give_client(const struct database *db, const struct account *a)
{
	struct name d = name_of('D', db->name, ""), u = name_of('U', "", istr_text(a->name));

	lock();
	leave(d.text);
	leave(u.text);
	unlock();
}

/* --- start and end --- */

void places_start(void)
{
	if (team_self() == 0)
		return;
	team_hear(TEAM_PLACE, on_place);
	places.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
}

void places_stop(void)
{
	loop_tick_free(&places.tick);
}
