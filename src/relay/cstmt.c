/*
 * What a client calls its prepared statements by, and whether those names count: a Parse or a Close
 * takes effect when its answer comes, and an error in its batch makes it void. Knows nothing of
 * messages; Parse, Bind and the others are extq.c and extq_bind.c.
 */
#include <string.h>

#include "extq_int.h"

bool cstmt_tracks_names(const struct client *c)
{
	CHECK_CLIENT(c);
	return c->pool != NULL && client_pool_mode(c) != POOL_MODE_SESSION &&
	       conf_current()->p.max_prepared_statements > 0;
}

struct cstmt *extq_find(struct client *c, const char *name)
{
	struct cstmt *st = NULL;

	if (name[0] == '\0')
		return c->unnamed;
	if (c->stmts == NULL)
		return NULL;
	HASH_FIND_STR(c->stmts, name, st);
	return st;
}

static void cstmt_drop(struct cstmt *st)
{
	while (st->name[0] == '\0' && st->next != NULL) {
		struct cstmt *old = st->next;

		st->next = old->next;
		old->next = NULL;
		cstmt_drop(old);
	}
	INVARIANT(st->refs > 0, "a client's statement is dropped by more than hold it");
	if (--st->refs > 0)
		return;
	pstmt_drop(&st->p);
	lstmt_drop(&st->l);
	mem_free(st);
}

static void unlist(struct client *c, struct cstmt *st)
{
	if (st->prev == NULL)
		return;
	DL_DELETE(c->unconfirmed, st);
	st->prev = st->next = NULL;
}

void cstmt_confirm(struct client *c, struct cstmt *st)
{
	CHECK_CLIENT(c);
	st->confirmed = true;
	unlist(c, st);
}

void extq_forget(struct client *c, struct cstmt **p)
{
	struct cstmt *st = *p;

	if (st == NULL)
		return;
	*p = NULL;
	if (st == c->unnamed) {
		c->unnamed = NULL;
		st->closed = true;
	} else if (st->name[0] != '\0') {
		HASH_DEL(c->stmts, st);
		unlist(c, st);
		st->closed = true;
	}
	cstmt_drop(st);
}

/* It depends on the end of an earlier batch. */
static bool undecided(const struct client *c, const struct cstmt *st)
{
	return !st->confirmed && c->link != NULL && st->batch != c->link->batch.sent;
}

/* A name whose meaning depends on answers that have not come. false: the client waits for them. */
bool cstmt_is_decided(struct client *c, const char *name)
{
	struct cstmt *st = extq_find(c, name);

	CHECK_CLIENT(c);
	if (c->link == NULL)
		return true;
	if (st != NULL ? undecided(c, st) || (c->link->batch.discarding && name[0] != '\0')
		       : c->closing > 0)
		return client_barrier(c);
	return true;
}

bool cstmt_is_readable(struct client *c, const struct cstmt *st)
{
	struct pstmt *p = st->p;

	CHECK_CLIENT(c);
	if (p->reading == NULL || !reading_in_doubt(c) || !client_is_owed(c))
		return true;
	return (st->name[0] == '\0' ? server_has_unnamed(c->link, p)
				    : server_has_prepared(c->link, p)) ||
	       client_barrier(c);
}

/* Takes the reference of p or l. */
struct cstmt *cstmt_add(struct client *c, const char *name, struct pstmt *p, struct lstmt *l)
{
	struct cstmt *st = mem_zalloc(sizeof(*st) + strlen(name) + 1);

	CHECK_CLIENT(c);
	if (st == NULL) {
		pstmt_drop(&p);
		lstmt_drop(&l);
		client_out_of_memory(c);
		return NULL;
	}
	st->p = p;
	st->l = l;
	st->refs = 1;
	st->batch = c->link != NULL ? c->link->batch.sent : 0;
	memcpy(st->name, name, strlen(name) + 1);
	if (name[0] == '\0') {
		st->confirmed = l != NULL && !client_is_owed(c);
		if (st->confirmed)
			extq_forget(c, &c->unnamed);
		else
			st->next = c->unnamed;
		c->unnamed = st;
		return st;
	}
	HASH_ADD_STR(c->stmts, name, st);
	if (st->hh.tbl == NULL) {
		cstmt_drop(st);
		client_out_of_memory(c);
		return NULL;
	}
	DL_APPEND(c->unconfirmed, st);
	return st;
}

