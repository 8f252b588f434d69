/*
 * The one struct for an error that goes to a peer. Built here, sent by build_error().
 */
#ifndef QB_WIRE_ERROR_H
#define QB_WIRE_ERROR_H

#include "base/util.h"

struct pg_error {
	const char *severity; /* "ERROR", "FATAL", "WARNING", "NOTICE"; static strings */
	char sqlstate[6];
	char message[512];
	char detail[512];     /* empty: absent */
	char hint[768];       /* empty: absent */
	int position;         /* 1-based character position in the statement; 0: absent */
};

/* Fills severity ERROR, the state and the message; clears the rest. Returns err, for chaining. */
struct pg_error *pg_error_set(struct pg_error *err, const char *sqlstate, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
struct pg_error *pg_error_detail(struct pg_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct pg_error *pg_error_hint(struct pg_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct pg_error *pg_error_severity(struct pg_error *err, const char *severity);

#endif
