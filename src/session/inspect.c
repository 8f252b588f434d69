/*
 * A question of ours to a server whose transaction has ended: which settings are in force, and what
 * else of the session is left. It runs under the client's own role, and asks only for what the
 * client's statements may have changed. Its operators are named with their schema: the client's
 * search_path may hold others.
 */
#include <string.h>

#include "pool/answer.h"
#include "session_int.h"

struct inspection {
	unsigned asked, found;
	bool failed, resets;
	struct buf pairs;    /* settings */
	struct buf prepared; /* names of those that are known, see sqlprep.c */
	struct buf custom;   /* names asked for: once more if this fails */
};

static const struct {
	unsigned touch;
	char kind;
	const char *condition;
} questions[] = {
	{SQL_TOUCH_TEMP, 't',
		"pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0 AND EXISTS (SELECT FROM pg_catalog.pg_class "
		"WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())"},
	{SQL_TOUCH_LOCKS, 'l',
		"EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' "
		"AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())"},
	{SQL_TOUCH_CURSORS, 'c', "EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)"},
	{SQL_TOUCH_LISTEN, 'n', "EXISTS (SELECT FROM pg_catalog.pg_listening_channels())"},
};

/* Names with a dot are in no view: by name. */
static void put_custom(struct buf *sql, const char *at, size_t len)
{
	const char *end = at + len;

	for (; at < end; at += strlen(at) + 1)
		if (strchr(at, '.') != NULL) {
			buf_puts(sql, ", (");
			settings_put_literal(sql, at);
			buf_puts(sql, ")");
		}
}

static void put_question(struct buf *sql, const struct server *s)
{
	const char *at = istr_text(s->extra), *end = at + istr_len(s->extra);
	struct setting have;

	buf_puts(sql,
		"SELECT 's', name, setting FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session' "
		"UNION ALL SELECT 's', n, pg_catalog.current_setting(n, true) FROM (VALUES ('role'), "
		"('session_authorization')");
	put_custom(sql, (const char *)s->trace.custom.data, s->trace.custom.len);
	while (settings_next(&at, end, &have))
		put_custom(sql, have.name, strlen(have.name) + 1);
	buf_puts(sql, ") AS v(n)");
	for (size_t i = 0; i < ARRAY_LEN(questions); i++)
		if ((s->trace.touched & questions[i].touch) != 0)
			buf_printf(sql, " UNION ALL SELECT '%c', '', '' WHERE %s",
				questions[i].kind, questions[i].condition);
	if ((s->trace.touched & SQL_TOUCH_PREPARED) != 0)
		buf_puts(sql,
			" UNION ALL SELECT 'p', name, statement FROM pg_catalog.pg_prepared_statements WHERE from_sql");
}

bool inspect_begin(struct server *s)
{
	struct buf sql = BUF_INIT;
	struct inspection *l = mem_zalloc(sizeof(*l));

	CHECK_SERVER(s);
	if (l == NULL) {
		server_close(s, "out of memory", NULL);
		return true;
	}
	put_question(&sql, s);
	if (s->trace.custom.failed)
		sql.failed = true;
	l->asked = s->trace.touched;
	l->resets = s->trace.reset_seen;
	s->trace.reset_seen = false;
	s->inspect.now = l;
	s->trace.touched = 0;
	/* session pooling: a statement that was prepared before may set them again */
	if (!server_keeps_session(s)) {
		l->custom = s->trace.custom;
		s->trace.custom = BUF_INIT;
	}
	s->pool->stats.looks++;
	(void)server_query(s, &sql, &dest_inspect);
	return true;
}

unsigned inspect_asks(const struct server *s)
{
	return s->inspect.now != NULL ? s->inspect.now->asked : 0;
}

bool inspect_may_restore(const struct server *s)
{
	return s->inspect.now != NULL && s->inspect.now->resets;
}

/* A column of text; NULL: SQL NULL, or not well-formed. */
static const char *column(struct wire_reader *rd, size_t *ret_len)
{
	int32_t n = wire_get_i32(rd);

	*ret_len = n > 0 ? (size_t)n : 0;
	return n < 0 ? NULL : (const char *)wire_get_bytes(rd, (size_t)n);
}

