/*
 * What Postgres says of a queue's table, whose name the client has never written, in the client's
 * words. By its texts, where it says no more: of a server with messages in another language some
 * are left as they are. Must not know which way a statement takes. Entry points: refusal_rights,
 * refusal_reword.
 */
#include "qlang/refusal.h"

#include <string.h>

/* What ON DUPLICATE says, to a job that is there. */
static bool changes_jobs(const struct qvalue *v)
{
	static const char *const harmless[] = {"ignore", "error"};

	if (v == NULL)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(harmless) && v->kind != QV_PARAM; i++)
		if (v->text_len == strlen(harmless[i]) &&
			util_memcasecmp(v->text, harmless[i], v->text_len) == 0)
			return false;
	return true;
}

const char *refusal_rights(const struct qstmt *q)
{
	if (q->verb->id == QVERB_PUSH || q->verb->id == QVERB_RUN)
		return changes_jobs(qstmt_one(q, QARG_DUPLICATE)) ? "PUSH, TAKE" : "PUSH";
	if (q->verb->id == QVERB_AWAIT)
		return "AWAIT";
	return qstmt_then_pushes(q) ? "PUSH" : "TAKE";
}

/* The name as a statement needs it, of a queue. */
static const char *quoted(char *ret, size_t size, const char *name, size_t len)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	bool bare = strspn(name, plain) >= len && (name[0] < '0' || name[0] > '9');
	size_t n = 0;

	if (!bare)
		ret[n++] = '"';
	for (size_t i = 0; i < len && n + 4 <= size; i++) {
		if (name[i] == '"')
			ret[n++] = '"';
		ret[n++] = name[i];
	}
	if (!bare)
		ret[n++] = '"';
	ret[n] = '\0';
	return ret;
}

/* "permission denied for table q_mail": in most languages the name comes last. */
static bool denied(struct pg_error *err, const char *rights)
{
	char queue[QSTMT_QUEUE_MAX + 1], name[2 * QSTMT_QUEUE_MAX + 4];
	const char *table = strstr(err->message, " q_"), *archive = strstr(err->message, " a_");

	if (err->hint[0] != '\0')
		return false;
	if (table == NULL || (archive != NULL && archive < table))
		table = archive;
	if (table == NULL || memchr(err->message, '"', (size_t)(table - err->message)) != NULL ||
		strlen(table + 3) == 0 || strlen(table + 3) > QSTMT_QUEUE_MAX)
		return false;
	util_strlcpy(queue, table + 3, sizeof(queue));
	pg_error_set(err, "42501", "permission denied for queue \"%s\"", queue);
	pg_error_hint(err, "The owner of the queue can allow it: QUEUE GRANT %s ON %s TO ...;",
		rights, quoted(name, sizeof(name), queue, strlen(queue)));
	return true;
}

/* relation "queue.q_mail" does not exist: it was dropped while the statement waited for that. */
static bool gone(struct pg_error *err)
{
	static const char begin[] = "\"queue.q_";
	char name[QSTMT_QUEUE_MAX + 1], ident[2 * QSTMT_QUEUE_MAX + 4];
	const char *from = strstr(err->message, begin), *end = strrchr(err->message, '"');
	size_t len;

	if (from == NULL || end < from + sizeof(begin))
		return false;
	from += sizeof(begin) - 1;
	len = (size_t)(end - from);
	if (len > QSTMT_QUEUE_MAX)
		return false;
	memcpy(name, from, len);
	name[len] = '\0';
	pg_error_set(err, "42P01", "queue \"%s\" does not exist", name);
	pg_error_hint(err, "It has been dropped. To have it again: QUEUE CREATE %s;",
		quoted(ident, sizeof(ident), name, len));
	return true;
}

/* relation "queue.e7_0" does not exist: of a stream. */
static bool gone_stream(struct pg_error *err)
{
	const char *from = strstr(err->message, "\"queue.e");

	if (from == NULL)
		return false;
	from += strlen("\"queue.e");
	from += strspn(from, "0123456789");
	if (from[-1] == 'e' || from[0] != '_' || from[1] < '0' || from[1] > '9' || from[2] != '"')
		return false;
	pg_error_set(err, "42P01", "the stream does not exist any more");
	pg_error_hint(err, "It has been dropped just now.");
	return true;
}

/* function queue._done_7(bigint[], text[]) does not exist, or function "queue._take_7": its queue was
 * dropped behind the snapshot in which it is there still, or while it was waited for. (Those without a number are of another version of the schema.) */
static bool gone_in_snapshot(struct pg_error *err)
{
	static const char begin[] = "queue._";
	const char *from = strstr(err->message, begin), *end;

	if (from == NULL)
		return false;
	from += sizeof(begin) - 1;
	end = from + strspn(from, "abcdefghijklmnopqrstuvwxyz_0123456789");
	if ((*end != '(' && *end != '"') || end == from || end[-1] < '0' || end[-1] > '9')
		return false;
	pg_error_set(err, "40001",
		"could not serialize access: the queue has been dropped since the transaction began");
	pg_error_hint(err, "Repeat the transaction.");
	return true;
}

bool refusal_reword(struct pg_error *err, const char *rights)
{
	if (strcmp(err->sqlstate, "42501") == 0)
		return denied(err, rights);
	if (strcmp(err->sqlstate, "42P01") == 0)
		return gone(err) || gone_stream(err);
	if (strcmp(err->sqlstate, "42883") == 0)
		return gone_in_snapshot(err);
	return false;
}
