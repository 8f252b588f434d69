/*
 * The reader of ini files. A line is empty, a comment (; or # first), a [section], `key = value`,
 * or `%include file`. A key may be "quoted" to hold anything. An included file starts in the
 * section of the line that includes it, and the including file goes on in the section it was in.
 * Must not know keys or sections. Entry points: ini_int.h.
 */
#include "ini_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum {
	INI_LINE_MAX = 64 * 1024,
	INI_FILE_MAX = 64 * 1024 * 1024,
	INI_DEPTH_MAX = 10,
	INI_FILES_MAX = 1000, /* a file that includes itself twice would double at each depth */
};

/* A file while it is read. */
struct ini_file {
	struct ini_reader *reader;
	struct ini_pos at;
	const char *path;    /* NULL: text in memory */
	ini_entry_fn *entry; /* of the current section; NULL before the first and in unknown ones */
	bool section_unknown;
	int depth;
};

static void ini_load(struct ini_reader *r, const char *path, const struct ini_file *from);

static bool ini_is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static char *ini_skip_space(char *p)
{
	while (ini_is_space(*p))
		p++;
	return p;
}

static void ini_trim_end(char *p)
{
	size_t len = strlen(p);

	while (len && ini_is_space(p[len - 1]))
		len--;
	p[len] = '\0';
}

static bool ini_is_key(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '-' || c == '*' || (unsigned char)c >= 0x80;
}

/* Takes what is between two quotes, where a doubled quote stands for one, and moves it to the front
 * of the string. Returns the place behind the closing quote, NULL when there is none. */
static char *ini_unquote(char *p, char **ret)
{
	char quote = *p, *to = p;

	*ret = to;
	for (p++; *p; p++) {
		if (*p == quote && p[1] != quote) {
			*to = '\0';
			return p + 1;
		}
		if (*p == quote)
			p++;
		*to++ = *p;
	}
	return NULL;
}

enum ini_pair ini_next_pair(char **p, char **ret_key, char **ret_value)
{
	char *s = ini_skip_space(*p), *key = s, *end, *value;

	if (!*s)
		return INI_PAIR_END;
	while (ini_is_key(*s))
		s++;
	end = s;
	s = ini_skip_space(s);
	if (end == key || *s != '=')
		return INI_PAIR_BAD;
	*end = '\0';
	s = ini_skip_space(s + 1);
	if (*s == '\'') {
		s = ini_unquote(s, &value);
		if (!s || (*s && !ini_is_space(*s)))
			return INI_PAIR_BAD;
	} else {
		value = s;
		while (*s && !ini_is_space(*s))
			s++;
		if (*s)
			*s++ = '\0';
	}
	*p = s;
	*ret_key = key;
	*ret_value = value;
	return INI_PAIR;
}

static void ini_section(struct ini_file *f, char *line)
{
	char *end = strchr(line, ']');

	f->entry = NULL;
	f->section_unknown = true;
	if (!end || *ini_skip_space(end + 1)) {
		report_error(f->reader->report, &f->at, "a section is written [name]");
		return;
	}
	*end = '\0';
	f->entry = f->reader->section(line + 1);
	f->section_unknown = !f->entry;
	if (!f->entry)
		report_error(f->reader->report, &f->at, "unknown section [%s]", line + 1);
}

/* The path as seen from the directory of the including file. */
static void ini_include(struct ini_file *f, const char *file)
{
	const char *slash = f->path ? strrchr(f->path, '/') : NULL;
	struct buf path = BUF_INIT;

	if (!f->path) {
		report_error(f->reader->report, &f->at, "%%include is not possible here");
		return;
	}
	if (!*file) {
		report_error(f->reader->report, &f->at, "%%include needs the name of a file");
		return;
	}
	if (f->depth >= INI_DEPTH_MAX || f->reader->files >= INI_FILES_MAX) {
		report_error(f->reader->report, &f->at,
			"too many files are included (limits: %d deep, %d in all)", INI_DEPTH_MAX,
			INI_FILES_MAX);
		return;
	}
	f->reader->files++;
	if (slash && *file != '/')
		buf_put(&path, f->path, (size_t)(slash - f->path) + 1);
	buf_puts(&path, file);
	buf_putc(&path, '\0');
	if (buf_failed(&path))
		report_error(f->reader->report, &f->at, "out of memory");
	else
		ini_load(f->reader, (const char *)path.data, f);
	buf_free(&path);
}

