/*
 * The configuration as the program as a whole lives by it: read, put in force, read again.
 */
#ifndef QB_SETTINGS_H
#define QB_SETTINGS_H

#include "options.h"
#include "wire/error.h"

/* Reads the file; prints the report; the exit code of --check-config. */
int settings_check(const char *path);

/* At the start: configuration and users. false: told on stderr. */
MUST_CHECK bool settings_load(const struct options *o);
void settings_free(void);

/* The log, from now on as configured. */
MUST_CHECK bool settings_open_log(char *err, size_t err_size);
/* Warns when the descriptors will not do. */
void settings_check_files(unsigned long limit);

/* All or nothing; what was found is logged, with file and line. */
bool settings_reload(struct pg_error *err);
/* The same without a pooler: a log, and what those find who are started later. */
void settings_follow(void);
/* What was made from parameters is made again. */
void settings_apply(void);
/* The same after SET, which may have named other files. */
void settings_changed(void);

#endif
