/*
 * Reads files of fields (pg_hba.conf, pg_ident.conf). Must not know what the fields mean. Entry
 * points: fields_read, fields_fail.
 */
#include "fields.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum {
	DEPTH_MAX = 10, /* of files that name files */
	FILE_MAX = 4 * 1024 * 1024,
	TOKENS_MAX = 64 * 1024, /* of one line */
};

/* A line under construction. Texts are kept as offsets: the buffer moves. */
struct raw_token {
	size_t text;
	bool quoted;
};

struct builder {
	struct buf text;
	struct buf tokens; /* struct raw_token */
	struct buf first;  /* size_t */
};

bool fields_fail(struct field_reader *r, const char *fmt, ...)
{
	char text[1024];
	int n = r->file ? snprintf(text, sizeof(text), "%s:%d: ", r->file, r->number) : 0;
	va_list ap;

	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < sizeof(text))
		vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	if (!r->full)
		r->full = !util_add_line(r->err, r->err_size, text);
	return false;
}

static size_t n_tokens(const struct builder *b)
{
	return b->tokens.len / sizeof(struct raw_token);
}

static void builder_reset(struct builder *b)
{
	buf_reset(&b->text);
	buf_reset(&b->tokens);
	buf_reset(&b->first);
}

static void builder_free(struct builder *b)
{
	buf_free(&b->text);
	buf_free(&b->tokens);
	buf_free(&b->first);
}

static bool builder_failed(const struct builder *b)
{
	return buf_failed(&b->text) || buf_failed(&b->tokens) || buf_failed(&b->first);
}

/* --- files --- */

static bool read_whole(const char *path, struct buf *text, char *why, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n;

	/* no copies: a line may have a password (ldapbindpasswd) */
	if (f)
		setvbuf(f, NULL, _IONBF, 0);
	if (!f) {
		snprintf(why, size, "cannot read \"%s\": %s", path, strerror(errno));
		return false;
	}
	do {
		buf_reserve(text, 8192);
		if (buf_failed(text) || text->len > FILE_MAX)
			break;
		n = fread(text->data + text->len, 1, 8192, f);
		text->len += n;
	} while (n > 0);
	if (buf_failed(text))
		snprintf(why, size, "out of memory");
	else if (text->len > FILE_MAX)
		snprintf(why, size, "\"%s\" is larger than 4 MB", path);
	else if (ferror(f))
		snprintf(why, size, "cannot read \"%s\"", path);
	else if (text->len > 0 && memchr(text->data, '\0', text->len))
		snprintf(why, size, "\"%s\" has a zero byte", path);
	else
		why[0] = '\0';
	fclose(f);
	return why[0] == '\0';
}

/* The name of a file as seen from the file that names it. NULL: memory. */
static char *beside(const char *base, const char *name)
{
	const char *slash = strrchr(base, '/');
	size_t dir = slash ? (size_t)(slash - base) + 1 : 0;
	char *path;

	if (name[0] == '/')
		return mem_strdup(name);
	path = mem_alloc(dir + strlen(name) + 1);
	if (!path)
		return NULL;
	memcpy(path, base, dir);
	memcpy(path + dir, name, strlen(name) + 1);
	return path;
}

/* --- tokens --- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\n';
}

/* One token; *pos is on its first byte. */
static void take_token(struct builder *b, const char **pos, const char *end)
{
	struct raw_token t = {.text = b->text.len};
	bool inside = false;
	const char *p = *pos;

	t.quoted = *p == '"';
	for (; p < end; p++) {
		if (*p == '"') {
			if (inside && p + 1 < end && p[1] == '"')
				buf_putc(&b->text, *p++);
			else
				inside = !inside;
			continue;
		}
		if (!inside && (is_blank(*p) || *p == ',' || *p == '#'))
			break;
		buf_putc(&b->text, *p);
	}
	buf_putc(&b->text, '\0');
	buf_put(&b->tokens, &t, sizeof(t));
	*pos = p;
}

static bool add_tokens_of(struct field_reader *r, struct builder *b, const char *name);

