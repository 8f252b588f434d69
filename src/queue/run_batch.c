/*
 * The jobs of a slot that are not ended yet (run_batch.h). Pure: a list in the order in which they were taken.
 *
 * Must not know: what becomes of them.
 *
 * Entry points: batch_*.
 */
#include "run_batch.h"

#include <string.h>

#include "wire/array.h"
#include "base/check.h"
#include "base/mem.h"

int batch_left(const struct run_batch *b)
{
	return b->n - b->at;
}

bool batch_add(struct run_batch *b, const struct batch_job *job)
{
	if (b->n == b->room) {
		int room = b->room == 0 ? 1 : b->room * 2;
		struct batch_job *jobs = mem_realloc(b->jobs, (size_t)room * sizeof(*jobs));

		if (jobs == NULL)
			return false;
		b->jobs = jobs;
		b->room = room;
	}
	b->jobs[b->n++] = *job;
	return true;
}

struct batch_job *batch_find(const struct run_batch *b, const char *token)
{
	struct batch_job *j;

	BATCH_FOREACH (j, b)
		if (strcmp(j->token, token) == 0)
			return j;
	return NULL;
}

bool batch_next(struct run_batch *b, struct batch_job *ret)
{
	if (b->at == b->n)
		return false;
	*ret = b->jobs[b->at++];
	return true;
}

int batch_drop_lost(struct run_batch *b, void (*fn)(void *arg, const char *token), void *arg)
{
	int kept = b->at, dropped;

	for (int i = b->at; i < b->n; i++)
		if (b->jobs[i].lost)
			fn(arg, b->jobs[i].token);
		else
			b->jobs[kept++] = b->jobs[i];
	dropped = b->n - kept;
	b->n = kept;
	return dropped;
}

void batch_begin(struct run_batch *b, struct buf *ret)
{
	size_t start = array_begin(ret, OID_TEXT, false);
	struct batch_job *j;

	BATCH_FOREACH (j, b) {
		j->outcome = OUTCOME_UNREAD;
		array_put_text(ret, j->token);
	}
	array_end(ret, start, batch_left(b));
	b->whole = true;
}

void batch_clear(struct run_batch *b)
{
	INVARIANT(b->at <= b->n && b->n <= b->room, "more jobs than there are");
	b->at = b->n = 0;
	b->whole = b->each = false;
}

void batch_free(struct run_batch *b)
{
	mem_free(b->jobs);
	*b = (struct run_batch){0};
}
