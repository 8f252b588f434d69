/*
 * DONE ... PARTIAL: those jobs are done whose leases are held, and each has a row that says so. The
 * database knows the leases; this proxy knows which DONE has succeeded before, so that a repeated
 * one does no harm, and which held job a renewal has found cancelled. Entry points: partial_row,
 * partial_ended.
 */
#include <string.h>

#include "wire/msg.h"
#include "queue_int.h"

/* "ok" and "sqlstate" of a row: in text, or a bool in binary. */
struct row {
	int32_t job_len;
	const uint8_t *job;
	uint8_t ok;
	bool is_ok;
	char sqlstate[6];
};

static bool row_read(struct row *ret, const uint8_t *body, size_t len)
{
	struct wire_reader rd;
	const uint8_t *p;
	int32_t n;

	wire_reader_init(&rd, body, len);
	if (wire_get_i16(&rd) != 3)
		return false;
	ret->job_len = wire_get_i32(&rd);
	ret->job = ret->job_len >= 0 ? wire_get_bytes(&rd, (size_t)ret->job_len) : NULL;
	if (wire_get_i32(&rd) != 1 || (p = wire_get_bytes(&rd, 1)) == NULL || ret->job == NULL)
		return false;
	ret->ok = *p;
	ret->is_ok = *p == 't' || *p == 1;
	n = wire_get_i32(&rd);
	p = n == 5 ? wire_get_bytes(&rd, 5) : NULL;
	memset(ret->sqlstate, 0, sizeof(ret->sqlstate));
	if (p != NULL)
		memcpy(ret->sqlstate, p, 5);
	return wire_done(&rd);
}

bool partial_is_ok(const uint8_t *body, size_t len)
{
	struct row r;

	return row_read(&r, body, len) && r.is_ok;
}

static void correct(struct row *r, struct qclient *qc, const char *token)
{
	const struct lease *l = lease_find(qc, token);

	if (r->is_ok || strcmp(r->sqlstate, "QB001") != 0)
		return;
	if (done_known(token)) {
		r->is_ok = true;
		r->ok = r->ok == 'f' ? 't' : 1;
	} else if (l != NULL && l->cancelled) {
		util_strlcpy(r->sqlstate, "QB002", sizeof(r->sqlstate));
	}
}

void partial_row(struct qclient *qc, struct jobs *j, int i, const uint8_t *body, size_t len,
	struct buf *rows)
{
	struct row r;
	size_t at;

	CHECK_QCLIENT(qc);
	if (i >= j->n || !row_read(&r, body, len)) {
		rows->failed = true;
		return;
	}
	correct(&r, qc, j->tokens[i]);
	at = build_row_begin(rows, 3);
	build_row_value(rows, r.job, r.job_len);
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