static void note_setting(struct server *s, struct wire_reader *rd)
{
	struct inspection *l = s->inspect.now;
	size_t name_len, value_len;
	const char *name = column(rd, &name_len), *value = column(rd, &value_len);

	if (rd->failed || name == NULL || value == NULL || name_len == 0 ||
		memchr(name, 0, name_len) != NULL || memchr(value, 0, value_len) != NULL)
		return;
	for (size_t i = 0; i < name_len; i++)
		buf_putc(&l->pairs, util_lower(name[i]));
	buf_putc(&l->pairs, '\0');
	buf_put(&l->pairs, value, value_len);
	buf_putc(&l->pairs, '\0');
}

/* One that can be moved is no reason to stay. */
static void note_prepared(struct server *s, struct wire_reader *rd)
{
	struct inspection *l = s->inspect.now;
	size_t name_len, sql_len;
	const char *name = column(rd, &name_len), *sql = column(rd, &sql_len);
	struct buf text = BUF_INIT;

	if (rd->failed || name == NULL || sql == NULL) {
		l->found |= SQL_TOUCH_PREPARED;
		return;
	}
	buf_put(&text, name, name_len);
	buf_putc(&text, '\0');
	buf_put(&text, sql, sql_len);
	buf_putc(&text, '\0');
	if (!buf_failed(&text) &&
		sqlprep_known(s, (const char *)text.data, (const char *)text.data + name_len + 1))
		buf_put(&l->prepared, text.data, name_len + 1);
	else
		l->found |= SQL_TOUCH_PREPARED;
	buf_free(&text);
}

static void row(struct server *s, const struct wire_msg *m, const struct expect *e)
{
	struct wire_reader rd;
	const char *kind;
	size_t n;

	(void)e;
	wire_reader_init(&rd, m->body, m->have);
	if (s->inspect.now == NULL || wire_get_i16(&rd) != 3 || (kind = column(&rd, &n)) == NULL ||
		n != 1)
		return;
	if (*kind == 's')
		note_setting(s, &rd);
	if (*kind == 'p')
		note_prepared(s, &rd);
	for (size_t i = 0; i < ARRAY_LEN(questions); i++)
		if (questions[i].kind == *kind)
			s->inspect.now->found |= questions[i].touch;
}

static enum relay_step failed(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct server *s = r->s;
	bool batch = relay_in_batch(e);

	(void)m;
	if (s->inspect.now != NULL)
		s->inspect.now->failed = true;
	/* nothing of the client's is in this batch */
	while (batch && (e = expect_head(&s->expect)) != NULL && e->kind != EXPECT_SYNC)
		relay_pop(r, false);
	return RELAY_DROP;
}

/* Is the setting one that has to be moved? Not what is reported, and not the login's own identity.
 */
static bool is_of_session(const struct server *s, const struct setting *st)
{
	const struct istr *origin = s->link->origin;

	if (var_find(st->name) >= 0)
		return false;
	if (strcmp(st->name, "role") == 0)
		return strcmp(st->value, "none") != 0 || settings_find(origin, st->name) != NULL;
	if (strcmp(st->name, "session_authorization") == 0)
		return strcmp(st->value, istr_text(s->pool->user)) != 0;
	/* one that was taken back is empty from then on, where it has no definition */
	return !s->inspect.now->resets || st->value[0] != '\0' || strchr(st->name, '.') == NULL ||
	       settings_find(origin, st->name) == NULL;
}

/* What is created with no schema goes to the first one that is there: temporary, and no word of the
 * statement tells. */
static bool creates_temporary(const struct setting *st)
{
	static const char user[] = "$user", temp[] = "pg_temp";
	const char *p = st->value;

	if (strcmp(st->name, "search_path") != 0)
		return false;
	for (;;) {
		p += strspn(p, " \t\n\r\f\v,\"");
		if (strncmp(p, user, sizeof(user) - 1) != 0)
			return strlen(p) >= sizeof(temp) - 1 &&
			       util_memcasecmp(p, temp, sizeof(temp) - 1) == 0;
		p += sizeof(user) - 1;
	}
}

