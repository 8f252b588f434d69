/*
 * auth_query: secrets of users that auth_file does not have, asked of a database over connections
 * of their own. Those belong to a pool that no client can enter, run nothing but the query, and
 * have a fixed search_path; the name of the user is a bound value. Answers are used again for a
 * short time, also those that say that there is no such user. Must not know conversations. Entry
 * points: login_int.h.
 */
#include <string.h>

#include "login_int.h"

#define ANSWERS_MAX 10000

/* The same as the query that auth_query is by default, with names that no search_path changes, and
 * the time until the secret expires. */
#define OWN_QUERY                                                                                  \
	"SELECT r.rolname, CASE WHEN r.rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now() "     \
	"THEN NULL ELSE r.rolpassword END, CASE WHEN pg_catalog.isfinite(r.rolvaliduntil) THEN "   \
	"pg_catalog.date_part('epoch', r.rolvaliduntil OPERATOR(pg_catalog.-) pg_catalog.now()) "  \
	"END FROM pg_catalog.pg_authid r WHERE r.rolname OPERATOR(pg_catalog.=) $1 AND "           \
	"r.rolcanlogin"

/* A question, and its answer once it is there. In `table` as long as it may be used again; after
 * that it lives until the last of its clients has left. */
struct lookup {
	UT_hash_handle hh;
	struct lookup *prev, *next; /* of `answers`: longest unused first; not while PENDING */
	enum lookup_state state;
	bool in_table;
	bool late;  /* FAILED: it had to wait for too long */
	bool stale; /* not to be used again, though the answer is still to come */
	unsigned rows;
	unsigned users;      /* clients that refer to it, waiting or not */
	unsigned generation; /* of the configuration that asked */
	struct client *waiting;
	struct secret secret;
	usec_t asked_at, expires;
	struct task *task;
	char *user;
	size_t key_len;
	uint8_t *key; /* database, role, query, user, each with its zero byte */
};

static struct {
	struct lookup *table, *answers;
	unsigned n_answers;
} lookups;

/* --- where, as whom, what --- */

static const char *first_of(const char *a, const char *b)
{
	return a != NULL ? a : b;
}

static const struct conf_database *entry_of(const struct client *c)
{
	return c->console ? NULL : conf_find_database(conf_current(), client_database(c));
}

static const char *role_of(const struct conf_database *d)
{
	return first_of(d != NULL ? d->auth_user : NULL, conf_current()->p.auth_user);
}

static const char *query_of(const struct conf_database *d)
{
	const char *query =
		first_of(d != NULL ? d->auth_query : NULL, conf_current()->p.auth_query);

	return strcmp(query, CONF_AUTH_QUERY) == 0 ? OWN_QUERY : query;
}

/* The client says where: nothing there is made for it before it has proved who it is. */
static bool client_chooses(const struct conf_database *d)
{
	return first_of(d != NULL ? d->auth_dbname : NULL, conf_current()->p.auth_dbname)[0] ==
	       '\0';
}

/* "": nowhere. */
static const char *database_of(const struct client *c, const struct conf_database *d)
{
	const char *name =
		first_of(d != NULL ? d->auth_dbname : NULL, conf_current()->p.auth_dbname);

	if (name[0] == '\0' && d != NULL)
		name = client_database(c);
	return name;
}

bool lookup_wanted(const struct client *c)
{
	const struct conf_database *d = entry_of(c);

	CHECK_CLIENT(c);
	if (!c->console && d == NULL)
		return false; /* no such database: told after the conversation */
	return role_of(d)[0] != '\0' && query_of(d)[0] != '\0' &&
	       !auth_user_in_file(client_user(c)) && database_of(c, d)[0] != '\0';
}

/* --- answers --- */

static void lookup_free(struct lookup *l)
{
	secret_erase(&l->secret);
	mem_free(l->user);
	mem_free(l->key);
	mem_free(l);
}

/* Not used again. */
static void retire(struct lookup *l)
{
	if (l->in_table) {
		HASH_DEL(lookups.table, l);
		l->in_table = false;
		if (l->state != LOOKUP_PENDING) {
			DL_DELETE(lookups.answers, l);
			lookups.n_answers--;
		}
	}
	l->stale = true;
	if (l->users == 0 && l->state != LOOKUP_PENDING)
		lookup_free(l);
}

