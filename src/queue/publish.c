/*
 * Publications of many clients as one statement. The functions of a topic do it, which the database makes for what is
 * bound to it (sql/functions/route.sql): by the topic's number, which is asked for when it is used again and again. They
 * refuse when something else is bound by then, and the same batch goes by the topic's name. Must not know: requests.
 *
 * Entry points: publish_shape, published_row().
 */
#include <stdio.h>
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "head.h"
#include "publish.h"
#include "queue_call.h"

#define TOPICS_MAX 1000 /* of a database; those that nobody uses are forgotten */
#define TOPIC_MAX  255
#define ASK_AFTER  3              /* statements of a topic whose number is not known */
#define ASK_EACH   (1 * USEC_SEC) /* not more often, however often it is bound to */
#define LOOK_EACH                                                                                  \
	(10 * USEC_SEC) /* of one that is published to in transactions alone, and so refuses nothing */

#define TOPIC_MAGIC    0x5170f1c5u
#define CHECK_TOPIC(t) INVARIANT_IS(t, TOPIC_MAGIC, "no topic, or a freed one")

struct topic {
	uint32_t magic;
	UT_hash_handle hh;
	struct qdb *db; /* NULL: it is freed with its last reference */
	unsigned refs;  /* of shapes and questions */
	unsigned uses;  /* while the number is not known */
	unsigned forgotten;
	int64_t number; /* 0: not known */
	bool asking;
	bool doubtful; /* what is known is used, and looked at */
	usec_t asked_at;
	char name[QSTMT_QUEUE_MAX + 1];
};

/* --- the table --- */

static void topic_free(struct topic *t)
{
	t->magic = 0;
	mem_free(t);
}

static void topic_unref(struct topic *t)
{
	CHECK_TOPIC(t);
	INVARIANT(t->refs > 0, "a topic is let go by more than hold it");
	if (--t->refs == 0 && t->db == NULL)
		topic_free(t);
}

static void topic_drop(struct topic *t)
{
	HASH_DEL(t->db->topics, t);
	t->db = NULL;
	if (t->refs == 0)
		topic_free(t);
}

static struct topic *topic_ref(struct qdb *db, const char *name)
{
	struct topic *t, *tmp;

	HASH_FIND_STR(db->topics, name, t);
	if (t == NULL) {
		if (HASH_COUNT(db->topics) >= TOPICS_MAX)
			HASH_ITER (hh, db->topics, t, tmp)
				if (t->refs == 0)
					topic_drop(t);
		t = HASH_COUNT(db->topics) < TOPICS_MAX ? mem_zalloc(sizeof(*t)) : NULL;
		if (t == NULL)
			return NULL;
		t->magic = TOPIC_MAGIC;
		t->db = db;
		util_strlcpy(t->name, name, sizeof(t->name));
		HASH_ADD_STR(db->topics, name, t);
		if (t->hh.tbl == NULL) {
			topic_free(t);
			return NULL;
		}
	}
	CHECK_TOPIC(t);
	t->refs++;
	return t;
}

void topics_doubt(struct qdb *db)
{
	CHECK_QDB(db);
	for (struct topic *t = db->topics; t != NULL; t = t->hh.next)
		t->doubtful = true;
}

static void forget(struct topic *t)
{
	t->number = 0;
	t->uses = ASK_AFTER - 1; /* it was worth it */
	t->forgotten++;
}

void topics_forget(struct qdb *db)
{
	CHECK_QDB(db);
	for (struct topic *t = db->topics; t != NULL; t = t->hh.next)
		forget(t);
}

void topics_free(struct qdb *db)
{
	while (db->topics != NULL)
		topic_drop(db->topics);
}

/* With dots between them: none is empty, and none is a pattern. */
static bool has_words(const struct buf *topic)
{
	uint8_t last = '.';

	for (size_t i = 0; i < topic->len; i++) {
		uint8_t c = topic->data[i];

		if (c == '*' || c == '#' || (c == '.' && last == '.'))
			return false;
		last = c;
	}
	return last != '.';
}

