/*
 * What drivers, pools and ORMs say by themselves when they connect, check or put back a connection.
 * The answers have no effect. Must not know clients. Entry point: probe_find().
 */
#include <string.h>

#include "admin_int.h"

/* Settings that are asked for, and that may be set without an effect. value NULL: only set. */
static const struct {
	const char *name, *value;
} settings[] = {
	{"client_encoding", "UTF8"},
	{"server_encoding", "UTF8"},
	{"default_transaction_isolation", "read committed"},
	{"transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"transaction_read_only", "off"},
	{"standard_conforming_strings", "on"},
	{"datestyle", "ISO"},
	{"intervalstyle", "postgres"},
	{"timezone", "GMT"},
	{"integer_datetimes", "on"},
	{"is_superuser", "on"},
	{"search_path", "pg_catalog"},
	{"extra_float_digits", "1"},
	{"bytea_output", "hex"},
	{"client_min_messages", "notice"},
	{"statement_timeout", "0"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"application_name", NULL},
	{"jit", NULL},
	{"names", NULL},
};

/* Whole texts, as words. */
static const struct {
	const char *words, *column;
	uint32_t oid;
	const char *value, *tag;
} texts[] = {
	{"select 1", "?column?", OID_INT4, "1", "SELECT 1"},
	{"select version ( )", "version", OID_TEXT, NULL, "SELECT 1"},
	{"select pg_catalog . version ( )", "version", OID_TEXT, NULL, "SELECT 1"},
	{"select current_schema ( )", "current_schema", OID_TEXT, "pg_catalog", "SELECT 1"},
	{"select pg_is_in_recovery ( )", "pg_is_in_recovery", OID_BOOL, "f", "SELECT 1"},
	{"select pg_catalog . pg_is_in_recovery ( )", "pg_is_in_recovery", OID_BOOL, "f",
		"SELECT 1"},
	{"show transaction isolation level", "transaction_isolation", OID_TEXT, "read committed",
		"SHOW"},
	{"reset all", NULL, 0, NULL, "RESET"},
	{"discard all", NULL, 0, NULL, "DISCARD ALL"},
	{"deallocate all", NULL, 0, NULL, "DEALLOCATE ALL"},
	{"close all", NULL, 0, NULL, "CLOSE CURSOR ALL"},
	{"unlisten *", NULL, 0, NULL, "UNLISTEN"},
};

/* Texts that begin so are taken with whatever follows. */
static const struct {
	const char *words, *tag;
} prefixes[] = {
	{"set session characteristics as transaction ", "SET"},
	{"set transaction ", "SET"},
	{"set time zone ", "SET"},
	{"set local time zone ", "SET"},
	{"set session time zone ", "SET"},
	{"begin", "BEGIN"},
	{"start transaction", "BEGIN"},
};

static const char *behind(const char *words, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(words, prefix, n) == 0 ? words + n : NULL;
}

/* Index in settings of the first word, or -1. */
static int setting_find(const char *words)
{
	size_t len = strcspn(words, " ");

	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		if (strlen(settings[i].name) == len && memcmp(settings[i].name, words, len) == 0)
			return (int)i;
	return -1;
}

static bool show_setting(const char *words, struct probe *ret)
{
	const char *name = behind(words, "show ");
	int i = name != NULL && strchr(name, ' ') == NULL ? setting_find(name) : -1;

	if (i < 0 || settings[i].value == NULL)
		return false;
	*ret = (struct probe){{settings[i].name, OID_TEXT}, settings[i].value, "SHOW"};
	return true;
}

static bool set_setting(const char *words, struct probe *ret)
{
	const char *rest = behind(words, "set "), *inner;

	if (rest == NULL) {
		rest = behind(words, "reset ");
		*ret = (struct probe){.tag = "RESET"};
		return rest != NULL && setting_find(rest) >= 0;
	}
	inner = behind(rest, "session ");
	if (inner == NULL)
		inner = behind(rest, "local ");
	if (inner != NULL)
		rest = inner;
	*ret = (struct probe){.tag = "SET"};
	return setting_find(rest) >= 0 && strchr(rest, ' ') != NULL;
}

bool probe_find(const char *words, struct probe *ret)
{
	static const char version[] = "PostgreSQL 15.0 (console of qbouncer)";

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (strcmp(texts[i].words, words) == 0) {
			*ret = (struct probe){{texts[i].column, texts[i].oid},
				texts[i].value != NULL ? texts[i].value : version, texts[i].tag};
			return true;
		}
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
		if (behind(words, prefixes[i].words) != NULL) {
			*ret = (struct probe){.tag = prefixes[i].tag};
			return true;
		}
	return show_setting(words, ret) || set_setting(words, ret);
}
