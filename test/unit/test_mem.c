/* Allocation, its test hook, slabs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"

static void test_allocations(void **state)
{
	char *p = mem_alloc(0), *q;

	(void)state;
	assert_non_null(p);
	p = mem_realloc(p, 100);
	assert_non_null(p);
	mem_free(p);
	p = mem_zalloc(64);
	assert_non_null(p);
	for (int i = 0; i < 64; i++)
		assert_int_equal(p[i], 0);
	mem_free(p);
	p = mem_strdup("text");
	q = mem_dup("a\0b", 3);
	assert_string_equal(p, "text");
	assert_memory_equal(q, "a\0b", 3);
	mem_free(p);
	mem_free(q);
	mem_free(NULL);
}

static void test_nth_fails_once(void **state)
{
	void *p;
	char *kept = mem_strdup("kept");

	(void)state;
	mem_fail_after(2);
	p = mem_alloc(1);
	assert_non_null(p);
	assert_null(mem_zalloc(1));
	mem_free(p);
	p = mem_alloc(1);
	assert_non_null(p);
	mem_free(p);
	mem_fail_after(1);
	assert_null(mem_realloc(kept, 1000));
	assert_string_equal(kept, "kept");
	mem_fail_after(1);
	assert_null(mem_strdup("x"));
	mem_fail_after(1);
	mem_fail_after(0);
	p = mem_dup("x", 1);
	assert_non_null(p);
	mem_free(p);
	mem_free(kept);
}

struct thing {
	char bytes[40];
	long double aligned;
};

static struct slab_stat seen;

static void see(const struct slab_stat *st, void *arg)
{
	if (!strcmp(st->name, arg))
		seen = *st;
}

static void test_slab(void **state)
{
	enum { MANY = 5000 };
	static struct thing *things[MANY];
	struct slab *s = slab_new("things", sizeof(struct thing));

	(void)state;
	assert_non_null(s);
	for (int i = 0; i < MANY; i++) {
		static const struct thing zero;

		things[i] = slab_get(s);
		assert_non_null(things[i]);
		assert_int_equal((uintptr_t)things[i] % _Alignof(struct thing), 0);
		assert_memory_equal(things[i], &zero, sizeof(zero));
		memset(things[i], 0xEE, sizeof(*things[i]));
	}
	slab_each(see, "things");
	assert_int_equal(seen.used, MANY);
	assert_int_equal(seen.size, sizeof(struct thing));
	assert_true(seen.total >= MANY * sizeof(struct thing));
	for (int i = 0; i < MANY; i++)
		slab_put(s, things[i]);
	slab_each(see, "things");
	assert_int_equal(seen.used, 0);
	assert_true(seen.free >= MANY);

	/* The next one comes from the free list, and is zeroed again. */
	size_t total = seen.total;
	struct thing *t = slab_get(s);

	assert_ptr_equal(t, things[MANY - 1]);
	assert_int_equal(t->bytes[39], 0);
	slab_each(see, "things");
	assert_int_equal(seen.total, total);
	slab_put(s, t);
	slab_free(&s);
	assert_null(s);
	slab_free(&s);
	seen.name = "none";
	slab_each(see, "things");
	assert_string_equal(seen.name, "none");
}

static void test_slab_sizes(void **state)
{
	static const size_t sizes[] = {1, 7, 8, 16, 17, 4096, 100000};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct slab *s = slab_new("sizes", sizes[i]);
		char *a = slab_get(s), *b = slab_get(s);

		assert_true(a + sizes[i] <= b || b + sizes[i] <= a);
		memset(a, 1, sizes[i]);
		memset(b, 2, sizes[i]);
		assert_int_equal(a[sizes[i] - 1], 1);
		slab_put(s, a);
		slab_put(s, b);
		slab_free(&s);
	}
}

static void test_slab_fails(void **state)
{
	struct slab *s;
	void *p, *q;

	(void)state;
	mem_fail_after(1);
	assert_null(slab_new("fails", 32));
	s = slab_new("fails", 32);
	assert_non_null(s);
	mem_fail_after(1); /* the object */
	assert_null(slab_get(s));
	mem_fail_after(2); /* its chunk */
	assert_null(slab_get(s));
	p = slab_get(s);
	assert_non_null(p);
	mem_fail_after(1); /* an object that would have come from the free list */
	assert_null(slab_get(s));
	q = slab_get(s);
	assert_non_null(q);
	slab_put(s, p);
	slab_put(s, q);
	slab_free(&s);
}

/* What was given back is there for the next one of its size, and of no other. */
static void test_blocks(void **state)
{
	uint8_t *p = block_get(100), *q, *big;

	(void)state;
	assert_non_null(p);
	memset(p, 7, 100);
	block_put(p, 100);
	q = block_get(200);
	assert_ptr_not_equal(q, p);
	block_put(q, 200);
	q = block_zget(90);
	assert_ptr_equal(q, p);
	for (int i = 0; i < 90; i++)
		assert_int_equal(q[i], 0);
	big = block_zget(BLOCK_MAX + 1);
	assert_non_null(big);
	assert_int_equal(big[BLOCK_MAX], 0);
	block_put(big, BLOCK_MAX + 1);
	block_put(q, 90);
	block_put(NULL, 90);
}

/* No more than 32 of a size are kept: the first that were given back, of which the last one comes first. */
static void test_blocks_that_are_many(void **state)
{
	void *p[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(p); i++)
		assert_non_null(p[i] = block_get(BLOCK_MAX));
	for (size_t i = 0; i < ARRAY_LEN(p); i++)
		block_put(p[i], BLOCK_MAX);
	for (size_t i = 32; i-- > 0;)
		assert_ptr_equal(block_get(BLOCK_MAX), p[i]);
	for (size_t i = 0; i < 32; i++)
		block_put(p[i], BLOCK_MAX);
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

/* What is behind it is nobody's, whether it is new or has been used for more. */
static void test_what_is_behind_a_block(void **state)
{
	(void)state;
	for (int turn = 0; turn < 2; turn++) {
		char *p = block_get(2500);

		assert_false(__asan_address_is_poisoned(p + 2499));
		assert_true(__asan_address_is_poisoned(p + 2500));
		assert_true(__asan_address_is_poisoned(p + 2559));
		block_put(p, 2500);
		assert_true(__asan_address_is_poisoned(p));
		p = block_get(2560);
		assert_false(__asan_address_is_poisoned(p + 2559));
		block_put(p, 2560);
	}
}
#endif

static void test_block_fails(void **state)
{
	void *p;

	(void)state;
	mem_fail_after(1);
	assert_null(block_get(3000));
	p = block_get(3000);
	assert_non_null(p);
	block_put(p, 3000);
	mem_fail_after(1); /* one that would have been there */
	assert_null(block_zget(3000));
	mem_fail_after(1);
	assert_null(block_get(BLOCK_MAX + 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocations),
		cmocka_unit_test(test_nth_fails_once),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_blocks_that_are_many),
		cmocka_unit_test(test_block_fails),
#ifdef __SANITIZE_ADDRESS__
		cmocka_unit_test(test_what_is_behind_a_block),
#endif
		cmocka_unit_test(test_slab),
		cmocka_unit_test(test_slab_sizes),
		cmocka_unit_test(test_slab_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
