/*
 * What a session is beyond its transactions, and how a server comes back from it. For the rooms of the
 * pooler only.
 */
#ifndef QB_SESSION_SESSION_H
#define QB_SESSION_SESSION_H

#include "pool/rooms.h"

/* Whose answers they are. */
extern const struct dest dest_reset; /* ours; an error closes the server */
extern const struct dest dest_vars;  /* SET of the client's settings; an error ends the client */
/* A PREPARE of the client's on another server, and what is around it; an error leaves the statement
 * out. arg: its name, struct istr *, or NULL */
extern const struct dest dest_prepare;
extern const struct dest dest_listen;  /* ours: LISTEN and UNLISTEN; an error closes the server */
extern const struct dest dest_inspect; /* ours: what the session has become */
extern const struct dest dest_begin;   /* the client's BEGIN, sent late; an error closes both */

/* session.c: state beyond transactions. PIN_UNKNOWN: beside enum sql_touch. */
#define PIN_UNKNOWN 128u /* a setting whose name is not known */
struct inspection;
bool session_begin(struct client *c); /* its settings are complete; false: memory */
bool session_add_setting(struct istr **list, const char *name, const char *value);
/* Tracked settings go back to what they were at the beginning: all or only one, without those in kept. */
void session_restore_vars(struct client *c, const char *only, const struct istr *kept, struct buf *status);
bool session_add_origin(const struct client *c, struct istr **list);
bool session_restore_all(struct client *c, bool identity); /* identity: role and authorization too */
/* A text with these effects is sent to the client's server. */
/* enum sql_touch, of all statements of a text that the client's server is to get. */
unsigned session_touches(const struct client *c, struct sql_text *t);
void session_touch(struct client *c, struct sql_text *t, unsigned touches);
void session_touch_call(struct client *c, const struct wire_msg *m); /* FunctionCall */
/* false: the client waits until it is known what its text means. */
bool session_reads(struct client *c, struct sql_text *t);
/* A simple query is about to be sent. What it sets, a reference; NULL: nothing that is known now. */
struct istr *session_effect(struct client *c, struct sql_text *t);
void session_apply(struct server *s, const struct istr *effect);
/* As many servers of its pool as may be are kept by others, and this text would make the client keep one more. */
unsigned session_pin_limit(const struct pool *p);
bool session_pin_refused(const struct client *c, struct sql_text *t);
const char *session_pin_names(unsigned pins); /* static buffer */
bool session_holds(struct server *s); /* at the end of a transaction: its client keeps it, or it is asked first */
bool session_is_dirty(struct server *s);
void session_discarded(struct server *s);
void session_released(struct server *s);
void session_touch_again(struct server *s); /* Bind of the unnamed statement that is sent as it comes */
void session_ask_again(struct server *s);
/* Session pooling: a statement with a name that may change settings is parsed; one with a name is bound. */
void session_prepared(struct server *s, const char *name, struct sql_text *t);
void session_bound(struct server *s, const char *name);
void session_forget_prepared(struct server *s);
void session_restore_discarded(struct server *s);
bool session_sync(struct client *c); /* puts the client's settings in force where they differ; false: closed */

/* sqlprep.c: PREPARE in SQL */
/* A PREPARE or DEALLOCATE is about to be sent, as a statement of its own; NULL: the server has to be asked. */
struct istr *sqlprep_effect(struct client *c, struct sql_text *t);
bool sqlprep_is_effect(const struct istr *effect);
/* What the text executes by SQL is known, and changes nothing of the session. */
bool sqlprep_is_all_known(struct client *c, struct sql_text *t);
void sqlprep_apply(struct server *s, const struct istr *effect); /* it has been carried out */
bool sqlprep_sync(struct client *c); /* the client's in the place of those on its server; false: closed */
void sqlprep_forget(struct client *c, struct server *s); /* either may be NULL: those of the other are gone */
bool sqlprep_known(const struct server *s, const char *name, const char *sql);
/* Of those that are known only the ones in seen (names with their terminators) are left. */
bool sqlprep_keep(struct server *s, const struct buf *seen);

/* listen.c */
bool listen_is_ours(const struct client *c);
/* name: of a channel that has to be listened to before it counts, or NULL. WAITS: client_again() follows. */
enum listen_ready { LISTEN_READY, LISTEN_WAITS, LISTEN_NO_MEMORY };
enum listen_ready listen_prepare(struct client *c, const char *name);
/* Said in the transaction under way; behind listen_prepare(). name NULL: all. false: closed. */
bool listen_change(struct client *c, const char *name, bool listen);
bool listen_unlisten_all(struct client *c);           /* as UNLISTEN *; false: closed */
void listen_tx_end(struct client *c, bool committed); /* of a client that has `listening` */
void listen_flush(struct client *c);
void listen_end(struct client *c);
void listen_wake(struct database *db); /* may have been paused or suspended */
void listen_free(struct database *db);

/* inspect.c */
bool inspect_begin(struct server *s);
unsigned inspect_asks(const struct server *s); /* enum sql_touch: of the question under way */
/* Its answer may put settings of the start-up packet in force again: what comes next waits for it. */
bool inspect_may_restore(const struct server *s);
void inspect_free(struct server *s);
/* For a statement that runs beside the client's server, at rest: under which settings? The last question may have failed. */
enum inspect_known { INSPECT_KNOWN, INSPECT_ASKED, INSPECT_UNKNOWN } inspect_insist(struct client *c);

/* release.c */
void server_check(struct server *s);          /* asks it to */
void server_forsake(struct server *s); /* what is kept there for the next task is discarded, when it is at rest */
void server_release(struct server *s); /* nothing outstanding: to the next one, or idle */
void server_unlink_abandoned(struct server *s, bool said_goodbye); /* its client is gone */

#endif
