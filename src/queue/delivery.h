/*
 * The rows of a delivery as they come from the database, and as the client gets them (delivery.c).
 */
#ifndef QB_QUEUE_DELIVERY_H
#define QB_QUEUE_DELIVERY_H

#include "wire/row.h"
#include "patience.h"
#include "queue_call.h"
#include "token.h"

struct delivery {
	struct buf rows;       /* messages */
	struct common *common; /* what the events have that come; NULL: each says it */
	int n;
	int64_t stream; /* its number; 0: not said */
	int64_t lasts;  /* ms, its lease since the statement was sent; 0: not said */
	bool all;       /* with MIN: nothing was left behind it */
	bool sifted;    /* with WHERE, which has a column more */
	bool as_jsonb;  /* its payloads are texts, and the client wants jsonb in binary */
	int64_t more[PATIENCE_NUMBERS]; /* ... of what comes next */
	bool torn; /* a row was not as expected, or there was no memory for it */
	char token[TOKEN_MAX];
};

void delivery_free(struct delivery *d);
/* What was heard is no part of what comes. */
void delivery_forget(struct delivery *d);
/* Numbers with a space between them; returns how many, at most max. */
int delivery_numbers(const struct wire_col *c, int64_t *ret, int max);
/* The columns of a row that is no event, but tells why there are none: true. */
MUST_CHECK bool delivery_row(struct delivery *d, const uint8_t *body, size_t len, struct wire_col cols[SIFTED_COLUMNS]);

#endif