static bool keep_settings(struct server *s, struct inspection *l)
{
	const char *at = (const char *)l->pairs.data, *end = at + l->pairs.len;
	struct buf kept = BUF_INIT;
	struct istr *list = NULL;
	struct setting st;
	bool ok;

	while (l->pairs.len > 0 && settings_next(&at, end, &st))
		if (is_of_session(s, &st)) {
			buf_put(&kept, st.name, strlen(st.name) + 1);
			buf_put(&kept, st.value, strlen(st.value) + 1);
			if (creates_temporary(&st))
				l->found |= SQL_TOUCH_TEMP;
		}
	ok = !buf_failed(&l->pairs) && settings_sorted(&kept, &list);
	buf_free(&kept);
	if (!ok)
		return false;
	istr_drop(&s->extra);
	s->extra = istr_ref(list);
	s->settings.extra_stale = false;
	/* what is not there now and was at the beginning was reset */
	ok = session_add_origin(s->link, &list);
	istr_drop(&s->link->extra);
	s->link->extra = list;
	return ok;
}

static bool keep_prepared(struct server *s, const struct inspection *l)
{
	if ((l->asked & SQL_TOUCH_PREPARED) == 0)
		return true;
	return !l->prepared.failed && sqlprep_keep(s, &l->prepared);
}

static void restore_reported(struct server *s, struct inspection *l)
{
	struct istr *all = NULL;
	struct buf status = BUF_INIT;

	if (!settings_sorted(&l->pairs, &all))
		return;
	session_restore_vars(s->link, NULL, all, &status);
	istr_drop(&all);
	s->settings.vars_stale |= status.len > 0;
	if (status.len > 0 && !buf_failed(&status))
		client_write(s->link, &status);
	buf_free(&status);
}

/* Where the question has failed for this statement too it is refused: it might run as another role.
 */
enum inspect_known inspect_insist(struct client *c)
{
	struct server *s = c->link;
	bool unknown;

	CHECK_CLIENT(c);
	if (s == NULL || s->tx != 'I' || s->batch.unsynced)
		return INSPECT_KNOWN;
	unknown = s->inspect.again || (c->pins & SQL_TOUCH_SETTINGS) != 0;
	if (!unknown || s->inspect.insisted) {
		s->inspect.insisted = false;
		return unknown ? INSPECT_UNKNOWN : INSPECT_KNOWN;
	}
	if (s->expect.count > 0)
		return INSPECT_ASKED;
	s->inspect.insisted = true;
	s->inspect.again = false;
	s->trace.touched |= SQL_TOUCH_SETTINGS;
	(void)inspect_begin(s);
	return INSPECT_ASKED;
}

void inspect_free(struct server *s)
{
	CHECK_SERVER(s);
	if (s->inspect.now == NULL)
		return;
	buf_free(&s->inspect.now->pairs);
	buf_free(&s->inspect.now->prepared);
	buf_free(&s->inspect.now->custom);
	mem_free(s->inspect.now);
	s->inspect.now = NULL;
}

static void done(struct server *s)
{
	struct inspection *l = s->inspect.now;
	struct client *c = s->link;
	unsigned pins;

	CHECK_SERVER(s);
	if (l == NULL)
		return;
	if (c == NULL) {
		s->trace.dirty = true;
	} else {
		pins = c->pins & ~(l->asked | SQL_TOUCH_SETTINGS);
		pins |= l->found | (l->asked & (SQL_TOUCH_LOAD | PIN_UNKNOWN));
		if (l->failed || !keep_settings(s, l) || !keep_prepared(s, l)) {
			pins = c->pins | l->asked | SQL_TOUCH_SETTINGS;
			if (!session_add_custom(s, &l->custom) || buf_failed(&s->trace.custom))
				pins |= PIN_UNKNOWN;
			s->trace.reset_seen |= l->resets;
			s->inspect.again = server_keeps_session(s);
		} else {
			pins |= l->found;
			restore_reported(s, l);
		}
		/* in session pooling it keeps its server anyway */
		if (!server_keeps_session(s))
			client_pin(c, pins);
	}
	inspect_free(s);
}

static void ready(struct relay *r, bool last)
{
	(void)last;
	relay_run_flush(r);
	done(r->s);
}

const struct dest dest_inspect = {.row = row, .ready = ready, .error = failed};
