/*
 * The jobs behind the scripted servers: a model of the functions of schema queue that the proxy
 * calls, with transactions, so that a dialogue need not spell out their rows, and so that it can be
 * told at the end whether a job was lost, or left leased to nobody.
 */
#ifndef QB_SCENARIO_STORE_H
#define QB_SCENARIO_STORE_H

#include "actors.h"

void store_init(void);
void store_free(void);

/* Answers a statement that calls a function of schema queue. False: it does not. */
bool store_serve(struct actor *a, const char *sql, const struct words *values, bool describe);
/* The transaction of that server ends. */
void store_end(struct actor *a, bool commit);

/* A job that somebody else pushed; ready after a while. */
void store_add(const char *queue, const char *payload, usec_t delay);

enum store_state { STORE_READY, STORE_LATER, STORE_LEASED, STORE_DONE };
int store_count(enum store_state st);
/* Has the queue with a single consumer one? */
bool store_has_consumer(void);

#endif
