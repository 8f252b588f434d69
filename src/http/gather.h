/* The figures of all processes of the program. */
#ifndef QB_HTTP_GATHER_H
#define QB_HTTP_GATHER_H

#include "base/buf.h"
#include "base/util.h"

/* Once for each loop. write: the figures of this process; done: those of all, called also from within
 * gather_begin(); the text is not the callee's. false: no memory. */
MUST_CHECK bool gather_start(void (*write)(struct buf *b), void (*done)(struct buf *text));
/* Asks the others, if that is not under way. */
void gather_begin(void);

#endif
