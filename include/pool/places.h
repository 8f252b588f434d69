/*
 * Limits over several processes: places that all of them count in one memory. With one process nothing of it is used.
 */
#ifndef QB_POOL_PLACES_H
#define QB_POOL_PLACES_H

#include "base/util.h"

struct pool;
struct database;
struct account;
struct server;

/* The process that starts the others, before the fork. */
MUST_CHECK bool places_create(void);
void places_drop(int process); /* has ended: what it had is free */

/* Each of the others. */
void places_start(void);
void places_stop(void);
/* most: servers of the pool that are not the engine's own; 0: no limit. false: there is none, or it is another's. */
MUST_CHECK bool places_take_server(struct pool *p, bool engine, unsigned most, usec_t since);
void places_give_server(struct pool *p, bool engine);
unsigned places_of_pool(const struct pool *p, bool engine); /* over all processes */
unsigned places_of_db(const struct pool *p);
unsigned places_of_user(const struct pool *p);
struct place_want {
	usec_t since;
	bool starves; /* nothing comes free here, for long; else who has its part waits for that */
	bool db_is_idle, user_is_idle; /* both are full, and a server here, of another pool, would make room */
};
/* Somebody waits since then, and there is no place: the others hear it. most: of the pool, as above. */
void places_want(struct pool *p, unsigned most, const struct place_want *w);
/* Somebody elsewhere waits longer and has less, or starves: a server that is free here goes. */
bool places_wanted(const struct pool *p, unsigned most, usec_t since);

enum place_limit { PLACE_GOOD, PLACE_DB, PLACE_USER };
/* A client has come: how many there may be of the database, and of the user. 0: any number. */
enum place_limit places_take_client(
	const struct database *db, const struct account *a, unsigned of_db, unsigned of_user);
void places_give_client(const struct database *db, const struct account *a);

#endif
