/*
 * The private face of the console.
 *
 *   console_parse.c  text -> struct command, by the rows of cmds.h and of what can be shown; pure
 *   console.c        the interceptor: statements in, answers out
 *   command.c        what the commands do, at once or later
 *   others.c         the same in the other processes of the program
 *   probe.c          what drivers ask when they connect
 */
#ifndef QB_ADMIN_INT_H
#define QB_ADMIN_INT_H

#include "admin/admin.h"
#include "pool/intercept.h"
#include "show/show.h"
#include "wire/build.h"

#define CONSOLE_NAME_MAX  128  /* of a database or parameter, with terminator */
#define CONSOLE_VALUE_MAX 8193 /* of SET, with terminator */

/* The SQLSTATE of what pgbouncer refuses, too: programs that drive it look for it. */
#define CONSOLE_ERROR "08P01"

/* --- the tables --- */

enum console_arg {
	ARG_SHOW, /* name of a row of what can be shown, or of a setting that drivers ask for */
	ARG_SET,  /* key = value | key TO value */
	ARG_NONE,
	ARG_DB_MAY,
	ARG_DB_MUST,
	ARG_INSTALL,     /* a database [AS user] */
	ARG_CLIENT,      /* number of a client */
	ARG_SHUTDOWN,    /* nothing, or how to wait */
};

enum console_command {
#define COMMAND(id, arg, who, usage, help) CMD_##id,
#include "cmds.h"
	CMD_PROBE, /* answered by probe.c */
	CMD_COUNT
};

struct console_command_row {
	const char *name, *usage, *help;
	enum console_arg arg;
	enum who who;
};
extern const struct console_command_row console_commands[];

/* --- statements --- */

struct probe {
	struct wire_field field; /* name NULL: no row */
	const char *value;
	const char *tag; /* "SHOW", "SET", "SELECT 1", ... */
};

struct command {
	enum console_command id;
	enum show_id show;      /* SHOW */
	enum pooler_shutdown how;    /* SHUTDOWN */
	uint64_t number;             /* KILL_CLIENT */
	char name[CONSOLE_NAME_MAX]; /* database or key; "" when there is none */
	char user[CONSOLE_NAME_MAX]; /* INSTALL ... AS; "" when there is none */
	char *value;                 /* SET; owned */
	bool known;                  /* asked by another process, which has that database */
	struct probe probe;
};

/* false: err says why; cmd is empty then. */
MUST_CHECK bool console_parse(const char *sql, size_t len, bool standard_strings,
	struct command *ret, struct pg_error *err);
void console_command_clear(struct command *cmd);

/* Is it something that a driver says by itself? tokens: the words, lower case, one blank between,
 * no ';'. */
MUST_CHECK bool probe_find(const char *words, struct probe *ret);

/* --- answers --- */

void console_help_notice(struct buf *out);

enum exec_verdict command_run(struct exec *x, const struct command *cmd);
void command_cancel(struct client *c);
void command_client_ended(struct client *c);
MUST_CHECK bool command_start(const struct admin_hooks *hooks);
void command_free(void);

#endif
