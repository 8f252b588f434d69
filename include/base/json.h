/*
 * As much of JSON as a program needs that speaks it by the line: the members of an object, strings. A value is a
 * span of the text; whether what is inside of objects and arrays is well formed is left to who reads it.
 */
#ifndef QB_BASE_JSON_H
#define QB_BASE_JSON_H

#include "base/buf.h"

struct json_reader {
	const char *at, *end;
	size_t members; /* read so far */
};

struct json_member {
	struct buf name; /* without escapes */
	const char *value;
	size_t len;
};

enum json_next { JSON_MEMBER, JSON_END, JSON_BAD };

struct json_reader json_begin(const char *text, size_t len);
/* The next member of the object that is all of the text. The member's name is emptied first, and stays the caller's. */
enum json_next json_next(struct json_reader *r, struct json_member *m);
/* The text of a string value, put behind ret. false: it is no string, or one with a NUL or half a surrogate. */
MUST_CHECK bool json_string(const char *value, size_t len, struct buf *ret);
enum { JSON_CHARACTER_MAX = 8 };
/* The first character of the text as in a string: gives the bytes put to dst, and in used those of the text. Without
 * memory, for the log. */
size_t json_character(char dst[JSON_CHARACTER_MAX], const char *text, size_t len, size_t *used);
/* The text as a string; what is no character becomes U+FFFD. */
void json_quote(struct buf *ret, const char *text, size_t len);

#endif
