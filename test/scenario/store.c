/*
 * A model of the queue's tables: see store.h. A change is made at once and remembered with its
 * server; what the server's transaction does in the end confirms it or takes it back.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qlang/rows.h"

#define LEASE      (300 * USEC_SEC)
#define MAX_VALUES 64
#define NUMBERED   "mail"   /* queue 1, when a dialogue says that its number is known */
#define SINGLE     "ledger" /* queue 9, which has a single consumer */

enum change { CHANGE_NONE, CHANGE_PUSHED, CHANGE_TAKEN, CHANGE_DONE, CHANGE_BACK };

struct job {
	struct job *next;
	int id, attempt;
	char queue[48], token[40];
	char *payload;
	bool leased, done, popped;
	usec_t ready_at, lease_until;
	enum change change;
	const struct actor *changed_by; /* in a transaction that has not ended */
};

/* Of SINGLE: who it is, and who it was before the transaction that has changed it and not ended. */
struct consumer {
	char token[24], proxy[16];
};

static struct {
	struct job *jobs;
	int last_id;
	struct consumer consumer, was;
	const struct actor *followed_by;
} store;

/* The values of a call, in the order of its text. */
struct call {
	const char *v[MAX_VALUES];
	bool in_array[MAX_VALUES];
	int n;
	bool no_rows;
	char *text;        /* what they point into */
	char consumer[64]; /* who asks: his token, the number of the proxy, and that of the queue */
};

void store_init(void)
{
	memset(&store, 0, sizeof(store));
}

void store_free(void)
{
	struct job *j;

	while ((j = store.jobs)) {
		store.jobs = j->next;
		free(j->payload);
		free(j);
	}
}

static struct job *job_new(const char *queue, const char *payload, usec_t delay)
{
	struct job *j = calloc(1, sizeof(*j)), **at = &store.jobs;

	if (!j)
		abort();
	j->id = ++store.last_id;
	j->ready_at = loop_now() + delay;
	j->payload = strdup(payload);
	(void)snprintf(j->queue, sizeof(j->queue), "%s", queue);
	while (*at)
		at = &(*at)->next;
	*at = j;
	return j;
}

void store_add(const char *queue, const char *payload, usec_t delay)
{
	(void)job_new(queue, payload, delay);
}

/* A change in another server's transaction hides a job that is new, and locks the others. */
static bool is_free(const struct job *j)
{
	return !j->done && !j->changed_by && (!j->leased || j->lease_until <= loop_now());
}

static enum store_state job_state(const struct job *j)
{
	if (j->done && j->change != CHANGE_DONE)
		return STORE_DONE;
	if (j->leased && j->lease_until > loop_now())
		return STORE_LEASED;
	return j->ready_at > loop_now() ? STORE_LATER : STORE_READY;
}

int store_count(enum store_state st)
{
	const struct job *j;
	int n = 0;

	for (j = store.jobs; j; j = j->next)
		n += job_state(j) == st && j->change != CHANGE_PUSHED;
	return n;
}

bool store_has_consumer(void)
{
	return *store.consumer.token != '\0';
}

static void job_undo(struct job *j)
{
	switch (j->change) {
	case CHANGE_PUSHED:
		j->done = true; /* it never was; nobody looks at the payload again */
		break;
	case CHANGE_TAKEN:
		j->leased = j->done = false;
		break;
	case CHANGE_DONE:
		j->done = false;
		break;
	case CHANGE_BACK:
		j->leased = true;
		break;
	case CHANGE_NONE:
		break;
	}
}

void store_end(struct actor *a, bool commit)
{
	struct job *j;

	if (store.followed_by == a) {
		store.followed_by = NULL;
		if (!commit)
			store.consumer = store.was;
	}
	for (j = store.jobs; j; j = j->next) {
		if (j->changed_by != a)
			continue;
		if (!commit)
			job_undo(j);
		j->changed_by = NULL;
		j->change = CHANGE_NONE;
	}
}

static void job_change(struct job *j, struct actor *a, enum change change)
{
	j->change = change;
	j->changed_by = a;
}

/* --- reading calls --- */

static void call_add(struct call *c, const char *p, size_t len, bool in_array, char **to)
{
	if (c->n == MAX_VALUES)
		return;
	c->v[c->n] = *to;
	c->in_array[c->n++] = in_array;
	memcpy(*to, p, len);
	*to += len;
	*(*to)++ = '\0';
}

