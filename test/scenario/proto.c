/*
 * Messages to words and back: see proto.h. Knows the formats of messages only, written down a
 * second time on purpose, so that a mistake in wire/ does not cancel itself out.
 */
#include "proto.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL_3  0x00030000
#define CODE_CANCEL 80877102
#define CODE_SSL    80877103
#define CODE_GSS    80877104

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(2);
}

/* --- words --- */

void words_free(struct words *w)
{
	struct word *x;

	while ((x = w->first)) {
		w->first = x->next;
		free(x);
	}
}

void words_add(struct words *w, char kind, const void *text, size_t len)
{
	struct word **at = &w->first, *x = malloc(sizeof(*x) + len + 1);

	if (!x)
		die("out of memory");
	while (*at)
		at = &(*at)->next;
	*at = x;
	x->next = NULL;
	x->kind = kind;
	x->len = len;
	if (len)
		memcpy(x->text, text, len);
	x->text[len] = '\0';
}

static void words_addf(struct words *w, const char *fmt, ...)
{
	char text[64];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	words_add(w, 'b', text, strlen(text));
}

void words_copy(struct words *to, const struct words *from)
{
	const struct word *x;

	for (x = from->first; x; x = x->next)
		words_add(to, x->kind, x->text, x->len);
}

bool words_name_is(const struct words *w, const char *name)
{
	return w->first && strcmp(w->first->text, name) == 0;
}

static const struct word *words_at(const struct words *w, int n)
{
	const struct word *x = w->first ? w->first->next : NULL;

	while (x && n-- > 0)
		x = x->next;
	return x;
}

const char *words_arg(const struct words *w, int n)
{
	const struct word *x = words_at(w, n);

	return x ? x->text : "";
}

static void print_word(const struct word *x, char *text, size_t size, size_t *at)
{
	const char *quote = x->kind == 'b' ? "" : "\"";
	size_t i;

	if (*at < size)
		*at += (size_t)snprintf(
			text + *at, size - *at, "%s%s", x->kind == '~' ? "~" : "", quote);
	for (i = 0; i < x->len && *at < size; i++) {
		unsigned char ch = (unsigned char)x->text[i];

		*at += (size_t)snprintf(
			text + *at, size - *at, ch < 32 || ch == 127 ? "\\x%02x" : "%c", ch);
	}
	if (*at < size)
		*at += (size_t)snprintf(text + *at, size - *at, "%s", quote);
}

void words_print(const struct words *w, char *text, size_t size)
{
	const struct word *x;
	size_t at = 0;

	text[0] = '\0';
	for (x = w->first; x; x = x->next) {
		if (x != w->first && at < size)
			at += (size_t)snprintf(text + at, size - at, " ");
		print_word(x, text, size, &at);
	}
}

/* --- the text of a dialogue --- */

static int hex_digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10;
}

/* Behind the backslash. */
static char unescape(const char **text)
{
	char c = *(*text)++;

	switch (c) {
	case 'n':
		return '\n';
	case 't':
		return '\t';
	case '0':
		return '\0';
	case 'x':
		c = (char)(hex_digit((*text)[0]) * 16 + hex_digit((*text)[1]));
		*text += 2;
		return c;
	default:
		return c;
	}
}

static void read_quoted(const char **text, char kind, struct words *w)
{
	struct bytes b = {0};

	for ((*text)++; **text && **text != '"';) {
		char c = *(*text)++;

		if (c == '\\')
			c = unescape(text);
		bytes_add(&b, &c, 1);
	}
	if (!**text)
		die("a quote is not closed");
	(*text)++;
	words_add(w, kind, b.data, b.len);
	bytes_free(&b);
}

static void read_bare(const char **text, struct words *w)
{
	size_t n = strcspn(*text, " \t\n");

	words_add(w, 'b', *text, n);
	*text += n;
}

bool words_next(const char **text, struct words *ret)
{
	*ret = (struct words){0};
	for (;;) {
		*text += strspn(*text, " \t\n");
		if (!**text)
			return ret->first != NULL;
		if (**text == '/' && ((*text)[1] == ' ' || (*text)[1] == '\n')) {
			(*text)++;
			return true;
		}
		if (**text == '~' && (*text)[1] == '"') {
			(*text)++;
			read_quoted(text, '~', ret);
		} else if (**text == '"') {
			read_quoted(text, 'q', ret);
		} else {
			read_bare(text, ret);
		}
	}
}

