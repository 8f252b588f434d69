/*
 * The steps of a dialogue. README.md in this folder has the language; one table maps the first word
 * of a step to its function.
 */
#include "script.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors.h"
#include "pooler/pooler.h"
#include "program.h"
#include "store.h"
#include "workers.h"

#define MAX_STEPS 300

static char wrong[4096];

static const char *fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static const char *fail(const char *fmt, ...)
{
	char text[sizeof(wrong)];
	va_list ap;

	/* An argument may be the last text. */
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(wrong, text, sizeof(wrong));
	return wrong;
}

/* --- the file --- */

static bool strip(const char **text, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*text, word, n) != 0 || ((*text)[n] && !isspace((unsigned char)(*text)[n])))
		return false;
	*text += n + strspn(*text + n, " \t");
	return true;
}

static void script_line(struct script *s, int line, const char *text)
{
	size_t len = strlen(text);

	if (isspace((unsigned char)text[0]) && s->count > 0) {
		struct step *st = &s->steps[s->count - 1];
		size_t have = strlen(st->text);

		st->text = realloc(st->text, have + len + 1);
		memcpy(st->text + have, text, len + 1);
	} else if (strip(&text, "config")) {
		bytes_add(&s->settings, text, strlen(text));
		bytes_add(&s->settings, "\n", 1);
	} else if (strip(&text, "database")) {
		bytes_add(&s->databases, text, strlen(text));
		bytes_add(&s->databases, "\n", 1);
	} else if (strip(&text, "leases")) {
		s->leases_stay = strcmp(text, "may stay") == 0;
	} else if (s->count < MAX_STEPS) {
		s->steps[s->count++] = (struct step){line, strdup(text)};
	}
}

void script_load(struct script *s, const char *path)
{
	FILE *f = fopen(path, "r");
	char text[4096];
	int line = 0;

	*s = (struct script){.path = strdup(path)};
	s->steps = calloc(MAX_STEPS, sizeof(*s->steps));
	if (!f || !s->steps) {
		perror(path);
		exit(2);
	}
	while (fgets(text, sizeof(text), f)) {
		text[strcspn(text, "\n")] = '\0';
		line++;
		if (text[0] != '#' && text[strspn(text, " \t")] != '\0')
			script_line(s, line, text);
	}
	fclose(f);
	bytes_add(&s->settings, "", 1);
	bytes_add(&s->databases, "", 1);
}

void script_free(struct script *s)
{
	while (s->count > 0)
		free(s->steps[--s->count].text);
	free(s->steps);
	free(s->path);
	bytes_free(&s->settings);
	bytes_free(&s->databases);
}

bool step_acts(const struct step *st)
{
	return strncmp(st->text, "expect", 6) != 0 && strncmp(st->text, "on ", 3) != 0;
}

/* --- settling --- */

static bool more_to_come; /* the next step happens in the same turn */

const char *script_settle(void)
{
	int i;

	if (more_to_come)
		return NULL;
	for (i = 0; i < 100000; i++) {
		if (!fake_settle())
			return "the program never comes to rest";
		if (!actors_pump())
			return NULL;
	}
	return "program and servers never come to rest";
}

static const char *time_trouble;

static void at_each_stop(void)
{
	const char *text = script_settle();

	if (text)
		time_trouble = text;
}

static const char *time_passes(usec_t span, usec_t late)
{
	time_trouble = NULL;
	if (!fake_time(span, late, at_each_stop))
		return "a deadline that is over comes again and again";
	return time_trouble ? time_trouble : script_settle();
}

const char *script_time(usec_t span)
{
	return time_passes(span, 0);
}

/* --- who --- */

static int take_number(const char **text)
{
	char *end;
	long n = strtol(*text, &end, 10);

	if (end == *text)
		return -1;
	*text = end + strspn(end, " \t");
	return (int)n;
}

static const char *gone(bool lenient, const char *who, int id)
{
	return lenient ? NULL : fail("%s %d is not connected", who, id);
}

static const char *settle_after(struct actor *a, const char *messages)
{
	actor_say(a, messages);
	return script_settle();
}

/* --- clients --- */

static struct msg *unseen(struct actor *a)
{
	struct msg *m = a->inbox;

