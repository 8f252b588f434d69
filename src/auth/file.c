/*
 * The table of users: auth_file, and what logins taught us. Must not know conversations. The file
 * is that of pgbouncer: lines `"user" "secret"`, ; and # comments, "" for a quote inside, the rest
 * of a line ignored. Entry points: auth_file_load, auth_user_find, auth_user_learn.
 */
#include "auth_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

struct entry {
	struct auth_user user;
	bool from_file;
	struct scram_verifier derived; /* of a PLAIN secret; iterations 0: not made yet */
	UT_hash_handle hh;             /* by user.name */
};

static struct entry *users;
static bool has_secrets; /* the file that was read last */

/* --- the table --- */

static void entry_free(struct entry *e)
{
	secret_erase(&e->user.secret);
	secret_erase(&e->user.passthrough);
	util_erase(e, sizeof(*e));
	mem_free(e);
}

static void table_free(struct entry **table)
{
	struct entry *e, *next;

	HASH_ITER (hh, *table, e, next) {
		HASH_DEL(*table, e);
		entry_free(e);
	}
}

static struct entry *table_find(struct entry *table, const char *name)
{
	struct entry *e;

	HASH_FIND_STR(table, name, e);
	return e;
}

/* Finds or makes the entry of a name that is short enough. NULL: no memory. */
static struct entry *table_get(struct entry **table, const char *name)
{
	struct entry *e = table_find(*table, name);

	if (e)
		return e;
	e = mem_zalloc(sizeof(*e));
	if (!e)
		return NULL;
	util_strlcpy(e->user.name, name, sizeof(e->user.name));
	HASH_ADD_STR(*table, user.name, e);
	if (!e->hh.tbl) { /* how uthash says that it had no memory */
		mem_free(e);
		return NULL;
	}
	return e;
}

/* A reload must not cost every user a login before pass-through works again. */
static void table_inherit(struct entry *table, struct entry *old)
{
	struct entry *e, *next, *before;

	HASH_ITER (hh, table, e, next) {
		before = table_find(old, e->user.name);
		if (!before || !secret_equal(&e->user.secret, &before->user.secret))
			continue;
		e->derived = before->derived;
		if (!secret_copy(&e->user.passthrough, &before->user.passthrough))
			log_debug("no memory to keep the SCRAM keys of user \"%s\"", e->user.name);
	}
}

/* --- the file --- */

