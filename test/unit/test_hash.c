/* base/hash: how keys are spread over buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/util.h"

/* Keys that differ in one bit, or in their length alone, meet seldom: in the low bits, which choose the
 * bucket. */
static void test_spread(void **state)
{
	static uint8_t key[200];
	unsigned char met[4096] = {0};
	int most = 0, used = 0;

	(void)state;
	for (size_t bit = 0; bit < 8 * sizeof(key); bit++) {
		unsigned h;

		key[bit / 8] ^= (uint8_t)(1 << bit % 8);
		h = hash_bytes(key, sizeof(key)) % ARRAY_LEN(met);
		key[bit / 8] ^= (uint8_t)(1 << bit % 8);
		used += met[h]++ == 0;
	}
	for (size_t len = 0; len < sizeof(key); len++)
		used += met[hash_bytes(key, len) % ARRAY_LEN(met)]++ == 0;
	for (size_t i = 0; i < ARRAY_LEN(met); i++)
		most = met[i] > most ? met[i] : most;
	/* of 1 800 in 4 096: evenly at random 1 458 are used */
	assert_true(used > 1300 && most < 10);
}

/* Bytes behind the key do not count, nor where it lies. */
static void test_ends(void **state)
{
	char bytes[64], copy[80];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(200 + i);
	for (size_t len = 0; len < sizeof(bytes); len++) {
		for (size_t at = 0; at < 9; at++) {
			memset(copy, (int)at, sizeof(copy));
			memcpy(copy + at, bytes, len);
			assert_int_equal(hash_bytes(copy + at, len), hash_bytes(bytes, len));
		}
	}
}

/* With another seed others meet. */
static void test_seed(void **state)
{
	int same = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		unsigned h = hash_bytes(&i, sizeof(i)) % 1024;

		hash_seed = 0x0123456789abcdef;
		same += h == hash_bytes(&i, sizeof(i)) % 1024;
		hash_seed = 0;
	}
	assert_true(same < 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