static bool is_fresh(const struct lookup *l, usec_t now)
{
	if (l->generation != conf_current()->generation)
		return false;
	return l->state == LOOKUP_PENDING ||
	       (now < l->expires && now - l->asked_at < conf_current()->p.auth_query_cache);
}

void lookup_forget(const char *user)
{
	struct lookup *l, *tmp;

	HASH_ITER (hh, lookups.table, l, tmp)
		if (strcmp(l->user, user) == 0)
			retire(l);
}

static void keep_answer(struct lookup *l)
{
	DL_APPEND(lookups.answers, l);
	lookups.n_answers++;
	while (lookups.n_answers > ANSWERS_MAX)
		retire(lookups.answers);
}

/* --- the task --- */

static bool read_value(struct wire_reader *r, const char **ret, size_t *ret_len)
{
	int32_t len = wire_get_i32(r);

	*ret = NULL;
	*ret_len = 0;
	if (r->failed || len < 0)
		return !r->failed;
	*ret_len = (size_t)len;
	*ret = (const char *)wire_get_bytes(r, (size_t)len);
	return *ret != NULL;
}

static void take_secret(struct lookup *l, const char *text, size_t len)
{
	char *copy;

	if (text == NULL)
		return; /* no password, or an expired one */
	copy = mem_alloc(len + 1);
	if (copy != NULL) {
		memcpy(copy, text, len);
		copy[len] = '\0';
	}
	if (copy == NULL || memchr(text, '\0', len) != NULL || !secret_parse(&l->secret, copy))
		l->state = LOOKUP_FAILED;
	if (copy != NULL)
		util_erase(copy, len);
	mem_free(copy);
}

/* Seconds, with or without a fraction. */
static void take_expiry(struct lookup *l, const char *text, size_t len)
{
	const char *point = text != NULL ? memchr(text, '.', len) : NULL;
	int64_t seconds;

	if (text == NULL)
		return;
	if (!util_parse_i64(text, point != NULL ? (size_t)(point - text) : len, &seconds))
		return;
	if (seconds <= 0)
		secret_erase(&l->secret);
	else if ((usec_t)seconds < CONF_TIME_MAX / USEC_SEC)
		l->expires = loop_now() + (usec_t)seconds * USEC_SEC;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct lookup *l = arg;
	struct wire_reader r;
	const char *name, *secret, *expiry = NULL;
	size_t name_len, secret_len, expiry_len = 0;
	int16_t n;

	l->rows++;
	wire_reader_init(&r, body, len);
	n = wire_get_i16(&r);
	if (l->rows > 1 || n < 2 || !read_value(&r, &name, &name_len) ||
		!read_value(&r, &secret, &secret_len) ||
		(n > 2 && !read_value(&r, &expiry, &expiry_len))) {
		log_warning("auth_query: expected one row of name and secret");
		l->state = LOOKUP_FAILED;
		return;
	}
	/* the server may have cut a long name: then it speaks of somebody else */
	if (name == NULL || name_len != strlen(l->user) || memcmp(name, l->user, name_len) != 0)
		return;
	l->state = LOOKUP_KNOWN;
	take_secret(l, secret, secret_len);
	take_expiry(l, expiry, expiry_len);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct lookup *l = arg;
	struct client *c;

	l->task = NULL;
	if (err != NULL) {
		log_warning("auth_query for user \"%s\": %s", l->user, err->message);
		l->state = LOOKUP_FAILED;
		l->late = strcmp(err->message, "query_wait_timeout") == 0;
	} else if (l->state == LOOKUP_PENDING) {
		l->state = LOOKUP_UNKNOWN;
	}
	l->asked_at = loop_now();
	if (l->in_table)
		keep_answer(l);
	if (l->in_table && l->state == LOOKUP_FAILED) {
		l->users++;
		retire(l);
		l->users--;
	}
	l->users++; /* stays while its clients are told */
	while ((c = l->waiting) != NULL) {
		DL_DELETE2(l->waiting, c, login->lookup_prev, login->lookup_next);
		c->login->then->looked_up(c);
	}
	if (--l->users == 0 && l->stale)
		lookup_free(l);
}

static const struct task_ops ops = {.row = on_row, .done = on_done};

