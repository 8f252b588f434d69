/*
 * Workers of a dialogue (workers.h). Each event becomes words: job TOKEN PAYLOAD, lost TOKEN, ended, failed SQLSTATE.
 */
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/queue/queue_call.h"
#include "../../src/queue/worker.h"
#include "proto.h"
#include "script.h"

#define MAX_WORKERS 4
#define MAX_EVENTS  50

static struct one {
	struct worker *worker;
	bool busy;
	struct words events[MAX_EVENTS];
	int n, seen;
} workers[MAX_WORKERS];

/* --- what it hears --- */

static struct words *hear(struct one *o, const char *name)
{
	struct words *w;

	if (o->n == MAX_EVENTS) {
		fprintf(stderr, "a worker hears too much\n");
		abort();
	}
	w = &o->events[o->n++];
	words_add(w, 'b', name, strlen(name));
	return w;
}

static void job(void *arg, const struct wire_col *cols)
{
	const struct wire_col *token = &cols[TAKEN_token], *payload = &cols[TAKEN_payload];
	struct words *w = hear(arg, "job");

	words_add(w, 'q', token->data, (size_t)token->len);
	words_add(w, 'q', payload->data, (size_t)payload->len);
}

static void lost(void *arg, const char *token)
{
	words_add(hear(arg, "lost"), 'q', token, strlen(token));
}

static void ended(void *arg, const struct pg_error *err)
{
	struct one *o = arg;
	struct words *w = hear(o, err ? "failed" : "ended");

	o->busy = false;
	if (err)
		words_add(w, 'b', err->sqlstate, strlen(err->sqlstate));
}

static const struct worker_ops ops = {.job = job, .lost = lost, .ended = ended};

/* --- steps --- */

static const char *begin(struct one *o, const struct words *w)
{
	const char *user = words_arg(w, 0);

	if (o->worker)
		return "it is there already";
	o->worker = worker_new("app", user[0] ? user : "alice", &ops, o);
	return NULL;
}

/* take mail [limit 2] [wait 30s] [hold 1h] */
static const char *take(struct one *o, const struct words *w)
{
	usec_t wait = 0, hold = 3600 * USEC_SEC;
	int limit = 1;

	for (int i = 1; words_arg(w, i)[0]; i += 2) {
		const char *name = words_arg(w, i), *value = words_arg(w, i + 1);
		const char *trouble = NULL;

		if (strcmp(name, "limit") == 0)
			limit = atoi(value);
		else
			trouble =
				script_read_time(value, strcmp(name, "wait") == 0 ? &wait : &hold);
		if (trouble)
			return trouble;
	}
	o->busy = worker_take(o->worker, words_arg(w, 0), QPAYLOAD_JSONB, limit, wait, hold);
	return NULL;
}

static void finish(struct one *o, const struct words *w, bool done)
{
	const char *text = words_arg(w, 1)[0] ? words_arg(w, 1) : NULL;
	struct pg_error err;

	o->busy = done ? worker_done(o->worker, words_arg(w, 0), text, &err)
		       : worker_fail(o->worker, words_arg(w, 0), text, false, &err);
	if (!o->busy)
		words_add(hear(o, "refused"), 'b', err.sqlstate, strlen(err.sqlstate));
}

static void forget(struct one *o)
{
	worker_free(&o->worker);
	for (int i = 0; i < o->n; i++)
		words_free(&o->events[i]);
	*o = (struct one){0};
}

static const char *act(struct one *o, const struct words *w, bool lenient)
{
	if (words_name_is(w, "new"))
		return begin(o, w);
	if (!o->worker)
		return lenient ? NULL : "there is no such worker";
	if (words_name_is(w, "cancel"))
		worker_cancel(o->worker);
	else if (words_name_is(w, "end"))
		forget(o);
	else if (o->busy)
		return lenient ? NULL : "it has not ended what it does";
	else if (words_name_is(w, "take"))
		return take(o, w);
	else
		finish(o, w, words_name_is(w, "done"));
	return NULL;
}

const char *worker_step(int id, const char *args, bool lenient)
{
	const char *trouble;
	struct words w = {0};

	if (id < 1 || id > MAX_WORKERS || !words_next(&args, &w))
		return "worker 1 new | take | done | fail | cancel | end";
	trouble = act(&workers[id - 1], &w, lenient);
	words_free(&w);
	return trouble;
}

void workers_end(void)
{
	for (int i = 0; i < MAX_WORKERS; i++)
		forget(&workers[i]);
}

/* --- expectations --- */

bool worker_expect(int id, const char *args, char *text, size_t size)
{
	struct one *o = &workers[id - 1];
	struct words want = {0};
	bool ok = true;

	while (ok && words_next(&args, &want)) {
		struct words *have = o->seen < o->n ? &o->events[o->seen] : NULL;

		if (words_name_is(&want, "nothing"))
			ok = have == NULL;
		else
			ok = have && words_match(&want, have) && ++o->seen > 0;
		(void)snprintf(text, size, "heard nothing");
		if (have)
			words_print(have, text, size);
		words_free(&want);
	}
	return ok;
}
