/*
 * The state of a session beyond its transactions. What a statement may have
 * changed is told by its text (`touched`); what it is, by the server, which is asked when the
 * transaction has ended (inspect.c). Settings become the client's, and are put in force on the next
 * server that it gets. What cannot be moved pins the client: it keeps the server until the
 * server says that it is gone. A server whose state is not known goes to nobody before DISCARD ALL.
 */
#include <stdio.h>
#include <string.h>

#include "pool/answer.h"
#include "pool/reading.h"
#include "session_int.h"

/* --- the settings of the start-up packet --- */

/* As the lists have it. Returns its length; not below size: too long. */
static size_t lower_name(char *dst, size_t size, const char *name)
{
	size_t n = util_strlcpy(dst, name, size);

	for (size_t i = 0; i < n && i < size; i++)
		dst[i] = util_lower(dst[i]);
	return n;
}

static void remember_began(struct pool *p, const struct client *c)
{
	pool_forget_began(p);
	vars_copy_missing(&p->began.vars, &c->vars);
	p->began.extra = istr_ref(c->extra);
	p->began.origin = istr_ref(c->origin);
}

static bool began_alike(const struct pool *p, const struct client *c)
{
	return p->began.origin != NULL && p->began.extra == c->extra &&
	       memcmp(&p->began.vars, &c->vars, sizeof(c->vars)) == 0;
}

static bool list_origin(struct client *c)
{
	struct buf pairs = BUF_INIT;
	bool ok;

	buf_reserve(&pairs, istr_len(c->extra) + 512);
	buf_put(&pairs, istr_text(c->extra), istr_len(c->extra));
	for (int i = 0; i < VAR_COUNT; i++) {
		char name[40];

		if (c->vars.v[i] == NULL)
			continue;
		buf_put(&pairs, name, lower_name(name, sizeof(name), var_name((enum var_id)i)) + 1);
		buf_put(&pairs, istr_text(c->vars.v[i]), istr_len(c->vars.v[i]) + 1);
	}
	ok = settings_sorted(&pairs, &c->origin);
	buf_free(&pairs);
	return ok;
}

/* What RESET goes back to: all that the session began with. The settings that servers report are in
 * no list but this one. */
bool session_begin(struct client *c)
{
	CHECK_CLIENT(c);
	c->proven = c->extra == NULL;
	if (began_alike(c->pool, c)) {
		c->origin = istr_ref(c->pool->began.origin);
		return true;
	}
	if (!list_origin(c))
		return false;
	remember_began(c->pool, c);
	return true;
}

bool session_add_setting(struct istr **list, const char *name, const char *value)
{
	char lower[128];

	return lower_name(lower, sizeof(lower), name) < sizeof(lower) &&
	       settings_set(list, lower, value);
}

void session_restore_vars(
	struct client *c, const char *only, const struct istr *kept, struct buf *status)
{
	CHECK_CLIENT(c);
	for (int i = 0; i < VAR_COUNT; i++) {
		const char *name = var_name((enum var_id)i);
		const char *value = settings_find(c->origin, name);

		if (value == NULL || strcmp(value, istr_text(c->vars.v[i])) == 0 ||
			(only != NULL && util_strcasecmp(only, name) != 0) ||
			settings_find(kept, name) != NULL)
			continue;
		vars_set(&c->vars, (enum var_id)i, value);
		build_parameter_status(status, name, value);
	}
}

/* What the list lacks of the origin, without what the server reports. */
bool session_add_origin(const struct client *c, struct istr **list)
{
	const char *at = istr_text(c->origin), *end = at + istr_len(c->origin);
	struct setting s;

	CHECK_CLIENT(c);
	while (settings_next(&at, end, &s))
		if (var_find(s.name) < 0 && settings_find(*list, s.name) == NULL &&
			!settings_set(list, s.name, s.value))
			return false;
	return true;
}

