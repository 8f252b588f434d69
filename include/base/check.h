/*
 * Invariants: what has to be true in our own state. Checked in every build, so each is cheap: a compare or two.
 * When one is broken nothing that we hold can be trusted any more, and answers might go to the wrong client: it
 * is logged what is wrong and where, and the process ends. Never reachable from what a peer sends.
 */
#ifndef QB_BASE_CHECK_H
#define QB_BASE_CHECK_H

/* what: what is wrong when x is false, in words. */
#define INVARIANT(x, what) (__builtin_expect(!!(x), 1) ? (void)0 : check_failed(what, #x, __FILE__, __LINE__))

/* An object of this kind, that was not freed: its magic number. NULL is nothing that could be wrong: who must not
 * have it ends by it, and many may. p: a variable. */
#define INVARIANT_IS(p, number, what) INVARIANT((p) == NULL || (p)->magic == (number), what)

__attribute__((noreturn, cold)) void check_failed(const char *what, const char *expr, const char *file, int line);

#endif
