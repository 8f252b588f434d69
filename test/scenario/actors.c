/*
 * Scripted clients and servers that behave like Postgres: see actors.h. A server keeps just enough
 * state to be believed: transaction status, prepared statements, portals, skipping to Sync.
 */
#include "actors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "store.h"

struct rule {
	struct rule *next;
	struct words match;
	char *reply;
	bool once;
};

static struct {
	struct actor *list;
	struct rule *rules; /* newest first */
	char *refusal;
	bool manual, terminated;
	int servers, cancels;
} act;

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

/* --- rules --- */

void rule_add(const struct words *match, const char *reply, bool once)
{
	struct rule *r = must(calloc(1, sizeof(*r)));

	words_copy(&r->match, match);
	r->reply = must(strdup(reply));
	r->once = once;
	r->next = act.rules;
	act.rules = r;
}

static void rule_free(struct rule *r)
{
	words_free(&r->match);
	free(r->reply);
	free(r);
}

/* The reply, to be freed by the caller; NULL: no rule. */
static char *rule_take(const struct words *w)
{
	struct rule **at, *r;
	char *reply;

	for (at = &act.rules; (r = *at); at = &r->next) {
		if (!words_match(&r->match, w))
			continue;
		reply = must(strdup(r->reply));
		if (r->once) {
			*at = r->next;
			rule_free(r);
		}
		return reply;
	}
	return NULL;
}

void servers_refuse(const char *text)
{
	free(act.refusal);
	act.refusal = text ? must(strdup(text)) : NULL;
}

void servers_manual(bool on)
{
	act.manual = on;
}

/* --- actors --- */

static struct actor *actor_new(bool client, int id, struct fake_peer *p)
{
	struct actor *a = must(calloc(1, sizeof(*a))), **at = &act.list;

	a->client = client;
	a->id = id;
	a->peer = p;
	a->tx = 'I';
	p->actor = a;
	while (*at)
		at = &(*at)->next;
	*at = a;
	return a;
}

struct actor *actor_client_new(int id)
{
	return actor_new(true, id, fake_peer_new());
}

static void on_connect(struct fake_peer *p, const char *host, int port)
{
	char text[256];

	/* A number when it turns out to be a session: cancel requests have none. */
	actor_new(false, 0, p);
	if (!act.refusal) {
		fake_answer(p, NULL);
		return;
	}
	(void)snprintf(text, sizeof(text), "connection to server at \"%s\", port %d failed: %s",
		host, port, act.refusal);
	fake_answer(p, text);
}

void actors_init(void)
{
	memset(&act, 0, sizeof(act));
	fake_on_connect(on_connect);
}

static void named_free(struct named **list)
{
	struct named *n;

	while ((n = *list)) {
		*list = n->next;
		free(n->name);
		free(n->sql);
		words_free(&n->values);
		free(n);
	}
}

void rules_clear(void)
{
	struct rule *r;

	while ((r = act.rules)) {
		act.rules = r->next;
		rule_free(r);
	}
}

void actors_free(void)
{
	struct actor *a;
	struct msg *m;

	rules_clear();
	while ((a = act.list)) {
		act.list = a->next;
		while ((m = a->inbox)) {
			a->inbox = m->next;
			words_free(&m->w);
			free(m);
		}
		named_free(&a->statements);
		named_free(&a->portals);
		bytes_free(&a->held);
		free(a);
	}
	servers_refuse(NULL);
}

struct actor *actors_first(void)
{
	return act.list;
}

struct actor *actor_find(bool client, int id)
{
	struct actor *a, *found = NULL;

	/* The youngest of that number: a client may come again. */
	for (a = act.list; a; a = a->next)
		if (a->client == client && a->id == id && !a->canceller)
			found = a;
	return found;
}

int actors_cancels(void)
{
	return act.cancels;
}

bool actor_gone(const struct actor *a)
{
	return a->peer->closed || a->peer->eof || a->peer->reset;
}

int actors_servers_open(void)
{
	const struct actor *a;
	int n = 0;

	for (a = act.list; a; a = a->next)
		n += !a->client && a->started && !a->canceller && !actor_gone(a);
	return n;
}

int actors_logins(void)
{
	const struct actor *a;
	int n = 0;

	for (a = act.list; a; a = a->next)
		n += !a->client && a->started && !a->canceller;
	return n;
}

void actor_bye(struct actor *a, bool reset)
{
	if (reset)
		a->peer->reset = true;
	else
		a->peer->eof = true;
	store_end(a, false);
}

bool actors_terminated(void)
{
	return act.terminated;
}

