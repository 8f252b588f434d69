/*
 * The clients of the benchmark that neither pgbench nor Python can be: many thousand sockets, or
 * clocks that matter.
 *
 *   client MODE HOST PORT USER DATABASE ARGUMENT...
 *
 * The modes are described where they are. Results are lines "name value" on stdout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link.h"

static const struct {
	const char *name;
	int args; /* at least */
	int (*fn)(const struct target *t, char **arg);
} modes[] = {
	{"idle", 1, do_idle},
	{"park", 2, do_park},
	{"latency", 7, do_latency},
	{"commit", 3, do_commit},
	{"login", 3, do_login},
	{"loop", 8, do_loop},
	{"pace", 4, do_pace},
	{"cancel", 4, do_cancel},
	{"read", 3, do_read},
	{"write", 4, do_write},
	{"beanstalkd", 4, do_beanstalkd},
	{"redis", 4, do_redis},
	{"nats", 4, do_nats},
	{"rabbitmq", 4, do_rabbitmq},
};

int main(int argc, char **argv)
{
	struct target t;

	if (argc < 6)
		return 2;
	t = (struct target){
		.host = argv[2], .port = atoi(argv[3]), .user = argv[4], .database = argv[5]};
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0 && argc >= 6 + modes[i].args)
			return modes[i].fn(&t, argv + 6);
	fprintf(stderr, "unknown mode or wrong number of arguments\n");
	return 2;
}
