/*
 * What becomes of a job that has run: it was done or put back in its transaction, or that is said now; or it failed,
 * and FAIL is said. And what the answer to that was.
 *
 * Must not know: how it was carried out (run_job.c).
 *
 * Entry points: outcome_*.
 */
#include <stdio.h>
#include <string.h>

#include "queue_int.h"
#include "run_int.h"

#define EACH_FOR                                                                                   \
	(60 * USEC_SEC) /* jobs are done each by itself, where some that were done together lost their server */

/* What the job is told to have failed with. */
static void keep_error(struct slot *s, const struct pg_error *err)
{
	if (s->late)
		(void)snprintf(s->error, sizeof(s->error),
			"timeout: the job ran longer than it may (%s)", err->sqlstate);
	else if (s->keep == KEEP_NONE)
		(void)snprintf(s->error, sizeof(s->error), "SQLSTATE %s", err->sqlstate);
	else
		(void)snprintf(s->error, sizeof(s->error), "%s (%s)%s%s%s%s", err->message,
			err->sqlstate, err->detail[0] != '\0' ? "\n" : "", err->detail,
			err->hint[0] != '\0' ? "\nHINT:  " : "", err->hint);
	if (s->keep != KEEP_NONE)
		told_put(&s->told, s->error, sizeof(s->error));
}

bool outcome_is_of_lease(const struct pg_error *err)
{
	return strcmp(err->sqlstate, "QB001") == 0 || strcmp(err->sqlstate, "QB002") == 0;
}

void outcome_let_go(void *arg, const char *token)
{
	const struct slot *s = arg;

	worker_give_back(s->worker, token);
}

/* --- an attempt that took the server with it --- */

static bool is_of_connection(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57P", 3) == 0;
}

/* Nobody can be told now: the job is given back as if nothing had been, and may even have its attempts of before, when the
 * server has forgotten its lease. So it is remembered here, or it would bring down the server again and again. */
static void remember_fallen(struct slot *s)
{
	struct run_queue *q = s->queue;
	struct fallen *f = &q->fallen[q->n_fallen++ % FALLEN_MAX];

	f->attempt = s->attempt;
	if (!token_job(s->token, f->job))
		f->job[0] = '\0';
}

bool outcome_had_failed(struct slot *s)
{
	struct pg_error err;
	char job[TOKEN_MAX];

	if (s->queue->n_fallen == 0 || !token_job(s->token, job))
		return false;
	for (size_t i = 0; i < FALLEN_MAX; i++) {
		struct fallen *f = &s->queue->fallen[i];

		if (f->attempt != s->attempt || strcmp(f->job, job) != 0)
			continue;
		f->job[0] = '\0';
		pg_error_set(&err, "08006", "its server was lost, and then nobody could be told");
		pg_error_detail(&err, "This attempt is that one: it was not begun again.");
		s->started = true;
		outcome_failed(s, &err);
		return true;
	}
	return false;
}

/* All is as it was before; who is to blame is found when each is run by itself. */
static void batch_failed(struct slot *s, const struct pg_error *err)
{
	bool lost = batch_drop_lost(&s->batch, outcome_let_go, s) > 0;

	if (s->started && is_of_connection(err))
		s->queue->each_until = loop_now() + EACH_FOR;
	if (!lost && !s->started) {
		slots_say(s->queue, err->message);
		slot_rest(s, REST);
		return;
	}
	s->batch.each = !lost;
	slot_rest(s, 0);
}

static bool say_failed(struct slot *s)
{
	bool final = s->script != NULL && s->script->in_vain;
	struct pg_error refused;

	return worker_fail(s->worker, s->token, s->error, final, &refused);
}

void outcome_failed(struct slot *s, const struct pg_error *err)
{
	if (s->batch.whole) {
		batch_failed(s, err);
		return;
	}
	if (s->lost) {
		outcome_let_go(s, s->token);
		slot_rest(s, 0);
		return;
	}
	if (!s->started && s->there == NULL) { /* it was not tried */
		slots_say(s->queue, err->message);
		worker_give_back(s->worker, s->token);
		slot_rest(s, REST);
		return;
	}
	s->queue->failed++;
	/* whatever its SQLSTATE, which the job can choose: whether the lease is lost is said by FAIL */
	keep_error(s, err);
	s->state = SLOT_FAILS;
	if (!say_failed(s)) {
		worker_give_back(s->worker, s->token);
		slot_rest(s, REST);
	}
}

void outcome_say_done(struct slot *s)
{
	struct buf result = BUF_INIT;
	struct pg_error refused;
	bool ok;

	s->state = SLOT_FAILS;
	told_result(&s->told, &result);
	ok = !buf_failed(&result) &&
	     worker_done(s->worker, s->token,
		     s->keep <= KEEP_ALWAYS ? (const char *)result.data : NULL, &refused);
	buf_free(&result);
	if (ok) {
		s->queue->done++;
		return;
	}
	worker_give_back(s->worker, s->token);
	slot_rest(s, REST);
}

void outcome_of_job(struct slot *s, const char *token, enum outcome outcome)
{
	if (outcome == OUTCOME_DONE) {
		s->queue->done++;
		worker_was_done(s->worker, token);
	} else if (outcome == OUTCOME_FAILED || outcome == OUTCOME_RELEASED) {
		s->queue->again++;
		worker_was_put_back(s->worker, token, outcome == OUTCOME_FAILED);
	} else {
		worker_give_back(s->worker, token);
	}
}

void outcome_of_batch(struct slot *s)
{
	const struct batch_job *j = s->batch.jobs + s->batch.at;

	for (int n = batch_together(&s->batch); n > 0; n--, j++)
		outcome_of_job(s, j->token, j->outcome);
	batch_ended(&s->batch);
	slot_rest(s, 0);
}

/* The database does not have the characters of what it was told; those of ASCII each one has. A job that is given back
 * for that would be carried out again and again. */
static bool say_plainly(struct slot *s, const struct pg_error *err)
{
	if (s->plain ||
		(strcmp(err->sqlstate, "22P05") != 0 && strcmp(err->sqlstate, "22021") != 0))
		return false;
	s->plain = true;
	if (s->error[0] != '\0') {
		told_in_ascii(s->error);
		return say_failed(s);
	}
	told_in_ascii(s->told.notices);
	s->queue->done--; /* it is counted by what follows */
	outcome_say_done(s);
	return true;
}

void outcome_said(struct slot *s, const struct pg_error *err)
{
	INVARIANT(s->state == SLOT_FAILS, "an answer to what was not said");
	if (err != NULL && outcome_is_of_lease(err)) {
		/* cancelled; or somebody else has ended it, or it was done */
		outcome_let_go(s, s->token);
		err = NULL;
	} else if (err != NULL && say_plainly(s, err)) {
		return;
	} else if (err != NULL) {
		if (is_of_connection(err))
			remember_fallen(s);
		worker_give_back(s->worker, s->token);
	}
	if (err != NULL)
		slots_say(s->queue, err->message);
	slot_rest(s, err != NULL ? REST : 0);
}