/* --- saying --- */

/* What a server's own words do to its state. */
static void note_said(struct actor *a, const struct words *w)
{
	if (words_name_is(w, "ErrorResponse")) {
		a->in_error = a->doomed = true;
		a->copying = false;
		if (a->tx == 'T')
			a->tx = 'E';
	} else if (words_name_is(w, "ReadyForQuery")) {
		a->tx = words_arg(w, 0)[0];
		a->in_error = a->copying = false;
		if (a->tx == 'I') {
			store_end(a, !a->doomed);
			a->doomed = false;
			named_free(&a->portals);
		}
	} else if (words_name_is(w, "CopyInResponse")) {
		a->copying = true;
	}
}

static void let_go(struct actor *a)
{
	bytes_add(&a->peer->to_proxy, a->held.data, a->held.len);
	bytes_drop(&a->held, a->held.len);
	a->holding = false;
}

void actor_say_words(struct actor *a, const struct words *w)
{
	char text[256];

	if (words_name_is(w, "hang"))
		a->hung = true;
	else if (words_name_is(w, "later"))
		a->hung = a->again = true;
	else if (words_name_is(w, "close"))
		actor_bye(a, false);
	else if (words_name_is(w, "reset"))
		actor_bye(a, true);
	else if (words_name_is(w, "tx"))
		a->tx = words_arg(w, 0)[0];
	else if (words_name_is(w, "nothing"))
		return;
	else if (!actor_gone(a) &&
		 !proto_encode(w, a->client, a->holding ? &a->held : &a->peer->to_proxy)) {
		words_print(w, text, sizeof(text));
		fprintf(stderr, "not a message that it can say: %s\n", text);
		exit(2);
	}
	if (a->holding && (words_name_is(w, "ErrorResponse") || words_name_is(w, "CopyInResponse")))
		let_go(a);
	if (a->client && words_name_is(w, "Terminate"))
		act.terminated = true;
	if (!a->client)
		note_said(a, w);
	else if (words_name_is(w, "SSLRequest") || words_name_is(w, "GSSENCRequest"))
		a->ssl_pending = true;
}

void actor_say(struct actor *a, const char *messages)
{
	struct words w;

	while (words_next(&messages, &w)) {
		if (w.first)
			actor_say_words(a, &w);
		words_free(&w);
	}
}

static bool says(const char *reply, const char *name)
{
	struct words w;
	bool found = false;

	while (words_next(&reply, &w)) {
		found |= words_name_is(&w, name);
		words_free(&w);
	}
	return found;
}

/* --- a server's own answers --- */

static const char welcome[] =
	"Authentication 0 / ParameterStatus server_version \"15.6\" / "
	"ParameterStatus server_encoding UTF8 / ParameterStatus client_encoding UTF8 / "
	"ParameterStatus DateStyle \"ISO, MDY\" / ParameterStatus TimeZone UTC / "
	"ParameterStatus IntervalStyle postgres / ParameterStatus standard_conforming_strings on / "
	"ParameterStatus integer_datetimes on / ParameterStatus application_name \"\"";

static void serve_start(struct actor *a, const struct words *w)
{
	char text[64];
	char *reply;

	a->started = true;
	if (words_name_is(w, "CancelRequest")) {
		a->canceller = true;
		act.cancels++;
		actor_bye(a, false);
		return;
	}
	a->id = ++act.servers;
	reply = rule_take(w);
	if (reply) {
		actor_say(a, reply);
		free(reply);
		return;
	}
	actor_say(a, welcome);
	(void)snprintf(text, sizeof(text), "BackendKeyData %d %d / ReadyForQuery I", 9000 + a->id,
		77 * a->id);
	actor_say(a, text);
	a->hung = act.manual;
}

static struct named *named_find(struct named *list, const char *name)
{
	for (; list; list = list->next)
		if (strcmp(list->name, name) == 0)
			return list;
	return NULL;
}

static void named_drop(struct named **list, const char *name)
{
	struct named *n;

	for (; (n = *list); list = &n->next)
		if (strcmp(n->name, name) == 0) {
			*list = n->next;
			n->next = NULL;
			named_free(&n);
			return;
		}
}

static struct named *named_set(struct named **list, const char *name, const char *sql)
{
	struct named *n = must(calloc(1, sizeof(*n)));

	n->name = must(strdup(name));
	n->sql = must(strdup(sql));
	named_drop(list, name);
	n->next = *list;
	*list = n;
	return n;
}

static bool starts(const char *sql, const char *word)
{
	sql += strspn(sql, " \t\n");
	return strncasecmp(sql, word, strlen(word)) == 0;
}

