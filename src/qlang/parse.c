/*
 * The statement level of the QUEUE parser: verb, arguments in the order of the verb table, clauses
 * in any order, each once. Values are read by parse_value.c. Entry points: qstmt_parse, qstmt_free,
 * qstmt_columns.
 */
#include "parse_int.h"

#include <string.h>

#include "base/mem.h"

static bool at_end(const struct parser *p)
{
	return p->t.kind == SQL_END || p->t.kind == SQL_SEMICOLON;
}

/* --- the verb --- */

static bool unknown_verb(struct parser *p)
{
	qverb_unknown(p->t.text, p->t.len, p->err);
	parser_place(p, p->t.text);
	return false;
}

static void look_ahead(const struct parser *p, struct sql_token *ret)
{
	struct sql_lexer ahead = p->lx;

	sql_lex_next(&ahead, ret);
}

/* Length of the first word of a keyword such as "IF NOT EXISTS". */
static size_t word_len(const char *keyword)
{
	return strcspn(keyword, " ");
}

static bool begins_clause(const struct qverb *verb, const struct sql_token *t)
{
	for (int i = 0; i < verb->n_args; i++) {
		const char *k = verb->args[i].keyword;

		if (k && parser_word_is(t, k, word_len(k)))
			return true;
	}
	return false;
}

/* CREATE TOPIC IF NOT EXISTS x, but CREATE topic IF NOT EXISTS: a clause of both that something stands behind. */
static bool names_another(const struct parser *p, const struct qverb *verb)
{
	for (int i = 0; i < verb->n_args; i++) {
		const char *k = verb->args[i].keyword;
		struct sql_lexer ahead = p->lx;
		struct sql_token t;

		if (!k || verb->args[i].kind != QKIND_FLAG)
			continue;
		sql_lex_next(&ahead, &t);
		while (parser_word_is(&t, k, word_len(k))) {
			bool last = !k[word_len(k)];

			sql_lex_next(&ahead, &t);
			if (last)
				return t.kind == SQL_IDENT || t.kind == SQL_QIDENT ||
				       t.kind == SQL_STRING || t.kind == SQL_PARAM;
			k += word_len(k) + 1;
		}
	}
	return false;
}

/* ALTER JOB 17, but ALTER job SET is about a queue. No job is named by a bare word: CANCEL ALL ON q. */
static void second_word(struct parser *p)
{
	const struct qverb *verb =
		p->t.kind == SQL_IDENT ? qverb_second(p->q->verb, p->t.text, p->t.len) : NULL;
	struct sql_token behind;

	if (!verb)
		return;
	look_ahead(p, &behind);
	if (p->q->verb->args[0].kind == QKIND_QUEUE && !names_another(p, verb) &&
		(behind.kind == SQL_END || behind.kind == SQL_SEMICOLON ||
			begins_clause(p->q->verb, &behind)))
		return;
	p->q->verb = verb;
	parser_advance(p);
}

static bool parse_verb(struct parser *p)
{
	while (p->t.kind == SQL_SEMICOLON)
		parser_advance(p);
	if (!parser_at(p, "queue"))
		return parser_syntax_error(p);
	parser_advance(p);
	if (p->t.kind != SQL_IDENT)
		return parser_syntax_error(p);
	p->q->verb = qverb_find(p->t.text, p->t.len);
	if (!p->q->verb)
		return unknown_verb(p);
	if (p->q->verb->flags & QVERB_BEHIND)
		return parser_syntax_error(p);
	parser_advance(p);
	second_word(p);
	return true;
}

/* --- arguments --- */

static bool add_value(struct parser *p, enum qarg_id id, const struct qvalue *v)
{
	struct qstmt *q = p->q;

	if (q->n_values == q->cap_values) {
		int cap = q->cap_values * 4;
		size_t size = (size_t)cap * sizeof(*v);
		struct qvalue *more = mem_realloc(q->values == q->few ? NULL : q->values, size);

		if (!more)
			return parser_out_of_memory(p);
		if (q->values == q->few)
			memcpy(more, q->few, sizeof(q->few));
		q->values = more;
		q->cap_values = cap;
	}
	q->values[q->n_values++] = *v;
	q->args[id].n++;
	return true;
}

