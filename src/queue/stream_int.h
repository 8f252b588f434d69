/*
 * Readers of streams, between who asks (stream.c) and who waits for what (subscribed.c).
 */
#ifndef QB_QUEUE_STREAM_INT_H
#define QB_QUEUE_STREAM_INT_H

#include "bound.h"
#include "delivery.h"
#include "heap.h"
#include "park.h"
#include "patience.h"
#include "queue_call.h"
#include "quiet.h"
#include "stream.h"
#include "take.h"

/* A stream that somebody waits for, or did a moment ago. */
struct streamed {
	UT_hash_handle hh;
	struct subscribed *subs;
	uint64_t counted;   /* events that were pushed here */
	uint64_t uncounted; /* so often there was other news */
	char name[QSTMT_QUEUE_MAX + 1];
};

/* One of its subscriptions. */
struct subscribed {
	struct subscribed *prev, *next;
	struct streamed *of;
	struct qdb *db;
	struct wish *wishes;
	struct reader *asks;   /* by whose turn it is; or NULL */
	struct heap_node look; /* something is due, or just to be sure */
	bool looks;            /* at that time */
	unsigned slow;         /* so many have a delivery that they have not read to its end */
	usec_t rests;          /* until then the last delivery had all, but what was counted since; 0 */
	struct patience rest;
	char *within; /* of that one, owned */
	char name[SUBSCRIPTION_MAX + 1];
};

/* Those of its readers that wish the same. */
struct wish {
	struct wish *prev, *next;
	struct subscribed *sub;
	struct reader *readers; /* never none */
	bool news;              /* that none of them has asked about */
};

#define DUE_UNTOLD (-1)

/* Of a delivery that comes: what of it has its client got? */
enum shown {
	SHOWN_NOTHING,
	SHOWN_ROWS,
	SHOWN_UNREAD, /* it does not read them, the server is not read */
};

struct reader {
	struct park park;
	struct reader *prev, *next; /* of the same wish, the longest first */
	struct wish *wish;          /* NULL: it does not wait */
	struct taker *taker;        /* NULL: nobody is interested; only the statement still runs */
	struct qdb *db;
	struct pool *pool;
	struct task *task; /* asks; NULL: does not */
	struct take_args args;
	struct delivery got;
	struct bound bound; /* of what is kept of it */
	int32_t stamp; /* our number, of this TAKE */
	int64_t seed;  /* of which its token is made */
	bool direct;   /* it asks by the number of the stream */
	bool again;    /* there was news while it asked */
	uint8_t tries; /* how often it was sent again for other payloads */
	uint8_t repeats; /* and, since its last look, because others' transactions were in its way */
	bool expired;
	bool slow;     /* its delivery was not read as fast as it came */
	uint8_t shown; /* enum shown */
	usec_t heard; /* when the last row has come */
	uint64_t sent; /* SHOWN_UNREAD: so much the client had read when it was last looked at */
	int64_t due_ms; /* of an answer without a delivery; 0: there is more to look at; DUE_UNTOLD */
	bool out, ours; /* all that it may have out is; and was ended by this transaction */
	usec_t until;   /* its lease does not end before; 0: not known */
	char *least, *within, *lag; /* or NULL */
	struct patience patience; /* MIN */
	uint64_t uncounted;       /* news before it asked */
	struct quiet quiet;      /* WHERE, LAG: after a look in vain; MIN: until there may be enough */
	char *passed;            /* WHERE: lanes that have been looked at, as the database tells them; NULL: none */
	int64_t passed_ms;       /* ... when something of them comes; 0: not told */
	struct failure *failure; /* of its condition, while it is asked at which event */
	int16_t formats[SIFTED_COLUMNS];
	char name[SUBSCRIPTION_MAX + 1];
};

/* One asks; without memory it fails. */
typedef void reader_ask_fn(struct reader *w);

/* subscribed.c */
MUST_CHECK bool subscribed_start(reader_ask_fn *asks);
void subscribed_free(void);
MUST_CHECK bool reader_enlist(struct reader *w); /* false: memory */
void reader_unlist(struct reader *w);
void reader_asked(struct reader *w); /* in vain */
void reader_is_slow(struct reader *w);
/* Those who wait for it look then, if not before. */
void subscribed_look_at(struct subscribed *s, usec_t when);
/* The delivery that has come was all that there is. */
void reader_had_all(struct reader *w);
/* Nothing is there but what was pushed since the last delivery, which may be too little: it need not ask yet, and is parked. */
MUST_CHECK bool reader_rests(struct reader *w);

#endif
