/*
 * The processes of one program (`processes`), and how they talk: messages through local sockets, from each
 * to each, and a few words of memory that all of them see. Knows nothing of what they say.
 *
 * With one process there is no team: team_self() is 0, and nothing is sent.
 */
#ifndef QB_NET_TEAM_H
#define QB_NET_TEAM_H

#include "base/util.h"

#define TEAM_MAX      64
#define TEAM_TEXT_MAX (48 * 1024) /* bytes of a message */

/* --- the process that starts the others --- */

/* Before they are forked. false: errno says why. */
MUST_CHECK bool team_create(int size);
void team_free(void);
/* Nothing that the number left behind is there any more: one begins with it. */
void team_clear(int number);
/* The process with that number has gone: the others hear it (TEAM_GONE). */
void team_tell_gone(int number);
bool team_is_ready(int number);
/* When it turned last; 0: it has not begun yet. */
usec_t team_seen(int number);

/* --- each of the others --- */

/* In the process itself, which has that number from now on, from 1. */
void team_be(int number);
/* Hears the others from now on; needs the loop. */
MUST_CHECK bool team_join(void);
void team_leave(void);
void team_ready(void);

/* --- anybody --- */

int team_self(void); /* 0: alone, or who has started them */
int team_size(void); /* 1: alone */

enum team_word {
	TEAM_GONE,      /* a process has gone; from: which */
	TEAM_CANCEL,    /* a cancel request for one of your clients */
	TEAM_CANCELLED, /* it is done */
	TEAM_ASK,       /* a command of the console */
	TEAM_ANSWER,
	TEAM_EVENT,     /* something was pushed to a queue */
	TEAM_PLACE,     /* a limit that you wait for has a place, or somebody waits for one */
	TEAM_FIGURES_ASK, /* what are yours? */
	TEAM_FIGURES,   /* these */
	TEAM_WORDS
};
/* One listener for each; of those who have gone there may be several. */
void team_hear_gone(void (*fn)(int from, const uint8_t *text, size_t len));
void team_hear(enum team_word word, void (*fn)(int from, const uint8_t *text, size_t len));
/* Keeps what cannot go at once. false: it is too long, there is no such process, or no memory. */
bool team_send(int to, enum team_word word, const void *text, size_t len);
/* To all others; to how many. */
int team_send_all(enum team_word word, const void *text, size_t len);

/* How many clients each has: who accepts too many waits for the others. */
void team_count_clients(unsigned n);
unsigned team_clients(void); /* of all */
bool team_has_more_than_its_part(void);

#endif
