/*
 * The name of an address, for rules that name hosts: what its reverse lookup says, and only when a
 * forward lookup of that name gives the address back (who owns an address writes its reverse zone,
 * and can write any name there). /etc/hosts goes first, then the nameservers of resolv.conf, over a
 * resolver of its own: addresses for which nobody answers do not stand before names of servers.
 * Names that a peer's zone chose never get into the table of those.
 *
 * Answers are remembered for dns_max_ttl, failures for dns_nxdomain_ttl, a bounded number of them.
 * Knows nothing of connections. Entry points: dns_peer_* of net/dns.h.
 */
#include <arpa/inet.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/hash.h"
#include "base/mem.h"
#include "conn_int.h"
#include "net/dns.h"
#include "resolve.h"

#define HOSTS_FILE   "/etc/hosts"
#define ANSWERS_MAX  1000
#define NAME_MAX_LEN 255

/* One who waits. */
struct dns_peer {
	struct dns_peer **handle;
	dns_peer_fn *fn;
	void *arg;
	struct answer *answer;
	struct dns_peer *prev, *next;
};

struct answer {
	UT_hash_handle hh; /* the one asked longest ago first */
	char addr[INET6_ADDRSTRLEN];
	char name[NAME_MAX_LEN + 1]; /* while asking: what is to be confirmed; "" for none */
	usec_t until;                /* 0: not to be used again */
	bool asking;
	struct dns_peer *waiters;
};

static struct answer *answers;
static struct evdns_base *dns;

/* --- /etc/hosts --- */

static bool same_addr(const struct net_addr *a, const struct net_addr *b)
{
	return a->len == b->len && memcmp(&a->u, &b->u, a->len) == 0;
}

/* The first name of a line of the address: it gives the address back, too. */
static bool name_in_line(char *line, const struct net_addr *a, char *dst, size_t size)
{
	char *rest = NULL, *word;
	struct net_addr b;

	line[strcspn(line, "#\n")] = '\0';
	word = strtok_r(line, " \t\r", &rest);
	if (word == NULL || !net_addr_numeric(&b, word, 0) || !same_addr(a, &b))
		return false;
	word = strtok_r(NULL, " \t\r", &rest);
	return word != NULL && util_strlcpy(dst, word, size) < size;
}

static bool name_in_hosts(const struct net_addr *a, char *dst, size_t size)
{
	FILE *f = fopen(HOSTS_FILE, "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &room, f) > 0)
		found = name_in_line(line, a, dst, size);
	free(line);
	fclose(f);
	return found;
}

/* --- answers --- */

static void answer_free(struct answer *m)
{
	HASH_DEL(answers, m);
	mem_free(m);
}

/* Makes room. false: all of them are under way. */
static bool forget_oldest(void)
{
	struct answer *m, *tmp;

	HASH_ITER (hh, answers, m, tmp)
		if (!m->asking) {
			answer_free(m);
			return true;
		}
	return false;
}

static struct answer *answer_find(const char *addr)
{
	struct answer *m;

	HASH_FIND_STR(answers, addr, m);
	return m;
}

/* The one of the address, as the newest. */
static struct answer *answer_get(const char *addr)
{
	struct answer *m = answer_find(addr);

	if (m != NULL && m->asking)
		return m;
	if (m != NULL)
		answer_free(m);
	if (HASH_COUNT(answers) >= ANSWERS_MAX && !forget_oldest())
		return NULL;
	m = mem_zalloc(sizeof(*m));
	if (m == NULL)
		return NULL;
	util_strlcpy(m->addr, addr, sizeof(m->addr));
	HASH_ADD_STR(answers, addr, m);
	if (m->hh.tbl != NULL)
		return m;
	mem_free(m);
	return NULL;
}

static void answer_keep(struct answer *m, bool good)
{
	const struct dns_tuning *t = resolver_tuning();

	if (!good)
		m->name[0] = '\0';
	m->until = loop_now() + (good ? t->max_ttl : t->negative_ttl);
}

static void answered(struct answer *m, bool good)
{
	struct dns_peer *p;

	m->asking = false;
	answer_keep(m, good);
	while ((p = m->waiters) != NULL) {
		dns_peer_fn *fn = p->fn;
		void *arg = p->arg;

		DL_DELETE(m->waiters, p);
		*p->handle = NULL;
		mem_free(p);
		fn(arg, m->name);
	}
}

/* --- the nameservers --- */

static void on_forward(int code, struct evutil_addrinfo *list, void *arg)
{
	struct answer *m = arg;
	struct net_addr a, b;
	bool found = false;

	if (code == EVUTIL_EAI_CANCEL)
		return; /* the end of the program */
	if (code == 0 && net_addr_numeric(&a, m->addr, 0))
		for (struct evutil_addrinfo *ai = list; ai != NULL && !found; ai = ai->ai_next) {
			memset(&b, 0, sizeof(b));
			if (ai->ai_addrlen != a.len || ai->ai_addr->sa_family != a.u.sa.sa_family)
				continue;
			if (ai->ai_family == AF_INET)
				b.u.in.sin_addr =
					((struct sockaddr_in *)(void *)ai->ai_addr)->sin_addr;
			else
				b.u.in6.sin6_addr =
					((struct sockaddr_in6 *)(void *)ai->ai_addr)->sin6_addr;
			b.u.sa.sa_family = a.u.sa.sa_family;
			b.len = a.len;
			found = same_addr(&a, &b);
		}
	if (list != NULL)
		evutil_freeaddrinfo(list);
	answered(m, found);
}

static void on_reverse(int result, char type, int count, int ttl, void *addresses, void *arg)
{
	struct answer *m = arg;
	const char *name;
	struct net_addr a;
	struct evutil_addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP};

	(void)ttl;
	if (result == DNS_ERR_SHUTDOWN || result == DNS_ERR_CANCEL)
		return; /* the end of the program */
	if (result != DNS_ERR_NONE || type != DNS_PTR || count < 1) {
		answered(m, false);
		return;
	}
	name = *(char **)addresses;
	/* A number is no name: it would confirm itself. */
	if (name[0] == '\0' || net_addr_numeric(&a, name, 0) ||
		util_strlcpy(m->name, name, sizeof(m->name)) >= sizeof(m->name)) {
		answered(m, false);
		return;
	}
	hints.ai_family = strchr(m->addr, ':') != NULL ? AF_INET6 : AF_INET;
	(void)evdns_getaddrinfo(dns, m->name, NULL, &hints, on_forward, m);
}

