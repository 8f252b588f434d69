/*
 * How long a job had waited when it was taken, as its row says: from run_at, or its push, to taken_at. Read in binary,
 * and in text as DateStyle ISO writes it; another one is not read. Pure.
 *
 * Entry point: waited_us().
 */
#include <string.h>

#include "queue_call.h"
#include "figures.h"

/* Two digits and what follows them; -1: they are none. */
static int two(const uint8_t *p)
{
	unsigned a = (unsigned)p[0] - '0', b = (unsigned)p[1] - '0';

	return a <= 9 && b <= 9 ? (int)(a * 10 + b) : -1;
}

/* Days since the 1st of March of the year 0. */
static int64_t days_of(int64_t year, int month, int day)
{
	year -= month <= 2;
	month += month <= 2 ? 9 : -3;
	return 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
}

/* Behind the seconds: their fraction. */
static const uint8_t *fraction(const uint8_t *p, const uint8_t *end, int64_t *us)
{
	static const int32_t unit[] = {1000000, 100000, 10000, 1000, 100, 10, 1};
	size_t digits = 0;
	int32_t n = 0;

	if (p == end || *p != '.')
		return p;
	for (p++; p < end && *p >= '0' && *p <= '9' && digits + 1 < ARRAY_LEN(unit); p++, digits++)
		n = n * 10 + (*p - '0');
	*us += (int64_t)n * unit[digits];
	return p;
}

/* +02, -03:30 */
static bool zone(const uint8_t *p, const uint8_t *end, int64_t *us)
{
	int64_t s = 0, unit = 3600;
	int sign;

	if (end - p < 3 || (*p != '+' && *p != '-'))
		return false;
	sign = *p++ == '-' ? 1 : -1;
	for (; end - p >= 2 && unit > 0; unit /= 60) {
		int n = two(p);

		if (n < 0)
			return false;
		s += unit * n;
		p += 2;
		if (p < end && *p++ != ':')
			return false;
	}
	*us += sign * s * (int64_t)USEC_SEC;
	return p == end;
}

/* 2026-11-23 07:40:11.191856+00 */
static bool read_text(const uint8_t *p, int32_t len, int64_t *us)
{
	const uint8_t *end = p + len;
	int n[7];
	static const uint8_t at[] = {0, 2, 5, 8, 11, 14, 17};

	if (len < 22 || p[4] != '-' || p[7] != '-' || p[10] != ' ' || p[13] != ':' || p[16] != ':')
		return false;
	for (size_t i = 0; i < ARRAY_LEN(at); i++)
		if ((n[i] = two(p + at[i])) < 0)
			return false;
	*us = ((days_of(n[0] * 100 + n[1], n[2], n[3]) * 24 + n[4]) * 60 + n[5]) * 60 + n[6];
	*us *= (int64_t)USEC_SEC;
	return zone(fraction(p + 19, end, us), end, us);
}

/* Of the same minute, as most are: nothing but their seconds is read. What stands behind these has to be the same, since an
 * hour may come twice. */
static bool between_seconds(const struct wire_col *from, const struct wire_col *to, int64_t *us)
{
	const uint8_t *a, *b, *a_end, *b_end;
	int64_t a_us = 0, b_us = 0;
	int a_s, b_s;

	if (from->len < 22 || to->len < 22 || memcmp(from->data, to->data, 17) != 0 ||
		from->data[4] != '-' || from->data[10] != ' ' || from->data[16] != ':')
		return false;
	if ((a_s = two(from->data + 17)) < 0 || (b_s = two(to->data + 17)) < 0)
		return false;
	a_end = from->data + from->len;
	b_end = to->data + to->len;
	a = fraction(from->data + 19, a_end, &a_us);
	b = fraction(to->data + 19, b_end, &b_us);
	if (a_end - a != b_end - b || a_end - a < 3 || memcmp(a, b, (size_t)(a_end - a)) != 0)
		return false;
	*us = (b_s - a_s) * (int64_t)USEC_SEC + b_us - a_us;
	return true;
}

/* false: it is not there, or cannot be read, or is no time. */
static bool read(const struct wire_col *c, bool binary, int64_t *us)
{
	if (c->len <= 0)
		return false;
	if (!binary)
		return read_text(c->data, c->len, us);
	return wire_col_int(c, 8, us) && *us != INT64_MIN && *us != INT64_MAX;
}

static bool is_binary(const int16_t *formats, int n_formats, int i)
{
	return n_formats > 0 && formats[n_formats == 1 ? 0 : i] != 0;
}

/* false: one of them cannot be read. */
static bool between(const struct wire_col *cols, const int16_t *formats, int n_formats, int from,
	int to, int64_t *us)
{
	bool from_binary = is_binary(formats, n_formats, from);
	bool to_binary = is_binary(formats, n_formats, to);
	int64_t began, ended;

	if (!from_binary && !to_binary && between_seconds(&cols[from], &cols[to], us))
		return true;
	if (!read(&cols[from], from_binary, &began) || !read(&cols[to], to_binary, &ended))
		return false;
	*us = ended - began;
	return true;
}

int64_t waited_us(const struct wire_col *cols, const int16_t *formats, int n_formats)
{
	int64_t waited, of_run;

	if (!between(cols, formats, n_formats, TAKEN_pushed_at, TAKEN_taken_at, &waited))
		return -1;
	if (cols[TAKEN_run_at].len > 0 &&
		between(cols, formats, n_formats, TAKEN_run_at, TAKEN_taken_at, &of_run) &&
		of_run < waited)
		waited = of_run;
	return waited > 0 ? waited : 0;
}
