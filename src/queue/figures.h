/*
 * What happened to a queue's jobs through this proxy: counted as it happens, for QUEUE STATS ... BY (figures.c), and how
 * long the jobs had waited (waited.c).
 */
#ifndef QB_QUEUE_FIGURES_H
#define QB_QUEUE_FIGURES_H

#include "wire/row.h"
#include "queue_int.h"

/* In the order of queue._counted() (functions/figures.sql). Of those of whom it is known how long they waited, or ran: how
 * many, together and at most, in microseconds. */
enum figure {
	FIGURE_PUSHED,
	FIGURE_TAKEN,
	FIGURE_DONE,
	FIGURE_FAILED,
	FIGURE_DEAD,
	FIGURE_WAITED,
	FIGURE_WAIT_SUM,
	FIGURE_WAIT_MAX,
	FIGURE_RAN,
	FIGURE_RUN_SUM,
	FIGURE_RUN_MAX,
	FIGURES
};

struct figures {
	int64_t n[FIGURES];
};

static inline void figures_waited(struct figures *f, int64_t us)
{
	f->n[FIGURE_WAITED]++;
	f->n[FIGURE_WAIT_SUM] += us;
	if (f->n[FIGURE_WAIT_MAX] < us)
		f->n[FIGURE_WAIT_MAX] = us;
}

static inline void figures_ran(struct figures *f, int64_t us)
{
	f->n[FIGURE_RAN]++;
	f->n[FIGURE_RUN_SUM] += us;
	if (f->n[FIGURE_RUN_MAX] < us)
		f->n[FIGURE_RUN_MAX] = us;
}

static inline void figures_add(struct figures *to, const struct figures *more)
{
	for (int i = 0; i < FIGURES; i++)
		if (i != FIGURE_WAIT_MAX && i != FIGURE_RUN_MAX)
			to->n[i] += more->n[i];
		else if (to->n[i] < more->n[i])
			to->n[i] = more->n[i];
}

/* What is counted and not written yet, as QUEUE STATS ... BY tells the function that answers it: in hexadecimal digits.
 * subscription: of this one, or NULL. false: memory. */
MUST_CHECK bool figures_put(
	const struct qdb *db, const char *queue, const char *subscription, struct buf *out);

MUST_CHECK bool figures_start(void);
void figures_stop(void);
void figures_ending(void); /* the process is about to end: writes what there is */
void figures_free(struct qdb *db);

/* waited.c: of a job that was taken, from when it could be, in microseconds; -1: its times cannot be read. cols: as
 * ROW_TAKEN has them; formats: as of Bind. */
int64_t waited_us(const struct wire_col *cols, const int16_t *formats, int n_formats);

#endif
