/*
 * The program under test between the fake net layer and nothing: its boot order and its end, and
 * what it looks like when it is at rest.
 */
#ifndef QB_SCENARIO_PROGRAM_H
#define QB_SCENARIO_PROGRAM_H

#include "base/util.h"

/* settings, databases: lines of the two ini sections. */
MUST_CHECK bool program_start(const char *settings, const char *databases, const char *users_file);
void program_end(void);

/* Nobody waits, no server is used, no lease is held. False: text says what is not at rest. */
MUST_CHECK bool program_at_rest(char *text, size_t size);

enum program_count {
	COUNT_PARKED,
	COUNT_WAITING,
	COUNT_CLIENTS,
	COUNT_SERVERS,
	COUNT_IDLE,
	COUNT_KEPT,
	COUNT_WAITERS, /* SHOW WAITERS */
	COUNT_LEASES,  /* SHOW LEASES */
	COUNT_QUERIES, /* SHOW STATS */
	COUNT_XACTS,
	COUNT_QUERY_SECONDS,
	COUNT_XACT_SECONDS,
	COUNT_RAN, /* SHOW RUNS: attempts of jobs that run by themselves, how they have ended */
	COUNT_RAN_FAILED,
	COUNT_RAN_AGAIN,
	COUNT_RUNNING,
	COUNT_ANSWERS, /* bytes that are kept of them */
	COUNT_KINDS
};
int program_count(enum program_count what);

/* Steps that a dialogue asks for in words: "shutdown now", "pause app", "notify mail". */
MUST_CHECK bool program_command(const char *words);

/* fake_system.c */
void program_notify(const char *queue);
const char *program_others(void); /* what was seen of other proxies last */
bool program_is_asleep(void); /* they see that this one sleeps */
void program_awake(void); /* another one says that it is awake */
const char *program_told(void); /* the queue of the last notification to others */
void program_system(bool up);
void program_proxies(char *ids);

#endif
