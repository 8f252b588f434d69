/*
 * Regular expressions of Postgres on top of PCRE2. The text is copied piece by piece: what both
 * read alike as it is, escapes that differ in PCRE2's words, everything else of PCRE2 (verbs,
 * recursion, possessive quantifiers, and whatever it learns in the future) is refused. As in
 * Postgres before a database is chosen, names are bytes and letters are those of ASCII. Must not
 * know rules and maps. Entry points: pattern.h.
 */
#include "pattern.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buf.h"
#include "base/mem.h"

enum {
	TEXT_MAX = 16 * 1024,
	REPEAT_MAX = 255, /* DUPMAX of Postgres */
	NESTING_MAX = 100,
	NAME_LEN_MAX = 255,
	STEPS_MAX = 50 * 1000, /* of one match: 30 ms at the worst */
	FRAME_PLAIN = 256,     /* bytes: a step that remembers more counts as several */
	HEAP_MAX = 4 * 1024,   /* of one match, in KiB */
};

struct pattern {
	pcre2_general_context *memory;
	pcre2_match_context *limits;
	pcre2_code *code;
	uint32_t n_groups;
	uint32_t steps;
	bool anchored; /* only the first byte of a name can begin a match */
};

/* --- the words of Postgres --- */

struct translation {
	const char *at;
	struct buf out;
	uint32_t options;
	bool repeated;             /* what is before at is a quantifier */
	bool fixed;                /* ... is a condition, which has no length and is not repeated */
	bool is_look[NESTING_MAX]; /* of the parentheses that are open: (?= and its like */
	unsigned depth, n_looks;
	const char *why;
};

static bool refuse(struct translation *t, const char *why)
{
	t->why = why;
	return false;
}

static void copy(struct translation *t, size_t len)
{
	buf_put(&t->out, t->at, len);
	t->at += len;
}

/* Escapes of letters: what PCRE2 calls them. */
static const struct {
	char letter;
	const char *outside, *in_bracket; /* NULL: there is none */
} escapes[] = {
	{'a', "\\a", "\\a"},
	{'b', "\\x08", "\\x08"}, /* backspace */
	{'d', "\\d", "\\d"},
	{'e', "\\e", "\\e"},
	{'f', "\\f", "\\f"},
	{'m', "\\b(?=\\w)", NULL},
	{'n', "\\n", "\\n"},
	{'r', "\\r", "\\r"},
	{'s', "\\s", "\\s"},
	{'t', "\\t", "\\t"},
	{'v', "\\x0b", "\\x0b"},
	{'w', "\\w", "\\w"},
	{'y', "\\b", NULL},
	{'A', "\\A", NULL},
	{'B', "\\\\", "\\\\"}, /* a backslash */
	{'D', "\\D", "\\D"},
	{'M', "\\b(?<=\\w)", NULL},
	{'S', "\\S", "\\S"},
	{'W', "\\W", "\\W"},
	{'Y', "\\B", NULL},
	{'Z', "\\z", NULL},
};

/* All digits that follow belong to it; PCRE2 would take two. */
static bool copy_hex(struct translation *t)
{
	char *end;
	unsigned long byte = strtoul(t->at + 2, &end, 16);

	if (!isxdigit((unsigned char)t->at[2]) || byte > 0xff ||
		strspn(t->at + 2, "0123456789abcdefABCDEF") != (size_t)(end - t->at - 2))
		return refuse(t, "invalid \\x");
	buf_printf(&t->out, "\\x%02lx", byte);
	t->at = end;
	return true;
}

/* A back-reference, a byte, or the character itself. */
static bool copy_plain_escape(struct translation *t)
{
	char c = t->at[1];

	if (t->n_looks > 0 && c >= '1' && c <= '9')
		return refuse(t, "a back-reference in a condition");
	copy(t, c ? 2 : 1);
	return true;
}

static bool copy_escape(struct translation *t, bool in_bracket)
{
	char c = t->at[1];

	if (c == 'x')
		return copy_hex(t);
	if (!isalpha((unsigned char)c))
		return copy_plain_escape(t);
	for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
		const char *text = in_bracket ? escapes[i].in_bracket : escapes[i].outside;

		if (escapes[i].letter != c || !text)
			continue;
		buf_puts(&t->out, text);
		t->fixed = strchr("myAMYZ", c) != NULL;
		t->at += 2;
		return true;
	}
	return refuse(t, in_bracket ? "unknown escape in a bracket" : "unknown escape");
}

/* [:alpha:] and its like, inside of a bracket. PCRE2 knows more of them, and finds the end of one
 * that is malformed elsewhere. */
