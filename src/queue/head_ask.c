/*
 * What is not known of queues is asked of the database: their numbers and payloads (head.h), or the
 * payload of a job. Clients whose statement waits for it are executed again when it is answered.
 *
 * Entry points: heads_ask(), heads_ask_job(), head_used().
 */
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "queue_call.h"
#include "head_int.h"
#include "lone.h"

#define ASK_AFTER 5 /* statements of a queue whose number is not known */

/* Numbers and payloads of some heads, or the payload of a job. */
struct question {
	struct qclient *waiting, **last; /* in the order of coming: so they will wait for jobs */
	head_answered_fn *answered;      /* for each of them */
	bool found;
	enum qpayload payload; /* of the last one */
	usec_t asked_at;
	struct task *task;
	struct qdb *db;
	int n;
	struct asked {
		struct head *head;
		unsigned forgotten; /* of the head when it was asked */
	} asked[];
};

/* What it says of the head counts: also when another question has asked for the same since. */
static bool has_asked(const struct question *qn, const struct head *l)
{
	for (int i = 0; i < qn->n; i++)
		if (qn->asked[i].head == l)
			return qn->asked[i].forgotten == l->forgotten;
	return false;
}

/* name, number, payload, all texts; of a queue, not of a job, its plain statements. */
static void question_row(void *arg, const uint8_t *body, size_t len)
{
	struct question *qn = arg;
	struct wire_col cols[3 + LONE_COLUMNS];
	int n = qn->n > 0 ? 3 + LONE_COLUMNS : 3;
	char name[QSTMT_QUEUE_MAX + 1];
	enum qpayload payload;
	struct head *l;
	int64_t number;

	if (!wire_row_read(body, len, cols, n) || !wire_col_copy(&cols[0], name, sizeof(name)) ||
		!wire_col_number(&cols[1], &number) || cols[2].len < 0 ||
		!qpayload_read((const char *)cols[2].data, (size_t)cols[2].len, &payload))
		return;
	l = head_find(qn->db, name);
	if (number == 0) {
		if (l != NULL && has_asked(qn, l)) {
			l->stream = true;
			l->payload = payload;
		}
		return;
	}
	qn->found = true;
	qn->payload = payload;
	if (l == NULL || !has_asked(qn, l))
		return;
	if (l->number != number)
		head_renew(l, number);
	l->payload = payload;
	if (n > 3 && cols[3 + LONE_VERBS].len >= 0) /* they were asked for */
		lone_learn(l, &cols[3]);
}

/* Nobody joins it any more. told: or nobody can be asked. */
static void question_close(struct question *qn, bool told)
{
	for (int i = 0; i < qn->n; i++) {
		struct head *l = qn->asked[i].head;

		if (l->question != qn)
			continue;
		l->question = NULL;
		l->absent_at = told && l->number == 0 ? loop_now() : 0;
	}
}

static void question_free(struct question *qn)
{
	question_close(qn, false);
	for (int i = 0; i < qn->n; i++)
		head_unref(qn->asked[i].head);
	mem_free(qn);
}

/* One of them was made or dropped meanwhile: who waits asks again. */
static bool was_forgotten(const struct question *qn)
{
	for (int i = 0; i < qn->n; i++)
		if (qn->asked[i].forgotten != qn->asked[i].head->forgotten)
			return true;
	return false;
}

static void question_done(void *arg, const struct pg_error *err)
{
	struct question *qn = arg;
	enum head_answered end;
	struct qclient *qc;
	bool in_vain = err == NULL && was_forgotten(qn);

	question_close(qn, err == NULL || strcmp(err->sqlstate, "53300") != 0);
	while ((qc = qn->waiting) != NULL) {
		qn->waiting = qc->question_next;
		if (qn->waiting == NULL)
			qn->last = &qn->waiting;
		qc->question = NULL;
		end = qn->answered(qc, err, qn->asked_at);
		if (end == HEAD_NOBODY)
			continue;
		qc->asked = !in_vain && end != HEAD_AGAIN;
		qc->job_payload = err == NULL && qn->found ? qn->payload : QPAYLOAD_JSONB;
		client_again(qc->client);
	}
	question_free(qn);
}

static void question_join(struct question *qn, struct qclient *qc, head_answered_fn *answered)
{
	qn->answered = answered;
	*qn->last = qc;
	qn->last = &qc->question_next;
	qc->question = qn;
	qc->question_next = NULL;
}

static struct question *question_new(struct qdb *db, int n)
{
	struct question *qn = mem_zalloc(sizeof(*qn) + (size_t)n * sizeof(qn->asked[0]));

