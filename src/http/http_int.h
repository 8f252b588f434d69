/* The private face of the http module. */
#ifndef QB_HTTP_INT_H
#define QB_HTTP_INT_H

#include "base/buf.h"

/* The whole answer of /metrics: Prometheus' text format, version 0.0.4. */
void metrics_write(struct buf *b);

/* write.c: one line each. A family begins with its HELP and TYPE. */
struct label {
	const char *name, *value;
};
void metric_family(struct buf *b, const char *name, const char *type, const char *help);
void metric_value(struct buf *b, const char *name, const struct label *labels, int n, double value);
struct hist;
/* scale: what a value of 1 is in the unit of the metric. Only buckets from "first" on. */
void metric_hist(struct buf *b, const char *name, const struct label *labels, int n,
	const struct hist *h, double scale, int first);

#endif
