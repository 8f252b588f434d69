/*
 * Who waits is served, whatever the limits: crowds at random before the real hand-out (pool.c, room.c, places.c), in one process
 * and in several, which are played one after the other here. The clock is ours; servers need a while to log in, clients
 * keep them for as long as they like, but none for ever. Of each crowd is asked that no limit is exceeded, that nobody
 * waits without end, and that servers are not logged in for too few.
 *
 * QB_CROWDS=n plays n of them, QB_CROWD=seed a single one and tells of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "net/team.h"
#include "pool/demand.h"
#include "pool/places.h"
#include "pool/rooms.h"

#define PROCESSES 4
#define KINDS     3 /* of databases, and of users */
#define ACTORS    14
#define LASTS     (30 * USEC_SEC)
#define LOGIN     (4 * USEC_MSEC)
#define JANITOR   (333 * USEC_MSEC)
#define NEWS      (100) /* microseconds, from one process to another */

enum does { THINKS, WAITS, HAS };

struct actor {
	struct client *c;
	struct pool *pool;
	struct task task; /* where c is NULL: of our own */
	int process, db, user;
	enum does does;
	usec_t until; /* THINKS, HAS */
	usec_t since; /* WAITS */
	usec_t keeps, thinks;
	bool runs; /* a statement; or its transaction is idle */
	bool is_task, is_beside;
	unsigned rounds;
	usec_t worst;
};

struct process {
	struct pool_all all;
	usec_t tick[4], news;
	usec_t clock; /* of its last turn */
};

static struct {
	uint32_t random;
	usec_t now, janitor;
	int self, size; /* of the team */
	struct process processes[PROCESSES + 1];
	int n_actors, n_dbs, n_users, db_most, user_most, pool_size, reserve;
	struct actor actors[ACTORS];
	unsigned logins, served, killed;
	usec_t worst, fair;
	void (*on_place)(int from, const uint8_t *text, size_t len);
	bool tells, kills, lags;
	const struct pool *silent; /* whose servers never come to log in */
} play;

/* What was said in the memory of limits is as old as the crowd or scene that said it. */
static usec_t a_later_time(void)
{
	static usec_t at;

	return at += 10000 * USEC_SEC;
}

static unsigned pick(unsigned n)
{
	play.random ^= play.random << 13;
	play.random ^= play.random >> 17;
	play.random ^= play.random << 5;
	return play.random % n;
}

/* --- loop, team and connections, as far as a pool knows them --- */

struct loop_tick {
	usec_t (*fn)(void *arg, usec_t now);
	int number;
};

static struct loop_tick ticks[4];
static int n_ticks;

/* The moment at which a process ends though it holds the lock: looking up a row asks for the time. */
static bool dies_within;

usec_t loop_now(void)
{
	if (dies_within)
		_exit(0);
	return play.now;
}

usec_t loop_clock(void)
{
	return play.now;
}

struct loop_tick *loop_tick_new(usec_t (*fn)(void *arg, usec_t now), void *arg, usec_t first)
{
	(void)arg;
	(void)first;
	for (int i = 0; i < n_ticks; i++)
		if (ticks[i].fn == fn)
			return &ticks[i];
	assert_true(n_ticks < (int)ARRAY_LEN(ticks));
	ticks[n_ticks] = (struct loop_tick){fn, n_ticks};
	return &ticks[n_ticks++];
}

void loop_tick_at(struct loop_tick *t, usec_t when)
{
	usec_t *at = &play.processes[play.self].tick[t->number];

	if (when < *at)
		*at = when;
}

void loop_tick_free(struct loop_tick **p)
{
	*p = NULL;
}

int team_self(void)
{
	return play.size > 1 ? play.self : 0;
}

int team_size(void)
{
	return play.size;
}

void team_hear(enum team_word word, void (*fn)(int from, const uint8_t *text, size_t len))
{
	if (word == TEAM_PLACE)
		play.on_place = fn;
}

int team_send_all(enum team_word word, const void *text, size_t len)
{
	(void)word;
	(void)text;
	(void)len;
	for (int i = 1; i <= play.size; i++)
		if (i != play.self && play.now + NEWS < play.processes[i].news)
			play.processes[i].news = play.now + NEWS;
	return play.size - 1;
}

void team_count_clients(unsigned n)
{
	(void)n;
}

static struct conn *a_conn(void)
{
	return (struct conn *)&play;
}

struct conn *conn_new(int fd, const struct conn_addr *peer, const struct conn_ops *ops, void *arg)
{
	(void)fd;
	(void)peer;
	(void)ops;
	(void)arg;
	return a_conn();
}

struct conn *conn_adopt(int fd, const struct conn_addr *peer, const char *host, const void *input,
	size_t len, const struct conn_ops *ops, void *owner)
{
	(void)host;
	(void)input;
	(void)len;
	return conn_new(fd, peer, ops, owner);
}

void conn_abandon(struct conn **p)
{
	*p = NULL;
}

const struct conn_addr *conn_peer(const struct conn *conn)
{
	static const struct conn_addr none;

	(void)conn;
	return &none;
}

void conn_write(struct conn *conn, const void *data, size_t len)
{
	(void)conn;
	(void)data;
	(void)len;
}

void conn_set_ops(struct conn *conn, const struct conn_ops *ops, void *arg)
{
	(void)conn;
	(void)ops;
	(void)arg;
}

void conn_count_unread(struct conn *conn, bool on)
{
	(void)conn;
	(void)on;
}

void conn_want_read(struct conn *conn, bool on)
{
	(void)conn;
	(void)on;
}

void conn_kick(struct conn *conn)
{
	(void)conn;
}

void conn_close(struct conn **p)
{
	*p = NULL;
}

uint64_t conn_sent(const struct conn *conn)
{
	(void)conn;
	return 0;
}