static bool has_rows(const char *sql)
{
	return starts(sql, "SELECT") || starts(sql, "WITH") || starts(sql, "VALUES") ||
	       starts(sql, "SHOW") || strcasestr(sql, " RETURNING ");
}

static void say_error(struct actor *a, const char *sqlstate, const char *message)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "ErrorResponse %s \"%s\"", sqlstate, message);
	actor_say(a, text);
}

static void say_status(struct actor *a, const char *name, size_t n, const char *value, size_t len)
{
	struct words w = {0};

	words_add(&w, 'b', "ParameterStatus", 15);
	words_add(&w, 'q', name, n);
	words_add(&w, 'q', value, len);
	actor_say_words(a, &w);
	words_free(&w);
}

/* The program sets settings with set_config(E'name', E'value', false). */
static void serve_set_config(struct actor *a, const char *sql)
{
	const char *name = strstr(sql, "E'") + 2, *end = strchr(name, '\''), *value;

	value = end ? strstr(end, "E'") : NULL;
	if (value && strchr(value + 2, '\''))
		say_status(a, name, (size_t)(end - name), value + 2,
			(size_t)(strchr(value + 2, '\'') - value - 2));
}

/* Describes and runs; in the extended protocol the description was asked for before. */
static void serve_rows(struct actor *a, const char *sql, bool describe)
{
	if (describe)
		actor_say(a, "RowDescription \"?column?\"");
	if (starts(sql, "SELECT pg_catalog.set_config(E'"))
		serve_set_config(a, sql);
	actor_say(a, starts(sql, "INSERT") ? "CommandComplete \"INSERT 0 0\""
					   : "CommandComplete \"SELECT 0\"");
}

static void serve_transaction(struct actor *a, const char *sql)
{
	bool failed = a->tx == 'E';

	a->doomed = failed;

	if (starts(sql, "BEGIN") || starts(sql, "START")) {
		a->tx = 'T';
		actor_say(a, "CommandComplete BEGIN");
	} else if (starts(sql, "COMMIT") || starts(sql, "END")) {
		a->tx = 'I';
		actor_say(a, failed ? "CommandComplete ROLLBACK" : "CommandComplete COMMIT");
	} else {
		a->doomed = !strcasestr(sql, " TO ");
		if (a->doomed)
			a->tx = 'I';
		else if (failed)
			a->tx = 'T';
		actor_say(a, "CommandComplete ROLLBACK");
	}
}

static bool is_transaction(const char *sql)
{
	static const char *const words[] = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(words); i++)
		if (starts(sql, words[i]))
			return true;
	return false;
}

static void serve_other(struct actor *a, const char *sql)
{
	char text[64], word[32] = "";

	if (starts(sql, "INSERT"))
		(void)snprintf(word, sizeof(word), "INSERT 0 1");
	else if (starts(sql, "UPDATE") || starts(sql, "DELETE"))
		(void)snprintf(word, sizeof(word), "%.6s 1", sql + strspn(sql, " \t\n"));
	else if (starts(sql, "DISCARD"))
		(void)snprintf(word, sizeof(word), "DISCARD ALL");
	else
		(void)sscanf(sql, " %31[A-Za-z]", word);
	(void)snprintf(text, sizeof(text), "CommandComplete \"%s\"", word);
	actor_say(a, text);
}

static void serve_statement(
	struct actor *a, const char *sql, const struct words *values, bool describe)
{
	bool ends = starts(sql, "COMMIT") || starts(sql, "END") || starts(sql, "ROLLBACK") ||
		    starts(sql, "ABORT");

	/* What the proxy sends to make a transaction fail. */
	if (starts(sql, "\""))
		say_error(a, "42601", "syntax error");
	else if (a->tx == 'E' && !ends)
		say_error(a, "25P02",
			"current transaction is aborted, commands ignored until end of transaction block");
	else if (is_transaction(sql))
		serve_transaction(a, sql);
	else if (store_serve(a, sql, values, describe))
		return;
	else if (has_rows(sql))
		serve_rows(a, sql, describe);
	else
		serve_other(a, sql);
}

/* The end of the statement that begins here; quotes are respected, nothing else. */
static const char *statement_end(const char *sql)
{
	bool quoted = false;

	for (; *sql && (quoted || *sql != ';'); sql++)
		if (*sql == '\'')
			quoted = !quoted;
	return sql;
}

