/*
 * Logging to stderr, a file and syslog: one event, one line, one write(2). Works before log_open()
 * (to stderr) and without memory: a line is built on the stack and cut at LOG_LINE_MAX.
 * Entry points: base/log.h.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"

enum { LOG_LINE_MAX = 8192, LOG_TEXT_MAX = 4096 };

static const struct {
	const char *name;
	int syslog;
} log_levels[] = {
	[LOG_LVL_FATAL] = {"FATAL", LOG_CRIT},
	[LOG_LVL_ERROR] = {"ERROR", LOG_ERR},
	[LOG_LVL_WARNING] = {"WARNING", LOG_WARNING},
	[LOG_LVL_INFO] = {"LOG", LOG_INFO},
	[LOG_LVL_DEBUG] = {"DEBUG", LOG_DEBUG},
	[LOG_LVL_NOISE] = {"NOISE", LOG_DEBUG},
};

static const struct {
	const char *name;
	int facility;
} log_facilities[] = {
	{"auth", LOG_AUTH},
	{"authpriv", LOG_AUTHPRIV},
	{"cron", LOG_CRON},
	{"daemon", LOG_DAEMON},
	{"ftp", LOG_FTP},
	{"kern", LOG_KERN},
	{"local0", LOG_LOCAL0},
	{"local1", LOG_LOCAL1},
	{"local2", LOG_LOCAL2},
	{"local3", LOG_LOCAL3},
	{"local4", LOG_LOCAL4},
	{"local5", LOG_LOCAL5},
	{"local6", LOG_LOCAL6},
	{"local7", LOG_LOCAL7},
	{"user", LOG_USER},
};

static struct {
	char *file;
	int fd; /* of file, -1 when there is none */
	bool to_stderr, to_syslog, json;
	char *syslog_ident; /* openlog() keeps the pointer */
	int verbose;
} log_state = {.fd = -1, .to_stderr = true};

static int log_open_file(const char *file)
{
	return open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
}

/* -1: unknown. */
static int log_facility(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(log_facilities); i++) {
		if (!util_strcasecmp(name, log_facilities[i].name))
			return log_facilities[i].facility;
	}
	return -1;
}

bool log_facility_known(const char *name)
{
	return log_facility(name) >= 0;
}

static int log_facility_or_daemon(const char *name)
{
	int facility = name ? log_facility(name) : -1;

	return facility >= 0 ? facility : LOG_DAEMON;
}

/* NULL and "" give NULL; false when out of memory. */
static bool log_copy(const char *s, char **ret)
{
	*ret = s && *s ? mem_strdup(s) : NULL;
	return *ret || !s || !*s;
}

bool log_open(const struct log_target *t)
{
	char *file = NULL, *ident = NULL;
	int fd = -1;

	if (!log_copy(t->file, &file) || !log_copy(t->syslog_ident, &ident))
		goto fail;
	if (file) {
		fd = log_open_file(file);
		if (fd < 0)
			goto fail;
	}
	log_close();
	log_state.file = file;
	log_state.fd = fd;
	log_state.syslog_ident = ident;
	log_state.to_stderr = t->to_stderr;
	log_state.to_syslog = t->to_syslog;
	log_state.json = t->json;
	log_state.verbose = t->verbose;
	if (t->to_syslog)
		openlog(ident ? ident : "qbouncer", LOG_PID,
			log_facility_or_daemon(t->syslog_facility));
	return true;
fail:
	mem_free(file);
	mem_free(ident);
	return false;
}

void log_reopen(void)
{
	int fd;

	if (!log_state.file)
		return;
	fd = log_open_file(log_state.file);
	if (fd < 0) {
		log_error("could not reopen log file \"%s\": %s", log_state.file, strerror(errno));
		return;
	}
	close(log_state.fd);
	log_state.fd = fd;
}

void log_close(void)
{
	if (log_state.fd >= 0)
		close(log_state.fd);
	if (log_state.to_syslog)
		closelog();
	mem_free(log_state.file);
	mem_free(log_state.syslog_ident);
	memset(&log_state, 0, sizeof(log_state));
	log_state.fd = -1;
	log_state.to_stderr = true;
}

bool log_is_on_stderr(void)
{
	return log_state.to_stderr;
}

bool log_enabled(enum log_level lvl)
{
	return (int)lvl <= (int)LOG_LVL_INFO + log_state.verbose;
}

