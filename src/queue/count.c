/*
 * What QUEUE statements did, in numbers, since the start. Entry points: count_*, queue_stat_*.
 */
#include <string.h>

#include "queue_int.h"
#include "verbs.h"

static struct queue_stat_verb counts[QVERB_COUNT];

void count_done(int verb, unsigned jobs)
{
	counts[verb].statements++;
	counts[verb].jobs += jobs;
}

void count_failed(int verb)
{
	counts[verb].failures++;
}

void queue_stat_each_verb(void (*fn)(const struct queue_stat_verb *st, void *arg), void *arg)
{
	for (int i = 0; i < QVERB_COUNT; i++) {
		struct queue_stat_verb st = counts[i];

		st.verb = qverbs[i].name;
		fn(&st, arg);
	}
}