/* false: nobody can be asked. */
static bool ask(struct answer *m, const struct net_addr *a)
{
	if (dns == NULL && (dns = resolver_base_new()) == NULL)
		return false;
	if (evdns_base_count_nameservers(dns) == 0)
		return false;
	return (a->u.sa.sa_family == AF_INET
			       ? evdns_base_resolve_reverse(
					 dns, &a->u.in.sin_addr, 0, on_reverse, m)
			       : evdns_base_resolve_reverse_ipv6(
					 dns, &a->u.in6.sin6_addr, 0, on_reverse, m)) != NULL;
}

/* --- those who ask --- */

const char *dns_peer_known(const char *addr)
{
	struct answer *m = answer_find(addr);
	struct net_addr a;

	if (m != NULL && (m->asking || m->until > loop_now()))
		return m->asking ? NULL : m->name;
	if (!net_addr_numeric(&a, addr, 0))
		return "";
	m = answer_get(addr);
	if (m == NULL)
		return "";
	if (name_in_hosts(&a, m->name, sizeof(m->name))) {
		answer_keep(m, true);
		return m->name;
	}
	m->asking = ask(m, &a);
	if (m->asking)
		return NULL;
	answer_keep(m, false);
	return "";
}

bool dns_peer_wait(struct dns_peer **handle, const char *addr, dns_peer_fn *fn, void *arg)
{
	struct answer *m = answer_find(addr);
	struct dns_peer *p = m != NULL && m->asking ? mem_zalloc(sizeof(*p)) : NULL;

	if (p == NULL)
		return false;
	*p = (struct dns_peer){.handle = handle, .fn = fn, .arg = arg, .answer = m};
	DL_APPEND(m->waiters, p);
	*handle = p;
	return true;
}

void dns_peer_cancel(struct dns_peer **handle)
{
	struct dns_peer *p = *handle;

	if (p == NULL)
		return;
	*handle = NULL;
	DL_DELETE(p->answer->waiters, p);
	mem_free(p);
}

/* Before the loop: what was under way is answered by it. */
void peername_close(void)
{
	struct dns_peer *p, *tmp;
	struct answer *m;

	for (m = answers; m != NULL; m = m->hh.next)
		DL_FOREACH_SAFE (m->waiters, p, tmp) {
			struct dns_peer **handle = p->handle;

			dns_peer_cancel(handle);
		}
	if (dns != NULL)
		evdns_base_free(dns, 1);
	dns = NULL;
}

void peername_free(void)
{
	struct answer *m, *tmp;

	HASH_ITER (hh, answers, m, tmp)
		answer_free(m);
}
