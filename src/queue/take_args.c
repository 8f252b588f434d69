/*
 * The arguments of TAKE and POP as they are written, and whether it is possible now; AWAIT and DONE ...
 * THEN TAKE share them. Must not know: what becomes of it.
 *
 * Entry points: take_check(), take_args_*, take_text(), take_wait().
 */
#include <string.h>

#include "wire/sqllex.h"
#include "queue_int.h"
#include "take.h"

#define DELIVERY_DEFAULT 100 /* events */
#define HOLD_DEFAULT     (3600 * (int64_t)USEC_SEC)

/* --- values --- */

static bool eval(const struct qvalue *v, const struct bind_values *b, struct buf *out, bool *null,
	struct pg_error *err, const char *what)
{
	struct qbind qb = bind_read(b);

	*null = false;
	switch (qvalue_eval(v, &qb, out)) {
	case QEVAL_NULL:
		*null = true;
		return true;
	case QEVAL_OK:
		if (buf_failed(out)) {
			pg_error_set(err, "53200", "out of memory");
			return false;
		}
		if (out->len == 0 || memchr(out->data, 0, out->len) == NULL)
			return true;
		/* no text of Postgres holds it, and ours would end there */
		pg_error_set(err, "22021", "invalid byte sequence for encoding \"UTF8\": 0x00");
		return false;
	case QEVAL_BAD:
		break;
	}
	pg_error_set(err, "22023", "the value of %s cannot be read", what);
	pg_error_hint(err, "Bind it as text.");
	return false;
}

static bool take_queue(struct take_args *a, int i, const struct qvalue *v,
	const struct bind_values *b, struct pg_error *err)
{
	struct buf text = BUF_INIT;
	bool null, ok = false;

	if (!eval(v, b, &text, &null, err, "the queue name"))
		goto out;
	if (null)
		pg_error_set(err, "22004", "the queue name must not be null");
	else if (text.len == 0)
		pg_error_set(err, "42602", "the queue name must not be empty");
	else if (text.len > QSTMT_QUEUE_MAX)
		pg_error_set(
			err, "42622", "the queue name is longer than %d bytes", QSTMT_QUEUE_MAX);
	else
		ok = true;
	if (ok)
		util_strlcpy(a->queues[i], buf_cstr(&text), sizeof(a->queues[i]));
out:
	buf_free(&text);
	return ok;
}

static bool take_limit(struct take_args *a, const struct qvalue *v, const struct bind_values *b,
	struct pg_error *err, int64_t n)
{
	struct buf text = BUF_INIT;
	bool null, ok = false;

	a->limit = (int)n;
	if (v == NULL)
		return true;
	if (!eval(v, b, &text, &null, err, "LIMIT"))
		goto out;
	if (!null && !util_parse_i64((const char *)text.data, text.len, &n))
		pg_error_set(err, "22P02", "invalid input syntax for type integer: \"%.50s\"",
			buf_cstr(&text));
	else if (n < 1 || n > LIMIT_MAX)
		pg_error_set(err, "22023", "LIMIT must be between 1 and %d", LIMIT_MAX);
	else
		ok = true;
	a->limit = (int)n;
out:
	buf_free(&text);
	return ok;
}

/* What Postgres says of an int4. */
static bool take_rank(struct take_args *a, const struct qvalue *v, const struct bind_values *b,
	struct pg_error *err)
{
	struct buf text = BUF_INIT;
	bool null, ok = false;
	int64_t n = 0;

	if (!eval(v, b, &text, &null, err, "RANK"))
		goto out;
	if (!null && !util_parse_i64((const char *)text.data, text.len, &n))
		pg_error_set(err, "22P02", "invalid input syntax for type integer: \"%.50s\"",
			buf_cstr(&text));
	else if (n < INT32_MIN || n > INT32_MAX)
		pg_error_set(err, "22003", "RANK is out of range for type integer");
	else
		ok = true;
	a->rank = (int32_t)n;
out:
	buf_free(&text);
	return ok;
}