static bool parse_one_of_list(struct parser *p, const struct qverb_arg *arg, value_fn *parse)
{
	struct qvalue v = {0};

	if (p->q->args[arg->id].n == QSTMT_LIST_MAX) {
		pg_error_set(p->err, "54000", "too many values in one QUEUE %s statement",
			p->q->verb->name);
		pg_error_detail(p->err, "At most %d are possible.", QSTMT_LIST_MAX);
		parser_place(p, p->t.text);
		return false;
	}
	return parse(p, &v) && add_value(p, arg->id, &v);
}

/* One or more values with commas between them. */
static bool parse_list(struct parser *p, const struct qverb_arg *arg, value_fn *parse)
{
	for (;;) {
		if (!parse_one_of_list(p, arg, parse))
			return false;
		if (!parser_at_char(p, ','))
			return true;
		parser_advance(p);
	}
}

/* ARRAY[a, b]: its elements are values of the list. */
static bool parse_elements(struct parser *p, const struct qverb_arg *arg)
{
	parser_advance(p);
	parser_advance(p);
	return (parser_at_char(p, ']') || parse_list(p, arg, parser_value)) && parser_array_end(p);
}

/* ANY(array) */
static bool parse_any(struct parser *p, const struct qverb_arg *arg)
{
	struct qvalue v = {.list = true};

	parser_advance(p);
	parser_advance(p);
	if (parser_at(p, "array") && parser_at_array(p))
		return parse_elements(p, arg) && parser_expect_char(p, ')');
	return parser_value(p, &v) && add_value(p, arg->id, &v) && parser_expect_char(p, ')');
}

/* Jobs with commas between them, among them arrays of jobs. */
static bool parse_jobs(struct parser *p, const struct qverb_arg *arg)
{
	for (;;) {
		bool ok = !parser_at_array(p)   ? parse_one_of_list(p, arg, parser_value)
			  : parser_at(p, "any") ? parse_any(p, arg)
						: parse_elements(p, arg);

		if (!ok)
			return false;
		if (!parser_at_char(p, ','))
			return true;
		parser_advance(p);
	}
}

static bool parse_one(struct parser *p, const struct qverb_arg *arg, value_fn *parse)
{
	struct qvalue v = {0};

	return parse(p, &v) && add_value(p, arg->id, &v);
}

static bool option_repeated(
	struct parser *p, const struct qverb_arg *arg, const struct qvalue *v, const char *at)
{
	const struct qarg *given = &p->q->args[arg->id];

	for (int i = given->first; i < p->q->n_values; i++) {
		const struct qvalue *w = &p->q->values[i];

		if (w->option_len != v->option_len ||
			memcmp(w->option, v->option, v->option_len) != 0)
			continue;
		pg_error_set(p->err, "42601", "option \"%.*s\" is given twice",
			(int)(v->option_len > NEAR_MAX ? NEAR_MAX : v->option_len), v->option);
		parser_place(p, at);
		return true;
	}
	return false;
}

#define OPTIONS_MAX 100 /* far more than there are */

/* (name = value, ...) or, for RESET, (name, ...) */
static bool parse_options(struct parser *p, const struct qverb_arg *arg)
{
	if (!parser_expect_char(p, '('))
		return false;
	for (;;) {
		struct qvalue v = {0};
		const char *at = p->t.text;

		if (!parser_name(p, &v))
			return false;
		v.option = v.text;
		v.option_len = v.text_len;
		if (option_repeated(p, arg, &v, at))
			return false;
		if (arg->kind == QKIND_OPTIONS &&
			(!parser_expect_char(p, '=') || !parser_name_or_value(p, &v)))
			return false;
		if (p->q->args[arg->id].n == OPTIONS_MAX)
			return parser_syntax_error(p);
		if (!add_value(p, arg->id, &v))
			return false;
		if (!parser_at_char(p, ','))
			return parser_expect_char(p, ')');
		parser_advance(p);
	}
}

static bool parse_help_verb(struct parser *p, const struct qverb_arg *arg)
{
	if (p->t.kind == SQL_IDENT && !qverb_find(p->t.text, p->t.len))
		return unknown_verb(p);
	return parse_one(p, arg, parser_name_or_value);
}

static const struct qverb_arg *find_clause(const struct parser *p);
static bool parse_then(struct parser *p);

