/*
 * What the console can do, as text: for the manual.
 */
#ifndef QB_ADMIN_DESCRIBE_H
#define QB_ADMIN_DESCRIBE_H

#include "wire/build.h"

struct admin_entry {
	const char *name; /* of a command: how it is written */
	bool admin;       /* only for admin_users */
	const char *help; /* sentences, names in `backquotes` */
	bool show;        /* something to SHOW: it has columns */
	const struct wire_field *columns;
	int n_columns;
};

/* The commands, then what SHOW shows, in the order of the tables. */
void admin_describe(void (*fn)(const struct admin_entry *e, void *arg), void *arg);

#endif
