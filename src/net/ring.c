/*
 * io_uring, for sends alone and only as a batch: what is added goes to the kernel with one system call, which
 * returns with all results. Spoken to without a library, as so little of it is needed. Knows no connections.
 */
#include "ring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

/* Since Linux 5.7; what came before lacks sends, or ignores MSG_DONTWAIT. */
#define FEATURES (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL)

enum ring_state { RING_UNTRIED, RING_READY, RING_NONE };

static struct {
	enum ring_state state;
	bool wanted;
	int fd;
	uint8_t *map; /* both queues */
	size_t map_size;
	struct io_uring_sqe *sqes;
	unsigned *sq_head, *sq_tail, *cq_head, *cq_tail;
	struct io_uring_cqe *cqes;
	unsigned cq_mask;
	unsigned tail, n;      /* n: added since the last run */
	void *args[RING_SIZE]; /* NULL: told */
} ring;

/* --- making it --- */

static void unmap(void)
{
	if (ring.sqes)
		(void)munmap(ring.sqes, RING_SIZE * sizeof(*ring.sqes));
	if (ring.map)
		(void)munmap(ring.map, ring.map_size);
	if (ring.fd >= 0)
		close(ring.fd);
	ring.sqes = NULL;
	ring.map = NULL;
	ring.fd = -1;
}

static void *map_part(size_t size, off_t offset)
{
	void *p = mmap(
		NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, offset);

	if (p == MAP_FAILED)
		return NULL;
	/* a child would speak for us */
	(void)madvise(p, size, MADV_DONTFORK);
	return p;
}

static unsigned *word_at(uint32_t offset)
{
	return (unsigned *)(void *)(ring.map + offset);
}

static bool map(const struct io_uring_params *p)
{
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);

	ring.map_size = sq > cq ? sq : cq;
	ring.map = map_part(ring.map_size, IORING_OFF_SQ_RING);
	ring.sqes = map_part(RING_SIZE * sizeof(*ring.sqes), IORING_OFF_SQES);
	if (!ring.map || !ring.sqes)
		return false;
	ring.sq_head = word_at(p->sq_off.head);
	ring.sq_tail = word_at(p->sq_off.tail);
	ring.cq_head = word_at(p->cq_off.head);
	ring.cq_tail = word_at(p->cq_off.tail);
	ring.cq_mask = *word_at(p->cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(void *)(ring.map + p->cq_off.cqes);
	for (unsigned i = 0; i < RING_SIZE; i++)
		word_at(p->sq_off.array)[i] = i;
	ring.tail = 0;
	return true;
}

static bool make(void)
{
	struct io_uring_params p = {0};

	ring.fd = (int)syscall(SYS_io_uring_setup, RING_SIZE, &p);
	if (ring.fd < 0)
		return false;
	if ((p.features & FEATURES) != FEATURES || p.sq_entries != RING_SIZE) {
		errno = ENOSYS;
		return false;
	}
	return map(&p);
}

void ring_want(bool on)
{
	ring.wanted = on;
}

bool ring_is_ready(void)
{
	if (!ring.wanted || ring.state == RING_NONE)
		return false;
	if (ring.state == RING_READY)
		return true;
	ring.fd = -1;
	ring.state = make() ? RING_READY : RING_NONE;
	if (ring.state == RING_READY)
		return true;
	log_info("io_uring is not used: %s", strerror(errno));
	unmap();
	return false;
}

void ring_free(void)
{
	if (ring.state == RING_READY)
		unmap();
	ring.state = RING_UNTRIED;
}

/* --- a batch --- */

void ring_add(int fd, const void *data, size_t len, void *arg)
{
	struct io_uring_sqe *e = &ring.sqes[ring.tail % RING_SIZE];

	memset(e, 0, sizeof(*e));
	e->opcode = IORING_OP_SEND;
	e->fd = fd;
	e->addr = (uintptr_t)data;
	e->len = (uint32_t)len;
	e->msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT;
	e->user_data = ring.n;
	ring.tail++;
	ring.args[ring.n++] = arg;
}

/* The results that are there. Returns how many. */
static unsigned take_results(void (*told)(void *arg, int result))
{
	unsigned head = *ring.cq_head, tail = __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE),
		 n = 0;

	for (; head != tail; head++, n++) {
		const struct io_uring_cqe *e = &ring.cqes[head & ring.cq_mask];
		void *arg = ring.args[e->user_data % RING_SIZE];

		ring.args[e->user_data % RING_SIZE] = NULL;
		told(arg, e->res);
	}
	__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
	return n;
}

/* What the kernel has taken may have been sent, and nobody will say whether: those connections are lost. The
 * others are as if they had not been added. */
static void give_up(void (*told)(void *arg, int result))
{
	unsigned taken = ring.n - (ring.tail - __atomic_load_n(ring.sq_head, __ATOMIC_ACQUIRE));

	log_warning("io_uring is not used any more: %s", strerror(errno));
	for (unsigned i = 0; i < taken; i++)
		if (ring.args[i])
			told(ring.args[i], -EIO);
	unmap();
	ring.state = RING_NONE;
}

void ring_run(void (*told)(void *arg, int result))
{
	unsigned left = ring.n, to_submit = ring.n;
	long n;

	__atomic_store_n(ring.sq_tail, ring.tail, __ATOMIC_RELEASE);
	while (left > 0) {
		n = syscall(SYS_io_uring_enter, ring.fd, to_submit, left, IORING_ENTER_GETEVENTS,
			NULL, (size_t)0);
		if (n < 0 && errno != EINTR) {
			left -= take_results(told);
			if (left > 0 || to_submit > 0)
				give_up(told);
			break;
		}
		if (n > 0)
			to_submit -= (unsigned)n;
		left -= take_results(told);
	}
	ring.n = 0;
}
