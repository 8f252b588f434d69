/*
 * The rules of auth_hba_file: the first one that fits decides. A line that cannot be understood is
 * an error of the whole file, because leaving out a rule lets in whom it would have kept out. Must
 * not know conversations. Entry points: auth/hba.h.
 */
#include "hba_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/outside.h"
#include "base/log.h"
#include "base/mem.h"

enum conn_kind { CONN_LOCAL, CONN_HOST, CONN_HOSTSSL, CONN_HOSTNOSSL, CONN_HOSTGSS };
enum addr_kind { ADDR_ALL, ADDR_NET, ADDR_SAMEHOST, ADDR_SAMENET, ADDR_NAME };

/* An address as bytes: 4 of them or 16. A v4 address in v6 clothes is a v4 address. */
struct addr {
	size_t len;
	uint8_t b[16];
};

struct rule {
	struct rule *next;
	enum conn_kind conn;
	struct name *databases, *users;
	size_t n_databases, n_users;
	enum addr_kind addr;
	struct addr net, mask;
	char *host; /* ADDR_NAME: a name, or the end of names: a dot and what follows it */
	char *map, *options, *file;
	struct hba_rule public;
};

struct hba {
	struct rule *first, **last;
	bool names_hosts; /* one of them does */
	struct ident *ident;
	bool has_maps; /* all of them: ident was read without a mistake */
};

static struct hba *in_force;

/* --- addresses --- */

static void addr_plain(struct addr *a)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	if (a->len == 16 && memcmp(a->b, mapped, sizeof(mapped)) == 0) {
		memmove(a->b, a->b + 12, 4);
		a->len = 4;
	}
}

static bool addr_parse(struct addr *a, const char *text)
{
	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, text, a->b) == 1) {
		a->len = 4;
		return true;
	}
	a->len = 16;
	return inet_pton(AF_INET6, text, a->b) == 1;
}

static void mask_of_bits(struct addr *mask, size_t len, unsigned bits)
{
	memset(mask, 0, sizeof(*mask));
	mask->len = len;
	for (unsigned i = 0; i < bits; i++)
		mask->b[i / 8] |= (uint8_t)(0x80 >> (i % 8));
}

static bool addr_in(const struct addr *a, const struct addr *net, const struct addr *mask)
{
	if (a->len != net->len)
		return false;
	for (size_t i = 0; i < a->len; i++)
		if ((a->b[i] ^ net->b[i]) & mask->b[i])
			return false;
	return true;
}

