/*
 * Sums of histograms. Entry points: base/hist.h.
 */
#include "base/hist.h"

void hist_merge(struct hist *to, const struct hist *from)
{
	for (int i = 0; i <= HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
	to->sum += from->sum;
}
