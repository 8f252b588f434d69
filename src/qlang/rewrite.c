/*
 * The SQL text of a QUEUE statement: the verb's template with each {argument} replaced by the
 * client's own bytes and a cast to the type that the function declares. See rewrite.h.
 */
#include "qlang/rewrite.h"

#include <inttypes.h>
#include <string.h>

#include "wire/sqllex.h"

#define TEXT "pg_catalog.text"

/* How many characters a text has, as far as they have been counted: each is counted once. */
struct counted {
	size_t bytes;
	int characters;
};

struct rewriter {
	const struct qstmt *q;
	qjob_token_fn *token_of;
	void *arg;
	struct buf *sql;
	struct qspan *spans; /* of the expressions, or NULL */
	struct counted ours;
	bool bad_token;
};

/* --- quoting what is ours --- */

void qsql_put_quoted(struct buf *sql, const char *text, size_t len)
{
	bool escape = memchr(text, '\\', len) != NULL;

	buf_puts(sql, escape ? "E'" : "'");
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\'' || text[i] == '\\')
			buf_putc(sql, text[i]);
		buf_putc(sql, text[i]);
	}
	buf_putc(sql, '\'');
}

/* Or an array of them. */
static bool is_token(const char *s)
{
	return *s && s[strspn(s, "0123456789abcdef-{,}")] == '\0';
}

/* --- arguments --- */

static int characters_to(struct counted *k, const char *text, size_t bytes)
{
	if (bytes > k->bytes)
		k->characters += sql_char_position(text + k->bytes, text + bytes) - 1;
	k->bytes = bytes;
	return k->characters;
}

/* What follows is the expression. */
static void note_span(struct rewriter *w, const struct qvalue *v)
{
	if (w->spans == NULL || buf_failed(w->sql))
		return;
	w->spans[v->nth] = (struct qspan){
		.ours = characters_to(&w->ours, (const char *)w->sql->data, w->sql->len) + 1,
		.len = sql_char_position(v->src, v->src + v->src_len) - 1};
}

static void put_value(struct rewriter *w, const struct qvalue *v, const char *type)
{
	buf_putc(w->sql, '(');
	if (v->kind == QV_EXPRESSION)
		note_span(w, v);
	if (v->kind == QV_NAME)
		qsql_put_quoted(w->sql, v->text, v->text_len);
	else
		buf_put(w->sql, v->src, v->src_len);
	buf_puts(w->sql, ")::");
	buf_puts(w->sql, type);
}

/* WAIT 30 means seconds, as '30' does; SQL has no cast from numbers to intervals. */
static bool is_number(const struct qstmt *q, const struct qvalue *v)
{
	if (v->kind == QV_PARAM) {
		uint32_t oid = q->param_oids[v->param - 1];

		return oid == OID_INT2 || oid == OID_INT4 || oid == OID_INT8 || oid == OID_NUMERIC;
	}
	return v->kind == QV_LITERAL && v->number;
}

static void put_one(struct rewriter *w, const struct qverb_arg *arg, const char *type)
{
	const struct qvalue *v = qstmt_one(w->q, arg->id);

	if (!v) {
		buf_puts(w->sql, "NULL::");
		buf_puts(w->sql, type);
	} else if (arg->kind == QKIND_INTERVAL && is_number(w->q, v)) {
		buf_putc(w->sql, '(');
		put_value(w, v, TEXT);
		buf_puts(w->sql, ")::");
		buf_puts(w->sql, type);
	} else {
		put_value(w, v, type);
	}
}

static void put_token(struct rewriter *w, const char *token)
{
	ASSERT(is_token(token));
	w->bad_token = w->bad_token || !is_token(token);
	buf_putc(w->sql, '(');
	qsql_put_quoted(w->sql, token, strlen(token));
	buf_puts(w->sql, ")::" TEXT);
}

/*
 * A job is a token already, or an id that only the caller can turn into one: in a literal here, in
 * a parameter when it is bound. Casts around a parameter would not let the token pass. An array is
 * its text, too.
 */
