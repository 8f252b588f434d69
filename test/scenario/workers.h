/*
 * Takers of the proxy's own in a dialogue: who uses the worker of the queue as the product would, and what it hears.
 */
#ifndef QB_SCENARIO_WORKERS_H
#define QB_SCENARIO_WORKERS_H

#include "base/util.h"

/* NULL or what was wrong. lenient: what cannot be done any more is left out. */
const char *worker_step(int id, const char *args, bool lenient);
/* Exactly these events come next. false: text has what was heard instead. */
bool worker_expect(int id, const char *args, char *text, size_t size);
void workers_end(void);

#endif
