/* JSON by the line: any bytes are members of an object or none, spans of the text; and what is quoted is read as what it
 * was. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A value is not empty and is in the text, behind the one before; a string that is read is quoted as the same one. */
static void check_member(const struct json_member *m, const char *from, const char *end)
{
	struct buf text = BUF_INIT, quoted = BUF_INIT, again = BUF_INIT;

	if (m->len == 0 || m->value < from || m->value + m->len > end)
		__builtin_trap();
	if (json_string(m->value, m->len, &text)) {
		json_quote(&quoted, buf_cstr(&text), buf_used(&text));
		if (!json_string(buf_cstr(&quoted), buf_used(&quoted), &again))
			__builtin_trap();
		if (buf_used(&again) < buf_used(&text))
			__builtin_trap();
	}
	buf_free(&text);
	buf_free(&quoted);
	buf_free(&again);
}

/* All of it is an object of one member, whatever the bytes are. */
static void check_quoted(const char *text, size_t size)
{
	struct buf object = BUF_INIT, once = BUF_INIT, twice = BUF_INIT, quoted = BUF_INIT;
	struct json_member m = {.name = BUF_INIT};
	struct json_reader r;

	buf_puts(&object, "{\"a\":");
	json_quote(&object, text, size);
	buf_putc(&object, '}');
	r = json_begin(buf_cstr(&object), buf_used(&object));
	if (json_next(&r, &m) != JSON_MEMBER || strcmp(buf_cstr(&m.name), "a") != 0)
		__builtin_trap();
	if (!json_string(m.value, m.len, &once))
		__builtin_trap();
	if (json_next(&r, &m) != JSON_END)
		__builtin_trap();
	/* What has been quoted once is text: it is the same the second time. */
	json_quote(&quoted, buf_cstr(&once), buf_used(&once));
	if (!json_string(buf_cstr(&quoted), buf_used(&quoted), &twice) ||
		buf_used(&twice) != buf_used(&once) ||
		memcmp(buf_cstr(&twice), buf_cstr(&once), buf_used(&once)) != 0)
		__builtin_trap();
	buf_free(&object);
	buf_free(&once);
	buf_free(&twice);
	buf_free(&quoted);
	buf_free(&m.name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1); /* ends where its memory does */
	struct json_member m = {.name = BUF_INIT};
	struct json_reader r;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text = realloc(text, size > 0 ? size : 1);
	r = json_begin(text, size);
	for (const char *from = text; json_next(&r, &m) == JSON_MEMBER; from = m.value + m.len)
		check_member(&m, from, text + size);
	buf_free(&m.name);
	check_quoted(text, size);
	free(text);
	return 0;
}
