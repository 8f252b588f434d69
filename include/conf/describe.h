/*
 * What there is to configure, as text: for the sample file and the manual.
 */
#ifndef QB_CONF_DESCRIBE_H
#define QB_CONF_DESCRIBE_H

#include "base/util.h"

struct conf_key {
	const char *section; /* qbouncer, databases, users */
	const char *group;   /* title; NULL outside [qbouncer] */
	const char *name;
	const char *type;   /* text, time, size, number, octal, bool, or the words of an enum */
	const char *bounds; /* "1 to 65535", "from 0", "" */
	const char *def;    /* as written in the table; NULL outside [qbouncer] */
	bool restart;       /* needs a restart */
	bool computed;      /* shown only */
	const char *help;   /* sentences, names in `backquotes` */
};

/* In the order of the tables. The strings are valid during the call. */
void conf_describe(void (*fn)(const struct conf_key *key, void *arg), void *arg);

#endif
