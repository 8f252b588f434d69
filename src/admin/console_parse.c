/*
 * The text of a console command, by the rows of cmds.h and of what can be shown. Pure: must not know clients,
 * databases or what a command does. Bare names of databases are taken as they are written.
 * Entry points: console_parse(), console_command_clear().
 */
#include <string.h>

#include "base/mem.h"
#include "wire/sqllex.h"
#include "admin_int.h"

enum { WORDS_MAX = 256 };

struct parser {
	struct sql_lexer lx;
	struct sql_token tok; /* the one to look at */
	const char *sql;
	size_t len;
	struct command *cmd;
	struct pg_error *err;
};

static void advance(struct parser *p)
{
	sql_lex_next(&p->lx, &p->tok);
}

static void go_on_at(struct parser *p, const char *pos)
{
	p->lx.pos = pos;
	advance(p);
}

/* --- errors --- */

static bool invalid(struct parser *p, const char *hint)
{
	const char *s = p->sql;
	size_t n = p->len;

	while (n > 0 && strchr(" \t\r\n\f\v", s[0]) != NULL)
		s++, n--;
	while (n > 0 && strchr(" \t\r\n\f\v;", s[n - 1]) != NULL)
		n--;
	/* whole characters only */
	if (n > 60)
		for (n = 60; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80; n--)
			;
	pg_error_set(p->err, CONSOLE_ERROR, "invalid command '%.*s', use SHOW HELP;", (int)n, s);
	pg_error_hint(p->err, "%s", hint);
	return false;
}

static bool wrong_usage(struct parser *p)
{
	char hint[160];
	size_t n = util_strlcpy(hint, "Usage: ", sizeof(hint));

	util_strlcpy(hint + n, console_commands[p->cmd->id].usage, sizeof(hint) - n);
	return invalid(p, hint);
}

static bool no_memory(struct parser *p)
{
	pg_error_set(p->err, "53200", "out of memory");
	return false;
}

/* --- pieces --- */

static bool word_is(const struct sql_token *t, const char *word)
{
	return t->kind == SQL_IDENT && t->len == strlen(word) &&
	       util_memcasecmp(t->text, word, t->len) == 0;
}

static bool at_end(const struct parser *p)
{
	return p->tok.kind == SQL_END;
}

/* An optional ';', and nothing behind it. */
static bool finish(struct parser *p)
{
	if (p->tok.kind == SQL_SEMICOLON)
		advance(p);
	if (at_end(p))
		return true;
	return p->cmd->id < CMD_PROBE ? wrong_usage(p) : invalid(p, "One command at a time.");
}

static bool nothing_left(const struct parser *p)
{
	return at_end(p) || p->tok.kind == SQL_SEMICOLON;
}

/* What is written up to a blank or ';'. */
static size_t run_length(const struct parser *p)
{
	const char *s = p->tok.text;

	while (s < p->lx.end && strchr(" \t\r\n\f\v;'\"", *s) == NULL)
		s++;
	return (size_t)(s - p->tok.text);
}

/* A name: quoted, or as it is written. */
static bool take_name(struct parser *p, char *dst, size_t size)
{
	struct buf b = BUF_INIT;
	bool ok = false;

	if (p->tok.kind == SQL_QIDENT) {
		ok = sql_token_value(&p->tok, true, &b);
		advance(p);
	} else {
		size_t n = run_length(p);

		ok = n > 0;
		buf_put(&b, p->tok.text, n);
		go_on_at(p, p->tok.text + n);
	}
	ok = ok && !buf_failed(&b) && b.len > 0 && b.len < size && memchr(b.data, 0, b.len) == NULL;
	if (ok)
		util_strlcpy(dst, buf_cstr(&b), size);
	buf_free(&b);
	return ok || wrong_usage(p);
}

/* --- arguments --- */

static bool read_show(struct parser *p)
{
	char name[CONSOLE_NAME_MAX];

	if (nothing_left(p))
		return wrong_usage(p);
	if (!take_name(p, name, sizeof(name)) || !finish(p))
		return false;
	for (size_t i = 0; i < SHOW_COUNT; i++)
		if (util_strcasecmp(shows[i].name, name) == 0) {
			p->cmd->show = (enum show_id)i;
			return true;
		}
	return invalid(p, "SHOW HELP lists what can be shown.");
}