static void serve_query(struct actor *a, const char *sql)
{
	const char *end;
	bool any = false;

	for (; *sql && !a->in_error; sql = *end ? end + 1 : end) {
		char *one;

		end = statement_end(sql);
		if (strspn(sql, " \t\n") >= (size_t)(end - sql))
			continue;
		any = true;
		one = must(strndup(sql, (size_t)(end - sql)));
		serve_statement(a, one, NULL, true);
		free(one);
	}
	if (!any)
		actor_say(a, "EmptyQueryResponse");
}

static void serve_ready(struct actor *a)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "ReadyForQuery %c", a->tx);
	actor_say(a, text);
}

static void serve_parse(struct actor *a, const struct words *w)
{
	if (starts(words_arg(w, 1), "\"")) {
		say_error(a, "42601", "syntax error");
		return;
	}
	(void)named_set(&a->statements, words_arg(w, 0), words_arg(w, 1));
	actor_say(a, "ParseComplete");
}

static void serve_bind(struct actor *a, const struct words *w)
{
	const struct named *st = named_find(a->statements, words_arg(w, 1));
	const struct word *x = w->first->next->next->next;
	struct named *portal;

	if (!st) {
		say_error(a, "26000", "prepared statement does not exist");
		return;
	}
	if (words_arg(w, 0)[0] && named_find(a->portals, words_arg(w, 0))) {
		say_error(a, "42P03", "portal already exists");
		return;
	}
	portal = named_set(&a->portals, words_arg(w, 0), st->sql);
	for (; x; x = x->next)
		words_add(&portal->values, x->kind, x->text, x->len);
	actor_say(a, "BindComplete");
}

static int count_params(const char *sql)
{
	int n = 0, max = 0;

	for (; (sql = strchr(sql, '$')); sql++)
		if ((n = atoi(sql + 1)) > max && n < 100)
			max = n;
	return max;
}

static void serve_describe(struct actor *a, const struct words *w)
{
	bool statement = words_arg(w, 0)[0] == 'S';
	const struct named *n = named_find(statement ? a->statements : a->portals, words_arg(w, 1));
	struct words d = {0};
	int i;

	if (!n) {
		say_error(a, statement ? "26000" : "34000", "does not exist");
		return;
	}
	if (statement) {
		words_add(&d, 'b', "ParameterDescription", 20);
		for (i = count_params(n->sql); i > 0; i--)
			words_add(&d, 'b', "25", 2);
		actor_say_words(a, &d);
		words_free(&d);
	}
	actor_say(a, has_rows(n->sql) ? "RowDescription \"?column?\"" : "NoData");
}

static void serve_execute(struct actor *a, const struct words *w)
{
	const struct named *portal = named_find(a->portals, words_arg(w, 0));

	if (!portal)
		say_error(a, "34000", "portal does not exist");
	else if (strspn(portal->sql, " \t\n;") == strlen(portal->sql))
		actor_say(a, "EmptyQueryResponse");
	else
		serve_statement(a, portal->sql, &portal->values, false);
}

static void serve_by_itself(struct actor *a, const struct words *w)
{
	if (words_name_is(w, "Query")) {
		serve_query(a, words_arg(w, 0));
	} else if (words_name_is(w, "Parse")) {
		serve_parse(a, w);
	} else if (words_name_is(w, "Bind")) {
		serve_bind(a, w);
	} else if (words_name_is(w, "Describe")) {
		serve_describe(a, w);
	} else if (words_name_is(w, "Execute")) {
		serve_execute(a, w);
	} else if (words_name_is(w, "Close")) {
		named_drop(
			words_arg(w, 0)[0] == 'S' ? &a->statements : &a->portals, words_arg(w, 1));
		actor_say(a, "CloseComplete");
	} else if (words_name_is(w, "FunctionCall")) {
		actor_say(a, "FunctionCallResponse \"\"");
	} else if (words_name_is(w, "Terminate")) {
		actor_bye(a, false);
	} else if (words_name_is(w, "CopyDone") && a->copying) {
		a->copying = false;
		actor_say(a, "CommandComplete \"COPY 1\"");
		if (a->simple)
			serve_ready(a);
	} else if (words_name_is(w, "CopyFail") && a->copying) {
		say_error(a, "57014", "COPY from stdin failed");
		if (a->simple)
			serve_ready(a);
	}
}

/* What a rule may look at beside the message itself: Execute is followed by the statement's text
 * and the bound values. */
static void add_context(struct actor *a, const struct words *w, struct words *ret)
{
	const struct named *portal = NULL;
	const struct word *x;

	words_copy(ret, w);
	if (words_name_is(w, "Execute"))
		portal = named_find(a->portals, words_arg(w, 0));
	if (!portal)
		return;
	words_add(ret, 'q', portal->sql, strlen(portal->sql));
	for (x = portal->values.first; x; x = x->next)
		words_add(ret, x->kind, x->text, x->len);
}

