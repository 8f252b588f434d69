/*
 * Typed fields: text to value, value to text, bounds, units. Must not know which parameters exist.
 * Entry points: field_int.h.
 */
#include "field_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct field_unit {
	const char *name;
	int64_t factor;
};

/* Largest first: the order in which printing looks for a unit that divides. */
static const struct field_unit time_units[] = {
	{"d", 24 * 3600 * (int64_t)USEC_SEC},
	{"h", 3600 * (int64_t)USEC_SEC},
	{"min", 60 * (int64_t)USEC_SEC},
	{"s", (int64_t)USEC_SEC},
	{"ms", (int64_t)USEC_MSEC},
	{"us", 1},
	{NULL, 0},
};
static const struct field_unit size_units[] = {
	{"GB", (int64_t)1 << 30},
	{"MB", 1 << 20},
	{"kB", 1 << 10},
	{"KB", 1 << 10},
	{"B", 1},
	{NULL, 0},
};

static bool fail(struct field_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool fail(struct field_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return false;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* [+-] digits [. digits] [unit], in multiples of the smallest unit. A fraction that is finer than
 * that is cut. */
static bool parse_quantity(
	const char *s, const struct field_unit *units, int64_t bare, int64_t *ret)
{
	int64_t whole = 0, part = 0, scale = 1, factor = bare, sum;
	bool negative = *s == '-', digits = false;

	if (*s == '-' || *s == '+')
		s++;
	for (; is_digit(*s); s++, digits = true) {
		if (__builtin_mul_overflow(whole, 10, &whole) ||
			__builtin_add_overflow(whole, *s - '0', &whole))
			return false;
	}
	if (*s == '.') {
		for (s++; is_digit(*s); s++, digits = true) {
			if (scale >= 1000000)
				continue;
			part = part * 10 + (*s - '0');
			scale *= 10;
		}
	}
	while (*s == ' ' || *s == '\t')
		s++;
	if (*s) {
		while (units->name && strcmp(units->name, s))
			units++;
		factor = units->factor;
	}
	if (!digits || !factor || __builtin_mul_overflow(whole, factor, &sum) ||
		__builtin_add_overflow(sum, part * factor / scale, &sum))
		return false;
	*ret = negative ? -sum : sum;
	return true;
}

static bool parse_octal(const char *s, int64_t *ret)
{
	int64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '7' || v > INT32_MAX)
			return false;
		v = v * 8 + (*s - '0');
	}
	*ret = v;
	return true;
}

static bool parse_bool(const char *s, bool *ret)
{
	static const char *const words[] = {"0", "1", "off", "on", "no", "yes", "false", "true"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (!util_strcasecmp(s, words[i])) {
			*ret = i % 2;
			return true;
		}
	}
	return false;
}

static bool parse_number(const struct field *f, const char *text, int64_t *ret)
{
	switch (f->kind) {
	case FIELD_TIME:
		return parse_quantity(text, time_units, (int64_t)USEC_SEC, ret);
	case FIELD_SIZE:
		return !strchr(text, '.') && parse_quantity(text, size_units, 1, ret);
	default:
		return f->flags & PARAM_OCTAL ? parse_octal(text, ret)
					      : util_parse_i64(text, strlen(text), ret);
	}
}

static const char *kind_wanted(const struct field *f)
{
	switch (f->kind) {
	case FIELD_TIME:
		return "a time, as 30, 1.5, 500ms, 30s, 5min, 1h or 7d";
	case FIELD_SIZE:
		return "a size, as 4096, 64kB, 16MB or 1GB";
	case FIELD_BOOL:
		return "one of 0, 1, on, off, yes, no, true, false";
	default:
		return f->flags & PARAM_OCTAL ? "an octal number" : "a whole number";
	}
}

/* The value as messages quote it: never a secret, never a novel. */
static bool fail_value(const struct field *f, const char *text, struct field_error *err)
{
	if (f->flags & PARAM_SECRET)
		return fail(err, "\"%s\": the value is not %s", f->name, kind_wanted(f));
	return fail(err, "\"%s\": \"%.60s\" is not %s", f->name, text, kind_wanted(f));
}