bool take_wait(struct take_args *a, const struct qvalue *v, const struct bind_values *b,
	struct pg_error *err)
{
	const struct params *p = &conf_current()->p;
	struct buf text = BUF_INIT;
	bool null, ok = false;
	int64_t usec = 0;

	a->wait = p->queue_wait_default;
	if (v == NULL)
		return true;
	if (!eval(v, b, &text, &null, err, "WAIT"))
		goto out;
	if (!null && !sql_interval_usec((const char *)text.data, text.len, &usec))
		pg_error_set(err, "22007", "invalid input syntax for type interval: \"%.50s\"",
			buf_cstr(&text));
	else if (usec < 0)
		pg_error_set(err, "22023", "WAIT must not be negative");
	else
		ok = true;
	a->wait = (usec_t)usec;
	if (p->queue_wait_max > 0 && a->wait > p->queue_wait_max)
		a->wait = p->queue_wait_max;
out:
	buf_free(&text);
	return ok;
}

bool take_args_hold(struct take_args *a, usec_t hold)
{
	char lease[40];

	a->hold = hold;
	a->span = conf_current()->p.queue_hold_lease;
	if (a->span > a->hold)
		a->span = a->hold;
	sql_interval_text(lease, sizeof(lease), (int64_t)a->span);
	return (a->lease = mem_strdup(lease)) != NULL;
}

/* HOLD [interval]: leased for a short time, which is renewed. */
static bool take_hold(struct take_args *a, const struct qstmt *q, const struct bind_values *b,
	struct pg_error *err)
{
	const struct qvalue *v = qstmt_one(q, QARG_HOLD);
	struct buf text = BUF_INIT;
	bool null = v == NULL, ok = false;
	int64_t usec = HOLD_DEFAULT;

	if (!qstmt_has(q, QARG_HOLD))
		return true;
	if (v != NULL && !eval(v, b, &text, &null, err, "HOLD"))
		goto out;
	if (!null && !sql_interval_usec((const char *)text.data, text.len, &usec))
		pg_error_set(err, "22007", "invalid input syntax for type interval: \"%.50s\"",
			buf_cstr(&text));
	else if (usec <= 0)
		pg_error_set(err, "22023", "HOLD must be longer than zero");
	else
		ok = true;
	if (ok && !take_args_hold(a, (usec_t)usec)) {
		pg_error_set(err, "53200", "out of memory");
		ok = false;
	}
out:
	buf_free(&text);
	return ok;
}

bool take_text(char **ret, const struct qvalue *v, const struct bind_values *b,
	struct pg_error *err, const char *what)
{
	struct buf text = BUF_INIT;
	bool null, ok;

	*ret = NULL;
	if (v == NULL)
		return true;
	ok = eval(v, b, &text, &null, err, what);
	if (ok && !null && (*ret = mem_strdup(buf_cstr(&text))) == NULL) {
		pg_error_set(err, "53200", "out of memory");
		ok = false;
	}
	buf_free(&text);
	return ok;
}

/* --- all of them --- */

static bool has_queue(const struct take_args *a, const char *name)
{
	for (int i = 0; i < a->n_queues; i++)
		if (strcmp(a->queues[i], name) == 0)
			return true;
	return false;
}

bool take_args_queues(struct take_args *a, const struct names *names)
{
	NAMES_FOREACH (at, names) {
		size_t size = (size_t)(a->n_queues + 1) * sizeof(a->queues[0]);
		void *more = has_queue(a, at) ? NULL : mem_realloc(a->queues, size);

		if (more == NULL && !has_queue(a, at))
			return false;
		if (more == NULL)
			continue;
		a->queues = more;
		util_strlcpy(a->queues[a->n_queues++], at, sizeof(a->queues[0]));
	}
	return !names_failed(names);
}

