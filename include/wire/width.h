/*
 * How wide text is in a terminal. Pure.
 */
#ifndef QB_WIRE_WIDTH_H
#define QB_WIRE_WIDTH_H

#include <stddef.h>
#include <stdint.h>

/* The columns of a character, as psql counts them: 0 of one that is put upon the one before it, 2 of a wide one; -1: a
 * control character. */
int width_of(uint32_t character);
/* The first character of the text, which is not empty; what is no UTF-8 is one of a byte. Returns its bytes. */
size_t width_next(const uint8_t *text, size_t len, uint32_t *ret);

#endif
