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

static struct done *done_table;
static struct done *done_ring[DONE_MAX];
static unsigned done_next;

bool done_known(const char *token)
{
	struct done *d;

	HASH_FIND_STR(done_table, token, d);
	return d != NULL;
}

static void done_free(struct done **p)
{
	if (*p != NULL) {
		HASH_DEL(done_table, *p);
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
	HASH_ADD_STR(done_table, token, d);
	if (d->hh.tbl == NULL) {
		mem_free(d);
		return;
	}
	done_free(&done_ring[done_next]);
	done_ring[done_next] = d;
	done_next = (done_next + 1) % DONE_MAX;
}

void done_forget_all(void)
{
	for (unsigned i = 0; i < DONE_MAX; i++)
		done_free(&done_ring[i]);
	done_next = 0;
}