/* --- what the rooms above would do --- */

static bool login(struct server *s)
{
	s->conn = a_conn();
	play.logins++;
	return true;
}

static void of_client(struct client *c)
{
	(void)c;
}

static void of_database(struct database *db)
{
	(void)db;
}

static void of_server(struct server *s)
{
	(void)s;
}

static void nothing(void)
{
}

static bool task_starts(struct task *t, const struct server *s)
{
	(void)t;
	(void)s;
	return true;
}

static void task_start(struct task *t, struct server *s)
{
	t->server = s;
	s->task = t;
	s->use.served = true;
	server_move(s, SERVER_TASK);
}

static const struct pool_calls calls = {.login = login,
	.task_starts = task_starts,
	.task_start = task_start,
	.welcome = of_client,
	.wake = of_database,
	.check = of_server,
	.idle = of_client,
	.fewer_logins = nothing};

/* --- processes --- */

static void enter(int i)
{
	play.self = i;
	pool_all = play.processes[i].all;
	if (pool_all.ready_head == NULL)
		pool_all.ready_tail = &pool_all.ready_head;
}

static void leave(void)
{
	play.processes[play.self].all = pool_all;
}

static struct server **link_of(struct actor *a)
{
	return a->c != NULL ? &a->c->link : &a->task.server;
}

static void fewer(void)
{
	struct server *s;

	while ((s = server_all.dead.head) != NULL) {
		DL_DELETE(server_all.dead.head, s);
		server_all.dead.count--;
		server_free(s);
	}
}

static void each_pool(void (*fn)(struct pool *p))
{
	for (struct database *db = route_first(); db != NULL; db = db->next)
		for (struct pool *p = db->pools; p != NULL; p = p->next)
			fn(p);
}

static void logs_in(struct pool *p)
{
	struct server *s, *tmp;

	if (p == play.silent)
		return;
	DL_FOREACH_SAFE (p->servers[SERVER_LOGIN].head, s, tmp) {
		if (s->connect_time + LOGIN > play.now)
			continue;
		s->idle_since = play.now;
		server_move(s, SERVER_IDLE);
		p->welcome_known = true;
		pool_mark_ready(p);
	}
}

static void all_end(struct pool *p)
{
	struct server *s, *tmp;

	for (int i = 0; i < SERVER_DEAD; i++)
		DL_FOREACH_SAFE (p->servers[i].head, s, tmp) {
			if (s->link != NULL)
				s->link->link = NULL;
			s->link = NULL;
			if (s->task != NULL)
				s->task->server = NULL;
			s->task = NULL;
			server_close(s, "the end", NULL);
		}
}

static void janitor(struct pool *p)
{
	over_look(p, play.now);
	if (p->waiting.count > 0 || p->n_tasks > 0)
		pool_mark_ready(p);
}

static void releases(struct actor *a)
{
	struct server *s = *link_of(a);

	s->expect.count = 0;
	s->link = NULL;
	s->task = NULL;
	*link_of(a) = NULL;
	s->mode = POOL_MODE_UNSET;
	s->idle_since = play.now;
	server_move(s, SERVER_IDLE);
	pool_mark_ready(s->pool);
	a->does = THINKS;
	a->until = play.now + (a->thinks > 0 ? a->thinks / 2 + pick((unsigned)a->thinks) : 0);
}

static void waits(struct actor *a)
{
	static uint64_t tasks;

	a->does = WAITS;
	a->since = play.now;
	if (a->c != NULL) {
		a->c->request_time = play.now;
		client_move(a->c, CLIENT_WAITING);
	} else {
		a->task.since = play.now;
		a->task.seq = ++tasks;
		DL_APPEND(a->pool->tasks, &a->task);
		a->pool->n_tasks++;
	}
	pool_mark_ready(a->pool);
}

static void acts(struct actor *a)
{
	if (a->does == HAS && a->until <= play.now)
		releases(a);
	if (a->does == THINKS && a->until <= play.now)
		waits(a);
}

static void looks(struct actor *a)
{
	usec_t waited = play.now - a->since;

	if (a->does != WAITS || *link_of(a) == NULL)
		return;
	a->does = HAS;
	a->until = play.now + a->keeps / 2 + pick((unsigned)a->keeps);
	(*link_of(a))->expect.count = a->runs;
	a->rounds++;
	play.served++;
	if (waited > a->worst)
		a->worst = waited;
}

static void goes(struct actor *a)
{
	*link_of(a) = NULL;
	if (a->c != NULL && a->c->state != CLIENT_ACTIVE)
		client_move(a->c, CLIENT_ACTIVE);
	if (a->c == NULL && a->does == WAITS) {
		DL_DELETE(a->pool->tasks, &a->task);
		a->pool->n_tasks--;
	}
}

/* Its places are free, its clients come again. */
static void is_killed(int i)
{
	int size = play.size;

	enter(i);
	play.size = 1; /* nobody gives anything back */
	each_pool(all_end);
	play.size = size;
	fewer();
	for (int k = 0; k < play.n_actors; k++) {
		struct actor *a = &play.actors[k];

		if (a->process != i)
			continue;
		goes(a);
		a->does = THINKS;
		a->until = play.now + LOGIN;
	}
	leave();
	places_drop(i);
	play.killed++;
}

/* The ends of servers are seen to in the same turn. */
static bool serves(void)
{
	bool any = pool_serve_ready(NULL, play.now) || server_all.dead.count > 0;

	fewer();
	return any;
}

/* The clock of a turn is that of its beginning: those of others may be later. */
static usec_t clock_of(struct process *p)
{
	usec_t at = play.now - (play.lags && pick(3) == 0 ? pick(2000) : 0);

	p->clock = at > p->clock ? at : p->clock;
	return p->clock;
}

