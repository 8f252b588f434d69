/*
 * The command line.
 */
#ifndef QB_OPTIONS_H
#define QB_OPTIONS_H

#include "base/util.h"

struct options {
	bool daemon, quiet, check_config, print_schema;
	bool takeover; /* of the process that the pid file names */
	int verbose;
	const char *user;   /* NULL: not given */
	const char *config; /* NULL only with print_schema */
};

enum options_verdict { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_BAD };

/* --help and --version are answered here: DONE. What is wrong is told on stderr: BAD. */
MUST_CHECK enum options_verdict options_read(int argc, char **argv, struct options *ret);

#endif
