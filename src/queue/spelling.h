/*
 * Names as clients write them: in encodings of their own. One name that is not ASCII has other bytes then, and news under
 * these are for who waits under those, too. Which encoding it was is not known any more where it matters: what is UTF-8 is
 * taken for that, and of anything else may be any name that is not ASCII. Pure.
 */
#ifndef QB_QUEUE_SPELLING_H
#define QB_QUEUE_SPELLING_H

#include "base/util.h"

bool spelling_is_ascii(const char *name, size_t len);
bool spelling_is_utf8(const char *name);
/* Are they one name, or may they be? */
bool spelling_may_be(const char *a, const char *b);
/* What is in front of " of <name>", for which the end of a text may stand: its length; 0: for another one. */
size_t spelling_before(const char *text, const char *name);

#endif
