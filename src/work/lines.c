/*
 * What is spoken with a command of --lines.
 */
#include "lines.h"

#include <string.h>

#include "base/json.h"

/* Of a line that is not understood so much is told. */
enum { BAD_SHOWN = 200 };

/* How a column is written: as it is, JSON or a number; or as a string. */
struct column {
	const char *name;
	bool as_is;
};

static void put_column(const PGresult *r, int at, bool as_is, struct buf *ret)
{
	if (PQgetisnull(r, 0, at))
		buf_puts(ret, "null");
	else if (as_is)
		buf_put(ret, PQgetvalue(r, 0, at), (size_t)PQgetlength(r, 0, at));
	else
		json_quote(ret, PQgetvalue(r, 0, at), (size_t)PQgetlength(r, 0, at));
}

bool lines_job(const PGresult *r, struct buf *ret)
{
	enum { JSONB_OID = 3802 }; /* in one line; other types are a string, their text */
	static const struct column columns[] = {{"token", false}, {"id", true}, {"queue", false},
		{"attempt", true}, {"key", false}, {"group", false}, {"priority", true},
		{"pushed_at", false}, {"headers", true}, {"payload", true}};
	const char *token = PQgetvalue(r, 0, PQfnumber(r, "token"));
	const char *dash = token != NULL ? strrchr(token, '-') : NULL;
	if (dash == NULL)
		return false;
	buf_puts(ret, "{\"job\": ");
	json_quote(ret, token, (size_t)(dash - token));
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		int at = PQfnumber(r, columns[i].name);
		if (at < 0)
			return false;
		bool is_payload = strcmp(columns[i].name, "payload") == 0;
		buf_printf(ret, ", \"%s\": ", columns[i].name);
		put_column(r, at, columns[i].as_is && (!is_payload || PQftype(r, at) == JSONB_OID),
			ret);
	}
	buf_puts(ret, "}\n");
	return !buf_failed(ret);
}

void answer_free(struct answer *a)
{
	buf_free(&a->text);
	buf_free(&a->delay);
	a->kind = ANSWER_NONE;
}

void answer_bad(struct answer *a, const char *why)
{
	answer_free(a);
	a->kind = ANSWER_BAD;
	buf_puts(&a->text, why);
}

static bool is_word(const struct json_member *m, const char *word)
{
	return m->len == strlen(word) && memcmp(m->value, word, m->len) == 0;
}

/* A string's text, or the JSON that it is. */
static bool text_of(const struct json_member *m, struct buf *ret)
{
	if (m->len > 0 && *m->value == '"')
		return json_string(m->value, m->len, ret);
	buf_put(ret, m->value, m->len);
	return true;
}

static bool read_kind(struct answer *a, enum answer_kind kind)
{
	if (a->kind != ANSWER_NONE)
		return false;
	a->kind = kind;
	return true;
}

/* An interval. Not a number that may be thought to be milliseconds. */
static bool read_delay(struct answer *a, const struct json_member *m)
{
	buf_reset(&a->delay);
	return json_string(m->value, m->len, &a->delay) && buf_used(&a->delay) > 0;
}

/* false: it is not what its name promises, or nobody knows the name. */
static bool read_member(
	struct answer *a, const struct json_member *m, const char *name, bool *final)
{
	if (strcmp(name, "done") == 0) {
		if (!is_word(m, "null"))
			buf_put(&a->text, m->value, m->len);
		return read_kind(a, ANSWER_DONE);
	}
	if (strcmp(name, "fail") == 0)
		return read_kind(a, ANSWER_FAIL) && text_of(m, &a->text);
	if (strcmp(name, "release") == 0)
		return read_kind(a, ANSWER_RELEASE) &&
		       (is_word(m, "null") || is_word(m, "true") || read_delay(a, m));
	if (strcmp(name, "progress") == 0) {
		buf_put(&a->text, m->value, m->len);
		return read_kind(a, ANSWER_PROGRESS);
	}
	if (strcmp(name, "retry") == 0)
		return is_word(m, "null") || read_delay(a, m);
	*final = is_word(m, "true");
	return strcmp(name, "final") == 0 && (*final || is_word(m, "false"));
}

static bool read_members(struct answer *a, const char *line, size_t len)
{
	struct json_reader reader = json_begin(line, len);
	struct json_member m = {.name = BUF_INIT};
	bool final = false, ok = true;
	enum json_next next = JSON_BAD;
	while (ok && (next = json_next(&reader, &m)) == JSON_MEMBER)
		ok = read_member(a, &m, buf_cstr(&m.name), &final);
	buf_free(&m.name);
	if (!ok || next != JSON_END || a->kind == ANSWER_NONE)
		return false;
	bool has_delay = buf_used(&a->delay) > 0;
	if ((final && (a->kind != ANSWER_FAIL || has_delay)) ||
		(has_delay && (a->kind == ANSWER_DONE || a->kind == ANSWER_PROGRESS)))
		return false;
	if (final)
		a->kind = ANSWER_FINAL;
	return true;
}

void answer_read(struct answer *a, const char *line, size_t len)
{
	answer_free(a);
	if (memchr(line, '\0', len) == NULL && read_members(a, line, len))
		return;
	struct buf why = BUF_INIT;
	buf_puts(&why, "the command answered what is no answer: ");
	json_quote(&why, line, len < BAD_SHOWN ? len : BAD_SHOWN);
	answer_bad(a, buf_cstr(&why));
	buf_free(&why);
}