static bool submit(struct lookup *l, struct database *db, const char *role, const char *query)
{
	struct pool *p = pool_get_lookup(db, role);
	const struct bind_param name = {
		.data = (const uint8_t *)l->user, .len = (int32_t)strlen(l->user), .format = 0};
	const uint32_t oid = 0;
	const struct task_spec spec = {
		.ops = &ops, .arg = l, .sql = query, .oids = &oid, .n_params = 1, .params = &name};

	l->task = p != NULL ? task_submit(p, &spec) : NULL;
	return l->task != NULL;
}

/* --- a client asks --- */

static void put_key(
	struct buf *b, const char *db, const char *role, const char *query, const char *user)
{
	const char *const parts[] = {db, role, query, user};

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		buf_put(b, parts[i], strlen(parts[i]) + 1);
}

static struct lookup *lookup_new(const struct buf *key, const char *user)
{
	struct lookup *l = mem_zalloc(sizeof(*l));

	if (l == NULL)
		return NULL;
	l->user = mem_strdup(user);
	l->key = mem_dup(key->data, key->len);
	l->key_len = key->len;
	l->generation = conf_current()->generation;
	l->expires = USEC_NEVER;
	l->asked_at = loop_now();
	if (l->user == NULL || l->key == NULL) {
		lookup_free(l);
		return NULL;
	}
	HASH_ADD_KEYPTR(hh, lookups.table, l->key, l->key_len, l);
	if (l->hh.tbl == NULL) {
		lookup_free(l);
		return NULL;
	}
	l->in_table = true;
	return l;
}

/* The question as it was asked before, or a new one that is under way. NULL: it cannot be asked. */
static struct lookup *find_or_ask(struct client *c, const struct conf_database *d)
{
	const char *role = role_of(d), *query = query_of(d), *name = database_of(c, d);
	struct database *db = client_chooses(d) ? route_find_unproven(name) : route_find(name);
	struct buf key = BUF_INIT;
	struct lookup *l = NULL;

	c->login->lookup_disabled = db != NULL && db->disabled;
	if (db == NULL || db->disabled) {
		log_warning("auth_query for user \"%s\": authentication database \"%s\" is %s",
			client_user(c), name, db != NULL ? "disabled" : "not configured");
		return NULL;
	}
	put_key(&key, db->name, role, query, client_user(c));
	if (!buf_failed(&key))
		HASH_FIND(hh, lookups.table, key.data, key.len, l);
	if (l != NULL && !is_fresh(l, loop_now())) {
		retire(l);
		l = NULL;
	}
	if (l == NULL && !buf_failed(&key) && (l = lookup_new(&key, client_user(c))) != NULL &&
		!submit(l, db, role, query)) {
		l->state = LOOKUP_FAILED;
		keep_answer(l);
		retire(l);
		l = NULL;
	}
	buf_free(&key);
	return l;
}

enum lookup_state lookup_start(struct client *c)
{
	struct lookup *l = find_or_ask(c, entry_of(c));

	CHECK_CLIENT(c);
	if (l == NULL)
		return LOOKUP_FAILED;
	l->users++;
	c->login->lookup = l;
	if (l->state == LOOKUP_PENDING)
		DL_APPEND2(l->waiting, c, login->lookup_prev, login->lookup_next);
	return l->state;
}

enum lookup_state lookup_result(const struct client *c)
{
	return c->login->lookup != NULL ? c->login->lookup->state : LOOKUP_FAILED;
}

bool lookup_was_late(const struct client *c)
{
	return c->login->lookup != NULL && c->login->lookup->late;
}

const char *lookup_database(const struct client *c)
{
	return database_of(c, entry_of(c));
}

const struct secret *lookup_secret(const struct client *c)
{
	return &c->login->lookup->secret;
}

static void stop_waiting(struct lookup *l, struct client *c)
{
	struct client *w;

	DL_FOREACH2 (l->waiting, w, login->lookup_next)
		if (w == c) {
			DL_DELETE2(l->waiting, c, login->lookup_prev, login->lookup_next);
			return;
		}
}

void lookup_leave(struct client *c)
{
	struct lookup *l = c->login->lookup;

	CHECK_CLIENT(c);
	c->login->lookup = NULL;
	if (l == NULL)
		return;
	if (c->login->phase == PHASE_LOOKUP)
		stop_waiting(l, c);
	if (--l->users == 0 && l->stale && l->state != LOOKUP_PENDING)
		lookup_free(l);
}

void lookup_free_all(void)
{
	struct lookup *l, *tmp;

	HASH_ITER (hh, lookups.table, l, tmp)
		retire(l);
}