static void put_job(struct rewriter *w, int i, const struct qvalue *v)
{
	const char *token = NULL;

	if (v->kind == QV_PARAM) {
		buf_printf(w->sql, "($%d)::" TEXT, v->param);
		return;
	}
	if (v->kind == QV_LITERAL && w->token_of)
		token = w->token_of(w->arg, i, v->text, v->text_len);
	if (token)
		put_token(w, token);
	else
		put_value(w, v, TEXT);
}

enum element { ELEMENT_VALUE, ELEMENT_JOB, ELEMENT_OPTION };

static void put_array(struct rewriter *w, const struct qverb_arg *arg, enum element element)
{
	int n = qstmt_count(w->q, arg->id);

	buf_puts(w->sql, "ARRAY[");
	for (int i = 0; i < n; i++) {
		const struct qvalue *v = qstmt_value(w->q, arg->id, i);

		if (i)
			buf_puts(w->sql, ", ");
		if (element == ELEMENT_JOB)
			put_job(w, i, v);
		else if (element == ELEMENT_OPTION)
			qsql_put_quoted(w->sql, v->option, v->option_len);
		else
			put_value(w, v, TEXT);
	}
	buf_puts(w->sql, "]::" TEXT "[]");
}

/* KEY 'k' ON q of a lease: what the caller has found. */
static void put_keyed(struct rewriter *w)
{
	const char *token = w->token_of ? w->token_of(w->arg, 0, "", 0) : NULL;

	buf_puts(w->sql, "ARRAY[");
	if (token)
		put_token(w, token);
	else
		buf_puts(w->sql, "NULL");
	buf_puts(w->sql, "]::" TEXT "[]");
}

/* Jobs whose leases are held; ON names the queue that they have to be of. */
static void put_jobs(struct rewriter *w, const struct qverb_arg *arg)
{
	const struct qvalue *on = qstmt_one(w->q, QARG_ON);

	if (qstmt_has(w->q, QARG_BY_KEY)) {
		put_keyed(w);
		return;
	}
	if (on)
		buf_puts(w->sql, "queue._of(");
	put_array(w, arg, ELEMENT_JOB);
	if (!on)
		return;
	buf_puts(w->sql, ", ");
	put_value(w, on, TEXT);
	buf_putc(w->sql, ')');
}

static void put_refs(struct rewriter *w, const struct qverb_arg *arg)
{
	const struct qvalue *one = qstmt_one(w->q, arg->id);

	if (arg->kind == QKIND_REF && one)
		put_job(w, 0, one);
	else if (arg->kind == QKIND_REF)
		buf_puts(w->sql, "NULL::" TEXT);
	else if (qstmt_has(w->q, QARG_BY_KEY))
		buf_puts(w->sql, "NULL::" TEXT "[]");
	else
		put_array(w, arg, ELEMENT_JOB);
}

/* Its type is SQL's to check. */
static void put_condition(struct rewriter *w, const struct qvalue *v)
{
	buf_putc(w->sql, '(');
	note_span(w, v);
	buf_put(w->sql, v->src, v->src_len);
	buf_putc(w->sql, ')');
}

static void put_template(struct rewriter *w, const struct qverb *verb, const char *p);

static void put_argument(struct rewriter *w, const struct qverb_arg *arg)
{
	switch (arg->kind) {
	case QKIND_QUEUE:
	case QKIND_JSON:
	case QKIND_CONTAINED:
	case QKIND_TEXT:
	case QKIND_STATE:
	case QKIND_PUBLISHED:
	case QKIND_VERB:
	case QKIND_TABLE:
	case QKIND_SQL:
		put_one(w, arg, TEXT);
		break;
	case QKIND_INT:
		put_one(w, arg, "pg_catalog.int4");
		break;
	case QKIND_INTERVAL:
	case QKIND_MAY_INTERVAL:
		put_one(w, arg, "pg_catalog.interval");
		break;
	case QKIND_TIMESTAMP:
		put_one(w, arg, "pg_catalog.timestamptz");
		break;
	case QKIND_FLAG:
	case QKIND_ROUTED:
	case QKIND_RETURNING:
		buf_puts(w->sql, qstmt_has(w->q, arg->id) ? "true" : "false");
		break;
	case QKIND_QUEUES:
	case QKIND_PAYLOADS:
	case QKIND_EVENTS:
	case QKIND_WORDS:
		put_array(w, arg, ELEMENT_VALUE);
		break;
	case QKIND_REFS:
	case QKIND_REF:
		put_refs(w, arg);
		break;
	case QKIND_JOBS:
		put_jobs(w, arg);
		break;
	case QKIND_OPTIONS:
		put_array(w, arg, ELEMENT_OPTION);
		buf_puts(w->sql, ", ");
		put_array(w, arg, ELEMENT_VALUE);
		break;
	case QKIND_NAMES:
		put_array(w, arg, ELEMENT_OPTION);
		break;
	case QKIND_CONDITION:
		put_condition(w, qstmt_one(w->q, arg->id));
		break;
	case QKIND_THEN:
		break;
	}
}

