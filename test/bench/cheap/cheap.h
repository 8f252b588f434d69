/*
 * A server and clients that cost less than what stands between them: what a pooler with several processes
 * reaches is seen only if others leave it the cores.
 */
#ifndef QB_BENCH_CHEAP_H
#define QB_BENCH_CHEAP_H

#include <stddef.h>
#include <stdint.h>

/* Ends the program: the text, errno. */
_Noreturn void die(const char *what);

/* A 32-bit number in network order. */
void put32(uint8_t *at, uint32_t n);
uint32_t get32(const uint8_t *at);

/*
 * Answers as Postgres does, without looking: each Query, and each Sync, by a row of `size` bytes. Listens on
 * <dir>/.s.PGSQL.<port>. Prints "ready", and for each line on stdin "queries <n>", those answered until now.
 */
int do_serve(char **arg);

/* Connections that send queries as fast as they are taken, and drop what comes. */
int do_load(char **arg);

/* Logins over TLS, one after the other, by so many processes. Prints "logins <n>". */
int do_logins(char **arg);

#endif