/* A number of the field's kind as text. */
static const char *number_text(const struct field *f, int64_t n, char text[FIELD_TEXT])
{
	if (f->kind == FIELD_TIME && n % (int64_t)USEC_SEC) {
		int len = snprintf(text, FIELD_TEXT, "%" PRId64 ".%06" PRId64,
			n / (int64_t)USEC_SEC, n % (int64_t)USEC_SEC);

		while (text[len - 1] == '0')
			text[--len] = '\0';
	} else if (f->kind == FIELD_TIME) {
		snprintf(text, FIELD_TEXT, "%" PRId64, n / (int64_t)USEC_SEC);
	} else if (f->flags & PARAM_OCTAL) {
		snprintf(text, FIELD_TEXT, "%#" PRIo64, (uint64_t)n);
	} else {
		snprintf(text, FIELD_TEXT, "%" PRId64, n);
	}
	return text;
}

static bool parse_string(
	const struct field *f, const char *text, char **ret, struct field_error *err)
{
	size_t len = strlen(text);

	if (len > (size_t)f->max)
		return fail(err, "\"%s\" is longer than %" PRId64 " bytes", f->name, f->max);
	if (len < (size_t)f->min)
		return fail(err, "\"%s\" must have at least %" PRId64 " bytes", f->name, f->min);
	*ret = mem_strdup(text);
	return *ret || fail(err, "out of memory");
}

static bool parse_word(const struct field *f, const char *text, int *ret, struct field_error *err)
{
	char all[160] = "";
	size_t len = 0;

	for (const struct field_word *w = f->words; w->word; w++) {
		if (!util_strcasecmp(w->word, text)) {
			*ret = w->value;
			return true;
		}
		if (len < sizeof(all))
			len += (size_t)snprintf(
				all + len, sizeof(all) - len, "%s%s", len ? ", " : "", w->word);
	}
	return fail(err, "\"%s\": \"%.60s\" is not one of %s", f->name, text, all);
}

static bool parse_bounded(
	const struct field *f, const char *text, union field_value *ret, struct field_error *err)
{
	char min[FIELD_TEXT], max[FIELD_TEXT];
	int64_t n;

	if (!parse_number(f, text, &n))
		return fail_value(f, text, err);
	if (n < f->min || n > f->max)
		return fail(err, "\"%s\": %.60s is out of bounds, it must be between %s and %s",
			f->name, text, number_text(f, f->min, min), number_text(f, f->max, max));
	if (f->kind == FIELD_INT)
		ret->i = (int)n;
	else if (f->kind == FIELD_TIME)
		ret->time = (usec_t)n;
	else
		ret->size = n;
	return true;
}

static bool parse_any(
	const struct field *f, const char *text, union field_value *ret, struct field_error *err)
{
	switch (f->kind) {
	case FIELD_STR:
		return parse_string(f, text, &ret->str, err);
	case FIELD_BOOL:
		return parse_bool(text, &ret->b) || fail_value(f, text, err);
	case FIELD_ENUM:
		return parse_word(f, text, &ret->i, err);
	default:
		return parse_bounded(f, text, ret, err);
	}
}

bool field_parse(
	const struct field *f, const char *text, union field_value *ret, struct field_error *err)
{
	union field_value v = {0};
	const char *why;

	if (!parse_any(f, text, &v, err))
		return false;
	why = f->check ? f->check(&v) : NULL;
	if (why) {
		field_drop(f, &v);
		return fail(err, "\"%s\": %s", f->name, why);
	}
	*ret = v;
	return true;
}

/* The bytes of the field in the struct, as far as the union has them. */
static size_t kind_size(const struct field *f)
{
	static const size_t sizes[] = {
		[FIELD_STR] = sizeof(char *),
		[FIELD_INT] = sizeof(int),
		[FIELD_BOOL] = sizeof(bool),
		[FIELD_TIME] = sizeof(usec_t),
		[FIELD_SIZE] = sizeof(int64_t),
		[FIELD_ENUM] = sizeof(int),
	};

	return sizes[f->kind];
}

union field_value field_peek(const struct field *f, const void *base)
{
	union field_value v = {0};

	if (f->offset != FIELD_NOWHERE)
		memcpy(&v, (const char *)base + f->offset, kind_size(f));
	return v;
}

