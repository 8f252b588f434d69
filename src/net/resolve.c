/*
 * Host names through libevent's resolver: /etc/hosts and the nameservers of resolv.conf, asked
 * without blocking, each name once however many wait for it. Answers are remembered for
 * dns_max_ttl, failures for dns_nxdomain_ttl; when the nameservers do not answer, the addresses
 * that a name had last stay good. Numeric addresses never get here.
 *
 * A name is two questions, A and AAAA, and each may fail alone: what one says is used without the
 * other, and what cannot be had is not taken for what is not there.
 *
 * Knows nothing of connections. Entry points: resolve_start, resolve_cancel, net/dns.h.
 */
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stddef.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "conn_int.h"
#include "net/dns.h"
#include "resolve.h"

/* More addresses of one name than anybody will try. */
#define MAX_ADDRS 32
/* Nobody has asked for a name for so long: it is forgotten. */
#define FORGET (2 * 3600 * USEC_SEC)
#define SWEEP  (60 * USEC_SEC)
/* One half has addresses: so long is the other one waited for. It still counts when it comes. */
#define HALF_WAIT (250 * USEC_MSEC)

/* One who waits. */
struct resolve {
	struct resolve **handle;
	resolve_fn *fn;
	void *arg;
	int port;
	struct name *name;
	struct resolve *prev, *next;
};

/* One that libevent will answer. */
struct question {
	struct name *name; /* NULL: nobody wants to know any more */
	int half;
	struct evdns_getaddrinfo_request *req;
};

enum { HALF_V4, HALF_V6, HALVES };
static const int family_of[HALVES] = {AF_INET, AF_INET6};

struct half {
	struct question *question; /* under way */
	int code;                  /* of the last answer */
	struct net_addr *list;     /* of the last answer, until both are put together */
	size_t count;
};

struct name {
	struct name *prev, *next;
	char *host;
	struct net_addr *list; /* the last good answer, ports 0 */
	size_t count, turn;    /* turn: the address that the next one gets first */
	const char *error;     /* of the last answer, when there is no good one; NULL: none */
	usec_t until;          /* the answer is good; 0: there was none */
	usec_t wanted_at;
	usec_t half_until; /* a half is there, and waits for the other; USEC_NEVER: no */
	struct half half[HALVES];
	bool starting; /* answers that come from inside are put together when both were asked */
	struct resolve *waiters;
};

static struct evdns_base *dns;
static struct name *names;
static struct loop_tick *tick;
static usec_t check_at;
static char conf_path[4096];
static struct dns_tuning tuning = {.max_ttl = 15 * USEC_SEC, .negative_ttl = 15 * USEC_SEC};
static void (*on_gone)(const char *host, const char *addr);

/* --- addresses --- */

static size_t addrs_copy(struct net_addr *list, const struct evutil_addrinfo *ai)
{
	size_t n = 0;

	for (; ai && n < MAX_ADDRS; ai = ai->ai_next) {
		if (ai->ai_addrlen > sizeof(list[n].u) ||
			(ai->ai_family != AF_INET && ai->ai_family != AF_INET6))
			continue;
		memset(&list[n], 0, sizeof(list[n]));
		memcpy(&list[n].u, ai->ai_addr, ai->ai_addrlen);
		list[n].len = ai->ai_addrlen;
		list[n].u.in.sin_port = 0; /* at the same place in both */
		n++;
	}
	return n;
}

_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
	"one port for both families");

static bool addr_listed(const struct net_addr *a, const struct net_addr *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].len == a->len && memcmp(&list[i].u, &a->u, a->len) == 0)
			return true;
	return false;
}

/* Those of the first one's family take turns in the first place; the others follow as they came. */
static size_t addrs_in_turn(struct name *m, struct net_addr *ret, int port)
{
	size_t same = 0;

	while (same < m->count && m->list[same].u.sa.sa_family == m->list[0].u.sa.sa_family)
		same++;
	for (size_t i = 0; i < m->count; i++) {
		ret[i] = m->list[i < same ? (i + m->turn) % same : i];
		ret[i].u.in.sin_port = htons((uint16_t)port);
	}
	m->turn = same > 0 ? (m->turn + 1) % same : 0;
	return m->count;
}

/* --- names --- */

