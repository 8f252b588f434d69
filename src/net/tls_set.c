/*
 * All TLS contexts of a configuration: one for clients, one for servers, and one for each database
 * entry that has TLS settings of its own. Knows nothing of how a context is made.
 *
 * Entry points: tls_set_*, tls_for_*.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/tls.h"

struct entry {
	struct entry *next;
	struct tls_ctx *ctx; /* NULL: plain text */
	char name[];
};

struct tls_set {
	struct tls_ctx *clients, *servers;
	struct entry *entries;
	struct buf rules; /* towards servers, as text */
};

static struct tls_set *current;

static void client_spec(const struct params *p, struct tls_spec *s)
{
	*s = (struct tls_spec){.server = true,
		.mode = p->client_tls_sslmode,
		.key_file = p->client_tls_key_file,
		.cert_file = p->client_tls_cert_file,
		.ca_file = p->client_tls_ca_file,
		.protocols = p->client_tls_protocols,
		.ciphers = p->client_tls_ciphers,
		.ciphersuites = p->client_tls13_ciphers,
		.dheparams = p->client_tls_dheparams,
		.curve = p->client_tls_ecdhcurve};
}

static const char *text_or(const char *given, const char *otherwise)
{
	return given != NULL ? given : otherwise;
}

/* d: an entry that may have settings of its own, or NULL. */
static void server_spec(const struct params *p, const struct conf_database *d, struct tls_spec *s)
{
	static const struct conf_database none = {.server_tls_sslmode = SSLMODE_UNSET};
	enum tls_negotiation how = p->server_tls_negotiation;

	if (d == NULL)
		d = &none;
	else if (d->server_tls_negotiation != TLS_NEGOTIATION_UNSET)
		how = d->server_tls_negotiation;
	*s = (struct tls_spec){.mode = d->server_tls_sslmode != SSLMODE_UNSET
					       ? d->server_tls_sslmode
					       : p->server_tls_sslmode,
		.direct = how == TLS_NEGOTIATION_DIRECT,
		.key_file = text_or(d->server_tls_key_file, p->server_tls_key_file),
		.cert_file = text_or(d->server_tls_cert_file, p->server_tls_cert_file),
		.ca_file = text_or(d->server_tls_ca_file, p->server_tls_ca_file),
		.protocols = p->server_tls_protocols,
		.ciphers = p->server_tls_ciphers,
		.ciphersuites = p->server_tls13_ciphers,
		.dheparams = "auto",
		.curve = "auto"};
}

static bool has_own_rules(const struct conf_database *d)
{
	return d->server_tls_sslmode != SSLMODE_UNSET || d->server_tls_key_file != NULL ||
	       d->server_tls_cert_file != NULL || d->server_tls_ca_file != NULL ||
	       d->server_tls_negotiation != TLS_NEGOTIATION_UNSET;
}

enum sslmode tls_files_for_database(const char *entry, struct tls_files *ret)
{
	const struct conf *c = conf_current();
	struct tls_spec s;

	server_spec(&c->p, conf_find_database(c, entry), &s);
	*ret = (struct tls_files){s.ca_file, s.cert_file, s.key_file};
	if (s.mode == SSLMODE_VERIFY_FULL && s.ca_file[0] == '\0')
		ret->ca_file = tls_system_ca();
	return s.mode;
}

/* Direct TLS has no way back to plain text. */
static bool make(const struct tls_spec *s, struct tls_ctx **ret, char *err, size_t err_size)
{
	char why[2048];

	*ret = NULL;
	if (s->mode == SSLMODE_DISABLE)
		return true;
	if (s->direct && s->mode < SSLMODE_REQUIRE) {
		(void)util_add_line(err, err_size,
			"server_tls_negotiation: direct needs server_tls_sslmode = require, verify-ca or verify-full");
		return false;
	}
	*ret = tls_ctx_new(s, why, sizeof(why));
	if (*ret == NULL)
		(void)util_add_line(err, err_size, why);
	return *ret != NULL;
}

static void note_rules(struct tls_set *set, const char *name, const struct tls_spec *s)
{
	buf_printf(&set->rules, "%s\n%d %d\n%s\n%s\n%s\n%s\n%s\n%s\n", name, (int)s->mode,
		s->direct, s->key_file, s->cert_file, s->ca_file, s->protocols, s->ciphers,
		s->ciphersuites);
}

static bool add_entry(struct tls_set *set, const struct conf *c, const struct conf_database *d,
	char *err, size_t err_size)
{
	size_t len = strlen(d->name) + 1;
	struct tls_spec s;
	struct entry *e = mem_alloc(sizeof(*e) + len);
	char why[2048] = "", line[2200];

	server_spec(&c->p, d, &s);
	note_rules(set, d->name, &s);
	if (e == NULL) {
		(void)util_add_line(err, err_size, "out of memory");
		return false;
	}
	if (!make(&s, &e->ctx, why, sizeof(why))) {
		for (char *next, *at = why; at != NULL; at = next) {
			if ((next = strchr(at, '\n')) != NULL)
				*next++ = '\0';
			snprintf(line, sizeof(line), "database \"%s\": %s", d->name, at);
			(void)util_add_line(err, err_size, line);
		}
		mem_free(e);
		return false;
	}
	memcpy(e->name, d->name, len);
	e->next = set->entries;
	set->entries = e;
	return true;
}

struct tls_set *tls_set_new(const struct conf *c, char *err, size_t err_size)
{
	struct tls_set *set = mem_zalloc(sizeof(*set));
	struct tls_spec s;
	bool ok;

	err[0] = '\0';
	if (set == NULL) {
		(void)util_add_line(err, err_size, "out of memory");
		return NULL;
	}
	client_spec(&c->p, &s);
	ok = make(&s, &set->clients, err, err_size);
	server_spec(&c->p, NULL, &s);
	note_rules(set, "", &s);
	ok = make(&s, &set->servers, err, err_size) && ok;
	for (const struct conf_database *d = c->databases; d != NULL; d = d->next)
		if (has_own_rules(d))
			ok = add_entry(set, c, d, err, err_size) && ok;
	if (!ok)
		tls_set_free(&set);
	return set;
}

void tls_set_free(struct tls_set **p)
{
	struct tls_set *set = *p;
	struct entry *e;

	*p = NULL;
	if (set == NULL)
		return;
	while ((e = set->entries) != NULL) {
		set->entries = e->next;
		tls_ctx_drop(&e->ctx);
		mem_free(e);
	}
	tls_ctx_drop(&set->clients);
	tls_ctx_drop(&set->servers);
	buf_free(&set->rules);
	mem_free(set);
}

bool tls_set_install(struct tls_set **p)
{
	struct tls_set *old = current;
	bool other = old != NULL && strcmp(buf_cstr(&old->rules), buf_cstr(&(*p)->rules)) != 0;

	current = *p;
	*p = NULL;
	tls_set_free(&old);
	return other;
}

void tls_set_uninstall(void)
{
	tls_set_free(&current);
}

struct tls_ctx *tls_for_clients(void)
{
	return current != NULL ? current->clients : NULL;
}

struct tls_ctx *tls_for_database(const char *entry)
{
	if (current == NULL)
		return NULL;
	for (const struct entry *e = current->entries; e != NULL; e = e->next)
		if (strcmp(e->name, entry) == 0)
			return e->ctx;
	return current->servers;
}
