/*
 * Messages of a load. A line each: "file:line: error|warning: text"; without a line number when the
 * message is about the whole file.
 */
#ifndef QB_CONF_REPORT_INT_H
#define QB_CONF_REPORT_INT_H

#include "conf/conf.h"

struct ini_pos {
	const char *file;
	unsigned line; /* 0: the whole file */
};

void report_error(struct conf_report *r, const struct ini_pos *at, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
/* A secret stands there: a warning if everybody can read the file, one for each file. */
void report_secret(struct conf_report *r, const struct ini_pos *at, const char *key);
void report_warning(struct conf_report *r, const struct ini_pos *at, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

#endif
