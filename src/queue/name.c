/*
 * How a statement names jobs, and what that means on this connection: "<queue number>-<id>", a
 * token, an id with or without its queue, a key of a queue, and arrays of these. What a connection
 * holds is known here; everything else is left to the functions of sql/, which know the queues. No
 * job is ever looked for in queues that were not named.
 *
 * Entry points: jobs_resolve, jobs_text, jobs_free, lease_named, each_job in jobs.h.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/array.h"
#include "head.h"
#include "jobs.h"
#include "lease.h"
#include "queue_int.h"
#include "take.h"
#include "token.h"

#define SORT_FROM 8 /* so many jobs are looked up one by one */

static bool no_memory(struct pg_error *err)
{
	pg_error_set(err, "53200", "out of memory");
	return false;
}

/* --- what this connection holds --- */

struct entry {
	int64_t id;
	unsigned at;
	struct lease *lease;
};

/* Its leases; sorted by their ids when many are looked up. */
struct ledger {
	struct taker *taker;
	struct entry *sorted; /* or NULL */
	unsigned n;
};

static int entry_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

/* Without memory they are looked up one by one. */
static void ledger_sort(struct ledger *g)
{
	struct lease *l;

	if (g->sorted != NULL || g->taker->n_leases <= SORT_FROM)
		return;
	g->sorted = mem_alloc(g->taker->n_leases * sizeof(*g->sorted));
	if (g->sorted == NULL)
		return;
	g->n = 0;
	DL_FOREACH (g->taker->leases, l) {
		g->sorted[g->n] = (struct entry){.id = l->id, .at = g->n, .lease = l};
		g->n++;
	}
	qsort(g->sorted, g->n, sizeof(*g->sorted), entry_order);
}

/* What is looked for, and what was found: the last lease of a job is the one, those before it were
 * lost. */
struct search {
	int64_t id;
	const char *job; /* "<number>-<id>", or NULL */
	size_t job_len;
	const char *queue; /* or NULL */
	struct lease *found;
	bool many; /* of several queues */
};

static void consider(struct search *s, struct lease *l)
{
	if (l->id != s->id || (s->queue != NULL && strcmp(l->queue, s->queue) != 0) ||
		(s->job != NULL && !token_is_of(l->token, s->job, s->job_len)))
		return;
	s->many = s->many || (s->found != NULL && strcmp(s->found->queue, l->queue) != 0);
	s->found = l;
}

static void look_up(const struct ledger *g, struct search *s)
{
	unsigned low = 0, high = g->n;
	struct lease *l;

	if (g->sorted == NULL) {
		DL_FOREACH (g->taker->leases, l)
			consider(s, l);
		return;
	}
	while (low < high) {
		unsigned half = low + (high - low) / 2;

		if (g->sorted[half].id < s->id)
			low = half + 1;
		else
			high = half;
	}
	for (; low < g->n && g->sorted[low].id == s->id; low++)
		consider(s, g->sorted[low].lease);
}

static bool search_of(const struct ledger *g, enum token_kind kind, const char *text, size_t len,
	const char *queue, struct search *s)
{
	const char *id = kind == TOKEN_JOB ? token_job_id(text) : text;

	*s = (struct search){.queue = queue};
	if (!util_parse_i64(id, len - (size_t)(id - text), &s->id))
		return false;
	if (kind == TOKEN_JOB) {
		s->job = text;
		s->job_len = len;
	}
	look_up(g, s);
	return true;
}

struct lease *lease_named(struct taker *t, const char *text, size_t len, const char *queue)
{
	struct ledger g = {.taker = t};
	enum token_kind kind = token_kind(text, len);
	struct search s;

	CHECK_TAKER(t);
	if (kind == TOKEN_BAD)
		return NULL;
	if (kind == TOKEN_WHOLE)
		return lease_find(t, text);
	return search_of(&g, kind, text, len, queue, &s) && !s.many ? s.found : NULL;
}

static struct lease *lease_keyed(struct taker *t, const char *key, size_t len, const char *queue)
{
	struct lease *l, *found = NULL;

	DL_FOREACH (t->leases, l)
		if (l->key != NULL && strlen(l->key) == len && memcmp(l->key, key, len) == 0 &&
			strcmp(l->queue, queue) == 0)
			found = l;
	return found;
}

bool each_job_text(const char *text, size_t len, each_job_fn *fn, void *arg)
{
	struct names list = {0};
	const char *at = text;
	bool null = false, ok = true;
	int n = 1;

	if (*text == '{') {
		ok = array_read(text, len, &list, &n, &null) && !null;
		at = names_first(&list);
	}
	for (int i = 0; ok && i < n; i++) {
		fn(arg, at, strlen(at));
		at += strlen(at) + 1;
	}
	names_free(&list);
	return ok;
}