static bool take_args_read(struct take_args *a, const struct qstmt *q, const struct bind_values *b,
	const struct names *names, struct pg_error *err)
{
	enum qarg_id id = q->verb->id == QVERB_AWAIT ? QARG_ON : QARG_QUEUE;
	int n = qstmt_count(q, id);

	a->pop = q->verb->id == QVERB_POP;
	a->grouped = qstmt_has(q, QARG_GROUPED);
	a->payload = q->payload;
	a->described = q->described;
	if (n > 0)
		a->queues = mem_zalloc((size_t)n * sizeof(a->queues[0]));
	if (n > 0 ? a->queues == NULL : names != NULL && !take_args_queues(a, names)) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	if (n > 0)
		a->n_queues = n;
	for (int i = 0; i < n; i++)
		if (!take_queue(a, i, qstmt_value(q, id, i), b, err))
			return false;
	if (qstmt_has(q, QARG_RANK) && !take_rank(a, qstmt_one(q, QARG_RANK), b, err))
		return false;
	return take_limit(a, qstmt_one(q, QARG_LIMIT), b, err,
		       qstmt_has(q, QARG_READER) ? DELIVERY_DEFAULT : 1) &&
	       take_wait(a, qstmt_one(q, QARG_WAIT), b, err) &&
	       take_text(&a->lease, qstmt_one(q, QARG_LEASE), b, err, "LEASE") &&
	       take_hold(a, q, b, err) && take_text(&a->as, qstmt_one(q, QARG_AS), b, err, "AS");
}

void take_args_free(struct take_args *a)
{
	mem_free(a->queues);
	mem_free(a->lease);
	mem_free(a->as);
	take_where_free(&a->where);
	*a = (struct take_args){0};
}

bool take_same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool suits_grouped(const struct qstmt *q, struct pg_error *err)
{
	bool reads = qstmt_has(q, QARG_READER);

	if (!qstmt_has(q, QARG_GROUPED) || (!reads && !qstmt_has(q, QARG_WHERE)))
		return true;
	pg_error_set(err, "0A000", "GROUPED is not possible with %s", reads ? "a stream" : "WHERE");
	if (!reads)
		pg_error_detail(err,
			"A job that does not fit would be in front of others of its group "
			"that do, and they come in order.");
	pg_error_hint(err, "%s",
		reads ? "A delivery has the events in their order."
		      : "Take without WHERE, or one of a group at a time.");
	return false;
}

/* What belongs to a stream, and where it stands. */
static bool suits(const struct qstmt *q, struct pg_error *err)
{
	bool reads = qstmt_has(q, QARG_READER);

	if (!reads &&
		(qstmt_has(q, QARG_LEAST) || qstmt_has(q, QARG_WITHIN) || qstmt_has(q, QARG_LAG))) {
		pg_error_set(err, "0A000",
			"MIN, WITHIN and LAG are of streams: TAKE stream FOR subscription");
		pg_error_hint(err, "QUEUE HELP TAKE shows the usage.");
		return false;
	}
	return suits_grouped(q, err);
}

bool take_check(const struct exec *x, const struct qstmt *q, const struct names *names,
	struct take_args *ret, struct pg_error *err)
{
	const char *then = q->then != NULL ? " ... THEN TAKE" : "";

	if (!x->alone) {
		pg_error_set(err, "0A000", "QUEUE %s%s has to be alone in its query string",
			q->verb->name, then);
		pg_error_hint(err, "Send it as a statement of its own.");
		return false;
	}
	if (!suits(q, err) || !take_args_read(ret, q, &x->bind, names, err))
		return false;
	if (qstmt_has(q, QARG_WAIT) && ret->wait > 0 && !x->first) {
		pg_error_set(err, "25001", "QUEUE %s%s with WAIT cannot run in a transaction%s",
			q->verb->name, then,
			q->then != NULL ? "" : " that has already done something");
		pg_error_hint(err, "%s",
			q->then != NULL ? "Take without WAIT, or after the transaction."
			: q->verb->id == QVERB_AWAIT
				? "Await the job first, right after BEGIN, or without WAIT."
				: "Take the job first, right after BEGIN, or without WAIT.");
		return false;
	}
	if (qstmt_has(q, QARG_WHERE) && (ret->where = take_where_new(x, q, err)) == NULL)
		return false;
	if (!x->first)
		ret->wait = 0;
	if (x->max_rows > 0 && ret->limit > x->max_rows)
		ret->limit = x->max_rows;
	return true;
}