bool session_restore_all(struct client *c, bool identity)
{
	struct istr *list = NULL;
	const char *const kept[] = {"session_authorization", "role"};
	bool ok = true;

	CHECK_CLIENT(c);
	for (size_t i = 0; i < ARRAY_LEN(kept) && !identity && ok; i++)
		if (settings_find(c->extra, kept[i]) != NULL)
			ok = settings_set(&list, kept[i], settings_find(c->extra, kept[i]));
	ok = ok && session_add_origin(c, &list);
	if (!ok) {
		istr_drop(&list);
		return client_out_of_memory(c);
	}
	istr_drop(&c->extra);
	c->extra = list;
	return true;
}

#define UNDO(touch) ((touch) << SQL_TOUCH_UNDO_SHIFT)

/* --- what a text may change --- */

/* Session pooling: the question failed (statement_timeout); now another statement has ended. */
void session_ask_again(struct server *s)
{
	if (s->inspect.again)
		s->trace.touched |= SQL_TOUCH_SETTINGS;
	s->inspect.again = false;
}

/* Session pooling: what has been seen of one client is nothing of the next one's. */
void session_released(struct server *s)
{
	s->inspect.again = s->inspect.insisted = false;
	s->trace.touched_behind = 0;
	session_forget_prepared(s);
	if (!server_keeps_session(s))
		return;
	s->trace.touched = 0;
	s->trace.reset_seen = false;
	buf_free(&s->trace.custom);
}

/* A DISCARD ALL may be under way: what is sent behind it outlives it. */
static void touch(struct server *s, unsigned touches, unsigned what)
{
	s->trace.touched |= (uint8_t)what;
	if (s->expect.count == 0)
		s->trace.touched_behind = 0;
	else if ((touches & UNDO(SQL_TOUCH_ALL)) != UNDO(SQL_TOUCH_ALL))
		s->trace.touched_behind |= (uint8_t)what;
}

#define CUSTOM_MAX 16384