	while (m && m->seen)
		m = m->next;
	return m;
}

/* Settings come at any time; they are looked at only by who asks for them. */
static struct msg *unseen_by(struct actor *a, const struct words *want)
{
	struct msg *m = unseen(a);
	bool status = want && words_name_is(want, "ParameterStatus");

	while (m && a->client && !status && words_name_is(&m->w, "ParameterStatus")) {
		m->seen = true;
		m = unseen(a);
	}
	return m;
}

static const char *accept_client(struct actor *a)
{
	static const struct conn_addr from = {false, "192.0.2.1", 40000};

	pooler_accept(a->peer->id, &from, NULL);
	return script_settle();
}

/* client 1 login [user [database [name value ...]]] */
static const char *client_login(int id, const char *args, bool lenient)
{
	struct actor *a = actor_client_new(id);
	char user[64] = "alice", database[64] = "app", text[512];
	const char *trouble = accept_client(a);
	int used = 0;
	struct msg *m;

	if (sscanf(args, "%63s %n", user, &used) == 1) {
		args += used;
		used = 0;
		if (sscanf(args, "%63s %n", database, &used) == 1)
			args += used;
	}
	(void)snprintf(text, sizeof(text), "Startup user %s database %s %s", user, database, args);
	if (!trouble)
		trouble = settle_after(a, text);
	if (trouble || lenient)
		return trouble;
	for (m = a->inbox; m; m = m->next) {
		m->seen = true;
		if (words_name_is(&m->w, "ReadyForQuery"))
			return NULL;
		if (words_name_is(&m->w, "ErrorResponse"))
			return fail("login refused: %s", words_arg(&m->w, 1));
	}
	return fail("the login of client %d does not end", id);
}

const char *script_cancel(struct actor *a)
{
	struct actor *asker = actor_client_new(0);
	char text[64];
	const char *trouble = accept_client(asker);

	(void)snprintf(text, sizeof(text), "CancelRequest %d %d", a->pid, a->key);
	return trouble ? trouble : settle_after(asker, text);
}

static const char *actor_leaves(struct actor *a, bool reset)
{
	actor_bye(a, reset);
	return script_settle();
}

static const char *client_reads(struct actor *a, const char *args)
{
	a->peer->window = *args ? strtoull(args, NULL, 10) : SIZE_MAX;
	return script_settle();
}

static const char *step_client(const char *args, bool lenient)
{
	int id = take_number(&args);
	struct actor *a = actor_find(true, id);

	if (strip(&args, "login"))
		return client_login(id, args, lenient);
	if (strip(&args, "connect")) {
		a = actor_client_new(id);
		return accept_client(a);
	}
	if (!a || actor_gone(a))
		return gone(lenient, "client", id);
	if (strip(&args, ">"))
		return settle_after(a, args);
	if (strip(&args, "close"))
		return actor_leaves(a, false);
	if (strip(&args, "reset"))
		return actor_leaves(a, true);
	if (strip(&args, "cancel"))
		return script_cancel(a);
	if (strip(&args, "stops"))
		return client_reads(a, "0");
	if (strip(&args, "reads"))
		return client_reads(a, args);
	return "unknown step";
}

/* --- servers --- */

static const char *server_one(struct actor *a, const char *args)
{
	if (strip(&args, "<"))
		return settle_after(a, args);
	if (strip(&args, "close"))
		return actor_leaves(a, false);
	if (strip(&args, "reset"))
		return actor_leaves(a, true);
	if (strip(&args, "resume")) {
		actor_resume(a);
		return script_settle();
	}
	return "unknown step";
}

static const char *step_server(const char *args, bool lenient)
{
	struct words w = {0};
	struct actor *a;
	int id;

	if (strip(&args, "refuse")) {
		(void)words_next(&args, &w);
		servers_refuse(w.first ? w.first->text : "Connection refused");
		words_free(&w);
		return NULL;
	}
	if (strip(&args, "accept")) {
		servers_refuse(NULL);
		return NULL;
	}
	if (strip(&args, "manual")) {
		servers_manual(true);
		return NULL;
	}
	id = take_number(&args);
	a = actor_find(false, id);
	return !a || actor_gone(a) ? gone(lenient, "server", id) : server_one(a, args);
}

