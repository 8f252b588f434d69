/* Lines of Prometheus' text format. */
#ifndef QB_HTTP_WRITE_H
#define QB_HTTP_WRITE_H

#include "base/buf.h"

/* One line each. A family begins with its HELP and TYPE. */
struct label {
	const char *name, *value;
};
/* What is written from now on is that of one of several processes, and says of which. 0: of all. */
void metric_process(int number);
void metric_family(struct buf *b, const char *name, const char *type, const char *help);
void metric_value(struct buf *b, const char *name, const struct label *labels, int n, double value);
struct hist;
/* scale: what a value of 1 is in the unit of the metric. Only buckets from "first" on. */
void metric_hist(struct buf *b, const char *name, const struct label *labels, int n,
	const struct hist *h, double scale, int first);

#endif
