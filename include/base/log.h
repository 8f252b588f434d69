/*
 * Logging: one event, one line. The object in front (`C-0x5581: app/alice@127.0.0.1:50411`) is
 * formatted by its owner and passed as prefix. Control characters in arguments are escaped.
 */
#ifndef QB_BASE_LOG_H
#define QB_BASE_LOG_H

#include <stdarg.h>
#include "base/util.h"

enum log_level { LOG_LVL_FATAL, LOG_LVL_ERROR, LOG_LVL_WARNING, LOG_LVL_INFO, LOG_LVL_DEBUG, LOG_LVL_NOISE };

struct log_target {
	const char *file;   /* NULL or "": no file */
	bool to_stderr;     /* not when daemonised or -q */
	bool to_syslog;
	bool json; /* one JSON object a line, in the file and on stderr */
	const char *syslog_ident, *syslog_facility;
	int verbose;        /* 0: up to INFO, 1: DEBUG, 2: NOISE */
};

/* (Re)opens. Strings are copied. Returns false when the file cannot be opened (the old one stays). */
MUST_CHECK bool log_open(const struct log_target *t);
void log_reopen(void);
bool log_facility_known(const char *name); /* of syslog */
void log_close(void);
bool log_enabled(enum log_level lvl);
bool log_is_on_stderr(void);
void log_write(enum log_level lvl, const char *prefix, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_writev(enum log_level lvl, const char *prefix, const char *fmt, va_list ap);

#define log_error(...)   log_write(LOG_LVL_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LVL_WARNING, NULL, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LVL_INFO, NULL, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_LVL_DEBUG))                                                    \
			log_write(LOG_LVL_DEBUG, NULL, __VA_ARGS__);                               \
	} while (0)

#endif