static const struct qverb_arg *find_arg(const struct qverb *verb, const char *name, size_t len)
{
	for (int i = 0; i < verb->n_args; i++) {
		if (strlen(verb->args[i].name) == len && !memcmp(verb->args[i].name, name, len))
			return &verb->args[i];
	}
	return NULL;
}

/* Words of the templates that are no arguments. */

static void put_of(struct rewriter *w)
{
	buf_puts(w->sql, qstmt_has(w->q, QARG_WHOSE) ? "_for" : "");
	buf_puts(w->sql, qpayloads[w->q->payload].suffix);
}

/* The function for events of a stream; the others are of jobs with any payload. */
static void put_whose(struct rewriter *w)
{
	buf_puts(w->sql, qstmt_has(w->q, QARG_WHOSE) ? "_for" : "");
}

/* Whose events of a stream. */
static void put_read(struct rewriter *w)
{
	const struct qvalue *reader = qstmt_one(w->q, QARG_WHOSE);

	if (!reader)
		return;
	buf_puts(w->sql, ", ");
	put_value(w, reader, TEXT);
}

/* FAIL: of a delivery. */
static void put_failed(struct rewriter *w)
{
	static const struct qverb_arg events = {.id = QARG_EVENT, .kind = QKIND_EVENTS};

	if (!qstmt_has(w->q, QARG_EVENT))
		return;
	buf_puts(w->sql, ", ");
	put_array(w, &events, ELEMENT_VALUE);
}

static void put_kind(struct rewriter *w)
{
	buf_puts(w->sql, qpayloads[w->q->payload].name);
}

static void put_stated(struct rewriter *w)
{
	buf_puts(w->sql, w->q->bytes ? ", 'bytea'" : "");
}

static void put_batched(struct rewriter *w)
{
	const struct qvalue *batch = qstmt_one(w->q, QARG_BATCH);
	static const struct qverb_arg after = {.id = QARG_AFTER, .kind = QKIND_WORDS};

	if (batch) {
		buf_puts(w->sql, ", batch => ");
		put_value(w, batch, TEXT);
	}
	if (qstmt_has(w->q, QARG_AFTER)) {
		buf_puts(w->sql, ", after => ");
		put_array(w, &after, ELEMENT_VALUE);
	}
}

static void put_kept(struct rewriter *w)
{
	buf_puts(w->sql, qstmt_has(w->q, QARG_KEEP) ? ", true" : "");
}

/* The queue of a job, and its key; as most have none, the text is that of a shorter call. */
static void put_named(struct rewriter *w)
{
	const struct qvalue *on = qstmt_one(w->q, QARG_ON), *key = qstmt_one(w->q, QARG_BY_KEY);

	if (!on)
		return;
	buf_puts(w->sql, ", ");
	put_value(w, on, TEXT);
	if (!key)
		return;
	buf_puts(w->sql, ", ");
	put_value(w, key, TEXT);
}

/* Those of these two that are given, by name. */
static void put_given(
	struct rewriter *w, const struct qverb *verb, enum qarg_id one, enum qarg_id other)
{

	for (int i = 0; i < verb->n_args; i++) {
		const struct qverb_arg *a = &verb->args[i];

		if ((a->id != one && a->id != other) || !qstmt_has(w->q, a->id))
			continue;
		buf_printf(w->sql, ", %s => ", a->name);
		put_argument(w, a);
	}
}

