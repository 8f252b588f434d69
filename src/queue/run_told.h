/*
 * What a job that runs by itself has told meanwhile: its notices, and the context of its error. Bounded.
 */
#ifndef QB_QUEUE_RUN_TOLD_H
#define QB_QUEUE_RUN_TOLD_H

#include "base/buf.h"

#define TOLD_NOTICES     20
#define TOLD_NOTICE_MAX  500
#define TOLD_CONTEXT_MAX 1000

struct run_told {
	uint64_t n; /* notices, also those that are not kept */
	bool of_handler; /* its error is that of a handler which was called */
	size_t notices_len;
	char notices[TOLD_NOTICES * TOLD_NOTICE_MAX / 3];
	char context[TOLD_CONTEXT_MAX];
	char tag[64];
};

struct wire_notice;

void told_nothing(struct run_told *t);
void told_notice(struct run_told *t, const struct wire_notice *n);
void told_tag(struct run_told *t, const uint8_t *body, size_t len);
void told_error(struct run_told *t, const struct wire_notice *n);
/* Its notices, if there are any, as a member of a JSON object behind others. */
void told_notices(const struct run_told *t, struct buf *ret);
/* Of what has succeeded, as JSON. */
void told_result(const struct run_told *t, struct buf *ret);
/* Behind the text that is there. */
void told_put(const struct run_told *t, char *text, size_t size);
/* What is not is a question mark. */
void told_in_ascii(char *text);

#endif
