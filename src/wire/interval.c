/*
 * Interval texts, for the waits and leases that the proxy itself must time. Reads what Postgres'
 * interval_in reads in its common forms (documentation: "Interval Input"); infinity and the
 * dependence on IntervalStyle are left out. Entry points: sql_interval_usec, sql_interval_text.
 */
#include "wire/sqllex.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define US_SEC   1e6
#define US_MIN   (60 * US_SEC)
#define US_HOUR  (3600 * US_SEC)
#define US_DAY   (24 * US_HOUR)
#define US_MONTH (30 * US_DAY)

struct unit {
	const char *name;
	double usec;
};

static const struct unit units[] = {
	{"us", 1},
	{"usec", 1},
	{"usecs", 1},
	{"microsecond", 1},
	{"microseconds", 1},
	{"microsecon", 1},
	{"ms", 1e3},
	{"msec", 1e3},
	{"msecs", 1e3},
	{"millisecond", 1e3},
	{"milliseconds", 1e3},
	{"s", US_SEC},
	{"sec", US_SEC},
	{"secs", US_SEC},
	{"second", US_SEC},
	{"seconds", US_SEC},
	{"m", US_MIN},
	{"min", US_MIN},
	{"mins", US_MIN},
	{"minute", US_MIN},
	{"minutes", US_MIN},
	{"h", US_HOUR},
	{"hr", US_HOUR},
	{"hrs", US_HOUR},
	{"hour", US_HOUR},
	{"hours", US_HOUR},
	{"d", US_DAY},
	{"day", US_DAY},
	{"days", US_DAY},
	{"w", 7 * US_DAY},
	{"week", 7 * US_DAY},
	{"weeks", 7 * US_DAY},
	{"mon", US_MONTH},
	{"mons", US_MONTH},
	{"month", US_MONTH},
	{"months", US_MONTH},
	{"y", 12 * US_MONTH},
	{"yr", 12 * US_MONTH},
	{"yrs", 12 * US_MONTH},
	{"year", 12 * US_MONTH},
	{"years", 12 * US_MONTH},
	{"decade", 120 * US_MONTH},
	{"decades", 120 * US_MONTH},
	{"decs", 120 * US_MONTH},
	{"c", 1200 * US_MONTH},
	{"cent", 1200 * US_MONTH},
	{"century", 1200 * US_MONTH},
	{"centuries", 1200 * US_MONTH},
	{"mil", 12000 * US_MONTH},
	{"mils", 12000 * US_MONTH},
	{"millennium", 12000 * US_MONTH},
	{"millennia", 12000 * US_MONTH},
};

struct reader {
	const char *p, *end;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(char c)
{
	return util_lower(c) >= 'a' && util_lower(c) <= 'z';
}

static bool at(const struct reader *r, char c)
{
	return r->p < r->end && *r->p == c;
}

static bool take(struct reader *r, char c)
{
	if (!at(r, c))
		return false;
	r->p++;
	return true;
}

static void skip_blanks(struct reader *r)
{
	while (r->p < r->end && is_blank(*r->p))
		r->p++;
}

/* digits[.digits]; false: there is no digit. The sign is the caller's. */
static bool read_number(struct reader *r, double *ret, bool *ret_fraction)
{
	const char *start = r->p;
	double v = 0, scale = 1;
	bool digits = false;

	for (; r->p < r->end && is_digit(*r->p); r->p++, digits = true)
		v = v * 10 + (*r->p - '0');
	*ret_fraction = at(r, '.');
	if (take(r, '.')) {
		for (; r->p < r->end && is_digit(*r->p); r->p++, digits = true)
			v += (*r->p - '0') * (scale /= 10);
	}
	if (!digits)
		r->p = start;
	*ret = v;
	return digits;
}

/* The rest of h:mm[:ss[.f]] behind the first number, which may also be the minutes of mm:ss.f */
static bool read_clock(struct reader *r, double first, double *ret)
{
	double second, third;
	bool fraction;

	if (!read_number(r, &second, &fraction) || second >= 60)
		return false;
	if (fraction) {
		*ret = first * US_MIN + second * US_SEC;
		return true;
	}
	*ret = first * US_HOUR + second * US_MIN;
	if (!take(r, ':'))
		return true;
	if (!read_number(r, &third, &fraction) || third > 60)
		return false;
	*ret += third * US_SEC;
	return true;
}

static const struct unit *read_unit(struct reader *r)
{
	const char *start = r->p;
	size_t n;

	while (r->p < r->end && is_letter(*r->p))
		r->p++;
	n = (size_t)(r->p - start);
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strlen(units[i].name) == n && !util_memcasecmp(units[i].name, start, n))
			return &units[i];
	}
	r->p = start;
	return NULL;
}