/* --- matching --- */

static bool any_contains(const struct words *have, const struct word *part)
{
	const struct word *x;

	for (x = have->first ? have->first->next : NULL; x; x = x->next)
		if (memmem(x->text, x->len, part->text, part->len))
			return true;
	return false;
}

static bool word_equal(const struct word *want, const struct word *have)
{
	if (want->kind == 'b' && strcmp(want->text, "*") == 0)
		return true;
	/* A NULL is not the text "NULL". */
	if (strcmp(want->text, "NULL") == 0 && want->kind != have->kind)
		return false;
	return want->len == have->len && memcmp(want->text, have->text, want->len) == 0;
}

bool words_match(const struct words *want, const struct words *have)
{
	const struct word *w = want->first, *h = have->first;

	for (; w; w = w->next) {
		if (w->kind == '~') {
			if (!any_contains(have, w))
				return false;
			continue;
		}
		if (!h || !word_equal(w, h))
			return false;
		h = h->next;
	}
	return true;
}

/* --- encoding --- */

static void put_u8(struct bytes *b, int v)
{
	uint8_t x = (uint8_t)v;

	bytes_add(b, &x, 1);
}

static void put_i16(struct bytes *b, int v)
{
	put_u8(b, v >> 8);
	put_u8(b, v);
}

static void put_i32(struct bytes *b, int64_t v)
{
	put_i16(b, (int)(v >> 16));
	put_i16(b, (int)v);
}

static void put_str(struct bytes *b, const struct word *x)
{
	if (x)
		bytes_add(b, x->text, x->len);
	put_u8(b, 0);
}

static int64_t number(const struct word *x)
{
	return x ? strtoll(x->text, NULL, 0) : 0;
}

static int count_from(const struct word *x)
{
	int n = 0;

	for (; x; x = x->next)
		n++;
	return n;
}

static void put_many(struct bytes *b, size_t n)
{
	char text[4096];

	put_i32(b, (int64_t)n);
	memset(text, 'x', sizeof(text));
	for (; n > sizeof(text); n -= sizeof(text))
		bytes_add(b, text, sizeof(text));
	bytes_add(b, text, n);
}

static void put_values(struct bytes *b, const struct word *x)
{
	put_i16(b, count_from(x));
	for (; x; x = x->next) {
		if (x->kind == 'b' && strcmp(x->text, "NULL") == 0) {
			put_i32(b, -1);
			continue;
		}
		if (x->kind == 'b' && strncmp(x->text, "big:", 4) == 0) {
			put_many(b, strtoul(x->text + 4, NULL, 10));
			continue;
		}
		put_i32(b, (int64_t)x->len);
		bytes_add(b, x->text, x->len);
	}
}

static void put_oids(struct bytes *b, const struct word *x)
{
	put_i16(b, count_from(x));
	for (; x; x = x->next)
		put_i32(b, number(x));
}

static void encode_bind(const struct words *w, struct bytes *b)
{
	const struct word *x = words_at(w, 2);
	bool binary = x && x->kind == 'b' && strcmp(x->text, "binary") == 0;

	put_str(b, words_at(w, 0));
	put_str(b, words_at(w, 1));
	put_i16(b, 0);
	put_values(b, binary ? x->next : x);
	put_i16(b, binary);
	if (binary)
		put_i16(b, 1);
}

static void encode_kind_name(const struct words *w, struct bytes *b)
{
	put_u8(b, words_arg(w, 0)[0]);
	put_str(b, words_at(w, 1));
}

static void encode_parse(const struct words *w, struct bytes *b)
{
	put_str(b, words_at(w, 0));
	put_str(b, words_at(w, 1));
	put_oids(b, words_at(w, 2));
}

static void encode_execute(const struct words *w, struct bytes *b)
{
	put_str(b, words_at(w, 0));
	put_i32(b, number(words_at(w, 1)));
}

static void encode_text(const struct words *w, struct bytes *b)
{
	put_str(b, words_at(w, 0));
}

