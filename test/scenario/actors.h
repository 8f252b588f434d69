/*
 * Who speaks with the program: scripted clients, and servers that answer by themselves as Postgres
 * would, except where a rule of the dialogue says otherwise.
 */
#ifndef QB_SCENARIO_ACTORS_H
#define QB_SCENARIO_ACTORS_H

#include "fake_net.h"
#include "proto.h"

struct msg {
	struct msg *next;
	struct words w;
	bool answered; /* server: it was this message's turn */
	bool seen;     /* an expectation was about it, or has passed over it */
};

/* A name and a text: prepared statements, portals. */
struct named {
	struct named *next;
	char *name, *sql;
	struct words values;
};

struct actor {
	struct actor *next;
	bool client;
	int id;
	struct fake_peer *peer;
	struct msg *inbox;
	/* client */
	bool ssl_pending; /* the next byte is an answer to SSLRequest */
	bool asked_tls; /* a server: the last packet was SSLRequest */
	int32_t pid, key;
	/* server */
	bool started, canceller, hung, in_error, copying;
	bool simple; /* what it was told last to carry out came as a Query */
	bool again;  /* the message under way is answered when the server is resumed */
	bool doomed; /* its transaction will not be committed */
	char tx;
	struct named *statements, *portals;
	bool holding;      /* a message is under way whose answer is kept back */
	struct bytes held; /* until Flush, Sync or an error */
};

/* What a server answers; the newest rule that matches is used. */
void rule_add(const struct words *match, const char *reply, bool once);
void rules_clear(void);
void servers_refuse(const char *text); /* NULL: accept again */
/* Servers answer nothing after their login. */
void servers_manual(bool on);

void actors_init(void);
void actors_free(void);
struct actor *actors_first(void);
struct actor *actor_client_new(int id);
struct actor *actor_find(bool client, int id);
int actors_logins(void); /* connections to servers so far, but for those of cancel requests */
int actors_cancels(void); /* CancelRequests that servers have got */
int actors_servers_open(void);
/* Did a client say goodbye? Its leases stay then. */
bool actors_terminated(void);

void actor_say(struct actor *a, const char *messages);
void actor_say_words(struct actor *a, const struct words *w);
void actor_resume(struct actor *a); /* answer what has piled up */
void actor_bye(struct actor *a, bool reset);
bool actor_gone(const struct actor *a); /* either end closed */

/* Reads what has come and lets servers answer. True: something was done. */
bool actors_pump(void);

#endif
