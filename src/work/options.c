/*
 * The command line of qbouncer-work. Only reads it, and answers --help and --version.
 * Entry point: work_options_read().
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"

enum {
	OPTION_HOLD = 256,
	OPTION_LINES,
	OPTION_RESULT,
	OPTION_RESULT_MAX,
	OPTION_CHECK,
	OPTION_GRACE,
	OPTION_TIMEOUT,
	OPTION_SILENCE,
	OPTION_WAIT,
	OPTION_ONCE,
	OPTION_DRAIN
};

static const struct option long_options[] = {
	{"dbname", required_argument, NULL, 'd'},
	{"queue", required_argument, NULL, 'q'},
	{"concurrency", required_argument, NULL, 'c'},
	{"name", required_argument, NULL, 'n'},
	{"hold", required_argument, NULL, OPTION_HOLD},
	{"lines", no_argument, NULL, OPTION_LINES},
	{"result", no_argument, NULL, OPTION_RESULT},
	{"result-max", required_argument, NULL, OPTION_RESULT_MAX},
	{"check", required_argument, NULL, OPTION_CHECK},
	{"grace", required_argument, NULL, OPTION_GRACE},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"silence", required_argument, NULL, OPTION_SILENCE},
	{"wait", no_argument, NULL, OPTION_WAIT},
	{"once", no_argument, NULL, OPTION_ONCE},
	{"drain", no_argument, NULL, OPTION_DRAIN},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static const char usage_line[] =
	"Usage: qbouncer-work [OPTION]... -q QUEUE -- COMMAND [ARGUMENT]...\n";

static const char help_text[] =
	"Takes jobs of a queue and runs a command for each, its payload on standard input.\n\n"
	"  -d, --dbname=CONNINFO   where qbouncer is: a URI or key=value; else PGHOST and so on\n"
	"  -q, --queue=QUEUE       the queue\n"
	"  -c, --concurrency=N     so many commands at once, each with a connection (1)\n"
	"  -n, --name=TEXT         what PEEK calls this worker (host and process)\n"
	"      --hold=INTERVAL     the longest that a job may be held (1 hour)\n"
	"      --timeout=SECONDS   end a command that runs longer; its job has failed\n"
	"      --grace=SECONDS     between SIGTERM and SIGKILL for a command, and what running\n"
	"                          commands have when this program is told to end (30)\n"
	"      --check=SECONDS     how often to look whether a running job is cancelled or lost;\n"
	"                          0: never (5)\n"
	"      --silence=SECONDS   connect again if the server answers nothing for so long; 0: never (60)\n"
	"      --wait              also at the start try again if nobody is there\n"
	"      --result            what the command writes to standard output is the job's result\n"
	"      --lines             the command stays: it reads jobs, a line of JSON each, and answers\n"
	"                          each with {\"done\": result} or {\"fail\": \"why\", \"retry\": \"5 s\"},\n"
	"                          {\"progress\": value} before\n"
	"      --result-max=BYTES  fail the job if its result, or answer, is more (1048576)\n"
	"      --once              end after one job\n"
	"      --drain             end when no job is ready\n"
	"  -v, --verbose           tell of each job\n"
	"  -V, --version           print the version and exit\n"
	"  -h, --help              print this text and exit\n\n"
	"The command ends with 0: the job is done; 65: it has failed for good; anything else, 75\n"
	"or a signal: it has failed and is tried again as the queue says.\n"
	"Exits with 0; 1: wrong usage; 2: it may not log in or take, there is no such queue, or nobody\n"
	"was there when it started; with --once and --drain also if it cannot connect later.\n";

static enum work_options_verdict bad_usage(const char *text)
{
	fprintf(stderr, "qbouncer-work: %s\n%sTry \"qbouncer-work --help\".\n", text, usage_line);
	return WORK_BAD;
}

static bool read_seconds(const char *text, usec_t *ret)
{
	char *end;
	errno = 0;
	double seconds = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 || !(seconds >= 0 && seconds <= 1e9))
		return false;
	*ret = (usec_t)(seconds * (double)USEC_SEC);
	return true;
}

static bool read_number(const char *text, int64_t least, int64_t most, int64_t *ret)
{
	return util_parse_i64(text, strlen(text), ret) && *ret >= least && *ret <= most;
}

static bool read_until(struct work_options *o, enum work_until until)
{
	if (o->until != WORK_ALWAYS && o->until != until)
		return false;
	o->until = until;
	return true;
}

/* false: its value is wrong. */
static bool read_one(int option, struct work_options *o)
{
	int64_t n = 0;
	bool ok = true;
	switch (option) {
	case 'd':
		o->conninfo = optarg;
		return true;
	case 'q':
		o->queue = optarg;
		return *optarg != '\0';
	case 'n':
		o->name = optarg;
		return true;
	case 'c':
		ok = read_number(optarg, 1, 1000, &n);
		o->slots = (int)n;
		return ok;
	case 'v':
		o->verbose = true;
		return true;
	case OPTION_HOLD:
		o->hold = optarg;
		return true;
	case OPTION_RESULT:
		o->result = true;
		return true;
	case OPTION_LINES:
		o->lines = true;
		return true;
	case OPTION_RESULT_MAX:
		ok = read_number(optarg, 1, 1 << 30, &n);
		o->result_max = (size_t)n;
		return ok;
	case OPTION_CHECK:
		return read_seconds(optarg, &o->check);
	case OPTION_GRACE:
		return read_seconds(optarg, &o->grace);
	case OPTION_TIMEOUT:
		return read_seconds(optarg, &o->timeout);
	case OPTION_SILENCE:
		return read_seconds(optarg, &o->silence);
	case OPTION_WAIT:
		o->wait = true;
		return true;
	case OPTION_ONCE:
		return read_until(o, WORK_ONCE);
	case OPTION_DRAIN:
		return read_until(o, WORK_DRAIN);
	default:
		return false;
	}
}

enum work_options_verdict work_options_read(struct work_options *o, int argc, char **argv)
{
	char host[100] = "";
	*o = (struct work_options){.hold = "1 hour",
		.slots = 1,
		.result_max = 1048576,
		.check = 5 * USEC_SEC,
		.grace = 30 * USEC_SEC,
		.silence = 60 * USEC_SEC};
	(void)gethostname(host, sizeof(host) - 1);
	snprintf(o->own_name, sizeof(o->own_name), "qbouncer-work on %s, process %ld", host,
		(long)getpid());
	o->name = o->own_name;
	int option, at = 0;
	while ((option = getopt_long(argc, argv, "+d:q:c:n:vVh", long_options, &at)) != -1) {
		if (option == 'h') {
			printf("%s%s", usage_line, help_text);
			return WORK_DONE;
		}
		if (option == 'V') {
			printf("qbouncer-work %s (%s)\n", version_number, version_commit);
			return WORK_DONE;
		}
		if (option == '?')
			return bad_usage("wrong option");
		if (!read_one(option, o)) {
			char text[200];
			if (option == OPTION_ONCE || option == OPTION_DRAIN)
				return bad_usage("--once and --drain exclude each other");
			snprintf(
				text, sizeof(text), "wrong value of an option: \"%.100s\"", optarg);
			return bad_usage(text);
		}
	}
	if (o->queue == NULL)
		return bad_usage("-q is missing: which queue?");
	if (optind >= argc)
		return bad_usage("the command is missing");
	if (o->lines && o->result)
		return bad_usage(
			"--lines and --result exclude each other: with --lines the answer has the result");
	if (o->until == WORK_ONCE)
		o->slots = 1;
	o->command = argv + optind;
	return WORK_RUN;
}