static void encode_data(const struct words *w, struct bytes *b)
{
	const struct word *x = words_at(w, 0);

	if (x)
		bytes_add(b, x->text, x->len);
}

static void encode_empty(const struct words *w, struct bytes *b)
{
	(void)w, (void)b;
}

static void encode_function(const struct words *w, struct bytes *b)
{
	put_i32(b, number(words_at(w, 0)));
	put_i16(b, 0);
	put_i16(b, 0);
	put_i16(b, 0);
}

static void encode_row(const struct words *w, struct bytes *b)
{
	put_values(b, words_at(w, 0));
}

static void encode_description(const struct words *w, struct bytes *b)
{
	const struct word *x = words_at(w, 0);

	put_i16(b, count_from(x));
	for (; x; x = x->next) {
		put_str(b, x);
		put_i32(b, 0);
		put_i16(b, 0);
		put_i32(b, 25);
		put_i16(b, -1);
		put_i32(b, -1);
		put_i16(b, 0);
	}
}

static void encode_status(const struct words *w, struct bytes *b)
{
	put_u8(b, words_arg(w, 0)[0]);
}

static const char error_fields[] = "CMSDHP";

static void encode_error(const struct words *w, struct bytes *b)
{
	const struct word *x;
	int i;

	for (i = 0; error_fields[i]; i++) {
		x = words_at(w, i);
		if (!x && error_fields[i] != 'S')
			continue;
		put_u8(b, error_fields[i]);
		if (x)
			put_str(b, x);
		else
			bytes_add(b, "ERROR", 6);
	}
	put_u8(b, 0);
}

static void encode_two_texts(const struct words *w, struct bytes *b)
{
	put_str(b, words_at(w, 0));
	put_str(b, words_at(w, 1));
}

static void encode_notification(const struct words *w, struct bytes *b)
{
	put_i32(b, number(words_at(w, 0)));
	put_str(b, words_at(w, 1));
	put_str(b, words_at(w, 2));
}

static void encode_oids(const struct words *w, struct bytes *b)
{
	put_oids(b, words_at(w, 0));
}

static void encode_key(const struct words *w, struct bytes *b)
{
	put_i32(b, number(words_at(w, 0)));
	put_i32(b, number(words_at(w, 1)));
}

static void encode_auth(const struct words *w, struct bytes *b)
{
	put_i32(b, number(words_at(w, 0)));
}

static void encode_copy(const struct words *w, struct bytes *b)
{
	(void)w;
	put_u8(b, 0);
	put_i16(b, 0);
}

/* --- decoding --- */

struct reader {
	const uint8_t *p, *end;
};

static int get_u8(struct reader *r)
{
	return r->p < r->end ? *r->p++ : 0;
}

static int get_i16(struct reader *r)
{
	int hi = get_u8(r);

	return (int16_t)(hi << 8 | get_u8(r));
}

static int32_t get_i32(struct reader *r)
{
	uint32_t hi = (uint16_t)get_i16(r);

	return (int32_t)(hi << 16 | (uint16_t)get_i16(r));
}

static void get_str(struct reader *r, struct words *w)
{
	const uint8_t *zero = memchr(r->p, 0, (size_t)(r->end - r->p));

	if (!zero)
		die("a message has a text without an end");
	words_add(w, 'q', r->p, (size_t)(zero - r->p));
	r->p = zero + 1;
}

static void get_values(struct reader *r, struct words *w)
{
	int n = get_i16(r);

	while (n-- > 0) {
		int32_t len = get_i32(r);

		if (len < 0) {
			words_add(w, 'b', "NULL", 4);
			continue;
		}
		if (len > r->end - r->p)
			die("a message has a value that is longer than itself");
		words_add(w, 'q', r->p, (size_t)len);
		r->p += len;
	}
}

static void decode_bind(struct reader *r, struct words *w)
{
	int n;

	get_str(r, w);
	get_str(r, w);
	for (n = get_i16(r); n > 0; n--)
		(void)get_i16(r);
	get_values(r, w);
}

static void decode_kind_name(struct reader *r, struct words *w)
{
	words_addf(w, "%c", get_u8(r));
	get_str(r, w);
}

static void decode_oids(struct reader *r, struct words *w)
{
	int n;

	for (n = get_i16(r); n > 0; n--)
		words_addf(w, "%d", get_i32(r));
}

