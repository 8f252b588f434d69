/*
 * What this proxy knows of those who work and wait: for QUEUE WORKERS.
 */
#ifndef QB_QUEUE_KNOWN_H
#define QB_QUEUE_KNOWN_H

#include "base/buf.h"
#include "taker.h"

/* In hexadecimal digits. queue: of this one only; "": of all. false: memory. */
MUST_CHECK bool known_put(const struct taker *asks, const char *queue, struct buf *out);

/* For others that have something to tell. */
void known_put_hex(struct buf *b, const struct buf *text);

#endif
