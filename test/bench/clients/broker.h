/*
 * Brokers that answer each step of a job by itself: what one of them has to give, and the loop that runs it.
 *
 * Must not know: protocols.
 */
#ifndef BENCH_BROKER_H
#define BENCH_BROKER_H

#include <stdint.h>

#include "link.h"

/* A client, in a thread of its own. */
struct peer {
	int fd, number;
	uint8_t in[65536];
	size_t have, at; /* bytes of in, and how many of them are worked off */
	char ack[256];   /* what done() needs of the job that was taken */
	uint64_t tag;
};

struct broker {
	void (*open)(struct peer *p);  /* when it is connected */
	void (*setup)(struct peer *p); /* an empty queue; the first client only */
	void (*push)(struct peer *p, const char *payload); /* answered */
	bool (*take)(struct peer *p);                      /* false: there is none */
	void (*done)(struct peer *p);
};

/* At least so many bytes that are not worked off: where they begin. */
const uint8_t *peek(struct peer *p, size_t len);
/* What the other side has said is no answer. Ends the program. */
void broken(const char *who, const void *said, size_t len) __attribute__((noreturn));

int run_broker(const struct broker *b, const struct target *t, char **arg);

#endif
