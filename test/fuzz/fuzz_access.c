/* The user file, the rules and the maps: any bytes are one of them or an error, and whoever asks
 * gets an answer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/auth.h"
#include "auth/hba.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[] = "/tmp/qb_fuzz_access_XXXXXX";

static void tidy(void)
{
	unlink(path);
}

static void ask(void)
{
	static const char *const addresses[] = {"127.0.0.1", "::1", "10.0.0.1", "fe80::1", "x"};
	static char name[256]; /* a long one, such as patterns need the longest for */

	memset(name, 'a', sizeof(name) - 1);
	for (size_t i = 0; i < ARRAY_LEN(addresses) * 8; i++) {
		struct hba_peer p = {.address = addresses[i / 8],
			.host = i % 3 ? i % 3 == 1 ? "" : "a.test" : NULL,
			.is_unix = i & 1,
			.tls = i & 2,
			.replication = i & 4,
			.database = "app",
			.user = "bob"};
		const struct hba_rule *r = hba_wants_host(&p) ? NULL : hba_find(&p);

		if (r)
			(void)!hba_map_allows(r->map, "bob", "app");
	}
	(void)hba_find(
		&(struct hba_peer){.is_unix = true, .address = "", .database = name, .user = name});
	(void)!hba_map_allows("m", "bob", "app");
	(void)!hba_map_allows("m", name, name);
}

/* The first byte says what it is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *f;
	struct hba *h;
	char err[300];

	if (!f) {
		f = fdopen(mkstemp(path), "w");
		atexit(tidy);
	}
	if (!f || size == 0)
		return 0;
	rewind(f);
	if (ftruncate(fileno(f), 0) != 0)
		return 0;
	fwrite(data + 1, 1, size - 1, f);
	fflush(f);
	if (data[0] % 3 == 0) {
		if (auth_file_load(path, err, sizeof(err)))
			(void)auth_user_find("bob");
		auth_file_free();
		return 0;
	}
	h = data[0] % 3 == 1 ? hba_read(path, NULL, err, sizeof(err))
			     : hba_read("/dev/null", path, err, sizeof(err));
	if (h) {
		hba_install(h);
		ask();
		hba_install(NULL);
	}
	return 0;
}
