/*
 * Sessions that are kept (session = keep): what a job leaves there is for the next one of its queue, in this process.
 * Which queue that is a key says, which is another one as soon as anything about it has changed (queue._runs()); so what
 * was left under the old one is found by nobody, and is discarded. They count among the places of this process: when
 * others need one, the session that has been idle for longest goes.
 *
 * Must not know: how a session is kept (pool/task.h).
 *
 * Entry points: session_*, sessions_make_room().
 */
#include <string.h>

#include "queue_int.h"
#include "run_int.h"

static uint64_t last_key;

void session_ends(struct run_queue *q)
{
	if (q->session.key != 0)
		task_sessions_end(q->session.key);
	q->session = (struct run_session){.key = 0};
}

void session_of_queue(struct run_queue *q, const struct wire_col *of, const struct wire_col *jobs,
	const struct wire_col *ms)
{
	struct run_session now = {.key = 0};
	int64_t n;

	if (of->len < 0 || !wire_col_copy(of, now.of, sizeof(now.of))) {
		session_ends(q);
		return;
	}
	if (strcmp(now.of, q->session.of) == 0)
		return;
	now.jobs = wire_col_number(jobs, &n) && n > 0 ? (unsigned)n : 0;
	now.time = wire_col_number(ms, &n) && n > 0 ? (usec_t)n * USEC_MSEC : 0;
	now.key = ++last_key;
	session_ends(q);
	INVARIANT(q->session.key == 0 && now.key != 0, "a queue has two keys, or none");
	q->session = now;
}

void sessions_make_room(unsigned running)
{
	unsigned most = (unsigned)conf_current()->p.queue_run_pool_size;

	while (running + task_sessions() > most && task_sessions_end_one())
		continue;
}

/* It was only looked at; what is carried out by itself comes next. */
static bool is_look(const struct slot *s)
{
	return s->outcome == OUTCOME_ALONE && (s->alone == NULL || !s->alone->sent);
}

/* Who was told to end, or has failed, may have been stopped anywhere. */
static bool is_well(const struct slot *s)
{
	return !s->lost && !s->late && s->ends_at == 0 && !s->leaves &&
	       s->outcome != OUTCOME_UNREAD && (s->script == NULL || !s->script->failed) &&
	       pooler_is_shutting_down() == SHUTDOWN_NONE;
}

bool session_leaves(void *arg, struct task_session *of)
{
	const struct slot *s = arg;
	const struct run_session *r = &s->queue->session;

	INVARIANT(s->state == SLOT_RUNS && of->key != 0, "what does not run leaves a session");
	if (!is_well(s) || of->key != r->key)
		return false;
	if (is_look(s))
		return of->jobs > 0 || s->there == NULL;
	if (of->jobs == 0) {
		of->since = s->began;
		of->until = r->time > 0 ? s->began + r->time : USEC_NEVER;
	}
	of->jobs += s->batch.whole ? (unsigned)batch_together(&s->batch) : 1;
	return (r->jobs == 0 || of->jobs < r->jobs) && loop_now() < of->until;
}
