/*
 * The console as the pool sees it: an interceptor that claims every statement. Transaction control
 * and empty statements are left to the pool, which answers them without a server.
 * Entry points: admin_start(), admin_free().
 */
#include <string.h>

#include "base/mem.h"
#include "pooler/stat.h"
#include "wire/sqltext.h"
#include "admin_int.h"

/* Beyond that no text is a command, nor one that the pool answers without a server. */
enum { TEXT_MAX = 16 * 1024, TX_TEXT_MAX = 1024 };

/* A second BEGIN is one that the pool would ask a server about. */
static bool pool_answers(struct client *c, struct sql_text *t)
{
	switch (sql_tx(t)) {
	case SQL_TX_OTHER:
		return false;
	case SQL_TX_BEGIN:
		return client_tx(c) != CLIENT_TX_VIRTUAL;
	case SQL_TX_EMPTY:
	case SQL_TX_COMMIT:
	case SQL_TX_ROLLBACK:
		break;
	}
	return true;
}

static enum claim claim(struct client *c, struct sql_text *t)
{
	if (t->of == SQL_OF_PART)
		return t->len < TEXT_MAX ? CLAIM_MORE : CLAIM_MINE;
	return t->len < TX_TEXT_MAX && pool_answers(c, t) ? CLAIM_PASS : CLAIM_MINE;
}

static void *stmt_new(struct client *c, const char *sql, size_t len, const uint32_t *oids,
	int n_oids, struct pg_error *err)
{
	struct command *cmd = mem_zalloc(sizeof(*cmd));

	(void)oids;
	(void)n_oids;
	if (cmd == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return NULL;
	}
	if (!console_parse(sql, len, client_dialect(c) & SQL_STANDARD, cmd, err)) {
		stat_console_query();
		client_log_refusal(c, err->message);
		mem_free(cmd);
		return NULL;
	}
	return cmd;
}

static void stmt_free(void *stmt)
{
	console_command_clear(stmt);
	mem_free(stmt);
}

static void stmt_shape(const void *stmt, struct stmt_shape *ret)
{
	const struct command *cmd = stmt;

	memset(ret, 0, sizeof(*ret));
	if (cmd->id == CMD_SHOW) {
		ret->fields = show_fields(cmd->show, &ret->n_fields);
	} else if (cmd->id == CMD_PROBE && cmd->probe.field.name != NULL) {
		ret->fields = &cmd->probe.field;
		ret->n_fields = 1;
	}
}

/* One for all, or one for each column. */
static bool formats_fit(const struct exec *x)
{
	struct stmt_shape shape;

	stmt_shape(x->stmt, &shape);
	return x->bind.n_formats <= 1 || x->bind.n_formats == shape.n_fields;
}

static enum exec_verdict execute(struct exec *x)
{
	enum exec_verdict v = EXEC_ERROR;

	stat_console_query();
	if (!formats_fit(x)) {
		pg_error_set(&x->err, "08P01",
			"bind message has %d result formats, which are not as many as there are columns",
			x->bind.n_formats);
	} else {
		v = command_run(x, x->stmt);
	}
	if (v == EXEC_ERROR)
		client_log_refusal(x->client, x->err.message);
	return v;
}

static void client_ended(struct client *c, enum client_end how)
{
	(void)how;
	command_client_ended(c);
}

static const struct interceptor console = {
	.name = "console",
	.claim = claim,
	.stmt_new = stmt_new,
	.stmt_free = stmt_free,
	.stmt_shape = stmt_shape,
	.execute = execute,
	.cancel = command_cancel,
	.client_ended = client_ended,
};

bool admin_start(const struct admin_hooks *hooks)
{
	if (!command_start(hooks))
		return false;
	intercept_register(&console, true);
	return true;
}

void admin_free(void)
{
	command_free();
}
