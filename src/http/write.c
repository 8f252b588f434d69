/*
 * Lines of Prometheus' text format
 * (https://prometheus.io/docs/instrumenting/exposition_formats/, "Text format details").
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hist.h"
#include "base/util.h"
#include "write.h"

static struct {
	int process; /* whose lines are written */
} out;

void metric_process(int number)
{
	out.process = number;
}

void metric_family(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_printf(b, "# HELP qbouncer_%s %s\n# TYPE qbouncer_%s %s\n", name, help, name, type);
}

/* Backslash, quote and line feed; and what is no UTF-8, of a name that some client has thought of,
 * as \xNN: who reads it would refuse the answer as a whole. */
static void label_value(struct buf *b, const char *s)
{
	size_t n;

	for (; *s != '\0'; s += n) {
		n = util_utf8_len(s);
		if (n == 0) {
			buf_printf(b, "\\\\x%02X", (unsigned)(uint8_t)*s);
			n = 1;
		} else if (*s == '\n') {
			buf_puts(b, "\\n");
		} else {
			if (*s == '\\' || *s == '"')
				buf_putc(b, '\\');
			buf_put(b, s, n);
		}
	}
}

/* le: one more label, or NULL. */
static void head(struct buf *b, const char *name, const char *suffix, const struct label *labels,
	int n, const char *le)
{
	char before = '{';

	buf_printf(b, "qbouncer_%s%s", name, suffix);
	for (int i = 0; i < n; i++) {
		buf_printf(b, "%c%s=\"", before, labels[i].name);
		label_value(b, labels[i].value);
		buf_putc(b, '"');
		before = ',';
	}
	if (out.process > 0) {
		buf_printf(b, "%cprocess=\"%d\"", before, out.process);
		before = ',';
	}
	if (le != NULL) {
		buf_printf(b, "%cle=\"%s\"", before, le);
		before = ',';
	}
	if (before == ',')
		buf_putc(b, '}');
	buf_putc(b, ' ');
}

void metric_value(struct buf *b, const char *name, const struct label *labels, int n, double value)
{
	head(b, name, "", labels, n, NULL);
	if (value == floor(value) && fabs(value) < 1e15)
		buf_printf(b, "%.0f\n", value);
	else
		buf_printf(b, "%.9g\n", value);
}

void metric_hist(struct buf *b, const char *name, const struct label *labels, int n,
	const struct hist *h, double scale, int first)
{
	uint64_t sum = 0;

	for (int i = 0; i <= HIST_BUCKETS; i++) {
		char le[32] = "+Inf";

		sum += h->bucket[i];
		if (i < first)
			continue;
		if (i < HIST_BUCKETS)
			snprintf(le, sizeof(le), "%.9g", scale * (double)(UINT64_C(1) << i));
		head(b, name, "_bucket", labels, n, le);
		buf_printf(b, "%llu\n", (unsigned long long)sum);
	}
	head(b, name, "_sum", labels, n, NULL);
	buf_printf(b, "%.9g\n", scale * (double)h->sum);
	head(b, name, "_count", labels, n, NULL);
	buf_printf(b, "%llu\n", (unsigned long long)sum);
}