void field_swap(const struct field *f, void *base, union field_value *v)
{
	union field_value old = field_peek(f, base);

	if (f->offset == FIELD_NOWHERE)
		return;
	memcpy((char *)base + f->offset, v, kind_size(f));
	*v = old;
}

void field_drop(const struct field *f, union field_value *v)
{
	if (f->kind == FIELD_STR && v->str) {
		if (f->flags & PARAM_SECRET)
			util_erase(v->str, strlen(v->str));
		mem_free(v->str);
	}
	*v = (union field_value){0};
}

bool field_set(const struct field *f, void *base, const char *text, struct field_error *err)
{
	union field_value v;

	if (!field_parse(f, text, &v, err))
		return false;
	field_swap(f, base, &v);
	field_drop(f, &v);
	return true;
}

void field_clear(const struct field *f, void *base)
{
	union field_value v = {0};

	field_swap(f, base, &v);
	field_drop(f, &v);
}

void field_unset(const struct field *f, void *base)
{
	union field_value v = {0};

	if (f->kind == FIELD_INT)
		v.i = -1;
	else if (f->kind == FIELD_TIME)
		v.time = USEC_NEVER;
	else if (f->kind == FIELD_SIZE)
		v.size = -1;
	else if (f->kind == FIELD_ENUM)
		v.i = f->unset;
	field_swap(f, base, &v);
	field_drop(f, &v);
}

bool field_equal(const struct field *f, const union field_value *a, const union field_value *b)
{
	switch (f->kind) {
	case FIELD_STR:
		return !strcmp(a->str ? a->str : "", b->str ? b->str : "");
	case FIELD_BOOL:
		return a->b == b->b;
	case FIELD_TIME:
		return a->time == b->time;
	case FIELD_SIZE:
		return a->size == b->size;
	default:
		return a->i == b->i;
	}
}

const char *field_text(const struct field *f, const union field_value *v, char text[FIELD_TEXT])
{
	switch (f->kind) {
	case FIELD_STR:
		if (!v->str || !*v->str)
			return "";
		return f->flags & PARAM_SECRET ? "***" : v->str;
	case FIELD_BOOL:
		return v->b ? "1" : "0";
	case FIELD_ENUM:
		return field_word(f->words, v->i);
	case FIELD_TIME:
		return number_text(f, (int64_t)v->time, text);
	case FIELD_SIZE:
		return number_text(f, v->size, text);
	default:
		return number_text(f, v->i, text);
	}
}

const char *field_default(const struct field *f, char text[FIELD_TEXT])
{
	struct field_error err;
	union field_value v;

	if (!f->def)
		return "";
	if (f->kind == FIELD_STR || !field_parse(f, f->def, &v, &err))
		return f->def;
	return field_text(f, &v, text);
}

const char *field_word(const struct field_word *words, int value)
{
	for (; words->word; words++) {
		if (words->value == value)
			return words->word;
	}
	return "";
}

const struct field *field_find(const struct field *fields, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	}
	return NULL;
}

enum { NEAREST_MAX = 40 };

/* Levenshtein's distance, blind to case; both shorter than NEAREST_MAX. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NEAREST_MAX + 1], n = 0;

	for (; b[n]; n++)
		row[n] = n;
	row[n] = n;
	for (unsigned i = 0; a[i]; i++) {
		unsigned diagonal = row[0];

		row[0] = i + 1;
		for (unsigned j = 0; j < n; j++) {
			unsigned cost = diagonal + (util_lower(a[i]) != util_lower(b[j]));

			diagonal = row[j + 1];
			if (cost > row[j] + 1)
				cost = row[j] + 1;
			if (cost > diagonal + 1)
				cost = diagonal + 1;
			row[j + 1] = cost;
		}
	}
	return row[n];
}

const struct field *field_nearest(const struct field *fields, size_t n, const char *name)
{
	const struct field *best = NULL;
	size_t len = strlen(name);
	unsigned least = (unsigned)len / 3 + 1; /* more changes than this make another word */

	if (len < 2 || len > NEAREST_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		unsigned d;

		if (strlen(fields[i].name) > NEAREST_MAX)
			continue;
		d = distance(name, fields[i].name);
		if (d <= least && (!best || d < least)) {
			best = &fields[i];
			least = d;
		}
	}
	return best;
}
