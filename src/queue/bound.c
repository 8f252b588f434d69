/*
 * How much is kept of an answer, and of all (bound.h). Must not know: whose rows they are.
 */
#include "bound.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "conf/conf.h"
#include "net/conn.h"
#include "net/loop.h"
#include "queue/stat.h"

#define KB         ((int64_t)1024)
#define SAID_AGAIN (60 * USEC_SEC)
#define LITTLE     CONN_HIGH_WATER /* as much as is held of what passes through */

static struct {
	size_t kept; /* but what is about to be given up */
	usec_t said_at;
	struct pg_error why; /* the last that was told */
} all;

static void count(struct bound *b, size_t n)
{
	INVARIANT(all.kept >= b->counted, "more is given up than is kept");
	all.kept += n - b->counted;
	b->counted = n;
}

size_t queue_stat_answers(void)
{
	return all.kept + client_all_unread();
}

/* Who has little goes on, or each of those who share it; and who is alone, as nobody's end would change anything. */
static bool is_over_all(const struct bound *b)
{
	int64_t most = conf_current()->p.queue_answers_max;
	size_t kept = queue_stat_answers();

	return most > 0 && (int64_t)kept > most && b->kept > (size_t)(b->others + 1) * LITTLE &&
	       (b->others > 0 || kept > b->counted);
}

static void say(void)
{
	if (all.said_at != 0 && loop_now() < all.said_at + SAID_AGAIN)
		return;
	all.said_at = loop_now();
	log_warning(
		"%zu bytes are kept of answers, more than queue_answers_max: large ones are refused until clients have read theirs (SHOW SOCKETS: send_avail)",
		queue_stat_answers());
}

static void stop(struct bound *b, struct task *t, int64_t bound, bool of_all)
{
	INVARIANT(bound > 0, "nothing is too much, and it is stopped");
	if (task_is_cancelled(t)) /* what comes until it is heard */
		return;
	if (b->over == 0) {
		b->over = bound;
		b->of_all = of_all;
		if (of_all)
			say();
	}
	b->asked = b->kept;
	if (task_cancel(t))
		count(b, 0);
}

static void look(struct bound *b, struct task *t, int64_t most)
{
	/* it comes on, as long as it could not be asked to stop */
	if (b->over == 0 || b->counted > 0)
		count(b, b->kept);
	if (b->over != 0)
		return;
	if (most != 0 && (int64_t)b->kept > most)
		stop(b, t, most, false);
	else if (is_over_all(b))
		stop(b, t, conf_current()->p.queue_answers_max, true);
}

void bound_row(struct bound *b, struct task *t, size_t len)
{
	bool first = b->kept == 0;

	b->kept += len;
	if (b->over != 0 && (int64_t)(b->kept - b->asked) >= b->over)
		stop(b, t, b->over, b->of_all);
	look(b, t, first ? 0 : conf_current()->p.queue_answer_max);
}

void bound_part(struct bound *b, struct task *t, size_t kept)
{
	b->kept = kept;
	if (b->over != 0)
		stop(b, t, b->over, b->of_all);
	look(b, t, 0);
}

void bound_end(struct bound *b)
{
	count(b, 0);
	*b = (struct bound){0};
}

static const char *size_text(int64_t size, char text[32])
{
	static const char *const units[] = {"bytes", "kB", "MB", "GB"};
	size_t unit = 0;

	while (unit + 1 < ARRAY_LEN(units) && size % KB == 0) {
		size /= KB;
		unit++;
	}
	snprintf(text, 32, "%lld %s", (long long)size, units[unit]);
	return text;
}

void bound_exceeded(struct pg_error *err, int64_t bound, const char *hint)
{
	char text[32];

	pg_error_set(err, "54000", "the answer is larger than queue_answer_max (%s)",
		size_text(bound, text));
	pg_error_hint(err, "%s", hint);
}

static void all_exceeded(struct pg_error *err, int64_t bound)
{
	char text[32];

	pg_error_set(err, BOUND_STATE,
		"the answers that are kept for clients are larger than queue_answers_max (%s)",
		size_text(bound, text));
	pg_error_hint(err,
		"Ask for fewer, or again when others have read theirs (SHOW SOCKETS: send_avail).");
}

bool bound_keeps(struct bound *b, size_t kept, struct pg_error *err)
{
	b->kept = kept;
	count(b, kept);
	if (!is_over_all(b))
		return false;
	all_exceeded(err, conf_current()->p.queue_answers_max);
	return true;
}

const struct pg_error *bound_error(
	const struct bound *b, const struct pg_error *err, const char *hint)
{
	if (err == NULL || b->over == 0 || strcmp(err->sqlstate, "57014") != 0)
		return err;
	if (b->of_all)
		all_exceeded(&all.why, b->over);
	else
		bound_exceeded(&all.why, b->over, hint);
	return &all.why;
}