static void turn(int i)
{
	struct process *p = &play.processes[i];
	bool is_janitor = play.janitor == play.now;
	usec_t now = play.now;

	play.now = clock_of(p);
	enter(i);
	for (int t = 0; t < n_ticks; t++)
		if (p->tick[t] <= play.now) {
			p->tick[t] = USEC_NEVER;
			loop_tick_at(&ticks[t], ticks[t].fn(NULL, play.now));
		}
	if (p->news <= play.now) {
		p->news = USEC_NEVER;
		play.on_place(0, NULL, 0);
	}
	each_pool(logs_in);
	if (is_janitor)
		each_pool(janitor);
	for (int k = 0; k < play.n_actors; k++)
		if (play.actors[k].process == i)
			acts(&play.actors[k]);
	for (int n = 0; n < 8 && serves(); n++)
		;
	for (int k = 0; k < play.n_actors; k++)
		if (play.actors[k].process == i)
			looks(&play.actors[k]);
	fewer();
	leave();
	play.now = now;
}

/* --- the clock --- */

static usec_t earliest;

static void sooner(usec_t at)
{
	if (at < earliest)
		earliest = at;
}

static void login_ends(struct pool *p)
{
	struct server *s;

	if (p == play.silent)
		return;
	DL_FOREACH (p->servers[SERVER_LOGIN].head, s)
		sooner(s->connect_time + LOGIN);
}

static void next_moment(void)
{
	earliest = play.janitor = play.janitor > play.now ? play.janitor : play.now + JANITOR;
	for (int k = 0; k < play.n_actors; k++)
		if (play.actors[k].does != WAITS)
			sooner(play.actors[k].until);
	for (int i = 1; i <= play.size; i++) {
		for (int t = 0; t < n_ticks; t++)
			sooner(play.processes[i].tick[t]);
		sooner(play.processes[i].news);
		enter(i);
		each_pool(login_ends);
		leave();
	}
	play.now = earliest > play.now ? earliest : play.now + 1;
}

/* --- what is asked --- */

static unsigned of_db[KINDS], of_user[KINDS], of_pool[KINDS][KINDS];

static void counts(struct pool *p)
{
	int db = p->db->name[1] - '0', user = istr_text(p->user)[1] - '0';
	unsigned n = pool_servers_total(p);

	of_db[db] += n;
	of_user[user] += n;
	of_pool[db][user] += pool_servers_counted(p);
}

/* Beside what clients may have. What a job has had counts when it has ended. */
static int for_tasks(void)
{
	int tasks = 0, jobs = 0;

	for (int k = 0; k < play.n_actors; k++) {
		tasks += play.actors[k].is_task;
		jobs += play.actors[k].is_beside;
	}
	return tasks > 0 ? conf_current()->p.queue_pool_size + jobs : 0;
}

static void within_limits(void)
{
	memset(of_db, 0, sizeof(of_db));
	memset(of_user, 0, sizeof(of_user));
	memset(of_pool, 0, sizeof(of_pool));
	for (int i = 1; i <= play.size; i++) {
		enter(i);
		each_pool(counts);
		leave();
	}
	for (int i = 0; i < KINDS; i++) {
		assert_true(play.db_most == 0 || of_db[i] <= (unsigned)play.db_most);
		assert_true(play.user_most == 0 || of_user[i] <= (unsigned)play.user_most);
		for (int j = 0; j < KINDS; j++)
			assert_true(of_pool[i][j] <= (unsigned)(play.pool_size + for_tasks()));
	}
}

/* --- a crowd --- */

static const usec_t times[] = {1, 5, 20, 50, 150, 300, 1000};

static usec_t some_time(unsigned most)
{
	return times[pick(most)] * USEC_MSEC;
}

static void configure(void)
{
	struct conf_report report = {0};
	struct buf b = BUF_INIT;
	struct conf *c;

	buf_printf(&b, "[databases]\n");
	for (int i = 0; i < play.n_dbs; i++)
		buf_printf(&b,
			"d%d = host=10.0.0.1 max_db_connections=%d pool_size=%d reserve_pool_size=%d\n",
			i, play.db_most, play.pool_size, play.reserve);
	buf_printf(&b,
		"[qbouncer]\nauth_type = any\nlog_disconnections = 0\nmax_user_connections = %d\n",
		play.user_most);
	c = conf_load_text("crowd", (const char *)b.data, b.len, &report);
	if (c == NULL)
		fail_msg("%.*s", (int)report.text.len, (const char *)report.text.data);
	conf_install(c, &report);
	buf_free(&report.text);
	buf_free(&b);
}

static void comes(struct actor *a)
{
	char db[] = {'d', (char)('0' + a->db), 0}, user[] = {'u', (char)('0' + a->user), 0};
	struct conn_addr peer = {0};
	struct client *c;

	enter(a->process);
	a->pool = pool_get(route_find(db), user);
	assert_non_null(a->pool);
	if (a->is_task) {
		a->task = (struct task){.magic = TASK_MAGIC,
			.pool = a->pool,
			.time = a->is_beside ? TASK_BESIDE : TASK_BRIEF};
	} else {
		c = a->c = client_new(0, &peer, NULL);
		assert_non_null(c);
		c->pool = a->pool;
		client_move(c, CLIENT_ACTIVE);
	}
	leave();
	a->until = play.now + pick(50000);
}

static void start(void)
{
	configure();
	for (int i = 1; i <= play.size; i++) {
		memset(play.processes[i].tick, 0xff, sizeof(play.processes[i].tick));
		play.processes[i].news = USEC_NEVER;
		play.processes[i].all.generation = 1;
		enter(i);
		assert_true(pool_start(&calls));
		places_start();
		leave();
	}
}

