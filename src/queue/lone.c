/*
 * The texts of lone statements, of each queue that is worth it. Entry points: lone_*.
 */
#include "conf/conf.h"
#include "net/loop.h"
#include "queue_call.h"
#include "lone.h"
#include "wire/row.h"

#define REFUSED_FOR                                                                                \
	(1 * USEC_SEC) /* a queue that is altered again and again is not asked about each time */
#define FAILED_FOR (60 * USEC_SEC) /* nobody could say */

/* What is committed together. A lease that a crash forgets has not been. */
enum { LAST = 1, NEED_NOT_LAST };

struct lone {
	struct pstmt *texts[LONE_VERBS]; /* or NULL */
	bool known;                      /* also that there are none */
	bool async;                      /* what they do need not survive a crash */
	bool asking;
	bool left;          /* by its head: the answer frees it */
	unsigned forgotten; /* so many times; what was asked before does not count */
	usec_t not_before;  /* the next question */
};

struct question {
	struct lone *lone;
	unsigned forgotten;
	bool answered;
};

static const uint32_t *oids_of(enum lone_verb verb, int *n_params)
{
	static const uint32_t push[] = {OID_TEXT, OID_INT4};
	static const uint32_t take[] = {
		OID_TEXT, OID_INT4, OID_INTERVAL, OID_INT8, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ};
	static const uint32_t usual[] = {
		OID_TEXT, OID_INT4, OID_INT8, OID_INT4, OID_INT8, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ};
	static const uint32_t done[] = {OID_INT8, OID_TEXT};

	switch (verb) {
	case LONE_PUSH:
		*n_params = ARRAY_LEN(push);
		return push;
	case LONE_TAKE:
		*n_params = ARRAY_LEN(take);
		return take;
	case LONE_USUAL:
		*n_params = ARRAY_LEN(usual);
		return usual;
	case LONE_DONE:
	case LONE_VERBS:
		break;
	}
	*n_params = ARRAY_LEN(done);
	return done;
}

static void drop_texts(struct lone *o)
{
	for (int i = 0; i < LONE_VERBS; i++)
		task_text_free(&o->texts[i]);
	o->known = false;
}

static bool take_texts(struct lone *o, const struct wire_col *cols)
{
	const uint32_t *oids;
	int n;

	o->known = true;
	o->async = cols[LONE_VERBS].len == 1 && cols[LONE_VERBS].data[0] == 't';
	for (int i = 0; i < LONE_VERBS; i++) {
		if (cols[i].len < 0)
			continue;
		oids = oids_of((enum lone_verb)i, &n);
		o->texts[i] = task_text((const char *)cols[i].data, (size_t)cols[i].len, oids, n);
		if (o->texts[i] == NULL) {
			drop_texts(o);
			return false;
		}
	}
	return true;
}

static struct lone *lone_of(struct head *l)
{
	if (l->lone == NULL)
		l->lone = mem_zalloc(sizeof(*l->lone));
	return l->lone;
}

bool lone_is_wanted(void)
{
	return conf_current()->p.queue_engine_after > 0;
}

void lone_learn(struct head *l, const struct wire_col *cols)
{
	struct lone *o = lone_of(l);

	CHECK_HEAD(l);
	if (o == NULL)
		return;
	drop_texts(o);
	o->forgotten++; /* what is being asked may be older */
	(void)!take_texts(o, cols);
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct question *qn = arg;
	struct lone *o = qn->lone;
	struct wire_col cols[LONE_COLUMNS];

	if (qn->answered || o->forgotten != qn->forgotten ||
		!wire_row_read(body, len, cols, LONE_COLUMNS))
		return;
	qn->answered = take_texts(o, cols);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct question *qn = arg;
	struct lone *o = qn->lone;

	o->asking = false;
	if (err != NULL && o->forgotten == qn->forgotten)
		drop_texts(o);
	if (!o->known)
		o->not_before = loop_now() + (err != NULL ? FAILED_FOR : REFUSED_FOR);
	mem_free(qn);
	if (o->left) {
		drop_texts(o);
		mem_free(o);
	}
}

static void ask(struct head *l, struct pool *pool)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct question *qn = mem_zalloc(sizeof(*qn));
	uint8_t number[4];
	struct bind_param param = {.data = number, .len = sizeof(number), .format = 1};
	struct task_spec spec = call_task(CALL_LONE, &param, &ops, qn);

	if (qn == NULL)
		return;
	spec.engine = true;
	for (int i = 0; i < 4; i++)
		number[i] = (uint8_t)(l->number >> (24 - 8 * i));
	qn->lone = l->lone;
	qn->forgotten = l->lone->forgotten;
	if (task_submit(pool, &spec) == NULL) {
		mem_free(qn);
		return;
	}
	l->lone->asking = true;
}

struct pstmt *lone_text(struct head *l, struct pool *pool, enum lone_verb verb, int *n_params)
{
	struct lone *o = lone_of(l);

	CHECK_HEAD(l);
	if (o == NULL)
		return NULL;
	if (!o->known && !o->asking && l->number != 0 && l->db != NULL &&
		loop_now() >= o->not_before)
		ask(l, pool);
	if (o->texts[verb] != NULL)
		(void)oids_of(verb, n_params);
	return o->texts[verb];
}

uint8_t lone_together(const struct head *l, enum lone_verb verb)
{
	CHECK_HEAD(l);
	return verb == LONE_TAKE || verb == LONE_USUAL || (l->lone != NULL && l->lone->async)
		       ? NEED_NOT_LAST
		       : LAST;
}

void lone_forget(struct head *l)
{
	if (l->lone == NULL)
		return;
	drop_texts(l->lone);
	l->lone->forgotten++;
}

void lone_refused(struct head *l)
{
	CHECK_HEAD(l);
	if (l->lone != NULL && l->lone->known)
		l->lone->not_before = loop_now() + REFUSED_FOR;
	lone_forget(l);
}

void lone_free(struct head *l)
{
	lone_forget(l);
	if (l->lone != NULL && l->lone->asking)
		l->lone->left = true;
	else
		mem_free(l->lone);
	l->lone = NULL;
}
