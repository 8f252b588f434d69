/* The user file, the rules and the maps: any bytes are one of them or an error, and whoever asks
 * gets an answer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "auth/auth.h"
#include "auth/hba.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Alone in a directory, so that include finds nothing else; in memory, because disks are slow. */
static char dir[] = "/tmp/qb_fuzz_access_XXXXXX", path[64];

static void tidy(void)
{
	unlink(path);
	rmdir(dir);
}

static int begin(void)
{
	int fd = memfd_create("access", 0);
	char target[64];

	snprintf(target, sizeof(target), "/proc/self/fd/%d", fd);
	if (fd < 0 || !mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/a.conf", dir);
	atexit(tidy);
	return symlink(target, path) == 0 ? fd : -1;
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
	static int fd = -1;
	struct hba *h;
	char err[300];

	if (fd < 0)
		fd = begin();
	if (fd < 0)
		__builtin_trap();
	if (size == 0)
		return 0;
	if (ftruncate(fd, 0) != 0 || pwrite(fd, data + 1, size - 1, 0) != (ssize_t)(size - 1))
		__builtin_trap();
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
