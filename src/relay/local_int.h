/*
 * Between local.c, local_tx.c, local_many.c and portal.c.
 */
#ifndef QB_LOCAL_INT_H
#define QB_LOCAL_INT_H

#include "relay_int.h"

/* portal.c: answers */
void local_put(struct buf *b, const struct buf *part); /* with its failure */
enum step local_emit(struct client *c, struct buf *b);
enum step local_answer_simple(struct client *c, struct answer *a, const struct lstmt *l);
enum step local_answer_rows(struct client *c, struct portal *p, int32_t max_rows);
enum step local_answer_execute(struct client *c, struct answer *a, struct portal *p, int32_t max_rows);
enum step local_park(struct client *c, struct lstmt *l, struct portal *p, int32_t max_rows);
/* ... in a simple query whose claimant forgets it (exec.forgets). */
enum step local_park_forgetting(struct client *c, struct lstmt *l);

/* local_tx.c */
enum step local_begin(struct client *c, const struct sql_text *t);
enum step local_execute_tx(struct client *c, struct portal *p);

/* local.c */
struct replaced *replaced_new(int n); /* NULL: memory */
/* One string for the server; rp tells which of its statements are ours. Takes rp and sql. */
enum step local_send_string(struct client *c, struct replaced *rp, struct buf *sql);
enum step local_replace_execute(struct client *c, struct portal *p, struct replace *r); /* takes r */
void local_exec_init(struct exec *x, struct client *c, struct lstmt *l, bool simple);
/* A statement that has no parameters, as in any simple query. */
struct lstmt *local_claim_simple(struct client *c, const char *sql, size_t len, struct pg_error *err);

#endif
