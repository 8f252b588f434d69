/*
 * Statements of ours on the server of a client: one string of the simple protocol, which ends the
 * server's unnamed statement. Where that is one of the client's that we have no copy of (session
 * pooling), a batch of statements with a name of ours, beside it. Knows nothing of what they are
 * for.
 */
#include <string.h>

#include "pool/reading.h"
#include "pool/rooms.h"
#include "wire/sqllex.h"

#define OWN_NAME "qb_own"

static void build_run(struct buf *b)
{
	size_t start = build_begin(b, 'B');

	build_cstr(b, OWN_NAME);
	build_cstr(b, OWN_NAME);
	for (int i = 0; i < 3; i++)
		build_i16(b, 0);
	build_end(b, start);
	build_execute(b, OWN_NAME, 0);
	build_close(b, 'P', OWN_NAME); /* what begins a block would leave its portal in it */
}

/* One that failed before its end may be there still. */
static bool add_one(
	struct server *s, struct buf *b, const char *sql, size_t len, const struct dest *dest)
{
	build_close(b, 'S', OWN_NAME);
	build_parse(b, OWN_NAME, sql, len, NULL, 0);
	build_run(b);
	return server_expect(s, EXPECT_CLOSE, dest, NULL) &&
	       server_expect(s, EXPECT_PARSE, dest, NULL) &&
	       server_expect(s, EXPECT_BIND, dest, NULL) &&
	       server_expect(s, EXPECT_EXECUTE, dest, NULL) &&
	       server_expect(s, EXPECT_CLOSE, dest, NULL);
}

static bool add_beside(struct server *s, struct buf *b, struct buf *sql, const struct dest *dest)
{
	const char *text = buf_cstr(sql), *one;
	size_t pos = 0, n;

	while (sql_statement_next(text, strlen(text), &pos, true, &one, &n))
		if (!add_one(s, b, one, n, dest))
			return false;
	build_close(b, 'S', OWN_NAME);
	build_simple(b, 'S');
	return server_expect(s, EXPECT_CLOSE, dest, NULL) &&
	       server_expect(s, EXPECT_SYNC, dest, NULL);
}

bool server_put_reading(struct server *s, const struct pstmt *p, bool back)
{
	struct buf b = BUF_INIT, sql = BUF_INIT;
	bool ok;

	CHECK_SERVER(s);
	reading_diff_sql(s, p, back, &sql);
	if (sql.len == 0 && !buf_failed(&sql))
		return true;
	ok = add_one(s, &b, buf_cstr(&sql), sql.len, pool_all.calls->unheard) &&
	     server_expect(s, EXPECT_CLOSE, pool_all.calls->unheard, NULL);
	build_close(&b, 'S', OWN_NAME);
	b.failed |= buf_failed(&sql);
	buf_free(&sql);
	if (ok)
		return server_send(s, &b);
	buf_free(&b);
	return false;
}

bool server_query(struct server *s, struct buf *sql, const struct dest *dest)
{
	struct buf b = BUF_INIT;
	bool ok;

	CHECK_SERVER(s);
	if (server_has_raw_unnamed(s)) {
		ok = add_beside(s, &b, sql, dest);
	} else {
		build_query(&b, buf_cstr(sql));
		server_drop_unnamed(s);
		ok = server_expect(s, EXPECT_QUERY, dest, NULL);
	}
	if (buf_failed(sql))
		b.failed = true;
	buf_free(sql);
	if (ok)
		return server_send(s, &b);
	buf_free(&b);
	return false;
}
