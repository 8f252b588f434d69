/*
 * The memory of tokens that were finished by DONE: one that is repeated is not an error.
 */
#include <string.h>

#include "lease.h"
#include "queue_int.h"
#include "token.h"

#define DONE_MAX 16384

struct done {
	UT_hash_handle hh;
	char token[TOKEN_MAX];
};

static struct {
	struct done *table;
	struct done *ring[DONE_MAX];
	unsigned next;
} dones;

/* hash: of the token, which is wanted again for adding it. */
static struct done *find(const char *token, unsigned *hash)
{
	size_t len = strlen(token);
	struct done *d;

	HASH_VALUE(token, len, *hash);
	HASH_FIND_BYHASHVALUE(hh, dones.table, token, len, *hash, d);
	return d;
}

bool done_known(const char *token)
{
	unsigned hash;

	return find(token, &hash) != NULL;
}

static void done_free(struct done **p)
{
	if (*p != NULL) {
		HASH_DEL(dones.table, *p);
		mem_free(*p);
	}
	*p = NULL;
}

/* The oldest is forgotten, and its memory is what the next one has. */
static struct done *done_new(void)
{
	struct done *d = dones.ring[dones.next];

	if (d == NULL)
		return mem_alloc(sizeof(*d));
	HASH_DEL(dones.table, d);
	dones.ring[dones.next] = NULL;
	return d;
}

/* Without memory a repeated DONE is QB001: safe. */
void done_remember(const char *token)
{
	struct done *d;
	unsigned hash;

	if (find(token, &hash) != NULL || (d = done_new()) == NULL)
		return;
	util_strlcpy(d->token, token, sizeof(d->token));
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, dones.table, d->token, strlen(d->token), hash, d);
	if (d->hh.tbl == NULL) {
		mem_free(d);
		return;
	}
	dones.ring[dones.next] = d;
	dones.next = (dones.next + 1) % DONE_MAX;
}

void done_forget_all(void)
{
	for (unsigned i = 0; i < DONE_MAX; i++)
		done_free(&dones.ring[i]);
	dones.next = 0;
}