bool topic_name(const struct buf *topic, char dst[QSTMT_QUEUE_MAX + 1])
{
	const uint8_t *dot;
	size_t n;

	if (buf_failed(topic) || topic->len == 0 || memchr(topic->data, 0, topic->len) != NULL)
		return false;
	dot = memchr(topic->data, '.', topic->len);
	n = dot != NULL ? (size_t)(dot - topic->data) : topic->len;
	if (n == 0 || n > QSTMT_QUEUE_MAX || topic->len > TOPIC_MAX || !has_words(topic))
		return false;
	memcpy(dst, topic->data, n);
	dst[n] = '\0';
	return true;
}

/* --- its number --- */

struct question {
	struct topic *topic;
	unsigned forgotten;
	int64_t number;
};

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct question *qn = arg;
	struct wire_col number = wire_row_value(body, len);

	if (!wire_col_number(&number, &qn->number))
		qn->number = 0;
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct question *qn = arg;
	struct topic *t = qn->topic;

	CHECK_TOPIC(t);
	INVARIANT(t->asking, "an answer about a topic that nobody has asked about");
	t->asking = false;
	if (t->forgotten == qn->forgotten)
		t->number = err == NULL ? qn->number : 0;
	topic_unref(t);
	mem_free(qn);
}

static void ask(struct topic *t, struct pool *pool)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done};
	struct question *qn = mem_zalloc(sizeof(*qn));
	struct bind_param param = {
		.data = (const uint8_t *)t->name, .len = (int32_t)strlen(t->name)};
	struct task_spec spec = call_task(CALL_ROUTES, &param, &ops, qn);

	if (qn == NULL)
		return;
	spec.engine = true;
	qn->topic = t;
	qn->forgotten = t->forgotten;
	if (task_submit(pool, &spec) == NULL) {
		mem_free(qn);
		return;
	}
	t->asking = true;
	t->doubtful = false;
	t->asked_at = loop_now();
	t->refs++;
}

static void use(struct topic *t, struct pool *pool)
{
	bool wanted = t->number == 0 ? ++t->uses >= ASK_AFTER : t->doubtful;

	if (wanted && !t->asking && t->db != NULL &&
		(t->asked_at == 0 || loop_now() - t->asked_at >= ASK_EACH))
		ask(t, pool);
}

void topic_used(struct qdb *db, struct pool *pool, const char *name)
{
	struct topic *t = topic_ref(db, name);

	CHECK_QDB(db);
	if (t == NULL)
		return;
	if (loop_now() - t->asked_at >= LOOK_EACH)
		t->doubtful = true;
	use(t, pool);
	topic_unref(t);
}

/* --- statements --- */

struct publishing {
	struct topic *topic;
	struct pool *pool;
};

void *publish_shape_new(struct qdb *db, struct pool *pool, const char *name)
{
	struct publishing *p = mem_zalloc(sizeof(*p));

	CHECK_QDB(db);
	if (p == NULL)
		return NULL;
	p->pool = pool;
	p->topic = topic_ref(db, name);
	if (p->topic != NULL)
		return p;
	mem_free(p);
	return NULL;
}

static void publishing_free(void *arg)
{
	struct publishing *p = arg;

	topic_unref(p->topic);
	mem_free(p);
}

static void is_refused(void *arg)
{
	struct publishing *p = arg;

	forget(p->topic);
}

/* What all of a batch say alike. */
static void put_options(struct merge_statement *st, const struct bind_param options[3])
{
	memcpy(&st->params[2], options, 3 * sizeof(options[0]));
	st->n_params = 5;
	st->direct = st->risky = true;
}

static void put_one(struct merge_statement *st, struct wire_row *row, int64_t number)
{
	for (int i = 0; i < 2; i++) {
		struct wire_col col = wire_row_next(row);

		st->params[i] = (struct bind_param){.data = col.data, .len = col.len};
	}
	st->oids = queue_calls[CALL_PUBLISH_ONE].oids;
	st->n_formats = 1;
	st->formats[0] = 1;
	call_put(&st->text, CALL_PUBLISH_ONE, number);
	st->kind++; /* another function */
	st->lone = true;
}

