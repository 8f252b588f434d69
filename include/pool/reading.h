/*
 * The settings under which Postgres reads the literals of a text: reading.c says what they are for.
 */
#ifndef QB_POOL_READING_H
#define QB_POOL_READING_H

#include "pool/client.h"
#include "pool/server.h"

/* Interned: equal ones are equal pointers. */
struct reading;
#define READING_COUNT VAR_COUNT /* all reported but application_name; a list of others */
struct reading *reading_get(struct istr *const v[READING_COUNT]); /* a reference; NULL: memory */
struct istr *const *reading_values(const struct reading *r);
struct reading *reading_ref(struct reading *r);
void reading_drop(struct reading **p);

/* A text of the client's. A reference; NULL: memory. */
struct pstmt *reading_statement(struct client *c, struct sql_text *t, const uint32_t *oids, int n);
/* Would reading_statement() have this one, for its text? */
bool reading_is(struct client *c, const struct pstmt *p);
/* May what is under way change the reading of what the client sends now? */
bool reading_in_doubt(const struct client *c);
void reading_settle(struct client *c); /* what was under way has been reported */
void reading_forget(struct client *c);
/* It is prepared for the server's client now, under settings that are not known: so once more when it is used next. */
bool reading_is_missed(const struct server *s, const struct pstmt *p);
/* From the settings of the server's client to those of p's Parse, or back; nothing when they are the same. */
void reading_diff_sql(const struct server *s, const struct pstmt *p, bool back, struct buf *sql);

/* stmt.c: a reference; NULL: memory. reading NULL: our own text, or one that has no literals. A new one takes what is
 * known of the text, which is that of a Parse. */
struct pstmt *pstmt_get(struct reading *reading, struct sql_text *t, const uint32_t *oids, int n);
/* One that is not shared. */
struct pstmt *pstmt_new(struct sql_text *t, const uint32_t *oids, int n);
void pstmt_is_read(struct pstmt *p, struct reading *reading);

/* query.c: before and behind a Parse for the server's client. false: the server was closed. */
bool server_put_reading(struct server *s, const struct pstmt *p, bool back);

#endif