static double read_sign(struct reader *r)
{
	if (take(r, '-')) {
		skip_blanks(r);
		return -1;
	}
	if (take(r, '+'))
		skip_blanks(r);
	return 1;
}

/* What a number without unit is: days before a time of day, seconds at the very end. */
static bool read_bare(struct reader *r, double value, double *sum)
{
	bool fraction;
	double first, clock, sign;

	if (r->p == r->end) {
		*sum += value * US_SEC;
		return true;
	}
	*sum += value * US_DAY;
	sign = read_sign(r);
	if (!read_number(r, &first, &fraction) || !take(r, ':') || !read_clock(r, first, &clock))
		return false;
	*sum += sign * clock;
	return true;
}

/* One of: number unit, h:mm:ss, years-months, number. */
static bool read_field(struct reader *r, double *sum)
{
	double sign = read_sign(r), value, other;
	const struct unit *unit;
	bool fraction;

	if (!read_number(r, &value, &fraction))
		return false;
	if (take(r, ':')) {
		if (!read_clock(r, value, &other))
			return false;
		*sum += sign * other;
		return true;
	}
	if (at(r, '-')) {
		r->p++;
		if (!read_number(r, &other, &fraction) || other >= 12)
			return false;
		*sum += sign * (value * 12 + other) * US_MONTH;
		return true;
	}
	skip_blanks(r);
	unit = read_unit(r);
	if (unit) {
		*sum += sign * value * unit->usec;
		return true;
	}
	return read_bare(r, sign * value, sum);
}

/* The designators of ISO 8601 behind P: years months weeks days, behind T hours minutes seconds. */
static bool read_iso(struct reader *r, double *sum)
{
	static const char date[] = "YMWD", time[] = "HMS";
	static const double date_usec[] = {12 * US_MONTH, US_MONTH, 7 * US_DAY, US_DAY};
	static const double time_usec[] = {US_HOUR, US_MIN, US_SEC};
	bool in_time = false, any = false, fraction;

	while (r->p < r->end) {
		const char *found;
		double sign, value;

		if (!in_time && take(r, 'T')) {
			in_time = true;
			any = false;
			continue;
		}
		sign = read_sign(r);
		if (!read_number(r, &value, &fraction) || r->p == r->end || !*r->p)
			return false;
		found = strchr(in_time ? time : date, *r->p);
		if (!found)
			return false;
		r->p++;
		*sum += sign * value *
			(in_time ? time_usec[found - time] : date_usec[found - date]);
		any = true;
	}
	return any;
}

static bool read_fields(struct reader *r, double *sum)
{
	bool any = false;

	if (take(r, '@'))
		skip_blanks(r);
	while (r->p < r->end) {
		if (any && r->end - r->p == 3 && !util_memcasecmp(r->p, "ago", 3)) {
			*sum = -*sum;
			return true;
		}
		if (!read_field(r, sum))
			return false;
		any = true;
		skip_blanks(r);
	}
	return any;
}

bool sql_interval_usec(const char *text, size_t len, int64_t *ret_usec)
{
	struct reader r = {text, text + len};
	double sum = 0;
	bool ok;

	while (r.end > r.p && is_blank(r.end[-1]))
		r.end--;
	skip_blanks(&r);
	ok = take(&r, 'P') ? read_iso(&r, &sum) : read_fields(&r, &sum);
	if (!ok || !(sum > -9.2e18 && sum < 9.2e18)) /* also no NaN */
		return false;
	*ret_usec = (int64_t)(sum < 0 ? sum - 0.5 : sum + 0.5);
	return true;
}

size_t sql_interval_text(char *dst, size_t size, int64_t usec)
{
	return (size_t)snprintf(dst, size, "%" PRId64 " microseconds", usec);
}
