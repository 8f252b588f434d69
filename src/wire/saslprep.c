/*
 * SASLprep (RFC 4013) of passwords, through libidn where the program was built with it: the same
 * password typed in two ways of Unicode gives the same keys, as in Postgres. Knows nothing of
 * keys. Entry point: saslprep().
 */
#include "scram_int.h"

#include <string.h>

#include "base/mem.h"

#ifdef HAVE_LIBIDN
#include <stringprep.h>

#define GROWS 18 /* the longest compatibility decomposition of a character, in characters */
#endif

static bool is_ascii(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s >= 0x80)
			return false;
	return true;
}

enum saslprep saslprep(const char *password, char **ret)
{
	*ret = NULL;
	if (is_ascii(password))
		return SASLPREP_SAME;
#ifdef HAVE_LIBIDN
	size_t size = strlen(password) * GROWS + 1;
	char *text;
	int rc;

	if (size / GROWS > SASLPREP_MAX)
		return SASLPREP_SAME;
	text = mem_alloc(size);
	if (!text)
		return SASLPREP_NO_MEMORY;
	memcpy(text, password, strlen(password) + 1);
	rc = stringprep(text, size, 0, stringprep_saslprep);
	if (rc == STRINGPREP_OK && text[0] != '\0') {
		*ret = text;
		return SASLPREP_CHANGED;
	}
	/* Not UTF-8, or with characters that are not allowed: the bytes as they are, as Postgres.
	 */
	util_erase(text, size);
	mem_free(text);
	return rc == STRINGPREP_MALLOC_ERROR ? SASLPREP_NO_MEMORY : SASLPREP_SAME;
#else
	return SASLPREP_SAME;
#endif
}
