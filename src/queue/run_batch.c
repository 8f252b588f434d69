/*
 * The jobs of a slot that are not ended yet (run_batch.h). Pure: a list in the order in which they were taken.
 *
 * Must not know: what becomes of them.
 *
 * Entry points: batch_*.
 */
#include "run_batch.h"

#include <stdlib.h>
#include <string.h>

#include "wire/array.h"
#include "base/check.h"
#include "base/mem.h"

/* Of the text of a statement Postgres shows the first 1024 bytes (track_activity_query_size). */
#define COMMENT_MAX 960

int batch_left(const struct run_batch *b)
{
	return b->n - b->at;
}

int batch_together(const struct run_batch *b)
{
	return b->whole ? b->upto - b->at : 0;
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

/* --- all together --- */

static int64_t id_of(const struct batch_job *j)
{
	const char *id = token_job_id(j->token);

	return id != NULL ? strtoll(id, NULL, 10) : 0;
}

/* From, or from and to. */
static void put_ids(struct buf *ret, int64_t from, int64_t to)
{
	if (from == to)
		buf_printf(ret, " %lld", (long long)from);
	else
		buf_printf(ret, " %lld-%lld", (long long)from, (long long)to);
}

/* Ids that follow one another are one word. As many as there is room for, one at least. */
static int put_comment(const struct run_batch *b, struct buf *ret)
{
	static const size_t word = 2 * TOKEN_MAX; /* at most, with the end */
	int i = b->at;

	buf_printf(ret, "/* qbouncer %lld:", (long long)token_number(b->jobs[i].token));
	while (i < b->n && ret->len + word < COMMENT_MAX) {
		int64_t from = id_of(&b->jobs[i]), to = from;

		while (++i < b->n && id_of(&b->jobs[i]) == to + 1)
			to++;
		put_ids(ret, from, to);
	}
	buf_puts(ret, " */ ");
	return i;
}

void batch_begin(struct run_batch *b, struct buf *comment, struct buf *tokens, struct buf *again)
{
	size_t start = array_begin(tokens, OID_TEXT, false),
	       start_again = array_begin(again, OID_TEXT, false);
	int n_again = 0;

	INVARIANT(batch_left(b) > 0 && !b->whole, "nothing is to be carried out, or something is");
	b->upto = put_comment(b, comment);
	for (int i = b->at; i < b->upto; i++) {
		struct batch_job *j = &b->jobs[i];

		j->outcome = OUTCOME_UNREAD;
		array_put_text(tokens, j->token);
		if (j->again) {
			array_put_text(again, j->token);
			n_again++;
		}
	}
	b->whole = true;
	array_end(tokens, start, batch_together(b));
	array_end(again, start_again, n_again);
}

void batch_ended(struct run_batch *b)
{
	INVARIANT(b->whole && b->upto <= b->n, "those end that were not carried out");
	b->at = b->upto;
	b->whole = false;
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
