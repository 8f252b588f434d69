/*
 * A statement for each verb, made from its row in the verb table: what the tests of the parser and
 * of the rewriter run over.
 */
#ifndef QB_TEST_QUEUE_SAMPLES_H
#define QB_TEST_QUEUE_SAMPLES_H

#include "base/buf.h"
#include "qlang/verb.h"

/* A value as its kind wants it, without the keyword. */
static inline const char *sample_value(enum qarg_kind kind)
{
	switch (kind) {
	case QKIND_QUEUE:
	case QKIND_QUEUES:
		return "mail";
	case QKIND_PAYLOADS:
	case QKIND_JSON:
		return "'{\"a\": 1}'";
	case QKIND_JOBS:
	case QKIND_EVENTS:
	case QKIND_REFS:
	case QKIND_REF:
	case QKIND_INT:
		return "17";
	case QKIND_INTERVAL:
	case QKIND_MAY_INTERVAL:
		return "'30s'";
	case QKIND_TIMESTAMP:
		return "'2030-01-01'";
	case QKIND_TEXT:
		return "'text'";
	case QKIND_WORDS:
		return "push, take";
	case QKIND_RETURNING:
		return "id, job";
	case QKIND_ROUTED:
		return "queue, job";
	case QKIND_CONTAINED:
		return "@> '{\"a\": 1}'";
	case QKIND_STATE:
		return "ready";
	case QKIND_PUBLISHED:
		return "'orders.paid' 'text'";
	case QKIND_FLAG:
		return "";
	case QKIND_OPTIONS:
		return "(lease = '5 min', max_attempts = 3)";
	case QKIND_NAMES:
		return "(lease, retry)";
	case QKIND_VERB:
		return "push";
	case QKIND_TABLE:
		return "app.orders";
	case QKIND_SQL:
		return "(new.total > 7)";
	case QKIND_CONDITION:
		return "(id > 7 AND key = ')')";
	case QKIND_THEN:
		return "push mail '1'";
	}
	return "";
}

static inline void sample_arg(struct buf *b, const struct qverb_arg *arg)
{
	if (arg->keyword)
		buf_printf(b, " %s", arg->keyword);
	buf_printf(b, " %s", sample_value(arg->kind));
}

/* The statement with all arguments, of alternatives the first; without those of the bit mask. */
static inline void sample_statement(struct buf *b, const struct qverb *verb, unsigned without)
{
	unsigned alts = 0;

	buf_reset(b);
	buf_printf(b, verb->flags & QVERB_BEHIND ? "QUEUE DONE 17 THEN %s" : "QUEUE %s", verb->name);
	for (int i = 0; i < verb->n_args; i++) {
		const struct qverb_arg *arg = &verb->args[i];

		if ((without >> i & 1) || (arg->alt && (alts >> arg->alt & 1)))
			continue;
		alts |= 1u << arg->alt;
		sample_arg(b, arg);
	}
}

/* The statement with its arguments that have no keyword. */
static inline void sample_positional(struct buf *b, const struct qverb *verb)
{
	unsigned clauses = 0;

	for (int i = 0; i < verb->n_args; i++)
		clauses |= (verb->args[i].keyword ? 1u : 0u) << i;
	sample_statement(b, verb, clauses);
}

/* The statement with what it needs, of alternatives the first, so that these two may be added: without them, and without
 * what excludes them. */
static inline void sample_required(
	struct buf *b, const struct qverb *verb, const struct qverb_arg *one, const struct qverb_arg *two)
{
	unsigned without = 0;

	for (int i = 0; i < verb->n_args; i++) {
		const struct qverb_arg *arg = &verb->args[i];
		bool added = arg == one || arg == two || (arg->alt && (arg->alt == one->alt || arg->alt == two->alt));

		without |= (arg->keyword && (arg->need == QNEED_MAY || added) ? 1u : 0u) << i;
	}
	sample_statement(b, verb, without);
}

#endif
