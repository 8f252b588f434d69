/*
 * The private face of the console.
 *
 *   console_parse.c  text -> struct command, by the rows of cmds.h and shows.h; pure
 *   console.c        the interceptor: statements in, answers out
 *   command.c        what the commands do, at once or later
 *   rows.c           the rows of a SHOW, in the formats that were asked for
 *   show*.c          one filler for each row of shows.h
 *   probe.c          what drivers ask when they connect
 */
#ifndef QB_ADMIN_INT_H
#define QB_ADMIN_INT_H

#include "admin/admin.h"
#include "pool/intercept.h"
#include "wire/build.h"

#define CONSOLE_NAME_MAX  128  /* of a database or parameter, with terminator */
#define CONSOLE_VALUE_MAX 8193 /* of SET, with terminator */

/* The SQLSTATE of what pgbouncer refuses, too: programs that drive it look for it. */
#define CONSOLE_ERROR "08P01"

struct show_rows;

/* --- the tables --- */

enum console_who { WHO_ADMIN, WHO_STATS };

enum console_arg {
	ARG_SHOW, /* name of a row of shows.h, or of a setting that drivers ask for */
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

enum console_show {
#define SHOW(id, filler, who, help, columns) SHOW_##id,
#include "shows.h"
	SHOW_COUNT
};

struct console_command_row {
	const char *name, *usage, *help;
	enum console_arg arg;
	enum console_who who;
};
extern const struct console_command_row console_commands[];

struct console_show_row {
	const char *name, *help;
	enum console_who who;
	const struct wire_field *fields;
	int n_fields;
	void (*fill)(struct show_rows *r);
};
extern const struct console_show_row console_shows[];

/* --- statements --- */

struct probe {
	struct wire_field field; /* name NULL: no row */
	const char *value;
	const char *tag; /* "SHOW", "SET", "SELECT 1", ... */
};

struct command {
	enum console_command id;
	enum console_show show;      /* SHOW */
	enum pooler_shutdown how;    /* SHUTDOWN */
	uint64_t number;             /* KILL_CLIENT */
	char name[CONSOLE_NAME_MAX]; /* database or key; "" when there is none */
	char user[CONSOLE_NAME_MAX]; /* INSTALL ... AS; "" when there is none */
	char *value;                 /* SET; owned */
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

struct show_rows {
	struct buf *out;
	const struct wire_field *fields;
	int n_fields;
	const int16_t *formats;
	int n_formats;
	int n_rows;
	int column;   /* next */
	size_t start; /* of the row under way */
};

/* A row is begun, gets one value for each column, in their order, and is ended. */
void row_begin(struct show_rows *r);
void row_end(struct show_rows *r);
void row_text(struct show_rows *r, const char *s); /* NULL: SQL NULL */
void row_null(struct show_rows *r);
void row_int(struct show_rows *r, int64_t v); /* in the type of the column */
void row_bool(struct show_rows *r, bool v);   /* 0 or 1 */
/* A text, "t" or "f", or a digit, in the type of the column */
void row_constant(struct show_rows *r, const char *text);
/* "2026-01-31 12:00:00 UTC"; 0: empty */
void row_time(struct show_rows *r, usec_t wall);

void console_help_notice(struct buf *out);

enum exec_verdict command_run(struct exec *x, const struct command *cmd);
void command_cancel(struct client *c);
void command_client_ended(struct client *c);
MUST_CHECK bool command_start(const struct admin_hooks *hooks);
void command_free(void);

#endif