static void ini_directive(struct ini_file *f, char *line)
{
	static const char include[] = "%include";
	size_t len = sizeof(include) - 1;

	if (!strncmp(line, include, len) && (!line[len] || ini_is_space(line[len])))
		ini_include(f, ini_skip_space(line + len));
	else
		report_error(
			f->reader->report, &f->at, "unknown directive, only %%include is known");
}

static void ini_assignment(struct ini_file *f, char *line)
{
	char *key = line, *end = line, *p;

	if (*line == '"') {
		end = ini_unquote(line, &key);
		p = end;
	} else {
		while (ini_is_key(*end))
			end++;
		p = end;
	}
	p = p ? ini_skip_space(p) : NULL;
	if (!p || *p != '=' || end == line) {
		report_error(f->reader->report, &f->at, "expected key = value");
		return;
	}
	*end = '\0';
	if (f->entry)
		f->entry(f->reader->report, &f->at, key, ini_skip_space(p + 1), f->reader->arg);
	else if (!f->section_unknown)
		report_error(
			f->reader->report, &f->at, "\"%s\" stands before the first [section]", key);
}

static void ini_line(struct ini_file *f, char *line)
{
	line = ini_skip_space(line);
	ini_trim_end(line);
	switch (*line) {
	case '\0':
	case ';':
	case '#':
		break;
	case '[':
		ini_section(f, line);
		break;
	case '%':
		ini_directive(f, line);
		break;
	default:
		ini_assignment(f, line);
		break;
	}
}

/* Text is cut into lines in place; it must be terminated behind len. */
static void ini_lines(struct ini_file *f, char *text, size_t len)
{
	static const char bom[] = "\xef\xbb\xbf";
	char *end = text + len;

	if (len >= 3 && !memcmp(text, bom, 3))
		text += 3;
	while (text < end) {
		char *eol = memchr(text, '\n', (size_t)(end - text));

		if (!eol)
			eol = end;
		*eol = '\0';
		f->at.line++;
		if ((size_t)(eol - text) > INI_LINE_MAX)
			report_error(f->reader->report, &f->at, "the line is longer than %d bytes",
				INI_LINE_MAX);
		else if (memchr(text, '\0', (size_t)(eol - text)))
			report_error(f->reader->report, &f->at, "the line contains a NUL byte");
		else
			ini_line(f, text);
		text = eol + 1;
	}
}

/* NULL, or why the file could not be read. */
static const char *ini_slurp(int fd, struct buf *b)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return strerror(errno);
	if (S_ISDIR(st.st_mode))
		return "is a directory";
	if (!S_ISREG(st.st_mode))
		return "is not a regular file";
	if (st.st_size > INI_FILE_MAX)
		return "is larger than 64 MB";
	for (;;) {
		ssize_t n;

		buf_reserve(b, 8192);
		if (buf_failed(b))
			return "out of memory";
		n = read(fd, b->data + b->len, 8191);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return strerror(errno);
		if (n == 0)
			return NULL;
		b->len += (size_t)n;
		if (b->len > INI_FILE_MAX)
			return "is larger than 64 MB";
	}
}

static void ini_load(struct ini_reader *r, const char *path, const struct ini_file *from)
{
	struct ini_file f = {.reader = r, .at = {.file = path}, .path = path};
	struct buf text = BUF_SECRET;
	const char *why;
	int fd;

	if (from) {
		f.depth = from->depth + 1;
		f.entry = from->entry;
		f.section_unknown = from->section_unknown;
	}
	/* Non-blocking, because opening a pipe without a writer would wait for one. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	why = fd < 0 ? strerror(errno) : ini_slurp(fd, &text);
	if (fd >= 0)
		close(fd);
	if (why && from)
		report_error(r->report, &from->at, "could not include \"%s\": %s", path, why);
	else if (why)
		report_error(r->report, &f.at, "could not read: %s", why);
	else
		ini_lines(&f, (char *)text.data, text.len);
	buf_free(&text);
}

void ini_read_file(struct ini_reader *r, const char *path)
{
	ini_load(r, path, NULL);
}

void ini_read_text(struct ini_reader *r, const char *name, const char *text, size_t len)
{
	struct ini_file f = {.reader = r, .at = {.file = name}};
	struct buf copy = BUF_SECRET;

	buf_put(&copy, text, len);
	buf_putc(&copy, '\0');
	if (buf_failed(&copy))
		report_error(r->report, &f.at, "out of memory");
	else
		ini_lines(&f, (char *)copy.data, len);
	buf_free(&copy);
}
