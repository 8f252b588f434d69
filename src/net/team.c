/*
 * The processes of one program, and how they talk (team.h). Each has an inbox, a pair of sockets that keep the
 * bounds of messages: the others have its sending end, it alone reads. The process that starts them
 * has all ends as well, so an inbox outlives who reads it: one that is replaced loses
 * what was sent to it, and its successor begins with what is sent to that.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/channel.h"
#include "net/loop.h"
#include "net/team.h"

#define BEAT       (200 * USEC_MSEC)
#define FRESH      (2 * USEC_SEC)     /* who has not turned for longer is not waited for */
#define UNSENT_MAX (64 * 1024 * 1024) /* bytes that one process leaves lying */

struct member {
	_Atomic uint64_t seen;
	_Atomic uint32_t clients;
	_Atomic uint32_t ready;
	char apart[48]; /* each on a cache line of its own */
};

struct unsent {
	struct unsent *next;
	size_t len;
	uint8_t data[];
};

struct head {
	uint8_t word, from;
	uint8_t none[6];
};

struct outbox {
	struct unsent *first, **last;
	size_t bytes;
	struct loop_watch *watch;
};

static struct {
	int self, size;
	struct member *members;     /* of all: shared memory; [0] is not used */
	int inbox[TEAM_MAX + 1][2]; /* read, write */
	struct outbox out[TEAM_MAX + 1];
	struct loop_watch *watch;
	struct loop_tick *tick;
	struct buf got;
} team = {.size = 1};

typedef void listener_fn(int from, const uint8_t *text, size_t len);
static listener_fn *listeners[TEAM_WORDS], *of_gone[4];

int team_self(void)
{
	return team.self;
}

int team_size(void)
{
	return team.size;
}

/* --- made, and ended --- */

static size_t memory_size(void)
{
	return sizeof(struct member) * (TEAM_MAX + 1);
}

