/*
 * Settings that follow the client from server to server. The server reports a change of these by
 * ParameterStatus, so both sides of a link are known exactly. Settings that a client gave at
 * start-up and that no server reports (`extra`) are put in force and reset by name.
 */
#include <ctype.h>
#include <string.h>

#include "pool/rooms.h"
#include "pool/settings.h"
#include "wire/sqltext.h"

static const char *const var_names[VAR_COUNT] = {
	[VAR_CLIENT_ENCODING] = "client_encoding",
	[VAR_DATESTYLE] = "DateStyle",
	[VAR_TIMEZONE] = "TimeZone",
	[VAR_INTERVALSTYLE] = "IntervalStyle",
	[VAR_STANDARD_STRINGS] = "standard_conforming_strings",
	[VAR_APPLICATION_NAME] = "application_name",
};

int var_find(const char *name)
{
	for (int i = 0; i < VAR_COUNT; i++)
		if (util_strcasecmp(name, var_names[i]) == 0)
			return i;
	return -1;
}

const char *var_name(enum var_id id)
{
	return var_names[id];
}

/* Without memory the old value stays; the next link then sets it once more. */
void vars_set(struct vars *v, enum var_id id, const char *value)
{
	struct istr *i = istr_get(value, strlen(value));

	if (i == NULL)
		return;
	istr_drop(&v->v[id]);
	v->v[id] = i;
}

void vars_copy_missing(struct vars *dst, const struct vars *src)
{
	for (int i = 0; i < VAR_COUNT; i++)
		if (dst->v[i] == NULL)
			dst->v[i] = istr_ref(src->v[i]);
}

void vars_clear(struct vars *v)
{
	for (int i = 0; i < VAR_COUNT; i++)
		istr_drop(&v->v[i]);
}

/* --- canonical forms --- */

/* Encodings by the names Postgres reports; matched without case and punctuation. */
static const char *const encodings[] = {"UTF8", "SQL_ASCII", "LATIN1", "LATIN2", "LATIN3", "LATIN4",
	"LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9", "LATIN10", "WIN1250", "WIN1251",
	"WIN1252", "WIN1253", "WIN1254", "WIN1255", "WIN1256", "WIN1257", "WIN1258", "WIN866",
	"WIN874", "KOI8R", "KOI8U", "ISO_8859_5", "ISO_8859_6", "ISO_8859_7", "ISO_8859_8",
	"EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "SJIS", "BIG5", "GBK", "UHC",
	"GB18030", "JOHAB", "SHIFT_JIS_2004", "MULE_INTERNAL"};

static const struct {
	const char *alias, *name;
} encoding_aliases[] = {{"unicode", "UTF8"}, {"mskanji", "SJIS"}, {"shiftjis", "SJIS"},
	{"win932", "SJIS"}, {"windows932", "SJIS"}, {"win936", "GBK"}, {"windows936", "GBK"},
	{"win949", "UHC"}, {"windows949", "UHC"}, {"win950", "BIG5"}, {"windows950", "BIG5"},
	{"iso88591", "LATIN1"}, {"iso88592", "LATIN2"}, {"iso88593", "LATIN3"},
	{"iso88594", "LATIN4"}, {"iso88599", "LATIN5"}, {"iso885910", "LATIN6"},
	{"iso885913", "LATIN7"}, {"iso885914", "LATIN8"}, {"iso885915", "LATIN9"},
	{"iso885916", "LATIN10"}, {"koi8", "KOI8R"}, {"windows1250", "WIN1250"},
	{"windows1251", "WIN1251"}, {"win", "WIN1251"}, {"windows1252", "WIN1252"},
	{"windows1253", "WIN1253"}, {"windows1254", "WIN1254"}, {"windows1255", "WIN1255"},
	{"windows1256", "WIN1256"}, {"windows1257", "WIN1257"}, {"windows1258", "WIN1258"},
	{"abc", "WIN1258"}, {"tcvn", "WIN1258"}, {"tcvn5712", "WIN1258"}, {"vscii", "WIN1258"},
	{"alt", "WIN866"}, {"windows866", "WIN866"}, {"windows874", "WIN874"}};

