/*
 * Arrays of one dimension, as Postgres sends and reads them: in binary for parameters, and in text as
 * array_out() writes it. An allocation failure sticks in the buffer.
 */
#ifndef QB_WIRE_ARRAY_H
#define QB_WIRE_ARRAY_H

#include "base/names.h"
#include "wire/build.h"

/* Binary. begin returns the offset that end needs; how many there are is known at the end. nulls: there may be some. */
size_t array_begin(struct buf *b, enum wire_oid element, bool nulls);
void array_end(struct buf *b, size_t start, int n);
void array_put_text(struct buf *b, const char *s); /* NULL pointer: a null */
void array_put_i32(struct buf *b, int32_t v);
void array_put_i64(struct buf *b, int64_t v);
/* text[] as a whole. */
void array_texts(struct buf *b, const char *const *texts, int n);

/*
 * Text: {a,"b c",NULL}. The elements of one, each with its terminator, as far as a text can hold them: no zeros. null:
 * one of them is a null, and is there as the word. false: it is none, has several dimensions or bounds, or there is
 * no memory; then *ret is empty.
 */
MUST_CHECK bool array_read(const char *text, size_t len, struct names *ret, int *ret_n, bool *ret_null);
/* begin: the brace; then each element, quoted where it must be; end: the other brace. */
void array_text_begin(struct buf *b);
void array_text_put(struct buf *b, const char *s); /* NULL pointer: a null */
void array_text_end(struct buf *b);

#endif