/* A @file among the tokens is replaced by what is in it. */
static bool expand(struct field_reader *r, struct builder *b)
{
	struct raw_token *last =
		(struct raw_token *)(void *)(b->tokens.data + b->tokens.len - sizeof(*last));
	const char *text = (const char *)b->text.data + last->text;
	char *name;
	bool ok;

	if (last->quoted || text[0] != '@' || text[1] == '\0')
		return true;
	name = mem_strdup(text + 1);
	if (!name)
		return fields_fail(r, "out of memory");
	b->tokens.len -= sizeof(*last);
	ok = add_tokens_of(r, b, name);
	mem_free(name);
	return ok;
}

/* All tokens of a text, whatever parts them. */
static bool add_all(struct field_reader *r, struct builder *b, const char *pos, const char *end)
{
	while (pos < end) {
		if (*pos == '#') {
			while (pos < end && *pos != '\n')
				pos++;
		} else if (is_blank(*pos) || *pos == ',') {
			pos++;
		} else {
			take_token(b, &pos, end);
			if (builder_failed(b))
				return fields_fail(r, "out of memory");
			if (n_tokens(b) > TOKENS_MAX)
				return fields_fail(r, "too many names");
			if (!expand(r, b))
				return false;
		}
	}
	return true;
}

static bool add_tokens_of(struct field_reader *r, struct builder *b, const char *name)
{
	struct buf text = BUF_SECRET;
	const char *outer = r->file;
	char why[400], *path = beside(outer, name);
	bool ok;

	if (!path)
		return fields_fail(r, "out of memory");
	if (++r->depth > DEPTH_MAX) {
		ok = fields_fail(r, "\"%s\": files are nested too deeply", path);
	} else if (!read_whole(path, &text, why, sizeof(why))) {
		ok = fields_fail(r, "%s", why);
	} else {
		r->file = path;
		ok = add_all(r, b, (const char *)text.data, (const char *)text.data + text.len);
		r->file = outer;
	}
	r->depth--;
	buf_free(&text);
	mem_free(path);
	return ok;
}

/* Blanks and commas. Was there a comma? */
static bool skip_commas(const char **pos, const char *end)
{
	bool any = false;

	for (; *pos < end && (is_blank(**pos) || **pos == ','); ++*pos)
		any = any || **pos == ',';
	return any;
}

/* One field: tokens with commas between them. A comma too many means nothing, as in Postgres;
 * blanks may be on both sides of it, as in pgbouncer. */
static bool take_field(struct field_reader *r, struct builder *b, const char **pos, const char *end)
{
	size_t first = n_tokens(b);
	bool more = true, leading = b->first.len == 0;

	buf_put(&b->first, &first, sizeof(first));
	while (more) {
		take_token(b, pos, end);
		if (builder_failed(b))
			return fields_fail(r, "out of memory");
		if (n_tokens(b) > TOKENS_MAX)
			return fields_fail(r, "too many names");
		if (!expand(r, b))
			return false;
		/* the first one has no list: what is behind it is not part of it */
		if (leading && *pos < end && **pos != ',')
			return true;
		more = skip_commas(pos, end) && *pos < end && **pos != '#';
	}
	return true;
}

/* --- lines --- */

static bool read_file(struct field_reader *r, const char *path);

static bool include_path(struct field_reader *r, const char *path)
{
	const char *outer = r->file;
	int number = r->number;
	bool ok;

	if (r->depth + 1 > DEPTH_MAX)
		return fields_fail(r, "\"%s\": files are nested too deeply", path);
	ok = read_file(r, path);
	r->file = outer;
	r->number = number;
	return ok;
}

/* One that is there and cannot be read is an error in any case: it may have rules that keep out. */
static bool include(struct field_reader *r, const char *name, bool must)
{
	char *path = beside(r->file, name);
	bool ok = true;

	if (!path)
		return fields_fail(r, "out of memory");
	if (must || access(path, F_OK) == 0 || errno != ENOENT)
		ok = include_path(r, path);
	mem_free(path);
	return ok;
}