static void squeeze(char *dst, size_t size, const char *src)
{
	size_t n = 0;

	for (; *src != '\0' && n + 1 < size; src++)
		if (isalnum((unsigned char)*src))
			dst[n++] = util_lower(*src);
	dst[n] = '\0';
}

static const char *encoding_canonical(const char *value)
{
	char want[32], have[32];

	squeeze(want, sizeof(want), value);
	for (size_t i = 0; i < ARRAY_LEN(encoding_aliases); i++)
		if (strcmp(want, encoding_aliases[i].alias) == 0)
			return encoding_aliases[i].name;
	for (size_t i = 0; i < ARRAY_LEN(encodings); i++) {
		squeeze(have, sizeof(have), encodings[i]);
		if (strcmp(want, have) == 0)
			return encodings[i];
	}
	return NULL;
}

/* "ISO" alone keeps the server's order of day and month: "ISO, MDY". */
static void datestyle_canonical(struct vars *v, const char *welcome)
{
	static const char *const styles[] = {"ISO", "SQL", "Postgres", "German"};
	const char *order = strchr(welcome, ',');
	char text[64];

	for (size_t i = 0; i < ARRAY_LEN(styles) && order != NULL; i++)
		if (util_strcasecmp(istr_text(v->v[VAR_DATESTYLE]), styles[i]) == 0) {
			util_strlcpy(text, styles[i], sizeof(text));
			util_strlcpy(text + strlen(text), order, sizeof(text) - strlen(text));
			vars_set(v, VAR_DATESTYLE, text);
			return;
		}
}

static void boolean_canonical(struct vars *v, enum var_id id)
{
	static const char *const on[] = {"on", "true", "yes", "1"}, *const off[] = {"off", "false",
									    "no", "0"};

	for (size_t i = 0; i < ARRAY_LEN(on); i++) {
		if (util_strcasecmp(istr_text(v->v[id]), on[i]) == 0)
			vars_set(v, id, "on");
		else if (util_strcasecmp(istr_text(v->v[id]), off[i]) == 0)
			vars_set(v, id, "off");
	}
}

void vars_canonical(struct vars *v, const struct vars *welcome)
{
	const char *name;

	/* Postgres leaves this one as it is, for the sake of old drivers */
	if (v->v[VAR_CLIENT_ENCODING] != NULL &&
		strcmp(istr_text(v->v[VAR_CLIENT_ENCODING]), "UNICODE") != 0) {
		name = encoding_canonical(istr_text(v->v[VAR_CLIENT_ENCODING]));
		if (name != NULL)
			vars_set(v, VAR_CLIENT_ENCODING, name);
	}
	if (v->v[VAR_DATESTYLE] != NULL)
		datestyle_canonical(v, istr_text(welcome->v[VAR_DATESTYLE]));
	if (v->v[VAR_STANDARD_STRINGS] != NULL)
		boolean_canonical(v, VAR_STANDARD_STRINGS);
	if (v->v[VAR_INTERVALSTYLE] != NULL) {
		char text[32];
		size_t n = util_strlcpy(text, istr_text(v->v[VAR_INTERVALSTYLE]), sizeof(text));

		for (size_t i = 0; i < n && i < sizeof(text); i++)
			text[i] = util_lower(text[i]);
		vars_set(v, VAR_INTERVALSTYLE, text);
	}
}

/* --- the way from one state to another --- */

bool vars_diff_sql(const struct vars *server, const struct vars *client, struct istr *server_extra,
	struct istr *client_extra, bool stale, struct buf *sql)
{
	bool any = false;

	if (server_extra != client_extra || stale) {
		settings_diff_sql(server_extra, client_extra, stale, sql);
		any = sql->len > 0 || sql->failed;
	}
	for (int i = 0; i < VAR_COUNT; i++) {
		if (client->v[i] == NULL || client->v[i] == server->v[i])
			continue;
		settings_put_set(sql, var_names[i], istr_text(client->v[i]));
		any = true;
	}
	return any;
}