static struct name *name_get(const char *host)
{
	struct name *m;

	DL_FOREACH (names, m)
		if (util_strcasecmp(m->host, host) == 0)
			return m;
	m = mem_zalloc(sizeof(*m));
	if (m && !(m->host = mem_strdup(host))) {
		mem_free(m);
		return NULL;
	}
	if (m) {
		m->half_until = USEC_NEVER;
		DL_APPEND(names, m);
	}
	return m;
}

static bool is_asking(const struct name *m)
{
	return m->half[HALF_V4].question || m->half[HALF_V6].question;
}

static void name_free(struct name *m)
{
	DL_DELETE(names, m);
	for (int h = 0; h < HALVES; h++)
		mem_free(m->half[h].list);
	mem_free(m->list);
	mem_free(m->host);
	mem_free(m);
}

static void tell_gone(const struct name *m, const struct net_addr *list, size_t n)
{
	struct conn_addr text;

	for (size_t i = 0; i < m->count; i++)
		if (!addr_listed(&m->list[i], list, n)) {
			net_addr_print(&m->list[i], &text);
			log_info("dns: %s has no address %s any more", m->host, text.host);
			if (on_gone)
				on_gone(m->host, text.host);
		}
}

static void name_found(struct name *m, const struct net_addr *list, size_t n)
{
	struct net_addr *copy = mem_dup(list, n * sizeof(*list));

	if (!copy) {
		m->until = 0;
		m->error = m->count > 0 ? NULL : "out of memory";
		return;
	}
	tell_gone(m, list, n);
	mem_free(m->list);
	m->list = copy;
	m->count = n;
	m->error = NULL;
	m->until = loop_now() + tuning.max_ttl;
}

/* That there is no such name is an answer; that nobody answers is none. */
static bool is_none(int code)
{
	return code == EVUTIL_EAI_NONAME || code == EVUTIL_EAI_NODATA;
}

static void name_failed(struct name *m, int code)
{
	m->until = loop_now() + tuning.negative_ttl;
	if (m->count > 0 && !is_none(code)) {
		log_warning("dns: %s: %s; its last addresses are used", m->host,
			evutil_gai_strerror(code));
		return;
	}
	mem_free(m->list);
	m->list = NULL;
	m->count = 0;
	m->error = evutil_gai_strerror(code);
	log_warning("DNS lookup failed: %s: %s", m->host, m->error);
}

static void give(struct name *m, resolve_fn *fn, void *arg, int port)
{
	struct net_addr list[MAX_ADDRS];
	size_t n = addrs_in_turn(m, list, port);

	fn(arg, n > 0 ? NULL : m->error ? m->error : "no answer", list, n);
}

static void serve_waiters(struct name *m)
{
	struct resolve *r;

	while ((r = m->waiters)) {
		DL_DELETE(m->waiters, r);
		*r->handle = NULL;
		give(m, r->fn, r->arg, r->port);
		mem_free(r);
	}
}

/* The half's addresses, or those that it had last where it could not be had. */
static size_t half_put(const struct name *m, int h, struct net_addr *ret, size_t n)
{
	const struct half *half = &m->half[h];
	bool known = !half->question && (half->code == 0 || is_none(half->code));
	const struct net_addr *list = known ? half->list : m->list;
	size_t count = known ? half->count : m->count;

	for (size_t i = 0; i < count && n < MAX_ADDRS; i++)
		if (list[i].u.sa.sa_family == family_of[h])
			ret[n++] = list[i];
	return n;
}

/* Puts together what is there. */
static void conclude(struct name *m)
{
	const struct half *v4 = &m->half[HALF_V4], *v6 = &m->half[HALF_V6];
	struct net_addr list[MAX_ADDRS];
	size_t n;

	m->half_until = USEC_NEVER;
	if (v4->count > 0 || v6->count > 0) {
		n = half_put(m, HALF_V4, list, 0);
		name_found(m, list, half_put(m, HALF_V6, list, n));
	} else {
		name_failed(m, is_none(v4->code) ? v6->code : v4->code);
	}
	serve_waiters(m);
}

static void half_clear(struct half *half)
{
	mem_free(half->list);
	half->list = NULL;
	half->count = 0;
}