static int is_conf(const struct dirent *d)
{
	size_t len = strlen(d->d_name);

	return d->d_name[0] != '.' && len > 5 && strcmp(d->d_name + len - 5, ".conf") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Its files that end in .conf, in the order of their names. */
static bool include_dir(struct field_reader *r, const char *name)
{
	char *dir = beside(r->file, name), *path = NULL;
	struct dirent **list = NULL;
	int n = dir ? scandir(dir, &list, is_conf, by_bytes) : -1, i;
	bool ok = n >= 0 || fields_fail(r, "could not read the folder \"%s\": %s", dir ? dir : name,
				    dir ? strerror(errno) : "out of memory");

	for (i = 0; i < n; i++) {
		if (asprintf(&path, "%s/%s", dir, list[i]->d_name) < 0) {
			ok = fields_fail(r, "out of memory");
		} else {
			ok = include_path(r, path) && ok;
			free(path);
		}
		free(list[i]);
	}
	free(list);
	mem_free(dir);
	return ok;
}

static bool include_line(struct field_reader *r, const char *word, const char *name)
{
	if (strcmp(word, "include_dir") == 0)
		return include_dir(r, name);
	return include(r, name, strcmp(word, "include") == 0);
}

static bool is_include(const char *word)
{
	return strcmp(word, "include") == 0 || strcmp(word, "include_if_exists") == 0 ||
	       strcmp(word, "include_dir") == 0;
}

/* The finished line goes to the reader. */
static bool give_line(struct field_reader *r, struct builder *b)
{
	struct raw_token *raw = (struct raw_token *)(void *)b->tokens.data;
	size_t n = n_tokens(b);
	struct field_line l = {.file = r->file, .number = r->number};
	bool ok;

	l.n_fields = b->first.len / sizeof(size_t);
	buf_put(&b->first, &n, sizeof(n));
	l.tokens = mem_alloc((n + 1) * sizeof(*l.tokens));
	if (!l.tokens || builder_failed(b)) {
		mem_free(l.tokens);
		return fields_fail(r, "out of memory");
	}
	for (size_t i = 0; i < n; i++) {
		l.tokens[i].text = (const char *)b->text.data + raw[i].text;
		l.tokens[i].quoted = raw[i].quoted;
	}
	l.first = (size_t *)(void *)b->first.data;
	if (l.n_fields == 2 && fields_count(&l, 0) == 1 && fields_count(&l, 1) == 1 &&
		!l.tokens[0].quoted && is_include(l.tokens[0].text))
		ok = include_line(r, l.tokens[0].text, fields_token(&l, 1)->text);
	else
		ok = r->line(r, &l);
	mem_free(l.tokens);
	return ok;
}

static bool read_line(struct field_reader *r, const char *pos, const char *end)
{
	struct builder b = {.text = BUF_SECRET};
	bool ok = true;

	builder_reset(&b);
	while (ok) {
		(void)skip_commas(&pos, end);
		if (pos == end || *pos == '#')
			break;
		ok = take_field(r, &b, &pos, end);
	}
	if (ok && b.first.len > 0)
		ok = give_line(r, &b);
	builder_free(&b);
	return ok;
}

/* Lines that end with a backslash go on in the next one; the backslash is not part of them. */
static bool read_lines(struct field_reader *r, const struct buf *text)
{
	const char *pos = (const char *)text->data, *end = pos + text->len;
	struct buf joined = BUF_SECRET;
	bool ok = true;
	int number = 0;

	while (!r->full && pos < end) {
		const char *nl = memchr(pos, '\n', (size_t)(end - pos)), *stop = nl ? nl : end;

		if (joined.len == 0)
			r->number = number + 1;
		number++;
		if (stop > pos && stop[-1] == '\r')
			stop--;
		if (stop > pos && stop[-1] == '\\' && nl) {
			buf_put(&joined, pos, (size_t)(stop - 1 - pos));
			buf_putc(&joined, ' ');
		} else {
			buf_put(&joined, pos, (size_t)(stop - pos));
			if (buf_failed(&joined))
				ok = fields_fail(r, "out of memory");
			else if (joined.len > 0)
				ok = read_line(r, (const char *)joined.data,
					     (const char *)joined.data + joined.len) &&
				     ok;
			buf_reset(&joined);
		}
		pos = nl ? nl + 1 : end;
	}
	buf_free(&joined);
	return ok;
}

static bool read_file(struct field_reader *r, const char *path)
{
	struct buf text = BUF_SECRET;
	char why[400];
	bool ok = read_whole(path, &text, why, sizeof(why));

	if (ok) {
		r->file = path;
		r->number = 0;
		r->depth++;
		ok = read_lines(r, &text);
		r->depth--;
	} else {
		(void)fields_fail(r, "%s", why); /* where: in the file that names it */
	}
	buf_free(&text);
	return ok;
}

bool fields_read(struct field_reader *r, const char *path)
{
	r->depth = 0;
	r->full = false;
	r->file = NULL;
	return read_file(r, path);
}