bool team_create(int size)
{
	void *p = mmap(
		NULL, memory_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ASSERT(size > 1 && size <= TEAM_MAX);
	if (p == MAP_FAILED)
		return false;
	team.members = p;
	team.size = size;
	for (int i = 1; i <= TEAM_MAX; i++)
		team.inbox[i][0] = team.inbox[i][1] = -1;
	for (int i = 1; i <= size; i++)
		if (!channel_pair(team.inbox[i]))
			return false;
	return true;
}

void team_free(void)
{
	if (team.members == NULL)
		return;
	for (int i = 1; i <= TEAM_MAX; i++)
		for (int j = 0; j < 2; j++)
			if (team.inbox[i][j] >= 0)
				close(team.inbox[i][j]);
	(void)munmap(team.members, memory_size());
	memset(&team, 0, sizeof(team));
	team.size = 1;
}

/* --- what the one that starts them sees --- */

void team_clear(int number)
{
	struct buf b = BUF_INIT;
	int fds[CHANNEL_FDS], n;

	atomic_store(&team.members[number].seen, 0);
	atomic_store(&team.members[number].clients, 0);
	atomic_store(&team.members[number].ready, 0);
	while (channel_receive(team.inbox[number][0], &b, fds, &n) == CHANNEL_OK)
		while (n > 0)
			close(fds[--n]);
	buf_free(&b);
}

void team_tell_gone(int number)
{
	struct head h = {.word = TEAM_GONE, .from = (uint8_t)number};

	for (int i = 1; i <= team.size; i++)
		if (i != number)
			(void)channel_send(team.inbox[i][1], &h, sizeof(h), NULL, 0);
}

bool team_is_ready(int number)
{
	return atomic_load(&team.members[number].ready) != 0;
}

usec_t team_seen(int number)
{
	return atomic_load(&team.members[number].seen);
}

/* --- sending --- */

static void outbox_clear(struct outbox *o)
{
	struct unsent *u;

	while ((u = o->first) != NULL) {
		o->first = u->next;
		mem_free(u);
	}
	o->last = &o->first;
	o->bytes = 0;
	loop_watch_free(&o->watch);
}

static void on_room(int fd, int mask, void *arg)
{
	struct outbox *o = arg;
	struct unsent *u;

	(void)mask;
	while ((u = o->first) != NULL) {
		if (channel_send(fd, u->data, u->len, NULL, 0) == CHANNEL_LATER)
			return;
		o->first = u->next;
		o->bytes -= u->len;
		mem_free(u);
	}
	outbox_clear(o);
}

static bool send_later(int to, const uint8_t *data, size_t len)
{
	struct outbox *o = &team.out[to];
	struct unsent *u;

	if (o->bytes + len > UNSENT_MAX || (u = mem_alloc(sizeof(*u) + len)) == NULL)
		return false;
	u->next = NULL;
	u->len = len;
	memcpy(u->data, data, len);
	if (o->watch == NULL &&
		(o->watch = loop_watch_new(team.inbox[to][1], LOOP_WRITE, on_room, o)) == NULL) {
		mem_free(u);
		return false;
	}
	*o->last = u;
	o->last = &u->next;
	o->bytes += len;
	return true;
}

bool team_send(int to, enum team_word word, const void *text, size_t len)
{
	static uint8_t data[sizeof(struct head) + TEAM_TEXT_MAX];
	struct head h = {.word = (uint8_t)word, .from = (uint8_t)team.self};

	if (team.self == 0 || to < 1 || to > team.size || len > TEAM_TEXT_MAX)
		return false;
	memcpy(data, &h, sizeof(h));
	if (len > 0)
		memcpy(data + sizeof(h), text, len);
	len += sizeof(h);
	if (team.out[to].first == NULL)
		switch (channel_send(team.inbox[to][1], data, len, NULL, 0)) {
		case CHANNEL_OK:
			return true;
		case CHANNEL_LATER:
			break;
		case CHANNEL_END:
			return false;
		}
	return send_later(to, data, len);
}

int team_send_all(enum team_word word, const void *text, size_t len)
{
	int n = 0;

	if (team.self == 0)
		return 0;
	for (int i = 1; i <= team.size; i++)
		n += i != team.self && team_send(i, word, text, len);
	return n;
}

/* --- hearing --- */

void team_hear(enum team_word word, void (*fn)(int from, const uint8_t *text, size_t len))
{
	listeners[word] = fn;
}

void team_hear_gone(listener_fn *fn)
{
	size_t i = 0;

	while (i + 1 < ARRAY_LEN(of_gone) && of_gone[i] != NULL && of_gone[i] != fn)
		i++;
	ASSERT(of_gone[i] == NULL || of_gone[i] == fn);
	of_gone[i] = fn;
}

static void one_gone(int from)
{
	outbox_clear(&team.out[from]);
	for (size_t i = 0; i < ARRAY_LEN(of_gone) && of_gone[i] != NULL; i++)
		of_gone[i](from, NULL, 0);
}

static void hear_one(const uint8_t *data, size_t len)
{
	struct head h;

	if (len < sizeof(h))
		return;
	memcpy(&h, data, sizeof(h));
	if (h.from < 1 || h.from > team.size || h.word >= TEAM_WORDS)
		return;
	if (h.word == TEAM_GONE)
		one_gone(h.from);
	else if (listeners[h.word] != NULL)
		listeners[h.word](h.from, data + sizeof(h), len - sizeof(h));
}

static void on_inbox(int fd, int mask, void *arg)
{
	int fds[CHANNEL_FDS], n;

	(void)mask;
	(void)arg;
	/* as many as are served in a turn; the rest comes in the next */
	for (int i = 0; i < 64; i++) {
		if (channel_receive(fd, &team.got, fds, &n) != CHANNEL_OK)
			return;
		while (n > 0)
			close(fds[--n]);
		hear_one(team.got.data, team.got.len);
	}
}

static usec_t on_tick(void *arg, usec_t now)
{
	(void)arg;
	atomic_store(&team.members[team.self].seen, loop_clock());
	return now + BEAT;
}

void team_be(int number)
{
	team.self = number;
	for (int i = 1; i <= team.size; i++)
		outbox_clear(&team.out[i]);
}

bool team_join(void)
{
	team.watch = loop_watch_new(team.inbox[team.self][0], LOOP_READ, on_inbox, NULL);
	team.tick = loop_tick_new(on_tick, NULL, 0);
	return team.watch != NULL && team.tick != NULL;
}

void team_leave(void)
{
	for (int i = 1; i <= team.size && team.self != 0; i++)
		outbox_clear(&team.out[i]);
	loop_watch_free(&team.watch);
	loop_tick_free(&team.tick);
	buf_free(&team.got);
}

void team_ready(void)
{
	atomic_store(&team.members[team.self].seen, loop_clock());
	atomic_store(&team.members[team.self].ready, 1);
}

/* --- the parts of each --- */

void team_count_clients(unsigned n)
{
	if (team.self != 0)
		atomic_store_explicit(&team.members[team.self].clients, n, memory_order_relaxed);
}

unsigned team_clients(void)
{
	unsigned n = 0;

	for (int i = 1; i <= team.size; i++)
		n += atomic_load_explicit(&team.members[i].clients, memory_order_relaxed);
	return n;
}

/* By more than an eighth above who has the fewest, of those that turn. */
bool team_has_more_than_its_part(void)
{
	usec_t now;
	uint32_t mine;

	if (team.self == 0)
		return false;
	now = loop_clock();
	mine = atomic_load_explicit(&team.members[team.self].clients, memory_order_relaxed);
	for (int i = 1; i <= team.size; i++) {
		uint32_t n = atomic_load_explicit(&team.members[i].clients, memory_order_relaxed);

		if (i != team.self && mine > n + n / 8 && team_is_ready(i) &&
			team_seen(i) + FRESH > now)
			return true;
	}
	return false;
}
