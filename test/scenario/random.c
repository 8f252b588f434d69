/*
 * Random dialogues: see random.h. Every statement that can hang is resumed in the end, every wait
 * is over in the end, so that what a client is owed can be counted.
 */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors.h"
#include "program.h"
#include "script.h"
#include "store.h"

#define CLIENTS 4
#define STEPS   60

static struct {
	uint32_t state;
	bool trace;
	int owed[CLIENTS + 1];   /* ReadyForQuery that the client has asked for */
	bool batch[CLIENTS + 1]; /* messages were sent since the last Sync */
} rnd;

static unsigned pick(unsigned n)
{
	rnd.state ^= rnd.state << 13;
	rnd.state ^= rnd.state >> 17;
	rnd.state ^= rnd.state << 5;
	return rnd.state % n;
}

#define PICK(list) ((list)[pick((unsigned)ARRAY_LEN(list))])

static const char *const queries[] = {"SELECT 1", "SELECT slow", "BEGIN", "BEGIN", "COMMIT",
	"COMMIT", "ROLLBACK", "UPDATE t", "SELECT broken", "", "SAVEPOINT s", "ROLLBACK TO s",
	"DISCARD ALL", "DEALLOCATE a", "SET x = 1", "SET x TO DEFAULT", "SELECT 1; RESET x",
	"SELECT set_config('x', '2', false)", "BEGIN; UPDATE t", "UPDATE t; COMMIT",
	"SELECT 1; SELECT broken", "QUEUE PUSH mail '1'", "QUEUE PUSH mail '1', '2', '3'",
	"QUEUE PUSH mail 'bad'", "QUEUE PUSH sms '1'", "QUEUE TAKE mail",
	"QUEUE TAKE mail WAIT '5s'", "QUEUE TAKE mail, sms LIMIT 3 WAIT '2s'",
	"QUEUE POP sms WAIT '1s'", "QUEUE TAKE mail LIMIT 2", "QUEUE DONE 1", "QUEUE DONE 2",
	"QUEUE DONE 3, 4", "QUEUE RELEASE 1", "QUEUE FAIL 2", "QUEUE DONE '9-9-9'", "QUEUE TAKE",
	"QUEUE HELP", "SELECT 1; QUEUE PUSH mail '1'; SELECT 2", "UPDATE t; QUEUE TAKE mail",
	"QUEUE PUSH mail '7'; SELECT broken", "QUEUE EXTEND 1", "QUEUE PUSH mail SELECT x",
	"QUEUE PUSH mail SELECT broken", "UPDATE t; QUEUE PUSH mail SELECT x; SELECT 1",
	"QUEUE DONE 1 THEN TAKE", "QUEUE DONE 2 THEN TAKE WAIT '2s'",
	"QUEUE DONE 1, 3 THEN TAKE sms, mail LIMIT 2 WAIT '1s'", "QUEUE DONE 2 THEN PUSH sms '5'",
	"QUEUE DONE '9-9-9' THEN TAKE mail"};

static const char *const parts[] = {"Parse \"\" \"SELECT 1\"", "Parse \"\" \"SELECT slow\"",
	"Parse \"\" \"SELECT broken\"", "Parse a \"SELECT $1\"", "Parse b \"UPDATE t\"",
	"Parse \"\" \"BEGIN\"", "Parse \"\" \"COMMIT\"", "Parse \"\" \"ROLLBACK\"",
	"Parse c \"QUEUE PUSH mail $1\"", "Parse d \"QUEUE TAKE mail WAIT '1s'\"",
	"Parse \"\" \"QUEUE TAKE mail LIMIT 3\"", "Parse \"\" \"QUEUE PUSH mail '1'\"",
	"Parse \"\" \"QUEUE DONE 1\"", "Parse \"\" \"QUEUE DONE 1 THEN TAKE WAIT '1s'\"",
	"Parse \"\" \"QUEUE DONE 2 THEN PUSH mail '6'\"", "Parse e \"QUEUE PUSH mail SELECT $1\"",
	"Parse \"\" \"QUEUE PUSH mail SELECT broken\"", "Describe S e", "Bind \"\" e \"5\"",
	"Describe S \"\"", "Parse \"\" \"RESET x\"", "Parse \"\" \"\"", "Bind \"\" \"\"",
	"Bind \"\" \"\"", "Bind \"\" a \"5\"", "Bind \"\" b", "Bind \"\" c \"9\"", "Bind \"\" d",
	"Bind p d", "Bind p \"\"", "Describe S a", "Describe P \"\"", "Describe S d",
	"Execute \"\" 0", "Execute \"\" 0", "Execute \"\" 0", "Execute \"\" 1", "Execute p 1",
	"Close S a", "Close P p", "Close S d", "Flush"};

