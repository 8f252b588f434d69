/*
 * How a client, a server and a pool are written for another process, and read there. The two sides
 * of a value stand next to each other in move_pack.c; nothing but the channel carries them, so they are
 * as the machine has them.
 */
#ifndef QB_MOVE_INT_H
#define QB_MOVE_INT_H

#include "net/channel.h"
#include "pooler/move.h"
#include "pooler_int.h"

enum move_type {
	MOVE_USER = 'U',    /* what logins have taught: keys for servers */
	MOVE_POOL = 'P',
	MOVE_CLIENT = 'C',  /* with one descriptor; or two: its server's too */
	MOVE_SERVER = 'S',  /* idle */
	MOVE_TAKEN = 'A',   /* back: number */
	MOVE_REFUSED = 'N', /* back: number; it stays with who gave it */
	MOVE_CANCEL = 'K',  /* back: a cancel request for somebody who may be there */
	MOVE_NEXT = 'G',    /* back: a third process takes over from that one; or not, after all */
	MOVE_BYE = 'X',     /* back: ends by itself */
};

void move_put_u64(struct buf *b, uint64_t v);
uint64_t move_get_u64(struct wire_reader *r);
void move_put_bytes(struct buf *b, const void *p, size_t len);
const void *move_get_bytes(struct wire_reader *r, size_t *ret_len); /* borrowed */
void move_put_istr(struct buf *b, const struct istr *i);            /* may be NULL */
struct istr *move_get_istr(struct wire_reader *r);                  /* a reference; failed: memory, too */
void move_put_vars(struct buf *b, const struct vars *v);
void move_get_vars(struct wire_reader *r, struct vars *ret);
void move_put_secret(struct buf *b, const struct secret *s);
void move_get_secret(struct wire_reader *r, struct secret *ret);
/* Where an entry leads; false: somewhere else, or there is none. */
void move_put_entry(struct buf *b, const struct database *db);
bool move_same_entry(struct wire_reader *r, const struct database *db);
void move_put_peer(struct buf *b, const struct conn *c);
void move_get_peer(struct wire_reader *r, struct conn_addr *ret);
void move_put_statements(struct buf *b, const struct client *c);
bool move_get_statements(struct wire_reader *r, struct client *c);

/* adopt.c: a cancel request with a key that nobody has here */
void adopt_pass_on_cancel(int32_t pid, const uint8_t *key, size_t len);
/* We give, too. */
void adopt_tell_next(bool is_there);

#endif