/* A string, or what is written up to the end. */
static bool read_value(struct parser *p)
{
	struct buf b = BUF_INIT;
	const char *start = p->tok.text, *end = start;

	if (p->tok.kind == SQL_STRING) {
		if (!sql_token_value(&p->tok, p->lx.dialect, &b))
			b.failed = true;
		advance(p);
	} else {
		while (p->tok.kind == SQL_IDENT || p->tok.kind == SQL_NUMBER ||
			p->tok.kind == SQL_OTHER) {
			end = p->tok.text + p->tok.len;
			advance(p);
		}
		if (end == start)
			return wrong_usage(p);
		buf_put(&b, start, (size_t)(end - start));
	}
	if (buf_failed(&b)) {
		buf_free(&b);
		return wrong_usage(p);
	}
	if (b.len >= CONSOLE_VALUE_MAX || (b.len > 0 && memchr(b.data, 0, b.len) != NULL)) {
		buf_free(&b);
		return invalid(p, "The value is too long.");
	}
	p->cmd->value = mem_strdup(buf_cstr(&b));
	buf_free(&b);
	return p->cmd->value != NULL || no_memory(p);
}

static bool read_set(struct parser *p)
{
	struct sql_token t = p->tok;
	struct buf key = BUF_INIT;
	bool ok = (t.kind == SQL_IDENT || t.kind == SQL_QIDENT) &&
		  sql_token_value(&t, true, &key) && !buf_failed(&key) &&
		  key.len < CONSOLE_NAME_MAX;

	if (ok)
		util_strlcpy(p->cmd->name, buf_cstr(&key), CONSOLE_NAME_MAX);
	buf_free(&key);
	if (!ok)
		return wrong_usage(p);
	advance(p);
	if (p->tok.kind == SQL_OTHER && p->tok.text[0] == '=')
		go_on_at(p, p->tok.text + 1);
	else if (word_is(&p->tok, "to"))
		advance(p);
	else
		return wrong_usage(p);
	return read_value(p) && finish(p);
}

static bool read_database(struct parser *p, bool must)
{
	if (nothing_left(p))
		return must ? wrong_usage(p) : finish(p);
	return take_name(p, p->cmd->name, CONSOLE_NAME_MAX) && finish(p);
}

static bool read_install(struct parser *p)
{
	if (nothing_left(p))
		return wrong_usage(p);
	if (!take_name(p, p->cmd->name, CONSOLE_NAME_MAX))
		return false;
	if (nothing_left(p))
		return finish(p);
	if (!word_is(&p->tok, "as"))
		return wrong_usage(p);
	advance(p);
	if (nothing_left(p))
		return wrong_usage(p);
	return take_name(p, p->cmd->user, CONSOLE_NAME_MAX) && finish(p);
}

static bool wrong_client(struct parser *p)
{
	if (p->cmd->id != CMD_KILL_CLIENT)
		return wrong_usage(p);
	pg_error_set(p->err, CONSOLE_ERROR, "invalid client pointer supplied");
	pg_error_hint(p->err, "The number is `id` of SHOW CLIENTS.");
	return false;
}

/* `id`, or `ptr` in the hexadecimal form of SHOW CLIENTS. */
static bool read_client(struct parser *p)
{
	char text[32];
	uint64_t n = 0, base = 10;
	const char *s = text;

	if (nothing_left(p))
		return wrong_client(p);
	if (p->tok.kind == SQL_STRING)
		go_on_at(p, p->tok.text + 1);
	if (!take_name(p, text, sizeof(text)))
		return false;
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		base = 16, s += 2;
	for (; *s != '\0'; s++) {
		const char *digits = "0123456789abcdef", *d = strchr(digits, util_lower(*s));

		if (d == NULL || (uint64_t)(d - digits) >= base || n > (UINT64_MAX - 15) / base)
			return wrong_client(p);
		n = n * base + (uint64_t)(d - digits);
	}
	p->cmd->number = n;
	return finish(p);
}

