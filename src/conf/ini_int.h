/*
 * The reader of ini files: sections, keys, %include. Knows no key and no section itself.
 */
#ifndef QB_CONF_INI_INT_H
#define QB_CONF_INI_INT_H

#include "report_int.h"

/* Called for each `key = value`. Both are terminated, trimmed, and valid during the call. */
typedef void ini_entry_fn(
	struct conf_report *r, const struct ini_pos *at, const char *key, char *value, void *arg);

struct ini_reader {
	ini_entry_fn *(*section)(const char *name); /* NULL: there is no such section */
	void *arg;                                  /* for the entry functions */
	struct conf_report *report;
	unsigned files; /* included so far, over all depths */
};

void ini_read_file(struct ini_reader *r, const char *path);
/* %include is refused here. */
void ini_read_text(struct ini_reader *r, const char *name, const char *text, size_t len);

/*
 * The next `key=value` of a connection string. Values with spaces are 'quoted', a quote inside is
 * doubled; spaces around = are allowed. Terminates key and value in place and moves *p behind them.
 */
enum ini_pair { INI_PAIR, INI_PAIR_END, INI_PAIR_BAD };
MUST_CHECK enum ini_pair ini_next_pair(char **p, char **ret_key, char **ret_value);

#endif