/* KEY ... FOR, IF NEWER: behind what every push says. */
static void put_once(struct rewriter *w)
{
	put_given(w, qstmt_last(w->q), QARG_KEEP_FOR, QARG_NEWER);
}

/* RUN: behind what every one says. */
static void put_ran(struct rewriter *w)
{
	put_given(w, w->q->verb, QARG_TIMEOUT, QARG_KEEPS);
	put_given(w, w->q->verb, QARG_FORMAT, QARG_ELSEWHERE);
	for (int i = 0; i < w->q->verb->n_args; i++)
		if (w->q->verb->args[i].id == QARG_WITH && qstmt_has(w->q, QARG_WITH)) {
			buf_puts(w->sql, ", format_with => pg_catalog.jsonb_object(");
			put_argument(w, &w->q->verb->args[i]);
			buf_putc(w->sql, ')');
		}
}

/* Of which jobs. */
static void put_only(struct rewriter *w)
{
	if (qstmt_has(w->q, QARG_WHERE))
		put_template(w, w->q->verb, QUEUE_WHICH_SQL);
}

/* ... and where they are looked for: REDRIVE is of dead ones. */
static void put_seen(struct rewriter *w)
{
	const struct qvalue *state = qstmt_one(w->q, QARG_STATE);

	if (state)
		put_value(w, state, TEXT);
	else
		buf_puts(w->sql, w->q->verb->id == QVERB_REDRIVE ? "'dead'" : "NULL");
}

/* PURGE: NULL for what was said is refused by the function, and does not mean all jobs. */
static void put_said(struct rewriter *w, enum qarg_id id, const char *instead)
{
	const struct qverb *verb = w->q->verb;

	for (int i = 0; i < verb->n_args; i++) {
		if (verb->args[i].id != id)
			continue;
		buf_puts(w->sql, qstmt_has(w->q, id) ? "coalesce(" : "");
		put_argument(w, &verb->args[i]);
		if (qstmt_has(w->q, id))
			buf_printf(w->sql, ", %s)", instead);
	}
}

static void put_of_state(struct rewriter *w)
{
	put_said(w, QARG_STATE, "''");
}

static void put_older_than(struct rewriter *w)
{
	put_said(w, QARG_OLDER, "'-1 s'");
}

/* REDRIVE: which ones, and where to. */
static void put_moved(struct rewriter *w)
{
	const struct qvalue *state = qstmt_one(w->q, QARG_STATE), *to = qstmt_one(w->q, QARG_TO);

	if (state) {
		buf_puts(w->sql, ", which => ");
		put_value(w, state, TEXT);
	}
	if (to) {
		buf_puts(w->sql, ", target => ");
		put_value(w, to, TEXT);
	}
}

static bool returns_job(const struct qstmt *q)
{
	return qstmt_has(q, QARG_RETURNING) && q->returning != QRETURN_ID;
}

static void put_returned(struct rewriter *w)
{
	static const char *const lists[QRETURN_COUNT] = {[QRETURN_ID] = "p AS id",
		[QRETURN_JOB] = "p.job",
		[QRETURN_ID_JOB] = "p.id, p.job",
		[QRETURN_JOB_ID] = "p.job, p.id"};
	enum qreturning what = qstmt_has(w->q, QARG_RETURNING) ? w->q->returning : QRETURN_ID;

	buf_puts(w->sql, what == QRETURN_ID && qstmt_then(w->q, QVERB_MOVE) ? "p.id" : lists[what]);
}

/* The function that gives both. */
static void put_which(struct rewriter *w)
{
	buf_puts(w->sql, returns_job(w->q) ? "_jobs" : "");
}

/* The job of each row, where it was asked for. */
static void put_routed(struct rewriter *w)
{
	buf_puts(w->sql, qstmt_has(w->q, QARG_ROUTED) ? ", job" : "");
}

/* SCHEDULE: what is pushed each time. */
static void put_scheduled(struct rewriter *w)
{
	bool runs = qstmt_has(w->q, QARG_STATEMENT);

	put_template(w, w->q->verb,
		runs ? "queue._sql_job({on}, {statement}, {params}, {alone}{ran})" : "{payload}");
}

