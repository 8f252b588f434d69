/*
 * The command line. Only reads it, and answers --help and --version. Entry point: options_read().
 */
#include "options.h"

#include <getopt.h>
#include <stdio.h>

#include "base/version.h"

enum { OPTION_CHECK = 256, OPTION_SCHEMA };

static const struct option long_options[] = {
	{"daemon", no_argument, NULL, 'd'},
	{"reboot", no_argument, NULL, 'R'},
	{"user", required_argument, NULL, 'u'},
	{"quiet", no_argument, NULL, 'q'},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, 'h'},
	{"check-config", no_argument, NULL, OPTION_CHECK},
	{"print-schema", no_argument, NULL, OPTION_SCHEMA},
	{NULL, 0, NULL, 0},
};

static const char usage_line[] = "Usage: qbouncer [OPTION]... CONFIG_FILE\n";

static const char help_text[] =
	"A connection pooler and job queue for PostgreSQL.\n\n"
	"  -d, --daemon         run in the background (needs pidfile, and logfile or syslog)\n"
	"  -R, --reboot         take over the sockets and connections of the process that runs,\n"
	"                       by its unix socket; it ends when it has none left\n"
	"  -u, --user=USERNAME  become this unix user; needed when started by root\n"
	"  -q, --quiet          log nothing to stderr once it runs\n"
	"  -v, --verbose        log more; twice: every message\n"
	"  -V, --version        print the version and exit\n"
	"  -h, --help           print this text and exit\n"
	"      --check-config   read the configuration, print what is wrong with it, exit with\n"
	"                       0 when it can be used and 1 when it cannot\n"
	"      --print-schema   print the SQL that installs the schema \"queue\" and exit\n\n"
	"Signals: HUP reloads, TERM ends when the clients have left, INT when the servers are\n"
	"free, QUIT at once (as a second TERM or INT); USR1 pauses, USR2 resumes.\n";

static enum options_verdict bad_usage(const char *text)
{
	if (text != NULL)
		fprintf(stderr, "qbouncer: %s\n", text);
	fprintf(stderr, "%sTry \"qbouncer --help\".\n", usage_line);
	return OPTIONS_BAD;
}

static const char built_with[] = ""
#ifdef HAVE_SYSTEMD
				 " systemd"
#endif
#ifdef HAVE_LIBIDN
				 " libidn"
#endif
#ifdef HAVE_PAM
				 " PAM"
#endif
#ifdef HAVE_LDAP
				 " LDAP"
#endif
	;

static enum options_verdict print_version(void)
{
	printf("qbouncer %s (%s)\nbuilt with:%s\n", version_number, version_commit, built_with);
	return OPTIONS_DONE;
}

static enum options_verdict read_one(int option, struct options *o)
{
	switch (option) {
	case 'd':
		o->daemon = true;
		return OPTIONS_RUN;
	case 'R':
		o->takeover = true;
		return OPTIONS_RUN;
	case 'u':
		o->user = optarg;
		return OPTIONS_RUN;
	case 'q':
		o->quiet = true;
		return OPTIONS_RUN;
	case 'v':
		o->verbose++;
		return OPTIONS_RUN;
	case 'V':
		return print_version();
	case 'h':
		printf("%s%s", usage_line, help_text);
		return OPTIONS_DONE;
	case OPTION_CHECK:
		o->check_config = true;
		return OPTIONS_RUN;
	case OPTION_SCHEMA:
		o->print_schema = true;
		return OPTIONS_RUN;
	default:
		return bad_usage(NULL); /* getopt has said why */
	}
}

enum options_verdict options_read(int argc, char **argv, struct options *ret)
{
	struct options o = {0};
	enum options_verdict v;
	int option;

	while ((option = getopt_long(argc, argv, "dRu:qvVh", long_options, NULL)) != -1) {
		v = read_one(option, &o);
		if (v != OPTIONS_RUN)
			return v;
	}
	if (optind < argc)
		o.config = argv[optind++];
	if (optind < argc)
		return bad_usage("more than one configuration file is given");
	if (o.config == NULL && !o.print_schema)
		return bad_usage("no configuration file is given");
	*ret = o;
	return OPTIONS_RUN;
}