static bool addr_of_sockaddr(struct addr *a, const struct sockaddr *sa)
{
	memset(a, 0, sizeof(*a));
	if (sa && sa->sa_family == AF_INET) {
		a->len = 4;
		memcpy(a->b, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	} else if (sa && sa->sa_family == AF_INET6) {
		a->len = 16;
		memcpy(a->b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	}
	return a->len > 0;
}

enum fit { FIT_NO, FIT_YES, FIT_UNKNOWN, FIT_ASK };

/* samehost, samenet: the interfaces of this machine, as they are now. */
static enum fit addr_is_ours(const struct addr *a, bool net)
{
	struct ifaddrs *list, *i;
	struct addr own, mask;
	bool found = false;

	if (getifaddrs(&list) != 0) {
		log_error("samehost, samenet: the addresses of this machine cannot be read: %s",
			strerror(errno));
		return FIT_UNKNOWN;
	}
	for (i = list; i && !found; i = i->ifa_next) {
		if (!addr_of_sockaddr(&own, i->ifa_addr))
			continue;
		if (!net || !addr_of_sockaddr(&mask, i->ifa_netmask))
			mask_of_bits(&mask, own.len, (unsigned)own.len * 8);
		found = addr_in(a, &own, &mask);
	}
	freeifaddrs(list);
	return found ? FIT_YES : FIT_NO;
}

/* --- reading --- */

static void rule_free(struct rule *u)
{
	for (size_t i = 0; i < u->n_databases; i++)
		name_clear(&u->databases[i]);
	for (size_t i = 0; i < u->n_users; i++)
		name_clear(&u->users[i]);
	mem_free(u->databases);
	mem_free(u->users);
	mem_free(u->host);
	mem_free(u->map);
	outside_options_free(&u->options);
	mem_free(u->file);
	mem_free(u);
}

static bool read_conn(struct rule *u, struct field_reader *r, const struct field_token *t)
{
	static const struct {
		const char *word;
		enum conn_kind kind;
	} words[] = {{"local", CONN_LOCAL}, {"host", CONN_HOST}, {"hostssl", CONN_HOSTSSL},
		{"hostnossl", CONN_HOSTNOSSL}, {"hostgssenc", CONN_HOSTGSS},
		{"hostnogssenc", CONN_HOST}};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(t->text, words[i].word)) {
			u->conn = words[i].kind;
			return true;
		}
	return fields_fail(r, "unknown connection type \"%s\"", t->text);
}

/* Of an unquoted token. */
static bool read_keyword(
	struct name *n, struct field_reader *r, const struct field_token *t, bool database)
{
	if (t->quoted)
		return true;
	if (!strcmp(t->text, "all"))
		n->kind = NAME_ALL;
	else if (database && !strcmp(t->text, "sameuser"))
		n->kind = NAME_SAMEUSER;
	else if (database && !strcmp(t->text, "replication"))
		n->kind = NAME_REPLICATION;
	else if (database && (!strcmp(t->text, "samerole") || !strcmp(t->text, "samegroup")))
		return fields_fail(r, "\"%s\": members of a role are not known here", t->text);
	else if (!database && t->text[0] == '+')
		return fields_fail(r,
			"\"%s\": members of a role are not known here; name the users, or put them in a @file",
			t->text);
	return true;
}

static bool read_names(struct name **ret, size_t *ret_n, struct field_reader *r,
	const struct field_line *l, size_t field, bool database)
{
	size_t n = fields_count(l, field);
	const struct field_token *t = fields_token(l, field);

	*ret = mem_zalloc((n + 1) * sizeof(**ret));
	if (!*ret)
		return fields_fail(r, "out of memory");
	for (size_t i = 0; i < n; i++) {
		if (!name_read(&(*ret)[i], r, &t[i]))
			return false;
		*ret_n = i + 1;
		if (!read_keyword(&(*ret)[i], r, &t[i], database))
			return false;
	}
	return true;
}

static bool read_bits(struct rule *u, struct field_reader *r, const char *text)
{
	int64_t bits;

	if (!util_parse_i64(text, strlen(text), &bits) || bits < 0 ||
		bits > (int64_t)u->net.len * 8)
		return fields_fail(r, "invalid mask \"/%s\"", text);
	mask_of_bits(&u->mask, u->net.len, (unsigned)bits);
	return true;
}

/* Letters, digits and what else names of hosts have; the last label is not a number, as a mistyped
 * address would have it. */
static bool is_host_name(const char *text)
{
	size_t len = strlen(text);
	const char *last = strrchr(text, '.');

	if (len == 0 || len > 255 ||
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") !=
			len)
		return false;
	last = last ? last + 1 : text;
	return last[0] != '\0' && strspn(last, "0123456789") < strlen(last);
}

static bool read_host(struct rule *u, struct field_reader *r, const char *text, bool mask)
{
	if (!is_host_name(text))
		return fields_fail(r, "\"%s\" is neither an address nor the name of a host", text);
	if (mask)
		return fields_fail(r, "\"%s\" is the name of a host: it has no mask", text);
	u->addr = ADDR_NAME;
	u->host = mem_strdup(text);
	return u->host ? true : fields_fail(r, "out of memory");
}

/* Address, and mask if it is a field of its own. *at is moved behind them. */
static bool read_address(
	struct rule *u, struct field_reader *r, const struct field_line *l, size_t *at)
{
	const struct field_token *t = fields_token(l, *at);
	char text[128], *slash;

	++*at;
	if (!t->quoted) {
		u->addr = !strcmp(t->text, "all")        ? ADDR_ALL
			  : !strcmp(t->text, "samehost") ? ADDR_SAMEHOST
			  : !strcmp(t->text, "samenet")  ? ADDR_SAMENET
							 : ADDR_NET;
		if (u->addr != ADDR_NET)
			return true;
	}
	u->addr = ADDR_NET;
	if (util_strlcpy(text, t->text, sizeof(text)) >= sizeof(text))
		return fields_fail(r, "invalid address \"%s\"", t->text);
	slash = strchr(text, '/');
	if (slash)
		*slash++ = '\0';
	if (!addr_parse(&u->net, text))
		return read_host(u, r, text, slash != NULL);
	if (slash)
		return read_bits(u, r, slash);
	if (*at >= l->n_fields || fields_count(l, *at) != 1)
		return fields_fail(r, "the mask of \"%s\" is missing", t->text);
	t = fields_token(l, (*at)++);
	if (!addr_parse(&u->mask, t->text) || u->mask.len != u->net.len)
		return fields_fail(r, "invalid mask \"%s\"", t->text);
	return true;
}

static bool read_method(struct rule *u, struct field_reader *r, const struct field_token *t)
{
	static const struct {
		const char *word;
		enum auth_type type;
	} words[] = {{"trust", AUTH_TRUST}, {"reject", AUTH_REJECT}, {"password", AUTH_PLAIN},
		{"plain", AUTH_PLAIN}, {"md5", AUTH_MD5}, {"scram-sha-256", AUTH_SCRAM},
		{"cert", AUTH_CERT}, {"peer", AUTH_PEER}, {"pam", AUTH_PAM}, {"ldap", AUTH_LDAP}};
	const char *why;

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(t->text, words[i].word))
			continue;
		u->public.type = words[i].type;
		if (u->public.type == AUTH_PEER && u->conn != CONN_LOCAL)
			return fields_fail(r, "peer is for local connections only");
		if (u->public.type == AUTH_CERT && u->conn != CONN_HOSTSSL)
			return fields_fail(r, "cert is for hostssl connections only");
		why = conf_auth_type_missing(u->public.type);
		return why ? fields_fail(r, "\"%s\": %s", t->text, why) : true;
	}
	return fields_fail(r, "unknown authentication method \"%s\"", t->text);
}

