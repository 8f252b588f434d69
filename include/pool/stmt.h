/*
 * What outlives a message: settings that follow a client, texts of statements that all share, and
 * what a client calls its statements and portals by.
 */
#ifndef QB_POOL_STMT_H
#define QB_POOL_STMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "pool/intercept.h"
#include "wire/sqltext.h"

/* --- settings that follow the client --- */

enum var_id {
	VAR_CLIENT_ENCODING,
	VAR_DATESTYLE,
	VAR_TIMEZONE,
	VAR_INTERVALSTYLE,
	VAR_STANDARD_STRINGS,
	VAR_APPLICATION_NAME,
	VAR_COUNT
};

/* Interned, reference-counted strings: equal values are equal pointers. NULL: unknown. */
struct istr;
struct istr *istr_get(const char *s, size_t len); /* NULL without memory */
struct istr *istr_ref(struct istr *i);
void istr_drop(struct istr **p);
const char *istr_text(const struct istr *i); /* "" for NULL */
size_t istr_len(const struct istr *i);

struct vars {
	struct istr *v[VAR_COUNT];
};
/* Canonical name of a tracked parameter, or -1. Case-insensitive. */
int var_find(const char *name);
const char *var_name(enum var_id id);
void vars_set(struct vars *v, enum var_id id, const char *value);
void vars_copy_missing(struct vars *dst, const struct vars *src);
void vars_clear(struct vars *v);
unsigned vars_dialect(const struct vars *v); /* enum sql_dialect */
/* Brings a value that a client gave at start-up to the form in which the server reports it. */
void vars_canonical(struct vars *v, const struct vars *welcome);
/* SQL that takes a server from one state to the client's; false when there is nothing to do. */
bool vars_diff_sql(const struct vars *server, const struct vars *client, struct istr *server_extra,
	struct istr *client_extra, bool stale, struct buf *sql);

/* --- statements --- */

struct reading; /* reading.h */

/* A text with parameter types and a reading, shared by all clients and servers of the process. */
struct pstmt {
	UT_hash_handle hh;
	uint64_t id;
	uint32_t refs;
	int n_oids;
	bool unsure; /* of one client alone, as a statement under way may change the reading */
	struct sql_text text; /* what stands in the key */
	size_t key_len;       /* from `reading` on */
	struct reading *reading; /* NULL: it means the same under all */
	uint8_t key[]; /* n_oids x uint32 (host order), then the text, then '\0' (not part of the key) */
};
bool pstmt_is(const struct pstmt *p, const struct sql_text *t, const uint32_t *oids, int n);
struct pstmt *pstmt_ref(struct pstmt *p);
void pstmt_drop(struct pstmt **p);
const uint32_t *pstmt_oids(const struct pstmt *p);
#define PSTMT_NAME_SIZE 24
const char *pstmt_name(const struct pstmt *p, char dst[PSTMT_NAME_SIZE]);
/* Their numbers, in their names: from this one on; up to this one. */
void pstmt_numbers_from(uint64_t number);
uint64_t pstmt_numbers_to(void);
/* Might it be one of those, under which servers know the statements of all clients? */
bool pstmt_is_name(const char *name);

/* A statement that we answer: claimed by a claimant, or transaction control, or empty, or one of the
 * session (local_session.c). */
enum lstmt_kind { LSTMT_CLAIMED, LSTMT_TX, LSTMT_EMPTY, LSTMT_SESSION };
struct lstmt {
	enum lstmt_kind kind;
	uint32_t refs;
	const struct interceptor *icpt; /* CLAIMED */
	void *stmt;                     /* CLAIMED; owned */
	enum sql_tx tx;                 /* TX */
	struct sql_text text;           /* TX, SESSION; owned, with a terminator. Others do not have it: no memory is there */
};
struct lstmt *lstmt_ref(struct lstmt *l);
void lstmt_drop(struct lstmt **p);

/*
 * What a client calls a statement by. Exactly one of p and l is set. Whether its Parse succeeds, or
 * what comes before it in the batch, is known when the answer comes to the head of `expect`: until
 * then it is in the client's list `unconfirmed`. The same holds for its Close.
 */
struct cstmt {
	UT_hash_handle hh;
	struct cstmt *prev, *next; /* of `unconfirmed`; unnamed: next is what it replaces once it is confirmed */
	struct pstmt *p;
	struct lstmt *l;
	uint16_t refs;  /* the client's table, entries of `expect` */
	uint16_t batch; /* of the server, in which it was parsed */
	bool confirmed; /* its Parse has succeeded */
	bool closed;    /* not in the table */
	char name[];
};

/* A portal of a local statement. */
struct portal {
	struct portal *next;
	struct lstmt *stmt;
	size_t size; /* with its parameters, formats and values: one block */
	struct bind_param *params;
	int n_params;
	int16_t *formats;
	int n_formats;
	bool executed;
	bool synced; /* a Sync has followed: ends with the transaction */
	bool placed; /* the client's server has one of this name, so that it refuses another */
	struct buf rows; /* what is left of an answer that a row limit cut */
	size_t rows_pos;
	char tag[64];
	char name[];
};

#endif
