/*
 * LDAP: is that the password of that user? Binds as the user's own entry, whose name is made of
 * ldapprefix and ldapsuffix, or is searched for. Options and what they mean are those of the
 * chapter "LDAP Authentication" of the Postgres documentation. Runs in a thread of outside.c.
 */
#include "outside_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef HAVE_LDAP
#include <ldap.h>

#define SECONDS 5 /* for each answer of the server */

struct rule {
	char *url, *server, *scheme, *prefix, *suffix, *basedn, *binddn, *bindpasswd, *attribute,
		*filter, *tls, *port;
	int scope;
};

/* --- options --- */

static char **option_at(struct rule *r, const char *name, size_t len)
{
	const struct {
		const char *name;
		char **at;
	} all[] = {{"ldapurl", &r->url}, {"ldapserver", &r->server}, {"ldapport", &r->port},
		{"ldapscheme", &r->scheme}, {"ldaptls", &r->tls}, {"ldapprefix", &r->prefix},
		{"ldapsuffix", &r->suffix}, {"ldapbasedn", &r->basedn}, {"ldapbinddn", &r->binddn},
		{"ldapbindpasswd", &r->bindpasswd}, {"ldapsearchattribute", &r->attribute},
		{"ldapsearchfilter", &r->filter}};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (strlen(all[i].name) == len && memcmp(all[i].name, name, len) == 0)
			return all[i].at;
	return NULL;
}

static void rule_clear(struct rule *r)
{
	char **all[] = {&r->url, &r->server, &r->scheme, &r->prefix, &r->suffix, &r->basedn,
		&r->binddn, &r->bindpasswd, &r->attribute, &r->filter, &r->tls, &r->port};

	if (r->bindpasswd != NULL)
		util_erase(r->bindpasswd, strlen(r->bindpasswd));
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		free(*all[i]);
		*all[i] = NULL;
	}
}

/* What the URL says; an option of its own wins. */
static bool read_url(struct rule *r)
{
	LDAPURLDesc *u = NULL;
	char port[16];
	bool ok = true;

	if (ldap_url_parse(r->url, &u) != LDAP_SUCCESS)
		return false;
	snprintf(port, sizeof(port), "%d", u->lud_port);
	if (r->scheme == NULL)
		ok = ok && (r->scheme = strdup(u->lud_scheme)) != NULL;
	if (r->server == NULL && u->lud_host != NULL)
		ok = ok && (r->server = strdup(u->lud_host)) != NULL;
	if (r->port == NULL && u->lud_port > 0)
		ok = ok && (r->port = strdup(port)) != NULL;
	if (r->basedn == NULL && u->lud_dn != NULL && u->lud_dn[0] != '\0')
		ok = ok && (r->basedn = strdup(u->lud_dn)) != NULL;
	if (r->attribute == NULL && u->lud_attrs != NULL && u->lud_attrs[0] != NULL)
		ok = ok && (r->attribute = strdup(u->lud_attrs[0])) != NULL;
	if (r->filter == NULL && u->lud_filter != NULL)
		ok = ok && (r->filter = strdup(u->lud_filter)) != NULL;
	if (u->lud_scope != LDAP_SCOPE_DEFAULT)
		r->scope = u->lud_scope;
	ldap_free_urldesc(u);
	return ok;
}

static const char *rule_judge(const struct rule *r)
{
	int64_t port;

	if (r->server == NULL)
		return "ldapserver or ldapurl is needed, with the name of a server";
	if (r->scheme != NULL && strcmp(r->scheme, "ldap") != 0 && strcmp(r->scheme, "ldaps") != 0)
		return "ldapscheme is ldap or ldaps";
	if (r->tls != NULL && strcmp(r->tls, "0") != 0 && strcmp(r->tls, "1") != 0)
		return "ldaptls is 0 or 1";
	if (r->port != NULL &&
		(!util_parse_i64(r->port, strlen(r->port), &port) || port < 1 || port > 65535))
		return "ldapport is a number from 1 to 65535";
	if ((r->prefix != NULL || r->suffix != NULL) &&
		(r->basedn != NULL || r->binddn != NULL || r->attribute != NULL ||
			r->filter != NULL))
		return "ldapprefix and ldapsuffix cannot be used together with a search";
	if (r->prefix == NULL && r->suffix == NULL && r->basedn == NULL)
		return "ldapbasedn, ldapprefix or ldapsuffix is needed";
	if (r->attribute != NULL && r->filter != NULL && r->url == NULL)
		return "ldapsearchattribute and ldapsearchfilter cannot be used together";
	return NULL;
}