struct line {
	const char *pos, *end;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static void skip_blanks(struct line *l)
{
	while (l->pos < l->end && is_blank(*l->pos))
		l->pos++;
}

/* A quoted text, with "" for a quote. false: not one, or it does not end on this line. */
static bool take_quoted(struct line *l, struct buf *dst)
{
	buf_reset(dst);
	skip_blanks(l);
	if (l->pos == l->end || *l->pos != '"')
		return false;
	l->pos++;
	while (l->pos < l->end) {
		char c = *l->pos++;

		if (c == '"' && (l->pos == l->end || *l->pos != '"'))
			return true;
		if (c == '"')
			l->pos++;
		buf_putc(dst, c);
	}
	return false;
}

/* What load_* report: where, and why not. */
struct load {
	const char *path;
	int line_no;
	struct entry *table;
	struct buf name, secret; /* of the current line */
	char *err;
	size_t err_size;
	bool full; /* err is: the rest is not read */
};

static bool load_fail(struct load *ld, const char *why)
{
	char text[512];

	snprintf(text, sizeof(text), "%s:%d: %s", ld->path, ld->line_no, why);
	ld->full = !util_add_line(ld->err, ld->err_size, text);
	return false;
}

static bool load_entry(struct load *ld)
{
	struct secret secret;
	struct entry *e;

	buf_putc(&ld->secret, '\0');
	buf_putc(&ld->name, '\0');
	if (buf_failed(&ld->name) || buf_failed(&ld->secret))
		return load_fail(ld, "out of memory");
	if (ld->name.len <= 1)
		return load_fail(ld, "user name is empty");
	if (ld->name.len > sizeof(e->user.name))
		return load_fail(ld, "user name is longer than 127 bytes");
	if (!secret_parse(&secret, (const char *)ld->secret.data))
		return load_fail(ld, "out of memory");
	e = table_get(&ld->table, (const char *)ld->name.data);
	if (!e) {
		secret_erase(&secret);
		return load_fail(ld, "out of memory");
	}
	secret_erase(&e->user.secret); /* of an earlier line: the last one counts */
	e->user.secret = secret;
	has_secrets |= secret.kind != SECRET_NONE;
	e->from_file = true;
	return true;
}

static bool load_line(struct load *ld, const char *text, size_t len)
{
	struct line l = {.pos = text, .end = text + len};

	if (memchr(text, '\0', len))
		return load_fail(ld, "the line has a zero byte");
	skip_blanks(&l);
	if (l.pos == l.end || *l.pos == ';' || *l.pos == '#')
		return true;
	if (!take_quoted(&l, &ld->name))
		return load_fail(ld, "expected a user name in double quotes");
	if (l.pos < l.end && !is_blank(*l.pos))
		return load_fail(ld, "expected a space between user name and password");
	if (!take_quoted(&l, &ld->secret))
		return load_fail(ld, "expected a password in double quotes after the user name");
	return load_entry(ld);
}

static bool load_text(struct load *ld, const struct buf *text)
{
	const char *pos = (const char *)text->data, *end = pos + text->len;
	bool ok = true;

	while (pos < end && !ld->full) {
		const char *nl = memchr(pos, '\n', (size_t)(end - pos));
		const char *stop = nl ? nl : end;

		ld->line_no++;
		ok = load_line(ld, pos, (size_t)(stop - pos)) && ok;
		pos = nl ? nl + 1 : end;
	}
	return ok;
}

/* Reads a file whole. On failure errno tells. */
static bool read_stream(FILE *f, struct buf *text)
{
	struct stat st;
	size_t n;

	/* Room for all of it at once. */
	if (fstat(fileno(f), &st) == 0 && st.st_size > 0)
		buf_reserve(text, (size_t)st.st_size + 1);
	setvbuf(f, NULL, _IONBF, 0);
	do {
		buf_reserve(text, 1);
		if (buf_failed(text)) {
			errno = ENOMEM;
			return false;
		}
		n = fread(text->data + text->len, 1, text->cap - text->len, f);
		text->len += n;
	} while (n > 0);
	return !ferror(f);
}

static bool read_file(const char *path, struct buf *text, char *err, size_t err_size)
{
	FILE *f = fopen(path, "re");
	bool ok = f && read_stream(f, text);

	if (!ok)
		snprintf(err, err_size, "cannot read \"%s\": %s", path, strerror(errno));
	if (f)
		fclose(f);
	return ok;
}

/* The table of a file; of one with mistakes, what could be read. */
static bool read_table(const char *path, struct entry **ret, char *err, size_t err_size)
{
	struct load ld = {.path = path,
		.err = err,
		.err_size = err_size,
		.name = BUF_SECRET,
		.secret = BUF_SECRET};
	struct buf text = BUF_SECRET;
	bool ok = true;

	err[0] = '\0';
	has_secrets = false;
	if (path && path[0])
		ok = read_file(path, &text, err, err_size) && load_text(&ld, &text);
	buf_free(&text);
	buf_free(&ld.name);
	buf_free(&ld.secret);
	*ret = ld.table;
	return ok;
}

bool auth_file_load(const char *path, char *err, size_t err_size)
{
	struct entry *table, *old = users;
	bool ok = read_table(path, &table, err, err_size);

	if (ok) {
		table_inherit(table, old);
		users = table;
		table = old;
	}
	table_free(&table);
	return ok;
}

bool auth_file_check(const char *path, char *err, size_t err_size)
{
	struct entry *table;
	bool ok = read_table(path, &table, err, err_size);

	table_free(&table);
	return ok;
}

bool auth_file_has_secrets(void)
{
	return has_secrets;
}

void auth_file_free(void)
{
	table_free(&users);
}

/* --- questions --- */

const struct auth_user *auth_user_find(const char *name)
{
	struct entry *e = table_find(users, name);

	return e ? &e->user : NULL;
}

bool auth_user_in_file(const char *name)
{
	struct entry *e = table_find(users, name);

	return e && e->from_file;
}

void auth_each_user(void (*fn)(const struct auth_user *u, void *arg), void *arg)
{
	struct entry *e, *next;

	HASH_ITER (hh, users, e, next)
		fn(&e->user, arg);
}

void auth_user_learn(
	const char *name, const struct scram_verifier *v, const uint8_t client_key[SCRAM_KEY_LEN])
{
	struct entry *e;

	if (strlen(name) >= sizeof(e->user.name))
		return;
	e = table_get(&users, name);
	if (!e)
		return; /* no memory: the login stands, pass-through waits for the next one */
	secret_erase(&e->user.passthrough);
	e->user.passthrough.kind = SECRET_SCRAM_KEYS;
	e->user.passthrough.scram = *v;
	memcpy(e->user.passthrough.client_key, client_key, SCRAM_KEY_LEN);
}

const struct scram_verifier *auth_user_verifier(const char *name, int iterations)
{
	struct entry *e = table_find(users, name);

	if (!e || e->user.secret.kind != SECRET_PLAIN)
		return NULL;
	if (e->derived.iterations != iterations &&
		!scram_verifier_make(&e->derived, e->user.secret.plain, iterations))
		return NULL;
	return &e->derived;
}

bool auth_file_prefers_scram(void)
{
	struct entry *e, *next;
	size_t scram = 0, others = 0;

	HASH_ITER (hh, users, e, next) {
		if (e->user.secret.kind == SECRET_SCRAM)
			scram++;
		else if (e->user.secret.kind != SECRET_NONE)
			others++;
	}
	return scram > others;
}