static void put_many(struct merge_statement *st, struct wire_row *row, int64_t number)
{
	size_t at[2];

	for (int i = 0; i < 2; i++)
		at[i] = array_begin(&st->bytes[i], OID_TEXT, false);
	for (int i = 0; i < st->n_values; i++) {
		struct wire_col col = wire_row_next(row);

		build_row_value(&st->bytes[i % 2], col.data, col.len);
	}
	for (int i = 0; i < 2; i++) {
		array_end(&st->bytes[i], at[i], st->n_values / 2);
		st->params[i] = (struct bind_param){
			.data = st->bytes[i].data, .len = (int32_t)st->bytes[i].len, .format = 1};
	}
	st->oids = queue_calls[CALL_PUBLISH_DIRECT].oids;
	call_put(&st->text, CALL_PUBLISH_DIRECT, number);
}

static void fill(void *arg, struct merge_statement *st)
{
	struct publishing *p = arg;
	struct bind_param options[3];
	struct wire_row row;

	use(p->topic, p->pool);
	if (p->topic->number == 0)
		return;
	INVARIANT(st->n_values % 2 == 0, "a topic without its payload");
	memcpy(options, &st->params[1], sizeof(options));
	wire_row_values(&row, st->values->data, st->values->len, st->n_values);
	if (st->may_be_lone && st->n_values == 2)
		put_one(st, &row, p->topic->number);
	else
		put_many(st, &row, p->topic->number);
	put_options(st, options);
}

const struct merge_shape publish_shape = {.fill = fill,
	.refused = is_refused,
	.refused_lone = is_refused,
	.free = publishing_free,
	.without_gone = true};

/* --- rows --- */

#define ARRAY_HEAD 20 /* bytes of a binary array before its elements */

/* Integers of so many bytes, none of them NULL: how many. */
static int ints_of(const struct wire_col *array, int size)
{
	int each = 4 + size;

	return array->len > ARRAY_HEAD && (array->len - ARRAY_HEAD) % each == 0
		       ? (array->len - ARRAY_HEAD) / each
		       : 0;
}

static int64_t int_at(const struct wire_col *array, int size, int i)
{
	struct wire_col col = {.data = array->data + ARRAY_HEAD + i * (4 + size) + 4, .len = size};
	int64_t ret = 0;

	return wire_col_int(&col, size, &ret) ? ret : 0;
}

/* A text[]: queue, job, queue, job ... */
static void row_of_one(const uint8_t *body, size_t len, published_fn *fn, void *arg)
{
	struct wire_col array = wire_row_value(body, len);
	struct wire_row row;
	char job[48];

	if (array.len <= ARRAY_HEAD)
		return;
	wire_row_values(&row, array.data + ARRAY_HEAD, (size_t)array.len - ARRAY_HEAD, INT16_MAX);
	while (row.pos < row.end && !row.failed) {
		struct wire_col queue = wire_row_next(&row), col = wire_row_next(&row);

		if (!row.failed && queue.len >= 0)
			fn(arg, &queue, wire_col_copy(&col, job, sizeof(job)) ? job : NULL, true);
	}
}

/* Queue, its number, places in the batch (from 1 on, ascending), ids of what stands there. */
static void row_of_many(
	const struct wire_col cols[4], int first, int n, published_fn *fn, void *arg)
{
	int count = ints_of(&cols[2], 4), from = 0, to = count;
	int64_t number = 0;
	bool jobs = wire_col_int(&cols[1], 4, &number);
	char job[48];

	if (jobs && ints_of(&cols[3], 8) != count)
		return;
	while (from < to) {
		int mid = (from + to) / 2;

		if (int_at(&cols[2], 4, mid) <= first)
			from = mid + 1;
		else
			to = mid;
	}
	for (int i = from; i < count && int_at(&cols[2], 4, i) <= (int64_t)first + n; i++) {
		if (jobs)
			snprintf(job, sizeof(job), "%lld-%lld", (long long)number,
				(long long)int_at(&cols[3], 8, i));
		fn(arg, &cols[0], jobs ? job : NULL, i == from);
	}
}

void published_row(const uint8_t *body, size_t len, int first, int n, published_fn *fn, void *arg)
{
	struct wire_col cols[4];

	if (wire_row_read(body, len, cols, ARRAY_LEN(cols)))
		row_of_many(cols, first, n, fn, arg);
	else
		row_of_one(body, len, fn, arg);
}