/* on server [once] > Message : reply / reply */
static const char *step_on(const char *args, bool lenient)
{
	struct words match = {0}, *m = &match;
	const char *colon = strstr(args, " : ");
	bool once;
	char head[1024];
	const char *text = head;

	(void)lenient;
	if (!strip(&args, "server") || !colon || colon - args >= (long)sizeof(head))
		return "a rule is: on server [once] > Message : reply";
	once = strip(&args, "once");
	if (!strip(&args, ">"))
		return "a rule is: on server [once] > Message : reply";
	(void)snprintf(head, sizeof(head), "%.*s", (int)(colon - args), args);
	(void)words_next(&text, m);
	rule_add(m, colon + 3, once);
	words_free(m);
	return NULL;
}

/* --- time, commands --- */

const char *script_read_time(const char *args, usec_t *ret)
{
	static const struct {
		const char *name;
		usec_t usec;
	} units[] = {
		{"ms", USEC_MSEC}, {"s", USEC_SEC}, {"min", 60 * USEC_SEC}, {"h", 3600 * USEC_SEC}};
	char *unit;
	double n = strtod(args + (*args == '+'), &unit);
	size_t i;

	for (i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(unit, units[i].name) == 0) {
			*ret = (usec_t)(n * (double)units[i].usec);
			return NULL;
		}
	return "time is told in ms, s, min or h";
}

/* A job that did not pass through this proxy: job QUEUE PAYLOAD [in TIME] */
static const char *step_job(const char *args, bool lenient)
{
	struct words w;
	usec_t delay = 0;
	const char *trouble = NULL;

	(void)lenient;
	if (!words_next(&args, &w))
		return "job QUEUE PAYLOAD [in TIME]";
	if (strcmp(words_arg(&w, 1), "in") == 0)
		trouble = script_read_time(words_arg(&w, 2), &delay);
	if (!trouble)
		store_add(w.first->text, words_arg(&w, 0), delay);
	words_free(&w);
	return trouble;
}

static const char *step_time(const char *args, bool lenient)
{
	usec_t span;
	const char *trouble = script_read_time(args, &span);

	(void)lenient;
	return trouble ? trouble : script_time(span);
}

/* worker 1 new [user] | take ... : workers.c */
static const char *step_worker(const char *args, bool lenient)
{
	int id = take_number(&args);
	const char *trouble = worker_step(id, args, lenient);

	return trouble ? trouble : script_settle();
}

static const char *expect_worker(const char *args)
{
	static char text[1000];
	int id = take_number(&args);

	if (!strip(&args, "<"))
		return "expect worker 1 < event";
	return worker_expect(id, args, text, sizeof(text)) ? NULL : fail("worker %d: %s", id, text);
}

static const char *step_command(const char *args, bool lenient)
{
	(void)lenient;
	return program_command(args) ? script_settle() : "unknown command";
}

/* --- expectations --- */

static const char *differs(struct actor *a, const struct words *want)
{
	char text[3000], expected[800];
	size_t at = 0;
	struct msg *m;

	words_print(want, expected, sizeof(expected));
	text[0] = '\0';
	for (m = a->inbox; m && at < sizeof(text) - 1; m = m->next)
		if (!m->seen) {
			char one[700];

			words_print(&m->w, one, sizeof(one));
			at += (size_t)snprintf(text + at, sizeof(text) - at, "\n    %.600s", one);
		}
	return fail("%s %d: expected %s, not seen yet:%.3000s", a->client ? "client" : "server",
		a->id, expected, text[0] ? text : " nothing");
}

/* Clients get nothing that is not expected; what a server got may be looked at in parts. */
static bool take_message(struct actor *a, const struct words *want)
{
	struct msg *m = unseen_by(a, want);

	if (a->client) {
		if (!m || !words_match(want, &m->w))
			return false;
		m->seen = true;
		return true;
	}
	while (m && !words_match(want, &m->w))
		m = m->next;
	if (!m)
		return false;
	for (struct msg *x = a->inbox; x != m; x = x->next)
		x->seen = true;
	m->seen = true;
	return true;
}

