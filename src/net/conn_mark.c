/*
 * What a connection waits for: the events of its descriptor, and its places in the lists of the turn.
 * Below all other files of a connection, which say here that something is to be done; what then is done
 * is handed in by conn.c.
 *
 * The mask. Reading is level triggered. Switching it off only sets a flag: most pauses end before
 * more bytes come, and then nothing was installed or removed. If bytes do come meanwhile, the
 * registration becomes edge triggered, which wakes for the peer's end and for each new piece, but
 * does not spin on what lies there unread. Writing is registered only while the kernel is full.
 */
#include "base/mem.h"
#include "conn_int.h"

struct conn_list {
	struct conn *head, **tail;
};

static struct {
	struct conn_list dirty, kicks;
	struct slab *wios;
	loop_io_fn *readable, *writable;
} marks;

bool mark_module_init(loop_io_fn *readable, loop_io_fn *writable)
{
	marks.dirty = (struct conn_list){NULL, &marks.dirty.head};
	marks.kicks = (struct conn_list){NULL, &marks.kicks.head};
	marks.readable = readable;
	marks.writable = writable;
	marks.wios = slab_new("conn_write", sizeof(struct loop_io));
	return marks.wios != NULL;
}

void mark_module_free(void)
{
	if (marks.wios)
		slab_free(&marks.wios);
}

/* --- lists of the turn --- */

void conn_mark_dirty(struct conn *c)
{
	if (c->flags & F_DIRTY)
		return;
	c->flags |= F_DIRTY;
	c->next_dirty = NULL;
	*marks.dirty.tail = c;
	marks.dirty.tail = &c->next_dirty;
}

void conn_mark_kick(struct conn *c)
{
	if (c->flags & (F_KICKED | F_CLOSED))
		return;
	c->flags |= F_KICKED;
	c->next_kick = NULL;
	*marks.kicks.tail = c;
	marks.kicks.tail = &c->next_kick;
}

static struct conn *list_take(struct conn_list *l)
{
	struct conn *c = l->head;

	l->head = NULL;
	l->tail = &l->head;
	return c;
}

struct conn *mark_take_dirty(void)
{
	return list_take(&marks.dirty);
}

struct conn *mark_take_kicks(void)
{
	return list_take(&marks.kicks);
}

bool mark_has_dirty(void)
{
	return marks.dirty.head != NULL;
}

bool conn_has_kicks(void)
{
	return marks.kicks.head != NULL;
}

bool conn_has_work(void)
{
	return marks.kicks.head || marks.dirty.head;
}

/* --- the event mask --- */

static uint32_t mask_wanted(const struct conn *c)
{
	uint32_t want = 0;

	if (c->fd < 0 || (c->flags & (F_ENDED | F_CLOSED)))
		return 0;
	if (!(c->flags & F_CONNECTING))
		want |= F_IN_READ;
	if ((c->flags & F_BLOCKED) && !(c->flags & F_BROKEN))
		want |= F_IN_WRITE;
	/* Both registrations of a descriptor must agree about edges. */
	if (!conn_is_reading(c) && (c->flags & F_NOISY))
		want |= F_IN_EDGE;
	return want;
}

static void mask_remove(struct conn *c, uint32_t bits)
{
	bits &= c->flags;
	if (bits & F_IN_READ)
		loop_io_del(&c->io);
	if (bits & F_IN_WRITE) {
		loop_io_del(c->wio);
		slab_put(marks.wios, c->wio);
		c->wio = NULL;
	}
	c->flags &= ~bits;
}

static bool mask_add(struct conn *c, uint32_t bits, short edge)
{
	if (bits & F_IN_READ) {
		loop_io_init(&c->io, c->fd, (short)(LOOP_IO_READ | LOOP_IO_CLOSE | edge),
			marks.readable, c);
		if (!loop_io_add(&c->io))
			return false;
		c->flags |= F_IN_READ;
	}
	if (bits & F_IN_WRITE) {
		c->wio = slab_get(marks.wios);
		if (!c->wio)
			return false;
		loop_io_init(c->wio, c->fd, (short)(LOOP_IO_WRITE | edge), marks.writable, c);
		if (!loop_io_add(c->wio)) {
			slab_put(marks.wios, c->wio);
			c->wio = NULL;
			return false;
		}
		c->flags |= F_IN_WRITE;
	}
	return true;
}

void conn_install(struct conn *c)
{
	const uint32_t io = F_IN_READ | F_IN_WRITE, all = io | F_IN_EDGE;
	uint32_t want = mask_wanted(c), have = c->flags & all;
	uint32_t keep;

	if (want == have)
		return;
	keep = (want ^ have) & F_IN_EDGE ? 0 : want & have & io;
	mask_remove(c, have & io & ~keep);
	c->flags = (c->flags & ~(uint32_t)F_IN_EDGE) | (want & F_IN_EDGE);
	if (!mask_add(c, want & io & ~keep, want & F_IN_EDGE ? LOOP_IO_EDGE : 0)) {
		c->flags |= F_NO_MEMORY;
		conn_mark_dirty(c);
	}
}
