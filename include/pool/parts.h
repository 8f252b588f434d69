/*
 * What a client and a server consist of, beside their connections and lists: parts that belong
 * together, each with the file that writes it.
 */
#ifndef QB_POOL_PARTS_H
#define QB_POOL_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"

struct inspection;
struct lstmt;
struct pg_error;
struct portal;
struct pstmt;
struct session_prepared;

/* --- of a client --- */

enum virtual_tx { VTX_NONE, VTX_OPEN, VTX_FAILED };

/* The transaction under way, as its client and its claimant see it. */
struct transaction {
	uint8_t virtual;    /* enum virtual_tx */
	bool executed : 1;  /* something was executed since the last Sync */
	bool watched : 1;   /* the claimant wants tx_ended */
	bool failed : 1;    /* an ErrorResponse or a ROLLBACK in it */
	bool committed : 1; /* a COMMIT in it */
	char *begin_sql;    /* VTX_OPEN: what the client said */
	usec_t start;
};

/* PARKED: what a claimant will answer. portal.c. */
struct parked {
	struct lstmt *stmt;
	struct portal *portal; /* in the extended protocol; NULL when it was closed meanwhile */
	int32_t max_rows, shown; /* shown: rows that were sent before the answer */
	bool simple;           /* in a simple query */
	bool begun;            /* ... whose columns were sent, and some of its rows */
};

/* What has become of the message at the head of a client's input, which is dealt with once more. */
struct input_head {
	struct pg_error *error; /* with no_server; owned; NULL: memory */
	uint32_t string_at;     /* of a Query: so far it has been sent; local_many.c */
	bool no_server : 1;     /* it fails with that error */
	bool again : 1;   /* its statement was replaced by one that has succeeded: replace.again */
	bool repeats : 1; /* it has waited for client_again() */
	int16_t next; /* type of the message that has come behind it, 'S' is a Sync; -1: nothing yet */
	bool promised : 1; /* before it stand complete answers, or a Flush: what is written already may not be kept back */
	bool wait_noticed : 1; /* the notice of query_wait_notify was sent */
};

enum console_user { CONSOLE_NONE, CONSOLE_USER, CONSOLE_OWN_USER /* the unix user that we run as */ };
enum claimant_told { TOLD_NOTHING, TOLD_BEGUN, TOLD_ENDED };
enum client_takeover {
	TAKEOVER_MAY,
	TAKEOVER_SENT, /* MOVING: it was sent */
	TAKEOVER_NO,   /* no other process can have it */
};

/* --- of a server --- */

/* The unnamed statement of a server. server.c is the only writer. */
enum unnamed_state {
	UNNAMED_NONE, /* none, or none that matters */
	UNNAMED_RAW,  /* one of its client that we have no copy of */
	UNNAMED_SENT, /* p: its Parse was sent */
	UNNAMED_THERE, /* p: ... and has succeeded */
};
struct unnamed {
	struct pstmt *p;
	uint32_t touches; /* RAW: session_touches() */
	uint16_t batch;   /* SENT: in which */
	uint8_t state;
};

/* A COPY FROM STDIN. copy.c is the only writer. */
enum copy_state {
	COPY_NONE,
	COPY_DATA,   /* CopyInResponse seen: its client sends data */
	COPY_ENDING, /* CopyDone or CopyFail was sent: CommandComplete or an error is to come */
};
struct copy {
	uint8_t state;
	uint8_t stray; /* type of the message that the client sent in a copy that had not failed */
};

/* What may have become of a session on its server, as far as its statements tell. session.c. */
struct trace {
	uint8_t touched;        /* enum sql_touch, PIN_UNKNOWN: what has to be asked for when the transaction has ended */
	uint8_t touched_behind; /* ... at most, behind what is outstanding */
	bool reset_seen : 1;    /* with `touched`: by something that may take settings back */
	bool unseen : 1;        /* it may have settings whose names nobody knows: for its client alone */
	bool dialect_doubt : 1; /* what is outstanding may change what the client's texts mean: client_dialect() */
	bool rare_doubt : 1;    /* ... until the transaction has ended: by a setting that is not reported, reading.c */
	bool dirty : 1;         /* CLEANING, or about to be: holds what only DISCARD ALL ends */
	struct buf custom;      /* with `touched`: names that no view lists; session pooling: all that were seen */
};

/* Session pooling: statements of a client that may change settings each time that they are carried out. session.c. */
struct sets_prepared {
	struct session_prepared *list; /* those with names */
	unsigned n;
	bool any;    /* the list lacks some */
	bool by_sql; /* SQL has prepared one */
};

/* What the session has become is asked for. inspect.c. */
struct inspect {
	struct inspection *now; /* the question under way */
	bool again;             /* session pooling: the last one failed */
	bool insisted;          /* ... and a statement that does not run here has asked once more */
};

/* Who has had a server, and may. */
struct use {
	bool engine;      /* the engine's own: for its tasks alone, its settings are pinned; engines.c */
	bool beyond;      /* counts for no limit: the one that listens */
	int32_t holder;   /* process id that the last client to be linked was told */
	bool alone;       /* only `holder` has ever held it */
	bool served;      /* somebody has had it */
	bool checked;     /* has shown that it is alive, and did nothing since */
	usec_t held_since;
};

/* Whether what is noted of a server's settings is so. */
struct settings_doubt {
	bool vars_stale : 1;  /* session pooling: a RESET has ended some of `vars` */
	bool extra_stale : 1; /* a RESET may have ended some of `extra` */
	bool discarded : 1;   /* session pooling: DISCARD ALL was carried out, what it did to `vars` is to come */
	bool settling : 1;    /* its client or task waits until its settings are in force */
};

/* What was sent since the last Sync, and answered since the last ReadyForQuery. */
struct batch {
	uint16_t sent, answered; /* count Sync */
	bool unsynced;   /* extended messages were sent since the last one: server_expect() and what is beside it write it */
	bool discarding; /* DISCARD ALL or DEALLOCATE ALL was sent */
	bool completed;  /* something but a Close was answered, or refused, since the last ReadyForQuery */
};

#endif