static bool refuse_bulk(struct parser *p)
{
	bool then = p->q->then != NULL;

	pg_error_set(p->err, "0A000", "%s takes payloads, not a query or a copy",
		then ? "DONE ... THEN PUSH" : p->q->verb->name);
	pg_error_hint(p->err, then ? "In a transaction, DONE and the other PUSH are two statements."
				   : "Of a query: SELECT queue.publish(...) FROM ...");
	parser_place(p, p->t.text);
	return false;
}

/* A PUSH that has one runs on the client's own server, as one of a query does: it is no less the
 * client's own SQL. */
static bool may_compute(const struct parser *p, const struct qverb_arg *arg)
{
	if ((p->q->verb->id != QVERB_PUSH && p->q->verb->id != QVERB_PUBLISH) || p->q->then)
		return false;
	switch (arg->kind) {
	case QKIND_PAYLOADS:
	case QKIND_INT:
	case QKIND_INTERVAL:
	case QKIND_TIMESTAMP:
	case QKIND_JSON:
	case QKIND_TEXT:
		return true;
	default:
		return false;
	}
}

/* The payload is that of a PUSH, which cannot stand there, too. */
static bool parse_published(struct parser *p, const struct qverb_arg *arg)
{
	struct qarg *payload = &p->q->args[QARG_SCHEDULED];
	struct qvalue v = {0};

	ASSERT(!payload->given);
	if (!parse_one(p, arg, parser_name_or_value) || !parser_value(p, &v))
		return false;
	payload->given = true;
	payload->first = p->q->n_values;
	return add_value(p, QARG_SCHEDULED, &v);
}

static bool parse_argument(struct parser *p, const struct qverb_arg *arg)
{
	struct qarg *given = &p->q->args[arg->id];

	p->may_compute = may_compute(p, arg);
	given->given = true;
	given->first = p->q->n_values;
	switch (arg->kind) {
	case QKIND_QUEUE:
		return parse_one(p, arg, parser_queue);
	case QKIND_QUEUES:
		return parse_list(p, arg, parser_queue);
	case QKIND_PAYLOADS:
		if (parser_at_bulk(p))
			return p->q->then || p->q->verb->id == QVERB_PUBLISH ? refuse_bulk(p)
									     : parser_bulk(p);
		return parse_list(p, arg, parser_value);
	case QKIND_JOBS:
	case QKIND_EVENTS:
	case QKIND_REFS:
		return parse_jobs(p, arg);
	case QKIND_RETURNING:
		return parser_returning(p);
	case QKIND_ROUTED:
		return parser_routed(p);
	case QKIND_CONTAINED:
		return parser_contains(p) && parse_one(p, arg, parser_value);
	case QKIND_REF:
	case QKIND_INT:
	case QKIND_INTERVAL:
	case QKIND_TIMESTAMP:
	case QKIND_JSON:
	case QKIND_TEXT:
		return parse_one(p, arg, parser_value);
	case QKIND_MAY_INTERVAL:
		return at_end(p) || find_clause(p) != NULL || parse_one(p, arg, parser_value);
	case QKIND_PUBLISHED:
		return parse_published(p, arg);
	case QKIND_CONDITION:
		return parse_one(p, arg, parser_condition);
	case QKIND_TABLE:
		return parse_one(p, arg, parser_table);
	case QKIND_SQL:
		return parse_one(p, arg, parser_kept);
	case QKIND_WORDS:
		return parse_list(p, arg, parser_name_or_value);
	case QKIND_STATE:
		return parse_one(p, arg, parser_name_or_value);
	case QKIND_FLAG:
		return true;
	case QKIND_OPTIONS:
	case QKIND_NAMES:
		return parse_options(p, arg);
	case QKIND_VERB:
		return parse_help_verb(p, arg);
	case QKIND_THEN:
		return parse_then(p);
	}
	return parser_syntax_error(p);
}

/* --- clauses --- */

/* GRANT PUSH ON topic TO bob */
static bool is_queue_named_so(const struct parser *p, const struct qverb_arg *arg)
{
	struct sql_lexer ahead = p->lx;
	struct sql_token t;

	if (arg->id != QARG_TOPIC)
		return false;
	sql_lex_next(&ahead, &t);
	sql_lex_next(&ahead, &t);
	return begins_clause(p->q->verb, &t);
}