static uint32_t be32(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;

	return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* text[] in binary: dimensions, flag, type, count, bound; then length and bytes of each. */
static void call_add_array(struct call *c, const struct word *x, char **to)
{
	const char *p = x->text + 20, *end = x->text + x->len;

	while (end - p >= 4) {
		uint32_t len = be32(p);

		p += 4;
		if (len == UINT32_MAX) {
			call_add(c, "", 0, true, to);
			continue;
		}
		if (len > (size_t)(end - p))
			return;
		call_add(c, p, len, true, to);
		p += len;
	}
}

static void call_add_param(
	struct call *c, const struct words *values, int n, bool in_array, char **to)
{
	const struct word *x = values ? values->first : NULL;

	while (x && --n > 0)
		x = x->next;
	if (!x || (x->kind == 'b' && strcmp(x->text, "NULL") == 0))
		return;
	if (x->len >= 20 && be32(x->text) == 1 && be32(x->text + 8) == 25)
		call_add_array(c, x, to);
	else
		call_add(c, x->text, x->len, in_array, to);
}

static size_t bytes_of(const struct words *values)
{
	const struct word *x;
	size_t n = 0;

	for (x = values ? values->first : NULL; x; x = x->next)
		n += x->len + 1;
	return n;
}

/* Behind the parenthesis that ends it; sql: behind the one that begins it. */
static const char *behind_call(const char *sql)
{
	int depth = 1;
	bool quoted = false;

	for (; *sql && depth > 0; sql++)
		if (*sql == '\'')
			quoted = !quoted;
		else if (!quoted)
			depth += (*sql == '(') - (*sql == ')');
	return sql;
}

/* Literals and parameters; casts, names and numbers are passed over, and so are the headers of THEN PUSH. */
static void call_read(struct call *c, const char *sql, const struct words *values)
{
	bool in_array = false;
	char *to;

	*c = (struct call){0};
	c->text = to = malloc(strlen(sql) + bytes_of(values) * 4 + MAX_VALUES);
	if (!to)
		abort();
	while (*sql) {
		if (strncmp(sql, "queue._parent(", 14) == 0) {
			sql = behind_call(sql + 14);
			continue;
		}
		if (*sql == '\'') {
			size_t n = strcspn(sql + 1, "'");

			call_add(c, sql + 1, n, in_array, &to);
			sql += n + (sql[n + 1] ? 2 : 1);
			continue;
		}
		if (*sql == '[' || *sql == ']')
			in_array = *sql == '[';
		else if (*sql == '$')
			call_add_param(c, values, atoi(sql + 1), in_array, &to);
		sql++;
	}
}

/* --- the functions --- */

static void row_queue(struct actor *a, const char *queue)
{
	char text[80];

	(void)snprintf(text, sizeof(text), "DataRow \"%s\"", queue);
	actor_say(a, text);
}

static int serve_push(struct actor *a, const struct call *c)
{
	char text[32];
	int i, n = 0;

	for (i = 1; i < c->n; i++) {
		struct job *j;

		if (!c->in_array[i])
			continue;
		if (strcmp(c->v[i], "bad") == 0) {
			actor_say(a, "ErrorResponse 22P02 \"invalid input syntax for type json\"");
			return -1;
		}
		j = job_new(c->v[0], c->v[i], 0);
		job_change(j, a, CHANGE_PUSHED);
		(void)snprintf(text, sizeof(text), "DataRow \"%d\"", j->id);
		actor_say(a, text);
		n++;
	}
	return n;
}

/* Payload, key and group of each; keys are not looked at. */
static int serve_push_keys(struct actor *a, const struct call *c)
{
	char text[32];
	int i, n = 0;

	for (i = 1; i < c->n && c->in_array[i]; i += 3) {
		struct job *j = job_new(c->v[0], c->v[i], 0);

		job_change(j, a, CHANGE_PUSHED);
		(void)snprintf(text, sizeof(text), "DataRow \"%d\"", j->id);
		actor_say(a, text);
		n++;
	}
	return n;
}

/* behind: more columns, or "" */
static void row_job(struct actor *a, const struct job *j, const char *behind)
{
	struct words w = {0};
	const char *more, *q = j->token[0] ? "\"" : "";
	char text[256], tail[256], ms[32] = "NULL";

	(void)snprintf(text, sizeof(text), "DataRow \"%d\" %s%s%s \"%s\" \"%d\"", j->id, q,
		j->token[0] ? j->token : "NULL", q, j->queue, j->attempt);
	more = text;
	(void)words_next(&more, &w);
	words_add(&w, 'q', j->payload, strlen(j->payload));
	if (j->leased)
		(void)snprintf(ms, sizeof(ms), "\"%llu\"",
			(unsigned long long)((j->lease_until - loop_now()) / USEC_MSEC));
	(void)snprintf(tail, sizeof(tail),
		"NULL NULL NULL \"0\" \"2026-01-01 00:00:00+00\" \"2026-01-01 00:05:00+00\" NULL \"2026-01-01 00:00:00+00\" NULL \"1\" auto %s NULL NULL NULL %s",
		ms, behind);
	more = tail;
	{
		struct words rest;
		const struct word *x;

		(void)words_next(&more, &rest);
		for (x = rest.first; x; x = x->next)
			words_add(&w, strcmp(x->text, "NULL") == 0 ? 'b' : 'q', x->text, x->len);
		words_free(&rest);
	}
	actor_say_words(a, &w);
	words_free(&w);
}

/* The lease that a text of ours asks for. */
static usec_t lease_of(const struct call *c)
{
	for (int i = 0; i < c->n; i++)
		if (strstr(c->v[i], " microseconds"))
			return strtoull(c->v[i], NULL, 10);
	return LEASE;
}

static void job_lease(struct job *j, usec_t lease)
{
	j->leased = true;
	j->attempt++;
	j->lease_until = loop_now() + lease;
	(void)snprintf(j->token, sizeof(j->token), "%x-%x-%x", (unsigned)j->id,
		(unsigned)j->attempt, 0xabc0u + (unsigned)j->id);
}

static void take_one(struct actor *a, struct job *j, const struct call *c, bool pop)
{
	job_lease(j, lease_of(c));
	j->leased = !pop;
	j->done = pop;
	job_change(j, a, CHANGE_TAKEN);
	row_job(a, j, "");
}

static bool names_queue(const struct call *c, const char *queue)
{
	int i;

	for (i = 0; i < c->n; i++)
		if (c->in_array[i] && strcmp(c->v[i], queue) == 0)
			return true;
	return false;
}

static int value_after_array(const struct call *c)
{
	int i = 0;

	while (i < c->n && c->in_array[i])
		i++;
	return i;
}

#define NULL_COLUMN(name, type) " NULL"

/* When something will become ready by itself: milliseconds, or NULL. */
static void row_due(struct actor *a, const struct call *c)
{
	usec_t due = USEC_NEVER;
	const struct job *j;
	char text[200], ms[32] = "NULL";

	for (j = store.jobs; j; j = j->next) {
		usec_t at = j->leased ? j->lease_until : j->ready_at;

		if (!j->done && names_queue(c, j->queue) && at > loop_now() && at < due)
			due = at;
	}
	if (due != USEC_NEVER)
		(void)snprintf(ms, sizeof(ms), "\"%llu\"",
			(unsigned long long)((due - loop_now() + USEC_MSEC - 1) / USEC_MSEC));
	(void)snprintf(text, sizeof(text),
		"DataRow" ROW_TAKEN(NULL_COLUMN, , ) " NULL %s NULL NULL NULL", ms);
	actor_say(a, text);
}

static void follow(struct actor *a, const struct consumer *next)
{
	store.was = store.consumer;
	store.consumer = *next;
	store.followed_by = a;
}

/* false: the jobs are another's, or who asks does not know that they may be; that was said. */
static bool is_consumer(struct actor *a, const struct call *c)
{
	struct consumer me = {0};
	char text[200];

	if (sscanf(c->consumer, "%23s %15s", me.token, me.proxy) != 2) {
		actor_say(a, "ErrorResponse QBONE \"9\"");
		return false;
	}
	if (*store.consumer.token && strcmp(store.consumer.token, me.token) != 0) {
		(void)snprintf(text, sizeof(text),
			"DataRow" ROW_TAKEN(NULL_COLUMN, , ) " \"%s %s\" \"1000\" NULL NULL NULL",
			store.consumer.proxy, store.consumer.token);
		actor_say(a, text);
		return false;
	}
	if (!*store.consumer.token)
		follow(a, &me);
	return true;
}

static int serve_take(struct actor *a, const struct call *c)
{
	int at = value_after_array(c), limit = at < c->n ? atoi(c->v[at]) : 1, n = 0;
	bool pop = c->n > 0 && strcmp(c->v[c->n - 1], "t") == 0;
	struct job *j;

	if (names_queue(c, SINGLE) && !is_consumer(a, c))
		return *c->consumer ? 0 : -1;
	for (j = store.jobs; j && n < limit; j = j->next) {
		if (!is_free(j) || j->ready_at > loop_now() || !names_queue(c, j->queue))
			continue;
		take_one(a, j, c, pop);
		n++;
	}
	if (n == 0)
		row_due(a, c);
	return n;
}

/* The same of the one queue that has a number: its name is not among the values. */
static int serve_take_directly(struct actor *a, const struct call *c)
{
	struct call named = {.v = {NUMBERED, c->v[0], c->v[1]}, .in_array = {true}, .n = 3};

	return serve_take(a, &named);
}

static int serve_push_directly(struct actor *a, const struct call *c)
{
	struct call named = {.v = {NUMBERED}, .n = 1};

	for (int i = 0; i < c->n && named.n < MAX_VALUES; i++)
		if (c->in_array[i]) {
			named.in_array[named.n] = true;
			named.v[named.n++] = c->v[i];
		}
	return serve_push(a, &named);
}

static bool any_is_ready(const char *queue)
{
	const struct job *j;

	for (j = store.jobs; j; j = j->next)
		if (is_free(j) && j->ready_at <= loop_now() && strcmp(j->queue, queue) == 0)
			return true;
	return false;
}

/* Payloads, and an int4[] with an element for each taker; without LEASE and AS. values: of each
 * job; the first is its payload. */
static int hand_over(struct actor *a, const struct call *c, int values)
{
	bool refused = any_is_ready(NUMBERED);
	uint32_t takers = 0;
	char id[32];
	int i, n = 0;

	for (i = 0; i < c->n && c->in_array[i]; i++)
		if (strcmp(c->v[i], "bad") == 0) {
			actor_say(a, "ErrorResponse 22P02 \"invalid input syntax for type json\"");
			return -1;
		}
	if (i < c->n && !refused)
		takers = be32(c->v[i] + 12);
	for (i = 0; i < c->n && c->in_array[i]; i += values, n++) {
		struct job *j = job_new(NUMBERED, c->v[i], 0);

		if ((uint32_t)n < takers)
			job_lease(j, LEASE);
		job_change(j, a, CHANGE_PUSHED);
		(void)snprintf(id, sizeof(id), "\"%d\"", j->id);
		row_job(a, j, id);
	}
	return n;
}

static int serve_hand(struct actor *a, const struct call *c)
{
	return hand_over(a, c, 1);
}

static int serve_hand_keys(struct actor *a, const struct call *c)
{
	return hand_over(a, c, 3);
}

static struct job *job_by_token(const char *token)
{
	struct job *j;

	for (j = store.jobs; j; j = j->next)
		if (j->leased && !j->done && strcmp(j->token, token) == 0)
			return j;
	return NULL;
}

/* strict: a token that is not known is an error. -1: that error was said. */
static int serve_tokens(struct actor *a, const struct call *c, enum change change, bool strict)
{
	int i, n = 0;

	for (i = 0; i < c->n; i++) {
		struct job *j = c->in_array[i] ? job_by_token(c->v[i]) : NULL;

		if (!c->in_array[i])
			continue;
		if (!j && strict) {
			actor_say(a, "ErrorResponse QB001 \"the lease is lost\"");
			return -1;
		}
		if (!j)
			continue;
		if (change == CHANGE_DONE)
			j->done = true;
		else if (change == CHANGE_BACK)
			j->leased = false;
		if (change != CHANGE_NONE)
			job_change(j, a, change);
		if (!c->no_rows)
			row_queue(a, j->queue);
		n++;
	}
	return n;
}

static int serve_done(struct actor *a, const struct call *c)
{
	return serve_tokens(a, c, CHANGE_DONE, true);
}

/* Each with its result behind it. */
static int serve_done_pairs(struct actor *a, const struct call *c)
{
	struct call tokens = {0};

	for (int i = 0; i < c->n; i += 2) {
		tokens.in_array[tokens.n] = c->in_array[i];
		tokens.v[tokens.n++] = c->v[i];
	}
	return serve_done(a, &tokens);
}

/* A push in the same statement. false: the error was said. */
static bool serve_done_first(struct actor *a, const char *sql, const struct words *values)
{
	const char *done = strstr(sql, "queue._done("), *push = strstr(sql, "queue._push(");
	struct call c;
	char *text;
	int n;

	if (!done || !push)
		return true;
	text = strndup(done, (size_t)(push - done));
	if (!text)
		abort();
	call_read(&c, text, values);
	free(text);
	c.no_rows = true;
	n = serve_done(a, &c);
	free(c.text);
	return n >= 0;
}

/* The queues of tokens, whatever became of their jobs. */
static int serve_names(struct actor *a, const struct call *c)
{
	for (int i = 0; i < c->n; i++)
		row_queue(a, "mail");
	return c->n;
}

static int serve_back(struct actor *a, const struct call *c)
{
	return serve_tokens(a, c, CHANGE_BACK, true);
}

static int serve_give_back(struct actor *a, const struct call *c)
{
	int n = serve_tokens(a, c, CHANGE_BACK, false);

	for (int i = 0; i < c->n; i++)
		if (*store.consumer.token && strncmp(c->v[i], "9-0-", 4) == 0 &&
			strcmp(c->v[i] + 4, store.consumer.token) == 0) {
			follow(a, &(struct consumer){0});
			row_queue(a, SINGLE);
			n++;
		}
	return n;
}

static int serve_extend(struct actor *a, const struct call *c)
{
	return serve_tokens(a, c, CHANGE_NONE, true);
}

static int serve_renew(struct actor *a, const struct call *c)
{
	char text[96];
	int i, n = 0;

	for (i = 0; i < c->n; i++) {
		struct job *j = c->in_array[i] ? job_by_token(c->v[i]) : NULL;

		if (!c->in_array[i])
			continue;
		if (j) {
			j->lease_until = loop_now() + lease_of(c);
			continue;
		}
		(void)snprintf(text, sizeof(text), "DataRow \"%s\" \"lost\"", c->v[i]);
		actor_say(a, text);
		n++;
	}
	return n;
}

static int serve_nothing(struct actor *a, const struct call *c)
{
	(void)a, (void)c;
	return 0;
}

/* The version, and how many functions of that name there are. */
static int serve_one(struct actor *a, const struct call *c)
{
	(void)c;
	actor_say(a, "DataRow \"1\"");
	return 1;
}

/* "<id>-1", as its first token begins. What has ended is gone: nothing is kept here. */
static int serve_await(struct actor *a, const struct call *c)
{
	char text[160];
	int i, n = 0;

	for (i = 0; i < c->n; i++) {
		int id = c->in_array[i] ? atoi(c->v[i]) : 0;
		const struct job *j = store.jobs;

		if (!c->in_array[i])
			continue;
		while (j && j->id != id)
			j = j->next;
		if (!j) {
			actor_say(a, "ErrorResponse QB003 \"there is no such job\"");
			return -1;
		}
		(void)snprintf(text, sizeof(text),
			"DataRow \"%x-1\" \"%d\" \"%s\" %s NULL NULL NULL NULL NULL", (unsigned)id,
			id, j->queue, j->done && !j->changed_by ? "gone" : "NULL");
		actor_say(a, text);
		n++;
	}
	return n;
}

/* Is the schema there, and of somebody who is trusted? */
static int serve_present(struct actor *a, const struct call *c)
{
	(void)c;
	actor_say(a, "DataRow \"p\"");
	return 1;
}

static int serve_void(struct actor *a, const struct call *c)
{
	(void)c;
	actor_say(a, "DataRow \"\"");
	return 1;
}

/* How a job ends that runs: "retry" and "release" ask for another attempt in the first one. */
static const char *run_one(struct actor *a, struct job *j)
{
	const char *asks = j->attempt > 1 ? "" : j->payload;

	if (strcmp(asks, "retry") == 0 || strcmp(asks, "release") == 0) {
		j->leased = false;
		job_change(j, a, CHANGE_BACK);
		return strcmp(asks, "retry") == 0 ? "failed" : "released";
	}
	j->done = true;
	job_change(j, a, CHANGE_DONE);
	return "done";
}

/* Of queues whose jobs run, which a rule says. One behind BEGIN is of SQL: its payload is the statement. */
static int serve_run_job(struct actor *a, const struct call *c)
{
	struct job *j = c->n > 0 ? job_by_token(c->v[0]) : NULL;
	struct words w = {0};
	const char *row = "DataRow \"mail\" \"sql\"";
	char text[96];

	if (!j) {
		actor_say(a, "ErrorResponse QB001 \"the lease is lost\"");
		return -1;
	}
	if (a->tx != 'T') {
		(void)snprintf(text, sizeof(text), "DataRow \"mail\" \"%s\" NULL", run_one(a, j));
		actor_say(a, text);
		return 1;
	}
	actor_say(a, "DataRow \"mail\" \"began\" \"17\"");
	(void)words_next(&row, &w);
	words_add(&w, 'q', j->payload, strlen(j->payload));
	actor_say_words(a, &w);
	words_free(&w);
	return 2;
}

static int serve_run_end(struct actor *a, const struct call *c)
{
	struct call one = {.v = {c->n > 0 ? c->v[0] : ""}, .in_array = {true}, .n = 1};

	return serve_tokens(a, &one, CHANGE_DONE, true);
}

static int serve_run_batch(struct actor *a, const struct call *c)
{
	char text[96];
	int n = 0;

	for (int i = 0; i < c->n && c->in_array[i]; i++)
		if (!job_by_token(c->v[i])) {
			actor_say(a, "ErrorResponse QB001 \"the lease is lost\"");
			return -1;
		}
	for (int i = 0; i < c->n && c->in_array[i]; i++) {
		(void)snprintf(text, sizeof(text), "DataRow \"%s\" \"%s\"", c->v[i],
			run_one(a, job_by_token(c->v[i])));
		actor_say(a, text);
		n++;
	}
	return n;
}

static const struct {
	const char *call;
	int (*fn)(struct actor *a, const struct call *c);
} functions[] = {
	{"queue._push(", serve_push},
	{"queue._push_keys(", serve_push_keys},
	{"queue._push_1(", serve_push_directly},
	{"queue._hand_1(", serve_hand},
	{"queue._hand_keys_1(", serve_hand_keys},
	{"queue._take_1(", serve_take_directly},
	{"queue._take_lot_jsonb(", serve_take},
	{"queue._take_alone_jsonb(", serve_take},
	{"queue._take(", serve_take},
	{"queue._done(", serve_done},
	{"queue._done_pairs(", serve_done_pairs},
	{"queue._names(", serve_names},
	{"queue._await(", serve_await},
	{"queue._run_job(", serve_run_job},
	{"queue._run_end(", serve_run_end},
	{"queue._ran_there(", serve_run_end},
	{"queue._run_done(", serve_run_end},
	{"queue._run_batch(", serve_run_batch},
	{"queue._fail(", serve_back},
	{"queue._release(", serve_back},
	{"queue._give_back(", serve_give_back},
	{"queue._extend(", serve_extend},
	{"queue._renew(", serve_renew},
	{"queue._orphans_step(", serve_nothing},
	{"queue._own(", serve_void},
	{"queue.version(", serve_one},
	{"payload FROM queue.queues", serve_nothing},
	{"FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'queue'", serve_present},
	{"queue.create(", serve_void},
	{"queue.alter(", serve_void},
	{"queue.drop(", serve_void},
};

/* Their eighth. */
static void put_consumer(struct call *c, const struct words *values)
{
	const struct word *x = values ? values->first : NULL;

	for (int n = 1; x && n < 8; n++)
		x = x->next;
	if (x)
		(void)snprintf(c->consumer, sizeof(c->consumer), "%s", x->text);
}

bool store_serve(struct actor *a, const char *sql, const struct words *values, bool describe)
{
	const char *at;
	struct call c;
	char text[64];
	size_t i;
	int n;

	for (i = 0; i < ARRAY_LEN(functions); i++) {
		at = strstr(sql, functions[i].call);
		if (!at)
			continue;
		if (describe)
			actor_say(a, "RowDescription queue");
		if (!serve_done_first(a, sql, values))
			return true;
		call_read(&c, at, values);
		if (strstr(sql, "qbouncer.consumer"))
			put_consumer(&c, values);
		n = functions[i].fn(a, &c);
		free(c.text);
		(void)snprintf(text, sizeof(text), "CommandComplete \"SELECT %d\"", n);
		if (n >= 0)
			actor_say(a, text);
		return true;
	}
	return false;
}