static bool add_option(struct rule *u, struct field_reader *r, const char *text)
{
	size_t old = u->options ? strlen(u->options) : 0, more = strlen(text) + 2;
	char *grown = mem_alloc(old + more);

	if (!grown)
		return fields_fail(r, "out of memory");
	snprintf(grown, old + more, "%s%s%s", old ? u->options : "", old ? "\n" : "", text);
	outside_options_free(&u->options);
	u->options = grown;
	return true;
}

static bool read_option(struct rule *u, struct field_reader *r, const char *text)
{
	enum auth_type type = u->public.type;

	if (!strncmp(text, "map=", 4)) {
		if (type != AUTH_PEER && type != AUTH_CERT)
			return fields_fail(r, "\"map\" is for peer and cert only");
		mem_free(u->map);
		u->map = mem_strdup(text + 4);
		return u->map ? true : fields_fail(r, "out of memory");
	}
	if (!strncmp(text, "clientcert=", 11)) {
		if (u->conn != CONN_HOSTSSL)
			return fields_fail(r, "\"clientcert\" is for hostssl connections only");
		u->public.needs_cert = true;
		u->public.needs_name = !strcmp(text + 11, "verify-full");
		if (!u->public.needs_name && strcmp(text + 11, "verify-ca"))
			return fields_fail(r, "invalid value of \"%s\"", text);
		return true;
	}
	if ((type == AUTH_LDAP && !strncmp(text, "ldap", 4)) ||
		(type == AUTH_PAM && !strncmp(text, "pamservice=", 11)))
		return add_option(u, r, text);
	return fields_fail(r, "unknown option \"%.*s\"", (int)strcspn(text, "="), text);
}

static bool options_fit(struct rule *u, struct field_reader *r)
{
	char err[256];

	return outside_check(u->public.type, u->options ? u->options : "", err, sizeof(err)) ||
	       fields_fail(r, "%s", err);
}