/* GRANT, REVOKE: what on. */
static void put_of_topic(struct rewriter *w)
{
	bool topic = qstmt_has(w->q, QARG_TOPIC);

	buf_puts(w->sql, topic ? "_topic(" : "(");
	put_value(w, qstmt_one(w->q, topic ? QARG_TOPIC : QARG_QUEUE), TEXT);
}

/* What the proxy knows of those who work and wait. */
static void put_known(struct rewriter *w)
{
	const char *known = w->token_of ? w->token_of(w->arg, QTOKEN_KNOWN, "", 0) : NULL;

	if (known)
		put_token(w, known);
	else
		buf_puts(w->sql, "NULL::" TEXT);
}

static bool put_word(struct rewriter *w, const char *name, size_t len)
{
	static const struct {
		const char *name;
		void (*put)(struct rewriter *w);
	} words[] = {{"of", put_of}, {"kind", put_kind}, {"stated", put_stated},
		{"batched", put_batched}, {"once", put_once}, {"ran", put_ran}, {"which", put_only},
		{"seen", put_seen}, {"moved", put_moved}, {"kept", put_kept}, {"named", put_named},
		{"known", put_known}, {"returned", put_returned}, {"jobs", put_which},
		{"routed", put_routed}, {"of_topic", put_of_topic}, {"scheduled", put_scheduled},
		{"read", put_read}, {"failed", put_failed}, {"whose", put_whose},
		{"of_state", put_of_state}, {"older_than", put_older_than}};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strlen(words[i].name) != len || memcmp(words[i].name, name, len) != 0)
			continue;
		words[i].put(w);
		return true;
	}
	return false;
}

/* An argument of this verb, or of the one before THEN. */
static void put_template(struct rewriter *w, const struct qverb *verb, const char *p)
{
	while (*p) {
		size_t text = strcspn(p, "{"), name;
		const struct qverb_arg *a;

		buf_put(w->sql, p, text);
		p += text;
		if (!*p)
			break;
		name = strcspn(++p, "}");
		a = find_arg(verb, p, name);
		if (put_word(w, p, name)) {
			/* no word has the name of an argument, or the template could not say that */
			ASSERT(a == NULL || a->kind == QKIND_ROUTED);
		} else {
			if (!a)
				a = find_arg(w->q->verb, p, name);
			ASSERT(a != NULL);
			if (a)
				put_argument(w, a);
		}
		p += name + 1;
	}
}

static void put_statement(struct rewriter *w)
{
	static const char sql[] = QUEUE_THEN_PUSH_SQL, done[] = "{done}";
	const char *at = strstr(sql, done);

	if (qstmt_by_time(w->q)) {
		put_template(w, w->q->verb, QUEUE_STATS_BY_SQL);
		return;
	}
	if (qstmt_has(w->q, QARG_PARTIAL)) {
		put_template(w, w->q->verb, QUEUE_PARTIAL_SQL);
		return;
	}
	if (w->q->verb->id == QVERB_PEEK && qstmt_has(w->q, QARG_WHERE)) {
		put_template(w, w->q->verb, QUEUE_PEEK_WHERE_SQL);
		return;
	}
	if ((w->q->verb->flags & QVERB_AUTONOMOUS) != 0 ||
		(w->spans && qstmt_then(w->q, QVERB_TAKE))) {
		put_template(w, qstmt_last(w->q),
			qstmt_has(w->q, QARG_READER) ? QUEUE_TAKE_FOR_WHERE_SQL
						     : QUEUE_TAKE_WHERE_SQL);
		return;
	}
	if (qstmt_then(w->q, QVERB_MOVE)) {
		put_template(w, w->q->then, QUEUE_THEN_MOVE_SQL);
		return;
	}
	if (!qstmt_then(w->q, QVERB_PUSH)) {
		put_template(w, w->q->verb, w->q->verb->sql);
		return;
	}
	ASSERT(at != NULL);
	buf_puts(w->sql, "SELECT ");
	put_returned(w);
	buf_put(w->sql, sql + strlen("SELECT {returned}"),
		(size_t)(at - sql) - strlen("SELECT {returned}"));
	put_template(w, w->q->verb, w->q->verb->sql);
	put_template(w, w->q->then, at + sizeof(done) - 1);
}