/* The clause that begins here. Of two that begin alike (ON, ON DUPLICATE) the second word decides; one that lacks its
 * second word is told by who reads it. */
static const struct qverb_arg *find_clause(const struct parser *p)
{
	const struct qverb *verb = qstmt_last(p->q);
	const struct qverb_arg *begun = NULL;
	struct sql_token next;

	for (int i = 0; i < verb->n_args; i++) {
		const char *k = verb->args[i].keyword;
		size_t n = k ? word_len(k) : 0;

		if (!k || !parser_word_is(&p->t, k, n))
			continue;
		if (!k[n])
			return &verb->args[i];
		look_ahead(p, &next);
		if (parser_word_is(&next, k + n + 1, word_len(k + n + 1)) &&
			!is_queue_named_so(p, &verb->args[i]))
			return &verb->args[i];
		if (!begun)
			begun = &verb->args[i];
	}
	return begun;
}

static bool parse_keyword(struct parser *p, const char *keyword)
{
	for (;;) {
		size_t n = word_len(keyword);

		if (!parser_word_is(&p->t, keyword, n))
			return parser_syntax_error(p);
		parser_advance(p);
		if (!keyword[n])
			return true;
		keyword += n + 1;
	}
}

/* Each clause once, and only one of those that exclude each other. */
static bool check_once(struct parser *p, const struct qverb_arg *arg)
{
	const struct qverb *verb = qstmt_last(p->q);
	bool bad = p->q->args[arg->id].given;

	if (bad)
		pg_error_set(p->err, "42601", "%s is given twice", arg->keyword);
	for (int i = 0; i < verb->n_args && !bad; i++) {
		const struct qverb_arg *other = &verb->args[i];

		bad = arg->alt && other->alt == arg->alt && p->q->args[other->id].given;
		if (bad)
			pg_error_set(p->err, "42601", "%s and %s exclude each other",
				other->keyword ? other->keyword : other->name, arg->keyword);
	}
	if (bad) {
		parser_place(p, p->t.text);
		parser_hint_usage(p);
	}
	return !bad;
}

static bool parse_clauses(struct parser *p)
{
	while (!at_end(p)) {
		const struct qverb_arg *arg = find_clause(p);

		if (!arg)
			return parser_syntax_error(p);
		if (!check_once(p, arg) || !parse_keyword(p, arg->keyword) ||
			!parse_argument(p, arg))
			return false;
	}
	return true;
}

static bool satisfied(const struct qstmt *q, const struct qverb *verb, const struct qverb_arg *arg)
{
	bool given = q->args[arg->id].given || arg->need == QNEED_MAY;

	for (int i = 0; i < verb->n_args && arg->alt; i++)
		given = given || (verb->args[i].alt == arg->alt && q->args[verb->args[i].id].given);
	return given;
}

/* CREATE IF NOT EXISTS q: a clause of several words that stands before what it belongs behind. A
 * queue may have the name of its first. */
static bool leading_clause(struct parser *p)
{
	const struct qverb_arg *arg = find_clause(p);
	struct sql_token next;
	const char *second;

	if (!arg || arg->kind != QKIND_FLAG || !arg->keyword[word_len(arg->keyword)])
		return true;
	second = arg->keyword + word_len(arg->keyword) + 1;
	look_ahead(p, &next);
	if (!parser_word_is(&next, second, word_len(second)))
		return true;
	return parse_keyword(p, arg->keyword) && parse_argument(p, arg);
}

/* KEY instead of a job, SCHEDULE instead of a queue; at the end it is the name of one. */
static bool other_is_next(const struct parser *p, const struct qverb_arg *arg)
{
	const struct qverb_arg *next = arg->alt ? find_clause(p) : NULL;
	struct sql_token behind;

	if (!next || next->alt != arg->alt)
		return false;
	look_ahead(p, &behind);
	return arg->id != QARG_QUEUE || (behind.kind != SQL_END && behind.kind != SQL_SEMICOLON);
}

