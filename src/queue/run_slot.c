/*
 * A slot of a queue whose jobs run by themselves: what it does next, and when. And the places of this process: so many
 * of its jobs run at a time (queue_run_pool_size).
 *
 * Must not know: how jobs are taken (runner.c) and carried out (run_job.c).
 *
 * Entry points: slot_*, slots_*.
 */
#include "queue_int.h"
#include "run_int.h"

#define IN_LINE    (2 * USEC_SEC)
#define SAID_AGAIN (60 * USEC_SEC)

static struct {
	struct loop_tick *tick;
	unsigned running; /* jobs of this process */
	uint64_t turns;
} all;

bool slots_clock_start(usec_t (*fn)(void *arg, usec_t now))
{
	all.tick = loop_tick_new(fn, NULL, USEC_NEVER);
	return all.tick != NULL;
}

void slots_clock_stop(void)
{
	loop_tick_free(&all.tick);
}

void slots_look(void)
{
	loop_tick_at(all.tick, loop_now());
}

void slot_look_at(struct slot *s, usec_t at)
{
	s->at = at;
	loop_tick_at(all.tick, at);
}

void slot_stand_in_line(struct slot *s)
{
	s->state = SLOT_HAS;
	s->turn = ++all.turns;
	s->at = loop_now() + IN_LINE;
	slots_look();
}

void slot_rest(struct slot *s, usec_t time)
{
	s->state = SLOT_RESTS;
	s->batch.whole = false;
	s->token[0] = '\0';
	s->lost = s->started = s->late = s->plain = false;
	s->error[0] = '\0';
	s->outcome = OUTCOME_DONE;
	s->keep = KEEP_RESULT;
	s->began = s->ends_at = 0;
	told_nothing(&s->told);
	alone_free(&s->alone);
	run_sql_free(&s->script);
	there_free(&s->there);
	if (batch_left(&s->batch) > 0 && time == 0 && !s->leaves) {
		slot_stand_in_line(s);
		return;
	}
	if (batch_left(&s->batch) > 0)
		worker_give_back_all(s->worker);
	batch_clear(&s->batch);
	slot_look_at(s, loop_now() + time);
}

bool slots_have_place(void)
{
	return all.running < (unsigned)conf_current()->p.queue_run_pool_size;
}

void slot_stand_aside(struct slot *s)
{
	slot_rest(s, REST);
	s->state = SLOT_ASIDE;
}

void slots_say(struct run_queue *q, const char *why)
{
	if (loop_now() < q->said_at)
		return;
	q->said_at = loop_now() + SAID_AGAIN;
	log_warning("%s: jobs of queue \"%s\" of role %s do not run: %s", q->db->name, q->name,
		q->owner, why);
}

void slots_begin_one(void)
{
	all.running++;
}

/* Not those whose statements are over, and who say so: their session is one of those that are kept, or was cleaned. */
static unsigned at_work(void)
{
	const struct run_queue *q;
	const struct slot *s;
	unsigned n = 0;

	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				DL_FOREACH (q->slots, s)
					n += s->state == SLOT_RUNS && s->task != NULL;
	return n;
}

void slots_make_room(void)
{
	if (task_sessions() > 0)
		sessions_make_room(at_work());
}

void slots_end_one(void)
{
	struct run_queue *q;
	struct slot *s;

	INVARIANT(all.running > 0, "a job ends that did not run");
	all.running--;
	slots_make_room();
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		if (db->runs != NULL)
			DL_FOREACH (db->runs->queues, q)
				DL_FOREACH (q->slots, s)
					if (s->state == SLOT_ASIDE)
						s->at = loop_now();
	slots_look();
	tasks_look_again();
}