/* Without memory for them its addresses could not be had. */
static void half_keep(struct half *half, int code, const struct evutil_addrinfo *ai)
{
	struct net_addr list[MAX_ADDRS];
	size_t n = code == 0 ? addrs_copy(list, ai) : 0;

	half_clear(half);
	half->code = code != 0 ? code : n > 0 ? 0 : EVUTIL_EAI_NODATA;
	if (n == 0)
		return;
	half->list = mem_dup(list, n * sizeof(*list));
	if (half->list)
		half->count = n;
	else
		half->code = EVUTIL_EAI_MEMORY;
}

static void on_answer(int code, struct evutil_addrinfo *ai, void *arg)
{
	struct question *q = arg;
	struct name *m = q->name;
	struct half *half = m ? &m->half[q->half] : NULL;

	mem_free(q);
	if (half) {
		half->question = NULL;
		half_keep(half, code, ai);
	}
	if (ai)
		evutil_freeaddrinfo(ai);
	if (!m || m->starting || code == EVUTIL_EAI_CANCEL)
		return; /* CANCEL of one that is wanted: the end of the program */
	if (!is_asking(m)) {
		conclude(m);
	} else if (half->count > 0) {
		m->half_until = loop_now() + HALF_WAIT;
		loop_tick_at(tick, m->half_until);
	}
}

/* The answer may come at once. */
static void ask_half(struct name *m, int h)
{
	struct evutil_addrinfo hints = {
		.ai_family = family_of[h], .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP};
	struct question *q = mem_zalloc(sizeof(*q));
	struct evdns_getaddrinfo_request *req;

	half_clear(&m->half[h]);
	m->half[h].code = EVUTIL_EAI_MEMORY;
	if (!q)
		return;
	*q = (struct question){.name = m, .half = h};
	m->half[h].question = q;
	req = evdns_getaddrinfo(dns, m->host, NULL, &hints, on_answer, q);
	if (req)
		q->req = req;
}

/* What /etc/hosts has is all of the answer, also when it has one family only. */
static void half_drop(struct half *half)
{
	half->question->name = NULL;
	evdns_getaddrinfo_cancel(half->question->req);
	half->question = NULL;
	half->code = EVUTIL_EAI_NODATA;
}

static void ask(struct name *m)
{
	bool local = false;

	m->starting = true;
	for (int h = 0; h < HALVES; h++) {
		if (m->half[h].question)
			continue; /* of the last time, still without an answer */
		ask_half(m, h);
		local = local || m->half[h].count > 0;
	}
	m->starting = false;
	for (int h = 0; h < HALVES; h++)
		if (local && m->half[h].question)
			half_drop(&m->half[h]);
	if (!is_asking(m))
		conclude(m);
}

/* --- time --- */

static usec_t on_tick(void *arg, usec_t now)
{
	struct name *m, *tmp;
	bool check = tuning.check_period > 0 && now >= check_at;
	usec_t next = now + SWEEP;

	(void)arg;
	DL_FOREACH_SAFE (names, m, tmp) {
		if (m->half_until <= now)
			conclude(m);
		next = m->half_until < next ? m->half_until : next;
		if (is_asking(m))
			continue;
		if (now - m->wanted_at > FORGET)
			name_free(m);
		else if (check && m->count > 0)
			ask(m);
	}
	if (check || check_at == 0)
		check_at = now + tuning.check_period;
	return tuning.check_period > 0 && check_at < next ? check_at : next;
}

void dns_tune(const struct dns_tuning *t)
{
	tuning = *t;
	if (!dns)
		util_strlcpy(conf_path, t->resolv_conf, sizeof(conf_path));
	tuning.resolv_conf = conf_path;
	check_at = 0;
	if (tick)
		loop_tick_at(tick, loop_now());
}

void dns_on_gone(void (*fn)(const char *host, const char *addr))
{
	on_gone = fn;
}

const struct dns_tuning *resolver_tuning(void)
{
	return &tuning;
}

struct evdns_base *resolver_base_new(void)
{
	const char *path = conf_path[0] ? conf_path : "/etc/resolv.conf";
	struct evdns_base *base = evdns_base_new(loop_base(), EVDNS_BASE_DISABLE_WHEN_INACTIVE);