static bool key_has_queue(struct parser *p)
{
	enum qarg_id id = p->q->verb->id == QVERB_AWAIT && qstmt_has(p->q, QARG_BATCH)
				  ? QARG_BATCH
				  : QARG_BY_KEY;

	if (!qstmt_has(p->q, id) || qstmt_has(p->q, QARG_ON))
		return true;
	pg_error_set(p->err, "42601", "%s needs ON and the queue of the job%s",
		id == QARG_BATCH ? "BATCH" : "KEY", id == QARG_BATCH ? "s" : "");
	parser_place(p, qstmt_one(p->q, id)->src);
	parser_hint_usage(p);
	return false;
}

/* Is this word a clause, as something other than a clause stands behind it? */
static bool clause_is_next(struct parser *p)
{
	struct parser ahead = *p;

	if (!find_clause(p))
		return false;
	look_ahead(p, &ahead.t);
	return !at_end(&ahead) && !find_clause(&ahead);
}

/* The arguments of the verb that was read last. */
static bool parse_arguments(struct parser *p)
{
	const struct qverb *verb = qstmt_last(p->q);
	/* the queue is that of the jobs that are done; what is named like a clause is one */
	bool may_lack = qstmt_then(p->q, QVERB_TAKE) && (at_end(p) || find_clause(p));

	if (!leading_clause(p))
		return false;
	for (int i = 0; i < verb->n_args; i++) {
		const struct qverb_arg *arg = &verb->args[i];

		if (arg->keyword || may_lack ||
			(arg->need == QNEED_MAY && (at_end(p) || clause_is_next(p))) ||
			other_is_next(p, arg))
			continue;
		if (!parse_argument(p, arg))
			return false;
	}
	if (!parse_clauses(p) || !key_has_queue(p))
		return false;
	for (int i = 0; i < verb->n_args; i++) {
		const struct qverb_arg *arg = &verb->args[i];

		if (!satisfied(p->q, verb, arg) && (arg->keyword || !may_lack))
			return parser_syntax_error(p);
	}
	return true;
}

static bool parse_then(struct parser *p)
{
	static const int verbs[] = {QVERB_PUSH, QVERB_TAKE, QVERB_MOVE};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		const struct qverb *verb = &qverbs[verbs[i]];

		if (!parser_at(p, verb->name))
			continue;
		parser_advance(p);
		p->q->then = verb;
		return parse_arguments(p);
	}
	return parser_syntax_error(p);
}

static bool parse_statement(struct parser *p)
{
	if (!parse_verb(p) || !parse_arguments(p))
		return false;
	while (p->t.kind == SQL_SEMICOLON)
		parser_advance(p);
	return p->t.kind == SQL_END || parser_syntax_error(p);
}

/* --- the whole --- */

/* What the statement says of a parameter that the client has not declared; what is said first
 * counts. */
static void set_param_type(struct qstmt *q, const struct qvalue *v)
{
	int n = v->param - 1;
	uint32_t oid = v->cast_oid ? v->cast_oid : v->list ? OID_TEXT_ARRAY : 0;

	if (v->kind != QV_PARAM || !oid || !q->param_free[n])
		return;
	q->param_oids[n] = oid;
	q->param_free[n] = false;
}

/* Of the parameters in an expression, as of those of a query, only the server knows the types. */
static void leave_params_open(struct qstmt *q, const struct qvalue *v)
{
	struct sql_lexer lx;
	struct sql_token t;

	sql_lex_init(&lx, v->src, v->src_len, q->standard_strings);
	for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t))
		if (t.kind == SQL_PARAM && q->param_free[t.param - 1])
			q->param_oids[t.param - 1] = 0;
}

void qstmt_param_uses(const struct qstmt *q, uint8_t *uses)
{
	struct sql_lexer lx;
	struct sql_token t;

	memset(uses, 0, (size_t)q->n_params);
	for (int i = 0; i < q->n_values; i++) {
		const struct qvalue *v = &q->values[i];

		if (v->kind == QV_PARAM)
			uses[v->param - 1] |= QPARAM_VALUE;
		if (v->kind != QV_EXPRESSION)
			continue;
		sql_lex_init(&lx, v->src, v->src_len, q->standard_strings);
		for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t))
			if (t.kind == SQL_PARAM)
				uses[t.param - 1] |= QPARAM_IN_SQL;
	}
}