static const char *expect_messages(struct actor *a, const char *args)
{
	struct words w;
	const char *trouble = NULL;

	if (strip(&args, "nothing"))
		return unseen_by(a, NULL) ? differs(a, &(struct words){0}) : NULL;
	while (!trouble && words_next(&args, &w)) {
		if (w.first && !take_message(a, &w))
			trouble = differs(a, &w);
		words_free(&w);
	}
	return trouble;
}

/* expect server * > Message: any server got it, and it was not looked at before. */
static const char *expect_any_server(const char *args)
{
	struct actor *a;
	struct words w;
	struct msg *m;
	char text[1000];

	if (!strip(&args, ">") || !words_next(&args, &w))
		return "expect server * > Message";
	for (a = actors_first(); a; a = a->next)
		for (m = a->client ? NULL : a->inbox; m; m = m->next)
			if (!m->seen && words_match(&w, &m->w)) {
				m->seen = true;
				words_free(&w);
				return NULL;
			}
	words_print(&w, text, sizeof(text));
	words_free(&w);
	return fail("no server got %s", text);
}

static const char *expect_actor(bool client, const char *args)
{
	struct actor *a;
	int id;

	if (!client && strip(&args, "*"))
		return expect_any_server(args);
	id = take_number(&args);
	a = actor_find(client, id);
	if (!a)
		return fail("there is no %s %d", client ? "client" : "server", id);
	if (strip(&args, "closed"))
		return a->peer->closed ? NULL : fail("it is not closed");
	if (strip(&args, "open"))
		return a->peer->closed ? fail("it is closed") : NULL;
	if (strip(&args, client ? "<" : ">"))
		return expect_messages(a, args);
	return "unknown expectation";
}

static const char *expect_number(const char *what, int have, const char *args)
{
	int want = take_number(&args);

	return have == want ? NULL : fail("%s: expected %d, there are %d", what, want, have);
}

/* expect jobs ready 1 leased 0 done 2 */
static const char *expect_jobs(const char *args)
{
	static const char *const names[] = {"ready", "later", "leased", "done"};
	const char *trouble = NULL;
	size_t i;

	while (*args && !trouble) {
		for (i = 0; i < ARRAY_LEN(names) && !strip(&args, names[i]);)
			i++;
		if (i == ARRAY_LEN(names))
			return "jobs are ready, later, leased or done";
		trouble = expect_number(names[i], store_count((enum store_state)i), args);
		(void)take_number(&args);
	}
	return trouble;
}

/* The numbers behind names[0] and the following ones, which are counted from "first" on; fewer may be said. */
static const char *expect_counts(
	const char *args, const char *const *names, enum program_count first)
{
	const char *trouble = NULL;
	size_t i;

	while (*args && !trouble) {
		for (i = 0; names[i] && !strip(&args, names[i]);)
			i++;
		if (!names[i])
			return "a name that is not counted there";
		trouble = expect_number(
			names[i], program_count((enum program_count)(first + i)), args);
		(void)take_number(&args);
	}
	return trouble;
}

/* expect counted queries 2 transactions 1 query_seconds 0 transaction_seconds 0 */
static const char *expect_counted(const char *args)
{
	static const char *const names[] = {
		"queries", "transactions", "query_seconds", "transaction_seconds", NULL};

	return expect_counts(args, names, COUNT_QUERIES);
}

/* expect runs done 1 failed 0 again 0 running 0 */
static const char *expect_runs(const char *args)
{
	static const char *const names[] = {"done", "failed", "again", "running", NULL};

	return expect_counts(args, names, COUNT_RAN);
}

static const char *expect_rest(void)
{
	char text[512];

	if (!program_at_rest(text, sizeof(text)) || fake_pending(text, sizeof(text)))
		return fail("not at rest: %s", text);
	return NULL;
}