static void begin(uint32_t seed, int processes)
{
	memset(&play, 0, sizeof(play));
	play.random = seed * 2654435761u + 1;
	for (int i = 0; i < 10; i++)
		pick(2);
	play.now = a_later_time();
	play.size = processes;
	play.n_dbs = 1 + (int)pick(KINDS);
	play.n_users = 1 + (int)pick(KINDS);
	play.db_most = (int)pick(4);
	play.user_most = (int)pick(4);
	play.pool_size = 1 + (int)pick(4);
	play.n_actors = 2 + (int)pick(ACTORS - 1);
	if (seed % 3 == 0) { /* two limits whose servers are two different others */
		play.n_dbs = play.n_users = 2;
		play.db_most = play.user_most = 1;
		play.n_actors = 5;
	}
	play.kills = seed % 5 == 1;
	play.lags = seed % 2 == 1;
	start();
	for (int k = 0; k < play.n_actors; k++) {
		struct actor *a = &play.actors[k];

		a->process = 1 + (int)pick((unsigned)processes);
		a->db = (int)pick((unsigned)play.n_dbs);
		a->user = (int)pick((unsigned)play.n_users);
		a->keeps = some_time(ARRAY_LEN(times));
		a->thinks = pick(3) == 0 ? some_time(ARRAY_LEN(times)) : 0;
		a->runs = pick(2) == 0;
		if (seed % 2 == 0 && seed % 3 != 0) {
			a->is_task = pick(2) == 0;
			a->is_beside = a->is_task && pick(3) == 0;
		}
		if (seed % 3 == 0) {
			a->db = k % 2;
			a->user = k == 0 ? 0 : !a->db;
			a->thinks = 0;
		}
		comes(a);
		play.fair += a->keeps * 3 / 2 + LOGIN;
	}
}

static void end(void)
{
	struct client *c;

	for (int k = 0; k < play.n_actors; k++) {
		enter(play.actors[k].process);
		if (play.actors[k].c != NULL)
			client_close(play.actors[k].c, CLIENT_END_BY_US, NULL);
		else
			goes(&play.actors[k]);
		leave();
	}
	while ((c = client_all.dead.head) != NULL) {
		DL_DELETE(client_all.dead.head, c);
		client_all.dead.count--;
		client_free(c);
	}
	for (int i = 1; i <= play.size; i++) {
		enter(i);
		each_pool(all_end);
		fewer();
		leave();
	}
	for (int i = 1; i <= play.size; i++) {
		enter(i);
		for (struct database *db = route_first(); db != NULL; db = db->next)
			for (struct pool *p = db->pools; play.size > 1 && p != NULL; p = p->next) {
				assert_int_equal(places_of_db(p), 0);
				assert_int_equal(places_of_user(p), 0);
				assert_int_equal(places_of_pool(p), 0);
			}
		route_free();
		leave();
	}
	places_stop();
	pool_stop();
	conf_uninstall();
}

static void tell(uint32_t seed)
{
	printf("crowd %u: %d processes, %d databases of %d, %d users of %d, pools of %d; %u served, %u logins, %llu ms waited of %llu\n",
		seed, play.size, play.n_dbs, play.db_most, play.n_users, play.user_most,
		play.pool_size, play.served, play.logins,
		(unsigned long long)(play.worst / USEC_MSEC),
		(unsigned long long)(play.fair / USEC_MSEC));
	for (int k = 0; play.tells && k < play.n_actors; k++) {
		const struct actor *a = &play.actors[k];

		printf("  %s of process %d, d%d, u%d: keeps %llu %s, thinks %llu: %u rounds, %llu ms waited\n",
			a->is_beside ? "job"
			: a->is_task ? "task"
				     : "client",
			a->process, a->db, a->user, (unsigned long long)(a->keeps / USEC_MSEC),
			a->runs ? "running" : "idle", (unsigned long long)(a->thinks / USEC_MSEC),
			a->rounds, (unsigned long long)(a->worst / USEC_MSEC));
	}
}

static void crowd(uint32_t seed, int processes, bool tells)
{
	usec_t until;

	begin(seed, processes);
	play.tells = tells;
	until = play.now + LASTS;
	while (play.now < until) {
		int first = (int)pick((unsigned)processes);

		next_moment();
		for (int i = 0; i < processes; i++)
			turn(1 + (first + i) % processes);
		within_limits();
		if (play.kills && processes > 1 && play.janitor == play.now && pick(10) == 0)
			is_killed(1 + first);
	}
	for (int k = 0; k < play.n_actors; k++) {
		struct actor *a = &play.actors[k];

		if (a->does == WAITS && play.now - a->since > a->worst)
			a->worst = play.now - a->since;
		if (a->worst > play.worst)
			play.worst = a->worst;
	}
	if (tells)
		tell(seed);
	if (play.worst > 2 * play.fair + 2 * USEC_SEC)
		fail_msg("crowd %u of %d processes: one has waited %llu ms", seed, processes,
			(unsigned long long)(play.worst / USEC_MSEC));
	if (play.logins > play.served + 10 * (play.killed + 1))
		fail_msg("crowd %u of %d processes: %u logins for %u", seed, processes, play.logins,
			play.served);
}

static void crowds(int processes)
{
	const char *one = getenv("QB_CROWD"), *many = getenv("QB_CROWDS");
	uint32_t n = many != NULL ? (uint32_t)atoi(many) : 30;
	uint32_t from = one != NULL ? (uint32_t)atoi(one) : 1;
	unsigned logins = 0, served = 0;

	for (uint32_t seed = from; seed < (one != NULL ? from + 1 : from + n); seed++) {
		crowd(seed, processes, one != NULL);
		if (one == NULL && many != NULL)
			tell(seed);
		logins += play.logins;
		served += play.served;
		end();
	}
	printf("# %d processes: %u served, %u logins\n", processes, served, logins);
}

static void test_one_process(void **state)
{
	(void)state;
	crowds(1);
}

