/*
 * Host names through libevent's resolver: /etc/hosts and the nameservers of /etc/resolv.conf,
 * asked without blocking. The resolver is made at the first name; numeric addresses never get here.
 *
 * Knows nothing of connections. Entry points: resolve_start, resolve_cancel.
 */
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>

#include "base/mem.h"
#include "conn_int.h"
#include "resolve.h"

/* More addresses of one name than anybody will try. */
#define MAX_ADDRS 32

struct resolve {
	struct resolve **handle; /* NULL once answered or cancelled */
	resolve_fn *fn;
	void *arg;
	int port;
	struct evdns_getaddrinfo_request *request;
	struct resolve *prev, *next; /* all that libevent still knows */
};

static struct evdns_base *dns;
static struct resolve *pending;

static void resolve_unlink(struct resolve *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		pending = r->next;
	if (r->next)
		r->next->prev = r->prev;
}

static size_t addrs_copy(struct net_addr *list, const struct evutil_addrinfo *ai, int port)
{
	size_t n = 0;

	for (; ai && n < MAX_ADDRS; ai = ai->ai_next) {
		if (ai->ai_addrlen > sizeof(list[n].u))
			continue;
		memset(&list[n], 0, sizeof(list[n]));
		memcpy(&list[n].u, ai->ai_addr, ai->ai_addrlen);
		list[n].len = ai->ai_addrlen;
		if (ai->ai_family == AF_INET)
			list[n].u.in.sin_port = htons((uint16_t)port);
		else if (ai->ai_family == AF_INET6)
			list[n].u.in6.sin6_port = htons((uint16_t)port);
		else
			continue;
		n++;
	}
	return n;
}

static void on_answer(int code, struct evutil_addrinfo *ai, void *arg)
{
	struct resolve *r = arg;
	struct net_addr list[MAX_ADDRS];
	size_t n = 0;

	resolve_unlink(r);
	if (r->handle) {
		*r->handle = NULL;
		if (code == 0)
			n = addrs_copy(list, ai, r->port);
		if (code == 0 && n == 0)
			code = EVUTIL_EAI_NODATA;
		r->fn(r->arg, code == 0 ? NULL : evutil_gai_strerror(code), list, n);
	}
	if (ai)
		evutil_freeaddrinfo(ai);
	mem_free(r);
}

static bool resolver_make(void)
{
	if (dns)
		return true;
	dns = evdns_base_new(loop_base(), EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	if (!dns)
		return false;
	/* Without a usable resolv.conf the names in /etc/hosts must still work. */
	(void)evdns_base_resolv_conf_parse(dns, DNS_OPTIONS_ALL, "/etc/resolv.conf");
	return true;
}

bool resolve_start(struct resolve **handle, const char *host, int port, resolve_fn *fn, void *arg)
{
	struct evutil_addrinfo hints = {0};
	struct evdns_getaddrinfo_request *request;
	struct resolve *r;

	if (!resolver_make() || !(r = mem_zalloc(sizeof(*r))))
		return false;
	*r = (struct resolve){.handle = handle, .fn = fn, .arg = arg, .port = port};
	r->next = pending;
	if (pending)
		pending->prev = r;
	pending = r;
	*handle = r;
	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_protocol = IPPROTO_TCP;
	request = evdns_getaddrinfo(dns, host, NULL, &hints, on_answer, r);
	/* NULL: the answer has been given and r is gone. */
	if (request)
		r->request = request;
	return true;
}

void resolve_cancel(struct resolve **handle)
{
	struct resolve *r = *handle;

	if (!r)
		return;
	*handle = NULL;
	r->handle = NULL;
	/* libevent still answers, with EVUTIL_EAI_CANCEL; r is freed then. */
	evdns_getaddrinfo_cancel(r->request);
}

void resolve_module_free(void)
{
	struct resolve *r;

	for (r = pending; r; r = r->next)
		if (r->handle)
			resolve_cancel(r->handle);
	if (dns)
		evdns_base_free(dns, 1);
	dns = NULL;
	/* Cancellations are delivered by the loop. */
	if (pending)
		event_base_loop(loop_base(), EVLOOP_NONBLOCK | EVLOOP_ONCE);
	while ((r = pending)) {
		resolve_unlink(r);
		mem_free(r);
	}
}
