/*
 * Names of hosts: what was answered is remembered for a while. Knows no connections, only addresses.
 */
#ifndef QB_NET_DNS_H
#define QB_NET_DNS_H

#include "base/util.h"

struct dns_tuning {
	const char *resolv_conf;       /* "" the system's; of the first name, later ones do not count */
	usec_t max_ttl, negative_ttl;  /* how long an answer, and a failure, is remembered */
	usec_t check_period;           /* 0: no name is asked for again unless somebody needs it */
};
void dns_tune(const struct dns_tuning *t);

/* Told of each address that a name had and has no more. */
void dns_on_gone(void (*fn)(const char *host, const char *addr));

struct dns_host_stat {
	const char *host, *addrs; /* commas between; "" when the last answer was a failure */
	usec_t ttl;               /* left */
};
void dns_each_host(void (*fn)(const struct dns_host_stat *st, void *arg), void *arg);
/* The names behind the first dot, each once, with the number of hosts that have it. */
void dns_each_zone(void (*fn)(const char *zone, unsigned hosts, void *arg), void *arg);

struct dns_totals {
	unsigned names, zones, queries, pending; /* queries: under way; pending: who waits for them */
};
void dns_count(struct dns_totals *ret);

/*
 * The name of a peer's address (numeric): of its reverse lookup, when a forward lookup of that name
 * has the address; /etc/hosts before the nameservers.
 */
struct dns_peer;
/* name: "" when there is none, or it could not be had. Valid during the call. */
typedef void dns_peer_fn(void *arg, const char *name);
/* NULL: not known yet, it is being asked for: dns_peer_wait(). Borrowed until the next call. */
MUST_CHECK const char *dns_peer_known(const char *addr);
/* The answer comes once and never from inside. *handle is set until then. false: it will not come. */
MUST_CHECK bool dns_peer_wait(struct dns_peer **handle, const char *addr, dns_peer_fn *fn, void *arg);
/* No answer will come any more. Clears the handle. */
void dns_peer_cancel(struct dns_peer **handle);

#endif