static void test_two_processes(void **state)
{
	(void)state;
	crowds(2);
}

static void test_three_processes(void **state)
{
	(void)state;
	crowds(3);
}

/* --- a scene: nobody does anything but what is said, and no janitor comes --- */

static void scene_with(int processes, int db_most, int user_most, int pool_size, int reserve)
{
	memset(&play, 0, sizeof(play));
	play.random = 1;
	play.now = a_later_time();
	play.size = processes;
	play.n_dbs = 2;
	play.n_users = KINDS;
	play.db_most = db_most;
	play.user_most = user_most;
	play.pool_size = pool_size;
	play.reserve = reserve;
	start();
}

static void scene(int processes, int db_most, int user_most, int pool_size)
{
	scene_with(processes, db_most, user_most, pool_size, 0);
}

static struct actor *add(int process, int db, int user, bool is_task, bool is_beside)
{
	struct actor *a = &play.actors[play.n_actors++];

	a->process = process;
	a->db = db;
	a->user = user;
	a->is_task = is_task;
	a->is_beside = is_beside;
	a->keeps = 1000 * USEC_SEC;
	a->runs = true;
	comes(a);
	a->until = USEC_NEVER;
	return a;
}

static struct actor *client(int process, int user)
{
	return add(process, 0, user, false, false);
}

static struct actor *job(int process, int user)
{
	return add(process, 0, user, true, true);
}

static struct actor *task(int process, int user)
{
	return add(process, 0, user, true, false);
}

static void passes(usec_t time)
{
	usec_t until = play.now + time;

	while (play.now < until) {
		usec_t soon = play.now + USEC_MSEC;

		play.janitor = USEC_NEVER;
		next_moment();
		if (play.now > soon)
			play.now = soon;
		for (int i = 1; i <= play.size; i++)
			turn(i);
		within_limits();
	}
}

static void now_waits(struct actor *a)
{
	a->until = play.now;
	passes(50 * USEC_MSEC);
}

static void now_releases(struct actor *a)
{
	assert_int_equal(a->does, HAS);
	enter(a->process);
	releases(a);
	leave();
	a->until = USEC_NEVER;
	passes(50 * USEC_MSEC);
}

/* Its server ends, and with it what it did. */
static void now_is_closed(struct actor *a)
{
	enter(a->process);
	server_close(a->c->link, "server_lifetime", NULL);
	a->does = THINKS;
	a->until = USEC_NEVER;
	leave();
}

/* A client of another process waits for the pool's only server, which is idle. Jobs that are held back are no use for a
 * place there. */
static void held_back(int process)
{
	struct actor *first, *jobs[2], *c;

	scene(2, 3, 0, 1);
	first = client(1, 0);
	jobs[0] = job(process, 0);
	jobs[1] = job(process, 0);
	c = client(2, 0);
	now_waits(jobs[0]);
	now_waits(jobs[1]);
	assert_int_equal(jobs[0]->does, HAS);
	assert_int_equal(jobs[1]->does, WAITS);
	now_waits(first);
	now_releases(first);
	now_waits(c);
	assert_int_equal(c->does, HAS);
	end();
}

static void test_held_back_beside_who_waits(void **state)
{
	(void)state;
	held_back(2);
}

static void test_held_back_beside_who_gives(void **state)
{
	(void)state;
	held_back(1);
}

/* What is idle is of no use for a job that is held back: a client of another process has it. */
static void test_idle_while_held_back(void **state)
{
	struct actor *a, *b, *jobs[2], *c;

	(void)state;
	scene(2, 3, 0, 2);
	a = client(1, 0);
	b = client(1, 0);
	jobs[0] = job(1, 0);
	jobs[1] = job(1, 0);
	c = client(2, 1);
	now_waits(jobs[0]);
	now_waits(jobs[1]);
	now_waits(a);
	now_waits(b);
	now_releases(a);
	now_releases(b);
	now_waits(c);
	assert_int_equal(c->does, HAS);
	end();
}

/* ... nor for clients of a pool that has all it may. */
static void test_idle_while_the_pool_is_full(void **state)
{
	struct actor *a, *b, *t, *c;

	(void)state;
	scene(2, 2, 0, 1);
	a = client(1, 0);
	b = client(1, 0);
	t = task(1, 0);
	c = client(2, 1);
	now_waits(a);
	now_waits(t);
	now_waits(b);
	now_releases(t);
	now_waits(c);
	assert_int_equal(b->does, WAITS);
	assert_int_equal(c->does, HAS);
	end();
}

/* A client of another process waits for the pool's only server, which goes from task to task: what is closed for it is
 * not for the next task, though those may have more than clients. */
static void test_given_by_a_task(void **state)
{
	struct actor *t, *c;

	(void)state;
	scene(2, 0, 0, 1);
	t = task(1, 0);
	c = client(2, 0);
	t->keeps = 20 * USEC_MSEC;
	now_waits(t);
	assert_int_equal(play.logins, 1);
	c->until = play.now;
	passes(500 * USEC_MSEC);
	assert_int_equal(c->does, HAS);
	assert_true(t->rounds > 10);
	assert_int_equal(play.logins, 3); /* its own, and one more for the task */
	end();
}

/* Where tasks have more than clients may have, one of these has one as if they were its own process' tasks: nothing is
 * closed, as there would still be more. */
static void test_beside_tasks_of_another(void **state)
{
	struct actor *tasks[3], *c, *second;

	(void)state;
	scene(2, 0, 0, 1);
	for (int i = 0; i < 3; i++) {
		tasks[i] = task(1, 0);
		tasks[i]->keeps = 20 * USEC_MSEC;
		now_waits(tasks[i]);
	}
	c = client(2, 0);
	assert_int_equal(play.logins, 3);
	now_waits(c);
	assert_int_equal(c->does, HAS);
	assert_int_equal(play.logins, 4);
	second = client(2, 0);
	second->until = play.now;
	passes(2 * USEC_SEC);
	assert_int_equal(second->does, WAITS);
	assert_int_equal(play.logins, 4);
	now_releases(c);
	assert_int_equal(second->does, HAS);
	end();
}