static const char *step_expect(const char *args, bool lenient)
{
	if (lenient)
		return NULL;
	if (strip(&args, "client"))
		return expect_actor(true, args);
	if (strip(&args, "server"))
		return expect_actor(false, args);
	if (strip(&args, "worker"))
		return expect_worker(args);
	if (strip(&args, "parked"))
		return expect_number("parked", program_count(COUNT_PARKED), args);
	if (strip(&args, "waiting"))
		return expect_number("waiting", program_count(COUNT_WAITING), args);
	if (strip(&args, "servers"))
		return expect_number("servers", actors_servers_open(), args);
	if (strip(&args, "logins"))
		return expect_number("logins", actors_logins(), args);
	if (strip(&args, "kept"))
		return expect_number("kept", program_count(COUNT_KEPT), args);
	if (strip(&args, "cancels"))
		return expect_number("cancels", actors_cancels(), args);
	if (strip(&args, "leases"))
		return expect_number("leases", program_count(COUNT_LEASES), args);
	if (strip(&args, "jobs"))
		return expect_jobs(args);
	if (strip(&args, "counted"))
		return expect_counted(args);
	if (strip(&args, "runs"))
		return expect_runs(args);
	if (strip(&args, "told"))
		return strcmp(program_told(), args) == 0 ? NULL
							 : "the others were told of another queue";
	if (strip(&args, "others"))
		return strcmp(program_others(), args) == 0 ? NULL : "the other proxies are not so";
	if (strip(&args, "asleep"))
		return program_is_asleep() == (strcmp(args, "1") == 0) ? NULL : "it is otherwise";
	if (strip(&args, "at rest"))
		return expect_rest();
	return "unknown expectation";
}

/* --- the table --- */

static const struct {
	const char *word;
	const char *(*fn)(const char *args, bool lenient);
} table[] = {{"client", step_client}, {"server", step_server}, {"expect", step_expect},
	{"time", step_time}, {"on", step_on}, {"command", step_command}, {"job", step_job},
	{"worker", step_worker}};

const char *step_run(const struct step *st, bool lenient)
{
	const char *args = st->text;
	const char *trouble = "unknown step";
	size_t i;

	more_to_come = strip(&args, "first");
	for (i = 0; i < ARRAY_LEN(table); i++)
		if (strip(&args, table[i].word)) {
			trouble = table[i].fn(args, lenient);
			break;
		}
	more_to_come = false;
	return trouble;
}

/* --- the end --- */

const char *script_unexpected(void)
{
	struct actor *a;

	for (a = actors_first(); a; a = a->next)
		if (a->client && a->id > 0 && !a->peer->eof && !a->peer->reset &&
			unseen_by(a, NULL))
			return differs(a, &(struct words){0});
	return NULL;
}

const char *script_finish(bool leases_may_stay, usec_t late)
{
	const char *trouble;
	struct actor *a;

	servers_manual(false);
	servers_refuse(NULL);
	rules_clear();
	if (pooler_is_suspended() != SUSPENDED_NO && !program_command("resume"))
		return "resume is not known";
	workers_end();
	for (a = actors_first(); a; a = a->next) {
		a->peer->window = SIZE_MAX;
		if (a->client && !actor_gone(a))
			actor_bye(a, false);
		/* Nobody will say any more what it was told to wait for. */
		if (!a->client && a->hung && !actor_gone(a))
			actor_bye(a, false);
	}
	trouble = script_settle();
	if (!trouble && !leases_may_stay && !actors_terminated() && store_count(STORE_LEASED) > 0)
		trouble = fail("%d jobs are leased to nobody", store_count(STORE_LEASED));
	if (!trouble && !leases_may_stay && !actors_terminated() && store_has_consumer())
		trouble = fail("a queue belongs to a consumer that is gone");
	/* Longer than every timeout but those that keep an unused connection. Of a replay the deadlines are noticed late, as
	 * by a program that hardly runs: nearly all the work of thousands of replays was the clock. */
	if (!trouble)
		trouble = time_passes(300 * USEC_SEC, late);
	if (!trouble)
		trouble = expect_rest();
	if (!trouble && program_count(COUNT_CLIENTS) > 0)
		trouble = fail("%d clients are left over", program_count(COUNT_CLIENTS));
	if (!trouble && program_count(COUNT_LEASES) > 0)
		trouble = fail("%d leases are left over", program_count(COUNT_LEASES));
	if (!trouble && program_count(COUNT_ANSWERS) != 0)
		trouble = fail(
			"%d bytes are kept of answers to nobody", program_count(COUNT_ANSWERS));
	return trouble;
}
