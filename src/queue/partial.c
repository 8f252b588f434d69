/*
 * DONE ... PARTIAL: those jobs are done whose leases are held, and each has a row that says so. The
 * database knows the leases; this proxy knows which DONE has succeeded before, so that a repeated
 * one does no harm, and which held job a renewal has found cancelled. Entry points: partial_row,
 * partial_ended.
 */
#include <string.h>

#include "wire/row.h"
#include "jobs.h"
#include "lease.h"
#include "queue_int.h"
#include "token.h"

/* "ok" and "sqlstate" of a row: in text, or a bool in binary. */
struct row {
	struct wire_col job;
	uint8_t ok;
	bool is_ok;
	char sqlstate[6];
};

static bool row_read(struct row *ret, const uint8_t *body, size_t len)
{
	struct wire_col cols[3];

	if (!wire_row_read(body, len, cols, 3) || cols[0].len < 0 || cols[1].len != 1)
		return false;
	ret->job = cols[0];
	ret->ok = *cols[1].data;
	ret->is_ok = ret->ok == 't' || ret->ok == 1;
	if (!wire_col_copy(&cols[2], ret->sqlstate, sizeof(ret->sqlstate)))
		ret->sqlstate[0] = '\0';
	return true;
}

bool partial_is_ok(const uint8_t *body, size_t len)
{
	struct row r;

	return row_read(&r, body, len) && r.is_ok;
}

static void correct(struct row *r, struct taker *t, const char *token)
{
	const struct lease *l = lease_find(t, token);

	if (r->is_ok || strcmp(r->sqlstate, "QB001") != 0)
		return;
	if (done_known(token)) {
		r->is_ok = true;
		r->ok = r->ok == 'f' ? 't' : 1;
	} else if (l != NULL && l->cancelled) {
		util_strlcpy(r->sqlstate, "QB002", sizeof(r->sqlstate));
	}
}

void partial_row(
	struct taker *t, struct jobs *j, int i, const uint8_t *body, size_t len, struct buf *rows)
{
	struct row r;
	size_t at;

	CHECK_TAKER(t);
	if (i >= j->n || !row_read(&r, body, len)) {
		rows->failed = true;
		return;
	}
	correct(&r, t, j->tokens[i]);
	at = build_row_begin(rows, 3);
	build_row_value(rows, r.job.data, r.job.len);
	build_row_value(rows, &r.ok, 1);
	if (r.is_ok)
		build_row_value(rows, NULL, -1);
	else
		build_row_value(rows, (const uint8_t *)r.sqlstate, 5);
	build_row_end(rows, at);
	if (!r.is_ok)
		j->tokens[i][0] = '\0';
}

void partial_ended(struct jobs *j)
{
	int n = 0;

	for (int i = 0; i < j->n; i++)
		if (j->tokens[i][0] != '\0') {
			if (n != i)
				memcpy(j->tokens[n], j->tokens[i], TOKEN_MAX);
			n++;
		}
	j->n = n;
}