static bool read_rule(struct rule *u, struct field_reader *r, const struct field_line *l)
{
	size_t at = 3;

	if (l->n_fields < 4 || fields_count(l, 0) != 1)
		return fields_fail(r, "expected connection type, databases, users%s and method",
			l->n_fields > 0 && strncmp(fields_token(l, 0)->text, "host", 4) == 0
				? ", address"
				: "");
	if (!read_conn(u, r, fields_token(l, 0)) ||
		!read_names(&u->databases, &u->n_databases, r, l, 1, true) ||
		!read_names(&u->users, &u->n_users, r, l, 2, false))
		return false;
	if (u->conn != CONN_LOCAL) {
		if (fields_count(l, at) != 1)
			return fields_fail(r, "one address is expected");
		if (!read_address(u, r, l, &at))
			return false;
	}
	if (at >= l->n_fields || fields_count(l, at) != 1)
		return fields_fail(r, "the authentication method is missing");
	if (!read_method(u, r, fields_token(l, at++)))
		return false;
	for (; at < l->n_fields; at++)
		for (size_t i = 0; i < fields_count(l, at); i++)
			if (!read_option(u, r, fields_token(l, at)[i].text))
				return false;
	return options_fit(u, r);
}

static bool read_line(struct field_reader *r, const struct field_line *l)
{
	struct hba *h = r->arg;
	struct rule *u = mem_zalloc(sizeof(*u));

	if (!u)
		return fields_fail(r, "out of memory");
	u->file = mem_strdup(l->file);
	if (!u->file) {
		rule_free(u);
		return fields_fail(r, "out of memory");
	}
	if (!read_rule(u, r, l)) {
		rule_free(u);
		return false;
	}
	if (u->map && h->has_maps && !ident_has_map(h->ident, u->map)) {
		fields_fail(r, "there is no map \"%s\" in auth_ident_file", u->map);
		rule_free(u);
		return false;
	}
	u->public.map = u->map;
	u->public.options = u->options ? u->options : "";
	u->public.file = u->file;
	u->public.line = l->number;
	h->names_hosts = h->names_hosts || u->addr == ADDR_NAME;
	*h->last = u;
	h->last = &u->next;
	return true;
}

void hba_free(struct hba **p)
{
	struct hba *h = *p;

	*p = NULL;
	if (!h)
		return;
	while (h->first) {
		struct rule *u = h->first;

		h->first = u->next;
		rule_free(u);
	}
	ident_free(&h->ident);
	mem_free(h);
}

struct hba *hba_read(const char *path, const char *ident_path, char *err, size_t err_size)
{
	struct field_reader r = {.line = read_line, .err = err, .err_size = err_size};
	struct hba *h = mem_zalloc(sizeof(*h));

	err[0] = '\0';
	if (!h) {
		(void)util_add_line(err, err_size, "out of memory");
		return NULL;
	}
	h->last = &h->first;
	h->ident = ident_read(ident_path, &h->has_maps, err, err_size);
	r.arg = h;
	if (!h->ident || !fields_read(&r, path) || !h->has_maps)
		hba_free(&h);
	return h;
}

void hba_install(struct hba *h)
{
	hba_free(&in_force);
	in_force = h;
}

/* --- questions --- */

static enum fit pattern_fits(const struct name *n, const char *text)
{
	switch (name_match(n, text, NULL)) {
	case PATTERN_YES:
		return FIT_YES;
	case PATTERN_NO:
		return FIT_NO;
	case PATTERN_UNDECIDED:
		break;
	}
	return FIT_UNKNOWN;
}

static enum fit yes_or_no(bool fits)
{
	return fits ? FIT_YES : FIT_NO;
}

static enum fit database_is(const struct name *n, const struct hba_peer *p)
{
	/* a physical replication connection has no database */
	if (p->replication || n->kind == NAME_REPLICATION)
		return yes_or_no(p->replication && n->kind == NAME_REPLICATION);
	if (n->kind == NAME_SAMEUSER)
		return yes_or_no(!strcmp(p->database, p->user));
	if (n->kind == NAME_REGEX)
		return pattern_fits(n, p->database);
	return yes_or_no(n->kind == NAME_ALL || !strcmp(n->text, p->database));
}