static bool copy_class(struct translation *t)
{
	size_t len = strspn(t->at + 2, "abcdefghijklmnopqrstuvwxyz<>");

	if (t->at[1] != ':')
		return refuse(t, "collating elements are not supported");
	if (len == 0 || strncmp(t->at + 2 + len, ":]", 2) != 0)
		return refuse(t, "invalid character class");
	copy(t, len + 4);
	return true;
}

static bool copy_bracket(struct translation *t)
{
	t->fixed = strncmp(t->at, "[[:<:]]", 7) == 0 || strncmp(t->at, "[[:>:]]", 7) == 0;
	copy(t, t->at[1] == '^' ? 2 : 1);
	if (*t->at == ']')
		copy(t, 1);
	while (*t->at && *t->at != ']') {
		if (*t->at == '\\') {
			if (!copy_escape(t, true))
				return false;
		} else if (*t->at == '[' && t->at[1] && strchr(":.=", t->at[1])) {
			if (!copy_class(t))
				return false;
		} else {
			copy(t, 1);
		}
	}
	if (*t->at == '\0')
		return refuse(t, "a bracket is not closed");
	copy(t, 1);
	return true;
}

/* Parentheses inside of a condition have no number. */
static bool copy_group(struct translation *t)
{
	static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!"};

	if (t->at[1] == '*')
		return refuse(t, "a quantifier has nothing to repeat");
	if (t->depth == NESTING_MAX)
		return refuse(t, "parentheses are too deeply nested");
	t->is_look[t->depth++] = false;
	if (t->at[1] != '?') {
		buf_puts(&t->out, t->n_looks > 0 ? "(?:" : "(");
		t->at++;
		return true;
	}
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (!strncmp(t->at, kinds[i], strlen(kinds[i]))) {
			t->is_look[t->depth - 1] = i > 0;
			t->n_looks += i > 0;
			copy(t, strlen(kinds[i]));
			return true;
		}
	return refuse(t, "unknown kind of group");
}

static bool copy_group_end(struct translation *t)
{
	if (t->depth == 0)
		return refuse(t, "unmatched closing parenthesis");
	t->fixed = t->is_look[--t->depth];
	t->n_looks -= t->fixed;
	copy(t, 1);
	return true;
}

/* (?i) at the very beginning. s and t are what holds anyway. */
static bool read_options(struct translation *t)
{
	const char *p = t->at;

	if (strncmp(p, "(?", 2) || !isalpha((unsigned char)p[2]))
		return true;
	for (p += 2; *p && *p != ')'; p++) {
		if (*p == 'i')
			t->options |= PCRE2_CASELESS;
		else if (*p == 'c')
			t->options &= ~PCRE2_CASELESS;
		else if (*p != 's' && *p != 't')
			return refuse(t, "unknown option");
	}
	if (*p == '\0')
		return refuse(t, "a parenthesis is not closed");
	t->at = p + 1;
	return true;
}

static bool copy_interval(struct translation *t)
{
	const char *p = t->at + 1;
	char *end;
	unsigned long least = strtoul(p, &end, 10), most = least;

	if (*end == ',') {
		p = end + 1;
		most = isdigit((unsigned char)*p) ? strtoul(p, &end, 10) : REPEAT_MAX;
		if (end < p)
			end++;
	}
	if (*end != '}' || least > most)
		return refuse(t, "invalid interval");
	if (most > REPEAT_MAX)
		return refuse(t, "too many repetitions in an interval");
	copy(t, (size_t)(end + 1 - t->at));
	return true;
}

static bool copy_quantifier(struct translation *t)
{
	if (t->repeated)
		return refuse(t, "a quantifier follows a quantifier");
	if (t->fixed)
		return refuse(t, "a quantifier follows a condition");
	if (*t->at != '{')
		copy(t, 1);
	else if (!copy_interval(t))
		return false;
	if (*t->at == '?')
		copy(t, 1);
	t->repeated = true;
	return true;
}

/* Without a number behind it, it is itself; newer versions of PCRE2 think otherwise. */
static void copy_brace(struct translation *t)
{
	buf_puts(&t->out, "\\{");
	t->at++;
}

static bool translate(struct translation *t)
{
	bool good = read_options(t);

	while (good && *t->at) {
		char c = *t->at;

		if (strchr("*+?", c) || (c == '{' && isdigit((unsigned char)t->at[1]))) {
			good = copy_quantifier(t);
			continue;
		}
		t->repeated = false;
		t->fixed = c == '^' || c == '$';
		if (c == '\\')
			good = copy_escape(t, false);
		else if (c == '[')
			good = copy_bracket(t);
		else if (c == '(')
			good = copy_group(t);
		else if (c == ')')
			good = copy_group_end(t);
		else if (c == '{')
			copy_brace(t);
		else
			copy(t, 1);
	}
	if (!good)
		return false;
	buf_cstr(&t->out);
	return !buf_failed(&t->out) || refuse(t, "out of memory");
}

