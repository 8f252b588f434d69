/*
 * Connections move to another process that takes over, one by one, each at a moment in which nothing
 * is under way on it (doc/decisions, "takeover"). This side gives, that side adopts; both ends of
 * the channel are of the same version. What cannot be moved stays and is served to its end.
 */
#ifndef QB_POOLER_MOVE_H
#define QB_POOLER_MOVE_H

#include "base/util.h"

/* Of the messages of the channel; another number is another language. */
#define MOVE_VERSION 3

struct pool;

/* Work that goes on in a pool when no client is there. Is there any? Then the process that adopts hears it of its own pool.
 * Given once, by whoever has such work. */
struct move_work {
	bool (*works)(const struct pool *p);
	void (*inherited)(struct pool *p);
};
void move_hear_of_work(const struct move_work *w);
void adopt_hear_of_work(const struct move_work *w);

/* Who gives. Takes the channel's descriptor. over: the other process has gone (clean: it ended by itself); what it had not
 * confirmed is served here again. Shutdown is another matter: pooler_shutdown(). false: no memory. */
MUST_CHECK bool move_begin(int channel, void (*over)(bool clean));
void move_end(void);
bool move_is_begun(void);

/* Who adopts. Takes the channel's descriptor. over: there is nothing more to come. */
MUST_CHECK bool adopt_begin(int channel, void (*over)(void));
/* We end by ourselves, not by a crash. */
void adopt_end(void);
/* Numbers of statements, which servers know, begin behind those that the other process may use. */
void adopt_statements_from(uint64_t number);
uint64_t move_statements_to(void);

#endif