static enum fit database_fits(const struct rule *u, const struct hba_peer *p)
{
	enum fit fit = FIT_NO;

	for (size_t i = 0; i < u->n_databases && fit == FIT_NO; i++)
		fit = database_is(&u->databases[i], p);
	return fit;
}

static enum fit user_is(const struct name *n, const char *user)
{
	if (n->kind == NAME_REGEX)
		return pattern_fits(n, user);
	return yes_or_no(n->kind == NAME_ALL || !strcmp(n->text, user));
}

static enum fit user_fits(const struct rule *u, const char *user)
{
	enum fit fit = FIT_NO;

	for (size_t i = 0; i < u->n_users && fit == FIT_NO; i++)
		fit = user_is(&u->users[i], user);
	return fit;
}

/* Without a name that was confirmed no rule that names hosts fits, as in Postgres. */
static enum fit host_fits(const char *pattern, const char *host)
{
	size_t len = strlen(pattern), host_len;

	if (!host)
		return FIT_ASK;
	host_len = strlen(host);
	if (pattern[0] != '.')
		return util_strcasecmp(pattern, host) == 0 ? FIT_YES : FIT_NO;
	return host_len > len && util_strcasecmp(host + host_len - len, pattern) == 0 ? FIT_YES
										      : FIT_NO;
}

static enum fit address_fits(const struct rule *u, const struct addr *a, const char *host)
{
	switch (u->addr) {
	case ADDR_ALL:
		return FIT_YES;
	case ADDR_NET:
		return addr_in(a, &u->net, &u->mask) ? FIT_YES : FIT_NO;
	case ADDR_SAMEHOST:
	case ADDR_SAMENET:
		return addr_is_ours(a, u->addr == ADDR_SAMENET);
	case ADDR_NAME:
		return host_fits(u->host, host);
	}
	return FIT_NO;
}

static bool conn_fits(const struct rule *u, const struct hba_peer *p)
{
	switch (u->conn) {
	case CONN_LOCAL:
		return p->is_unix;
	case CONN_HOST:
		return !p->is_unix;
	case CONN_HOSTSSL:
		return !p->is_unix && p->tls;
	case CONN_HOSTNOSSL:
		return !p->is_unix && !p->tls;
	case CONN_HOSTGSS:
		break;
	}
	return false;
}

/* Of two conditions that both have to fit. */
static enum fit worst(enum fit a, enum fit b)
{
	static const enum fit order[] = {FIT_NO, FIT_UNKNOWN, FIT_ASK};

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		if (a == order[i] || b == order[i])
			return order[i];
	return FIT_YES;
}

/* YES: *ret is the rule; ASK: it depends on the name of the host. */
static enum fit find(const struct hba_peer *p, const struct hba_rule **ret)
{
	struct addr a = {0};

	if (!in_force)
		return FIT_NO;
	if (!p->is_unix) {
		if (!addr_parse(&a, p->address))
			return FIT_NO;
		addr_plain(&a);
	}
	for (const struct rule *u = in_force->first; u; u = u->next) {
		enum fit fit;

		if (!conn_fits(u, p))
			continue;
		fit = database_fits(u, p);
		if (fit != FIT_NO)
			fit = worst(fit, user_fits(u, p->user));
		if (fit != FIT_NO && !p->is_unix)
			fit = worst(fit, address_fits(u, &a, p->host));
		if (fit == FIT_NO)
			continue;
		*ret = &u->public;
		return fit;
	}
	return FIT_NO;
}

bool hba_wants_host(const struct hba_peer *p)
{
	const struct hba_rule *rule;

	return in_force && in_force->names_hosts && !p->is_unix && !p->host &&
	       find(p, &rule) == FIT_ASK;
}

const struct hba_rule *hba_find(const struct hba_peer *p)
{
	const struct hba_rule *rule;

	/* UNKNOWN, ASK: it might be the one that keeps him out */
	return find(p, &rule) == FIT_YES ? rule : NULL;
}

bool hba_map_allows(const char *map, const char *system_name, const char *user)
{
	if (!map)
		return strcmp(system_name, user) == 0;
	return in_force && ident_allows(in_force->ident, map, system_name, user);
}
