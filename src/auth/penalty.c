/*
 * How slow a failed login is answered, by origin: an address, with IPv6 the /64 that one host can
 * choose from as it likes, or a unix user of this machine. The first failures cost nothing: people
 * mistype. Then the answer waits twice as long each time.
 *
 * Who guesses does not wait for answers: a right password is answered at once, so what is not is
 * wrong, and he hangs up. When many have failed in a short time each attempt from there waits
 * before it is looked at, the right one too: then a guess costs a connection for that time. Nobody
 * is ever turned away, or a guesser could lock out those who share his address.
 *
 * Bounded: the origins that failed longest ago are forgotten first. Entry points: auth/penalty.h.
 */
#include "auth/penalty.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include <utlist.h>

enum {
	ORIGINS_MAX = 10000,
	FREE_FAILURES = 3,
	FAILURES_MAX = 40, /* counted; one is forgotten each FORGET */
	FLOOD = 20,        /* failures within `most` */
};
#define FORGET     (10 * USEC_SEC)
#define FIRST_WAIT (100 * USEC_MSEC)

struct suspect {
	UT_hash_handle hh;
	struct suspect *prev, *next; /* the one that failed longest ago first */
	char origin[64];
	unsigned failures;
	usec_t since;         /* up to when failures were forgotten */
	usec_t recent[FLOOD]; /* when the last ones failed, as a ring; 0: none yet */
	unsigned next_recent;
};

static struct suspect *table, *oldest;
static unsigned count;

/* false: it is no address, and too long for what stands for one. */
static bool origin_of(char *dst, size_t size, const char *address)
{
	struct in6_addr a;

	if (inet_pton(AF_INET6, address, &a) != 1 || IN6_IS_ADDR_V4MAPPED(&a))
		return util_strlcpy(dst, address, size) < size;
	memset(a.s6_addr + 8, 0, 8);
	return inet_ntop(AF_INET6, &a, dst, (socklen_t)size) != NULL;
}

static struct suspect *find(const char *address)
{
	struct suspect *s;
	char origin[64];

	if (!origin_of(origin, sizeof(origin), address))
		return NULL;
	HASH_FIND_STR(table, origin, s);
	return s;
}

static void forget(struct suspect *s)
{
	HASH_DEL(table, s);
	DL_DELETE(oldest, s);
	count--;
	mem_free(s);
}

static struct suspect *add(const char *address, usec_t now)
{
	struct suspect *s;
	char origin[sizeof(s->origin)];

	if (!origin_of(origin, sizeof(origin), address))
		return NULL;
	if (count >= ORIGINS_MAX)
		forget(oldest);
	s = mem_zalloc(sizeof(*s));
	if (!s)
		return NULL;
	util_strlcpy(s->origin, origin, sizeof(s->origin));
	s->since = now;
	HASH_ADD_STR(table, origin, s);
	if (!s->hh.tbl) {
		mem_free(s);
		return NULL;
	}
	DL_APPEND(oldest, s);
	count++;
	return s;
}

static void let_time_heal(struct suspect *s, usec_t now)
{
	usec_t n = now > s->since ? (now - s->since) / FORGET : 0;

	s->failures = n >= s->failures ? 0 : s->failures - (unsigned)n;
	s->since += n * FORGET;
	if (s->failures == 0)
		s->since = now;
}

usec_t penalty_failed(const char *address, usec_t now, usec_t most)
{
	struct suspect *s = find(address);
	usec_t wait = FIRST_WAIT;

	if (s) {
		DL_DELETE(oldest, s);
		DL_APPEND(oldest, s);
	} else if ((s = add(address, now)) == NULL) {
		return most; /* no memory: as if it were a bad one */
	}
	s->recent[s->next_recent] = now;
	s->next_recent = (s->next_recent + 1) % FLOOD;
	let_time_heal(s, now);
	if (s->failures < FAILURES_MAX)
		s->failures++;
	if (s->failures <= FREE_FAILURES)
		return 0;
	for (unsigned i = FREE_FAILURES + 1; i < s->failures && wait < most; i++)
		wait *= 2;
	return wait < most ? wait : most;
}

usec_t penalty_deferral(const char *address, usec_t now, usec_t most)
{
	const struct suspect *s = find(address);
	usec_t first;

	if (!s)
		return 0;
	first = s->recent[s->next_recent];
	return first != 0 && now < first + most ? most : 0;
}

void penalty_free(void)
{
	while (oldest)
		forget(oldest);
}
