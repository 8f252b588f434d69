/*
 * Names to addresses without blocking. *handle is the owner's: set while an answer is under way,
 * cleared just before the answer is given. The answer may come before resolve_start() returns
 * (names in /etc/hosts); it comes once.
 */
#ifndef QB_NET_RESOLVE_H
#define QB_NET_RESOLVE_H

#include "base/util.h"

struct net_addr;
struct resolve;

/* error is NULL on success; the list is valid during the call only. */
typedef void resolve_fn(void *arg, const char *error, const struct net_addr *list, size_t count);

/* false: no memory, and no answer will come. */
MUST_CHECK bool resolve_start(
	struct resolve **handle, const char *host, int port, resolve_fn *fn, void *arg);
/* No answer will come any more. Clears the handle. */
void resolve_cancel(struct resolve **handle);
void resolve_module_free(void);

/* For peername.c: another resolver over the same resolv.conf (NULL: no memory), and what holds for
 * its answers. Its end goes with that of this module. */
struct evdns_base;
struct dns_tuning;
struct evdns_base *resolver_base_new(void);
const struct dns_tuning *resolver_tuning(void);
void peername_close(void);
void peername_free(void);

#endif
