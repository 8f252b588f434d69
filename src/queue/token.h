/*
 * How jobs are named in text: "<queue number>-<id>" for ever, and "<queue number>-<id>-<16 hex digits>",
 * the token, as long as one lease of it lasts; an id alone where the queue is known. Made by the functions
 * of sql/. Pure.
 */
#ifndef QB_QUEUE_TOKEN_H
#define QB_QUEUE_TOKEN_H

#include "base/util.h"

#define TOKEN_MAX    64 /* bytes of a token, with terminator */
#define TOKEN_DIGITS 16 /* that are drawn anew for each lease */

enum token_kind { TOKEN_BAD, TOKEN_ID, TOKEN_JOB, TOKEN_WHOLE };
enum token_kind token_kind(const char *text, size_t len);

/* The job in a token, and what is behind it. Borrows the text. */
struct token {
	int64_t id;
	const char *digits;
	size_t n_digits;
};
/* false: it has not three parts, or the second is no number. */
MUST_CHECK bool token_read(const char *text, size_t len, struct token *ret);
int64_t token_number(const char *token); /* of the queue: of a job, too */
/* The same of a token that is exactly as the database makes them; 0: it is not. */
int64_t token_strict_number(const char *token);
/* The job of a token, or of a job. false: it is an id alone, or too long. */
MUST_CHECK bool token_job(const char *token, char dst[TOKEN_MAX]);
void token_job_put(int64_t number, int64_t id, char dst[TOKEN_MAX]);
/* Behind the first dash: its id. NULL: there is none. */
const char *token_job_id(const char *job);
/* Is it one of this job? job: its text of so many bytes. */
bool token_is_of(const char *token, const char *job, size_t len);

/* For qsort() of arrays of TOKEN_MAX bytes each; and whether each is above the one before. */
int token_order(const void *a, const void *b);
bool tokens_ascend(const char (*tokens)[TOKEN_MAX], int n);

#endif