static void decode_parse(struct reader *r, struct words *w)
{
	get_str(r, w);
	get_str(r, w);
	decode_oids(r, w);
}

static void decode_execute(struct reader *r, struct words *w)
{
	get_str(r, w);
	words_addf(w, "%d", get_i32(r));
}

static void decode_text(struct reader *r, struct words *w)
{
	get_str(r, w);
}

static void decode_data(struct reader *r, struct words *w)
{
	words_add(w, 'q', r->p, (size_t)(r->end - r->p));
}

static void decode_empty(struct reader *r, struct words *w)
{
	(void)r, (void)w;
}

static void decode_number(struct reader *r, struct words *w)
{
	words_addf(w, "%d", get_i32(r));
}

static void decode_description(struct reader *r, struct words *w)
{
	int n;

	for (n = get_i16(r); n > 0; n--) {
		get_str(r, w);
		r->p += 18;
	}
	if (r->p != r->end)
		die("RowDescription has a wrong length");
}

static void decode_status(struct reader *r, struct words *w)
{
	words_addf(w, "%c", get_u8(r));
}

static void decode_error(struct reader *r, struct words *w)
{
	struct words field[sizeof(error_fields)] = {{0}};
	const char *at;
	int i, code;

	while ((code = get_u8(r)) != 0) {
		at = strchr(error_fields, code);
		i = at ? (int)(at - error_fields) : (int)sizeof(error_fields) - 1;
		words_free(&field[i]);
		get_str(r, &field[i]);
	}
	for (i = 0; i < (int)sizeof(error_fields); i++) {
		if (i < (int)sizeof(error_fields) - 1)
			words_add(w, 'q', field[i].first ? field[i].first->text : "",
				field[i].first ? field[i].first->len : 0);
		words_free(&field[i]);
	}
}

static void decode_two_texts(struct reader *r, struct words *w)
{
	get_str(r, w);
	get_str(r, w);
}

static void decode_notification(struct reader *r, struct words *w)
{
	decode_number(r, w);
	decode_two_texts(r, w);
}

static void decode_key(struct reader *r, struct words *w)
{
	words_addf(w, "%d", get_i32(r));
	words_addf(w, "%d", get_i32(r));
}

/* --- the tables --- */

struct format {
	const char *name;
	char type;
	void (*encode)(const struct words *w, struct bytes *b);
	void (*decode)(struct reader *r, struct words *w);
};

static const struct format client_formats[] = {
	{"Query", 'Q', encode_text, decode_text},
	{"Parse", 'P', encode_parse, decode_parse},
	{"Bind", 'B', encode_bind, decode_bind},
	{"Describe", 'D', encode_kind_name, decode_kind_name},
	{"Execute", 'E', encode_execute, decode_execute},
	{"Close", 'C', encode_kind_name, decode_kind_name},
	{"Sync", 'S', encode_empty, decode_empty},
	{"Flush", 'H', encode_empty, decode_empty},
	{"Terminate", 'X', encode_empty, decode_empty},
	{"CopyData", 'd', encode_data, decode_data},
	{"CopyDone", 'c', encode_empty, decode_empty},
	{"CopyFail", 'f', encode_text, decode_text},
	{"FunctionCall", 'F', encode_function, decode_number},
	{"Password", 'p', encode_text, decode_data},
};

static const struct format server_formats[] = {
	{"Authentication", 'R', encode_auth, decode_number},
	{"BackendKeyData", 'K', encode_key, decode_key},
	{"ParameterStatus", 'S', encode_two_texts, decode_two_texts},
	{"ReadyForQuery", 'Z', encode_status, decode_status},
	{"RowDescription", 'T', encode_description, decode_description},
	{"DataRow", 'D', encode_row, get_values},
	{"CommandComplete", 'C', encode_text, decode_text},
	{"EmptyQueryResponse", 'I', encode_empty, decode_empty},
	{"ParseComplete", '1', encode_empty, decode_empty},
	{"BindComplete", '2', encode_empty, decode_empty},
	{"CloseComplete", '3', encode_empty, decode_empty},
	{"NoData", 'n', encode_empty, decode_empty},
	{"PortalSuspended", 's', encode_empty, decode_empty},
	{"ParameterDescription", 't', encode_oids, decode_oids},
	{"ErrorResponse", 'E', encode_error, decode_error},
	{"NoticeResponse", 'N', encode_error, decode_error},
	{"NotificationResponse", 'A', encode_notification, decode_notification},
	{"CopyInResponse", 'G', encode_copy, decode_empty},
	{"CopyOutResponse", 'H', encode_copy, decode_empty},
	{"CopyData", 'd', encode_data, decode_data},
	{"CopyDone", 'c', encode_empty, decode_empty},
	{"FunctionCallResponse", 'V', encode_row, decode_data},
	{"NegotiateProtocolVersion", 'v', encode_oids, decode_number},
};