bool each_job(const struct qvalue *v, const struct bind_values *b, each_job_fn *fn, void *arg)
{
	struct buf text = BUF_INIT;
	struct qbind qb = {0};
	const char *at;
	bool ok;

	if (b != NULL)
		qb = bind_read(b);
	ok = qvalue_eval(v, &qb, &text) == QEVAL_OK && text.len > 0 &&
	     memchr(text.data, 0, text.len) == NULL;
	at = ok ? buf_cstr(&text) : "";
	ok = ok && !buf_failed(&text) && each_job_text(at, text.len, fn, arg);
	buf_free(&text);
	return ok;
}

/* --- resolving --- */

struct resolver {
	struct ledger ledger;
	const struct qstmt *q;
	const struct bind_values *bind;
	struct jobs *jobs;
	int count;
	bool holds; /* the verb needs the leases; else only what else nobody knows is looked up */
	bool has_on;
	char on[QSTMT_QUEUE_MAX + 1];
	struct pg_error *err;
};

/* A held one of which a renewal has said so: its row may be gone by now. */
static bool is_cancelled(struct resolver *r, const char *token)
{
	struct taker *t = r->ledger.taker;
	const struct lease *l = t->n_cancelled > 0 ? lease_find(t, token) : NULL;

	if (l == NULL || !l->cancelled || qstmt_has(r->q, QARG_PARTIAL))
		return false;
	pg_error_set(r->err, "QB002", "job %lld is cancelled", (long long)l->id);
	pg_error_hint(r->err, "Nothing was changed. Stop the work: the job goes away by itself.");
	return true;
}

static bool not_a_job(struct resolver *r, const char *text)
{
	pg_error_set(r->err, "22023", "\"%.60s\" is not a job", text);
	pg_error_hint(r->err, "%s",
		r->holds
			? "Pass the token that TAKE returned."
			: "Pass the job, '<queue number>-<id>', or a token that TAKE returned, or its id with ON and the queue.");
	return false;
}

static bool several_held(struct resolver *r, const struct search *s)
{
	pg_error_set(r->err, "22023", "job %lld is ambiguous on this connection", (long long)s->id);
	pg_error_detail(r->err, "It holds jobs with this id from several queues.");
	pg_error_hint(r->err,
		"Name its queue: QUEUE %s %lld ON %s; or pass the token that TAKE returned.",
		r->q->verb->name, (long long)s->id, s->found->queue);
	return false;
}

static bool not_held(struct resolver *r, const char *text)
{
	if (r->has_on)
		pg_error_set(r->err, "22023",
			"job %s of queue \"%s\" is not held by this connection", text, r->on);
	else
		pg_error_set(r->err, "22023", "job %s is not held by this connection", text);
	pg_error_detail(r->err,
		"A job is named by anything but its token only on the connection that took it and still holds its lease.");
	pg_error_hint(
		r->err, "Pass the token that TAKE returned: QUEUE %s '<token>';", r->q->verb->name);
	return false;
}

static bool of_other_queue(struct resolver *r, const char *text, const struct lease *l)
{
	pg_error_set(r->err, "22023", "job %s is not one of queue \"%s\"", text, r->on);
	pg_error_hint(r->err, "It is one of queue \"%s\"; a job that is named whole needs no ON.",
		l->queue);
	return false;
}

/* A token begins with the number of the queue, if that is known. */
static bool is_of(struct resolver *r, const char *token)
{
	return token_number(token) == head_number(r->ledger.taker->db, r->on);
}

/* A job that has to be held here, as its token. */
static bool resolve_held(
	struct resolver *r, enum token_kind kind, const char *text, size_t len, char dst[TOKEN_MAX])
{
	const char *queue = r->has_on && kind == TOKEN_ID ? r->on : NULL;
	const struct lease *l;
	struct search s = {0};

	if (kind == TOKEN_WHOLE) {
		l = r->has_on ? lease_find(r->ledger.taker, text) : NULL;
		util_strlcpy(dst, text, TOKEN_MAX);
		r->jobs->elsewhere =
			r->jobs->elsewhere || (r->has_on && l == NULL && !is_of(r, text));
	} else {
		if (!search_of(&r->ledger, kind, text, len, queue, &s))
			return not_a_job(r, text);
		if (s.found == NULL)
			return not_held(r, text);
		if (s.many)
			return several_held(r, &s);
		l = s.found;
		util_strlcpy(dst, l->token, TOKEN_MAX);
	}
	if (r->has_on && l != NULL && strcmp(l->queue, r->on) != 0)
		return of_other_queue(r, text, l);
	return !is_cancelled(r, dst);
}