	/* Without a usable resolv.conf the names in /etc/hosts must still work. */
	if (base && evdns_base_resolv_conf_parse(base, DNS_OPTIONS_ALL, path) != 0)
		log_warning("dns: no nameserver could be read from \"%s\"", path);
	return base;
}

static bool resolver_make(void)
{
	if (dns)
		return true;
	tick = loop_tick_new(on_tick, NULL, loop_now());
	dns = tick ? resolver_base_new() : NULL;
	if (!dns)
		loop_tick_free(&tick);
	return dns != NULL;
}

/* --- those who ask --- */

bool resolve_start(struct resolve **handle, const char *host, int port, resolve_fn *fn, void *arg)
{
	struct resolve *r;
	struct name *m;
	bool first;

	if (!resolver_make() || !(m = name_get(host)))
		return false;
	m->wanted_at = loop_now();
	if (m->until > m->wanted_at) {
		give(m, fn, arg, port);
		return true;
	}
	r = mem_zalloc(sizeof(*r));
	if (!r)
		return false;
	*r = (struct resolve){.handle = handle, .fn = fn, .arg = arg, .port = port, .name = m};
	first = !m->waiters;
	DL_APPEND(m->waiters, r);
	*handle = r;
	if (first)
		ask(m);
	return true;
}

void resolve_cancel(struct resolve **handle)
{
	struct resolve *r = *handle;

	if (!r)
		return;
	*handle = NULL;
	DL_DELETE(r->name->waiters, r);
	mem_free(r);
}

void resolve_module_free(void)
{
	struct resolve *r, *tmp;
	struct name *m;

	DL_FOREACH (names, m)
		DL_FOREACH_SAFE (m->waiters, r, tmp) {
			struct resolve **handle = r->handle;

			resolve_cancel(handle);
		}
	if (dns)
		evdns_base_free(dns, 1);
	dns = NULL;
	peername_close();
	loop_tick_free(&tick);
	/* What was under way is answered by the loop. */
	if (loop_base())
		event_base_loop(loop_base(), EVLOOP_NONBLOCK | EVLOOP_ONCE);
	while ((m = names))
		name_free(m);
	peername_free();
	check_at = 0;
}

/* --- snapshots --- */

void dns_each_host(void (*fn)(const struct dns_host_stat *st, void *arg), void *arg)
{
	usec_t now = loop_now();
	struct name *m;

	DL_FOREACH (names, m) {
		struct buf addrs = BUF_INIT;
		struct dns_host_stat st = {
			.host = m->host, .ttl = m->until > now ? m->until - now : 0};
		struct conn_addr text;

		for (size_t i = 0; i < m->count; i++) {
			net_addr_print(&m->list[i], &text);
			buf_printf(&addrs, "%s%s", i > 0 ? "," : "", text.host);
		}
		st.addrs = buf_cstr(&addrs);
		fn(&st, arg);
		buf_free(&addrs);
	}
}

/* NULL: the name has no dot. */
static const char *zone_of(const struct name *m)
{
	const char *dot = strchr(m->host, '.');

	return dot ? dot + 1 : NULL;
}

static bool is_first_of_zone(const struct name *m)
{
	for (const struct name *o = names; o != m; o = o->next)
		if (zone_of(o) && util_strcasecmp(zone_of(o), zone_of(m)) == 0)
			return false;
	return true;
}

void dns_each_zone(void (*fn)(const char *zone, unsigned hosts, void *arg), void *arg)
{
	const struct name *m, *o;

	DL_FOREACH (names, m) {
		unsigned n = 0;

		if (!zone_of(m) || !is_first_of_zone(m))
			continue;
		DL_FOREACH (names, o)
			n += zone_of(o) && util_strcasecmp(zone_of(o), zone_of(m)) == 0;
		fn(zone_of(m), n, arg);
	}
}

static void count_zone(const char *zone, unsigned hosts, void *arg)
{
	(void)zone, (void)hosts;
	++*(unsigned *)arg;
}

void dns_count(struct dns_totals *ret)
{
	const struct name *m;
	const struct resolve *r;

	*ret = (struct dns_totals){0};
	DL_FOREACH (names, m) {
		ret->names++;
		ret->queries += is_asking(m);
		DL_FOREACH (m->waiters, r)
			ret->pending++;
	}
	dns_each_zone(count_zone, &ret->zones);
}