/* --- steps --- */

static const char *run(const char *text)
{
	struct step st = {0};
	const char *trouble;

	if (rnd.trace)
		fprintf(stderr, "  %s\n", text);
	st.text = strdup(text);
	trouble = step_run(&st, true);
	free(st.text);
	return trouble;
}

static const char *client_query(int id)
{
	char text[300];

	rnd.owed[id]++;
	(void)snprintf(text, sizeof(text), "client %d > Query \"%s\"", id, PICK(queries));
	/* A Query in the middle of a batch ends what was skipped as well, but answers once. */
	return run(text);
}

static const char *client_batch(int id)
{
	char text[1000];
	int n = (int)pick(7) + 1;
	int at = snprintf(text, sizeof(text), "client %d >", id);

	for (; n > 0; n--)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %s /", PICK(parts));
	rnd.batch[id] = true;
	if (pick(8) > 0) {
		(void)snprintf(text + at, sizeof(text) - (size_t)at, " Sync");
		rnd.owed[id]++;
		rnd.batch[id] = false;
	} else {
		/* or the batch goes on with a packet to come */
		(void)snprintf(text + at, sizeof(text) - (size_t)at, " %s",
			pick(2) ? "Flush" : PICK(parts));
	}
	return run(text);
}

static const char *client_other(int id, const char *what)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "client %d %s", id, what);
	return run(text);
}

static const char *client_step(int id)
{
	struct actor *a = actor_find(true, id);
	unsigned n = pick(100);

	if (!a || actor_gone(a)) {
		rnd.owed[id] = 1;
		rnd.batch[id] = false;
		return client_other(id, pick(2) ? "login" : "login bob");
	}
	if (n < 4)
		return client_other(id, "close");
	if (n < 8)
		return client_other(id, "reset");
	if (n < 10)
		return client_other(id, "> Terminate");
	if (n < 18)
		return client_other(id, "cancel");
	if (n < 21)
		return client_other(id, "reads 50");
	if (n < 30)
		return client_other(id, "reads");
	return n < 65 && !rnd.batch[id] ? client_query(id) : client_batch(id);
}

/* Who waits for a resume gets it. */
static const char *resume_some(bool all)
{
	struct actor *a;
	const char *trouble = NULL;

	for (a = actors_first(); a && !trouble; a = a->next)
		if (!a->client && a->hung && (all || pick(2))) {
			actor_resume(a);
			trouble = script_settle();
		}
	return trouble;
}

static const char *server_gone(void)
{
	struct actor *a;

	for (a = actors_first(); a; a = a->next)
		if (!a->client && a->id > 0 && !actor_gone(a) && pick(4) == 0) {
			actor_bye(a, pick(2));
			return script_settle();
		}
	return NULL;
}