/* A job of whichever connection. An id alone may be one that is held here; ret_token "": it is not.
 */
static bool resolve_any(
	struct resolver *r, enum token_kind kind, const char *text, size_t len, char dst[TOKEN_MAX])
{
	struct search s = {0};

	dst[0] = '\0';
	if (kind != TOKEN_ID || r->has_on)
		return true;
	if (!search_of(&r->ledger, kind, text, len, NULL, &s))
		return not_a_job(r, text);
	if (s.many)
		return several_held(r, &s);
	if (s.found != NULL)
		util_strlcpy(dst, s.found->token, TOKEN_MAX);
	return true;
}

/* Of one array or of all values of the statement. */
static bool count_one(struct resolver *r)
{
	if (r->count++ < QSTMT_LIST_MAX)
		return true;
	pg_error_set(r->err, "54000", "too many jobs in one QUEUE %s statement", r->q->verb->name);
	pg_error_detail(r->err, "At most %d are possible.", QSTMT_LIST_MAX);
	return false;
}

static bool add_token(struct resolver *r, const char *token)
{
	struct jobs *j = r->jobs;

	if (j->n == j->cap) {
		int cap = j->cap > 0 ? j->cap * 4 : 4;
		void *more = mem_realloc(j->tokens, (size_t)cap * sizeof(j->tokens[0]));

		if (more == NULL)
			return no_memory(r->err);
		j->tokens = more;
		j->cap = cap;
	}
	util_strlcpy(j->tokens[j->n++], token, TOKEN_MAX);
	return true;
}

/* One job, and what stands for it in the statement. found: that is not what the client wrote. */
static bool resolve_one(
	struct resolver *r, const char *text, size_t len, char ret[TOKEN_MAX], bool *found)
{
	enum token_kind kind = token_kind(text, len);
	char token[TOKEN_MAX] = "";

	if (kind == TOKEN_BAD)
		return not_a_job(r, text);
	if (!count_one(r))
		return false;
	if (!(r->holds ? resolve_held(r, kind, text, len, token)
		       : resolve_any(r, kind, text, len, token)))
		return false;
	*found = *found || token[0] != '\0';
	util_strlcpy(ret, token[0] != '\0' ? token : text, TOKEN_MAX);
	return !r->holds || add_token(r, token);
}

static bool null_job(struct resolver *r)
{
	pg_error_set(r->err, "22004", "a job must not be null");
	if (r->holds)
		pg_error_hint(r->err, "Pass the token that TAKE returned.");
	return false;
}

static bool resolve_array(struct resolver *r, const struct buf *text, struct buf *out, bool *found)
{
	struct names list = {0};
	bool null, ok;
	int n;

	ok = array_read((const char *)text->data, text->len, &list, &n, &null);
	if (!ok)
		pg_error_set(r->err, "22P02", "malformed array of jobs: \"%.60s\"",
			text->len > 0 ? (const char *)text->data : "");
	if (!ok)
		pg_error_hint(r->err, "A job is named '3-17', several are '{3-17,3-18}'.");
	if (ok && null)
		ok = null_job(r);
	if (n > SORT_FROM)
		ledger_sort(&r->ledger);
	array_text_begin(out);
	NAMES_FOREACH (at, &list) {
		char job[TOKEN_MAX];

		ok = ok && resolve_one(r, at, strlen(at), job, found);
		if (ok)
			array_text_put(out, job);
	}
	array_text_end(out);
	names_free(&list);
	return ok;
}

static bool keep_text(struct resolver *r, int i, int n, struct buf *out)
{
	struct jobs *j = r->jobs;

	bool ok = !buf_failed(out);

	if (j->texts == NULL) {
		j->texts = mem_zalloc((size_t)n * sizeof(*j->texts));
		if (j->texts == NULL)
			return no_memory(r->err);
		j->n_texts = n;
		/* until now each value was one job */
		for (int k = 0; k < i && r->holds && ok; k++)
			ok = (j->texts[k] = mem_strdup(j->tokens[k])) != NULL;
	}
	if (!ok || (j->texts[i] = mem_strdup(buf_cstr(out))) == NULL)
		return no_memory(r->err);
	return true;
}