static bool read_shutdown(struct parser *p)
{
	p->cmd->how = SHUTDOWN_NOW;
	if (nothing_left(p))
		return finish(p);
	if (word_is(&p->tok, "wait_for_servers"))
		p->cmd->how = SHUTDOWN_WAIT_SERVERS;
	else if (word_is(&p->tok, "wait_for_clients"))
		p->cmd->how = SHUTDOWN_WAIT_CLIENTS;
	else
		return wrong_usage(p);
	advance(p);
	return finish(p);
}

static bool read_argument(struct parser *p)
{
	switch (console_commands[p->cmd->id].arg) {
	case ARG_SHOW:
		return read_show(p);
	case ARG_SET:
		return read_set(p);
	case ARG_NONE:
		return finish(p);
	case ARG_DB_MAY:
		return read_database(p, false);
	case ARG_DB_MUST:
		return read_database(p, true);
	case ARG_INSTALL:
		return read_install(p);
	case ARG_CLIENT:
		return read_client(p);
	case ARG_SHUTDOWN:
		return read_shutdown(p);
	}
	return false;
}

/* --- the whole --- */

/* The words in lower case with one blank between, without the ';' at the end. false: too many, or
 * more than one command. */
static bool words_of(struct parser *p, char *dst, size_t size)
{
	struct sql_lexer lx = p->lx;
	struct sql_token t;
	size_t n = 0;

	sql_lex_init(&lx, p->sql, p->len, p->lx.dialect);
	sql_lex_next(&lx, &t);
	while (t.kind == SQL_SEMICOLON)
		sql_lex_next(&lx, &t);
	for (; t.kind != SQL_END && t.kind != SQL_SEMICOLON; sql_lex_next(&lx, &t)) {
		if (t.kind == SQL_BAD || n + t.len + 2 > size)
			return false;
		if (n > 0)
			dst[n++] = ' ';
		for (size_t i = 0; i < t.len; i++)
			dst[n++] = t.kind == SQL_IDENT ? util_lower(t.text[i]) : t.text[i];
	}
	while (t.kind == SQL_SEMICOLON)
		sql_lex_next(&lx, &t);
	dst[n] = '\0';
	return t.kind == SQL_END;
}

/* HELP alone, as it comes to mind; psql keeps only a `help` without anything behind it to itself.
 */
static bool is_help(const struct parser *p)
{
	struct parser rest = *p;
	struct command cmd = {.id = CMD_PROBE};
	struct pg_error err;

	rest.cmd = &cmd;
	rest.err = &err;
	if (!word_is(&p->tok, "help"))
		return false;
	advance(&rest);
	return finish(&rest);
}

static bool find_command(struct parser *p)
{
	/* a driver's probe, or the console's other spelling of SHOW */
	if (word_is(&p->tok, "select")) {
		p->cmd->id = CMD_SHOW;
		return true;
	}
	for (size_t i = 0; i < CMD_PROBE; i++)
		if (word_is(&p->tok, console_commands[i].name)) {
			p->cmd->id = (enum console_command)i;
			return true;
		}
	return false;
}

static bool parse(struct parser *p)
{
	char words[WORDS_MAX];

	advance(p);
	while (p->tok.kind == SQL_SEMICOLON)
		advance(p);
	if (words_of(p, words, sizeof(words)) && probe_find(words, &p->cmd->probe)) {
		p->cmd->id = CMD_PROBE;
		return true;
	}
	if (is_help(p)) {
		p->cmd->id = CMD_SHOW;
		p->cmd->show = SHOW_HELP;
		return true;
	}
	if (!find_command(p))
		return invalid(p, "SHOW HELP lists the commands.");
	advance(p);
	return read_argument(p);
}

bool console_parse(const char *sql, size_t len, bool standard_strings, struct command *ret,
	struct pg_error *err)
{
	struct parser p = {.sql = sql, .len = len, .cmd = ret, .err = err};

	memset(ret, 0, sizeof(*ret));
	sql_lex_init(&p.lx, sql, len, standard_strings);
	if (parse(&p))
		return true;
	console_command_clear(ret);
	return false;
}

void console_command_clear(struct command *cmd)
{
	mem_free(cmd->value);
	memset(cmd, 0, sizeof(*cmd));
}