static uint32_t hash_name(const char *name)
{
	uint32_t hash = 5381;

	for (; *name != '\0'; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

/* Each but once, as far as a small table of their hashes can tell: a long list is not searched for
 * each name. false: there are too many. */
bool session_add_custom(struct server *s, const struct buf *names)
{
	uint16_t seen[1024] = {0};
	const char *at = (const char *)names->data, *end = at + names->len;
	bool all = true;

	CHECK_SERVER(s);
	s->trace.custom.failed |= names->failed;
	if (names->len == 0 || names->failed)
		return true;
	for (size_t i = 0; i < s->trace.custom.len;) {
		const char *name = (const char *)s->trace.custom.data + i;

		seen[hash_name(name) % ARRAY_LEN(seen)] = (uint16_t)(i + 1);
		i += strlen(name) + 1;
	}
	for (; at < end && !s->trace.custom.failed; at += strlen(at) + 1) {
		uint16_t *place = &seen[hash_name(at) % ARRAY_LEN(seen)];

		if (*place > 0 && strcmp((const char *)s->trace.custom.data + *place - 1, at) == 0)
			continue;
		if (s->trace.custom.len + strlen(at) >= CUSTOM_MAX) {
			all = false;
			continue;
		}
		*place = (uint16_t)(s->trace.custom.len + 1);
		buf_put(&s->trace.custom, at, strlen(at) + 1);
	}
	return all;
}

/* Of settings whose names nobody knows it cannot be told whether they are there. */
static void note_unknown(struct server *s, unsigned unknown, unsigned *made)
{
	if ((unknown & SQL_TOUCH_UNNAMED) != 0)
		*made |= PIN_UNKNOWN;
	s->trace.unseen |= (unknown & SQL_TOUCH_HIDDEN) != 0;
}

static unsigned add_custom_of(struct server *s, struct sql_text *t)
{
	const struct buf *found;
	unsigned unknown = sql_custom_names(t, &found);

	return session_add_custom(s, found) ? unknown : unknown | SQL_TOUCH_UNNAMED;
}

/* t NULL: the text is not known. */
static void note_dialect(struct server *s, struct sql_text *t, unsigned touches)
{
	if ((touches & (SQL_TOUCH_SETTINGS | SQL_TOUCH_DIALECT)) == 0)
		return;
	s->trace.dialect_doubt = true;
	s->trace.rare_doubt |= t == NULL || (touches & SQL_TOUCH_HIDDEN) != 0 || sql_names_rare(t);
}

/* Quotes, and so where a statement ends, depend on settings that a statement under way may change,
 * or the end of its transaction take back. Most texts mean the same in any case. */
bool session_reads(struct client *c, struct sql_text *t)
{
	if (c->link == NULL || !c->link->trace.dialect_doubt || !client_is_owed(c) ||
		sql_is_plain(t))
		return true;
	return client_barrier(c);
}

/* Session pooling: what runs beside the client's server is to run under its settings too, and a
 * RESET goes back to those of its start-up packet. */
static void touch_settings(struct server *s, struct sql_text *t, unsigned touches)
{
	if ((touches & SQL_TOUCH_SETTINGS) == 0)
		return;
	(void)add_custom_of(s, t);
	s->sets.by_sql |= (touches & SQL_TOUCH_PREPARED) != 0;
	s->trace.reset_seen |= s->sets.by_sql || sql_may_reset(t);
	touch(s, touches, SQL_TOUCH_SETTINGS);
}

/* What SQL has prepared changes them again each time that it is executed. */
static unsigned touches_by_executing(const struct client *c, struct sql_text *t)
{
	return c->link->sets.by_sql && sql_may_execute(t) ? SQL_TOUCH_SETTINGS : 0;
}

unsigned session_touches(const struct client *c, struct sql_text *t)
{
	return sql_touches(t) | touches_by_executing(c, t);
}

/* It is mostly the one that has just been parsed. */
void session_touch_again(struct server *s)
{
	unsigned touches = s->unnamed.touches & (SQL_TOUCH_ALL | SQL_TOUCH_LOAD);

	CHECK_SERVER(s);
	note_dialect(s, NULL, s->unnamed.touches);
	if (server_keeps_session(s))
		touches &= SQL_TOUCH_SETTINGS;
	else if ((s->unnamed.touches & (SQL_TOUCH_HIDDEN | SQL_TOUCH_EXECUTE)) != 0)
		s->trace.unseen = true;
	if ((touches & ~(unsigned)s->trace.touched) == 0)
		return;
	s->trace.reset_seen |= (touches & SQL_TOUCH_SETTINGS) != 0;
	touch(s, touches, touches);
}

/* --- session pooling: statements with names --- */

#define PREPARED_MAX 256

/* One that may change settings, each time that it is bound. */
struct session_prepared {
	struct session_prepared *next;
	bool resets;
	char name[];
};

static struct session_prepared *prepared_find(const struct server *s, const char *name)
{
	struct session_prepared *p = s->sets.list;

	while (p != NULL && strcmp(p->name, name) != 0)
		p = p->next;
	return p;
}

/* Until the client leaves: whether a Close or another Parse of the name is carried out is not known
 * here, and a question too many does no harm. */
void session_prepared(struct server *s, const char *name, struct sql_text *t)
{
	struct session_prepared *p = prepared_find(s, name);
	size_t size = strlen(name) + 1;

	CHECK_SERVER(s);
	if (p == NULL && s->sets.n < PREPARED_MAX && (p = mem_zalloc(sizeof(*p) + size)) != NULL) {
		memcpy(p->name, name, size);
		LL_PREPEND(s->sets.list, p);
		s->sets.n++;
	}
	if (p != NULL)
		p->resets |= sql_may_reset(t);
	else
		s->sets.any = true;
}

void session_bound(struct server *s, const char *name)
{
	const struct session_prepared *p = prepared_find(s, name);

	CHECK_SERVER(s);
	if (p == NULL && !s->sets.any)
		return;
	s->trace.reset_seen |= p == NULL || p->resets;
	touch(s, SQL_TOUCH_SETTINGS, SQL_TOUCH_SETTINGS);
}

void session_forget_prepared(struct server *s)
{
	struct session_prepared *p;

	CHECK_SERVER(s);
	while ((p = s->sets.list) != NULL) {
		LL_DELETE(s->sets.list, p);
		mem_free(p);
	}
	s->sets.n = 0;
	s->sets.any = s->sets.by_sql = false;
}

void session_touch(struct client *c, struct sql_text *t, unsigned touches)
{
	struct server *s = c->link;
	unsigned undone, made;

	note_dialect(s, t, touches);
	/* the rest of it stays with the server */
	if (server_keeps_session(s)) {
		touch_settings(s, t, touches);
		return;
	}
	if ((touches & SQL_TOUCH_EXECUTE) != 0 && !sqlprep_is_all_known(c, t))
		touches |= SQL_TOUCH_UNSEEN;
	/* a question under way is answered as of before this */
	undone = (touches >> SQL_TOUCH_UNDO_SHIFT) & (c->pins | inspect_asks(s));
	made = touches & ((1u << SQL_TOUCH_UNDO_SHIFT) - 1u);
	note_unknown(s, touches, &made);
	/* gone by another way than a DEALLOCATE of its own */
	if ((touches & UNDO(SQL_TOUCH_PREPARED)) != 0 && c->sqlprep != NULL)
		made |= SQL_TOUCH_PREPARED;
	/* what could not be read is tried again */
	made |= c->pins & SQL_TOUCH_SETTINGS;
	if ((made & SQL_TOUCH_SETTINGS) != 0) {
		note_unknown(s, add_custom_of(s, t), &made);
		made |= c->pins & SQL_TOUCH_TEMP; /* inspect.c: search_path */
	}
	if ((made & SQL_TOUCH_SETTINGS) != 0 && sql_may_reset(t))
		s->trace.reset_seen = true;
	touch(s, touches, made | undone);
}

/* --- FunctionCall --- */

/* What the library of large objects calls; numbers of functions that come with Postgres are the
 * same in all versions. They leave nothing behind. */
static bool is_of_large_objects(uint32_t function)
{
	static const uint32_t known[] = {715, 764, 765, 767, 952, 953, 954, 955, 956, 957, 958, 964,
		1004, 3170, 3171, 3172, 3457, 3458, 3459, 3460};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (known[i] == function)
			return true;
	return false;
}

/* The name that set_config() is called with, if it is one that has to be asked for. false: who
 * knows. */
static bool called_name(struct wire_reader *r, struct buf *ret)
{
	int n = (uint16_t)wire_get_i16(r), args;
	const uint8_t *name;
	int32_t len;

	(void)wire_get_bytes(r, (size_t)n * 2);
	args = (uint16_t)wire_get_i16(r);
	len = wire_get_i32(r);
	name = r->failed || args != 3 || len < 0 ? NULL : wire_get_bytes(r, (size_t)len);
	if (name == NULL || r->failed || memchr(name, 0, (size_t)len) != NULL)
		return false;
	if (memchr(name, '.', (size_t)len) == NULL)
		return true;
	for (int32_t i = 0; i < len; i++)
		buf_putc(ret, util_lower((char)name[i]));
	buf_putc(ret, '\0');
	return true;
}

#define SET_CONFIG 2078 /* pg_catalog.set_config(text, text, boolean) */

/* Only the number of the function is in it: all but a few may do anything. */
void session_touch_call(struct client *c, const struct wire_msg *m)
{
	struct server *s = c->link;
	unsigned touches = SQL_TOUCH_ALL, unknown = SQL_TOUCH_HIDDEN;
	struct buf name = BUF_INIT;
	struct wire_reader r;
	uint32_t function;

	CHECK_CLIENT(c);
	wire_reader_init(&r, m->body, m->have);
	function = wire_get_u32(&r);
	if (!r.failed && is_of_large_objects(function))
		return;
	note_dialect(s, NULL, SQL_TOUCH_SETTINGS);
	if (!r.failed && function == SET_CONFIG) {
		bool known = called_name(&r, &name) && session_add_custom(s, &name);

		touches = SQL_TOUCH_SETTINGS;
		unknown = known ? 0 : SQL_TOUCH_UNNAMED;
	}
	buf_free(&name);
	s->trace.reset_seen = true;
	if (server_keeps_session(s)) {
		touch(s, SQL_TOUCH_SETTINGS, SQL_TOUCH_SETTINGS);
		return;
	}
	note_unknown(s, unknown, &touches);
	touch(s, touches, touches);
}

/* --- statements that are understood --- */

#define EFFECT_ALL "all"

#define IDENTITY   "identity"

/* The setting that a statement of its own changes: name\0value\0, or name\0 for a RESET; `all` is
 * no name of a setting; `all` with a value: role and authorization as well. */
static struct istr *effect_of(const struct sql_session *st)
{
	struct buf b = BUF_INIT;
	struct istr *effect = NULL;

	if (st->kind != SQL_SESSION_RESET_ALL)
		buf_put(&b, st->name.data, st->name.len);
	else
		buf_put(&b, EFFECT_ALL, sizeof(EFFECT_ALL));
	if (st->kind == SQL_SESSION_SET)
		buf_put(&b, st->value.data, st->value.len);
	if (!buf_failed(&b))
		effect = istr_get((const char *)b.data, b.len);
	buf_free(&b);
	return effect;
}

/* Nothing of the client's is outstanding. */
static bool is_at_rest(struct server *s)
{
	for (unsigned i = 0; i < s->expect.count; i++)
		if (expect_at(&s->expect, i)->dest != &dest_vars)
			return false;
	return s->tx == 'I' && !s->batch.unsynced;
}

/* Of a SET or RESET. */
static bool is_of(const struct sql_session *st, const char *name)
{
	return st->name.len > 0 && strcmp((const char *)st->name.data, name) == 0;
}

/* A string as connection pools send it when a connection comes back ("SELECT
 * pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL"): nothing but statements that are
 * known, and RESET ALL the last one that has to do with settings. What that leaves alone may only
 * be reset: role, and authorization, with which the role goes. NULL: it is none. */
static struct istr *effect_of_cleaning(const struct client *c, const struct sql_text *t)
{
	static const char all[] = EFFECT_ALL, all_and_identity[] = EFFECT_ALL "\0" IDENTITY;
	bool found = false, known = true, identity = false;
	bool has_authorization = settings_find(c->extra, "session_authorization") != NULL;
	struct sql_text one;
	size_t pos = 0;

	while (known && sql_text_next(t, &pos, &one)) {
		const struct sql_session *st = sql_session(&one);
		enum sql_session_kind kind = st->kind;
		bool one_setting = kind == SQL_SESSION_SET || kind == SQL_SESSION_RESET;
		bool whole = one_setting && is_of(st, "session_authorization");
		bool role = one_setting && is_of(st, "role");

		known = kind != SQL_SESSION_OTHER && kind != SQL_SESSION_PREPARE;
		if (kind == SQL_SESSION_RESET_ALL)
			found = true;
		else if (one_setting)
			found = false;
		if (role || whole) {
			known = kind == SQL_SESSION_RESET && (whole || !has_authorization);
			identity = true;
		}
		sql_text_free(&one);
	}
	if (!known || !found)
		return NULL;
	return identity ? istr_get(all_and_identity, sizeof(all_and_identity))
			: istr_get(all, sizeof(all));
}

struct istr *session_effect(struct client *c, struct sql_text *t)
{
	unsigned touches = session_touches(c, t);
	struct istr *effect = NULL;
	struct server *s = c->link;

	if (touches == 0 && c->pins == 0)
		return NULL;
	note_dialect(s, t, touches);
	if (!server_keeps_session(s) && (c->pins & SQL_TOUCH_PREPARED) == 0 &&
		(touches & ~(unsigned)SQL_TOUCH_DIALECT) == SQL_TOUCH_PREPARED &&
		(effect = sqlprep_effect(c, t)) != NULL)
		return effect;
	if (!server_keeps_session(s) && (c->pins & SQL_TOUCH_PREPARED) == 0 &&
		touches == UNDO(SQL_TOUCH_PREPARED) && (effect = sqlprep_effect(c, t)) != NULL)
		return effect;
	/* outside of transactions it counts as soon as it is answered, and need not be asked for */
	if ((t->word == SQL_WORD_SET || t->word == SQL_WORD_RESET) && is_at_rest(s)) {
		const struct sql_session *st = sql_session(t);
		enum sql_session_kind kind = st->kind;
		const char *name = st->name.len > 0 ? (const char *)st->name.data : "";

		if (kind == SQL_SESSION_SET && var_find(name) >= 0)
			touches = 0; /* the server reports it */
		else if (kind == SQL_SESSION_SET ||
			 (kind == SQL_SESSION_RESET && var_find(name) < 0) ||
			 (server_keeps_session(s) &&
				 (kind == SQL_SESSION_RESET || kind == SQL_SESSION_RESET_ALL)))
			effect = effect_of(st);
	}
	if (effect == NULL && server_keeps_session(s) && (touches & SQL_TOUCH_SETTINGS) != 0 &&
		is_at_rest(s))
		effect = effect_of_cleaning(c, t);
	if (effect == NULL && (touches != 0 || c->pins != 0))
		session_touch(c, t, touches);
	return effect;
}

/* Session pooling: the server is back at its own beginnings. Those of the client are put in force
 * in front of its next statement; what is reported it hears now. */
static void restore_reported(struct server *s, const char *only)
{
	struct buf status = BUF_INIT;

	s->settings.vars_stale = true;
	session_restore_vars(s->link, only, NULL, &status);
	if (status.len > 0 && !buf_failed(&status))
		client_write(s->link, &status);
	buf_free(&status);
}

void session_restore_discarded(struct server *s)
{
	CHECK_SERVER(s);
	s->settings.discarded = false;
	restore_reported(s, NULL);
}

/* RESET ALL leaves the two alone. */
static bool keep_identity(struct istr **list)
{
	static const char *const kept[] = {"role", "session_authorization"};
	struct istr *left = NULL;
	bool ok = true;

	for (size_t i = 0; i < ARRAY_LEN(kept) && ok; i++)
		if (settings_find(*list, kept[i]) != NULL)
			ok = settings_set(&left, kept[i], settings_find(*list, kept[i]));
	istr_drop(list);
	*list = left;
	return ok;
}

static void apply_reset_all(struct server *s, bool identity)
{
	if (identity)
		istr_drop(&s->extra);
	else if (!keep_identity(&s->extra))
		s->trace.dirty = true;
	if (session_restore_all(s->link, identity))
		restore_reported(s, NULL);
}

void session_apply(struct server *s, const struct istr *effect)
{
	const char *name = istr_text(effect), *value = name + strlen(name) + 1, *mine;
	struct client *c = s->link;
	bool ok = true;

	if (sqlprep_is_effect(effect)) {
		sqlprep_apply(s, effect);
		return;
	}
	if (value >= name + istr_len(effect))
		value = NULL;
	if (strcmp(name, EFFECT_ALL) == 0) {
		apply_reset_all(s, value != NULL);
		return;
	}
	if (value == NULL && var_find(name) >= 0) {
		restore_reported(s, name);
		return;
	}
	mine = value != NULL ? value : settings_find(c->origin, name);
	if (mine != NULL && strcmp(name, "role") == 0 && strcmp(mine, "none") == 0 &&
		settings_find(c->origin, name) == NULL)
		mine = value = NULL;
	if (strcmp(name, "session_authorization") == 0)
		ok = settings_set(&c->extra, "role", NULL) && settings_set(&s->extra, "role", NULL);
	if (!ok || !settings_set(&c->extra, name, mine) || !settings_set(&s->extra, name, value))
		s->trace.touched |= SQL_TOUCH_SETTINGS;
}

/* --- pins --- */

unsigned session_pin_limit(const struct pool *p)
{
	int max = conf_current()->p.max_pinned_servers, size = route_pool_size(p);

	if (max >= 0)
		return (unsigned)max;
	return size > 2 ? (unsigned)size - 1 : 1;
}

bool session_pin_refused(const struct client *c, struct sql_text *t)
{
	const unsigned pinning = SQL_TOUCH_TEMP | SQL_TOUCH_LOCKS | SQL_TOUCH_CURSORS |
				 SQL_TOUCH_LISTEN | SQL_TOUCH_LOAD;
	unsigned touches;

	if (c->pins != 0 || c->pool->n_pinned < session_pin_limit(c->pool) ||
		server_keeps_session(c->link))
		return false;
	touches = sql_touches(t);
	return (touches & pinning) != 0 && (touches & SQL_TOUCH_GUESS) == 0;
}

const char *session_pin_names(unsigned pins)
{
	static const char *const names[] = {"settings", "temporary table", "advisory lock",
		"cursor with hold", "prepare", "listen", "load", "unknown setting"};
	static char text[160];
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if ((pins & 1u << i) != 0)
			n += (size_t)snprintf(
				text + n, sizeof(text) - n, "%s%s", n > 0 ? ", " : "", names[i]);
	return text;
}

bool session_holds(struct server *s)
{
	if (s->trace.touched != 0)
		return inspect_begin(s);
	return s->link->pins != 0 || server_keeps_session(s);
}

/* A SET or a PREPARE is under way: when it is answered nobody may be there to whom it counts. */
static bool effect_is_pending(struct server *s)
{
	for (unsigned i = 0; i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		if (e->kind == EXPECT_QUERY && e->dest->beside != NULL && e->arg != NULL)
			return true;
	}
	return false;
}

bool session_is_dirty(struct server *s)
{
	return s->trace.dirty || s->trace.unseen || s->trace.touched != 0 ||
	       s->inspect.now != NULL || effect_is_pending(s) ||
	       (s->link != NULL && s->link->pins != 0);
}

/* DISCARD ALL has been carried out. */
void session_discarded(struct server *s)
{
	CHECK_SERVER(s);
	s->trace.touched = s->trace.touched_behind;
	s->trace.dirty = false;
	s->trace.unseen = s->trace.unseen && s->trace.touched_behind != 0;
	if (s->trace.touched == 0)
		buf_free(&s->trace.custom);
	istr_drop(&s->extra);
	sqlprep_forget(s->link, s);
	if (s->link == NULL)
		return;
	client_pin(s->link, 0);
	if (server_keeps_session(s)) {
		s->settings.discarded = session_restore_all(s->link, true);
		return;
	}
	s->trace.reset_seen = true;
	s->trace.touched |= SQL_TOUCH_SETTINGS; /* back to the client's own beginnings */
}

/* --- before a statement --- */

static enum relay_step vars_refused(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)e;
	return relay_error_ends(r, m, true, "settings refused");
}

/* As the server words them: what it did not report was the same to it, and is not set again. */
static void vars_in_force(struct relay *r, bool last)
{
	struct server *s = r->s;
	struct vars *v;

	(void)last;
	if (s->link == NULL)
		return;
	s->link->proven = true;
	v = &s->link->vars;
	for (int i = 0; i < VAR_COUNT; i++)
		if (v->v[i] != s->vars.v[i] && v->v[i] != NULL && s->vars.v[i] != NULL) {
			istr_drop(&v->v[i]);
			v->v[i] = istr_ref(s->vars.v[i]);
		}
}

const struct dest dest_vars = {.seen = SEEN_STATUS,
	.setup = true,
	.tells = true,
	.ready = vars_in_force,
	.error = vars_refused};

bool session_sync(struct client *c)
{
	struct server *s = c->link;

	CHECK_CLIENT(c);
	if ((s->extra != c->extra || s->settings.vars_stale) && s->tx == 'I' &&
		!s->batch.unsynced && s->expect.count == 0 && !s->trace.touched) {
		s->settings.vars_stale = false;
		server_put_settings(s, &c->vars, c->extra, &dest_vars);
	}
	if (c->link == NULL)
		return false;
	return s->sqlprep == c->sqlprep || server_keeps_session(s) || sqlprep_sync(c);
}

static enum relay_step begin_refused(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	(void)e;
	return relay_error_ends(r, m, true, "settings refused");
}

const struct dest dest_begin = {.seen = SEEN_NOTICES, .error = begin_refused};