/* ... and keeps it, though there are more than the pool's size: these are for tasks of another process. */
static void test_keeps_it_beside_tasks_of_another(void **state)
{
	struct actor *t, *c;

	(void)state;
	scene(2, 0, 0, 1);
	for (int i = 0; i < 3; i++) {
		t = task(1, 0);
		t->keeps = 20 * USEC_MSEC;
		now_waits(t);
	}
	now_waits(c = client(2, 0));
	for (int i = 0; i < 3; i++) {
		now_releases(c);
		enter(2);
		over_look(c->pool, play.now);
		leave();
		now_waits(c);
		assert_int_equal(c->does, HAS);
	}
	assert_int_equal(play.logins, 4);
	end();
}

/* ... where it has to make room, too, ... */
static void test_beside_tasks_of_another_in_a_full_db(void **state)
{
	struct actor *tasks[2], *c;

	(void)state;
	scene(2, 2, 0, 1);
	for (int i = 0; i < 2; i++) {
		tasks[i] = task(1, 0);
		tasks[i]->keeps = 20 * USEC_MSEC;
		now_waits(tasks[i]);
	}
	c = client(2, 0);
	c->until = play.now;
	passes(100 * USEC_MSEC);
	assert_int_equal(c->does, HAS);
	assert_int_equal(play.logins, 3);
	end();
}

/* ... and not where clients have all that they may. */
static void test_not_beside_clients_of_another(void **state)
{
	struct actor *has, *c, *t;

	(void)state;
	scene(2, 0, 0, 1);
	now_waits(has = client(1, 0));
	t = task(1, 0);
	t->keeps = 20 * USEC_MSEC;
	now_waits(t);
	c = client(2, 0);
	c->until = play.now;
	passes(3 * USEC_SEC);
	assert_int_equal(c->does, WAITS);
	assert_true(t->rounds > 10);
	assert_int_equal(play.logins, 2);
	now_releases(has);
	passes(100 * USEC_MSEC);
	assert_int_equal(c->does, HAS);
	end();
}

/* Tasks that go to the engine's own server when it is free need no other one. */
static void test_not_given_for_the_engine(void **state)
{
	struct actor *idle[4], *tasks[3];

	(void)state;
	scene(2, 6, 0, 4);
	for (int i = 0; i < 4; i++)
		now_waits(idle[i] = client(1, 0));
	now_waits(client(2, 1));
	for (int i = 0; i < 3; i++) {
		tasks[i] = task(2, 1);
		tasks[i]->task.engine = true;
		tasks[i]->keeps = 30 * USEC_MSEC;
	}
	enter(2);
	assert_non_null(server_launch_engine(tasks[0]->pool));
	leave();
	passes(50 * USEC_MSEC);
	for (int i = 0; i < 4; i++)
		now_releases(idle[i]);
	for (int i = 0; i < 3; i++)
		tasks[i]->until = play.now;
	passes(300 * USEC_MSEC);
	assert_true(tasks[0]->rounds > 1 && tasks[1]->rounds > 1 && tasks[2]->rounds > 1);
	assert_int_equal(play.logins, 6);
	enter(1);
	assert_int_equal(idle[0]->pool->servers[SERVER_IDLE].count, 4);
	leave();
	end();
}

/* A client that has no use for one less does not hide the task beside it that has. */
static void test_given_to_a_task_beside_a_client(void **state)
{
	struct actor *c, *t;

	(void)state;
	scene(2, 0, 0, 1);
	for (int i = 0; i < 7; i++) {
		t = task(1, 0);
		t->keeps = 20 * USEC_MSEC;
		now_waits(t);
	}
	assert_int_equal(play.logins, 6);
	c = client(2, 0);
	t = task(2, 0);
	c->until = t->until = play.now;
	passes(500 * USEC_MSEC);
	assert_int_equal(t->does, HAS);
	assert_int_equal(c->does, WAITS);
	end();
}

/* Whether a place of a limit comes free is known, too, while nobody waits. */
static void test_free_while_nobody_waits(void **state)
{
	struct actor *a;

	(void)state;
	scene(2, 1, 1, 1);
	a = client(1, 0);
	now_waits(a);
	now_releases(a);
	now_waits(a);
	enter(1);
	assert_true(pool_limit_free_at(a->pool, true) + USEC_SEC > play.now);
	assert_true(pool_limit_free_at(a->pool, false) + USEC_SEC > play.now);
	leave();
	end();
}

/* One process: who left a place to one that waits for longer hears of the next one. */
static void test_left_to_another(void **state)
{
	struct actor *a, *b, *c;

	(void)state;
	scene(1, 1, 0, 1);
	a = client(1, 0);
	b = client(1, 1);
	c = client(1, 2);
	now_waits(a);
	now_waits(b);
	now_waits(c);
	assert_int_equal(b->does, WAITS);
	now_is_closed(a);
	passes(50 * USEC_MSEC);
	assert_int_equal(b->does, HAS);
	assert_int_equal(c->does, WAITS);
	now_releases(b);
	assert_int_equal(c->does, HAS);
	end();
}

/* A client whose pool has all that clients may have is no reason for its tasks to keep what others wait for. */
static void beside_a_full_pool(int processes)
{
	struct actor *a, *b, *t, *c;

	scene(processes, 2, 0, 1);
	a = client(1, 0);
	b = client(1, 0);
	t = task(1, 0);
	t->keeps = 20 * USEC_MSEC;
	c = client(processes, 1);
	now_waits(a);
	now_waits(t);
	now_waits(b);
	assert_int_equal(b->does, WAITS);
	c->until = play.now;
	passes(500 * USEC_MSEC);
	assert_int_equal(a->does, HAS);
	assert_int_equal(b->does, WAITS);
	assert_int_equal(c->does, HAS);
	end();
}