static bool finished(const struct rewriter *w, struct pg_error *err)
{
	if (buf_failed(w->sql))
		pg_error_set(err, "53200", "out of memory");
	else if (w->bad_token)
		pg_error_set(err, "XX000", "malformed lease token");
	else
		return true;
	return false;
}

bool qstmt_sql(
	const struct qstmt *q, qjob_token_fn *fn, void *arg, struct buf *sql, struct pg_error *err)
{
	struct rewriter w = {.q = q, .token_of = fn, .arg = arg, .sql = sql};

	ASSERT(q->verb->sql != NULL);
	put_statement(&w);
	return finished(&w, err);
}

/* Values stand in the statement in their order. */
static void find_theirs(const struct qstmt *q, struct qspan *spans)
{
	struct counted theirs = {0};

	for (int i = 0; i < q->n_values; i++) {
		const struct qvalue *v = &q->values[i];

		if (v->kind == QV_EXPRESSION)
			spans[v->nth].theirs =
				characters_to(&theirs, q->text, (size_t)(v->src - q->text)) + 1;
	}
}

bool qstmt_expressions_sql(
	const struct qstmt *q, struct buf *sql, struct qspan *spans, struct pg_error *err)
{
	struct rewriter w = {.q = q, .sql = sql, .spans = spans};

	put_statement(&w);
	find_theirs(q, spans);
	return finished(&w, err);
}

bool qstmt_names_sql(
	const struct qstmt *q, qjob_token_fn *fn, void *arg, struct buf *sql, struct pg_error *err)
{
	struct rewriter w = {.q = q, .token_of = fn, .arg = arg, .sql = sql};

	put_template(&w, q->verb, "SELECT queue FROM queue._names({job}) AS queue");
	return finished(&w, err);
}

/* --- parameters --- */

void qstmt_server_oids(const struct qstmt *q, uint32_t *oids)
{
	if (q->n_params)
		memcpy(oids, q->param_oids, (size_t)q->n_params * sizeof(*oids));
	for (int i = 0; i < qstmt_count(q, QARG_JOB); i++) {
		const struct qvalue *v = qstmt_value(q, QARG_JOB, i);

		if (v->kind == QV_PARAM)
			oids[v->param - 1] = OID_TEXT;
	}
}

/* --- values --- */

static void put_element(struct buf *out, const char *text, size_t len)
{
	buf_putc(out, '"');
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"' || text[i] == '\\')
			buf_putc(out, '\\');
		buf_putc(out, text[i]);
	}
	buf_putc(out, '"');
}