	if (qn != NULL) {
		qn->db = db;
		qn->asked_at = loop_now();
		qn->last = &qn->waiting;
	}
	return qn;
}

static bool question_send(
	struct question *qn, struct pool *pool, enum call_id id, const struct bind_param *params)
{
	static const struct task_ops ops = {.row = question_row, .done = question_done};
	struct task_spec spec = call_task(id, params, &ops, qn);

	spec.engine = true;
	qn->task = task_submit(pool, &spec);
	return qn->task != NULL;
}

static void question_add(struct question *qn, struct head *l)
{
	l->refs++;
	l->question = qn;
	l->stream = false;
	qn->asked[qn->n++] = (struct asked){l, l->forgotten};
}

static bool question_ask(struct question *qn, struct pool *pool)
{
	const char **names = mem_alloc(((size_t)qn->n + 1) * sizeof(*names));
	struct buf array = BUF_INIT;
	bool ok = names != NULL;

	for (int i = 0; ok && i < qn->n; i++)
		names[i] = qn->asked[i].head->name;
	if (ok)
		array_texts(&array, names, qn->n);
	ok = ok && !buf_failed(&array) &&
	     question_send(qn, pool, CALL_NUMBERS,
		     (struct bind_param[]){
			     {.data = array.data, .len = (int32_t)array.len, .format = 1},
			     {.data = (const uint8_t *)(lone_is_wanted() ? "t" : "f"), .len = 1}});
	if (!ok)
		question_free(qn);
	mem_free(names);
	buf_free(&array);
	return ok;
}

/* Queues that are used again and again are worth asking about. */
void head_used(struct head *l, struct pool *pool)
{
	struct question *qn;

	CHECK_HEAD(l);
	if (l->number != 0 || l->question != NULL || ++l->uses % ASK_AFTER != 0 ||
		head_is_absent(l->db, l->name))
		return;
	qn = question_new(l->db, 1);
	if (qn == NULL)
		return;
	question_add(qn, l);
	(void)!question_ask(qn, pool);
}

/* All of them have been asked about in one question that is under way. */
static struct question *already_asked(
	struct qdb *db, const char (*queues)[QSTMT_QUEUE_MAX + 1], int n)
{
	struct question *qn = NULL;

	for (int i = 0; i < n; i++) {
		const struct head *l = head_find(db, queues[i]);

		if (l == NULL || l->question == NULL || (qn != NULL && l->question != qn))
			return NULL;
		qn = l->question;
	}
	return qn;
}

bool heads_ask(struct qclient *qc, const char (*queues)[QSTMT_QUEUE_MAX + 1], int n,
	head_answered_fn *answered)
{
	struct question *qn = already_asked(qc->taker.db, queues, n);
	struct head *l;

	CHECK_QCLIENT(qc);
	if (qn != NULL) {
		question_join(qn, qc, answered);
		return true;
	}
	qn = question_new(qc->taker.db, n);
	if (qn == NULL)
		return false;
	for (int i = 0; i < n; i++) {
		l = head_ref(qc->taker.db, queues[i]);
		if (l == NULL) {
			question_free(qn);
			return false;
		}
		question_add(qn, l);
		head_unref(l);
	}
	if (!question_ask(qn, client_pool(qc->client)))
		return false;
	question_join(qn, qc, answered);
	return true;
}

bool heads_ask_job(struct qclient *qc, const char *job, head_answered_fn *answered)
{
	struct question *qn = question_new(qc->taker.db, 0);

	CHECK_QCLIENT(qc);
	if (qn == NULL)
		return false;
	if (!question_send(qn, client_pool(qc->client), CALL_NUMBER_OF_JOB,
		    &(struct bind_param){
			    .data = (const uint8_t *)job, .len = (int32_t)strlen(job)})) {
		question_free(qn);
		return false;
	}
	question_join(qn, qc, answered);
	return true;
}

void heads_forget_client(struct qclient *qc)
{
	struct question *qn = qc->question;
	struct qclient **at;

	CHECK_QCLIENT(qc);
	if (qn == NULL)
		return;
	at = &qn->waiting;
	while (*at != qc)
		at = &(*at)->question_next;
	*at = qc->question_next;
	if (qn->last == &qc->question_next)
		qn->last = at;
	qc->question = NULL;
	/* who comes later would have waited before it came */
	if (qn->waiting != NULL || task_is_sent(qn->task))
		return;
	task_drop(&qn->task);
	question_free(qn);
}
