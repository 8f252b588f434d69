/*
 * The parameters: the table made from conf/params.h, the checks its rows name, and the section of
 * the ini file that sets them. Entry points: table_int.h; conf_each_param() of conf/conf.h.
 */
#include "table_int.h"

#include <string.h>

#include "base/log.h"

static const struct field_word auth_type_words[] = {
	{"any", AUTH_ANY}, {"trust", AUTH_TRUST}, {"plain", AUTH_PLAIN}, {"md5", AUTH_MD5},
	{"scram-sha-256", AUTH_SCRAM}, {"hba", AUTH_HBA}, {"cert", AUTH_CERT}, {"pam", AUTH_PAM},
	{"ldap", AUTH_LDAP}, {NULL, 0}, /* peer and reject are methods of rules, not types */
};

const struct field_word conf_pool_mode_words[] = {
	{"session", POOL_MODE_SESSION},
	{"transaction", POOL_MODE_TRANSACTION},
	{"statement", POOL_MODE_STATEMENT},
	{NULL, 0},
};
#define pool_mode_words conf_pool_mode_words

static const struct field_word log_style_words[] = {
	{"plain", LOG_STYLE_PLAIN},
	{"json", LOG_STYLE_JSON},
	{NULL, 0},
};

const struct field_word conf_sslmode_words[] = {
	{"disable", SSLMODE_DISABLE},
	{"allow", SSLMODE_ALLOW},
	{"prefer", SSLMODE_PREFER},
	{"require", SSLMODE_REQUIRE},
	{"verify-ca", SSLMODE_VERIFY_CA},
	{"verify-full", SSLMODE_VERIFY_FULL},
	{NULL, 0},
};
#define sslmode_words conf_sslmode_words

const struct field_word conf_tls_negotiation_words[] = {
	{"postgres", TLS_NEGOTIATION_POSTGRES},
	{"direct", TLS_NEGOTIATION_DIRECT},
	{NULL, 0},
};
#define tls_negotiation_words conf_tls_negotiation_words

const char *pool_mode_name(enum pool_mode m)
{
	return field_word(conf_pool_mode_words, (int)m);
}

const char *auth_type_name(enum auth_type t)
{
	return field_word(auth_type_words, (int)t);
}

const char *sslmode_name(enum sslmode m)
{
	return field_word(conf_sslmode_words, (int)m);
}

/* The checks refuse what would be unsafe to ignore: a setting that asks for more protection than
 * there is must not pass with a warning. */

const char *conf_auth_type_missing(enum auth_type t)
{
#ifndef HAVE_PAM
	if (t == AUTH_PAM)
		return "this program was built without PAM";
#endif
#ifndef HAVE_LDAP
	if (t == AUTH_LDAP)
		return "this program was built without LDAP";
#endif
	(void)t;
	return NULL;
}

static const char *check_auth_type(const union field_value *v)
{
	return conf_auth_type_missing((enum auth_type)v->i);
}

const char *conf_check_auth_dbname(const union field_value *v)
{
	return strcmp(v->str, "pgbouncer") == 0 || strcmp(v->str, "qbouncer") == 0
		       ? "cannot use the reserved \"pgbouncer\" database as an auth_dbname"
		       : NULL;
}
#define check_auth_dbname conf_check_auth_dbname

static const char *check_dheparams(const union field_value *v)
{
	return strcmp(v->str, "auto") == 0 || strcmp(v->str, "none") == 0 ||
			       strcmp(v->str, "legacy") == 0
		       ? NULL
		       : "use auto or none";
}

static const char *check_syslog_facility(const union field_value *v)
{
	return log_facility_known(v->str) ? NULL : "there is no such facility";
}

/* clang-format off */
#define PARAM_STR(n, def, min, max, flags, check, help)                                            \
	{#n, FIELD_STR, flags, offsetof(struct params, n), min, max, def, NULL, 0, check, help},
#define PARAM_INT(n, def, min, max, flags, check, help)                                            \
	{#n, FIELD_INT, flags, offsetof(struct params, n), min, max, def, NULL, 0, check, help},
#define PARAM_BOOL(n, def, flags, check, help)                                                     \
	{#n, FIELD_BOOL, flags, offsetof(struct params, n), 0, 1, def, NULL, 0, check, help},
#define PARAM_TIME(n, def, min, max, flags, check, help)                                           \
	{#n, FIELD_TIME, flags, offsetof(struct params, n), (int64_t)(min), max, def, NULL, 0, check, help},
#define PARAM_SIZE(n, def, min, max, flags, check, help)                                           \
	{#n, FIELD_SIZE, flags, offsetof(struct params, n), min, max, def, NULL, 0, check, help},
#define PARAM_ENUM(n, type, def, flags, check, help)                                               \
	{#n, FIELD_ENUM, flags, offsetof(struct params, n), 0, 0, def, type##_words, 0, check, help},
/* clang-format on */

static const struct field params_fields[] = {
#include "conf/params.h"
};

const struct field_table conf_params = {params_fields, ARRAY_LEN(params_fields)};

bool params_init(struct params *p)
{
	struct field_error err;

	memset(p, 0, sizeof(*p));
	for (size_t i = 0; i < ARRAY_LEN(params_fields); i++) {
		if (!field_set(&params_fields[i], p, params_fields[i].def, &err))
			return false;
	}
	return true;
}

void params_clear(struct params *p)
{
	for (size_t i = 0; i < ARRAY_LEN(params_fields); i++)
		field_clear(&params_fields[i], p);
}

const char *params_conflict(const struct params *p)
{
	if (p->queue_wait_default > p->queue_wait_max)
		return "\"queue_wait_default\" is longer than \"queue_wait_max\"";
	if (p->auth_type == AUTH_HBA && !*p->auth_hba_file)
		return "\"auth_type\" is hba, but \"auth_hba_file\" is not set";
	return NULL;
}

static void report_unknown(struct conf_report *r, const struct ini_pos *at, const char *key)
{
	const struct field *near = field_nearest(params_fields, ARRAY_LEN(params_fields), key);

	if (near)
		report_error(r, at, "unknown parameter \"%.100s\"; did you mean \"%s\"?", key,
			near->name);
	else
		report_error(r, at, "unknown parameter \"%.100s\"", key);
}

void section_params(
	struct conf_report *r, const struct ini_pos *at, const char *key, char *value, void *arg)
{
	const struct field *f = field_find(params_fields, ARRAY_LEN(params_fields), key);
	struct conf *c = arg;
	struct field_error err;

	if (!f) {
		report_unknown(r, at, key);
	} else if (f->flags & PARAM_COMPUTED) {
		report_warning(r, at, "\"%s\" cannot be set, it is ignored", key);
	} else if (!field_set(f, &c->p, value, &err)) {
		report_error(r, at, "%s", err.text);
	} else if ((f->flags & PARAM_SECRET) && *value) {
		report_secret(r, at, f->name);
	}
}

void conf_each_param(const struct params *p,
	void (*fn)(const char *name, const char *value, const char *def, bool reloadable,
		const char *help, void *arg),
	void *arg)
{
	char value[FIELD_TEXT], def[FIELD_TEXT];

	for (size_t i = 0; i < ARRAY_LEN(params_fields); i++) {
		const struct field *f = &params_fields[i];
		union field_value v = field_peek(f, p);

		fn(f->name, field_text(f, &v, value), field_default(f, def),
			!(f->flags & (PARAM_RESTART | PARAM_COMPUTED)), f->help, arg);
	}
}
