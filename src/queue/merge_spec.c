/*
 * What is told of a statement that is merged: what it owns, and a copy of its parameters. Must not know:
 * groups, batches, items. Entry points: merge_own_*, merge_spec_*.
 */
#include <string.h>

#include "base/mem.h"
#include "merge.h"

struct merge_own *merge_own_new(void)
{
	struct merge_own *o = mem_zalloc(sizeof(*o));

	if (o != NULL)
		o->array = BUF_INIT;
	return o;
}

void merge_own_free(struct merge_own **p)
{
	struct merge_own *o = *p;

	*p = NULL;
	if (o == NULL)
		return;
	mem_free(o->sql);
	mem_free(o->oids);
	buf_free(&o->array);
	mem_free(o);
}

void merge_spec_free(struct merge_spec *spec)
{
	merge_own_free(&spec->own);
	task_settings_free(&spec->settings);
	if (spec->shape_arg != NULL)
		spec->shape->free(spec->shape_arg);
	spec->shape_arg = NULL;
}

size_t merge_spec_size(const struct merge_spec *spec)
{
	size_t size = (size_t)spec->n_params * sizeof(struct bind_param);

	for (int i = 0; i < spec->n_params; i++)
		size += spec->params[i].len > 0 ? (size_t)spec->params[i].len : 0;
	return size;
}

void merge_spec_put(const struct merge_spec *spec, struct bind_param *p)
{
	size_t n = (size_t)spec->n_params;
	uint8_t *at = (uint8_t *)(p + n);

	for (size_t i = 0; i < n; i++) {
		p[i] = spec->params[i];
		if (p[i].len > 0) {
			memcpy(at, p[i].data, (size_t)p[i].len);
			p[i].data = at;
			at += p[i].len;
		}
	}
}