/* The first in time of those whose answers have not come. */
static void confirm_unnamed(struct client *c, const struct pstmt *p)
{
	struct cstmt *st, *found = NULL;

	for (st = c->unnamed; st != NULL && !st->confirmed; st = st->next)
		if (st->p == p)
			found = st;
	if (found == NULL)
		return;
	found->confirmed = true;
	if (found->next != NULL) {
		cstmt_drop(found->next);
		found->next = NULL;
	}
}

void extq_confirm(struct client *c, struct pstmt *p, bool unnamed)
{
	struct cstmt *st, *tmp;

	if (unnamed) {
		confirm_unnamed(c, p);
		return;
	}
	DL_FOREACH_SAFE (c->unconfirmed, st, tmp)
		if (st->p == p) {
			cstmt_confirm(c, st);
			return;
		}
}

/* A batch has failed: what it parsed does not exist, unless its ParseComplete was seen. */

/* uint16 that counts on and on */
static bool is_later(uint16_t a, uint16_t b)
{
	return (int16_t)(uint16_t)(a - b) > 0;
}

static void forget_unnamed(struct client *c, uint16_t batch, bool at_parse)
{
	struct cstmt **at = &c->unnamed, *st;

	while (*at != NULL && !(*at)->confirmed && is_later((*at)->batch, batch))
		at = &(*at)->next;
	while ((st = *at) != NULL && (at_parse || !st->confirmed)) {
		*at = st->next;
		st->next = NULL;
		st->closed = true;
		cstmt_drop(st);
	}
}

void extq_forget_unconfirmed(struct client *c, uint16_t batch, bool at_parse)
{
	struct cstmt *st, *tmp;

	DL_FOREACH_SAFE (c->unconfirmed, st, tmp) {
		/* what was parsed behind the Sync to come is another batch */
		if (is_later(st->batch, batch))
			continue;
		if (st->closed)
			unlist(c, st); /* its entry of `expect` has it */
		else
			extq_forget(c, &st);
	}
	forget_unnamed(c, batch, at_parse);
}

void extq_forget_all(struct client *c)
{
	struct cstmt *st, *tmp;

	CHECK_CLIENT(c);
	HASH_ITER (hh, c->stmts, st, tmp)
		if (st->confirmed)
			extq_forget(c, &st);
}

void extq_free(struct client *c)
{
	struct cstmt *st, *tmp;

	CHECK_CLIENT(c);
	HASH_ITER (hh, c->stmts, st, tmp)
		extq_forget(c, &st);
	extq_forget(c, &c->unnamed);
}

/* Comes back when the Close was skipped, unless its own Parse was. */
static void unclose(struct client *c, struct cstmt *st)
{
	struct cstmt *other = NULL;

	HASH_FIND_STR(c->stmts, st->name, other);
	if (!st->confirmed || other != NULL)
		return;
	memset(&st->hh, 0, sizeof(st->hh));
	HASH_ADD_STR(c->stmts, name, st);
	if (st->hh.tbl == NULL)
		return;
	st->closed = false;
	st->refs++;
	if (st->p != NULL)
		c->unsure += st->p->unsure;
}

/* ParseComplete or CloseComplete has gone to the client, or was skipped. */
void extq_local_done(struct server *s, struct expect *e, bool ok)
{
	struct client *c = s->link;
	struct cstmt *st = e->arg;

	e->arg = NULL;
	if (c != NULL && e->kind == EXPECT_CLOSED) {
		c->closing--;
		unlist(c, st);
		if (!ok)
			unclose(c, st);
	} else if (c != NULL && ok && !st->confirmed) {
		if (st->name[0] != '\0')
			cstmt_confirm(c, st);
		else if (!st->closed)
			confirm_unnamed(c, NULL);
	}
	cstmt_drop(st);
}