static const struct format *format_find(bool client, const char *name, int type)
{
	const struct format *f = client ? client_formats : server_formats;
	size_t n = client ? ARRAY_LEN(client_formats) : ARRAY_LEN(server_formats);

	for (; n > 0; n--, f++)
		if (name ? strcmp(f->name, name) == 0 : f->type == type)
			return f;
	return NULL;
}

/* --- first packets --- */

static void put_packet(struct bytes *out, const struct bytes *body)
{
	put_i32(out, (int64_t)body->len + 4);
	bytes_add(out, body->data, body->len);
}

static bool encode_start(const struct words *w, struct bytes *out)
{
	struct bytes body = {0};
	const struct word *x;

	if (words_name_is(w, "Startup")) {
		put_i32(&body, PROTOCOL_3);
		for (x = words_at(w, 0); x; x = x->next)
			put_str(&body, x);
		put_u8(&body, 0);
	} else if (words_name_is(w, "SSLRequest")) {
		put_i32(&body, CODE_SSL);
	} else if (words_name_is(w, "GSSENCRequest")) {
		put_i32(&body, CODE_GSS);
	} else if (words_name_is(w, "CancelRequest")) {
		put_i32(&body, CODE_CANCEL);
		encode_key(w, &body);
	} else {
		return false;
	}
	put_packet(out, &body);
	bytes_free(&body);
	return true;
}

static bool encode_raw(const struct words *w, struct bytes *out)
{
	const char *hex = words_arg(w, 0);

	for (; hex[0] && hex[1]; hex += 2)
		put_u8(out, hex_digit(hex[0]) * 16 + hex_digit(hex[1]));
	return hex[0] == '\0';
}

bool proto_encode(const struct words *w, bool client, struct bytes *out)
{
	const struct format *f = format_find(client, w->first->text, 0);
	struct bytes body = {0};

	if (words_name_is(w, "Raw"))
		return encode_raw(w, out);
	if (!f)
		return client && encode_start(w, out);
	f->encode(w, &body);
	put_u8(out, f->type);
	put_packet(out, &body);
	bytes_free(&body);
	return true;
}

static void decode_start(struct reader *r, struct words *w)
{
	int32_t code = get_i32(r);

	if (code == CODE_CANCEL) {
		words_add(w, 'b', "CancelRequest", 13);
		decode_key(r, w);
	} else if (code == CODE_SSL || code == CODE_GSS) {
		words_addf(w, "%s", code == CODE_SSL ? "SSLRequest" : "GSSENCRequest");
	} else {
		words_add(w, 'b', "Startup", 7);
		while (r->end - r->p > 1)
			get_str(r, w);
	}
}

bool proto_decode(struct bytes *in, bool client, bool start, struct words *ret)
{
	size_t head = start ? 0 : 1;
	const struct format *f;
	struct reader r;
	uint32_t len;

	*ret = (struct words){0};
	if (in->len < head + 4)
		return false;
	r = (struct reader){in->data + head, in->data + head + 4};
	len = (uint32_t)get_i32(&r);
	if (len < 4 || len > 1u << 30)
		die("a message of type %c has length %u", start ? '-' : in->data[0], len);
	if (in->len < head + len)
		return false;
	r.end = in->data + head + len;
	if (start) {
		decode_start(&r, ret);
	} else {
		f = format_find(client, NULL, in->data[0]);
		if (!f)
			die("a message of unknown type %02x", in->data[0]);
		words_add(ret, 'b', f->name, strlen(f->name));
		f->decode(&r, ret);
	}
	bytes_drop(in, head + len);
	return true;
}