/* NULL: good. */
static const char *rule_read(struct rule *r, const char *options)
{
	const char *p = options, *end, *eq;
	char **at;

	r->scope = LDAP_SCOPE_SUBTREE;
	for (; *p != '\0'; p = *end != '\0' ? end + 1 : end) {
		end = p + strcspn(p, "\n");
		eq = memchr(p, '=', (size_t)(end - p));
		at = eq != NULL ? option_at(r, p, (size_t)(eq - p)) : NULL;
		if (at == NULL)
			return "an LDAP option is not known";
		free(*at);
		*at = strndup(eq + 1, (size_t)(end - eq - 1));
		if (*at == NULL)
			return "out of memory";
	}
	if (r->url != NULL && !read_url(r))
		return "ldapurl cannot be read";
	return rule_judge(r);
}

const char *ldap_check_options(const char *options, char *err, size_t err_size)
{
	struct rule r = {0};
	const char *why = rule_read(&r, options);

	rule_clear(&r);
	if (why != NULL)
		snprintf(err, err_size, "%s", why);
	return why;
}

/* --- a connection --- */

static void note(struct outside_job *j, const char *what, int rc)
{
	snprintf(j->note, sizeof(j->note), "LDAP, %s: %s", what, ldap_err2string(rc));
}

/* Of several servers, blanks between, the library takes the first that answers. */
static bool uris_of(const struct rule *r, char *dst, size_t size)
{
	const char *scheme = r->scheme != NULL ? r->scheme : "ldap", *p = r->server;
	const char *port = r->port != NULL ? r->port : strcmp(scheme, "ldaps") == 0 ? "636" : "389";
	size_t n = 0;

	if (p == NULL)
		return false;
	while (*(p += strspn(p, " ")) != '\0') {
		int len = (int)strcspn(p, " ");
		/* ldapurl is read without the brackets of an IPv6 address */
		bool bare = p[0] != '[' && memchr(p, ':', (size_t)len) != NULL;
		int w = snprintf(dst + n, size - n, "%s%s://%s%.*s%s:%s", n > 0 ? " " : "", scheme,
			bare ? "[" : "", len, p, bare ? "]" : "", port);

		if (w < 0 || (size_t)w >= size - n)
			return false;
		n += (size_t)w;
		p += len;
	}
	return n > 0;
}

static LDAP *open_server(const struct rule *r, struct outside_job *j)
{
	struct timeval limit = {.tv_sec = SECONDS};
	int rc, version = LDAP_VERSION3;
	LDAP *ld = NULL;
	char uris[2048];

	if (!uris_of(r, uris, sizeof(uris))) {
		snprintf(j->note, sizeof(j->note), "LDAP: no server is named");
		return NULL;
	}
	rc = ldap_initialize(&ld, uris);
	if (rc == LDAP_SUCCESS) {
		(void)ldap_set_option(ld, LDAP_OPT_PROTOCOL_VERSION, &version);
		(void)ldap_set_option(ld, LDAP_OPT_NETWORK_TIMEOUT, &limit);
		(void)ldap_set_option(ld, LDAP_OPT_TIMEOUT, &limit);
		(void)ldap_set_option(ld, LDAP_OPT_REFERRALS, LDAP_OPT_OFF);
		if (r->tls != NULL && r->tls[0] == '1')
			rc = ldap_start_tls_s(ld, NULL, NULL);
	}
	if (rc == LDAP_SUCCESS)
		return ld;
	note(j, "connection", rc);
	if (ld != NULL)
		ldap_unbind_ext_s(ld, NULL, NULL);
	return NULL;
}

static int bind_as(LDAP *ld, const char *dn, const char *password)
{
	struct berval cred = {.bv_len = strlen(password), .bv_val = strdup(password)};
	int rc;

	if (cred.bv_val == NULL)
		return LDAP_NO_MEMORY;
	rc = ldap_sasl_bind_s(ld, dn, LDAP_SASL_SIMPLE, &cred, NULL, NULL, NULL);
	util_erase(cred.bv_val, cred.bv_len);
	free(cred.bv_val);
	return rc;
}

/* --- whose entry --- */

/* (attribute=user), and beside it a filter that does not say where the name belongs: it narrows. */
static bool filter_by_attribute(const struct rule *r, const char *user, char *dst, size_t size)
{
	const char *attribute = r->attribute != NULL ? r->attribute : "uid", *f = r->filter;
	bool bare = f != NULL && f[0] != '(';
	int w;

	if (f == NULL || f[0] == '\0')
		w = snprintf(dst, size, "(%s=%s)", attribute, user);
	else
		w = snprintf(dst, size, "(&(%s=%s)%s%s%s)", attribute, user, bare ? "(" : "", f,
			bare ? ")" : "");
	return w > 0 && (size_t)w < size;
}

/* ldapsearchfilter with each $username replaced. false: too long. */
static bool filter_of(const struct rule *r, const char *user, char *dst, size_t size)
{
	static const char mark[] = "$username";
	const char *p = r->filter, *at;
	size_t n = 0;
	int w;

	if (p == NULL || strstr(p, mark) == NULL)
		return filter_by_attribute(r, user, dst, size);
	for (; *p != '\0'; p = at != NULL ? at + strlen(mark) : p + strlen(p)) {
		at = strstr(p, mark);
		w = snprintf(dst + n, size - n, "%.*s%s",
			at != NULL ? (int)(at - p) : (int)strlen(p), p, at != NULL ? user : "");
		if (w < 0 || (size_t)w >= size - n)
			return false;
		n += (size_t)w;
	}
	return n > 0;
}