static void test_beside_a_full_pool(void **state)
{
	(void)state;
	beside_a_full_pool(1);
	beside_a_full_pool(2);
}

/* Tasks that follow each other without an end do not keep a client of their pool waiting. */
static void test_a_client_beside_tasks(void **state)
{
	struct actor *t, *c;

	(void)state;
	scene(1, 0, 0, 1);
	for (int i = 0; i < 8; i++) {
		t = task(1, 0);
		t->keeps = 20 * USEC_MSEC;
		now_waits(t);
	}
	c = client(1, 0);
	c->until = play.now;
	passes(500 * USEC_MSEC);
	assert_int_equal(c->does, HAS);
	end();
}

/* ... by a process whose turn began later, too. */
static void test_free_in_a_later_turn(void **state)
{
	(void)state;
	assert_true(demand_may_wait(100, 200, 200));
	assert_true(demand_may_wait(100, 201, 200));
	assert_true(demand_may_wait(100, 200, 299));
	assert_false(demand_may_wait(100, 200, 300));
	assert_false(demand_may_wait(100, 100, 100));
}

/* One process: who has found no place hears of one that a close has left, though nobody has a server idle. */
static void test_closed_while_another_waits(void **state)
{
	struct actor *a, *b;

	(void)state;
	scene(1, 1, 0, 1);
	a = client(1, 0);
	b = client(1, 1);
	now_waits(a);
	now_waits(b);
	assert_int_equal(b->does, WAITS);
	now_is_closed(a);
	passes(50 * USEC_MSEC);
	assert_int_equal(b->does, HAS);
	end();
}

/* A pool whose only server runs a job beside it has none for clients: it claims at once, not when it starves. */
static void test_only_a_job(void **state)
{
	struct actor *j, *a, *b, *c;

	(void)state;
	scene(1, 2, 0, 2);
	j = job(1, 1);
	a = client(1, 0);
	b = client(1, 0);
	c = client(1, 1);
	now_waits(j);
	now_waits(a);
	now_waits(c);
	now_waits(b);
	assert_int_equal(c->does, WAITS);
	now_releases(a);
	assert_int_equal(b->does, WAITS);
	assert_int_equal(c->does, HAS);
	end();
}

/* Of what jobs may have of a limit, those of one pool do not keep it all: others have their turn. */
static void jobs_of_another(int db_most, int user_most, int db, int user)
{
	struct actor *j, *other;

	scene(1, db_most, user_most, 3);
	for (int i = 0; i < 3; i++) {
		j = job(1, 0);
		j->keeps = 20 * USEC_MSEC;
		now_waits(j);
	}
	other = add(1, db, user, true, true);
	other->until = play.now;
	passes(500 * USEC_MSEC);
	assert_int_equal(other->does, HAS);
	assert_true(j->rounds > 0);
	end();
}

static void test_jobs_of_another(void **state)
{
	(void)state;
	jobs_of_another(2, 0, 0, 1);
	jobs_of_another(3, 0, 0, 1);
	jobs_of_another(0, 3, 1, 0);
}

/* A job that can get no server, as clients keep all that there may be of its user, holds up no job of others. */
static void a_job_in_vain(int processes, int db_most, int user_most, int of_clients)
{
	struct actor *j, *other;

	scene(processes, db_most, user_most, 3);
	for (int i = 0; i < user_most; i++)
		now_waits(client(of_clients, 1));
	j = job(1, 1);
	now_waits(j);
	passes(200 * USEC_MSEC);
	assert_int_equal(j->does, WAITS);
	other = job(1, 0);
	now_waits(other);
	passes(20 * USEC_MSEC);
	assert_int_equal(other->does, HAS);
	end();
}

static void test_a_job_in_vain(void **state)
{
	(void)state;
	a_job_in_vain(1, 50, 2, 1);
	a_job_in_vain(1, 2, 1, 1);
	a_job_in_vain(2, 50, 3, 2);
}

/* A job whose server does not come to log in holds up no job of others. */
static void test_a_job_before_a_silent_server(void **state)
{
	struct actor *j, *other;

	(void)state;
	scene(1, 0, 2, 3);
	j = add(1, 1, 0, true, true);
	play.silent = j->pool;
	now_waits(j);
	passes(200 * USEC_MSEC);
	assert_int_equal(j->does, WAITS);
	other = job(1, 0);
	now_waits(other);
	assert_int_equal(other->does, HAS);
	end();
}

/* A job's turn and its server need not come at the same moment: the turn is left to it where servers come free. */
static void test_a_job_beside_busy_clients(void **state)
{
	struct actor *c, *j, *other;

	(void)state;
	scene(1, 2, 1, 1);
	other = job(1, 0);
	other->keeps = 50 * USEC_MSEC;
	now_waits(other);
	c = client(1, 1);
	c->keeps = 30 * USEC_MSEC;
	now_waits(c);
	j = job(1, 1);
	j->until = play.now;
	passes(800 * USEC_MSEC);
	assert_int_equal(j->does, HAS);
	assert_true(other->rounds > 1 && c->rounds > 1);
	end();
}

/* A job leaves its turn to an older one of another pool, which has not had its server yet. */
static struct actor *leaves_its_turn(struct actor **ret_older)
{
	struct actor *first, *j;

