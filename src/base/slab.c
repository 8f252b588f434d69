/*
 * Slabs: objects of one size, carved from chunks, given back to a free list. Chunks stay until the
 * slab ends: what was needed at the peak will be needed again, and idle pages can be swapped out.
 * Under AddressSanitizer a free object is poisoned, so that a use after slab_put() is found.
 * Entry points: slab_* in base/mem.h.
 */
#include "base/mem.h"

#include <string.h>

#include "mem_int.h"

enum { SLAB_ALIGN = 16, SLAB_CHUNK_BYTES = 16 * 1024, SLAB_CHUNK_MIN = 8 };

/* In front of the objects of a chunk; as long as the alignment. */
struct slab_chunk {
	_Alignas(SLAB_ALIGN) struct slab_chunk *next;
};

/* What a free object holds in its first bytes. */
struct slab_object {
	struct slab_object *next;
};

struct slab {
	struct slab *next; /* in the list of all slabs */
	struct slab_chunk *chunks;
	struct slab_object *free;
	size_t step;      /* bytes from one object to the next */
	size_t per_chunk; /* objects */
	struct slab_stat stat;
};

static struct slab *slabs;

static size_t slab_chunk_bytes(const struct slab *s)
{
	return sizeof(struct slab_chunk) + s->per_chunk * s->step;
}

struct slab *slab_new(const char *name, size_t size)
{
	struct slab *s;

	ASSERT(size > 0 && size < SIZE_MAX / 1024);
	s = mem_zalloc(sizeof(*s));
	if (!s)
		return NULL;
	s->step = (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN;
	s->per_chunk = SLAB_CHUNK_BYTES / s->step;
	if (s->per_chunk < SLAB_CHUNK_MIN)
		s->per_chunk = SLAB_CHUNK_MIN;
	s->stat.name = name;
	s->stat.size = size;
	s->next = slabs;
	slabs = s;
	return s;
}

void slab_free(struct slab **p)
{
	struct slab *s = *p;

	if (!s)
		return;
	*p = NULL;
	for (struct slab **at = &slabs; *at; at = &(*at)->next) {
		if (*at == s) {
			*at = s->next;
			break;
		}
	}
	while (s->chunks) {
		struct slab_chunk *c = s->chunks;

		s->chunks = c->next;
		mem_unpoison(c, slab_chunk_bytes(s));
		mem_free(c);
	}
	mem_free(s);
}

static void slab_release(struct slab *s, void *obj)
{
	struct slab_object *o = obj;

	o->next = s->free;
	s->free = o;
	s->stat.free++;
	mem_poison(obj, s->step);
}

static bool slab_grow(struct slab *s)
{
	struct slab_chunk *c = mem_alloc(slab_chunk_bytes(s));

	if (!c)
		return false;
	c->next = s->chunks;
	s->chunks = c;
	s->stat.total += slab_chunk_bytes(s);
	for (size_t i = s->per_chunk; i-- > 0;)
		slab_release(s, (char *)(c + 1) + i * s->step);
	return true;
}

void *slab_get(struct slab *s)
{
	struct slab_object *o;

	if (mem_fails_now() || (!s->free && !slab_grow(s)))
		return NULL;
	o = s->free;
	mem_unpoison(o, s->step);
	s->free = o->next;
	mem_poison((char *)o + s->stat.size, s->step - s->stat.size);
	s->stat.free--;
	s->stat.used++;
	memset(o, 0, s->stat.size);
	return o;
}

void slab_put(struct slab *s, void *obj)
{
	ASSERT(obj && s->stat.used > 0);
	mem_unpoison(obj, s->step);
	s->stat.used--;
	slab_release(s, obj);
}

void slab_each(void (*fn)(const struct slab_stat *st, void *arg), void *arg)
{
	for (const struct slab *s = slabs; s; s = s->next)
		fn(&s->stat, arg);
}
