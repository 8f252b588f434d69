/*
 * Queues with a single consumer. The database says who it is, by a row of the queue (functions/consumer.sql): here is known
 * which queues are such, and a taker that asks for their jobs has a name by which that row knows it. When it leaves
 * the row is given back like a lease, which is tried until it has been done; so the next one follows.
 *
 * Must not know: how a take is sent, and who waits in which order.
 */
#include <stdio.h>
#include <string.h>

#include "back.h"
#include "consumer.h"
#include "registry.h"
#include "system.h"
#include "token.h"
#include "wait_int.h"

struct alone {
	struct alone *next;
	int64_t number;
	char queue[QSTMT_QUEUE_MAX + 1];
};

static struct alone *find(const struct qdb *db, const char *queue)
{
	for (struct alone *a = db->alone; a != NULL; a = a->next)
		if (strcmp(a->queue, queue) == 0)
			return a;
	return NULL;
}

bool consumer_learn(struct qdb *db, const char *queue, const char *number)
{
	struct alone *a = find(db, queue);
	int64_t n;

	CHECK_QDB(db);
	if (!util_parse_i64(number, strlen(number), &n))
		return false;
	if (a == NULL) {
		a = mem_zalloc(sizeof(*a));
		if (a == NULL)
			return false;
		util_strlcpy(a->queue, queue, sizeof(a->queue));
		a->next = db->alone;
		db->alone = a;
	}
	a->number = n;
	return true;
}

void consumers_free(struct qdb *db)
{
	CHECK_QDB(db);
	while (db->alone != NULL) {
		struct alone *a = db->alone;

		db->alone = a->next;
		mem_free(a);
	}
}

/* A lease of the job 0, which there is not. */
static void put_token(int64_t number, const char *name, char dst[TOKEN_MAX])
{
	snprintf(dst, TOKEN_MAX, "%lld-0-%s", (long long)number, name);
}

static bool has_asked(const struct taker *t, const char *token)
{
	NAMES_FOREACH (at, &t->consumes)
		if (strcmp(at, token) == 0)
			return true;
	return false;
}

bool consumer_asks(struct waiter *w, const char **ret)
{
	const struct alone *a = w->args.n_queues == 1 ? find(w->db, w->args.queues[0]) : NULL;
	struct taker *t = w->taker;
	char token[TOKEN_MAX];

	CHECK_WAITER(w);
	*ret = NULL;
	w->alone = a != NULL;
	if (a == NULL)
		return true;
	while (t->consumer == 0)
		util_random(&t->consumer, sizeof(t->consumer));
	snprintf(w->consumer, sizeof(w->consumer), "%016llx %d %lld%s",
		(unsigned long long)t->consumer, (int)registry_number(w->db), (long long)a->number,
		w->args.grouped ? " grouped" : "");
	snprintf(token, sizeof(token), "%lld-0-%016llx", (long long)a->number,
		(unsigned long long)t->consumer);
	if (!has_asked(t, token))
		names_add(&t->consumes, token);
	system_need(w->db, w->pool); /* its lock says that we are there */
	*ret = w->consumer;
	return !names_failed(&t->consumes);
}

/* Anybody of that name. */
static bool is_there(const struct qdb *db, const char *token)
{
	struct taker *t;

	DL_FOREACH (takers(), t)
		if (t->db == db && has_asked(t, token))
			return true;
	return false;
}

static void free_row(struct qdb *db, struct pool *pool, const char *token)
{
	give_back(db, pool, &token, 1, INT64_MAX, "");
}

void consumer_is(struct waiter *w, const void *holder, int32_t len)
{
	const struct alone *a = find(w->db, w->args.queues[0]);
	char token[TOKEN_MAX], text[TOKEN_MAX], ours[16];
	size_t n;

	CHECK_WAITER(w);
	w->others = len > 0;
	if (len <= 0 || len >= (int32_t)sizeof(text) || a == NULL)
		return;
	memcpy(text, holder, (size_t)len);
	text[len] = '\0';
	n = (size_t)snprintf(ours, sizeof(ours), "%d ", (int)registry_number(w->db));
	if (strncmp(text, ours, n) != 0 || strlen(text + n) != TOKEN_DIGITS)
		return;
	put_token(a->number, text + n, token);
	if (!is_there(w->db, token) && !back_has(w->db, token))
		free_row(w->db, w->pool, token);
}

void consumer_late(const struct waiter *w)
{
	char token[TOKEN_MAX];
	const struct alone *a = find(w->db, w->args.queues[0]);

	if (a == NULL)
		return;
	snprintf(token, sizeof(token), "%lld-0-%.16s", (long long)a->number, w->consumer);
	if (!is_there(w->db, token) && !back_has(w->db, token))
		free_row(w->db, w->pool, token);
}