static uint64_t big_endian(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

static enum qeval eval_int(const struct qparam *p, int bytes, struct buf *out)
{
	uint64_t v;

	if (p->len != bytes)
		return QEVAL_BAD;
	v = big_endian(p->data, bytes);
	if (bytes == 2)
		v = (uint64_t)(int16_t)v;
	else if (bytes == 4)
		v = (uint64_t)(int32_t)v;
	buf_printf(out, "%" PRId64, (int64_t)v);
	return QEVAL_OK;
}

/* int64 microseconds, int32 days, int32 months: in a text that Postgres and we read the same. */
static enum qeval eval_interval(const struct qparam *p, struct buf *out)
{
	uint64_t usec, sec;
	bool negative;

	if (p->len != 16)
		return QEVAL_BAD;
	usec = big_endian(p->data, 8);
	negative = usec >> 63;
	if (negative)
		usec = -usec;
	sec = usec / USEC_SEC;
	buf_printf(out, "%" PRId32 " mons %" PRId32 " days %s%02" PRIu64 ":%02u:%02u.%06u",
		(int32_t)big_endian(p->data + 12, 4), (int32_t)big_endian(p->data + 8, 4),
		negative ? "-" : "", sec / 3600, (unsigned)(sec / 60 % 60), (unsigned)(sec % 60),
		(unsigned)(usec % USEC_SEC));
	return QEVAL_OK;
}

static enum qeval eval_uuid(const struct qparam *p, struct buf *out)
{
	char hex[33];

	if (p->len != 16)
		return QEVAL_BAD;
	util_hex(hex, p->data, 16);
	buf_printf(out, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
	return QEVAL_OK;
}

/* As Postgres writes bytea, and reads it. */
static void put_hex(struct buf *out, const uint8_t *p, size_t len)
{
	char hex[513];

	buf_puts(out, "\\x");
	while (len > 0) {
		size_t n = len < 256 ? len : 256;

		util_hex(hex, p, n);
		buf_put(out, hex, 2 * n);
		p += n;
		len -= n;
	}
}

static enum qeval eval_binary(const struct qparam *p, struct buf *out);

/* In binary, of one dimension: as Postgres writes it, each element in quotes. */
static enum qeval eval_array(const struct qparam *p, struct buf *out)
{
	const uint8_t *at = p->data, *end = p->data + p->len;
	uint64_t dims, n;
	uint32_t type;

	if (p->len < 12 || (dims = big_endian(at, 4)) > 1 || (dims == 1 && p->len < 20))
		return QEVAL_BAD;
	type = (uint32_t)big_endian(at + 8, 4);
	if (type != OID_TEXT && type != OID_VARCHAR && type != OID_INT2 && type != OID_INT4 &&
		type != OID_INT8)
		return QEVAL_BAD;
	n = dims ? big_endian(at + 12, 4) : 0;
	at += dims ? 20 : 12;
	buf_putc(out, '{');
	for (uint64_t i = 0; i < n; i++) {
		struct qparam one = {.format = 1, .oid = type};
		struct buf text = BUF_INIT;
		enum qeval how = QEVAL_OK;

		if (end - at < 4)
			return QEVAL_BAD;
		one.len = (int32_t)(uint32_t)big_endian(at, 4);
		at += 4;
		if (one.len > end - at || one.len < -1)
			return QEVAL_BAD;
		one.data = at;
		at += one.len > 0 ? one.len : 0;
		buf_puts(out, i ? "," : "");
		if (one.len < 0)
			buf_puts(out, "NULL");
		else if ((how = eval_binary(&one, &text)) == QEVAL_OK)
			put_element(out, (const char *)text.data, text.len);
		buf_free(&text);
		if (how != QEVAL_OK)
			return QEVAL_BAD;
	}
	buf_putc(out, '}');
	return at == end ? QEVAL_OK : QEVAL_BAD;
}

static enum qeval eval_binary(const struct qparam *p, struct buf *out)
{
	switch (p->oid) {
	case 0:
	case OID_TEXT:
	case OID_VARCHAR:
	case OID_UNKNOWN:
	case OID_JSON:
		buf_put(out, p->data, (size_t)p->len);
		return QEVAL_OK;
	case OID_JSONB:
		if (p->len < 1 || p->data[0] != 1)
			return QEVAL_BAD;
		buf_put(out, p->data + 1, (size_t)p->len - 1);
		return QEVAL_OK;
	case OID_BYTEA:
		put_hex(out, p->data, (size_t)p->len);
		return QEVAL_OK;
	case OID_INT2:
		return eval_int(p, 2, out);
	case OID_INT4:
		return eval_int(p, 4, out);
	case OID_INT8:
		return eval_int(p, 8, out);
	case OID_INTERVAL:
		return eval_interval(p, out);
	case OID_UUID:
		return eval_uuid(p, out);
	case OID_TEXT_ARRAY:
	case OID_VARCHAR_ARRAY:
	case OID_INT4_ARRAY:
	case OID_INT8_ARRAY:
		return eval_array(p, out);
	default:
		return QEVAL_BAD;
	}
}

enum qeval qvalue_eval(const struct qvalue *v, const struct qbind *bind, struct buf *out)
{
	const struct qparam *p;

	if (v->kind == QV_NULL)
		return QEVAL_NULL;
	if (v->kind == QV_EXPRESSION)
		return QEVAL_BAD;
	if (v->kind != QV_PARAM) {
		buf_put(out, v->text, v->text_len);
		return QEVAL_OK;
	}
	if (!bind || v->param > bind->n)
		return QEVAL_BAD;
	p = &bind->params[v->param - 1];
	if (p->len < 0)
		return QEVAL_NULL;
	if (p->format == 0) {
		buf_put(out, p->data, (size_t)p->len);
		return QEVAL_OK;
	}
	return p->format == 1 ? eval_binary(p, out) : QEVAL_BAD;
}
