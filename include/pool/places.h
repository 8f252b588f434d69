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
/* counts: as to the size of the pool, which may have so many (most; 0: no limit). false: there is none, or it is
 * another's. */
MUST_CHECK bool places_take_server(struct pool *p, bool counts, unsigned most, usec_t since);
void places_give_server(struct pool *p); /* one has gone */
void places_count_pool(struct pool *p);  /* others of its servers count than before */
unsigned places_of_pool(const struct pool *p); /* of those that count, over all processes */
unsigned places_linked(const struct pool *p);  /* that clients have; of other processes as far as they have said so */
void places_task_began(const struct pool *p);
usec_t places_tasks_at(const struct pool *p); /* one began, in any process, as far as that was said; 0: none */
unsigned places_of_db(const struct pool *p);
unsigned places_of_user(const struct pool *p);
usec_t places_db_free_at(const struct pool *p); /* a server that has a place of it was free, in any process */
usec_t places_user_free_at(const struct pool *p);
struct place_want {
	usec_t since;
	bool starves; /* nothing comes free here, for long; else who has its part waits for that */
	unsigned for_clients, for_tasks; /* so many servers the pool may have for those; 0: none of them waits */
	unsigned most;                   /* ... if clients may have more than its size (places_may_exceed()) */
	struct place_need {
		bool is_idle;   /* it is full, and a server here, of another pool, would make room */
		bool is_lacked; /* it is full, and none is idle, nor likely to be soon */
	} db, user;
};
/* Somebody waits since then, and there is no place: the others hear it. */
void places_want(struct pool *p, const struct place_want *w);
/* May clients have a server beyond the pool's size, once? Tasks of another process have got all of it, and more. */
bool places_may_exceed(const struct pool *p);
/* Does anybody elsewhere wait, perhaps? */
bool places_claimed(void);
/* A server that is free: does somebody elsewhere go before who waits for it here, since then, and may have so many that
 * count? */
bool places_wanted(const struct server *s, usec_t since, unsigned most);

enum place_limit { PLACE_GOOD, PLACE_DB, PLACE_USER };
/* A client has come: how many there may be of the database, and of the user. 0: any number. */
enum place_limit places_take_client(
	const struct database *db, const struct account *a, unsigned of_db, unsigned of_user);
void places_give_client(const struct database *db, const struct account *a);

#endif
