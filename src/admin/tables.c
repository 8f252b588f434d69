/*
 * The rows of cmds.h as an array, and the texts that are made from it and from what can be shown.
 * Entry points: console_commands, console_help_notice(), admin_describe().
 */
#include <stdio.h>

#include "admin/describe.h"
#include "admin_int.h"

const struct console_command_row console_commands[] = {
#define COMMAND(id, arg, who, usage, help) {#id, usage, help, arg, who},
#include "cmds.h"
};

/* --- SHOW HELP --- */

static void field(struct buf *b, char kind, const char *text)
{
	build_u8(b, (uint8_t)kind);
	build_cstr(b, text);
}

/* Longer than a pg_error may be. */
void console_help_notice(struct buf *out)
{
	struct buf text = BUF_INIT;
	size_t start;

	buf_putc(&text, '\n');
	for (size_t i = 0; i < SHOW_COUNT; i++)
		buf_printf(&text, "\tSHOW %s\n", shows[i].name);
	for (size_t i = CMD_SHOW + 1; i < CMD_PROBE; i++)
		buf_printf(&text, "\t%s\n", console_commands[i].usage);
	start = build_begin(out, 'N');
	field(out, 'S', "NOTICE");
	field(out, 'V', "NOTICE");
	field(out, 'C', "00000");
	field(out, 'M', "Console usage");
	field(out, 'D', buf_cstr(&text));
	build_u8(out, 0);
	build_end(out, start);
	if (buf_failed(&text))
		out->failed = true;
	buf_free(&text);
}

/* --- the manual --- */

void admin_describe(void (*fn)(const struct admin_entry *e, void *arg), void *arg)
{
	for (size_t i = 0; i < CMD_PROBE; i++) {
		const struct console_command_row *row = &console_commands[i];
		struct admin_entry e = {
			.name = row->usage, .admin = row->who == WHO_ADMIN, .help = row->help};

		fn(&e, arg);
	}
	for (size_t i = 0; i < SHOW_COUNT; i++) {
		const struct show *row = &shows[i];
		struct admin_entry e = {.name = row->name,
			.admin = row->who == WHO_ADMIN,
			.help = row->help,
			.show = true,
			.columns = row->fields,
			.n_columns = row->n_fields};

		fn(&e, arg);
	}
}
