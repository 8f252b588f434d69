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

bool done_known(const char *token)
{
	struct done *d;

	HASH_FIND_STR(dones.table, token, d);
	return d != NULL;
}

static void done_free(struct done **p)
{
	if (*p != NULL) {
		HASH_DEL(dones.table, *p);
		mem_free(*p);
	}
	*p = NULL;
}

/* The oldest is forgotten. Without memory a repeated DONE is QB001: safe. */
void done_remember(const char *token)
{
	struct done *d;

	if (done_known(token) || (d = mem_zalloc(sizeof(*d))) == NULL)
		return;
	util_strlcpy(d->token, token, sizeof(d->token));
	HASH_ADD_STR(dones.table, token, d);
	if (d->hh.tbl == NULL) {
		mem_free(d);
		return;
	}
	done_free(&dones.ring[dones.next]);
	dones.ring[dones.next] = d;
	dones.next = (dones.next + 1) % DONE_MAX;
}

void done_forget_all(void)
{
	for (unsigned i = 0; i < DONE_MAX; i++)
		done_free(&dones.ring[i]);
	dones.next = 0;
}