static void serve_rule(struct actor *a, const struct words *w, const char *reply)
{
	/* Later Binds and Executes refer to it all the same. */
	if (words_name_is(w, "Parse"))
		(void)named_set(&a->statements, words_arg(w, 0), words_arg(w, 1));
	actor_say(a, reply);
}

/* Postgres keeps the answers to these back until Flush, Sync or an error. */
static bool is_held(const struct words *w)
{
	static const char *const names[] = {"Parse", "Bind", "Describe", "Execute", "Close"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(names); i++)
		if (words_name_is(w, names[i]))
			return true;
	return false;
}

/* Postgres is at a loss then. */
static bool is_stray_in_copy(const struct actor *a, const struct words *w)
{
	static const char *const names[] = {
		"CopyData", "CopyDone", "CopyFail", "Sync", "Flush", "Terminate"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(names); i++)
		if (words_name_is(w, names[i]))
			return false;
	return a->copying;
}

static void serve(struct actor *a, const struct words *w)
{
	bool simple = words_name_is(w, "Query") || words_name_is(w, "FunctionCall");
	struct words full = {0};
	char *reply;

	if (!a->client && words_name_is(w, "SSLRequest")) {
		reply = rule_take(w);
		actor_say(a, reply ? reply : "Raw 53");
		free(reply);
		return;
	}
	if (!a->started) {
		serve_start(a, w);
		return;
	}
	if (is_stray_in_copy(a, w)) {
		actor_say(a,
			"ErrorResponse 08P01 \"unexpected message during COPY from stdin\" / "
			"ErrorResponse 08P01 \"protocol synchronization was lost\" FATAL / close");
		return;
	}
	if (words_name_is(w, "Sync") && !a->copying)
		a->in_error = false;
	else if (a->in_error && !simple && !words_name_is(w, "Terminate"))
		return;
	add_context(a, w, &full);
	reply = rule_take(&full);
	words_free(&full);
	if (is_held(w)) {
		a->holding = true;
		a->simple = false;
	} else {
		let_go(a);
		a->simple |= simple;
	}
	if (reply)
		serve_rule(a, w, reply);
	else
		serve_by_itself(a, w);
	if ((simple || (words_name_is(w, "Sync") && !reply)) && !a->copying && !a->hung &&
		!(reply && says(reply, "ReadyForQuery")))
		serve_ready(a);
	free(reply);
}

/* --- reading --- */

static struct msg *inbox_add(struct actor *a)
{
	struct msg *m = must(calloc(1, sizeof(*m))), **at = &a->inbox;

	while (*at)
		at = &(*at)->next;
	*at = m;
	return m;
}

static void note_heard(struct actor *a, const struct words *w)
{
	if (a->client && words_name_is(w, "BackendKeyData")) {
		a->pid = atoi(words_arg(w, 0));
		a->key = atoi(words_arg(w, 1));
	}
}

static bool read_one(struct actor *a)
{
	struct bytes *in = &a->peer->from_proxy;
	struct words w = {0};
	struct msg *m;

	if (a->client && a->ssl_pending && in->len > 0) {
		words_add(&w, 'b', "SSLAnswer", 9);
		words_add(&w, 'b', in->data, 1);
		bytes_drop(in, 1);
		a->ssl_pending = false;
	} else {
		bool start = !a->client && !a->started && (!a->inbox || a->asked_tls);

		if (!proto_decode(in, !a->client, start, &w))
			return false;
	}
	a->asked_tls = words_name_is(&w, "SSLRequest");
	m = inbox_add(a);
	m->w = w;
	m->seen = words_name_is(&w, "Startup");
	note_heard(a, &w);
	return true;
}

static bool serve_some(struct actor *a)
{
	struct msg *m;

	if (a->client || a->hung || actor_gone(a))
		return false;
	for (m = a->inbox; m && m->answered;)
		m = m->next;
	if (!m)
		return false;
	serve(a, &m->w);
	m->answered = !a->again;
	a->again = false;
	return true;
}

void actor_resume(struct actor *a)
{
	a->hung = false;
}

bool actors_pump(void)
{
	struct actor *a;
	bool any = false;

	for (a = act.list; a; a = a->next) {
		while (read_one(a))
			any = true;
		while (serve_some(a))
			any = true;
		/* A server whose client is gone closes as well. */
		if (a->peer->closed && !a->peer->eof)
			actor_bye(a, false);
	}
	return any;
}
