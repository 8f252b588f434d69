/*
 * How clients come in, and servers. For the rooms of the pooler only.
 */
#ifndef QB_LOGIN_LOGIN_H
#define QB_LOGIN_LOGIN_H

#include "pool/rooms.h"

/* client_login.c */
extern const struct conn_ops client_login_ops;
void client_login_start(struct client *c);
void client_login_free(struct client *c);
void client_auth_tick(struct client *c, usec_t now); /* answers that are held back */
usec_t client_login_slow_since(const struct client *c);
void client_auth_closing(struct client *c);
void client_login_welcome(struct client *c); /* the pool knows its welcome now */

/* server_login.c */
extern const struct conn_ops server_login_ops;
bool server_login_start(struct server *s);
/* This host, or altogether; the reason is for the log. */
void server_login_give_up(struct server *s, const struct pg_error *err, const char *reason);
void server_login_free(struct server *s);

/* lookup.c */
void lookup_forget(const char *user);
void lookup_free_all(void);

#endif