/* malloc'ed; NULL: the note says why. */
static char *dn_of_result(LDAP *ld, LDAPMessage *result, struct outside_job *j, bool *ret_wrong)
{
	int count = ldap_count_entries(ld, result);
	char *dn, *copy;

	*ret_wrong = true;
	if (count != 1) {
		snprintf(j->note, sizeof(j->note), "LDAP, search: %s",
			count == 0 ? "no such user" : "several users fit");
		return NULL;
	}
	dn = ldap_get_dn(ld, ldap_first_entry(ld, result));
	copy = dn != NULL ? strdup(dn) : NULL;
	ldap_memfree(dn);
	*ret_wrong = copy != NULL;
	return copy;
}

static char *search(const struct rule *r, struct outside_job *j, bool *ret_wrong)
{
	struct timeval limit = {.tv_sec = SECONDS};
	char *attrs[] = {(char *)LDAP_NO_ATTRS, NULL}, filter[1024], *dn = NULL;
	LDAPMessage *result = NULL;
	LDAP *ld;
	int rc;

	*ret_wrong = true;
	/* what would be more than a name in a filter */
	if (strpbrk(j->user, "*()\\/") != NULL || !filter_of(r, j->user, filter, sizeof(filter))) {
		snprintf(j->note, sizeof(j->note), "LDAP, search: the user name cannot be used");
		return NULL;
	}
	*ret_wrong = false;
	if ((ld = open_server(r, j)) == NULL)
		return NULL;
	rc = bind_as(
		ld, r->binddn != NULL ? r->binddn : "", r->bindpasswd != NULL ? r->bindpasswd : "");
	if (rc != LDAP_SUCCESS) {
		note(j, "bind for the search", rc);
	} else {
		rc = ldap_search_ext_s(
			ld, r->basedn, r->scope, filter, attrs, 0, NULL, NULL, &limit, 2, &result);
		if (rc == LDAP_SUCCESS || rc == LDAP_SIZELIMIT_EXCEEDED)
			dn = dn_of_result(ld, result, j, ret_wrong);
		else
			note(j, "search", rc);
	}
	ldap_msgfree(result);
	ldap_unbind_ext_s(ld, NULL, NULL);
	return dn;
}

static char *dn_plain(const struct rule *r, struct outside_job *j, bool *ret_wrong)
{
	char *dn = NULL;

	/* what would lead to another entry */
	*ret_wrong = strpbrk(j->user, ",+\"\\<>;=") != NULL;
	if (*ret_wrong)
		snprintf(j->note, sizeof(j->note), "LDAP: the user name cannot be used");
	else if (asprintf(&dn, "%s%s%s", r->prefix != NULL ? r->prefix : "", j->user,
			 r->suffix != NULL ? r->suffix : "") < 0)
		dn = NULL;
	return dn;
}

static enum outside_verdict check_with(const struct rule *r, struct outside_job *j)
{
	enum outside_verdict v = OUTSIDE_FAILED;
	bool wrong = false;
	char *dn = r->basedn != NULL ? search(r, j, &wrong) : dn_plain(r, j, &wrong);
	LDAP *ld;
	int rc;

	if (dn == NULL)
		return wrong ? OUTSIDE_WRONG : OUTSIDE_FAILED;
	ld = open_server(r, j);
	if (ld != NULL) {
		rc = bind_as(ld, dn, j->password);
		v = rc == LDAP_SUCCESS                                            ? OUTSIDE_GOOD
		    : rc == LDAP_INVALID_CREDENTIALS || rc == LDAP_NO_SUCH_OBJECT ? OUTSIDE_WRONG
										  : OUTSIDE_FAILED;
		if (v != OUTSIDE_GOOD)
			note(j, "bind as the user", rc);
		ldap_unbind_ext_s(ld, NULL, NULL);
	}
	free(dn);
	return v;
}

enum outside_verdict ldap_check(struct outside_job *j)
{
	struct rule r = {0};
	const char *why = rule_read(&r, j->options);
	enum outside_verdict v = OUTSIDE_FAILED;

	/* a bind without a password succeeds as nobody */
	if (why != NULL || j->password[0] == '\0')
		snprintf(j->note, sizeof(j->note), "LDAP: %s", why != NULL ? why : "no password");
	else
		v = check_with(&r, j);
	rule_clear(&r);
	return v;
}

#else

const char *ldap_check_options(const char *options, char *err, size_t err_size)
{
	(void)options;
	snprintf(err, err_size, "built without LDAP");
	return "built without LDAP";
}

enum outside_verdict ldap_check(struct outside_job *j)
{
	snprintf(j->note, sizeof(j->note), "built without LDAP");
	return OUTSIDE_FAILED;
}

#endif