static const char *other_step(void)
{
	static const char *const texts[] = {"on server once > Execute ~\"queue._take\" : later",
		"on server once > Execute ~\"queue._push\" : later",
		"on server once > Execute ~\"queue._give_back\" : later",
		"on server once > Query ~\"pg_settings\" : later", "on server once > Sync : later",
		"on server once > Query ~\"slow\" : later", "job mail \"x\"", "job sms \"y\"",
		"job mail \"z\" in +2s", "command notify mail", "command notify sms", "time +100ms",
		"time +1s", "time +3s", "command pause app", "command resume app",
		"command resume app", "command reconnect app",
		"server refuse \"Connection refused\"", "server accept", "server accept",
		"command system down", "command system up"};

	switch (pick(8)) {
	case 0:
		return server_gone();
	case 1:
	case 2:
	case 3:
		return resume_some(false);
	default:
		return run(PICK(texts));
	}
}

/* --- the end --- */

static const char *everything_on(void)
{
	static const char *const texts[] = {
		"server accept", "command resume app", "command system up"};
	const char *trouble = NULL;
	size_t i;
	int id;

	for (i = 0; i < ARRAY_LEN(texts) && !trouble; i++)
		trouble = run(texts[i]);
	for (id = 1; id <= CLIENTS && !trouble; id++)
		trouble = client_other(id, "reads");
	return trouble;
}

static const char *come_to_an_end(void)
{
	const char *trouble = everything_on();
	int i;

	/* What was held back may be held again by a rule that was not used yet. */
	for (i = 0; i < 40 && !trouble; i++) {
		trouble = resume_some(true);
		if (!trouble)
			trouble = run("time +1s");
	}
	return trouble;
}

/* Batches and transactions are closed: they may hold a server that others wait for. */
static const char *finish_sessions(void)
{
	const char *trouble = NULL;
	struct actor *a;
	int id;

	for (id = 1; id <= CLIENTS && !trouble; id++) {
		a = actor_find(true, id);
		if (!a || actor_gone(a))
			continue;
		rnd.owed[id] += rnd.batch[id] ? 2 : 1;
		trouble = client_other(
			id, rnd.batch[id] ? "> Sync / Query ROLLBACK" : "> Query ROLLBACK");
	}
	return trouble ? trouble : come_to_an_end();
}

static void dump(const struct actor *a)
{
	const struct msg *m;
	char text[300];

	for (m = a->inbox; m; m = m->next) {
		words_print(&m->w, text, sizeof(text));
		fprintf(stderr, "    got %s\n", text);
	}
}

static const char *count_answers(void)
{
	static char text[200];
	int id;

	for (id = 1; id <= CLIENTS; id++) {
		struct actor *a = actor_find(true, id);
		const struct msg *m;
		int got = 0;

		if (!a || actor_gone(a))
			continue;
		for (m = a->inbox; m; m = m->next)
			got += words_name_is(&m->w, "ReadyForQuery");
		if (got == rnd.owed[id])
			continue;
		(void)snprintf(text, sizeof(text),
			"client %d: %d ReadyForQuery, expected %d (parked %d, waiting %d)", id, got,
			rnd.owed[id], program_count(COUNT_PARKED), program_count(COUNT_WAITING));
		if (rnd.trace)
			dump(a);
		return text;
	}
	return NULL;
}

const char *random_play(unsigned seed, bool trace)
{
	static const char *const rules[] = {"on server once > Query ~\"slow\" : later",
		"on server once > Execute ~\"slow\" : later",
		"on server > Query ~\"broken\" : ErrorResponse 22012 \"no\"",
		"on server > Execute ~\"broken\" : ErrorResponse 22012 \"no\""};
	const char *trouble = NULL;
	size_t i;
	int n;

	memset(&rnd, 0, sizeof(rnd));
	rnd.state = seed * 2654435761u + 1;
	rnd.trace = trace;
	for (i = 0; i < ARRAY_LEN(rules); i++)
		(void)run(rules[i]);
	for (n = 0; n < STEPS && !trouble; n++)
		trouble = pick(4) ? client_step((int)pick(CLIENTS) + 1) : other_step();
	if (!trouble)
		trouble = come_to_an_end();
	if (!trouble)
		trouble = finish_sessions();
	if (!trouble)
		trouble = count_answers();
	return trouble ? trouble : script_finish(true, 0);
}