static bool resolve_value(struct resolver *r, int i, int n, const struct qvalue *v)
{
	struct qbind qb = bind_read(r->bind);
	struct buf text = BUF_INIT, out = BUF_INIT;
	bool ok = false, found = false, list;
	char job[TOKEN_MAX];

	switch (qvalue_eval(v, &qb, &text)) {
	case QEVAL_NULL:
		ok = null_job(r);
		break;
	case QEVAL_BAD:
		if (!r->holds) { /* the server may read it */
			ok = true;
			break;
		}
		pg_error_set(r->err, "22023", "the value of a job cannot be read");
		pg_error_hint(r->err, "Bind the token as text.");
		break;
	case QEVAL_OK:
		if (buf_cstr(&text), buf_failed(&text)) {
			no_memory(r->err);
			break;
		}
		list = v->list || (text.len > 0 && text.data[0] == '{');
		if (text.len > 0 && memchr(text.data, 0, text.len) != NULL)
			ok = not_a_job(r, buf_cstr(&text));
		else if (list)
			ok = resolve_array(r, &text, &out, &found);
		else
			ok = resolve_one(r, buf_cstr(&text), text.len, job, &found);
		if (ok && !list)
			buf_puts(&out, job);
		if (ok && (r->holds ? list || r->jobs->texts != NULL : found))
			ok = keep_text(r, i, n, &out);
		break;
	}
	buf_free(&text);
	buf_free(&out);
	return ok;
}

static bool read_queue(struct resolver *r)
{
	const struct qvalue *v = qstmt_one(r->q, QARG_ON);
	char *text;

	if (v == NULL)
		return true;
	if (!take_text(&text, v, r->bind, r->err, "the queue name"))
		return false;
	if (text == NULL)
		pg_error_set(r->err, "22004", "the queue name must not be null");
	else if (strlen(text) > QSTMT_QUEUE_MAX)
		pg_error_set(
			r->err, "42622", "the queue name is longer than %d bytes", QSTMT_QUEUE_MAX);
	else
		r->has_on = util_strlcpy(r->on, text, sizeof(r->on)) > 0;
	if (text != NULL && text[0] == '\0')
		pg_error_set(r->err, "42602", "the queue name must not be empty");
	mem_free(text);
	return r->has_on;
}

static bool resolve_key(struct resolver *r)
{
	const struct lease *l;
	char *key;
	bool ok = false;

	if (!take_text(&key, qstmt_one(r->q, QARG_BY_KEY), r->bind, r->err, "KEY"))
		return false;
	l = key != NULL ? lease_keyed(r->ledger.taker, key, strlen(key), r->on) : NULL;
	if (key == NULL) {
		pg_error_set(r->err, "22004", "the key of a job must not be null");
	} else if (l == NULL) {
		pg_error_set(r->err, "22023",
			"this connection holds no job of queue \"%s\" with the key \"%.80s\"",
			r->on, key);
		pg_error_hint(r->err, "Pass the token that TAKE returned: QUEUE %s '<token>';",
			r->q->verb->name);
	} else {
		ok = !is_cancelled(r, l->token) && add_token(r, l->token);
	}
	mem_free(key);
	return ok;
}

/* As nearly all are: one token, bound or written, and nothing else. */
static bool resolve_lone(struct resolver *r)
{
	int n = qstmt_count(r->q, QARG_JOB);

	r->jobs->tokens = mem_alloc((size_t)n * sizeof(r->jobs->tokens[0]));
	if (r->jobs->tokens == NULL)
		return no_memory(r->err);
	r->jobs->cap = n;
	return true;
}

bool jobs_resolve(struct taker *t, const struct qstmt *q, const struct bind_values *bind,
	struct jobs *ret, struct pg_error *err)
{
	bool holds = q->verb->args[0].kind == QKIND_JOBS;
	enum qarg_id id = holds ? QARG_JOB : QARG_REF;
	struct resolver r = {.ledger = {.taker = t},
		.q = q,
		.bind = bind,
		.jobs = ret,
		.holds = holds,
		.err = err};
	int n = qstmt_count(q, id);
	bool ok = true;

	CHECK_TAKER(t);
	if (!holds && q->verb->args[0].kind != QKIND_REFS && q->verb->args[0].kind != QKIND_REF)
		return true;
	if (!read_queue(&r))
		return false;
	if (qstmt_has(q, QARG_BY_KEY))
		return !holds || resolve_key(&r);
	if (n > SORT_FROM)
		ledger_sort(&r.ledger);
	if (holds && n > 0)
		ok = resolve_lone(&r);
	for (int i = 0; ok && i < n; i++)
		ok = resolve_value(&r, i, n, qstmt_value(q, id, i));
	mem_free(r.ledger.sorted);
	return ok;
}

/* In the place of value i of the statement; NULL: what the client wrote. */
const char *jobs_text(const struct jobs *j, int i)
{
	if (j->texts != NULL && j->texts[i] != NULL)
		return j->texts[i];
	return j->texts == NULL && i < j->n ? j->tokens[i] : NULL;
}

void jobs_free(struct jobs *j)
{
	for (int i = 0; i < j->n_texts; i++)
		mem_free(j->texts[i]);
	mem_free(j->texts);
	mem_free(j->tokens);
	*j = (struct jobs){0};
}
