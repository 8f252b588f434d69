/*
 * Interned strings with reference counts: the settings and names that thousands of clients share.
 * Equal texts are one object, so comparing is comparing pointers.
 */
#include <string.h>

#include "pool/rooms.h"

struct istr {
	UT_hash_handle hh;
	uint32_t refs;
	uint32_t len;
	char text[];
};

static struct istr *table;

struct istr *istr_get(const char *s, size_t len)
{
	struct istr *i = NULL;

	HASH_FIND(hh, table, s, len, i);
	if (i != NULL) {
		i->refs++;
		return i;
	}
	i = mem_alloc(sizeof(*i) + len + 1);
	if (i == NULL)
		return NULL;
	memset(i, 0, sizeof(*i));
	i->refs = 1;
	i->len = (uint32_t)len;
	memcpy(i->text, s, len);
	i->text[len] = '\0';
	HASH_ADD_KEYPTR(hh, table, i->text, len, i);
	if (i->hh.tbl == NULL) {
		mem_free(i);
		return NULL;
	}
	return i;
}

struct istr *istr_ref(struct istr *i)
{
	if (i != NULL)
		i->refs++;
	return i;
}

void istr_drop(struct istr **p)
{
	struct istr *i = *p;

	*p = NULL;
	INVARIANT(i == NULL || i->refs > 0, "a setting is dropped by more than hold it");
	if (i == NULL || --i->refs > 0)
		return;
	HASH_DEL(table, i);
	mem_free(i);
}

const char *istr_text(const struct istr *i)
{
	return i != NULL ? i->text : "";
}

size_t istr_len(const struct istr *i)
{
	return i != NULL ? i->len : 0;
}
