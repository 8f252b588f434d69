/*
 * Names in the encodings of clients (spelling.h). Must not know: whose names they are.
 */
#include <string.h>

#include "spelling.h"

#define OF " of "

bool spelling_is_ascii(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((uint8_t)name[i] >= 0x80)
			return false;
	return true;
}

bool spelling_is_utf8(const char *name)
{
	size_t n;

	for (; *name != '\0'; name += n) {
		n = util_utf8_len(name);
		if (n == 0)
			return false;
	}
	return true;
}

bool spelling_may_be(const char *a, const char *b)
{
	if (strcmp(a, b) == 0)
		return true;
	return !spelling_is_ascii(a, strlen(a)) && !spelling_is_ascii(b, strlen(b)) &&
	       !(spelling_is_utf8(a) && spelling_is_utf8(b));
}

size_t spelling_before(const char *text, const char *name)
{
	size_t len = strlen(text), n = strlen(OF) + strlen(name);
	const char *at = text;

	if (len > n && strncmp(text + len - n, OF, strlen(OF)) == 0 &&
		strcmp(text + len - strlen(name), name) == 0)
		return len - n;
	while ((at = strstr(at, OF)) != NULL) {
		if (at > text && spelling_may_be(at + strlen(OF), name))
			return (size_t)(at - text);
		at++;
	}
	return 0;
}
