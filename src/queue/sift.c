/*
 * TAKE ... FOR with WHERE: what is asked, as texts (sql/functions/sift.sql), and which event a condition has failed at. The
 * server says what is wrong, and not with which row; so the same look is taken once more, by a statement that names each
 * event before the condition sees it: the last one that was named before the error is it.
 *
 * Must not know: who waits, and what becomes of the answer (stream.c).
 */
#include <stdio.h>
#include <string.h>

#include "wire/array.h"
#include "sift.h"

bool sift_statement(const struct sift *s, bool fails, struct where_statement *ret)
{
	static const enum call_id calls[QPAYLOAD_COUNT][2] = {
		[QPAYLOAD_JSONB] = {CALL_TAKE_FOR_WHERE, CALL_FAILS_AT},
		[QPAYLOAD_TEXT] = {CALL_TAKE_FOR_WHERE_TEXT, CALL_FAILS_AT_TEXT},
		[QPAYLOAD_BYTEA] = {CALL_TAKE_FOR_WHERE_BYTEA, CALL_FAILS_AT_BYTEA},
	};
	struct buf said = BUF_INIT;
	char limit[24];
	const char *const texts[] = {s->args->queues[0], s->name, limit, s->least, s->within,
		s->args->lease, s->args->as, s->proxy, s->seed, s->lag, s->passed};
	size_t start = array_begin(&said, OID_TEXT, true);

	ASSERT(s->args->where != NULL && s->args->n_queues == 1);
	snprintf(limit, sizeof(limit), "%d", s->args->limit);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		array_put_text(&said, texts[i]);
	array_end(&said, start, ARRAY_LEN(texts));
	return where_statement(s->args->where, calls[s->args->payload][fails], &said, ret);
}

bool sift_blames(const struct pg_error *err)
{
	/* connections, features, states, rights and syntax, resources, interventions; and our own */
	static const char *const others[] = {
		"08", "0A", "25", "3F", "40", "42", "53", "54", "55", "57", "QB"};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strncmp(err->sqlstate, others[i], 2) == 0)
			return false;
	return true;
}

void sift_error(struct pg_error *err, const char *stream, const char *event)
{
	char told[sizeof(err->detail)];

	util_strlcpy(told, err->detail, sizeof(told));
	pg_error_detail(err, "WHERE fails at event %s of stream \"%s\".%s%s", event, stream,
		told[0] != '\0' ? " " : "", told);
	pg_error_hint(err,
		"Write a condition that holds for any event (CASE WHEN ... THEN ... END), or TAKE it"
		" without WHERE. Until then nothing behind it is delivered.");
}
