/*
 * The names of jobs in text, see token.h.
 */
#include "token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_DIGITS 9 /* of a queue, at most */
#define ID_DIGITS     18

enum token_kind token_kind(const char *text, size_t len)
{
	static const enum token_kind kinds[] = {TOKEN_ID, TOKEN_JOB, TOKEN_WHOLE};
	unsigned dashes = 0;
	bool delivery = false; /* which has no other name than its token */

	if (len == 0 || len >= TOKEN_MAX || text[0] == '-')
		return TOKEN_BAD;
	for (size_t i = 0; i < len; i++) {
		bool of_delivery = text[i] == 'd' && i > 0 && text[i - 1] == '-' && dashes == 1;
		bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');

		if (!hex && text[i] != '-')
			return TOKEN_BAD;
		if (of_delivery)
			delivery = true;
		else if (dashes < 2 && hex && text[i] > '9')
			return TOKEN_BAD;
		dashes += text[i] == '-';
	}
	if (dashes >= ARRAY_LEN(kinds) || (delivery && dashes < 2))
		return TOKEN_BAD;
	return kinds[dashes];
}

bool token_read(const char *text, size_t len, struct token *ret)
{
	const char *id = memchr(text, '-', len), *digits;

	if (id == NULL)
		return false;
	id++;
	digits = memchr(id, '-', len - (size_t)(id - text));
	if (digits == NULL || !util_parse_i64(id, (size_t)(digits - id), &ret->id))
		return false;
	ret->digits = digits + 1;
	ret->n_digits = len - (size_t)(digits + 1 - text);
	return ret->n_digits > 0;
}

int64_t token_number(const char *token)
{
	return strtoll(token, NULL, 10);
}

int64_t token_strict_number(const char *token)
{
	static const char dec[] = "0123456789", hex[] = "0123456789abcdef";
	size_t n = strspn(token, dec), id = token[n] == '-' ? strspn(token + n + 1, dec) : 0;
	const char *rest = token + n + 1 + id;
	int64_t number;

	if (n == 0 || n > NUMBER_DIGITS || id == 0 || id > ID_DIGITS || rest[0] != '-')
		return 0;
	if (strlen(rest) != 1 + TOKEN_DIGITS || strspn(rest + 1, hex) != TOKEN_DIGITS)
		return 0;
	return util_parse_i64(token, n, &number) ? number : 0;
}

bool token_job(const char *token, char dst[TOKEN_MAX])
{
	const char *id = token_job_id(token);
	size_t n;

	if (id == NULL)
		return false;
	n = (size_t)(id - token) + strcspn(id, "-");
	if (n >= TOKEN_MAX)
		return false;
	memcpy(dst, token, n);
	dst[n] = '\0';
	return true;
}

void token_job_put(int64_t number, int64_t id, char dst[TOKEN_MAX])
{
	snprintf(dst, TOKEN_MAX, "%lld-%lld", (long long)number, (long long)id);
}

const char *token_job_id(const char *job)
{
	const char *dash = strchr(job, '-');

	return dash != NULL ? dash + 1 : NULL;
}

bool token_is_of(const char *token, const char *job, size_t len)
{
	return strncmp(token, job, len) == 0 && token[len] == '-';
}

int token_order(const void *a, const void *b)
{
	return strcmp(a, b);
}

bool tokens_ascend(const char (*tokens)[TOKEN_MAX], int n)
{
	for (int i = 1; i < n; i++)
		if (strcmp(tokens[i - 1], tokens[i]) >= 0)
			return false;
	return true;
}