static bool set_params(struct parser *p, const uint32_t *oids, int n_oids)
{
	struct qstmt *q = p->q;

	q->n_params = p->max_param > n_oids ? p->max_param : n_oids;
	if (!q->n_params)
		return true;
	q->param_oids =
		mem_alloc((size_t)q->n_params * (sizeof(*q->param_oids) + sizeof(*q->param_free)));
	if (!q->param_oids)
		return parser_out_of_memory(p);
	q->param_free = (bool *)(q->param_oids + q->n_params);
	for (int i = 0; i < q->n_params; i++) {
		q->param_free[i] = i >= n_oids || !oids[i];
		q->param_oids[i] = !q->param_free[i] ? oids[i] : q->bulk.kind ? 0 : OID_TEXT;
	}
	for (int i = 0; i < q->n_values && !q->bulk.kind; i++)
		set_param_type(q, &q->values[i]);
	for (int i = 0; i < q->n_values && q->n_expressions > 0; i++)
		if (q->values[i].kind == QV_EXPRESSION)
			leave_params_open(q, &q->values[i]);
	return true;
}

struct qstmt *qstmt_parse(const char *sql, size_t len, bool standard_strings,
	const uint32_t *param_oids, int n_oids, struct pg_error *err)
{
	struct parser p = {.err = err};
	bool ok;

	if (len > QSTMT_TEXT_MAX) {
		pg_error_set(err, "54000", "QUEUE statement is too long");
		pg_error_detail(
			err, "It has %zu bytes, at most %zu are possible.", len, QSTMT_TEXT_MAX);
		pg_error_hint(err, "Send large payloads as parameters.");
		return NULL;
	}
	p.q = mem_alloc(sizeof(*p.q) + len + 1);
	if (!p.q) {
		parser_out_of_memory(&p);
		return NULL;
	}
	memset(p.q, 0, sizeof(*p.q));
	memcpy(p.q->text, sql, len);
	p.q->text[len] = '\0';
	p.q->text_len = len;
	p.q->standard_strings = standard_strings;
	p.q->values = p.q->few;
	p.q->cap_values = ARRAY_LEN(p.q->few);

	sql_lex_init(&p.lx, p.q->text, len, standard_strings);
	sql_lex_next(&p.lx, &p.t);
	ok = parse_statement(&p) && set_params(&p, param_oids, n_oids);
	buf_free(&p.scratch);
	if (!ok)
		qstmt_free(&p.q);
	return p.q;
}

void qstmt_free(struct qstmt **ptr)
{
	struct qstmt *q = *ptr;

	if (!q)
		return;
	while (q->chunks) {
		struct qchunk *c = q->chunks;

		q->chunks = c->next;
		mem_free(c);
	}
	if (q->values != q->few)
		mem_free(q->values);
	mem_free(q->param_oids);
	mem_free(q);
	*ptr = NULL;
}

const struct wire_field *qstmt_columns(const struct qstmt *q, int *ret_n)
{
	if (qstmt_has(q, QARG_RETURNING)) {
		*ret_n = q->returning >= QRETURN_ID_JOB ? 2 : 1;
		return qverb_push_columns[q->returning];
	}
	if (qstmt_has(q, QARG_ROUTED)) {
		*ret_n = ARRAY_LEN(qverb_routed_columns);
		return qverb_routed_columns;
	}
	if (qstmt_has(q, QARG_PARTIAL)) {
		*ret_n = ARRAY_LEN(qverb_partial_columns);
		return qverb_partial_columns;
	}
	if (q->verb->id == QVERB_AWAIT && qstmt_has(q, QARG_BATCH)) {
		*ret_n = ARRAY_LEN(qverb_batch_columns);
		return qverb_batch_columns;
	}
	if (qstmt_by_time(q)) {
		*ret_n = ARRAY_LEN(qverb_figures_columns);
		return qverb_figures_columns;
	}
	if (qstmt_has(q, QARG_READER)) {
		*ret_n = ARRAY_LEN(qverb_delivered_columns[0]);
		return qverb_delivered_columns[q->payload];
	}
	*ret_n = qstmt_last(q)->n_columns;
	return qstmt_last(q)->flags & QVERB_PAYLOAD ? qverb_columns(qstmt_last(q), q->payload)
						    : qstmt_last(q)->columns;
}
