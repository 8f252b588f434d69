/*
 * What the parts of a client's login share: client_login.c (packets, greeting), client_auth.c (who
 * may come in, and how he proves it), lookup.c (auth_query).
 */
#ifndef QB_LOGIN_INT_H
#define QB_LOGIN_INT_H

#include "auth/hba.h"
#include "auth/outside.h"
#include "net/dns.h"
#include "login/login.h"
#include "relay/relay.h"
#include "session/session.h"

enum login_phase {
	PHASE_FIRST,    /* a start-up packet is awaited */
	PHASE_TLS,      /* the handshake is under way */
	PHASE_HOST,     /* the name of its address is asked for */
	PHASE_LOOKUP,   /* auth_query runs */
	PHASE_AUTH,     /* a password message is awaited */
	PHASE_DEFERRED, /* a password message is there and waits: too many have failed from there */
	PHASE_OUTSIDE,  /* PAM or LDAP is asked */
	PHASE_REFUSED,  /* failed; the answer is held back */
	PHASE_GREETING, /* authenticated; the pool learns its welcome */
	PHASE_PROVING,  /* a server judges the settings that it brings */
	PHASE_CANCEL,
};

/* How it goes on. */
struct login_then {
	void (*looked_up)(struct client *c); /* the answer of c->login->lookup is there */
	void (*authenticated)(struct client *c, const struct secret *proved);
	void (*proven)(struct client *c);
};

enum login_asked { ASKED_SSL = 1, ASKED_GSS = 2 };
enum console_rights { RIGHTS_NONE, RIGHTS_STATS, RIGHTS_ADMIN };

struct lookup;

struct client_login {
	enum login_phase phase;
	const struct login_then *then;
	uint8_t asked;    /* enum login_asked: in front of the start-up packet */
	uint8_t rights;   /* enum console_rights */
	bool replication; /* physical */
	struct auth_session *auth;
	bool bad_setting; /* one that cannot be kept: too long, or no memory */
	struct buf startup;          /* of a replication client: what its server is told */
	struct buf settings;         /* all of the start-up packet */
	/* PHASE_LOOKUP, and the answer while it is used */
	struct lookup *lookup;
	struct client *lookup_prev, *lookup_next;
	bool lookup_disabled; /* FAILED: nobody may enter the database where it is asked */
	struct task *proof;          /* PHASE_PROVING */
	struct istr *proof_key;
	struct dns_peer *host_ask;   /* PHASE_HOST */
	char *host;                  /* the confirmed name of its address; "" for none, NULL: not asked for */
	enum auth_type type;         /* asked of this client */
	const char *map;             /* of the rule; only until authentication begins */
	char *options;               /* of the rule, for PAM and LDAP; owned */
	struct outside *outside;     /* PHASE_OUTSIDE */
	struct pg_error *refusal;    /* PHASE_REFUSED */
	const char *log_reason;      /* in the words of pgbouncer; NULL: the message */
	usec_t held_until;           /* PHASE_REFUSED, PHASE_DEFERRED */
	bool deferred;               /* it was decided whether its proof waits */
};

/* client_auth.c */
void client_auth_begin(struct client *c);
void client_auth_message(struct client *c, const uint8_t *body, size_t len);
bool client_auth_defers(struct client *c); /* true: its message is looked at later */
void client_auth_looked_up(struct client *c); /* the answer of c->login->lookup is there */

/* lookup.c: auth_query */
enum lookup_state { LOOKUP_PENDING, LOOKUP_KNOWN, LOOKUP_UNKNOWN, LOOKUP_FAILED };
/* The user of the client is to be looked up: auth_user is set, and the file does not know him. */
bool lookup_wanted(const struct client *c);
/* PENDING: looked_up() follows. Else lookup_state() and lookup_secret() tell. */
enum lookup_state lookup_start(struct client *c);
enum lookup_state lookup_result(const struct client *c);
bool lookup_was_late(const struct client *c); /* FAILED: it waited for query_wait_timeout */
const char *lookup_database(const struct client *c); /* where it is asked */
const struct secret *lookup_secret(const struct client *c); /* KNOWN; may be of kind SECRET_NONE */
void lookup_leave(struct client *c);                        /* waits no more, needs the answer no more */

/* prove.c: the settings of the start-up packet. true: proven() follows, or the end of the client. */
bool prove_start(struct client *c);
void prove_end(struct client *c);

/* replication.c */
bool replication_start(struct client *c); /* from the greeting on; false: there is no server */
void replication_parameters(const struct pool *p, const char **pairs, int *n, int max);

#endif
