/*
 * Who may come in: the user file, and the conversation that proves a password. Knows messages and
 * text, no sockets, no pools.
 */
#ifndef QB_AUTH_AUTH_H
#define QB_AUTH_AUTH_H

#include "conf/conf.h"
#include "wire/build.h"
#include "wire/scram.h"

/* --- users known to the proxy (auth_file) --- */

struct auth_user {
	char name[128];
	struct secret secret;
	struct secret passthrough; /* SECRET_SCRAM_KEYS learnt from the last successful SCRAM login, or SECRET_NONE */
};

/* Everything in this part is of the loop's thread. */
/* (Re)reads auth_file: lines `"user" "secret"`, ; and # comments, "" for a quote. All or nothing: on
 * an error the old table stays, and err says "file:line: why" of each mistake, a line each, as many
 * as fit. path NULL or "": empty table. */
MUST_CHECK bool auth_file_load(const char *path, char *err, size_t err_size);
/* The same, without putting it in force. */
MUST_CHECK bool auth_file_check(const char *path, char *err, size_t err_size);
/* Had the file that was read last, with either of them, a password in it? */
MUST_CHECK bool auth_file_has_secrets(void);
const struct auth_user *auth_user_find(const char *name); /* borrowed until the next load */
/* Is the user in auth_file, with or without a password? */
MUST_CHECK bool auth_user_in_file(const char *name);
/* Remembers the keys of a login for pass-through to servers; auth_session does it by itself. Creates
 * an entry for users that the file does not have: such an entry does not make the user known to
 * auth_type = trust, and the next load drops it. */
void auth_user_learn(const char *name, const struct scram_verifier *v, const uint8_t client_key[SCRAM_KEY_LEN]);
void auth_each_user(void (*fn)(const struct auth_user *u, void *arg), void *arg);
void auth_file_free(void);

/* --- a client proves who it is --- */

/* OUTSIDE: the password is there (auth_session_proved()); PAM or LDAP says whether it is good. */
enum auth_verdict { AUTH_CONTINUE, AUTH_ACCEPTED, AUTH_REFUSED, AUTH_OUTSIDE };

/* Who wants to come in, and what is known of him. */
struct auth_request {
	enum auth_type type;
	const char *user;
	int scram_iterations;
	/* Of auth_query. looked_up: secret decides in place of auth_file, and NULL is an unknown user. */
	bool looked_up;
	const struct secret *secret; /* borrowed for the call */
	/* CERT, PEER: what the certificate or the kernel says of him, NULL for nothing; and the map. */
	const char *system_name, *map;
	/* tls-server-end-point of the connection: then SCRAM-SHA-256-PLUS is offered, too. 0: none. */
	size_t binding_len;
	uint8_t binding[SCRAM_BINDING_MAX];
};

struct auth_session;
/*
 * Starts: `out` gets the AuthenticationXxx request (nothing when accepted at once). The user's
 * secret decides between md5 and SCRAM when the type is md5 and the secret is SCRAM, as pgbouncer.
 * Unknown users go through a mock conversation of the same shape and are refused at its end.
 * AUTH_CERT and AUTH_PEER compare system_name, through the map, with the name of a known user.
 * AUTH_HBA is for the caller to resolve. PAM, LDAP: the password is asked for, see AUTH_OUTSIDE.
 *
 * *ret and, when REFUSED, err are always set. NULL: out of memory (*ret is REFUSED, err says so).
 * Every refusal has severity FATAL. AuthenticationOk is the caller's to send after ACCEPTED, behind
 * what `out` has.
 */
MUST_CHECK struct auth_session *auth_session_new(const struct auth_request *req, struct buf *out,
	enum auth_verdict *ret, struct pg_error *err);
/* Body of a 'p' message. After ACCEPTED or REFUSED any further one is refused. REFUSED: err is filled (28P01, the text Postgres gives, or 08P01). */
enum auth_verdict auth_session_message(struct auth_session *s, const uint8_t *body, size_t len,
	struct buf *out, struct pg_error *err);
/* After ACCEPTED of a user of auth_query: what opens a server for him as well, keys or password.
 * NULL: nothing, or the user file knows. Borrowed. */
const struct secret *auth_session_proved(const struct auth_session *s);
/* After REFUSED: the secret may be out of date (a password was wrong). */
MUST_CHECK bool auth_session_was_wrong(const struct auth_session *s);
/* Why it was refused: for the log, never for the client. "": the error says it all. */
const char *auth_session_reason(const struct auth_session *s);
MUST_CHECK bool auth_session_is_sasl(const struct auth_session *s);
void auth_session_free(struct auth_session **p);

/* --- we prove who we are, to a server --- */

struct auth_login;
/* secret is copied; NULL: we have none. NULL returned: out of memory. */
MUST_CHECK struct auth_login *auth_login_new(const char *user, const struct secret *secret);
/* Before the first message: the tls-server-end-point data of the connection. */
void auth_login_bind(struct auth_login *l, const uint8_t *data, size_t len);
/* Body of an 'R' message other than AuthenticationOk. Writes the answer to out. REFUSED: err has
 * the reason (28P01 with hint when we have no password to give; 08P01 for garbage). */
enum auth_verdict auth_login_message(struct auth_login *l, const uint8_t *body, size_t len,
	struct buf *out, struct pg_error *err);
/* True when SCRAM was used and the server proved itself, or no SCRAM was used. Ask at AuthenticationOk. */
MUST_CHECK bool auth_login_complete(const struct auth_login *l);
void auth_login_free(struct auth_login **p);

#endif
