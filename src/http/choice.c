/*
 * A queue for each tenant is a series for each tenant in each family, and who reads metrics cannot carry any number
 * of them. So at most metrics_queues have series of their own, the most used first; of the others there is one
 * line for each database, which is their sum, or the greatest of them. Who has been named counts as used twice
 * as often: names do not change because two queues are used alike.
 *
 * With several processes of one proxy each would choose others: there the names decide.
 *
 * Must not know what is measured. Entry points: choice_make(), choice_names(), rest_add(), rest_write().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "choice.h"
#include "net/team.h"
#include "queue/stat.h"
#include "write.h"

#define KEY_MAX 512 /* three names; of longer ones the beginning tells */

struct item {
	UT_hash_handle hh;
	uint64_t round; /* in which it was seen last */
	uint64_t used;
	uint64_t jobs; /* that it has now */
	bool named;
	char name[]; /* database, queue and subscription, each with its end */
};

static struct {
	struct item *items;
	uint64_t round;
	unsigned most;
	bool all; /* they are few */
} choice;

struct key {
	char text[KEY_MAX];
	size_t len;
};

static void key_add(struct key *k, const char *name)
{
	size_t n = strlen(name) + 1;

	if (n > sizeof(k->text) - k->len)
		n = sizeof(k->text) - k->len;
	memcpy(k->text + k->len, name, n);
	k->len += n;
}

static struct item *find(const struct key *k)
{
	struct item *it;

	HASH_FIND(hh, choice.items, k->text, k->len, it);
	return it;
}

static struct key key_of(const char *database, const char *queue, const char *subscription)
{
	struct key k = {.len = 0};

	key_add(&k, database);
	key_add(&k, queue);
	key_add(&k, subscription != NULL ? subscription : "");
	return k;
}

/* NULL: no memory; it is then one of the others. */
static struct item *seen(const char *database, const char *queue, const char *subscription)
{
	struct key k = key_of(database, queue, subscription);
	struct item *it = find(&k);

	if (it == NULL) {
		it = mem_zalloc(sizeof(*it) + k.len);
		if (it == NULL)
			return NULL;
		memcpy(it->name, k.text, k.len);
		HASH_ADD(hh, choice.items, name, k.len, it);
		if (it->hh.tbl == NULL) {
			mem_free(it);
			return NULL;
		}
	}
	if (it->round != choice.round) {
		it->round = choice.round;
		it->used = it->jobs = 0;
	}
	return it;
}

static void see_queue(const struct queue_stat_queue *st, void *arg)
{
	struct item *it = seen(st->database, st->queue, NULL);

	(void)arg;
	if (it != NULL)
		it->used = st->used;
}

static void see_failed(const char *database, const char *queue, uint64_t failed, void *arg)
{
	(void)failed, (void)arg;
	(void)seen(database, queue, NULL);
}

static void see_runs(const struct queue_stat_runs *st, void *arg)
{
	(void)arg;
	(void)seen(st->database, st->queue, NULL);
}

static void see_gauge(const struct queue_stat_gauge *st, void *arg)
{
	struct item *it = seen(st->database, st->queue, st->subscription), *stream;

	(void)arg;
	if (it == NULL)
		return;
	for (int i = GAUGE_READY; i <= GAUGE_DEAD; i++)
		if (st->figure[i] > 0)
			it->jobs += (uint64_t)st->figure[i];
	if (st->figure[GAUGE_EVENTS] > 0)
		it->jobs += (uint64_t)st->figure[GAUGE_EVENTS];
	if (st->subscription == NULL)
		return;
	stream = seen(st->database, st->queue, NULL);
	it->used = stream != NULL ? stream->used : 0;
}

static uint64_t weight(const struct item *it)
{
	return it->named ? 2 * it->used + 1 : it->used;
}

static int compare(const void *a, const void *b)
{
	const struct item *x = *(const struct item *const *)a, *y = *(const struct item *const *)b;
	size_t n = x->hh.keylen < y->hh.keylen ? x->hh.keylen : y->hh.keylen;

	if (team_size() <= 1) {
		if (weight(x) != weight(y))
			return weight(x) > weight(y) ? -1 : 1;
		if (x->jobs != y->jobs)
			return x->jobs > y->jobs ? -1 : 1;
	}
	return memcmp(x->name, y->name, n);
}

static void forget_old(void)
{
	struct item *it, *next;

	HASH_ITER (hh, choice.items, it, next)
		if (it->round != choice.round) {
			HASH_DEL(choice.items, it);
			mem_free(it);
		}
}

void choice_make(unsigned most)
{
	struct item **sorted, *it;
	size_t n = 0;

	choice.round++;
	queue_stat_each_queue(see_queue, NULL);
	queue_stat_each_failed(see_failed, NULL);
	queue_stat_each_runs(see_runs, NULL);
	queue_stat_each_gauge(see_gauge, NULL);
	forget_old();
	choice.all = HASH_COUNT(choice.items) <= most;
	sorted = choice.all ? NULL : mem_alloc(HASH_COUNT(choice.items) * sizeof(struct item *));
	for (it = choice.items; it != NULL; it = it->hh.next) {
		if (sorted != NULL)
			sorted[n++] = it;
		else
			it->named =
				choice.all || (it->named && n++ < most); /* no memory: as it was */
	}
	if (sorted == NULL)
		return;
	qsort(sorted, n, sizeof(struct item *), compare);
	for (size_t i = 0; i < n; i++)
		sorted[i]->named = i < most;
	mem_free(sorted);
}

bool choice_names(const char *database, const char *queue, const char *subscription)
{
	struct key k;
	const struct item *it;

	if (choice.all)
		return true;
	k = key_of(database, queue, subscription);
	it = find(&k);
	return it != NULL && it->named;
}

void choice_stop(void)
{
	choice.round++;
	forget_old();
}

/* --- the others --- */

struct rest {
	struct rest *next;
	const char *database, *label, *value; /* as they were given */
	double v;
};

void rest_add(struct rest **all, enum rest_way way, const char *database, const char *label,
	const char *value, double v)
{
	struct rest *r;

	for (r = *all; r != NULL; r = r->next)
		if (strcmp(r->database, database) == 0 && r->value == value)
			break;
	if (r == NULL) {
		r = mem_zalloc(sizeof(*r));
		if (r == NULL)
			return;
		*r = (struct rest){*all, database, label, value, v};
		*all = r;
	} else if (way == REST_SUM) {
		r->v += v;
	} else if (v > r->v) {
		r->v = v;
	}
}

void rest_write(struct rest **all, struct buf *b, const char *name)
{
	struct rest *r;

	while ((r = *all) != NULL) {
		struct label labels[] = {{"database", r->database}, {r->label, r->value}};

		metric_value(b, name, labels, r->label != NULL ? 2 : 1, r->v);
		*all = r->next;
		mem_free(r);
	}
}

void rest_add_unnamed(struct rest **all)
{
	for (const struct item *it = choice.items; it != NULL; it = it->hh.next)
		if (!it->named)
			rest_add(all, REST_SUM, it->name, NULL, NULL, 1);
}