	scene(1, 3, 0, 3);
	now_waits(job(1, 2));
	now_waits(first = job(1, 2));
	now_waits(client(1, 1));
	*ret_older = job(1, 1);
	now_waits(*ret_older);
	passes(200 * USEC_MSEC);
	j = job(1, 0);
	now_waits(j);
	play.silent = (*ret_older)->pool;
	now_releases(first);
	enter(1);
	tasks_look_again();
	leave();
	passes(10 * USEC_MSEC);
	assert_int_equal((*ret_older)->pool->servers[SERVER_LOGIN].count, 1);
	assert_int_equal(j->does, WAITS);
	return j;
}

/* ... and is told when that one can have none. */
static void test_the_older_job_is_refused(void **state)
{
	struct actor *older, *j = leaves_its_turn(&older);
	struct pg_error err;

	(void)state;
	pg_error_set(&err, "28P01", "no");
	enter(1);
	pool_server_failed(older->pool->servers[SERVER_LOGIN].head, &err);
	server_close(older->pool->servers[SERVER_LOGIN].head, "login failed", NULL);
	leave();
	passes(20 * USEC_MSEC);
	assert_int_equal(j->does, HAS);
	end();
}

static unsigned lines_of(const char *file, const char *text)
{
	FILE *f = fopen(file, "r");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* The reserve is taken for clients: what tasks and jobs have beside the pool is not of it, and they do not hide that it is
 * taken. */
static void test_the_reserve_is_for_clients(void **state)
{
	char file[] = "/tmp/reserve.XXXXXX";
	struct actor *c;
	int fd = mkstemp(file);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_true(log_open(&(struct log_target){.file = file}));
	scene_with(2, 5, 0, 2, 1);
	for (int i = 0; i < 3; i++)
		now_waits(job(1, 0));
	now_waits(client(1, 0));
	now_waits(client(1, 0));
	assert_int_equal(lines_of(file, "reserve_pool"), 0);
	now_waits(c = client(1, 0));
	passes(6 * USEC_SEC);
	assert_int_equal(c->does, WAITS);
	enter(1);
	pool_mark_ready(c->pool);
	leave();
	passes(20 * USEC_MSEC);
	assert_int_equal(c->does, HAS);
	assert_int_equal(lines_of(file, "taking connection from reserve_pool"), 1);
	end();
	log_close();
	(void)unlink(file);
}

/* Who holds the lock may be killed: the others go on, and what it had is free. */
static void test_dies_within_the_lock(void **state)
{
	struct actor *a, *b;
	pid_t child;
	int status;

	(void)state;
	scene(2, 1, 0, 1);
	a = client(1, 0);
	b = client(2, 1);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		play.self = 2;
		dies_within = true;
		(void)places_of_db(b->pool);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	now_waits(a);
	assert_int_equal(a->does, HAS);
	now_waits(b);
	assert_int_equal(b->does, WAITS);
	now_releases(a);
	assert_int_equal(b->does, HAS);
	end();
}

/* A database and a user that are new at once, whose names fall on the same row. */
static void test_each_name_has_a_row(void **state)
{
	(void)state;
	memset(&play, 0, sizeof(play));
	play.now = a_later_time();
	play.size = 2;
	play.self = 1;
	play.n_dbs = play.pool_size = 1;
	configure();
	for (int i = 0; i < 5000; i++) {
		struct database db = {.magic = DATABASE_MAGIC};
		struct pool p = {.magic = POOL_MAGIC, .db = &db};
		char user[16];

		snprintf(db.name, sizeof(db.name), "d%d", i);
		snprintf(user, sizeof(user), "u%d", i);
		p.user = istr_get(user, strlen(user));
		p.account = account_get(p.user);
		assert_true(places_take_server(&p, true, 1, USEC_NEVER));
		assert_int_equal(places_of_db(&p), 1);
		assert_int_equal(places_of_user(&p), 1);
		assert_int_equal(places_of_pool(&p), 1);
		places_give_server(&p);
		assert_int_equal(places_of_user(&p), 0);
		account_put(&p.account);
		istr_drop(&p.user);
		play.now += USEC_SEC;
	}
	conf_uninstall();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_process),
		cmocka_unit_test(test_two_processes),
		cmocka_unit_test(test_three_processes),
		cmocka_unit_test(test_held_back_beside_who_waits),
		cmocka_unit_test(test_held_back_beside_who_gives),
		cmocka_unit_test(test_idle_while_held_back),
		cmocka_unit_test(test_idle_while_the_pool_is_full),
		cmocka_unit_test(test_given_by_a_task),
		cmocka_unit_test(test_beside_tasks_of_another),
		cmocka_unit_test(test_keeps_it_beside_tasks_of_another),
		cmocka_unit_test(test_beside_tasks_of_another_in_a_full_db),
		cmocka_unit_test(test_not_beside_clients_of_another),
		cmocka_unit_test(test_not_given_for_the_engine),
		cmocka_unit_test(test_given_to_a_task_beside_a_client),
		cmocka_unit_test(test_free_while_nobody_waits),
		cmocka_unit_test(test_free_in_a_later_turn),
		cmocka_unit_test(test_left_to_another),
		cmocka_unit_test(test_beside_a_full_pool),
		cmocka_unit_test(test_a_client_beside_tasks),
		cmocka_unit_test(test_closed_while_another_waits),
		cmocka_unit_test(test_only_a_job),
		cmocka_unit_test(test_jobs_of_another),
		cmocka_unit_test(test_a_job_in_vain),
		cmocka_unit_test(test_a_job_before_a_silent_server),
		cmocka_unit_test(test_a_job_beside_busy_clients),
		cmocka_unit_test(test_the_older_job_is_refused),
		cmocka_unit_test(test_the_reserve_is_for_clients),
		cmocka_unit_test(test_dies_within_the_lock),
		cmocka_unit_test(test_each_name_has_a_row),
	};

	if (!places_create())
		return 1;
	return cmocka_run_group_tests_name("pool_crowd", tests, NULL, NULL);
}