/* --- compiling --- */

static void *get_memory(size_t size, void *arg)
{
	(void)arg;
	return mem_alloc(size);
}

static void put_memory(void *p, void *arg)
{
	(void)arg;
	mem_free(p);
}

static bool say(char *err, size_t err_size, const char *why)
{
	snprintf(err, err_size, "%s", why);
	return false;
}

static bool compile(struct pattern *p, const struct translation *t, char *err, size_t err_size)
{
	pcre2_compile_context *c = pcre2_compile_context_create(p->memory);
	PCRE2_SIZE where;
	int rc = PCRE2_ERROR_NOMEMORY;

	if (c) {
		pcre2_set_parens_nest_limit(c, NESTING_MAX);
		p->code = pcre2_compile(t->out.data + t->out.off, buf_used(&t->out),
			PCRE2_DOLLAR_ENDONLY | PCRE2_DOTALL | PCRE2_NEVER_UTF | PCRE2_NEVER_UCP |
				PCRE2_NEVER_BACKSLASH_C | t->options,
			&rc, &where, c);
		pcre2_compile_context_free(c);
	}
	if (!p->code) {
		if (!c || rc == PCRE2_ERROR_HEAP_FAILED)
			return say(err, err_size, "out of memory");
		if (pcre2_get_error_message(rc, (PCRE2_UCHAR *)err, err_size) < 0)
			return say(err, err_size, "invalid");
		return false;
	}
	return true;
}

static void look(struct pattern *p)
{
	uint32_t options = 0;
	size_t frame = 0;

	pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &p->n_groups);
	pcre2_pattern_info(p->code, PCRE2_INFO_ALLOPTIONS, &options);
	pcre2_pattern_info(p->code, PCRE2_INFO_FRAMESIZE, &frame);
	p->anchored = options & PCRE2_ANCHORED;
	p->steps = (uint32_t)(STEPS_MAX / (1 + frame / FRAME_PLAIN));
}

static bool prepare(struct pattern *p, const char *text, char *err, size_t err_size)
{
	struct translation t = {.at = text, .out = BUF_INIT};
	bool good;

	p->memory = pcre2_general_context_create(get_memory, put_memory, NULL);
	p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
	if (!p->limits)
		return say(err, err_size, "out of memory");
	pcre2_set_heap_limit(p->limits, HEAP_MAX);
	good = translate(&t) ? compile(p, &t, err, err_size) : say(err, err_size, t.why);
	buf_free(&t.out);
	return good;
}

struct pattern *pattern_new(const char *text, char *err, size_t err_size)
{
	struct pattern *p;

	if (strlen(text) > TEXT_MAX) {
		say(err, err_size, "too long");
		return NULL;
	}
	p = mem_zalloc(sizeof(*p));
	if (!p)
		say(err, err_size, "out of memory");
	else if (!prepare(p, text, err, err_size))
		pattern_free(&p);
	else
		look(p);
	return p;
}

void pattern_free(struct pattern **ptr)
{
	struct pattern *p = *ptr;

	*ptr = NULL;
	if (!p)
		return;
	pcre2_code_free(p->code);
	pcre2_match_context_free(p->limits);
	pcre2_general_context_free(p->memory);
	mem_free(p);
}

/* --- matching --- */

bool pattern_has_group(const struct pattern *p)
{
	return p->n_groups > 0;
}

static void group_take(struct pattern_group *ret, pcre2_match_data *found, const char *name, int n)
{
	const PCRE2_SIZE *at = pcre2_get_ovector_pointer(found);

	*ret = (struct pattern_group){0};
	if (n > 1 && at[2] != PCRE2_UNSET)
		*ret = (struct pattern_group){.text = name + at[2], .len = at[3] - at[2]};
}

enum pattern_fit pattern_match(struct pattern *p, const char *name, struct pattern_group *ret_group)
{
	size_t len = strlen(name);
	pcre2_match_data *found;
	int n;

	if (len > NAME_LEN_MAX)
		return PATTERN_UNDECIDED;
	found = pcre2_match_data_create(2, p->memory);
	if (!found)
		return PATTERN_UNDECIDED;
	/* PCRE2 counts anew for each byte a match may begin with */
	pcre2_set_match_limit(p->limits, p->anchored ? p->steps : p->steps / (uint32_t)(len + 1));
	n = pcre2_match(p->code, (PCRE2_SPTR)name, len, 0, 0, found, p->limits);
	if (n == 0)
		n = 2; /* there are more groups than anybody wants */
	if (n > 0 && ret_group)
		group_take(ret_group, found, name, n);
	pcre2_match_data_free(found);
	if (n == PCRE2_ERROR_NOMATCH)
		return PATTERN_NO;
	return n > 0 ? PATTERN_YES : PATTERN_UNDECIDED;
}
