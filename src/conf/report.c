/*
 * Messages of a load. Counts everything, keeps the text of the first few hundred, so that a file
 * that is no configuration at all does not fill the log.
 * Entry points: report_int.h.
 */
#include "report_int.h"

#include <string.h>
#include <sys/stat.h>

enum { REPORT_TEXT_MAX = 64 * 1024 };

static void report_add(struct conf_report *r, const struct ini_pos *at, const char *kind,
	const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));

static void report_add(struct conf_report *r, const struct ini_pos *at, const char *kind,
	const char *fmt, va_list ap)
{
	if (r->text.len > REPORT_TEXT_MAX)
		return;
	if (at && at->line)
		buf_printf(&r->text, "%s:%u: %s: ", at->file, at->line, kind);
	else if (at)
		buf_printf(&r->text, "%s: %s: ", at->file, kind);
	else
		buf_printf(&r->text, "%s: ", kind);
	buf_vprintf(&r->text, fmt, ap);
	buf_putc(&r->text, '\n');
}

void report_error(struct conf_report *r, const struct ini_pos *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report_add(r, at, "error", fmt, ap);
	va_end(ap);
	r->errors++;
}

void report_secret(struct conf_report *r, const struct ini_pos *at, const char *key)
{
	struct stat st;

	if (strcmp(r->readable, at->file) == 0 || stat(at->file, &st) != 0 ||
		(st.st_mode & S_IROTH) == 0)
		return;
	(void)util_strlcpy(r->readable, at->file, sizeof(r->readable));
	report_warning(r, at,
		"every user of this machine can read this file, and so \"%s\": chmod o-r", key);
}

void report_warning(struct conf_report *r, const struct ini_pos *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report_add(r, at, "warning", fmt, ap);
	va_end(ap);
	r->warnings++;
}