/* Control characters as \xNN, so that nobody can forge a line. Returns the new end; leaves room for
 * an ellipsis and a line feed. */
static size_t log_escape(char *line, size_t len, const char *text)
{
	const size_t limit = LOG_LINE_MAX - 16; /* each part that is cut adds its own mark */

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (len >= limit - 4) {
			memcpy(line + len, "...", 3);
			return len + 3;
		}
		if (c < 0x20 || c == 0x7f)
			len += (size_t)sprintf(line + len, "\\x%02X", c);
		else
			line[len++] = (char)c;
	}
	return len;
}

static size_t log_head(char *line, enum log_level lvl)
{
	struct timeval tv;
	struct tm tm;
	char day[40], zone[16];

	gettimeofday(&tv, NULL);
	if (!localtime_r(&tv.tv_sec, &tm) || !strftime(day, sizeof(day), "%Y-%m-%d %H:%M:%S", &tm))
		day[0] = '\0';
	if (!strftime(zone, sizeof(zone), "%Z", &tm))
		zone[0] = '\0';
	return (size_t)sprintf(line, "%s.%03d %s [%d] %s ", day, (int)(tv.tv_usec / 1000), zone,
		(int)getpid(), log_levels[lvl].name);
}

/* A JSON string without its quotes, cut where the line is full. */
static size_t log_json_text(char *line, size_t len, const char *text)
{
	const size_t limit = LOG_LINE_MAX - 64;
	size_t left = strlen(text), used;

	for (; left > 0 && len < limit; text += used, left -= used)
		len += json_character(line + len, text, left, &used);
	return len;
}

/* {"time":"2026-01-31T12:00:00.123Z","pid":1,"level":"LOG","object":"C-0x1: ...","message":"..."}
 */
static size_t log_json(char *line, enum log_level lvl, const char *prefix, const char *text)
{
	struct timeval tv;
	struct tm tm;
	char when[40];
	size_t len;

	gettimeofday(&tv, NULL);
	if (!gmtime_r(&tv.tv_sec, &tm) || !strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm))
		when[0] = '\0';
	len = (size_t)sprintf(line, "{\"time\":\"%s.%03dZ\",\"pid\":%d,\"level\":\"%s\"", when,
		(int)(tv.tv_usec / 1000), (int)getpid(), log_levels[lvl].name);
	if (prefix && *prefix) {
		len += (size_t)sprintf(line + len, ",\"object\":\"");
		len = log_json_text(line, len, prefix);
		line[len++] = '"';
	}
	len += (size_t)sprintf(line + len, ",\"message\":\"");
	len = log_json_text(line, len, text);
	len += (size_t)sprintf(line + len, "\"}");
	return len;
}

static size_t log_plain(
	char *line, enum log_level lvl, const char *prefix, const char *text, size_t *ret_head)
{
	size_t len = log_head(line, lvl);

	*ret_head = len;
	if (prefix && *prefix) {
		len = log_escape(line, len, prefix);
		line[len++] = ' ';
	}
	return log_escape(line, len, text);
}

static void log_emit(int fd, const char *line, size_t len)
{
	ssize_t n;

	/* A full disk or a closed pipe must not stop the service: what is lost is lost. */
	do {
		n = write(fd, line, len);
	} while (n < 0 && errno == EINTR);
}

void log_writev(enum log_level lvl, const char *prefix, const char *fmt, va_list ap)
{
	char text[LOG_TEXT_MAX], line[LOG_LINE_MAX];
	size_t head, len;
	int saved = errno, want;

	if (!log_enabled(lvl))
		return;
	want = vsnprintf(text, sizeof(text), fmt, ap);
	if (want < 0)
		util_strlcpy(text, fmt, sizeof(text));
	else if ((size_t)want >= sizeof(text))
		strcpy(text + sizeof(text) - 4, "...");
	len = log_plain(line, lvl, prefix, text, &head);
	if (log_state.to_syslog)
		syslog(log_levels[lvl].syslog, "%.*s", (int)(len - head), line + head);
	if (log_state.json)
		len = log_json(line, lvl, prefix, text);
	line[len++] = '\n';
	if (log_state.to_stderr)
		log_emit(STDERR_FILENO, line, len);
	if (log_state.fd >= 0)
		log_emit(log_state.fd, line, len);
	errno = saved;
}

void log_write(enum log_level lvl, const char *prefix, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_writev(lvl, prefix, fmt, ap);
	va_end(ap);
}
