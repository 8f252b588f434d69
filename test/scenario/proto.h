/*
 * Protocol messages as words: "Query \"SELECT 1\"" to bytes and back. Both directions use the names
 * of the protocol documentation. Arguments by position:
 *
 *   Query sql · Parse name sql oid... · Bind portal statement value... · Describe S|P name
 *   Execute portal max · Close S|P name · Sync · Flush · Terminate · CopyData text · CopyDone
 *   CopyFail text · FunctionCall oid · Startup key value... · SSLRequest · GSSENCRequest
 *   CancelRequest pid key · Password text · Raw hex
 *   DataRow value... · RowDescription name... · CommandComplete tag · ReadyForQuery status
 *   ErrorResponse sqlstate message severity detail hint position · NoticeResponse likewise
 *   ParameterStatus name value · ParameterDescription oid... · NotificationResponse pid channel
 * text BackendKeyData pid key · ParseComplete · BindComplete · ... · Authentication code
 *
 * A bare NULL is the SQL NULL, big:N a value of N bytes. In an expectation fewer arguments may be
 * given than the message has;
 * * stands for any value and ~"text" for: some argument contains this text.
 */
#ifndef QB_SCENARIO_PROTO_H
#define QB_SCENARIO_PROTO_H

#include "fake_net.h"

struct word {
	struct word *next;
	char kind; /* 'b' bare, 'q' quoted, '~' contains */
	size_t len;
	char text[]; /* terminated */
};

/* A message: its name, then its arguments. */
struct words {
	struct word *first;
};

void words_free(struct words *w);
void words_add(struct words *w, char kind, const void *text, size_t len);
void words_copy(struct words *to, const struct words *from);
bool words_name_is(const struct words *w, const char *name);
/* The n-th argument, from 0; "" when there are fewer. */
const char *words_arg(const struct words *w, int n);
/* As it would be written. */
void words_print(const struct words *w, char *text, size_t size);

/* Splits "A x / B y" and takes one message at a time; false at the end of the text. An error is
 * fatal to the test program. */
bool words_next(const char **text, struct words *ret);

bool words_match(const struct words *want, const struct words *have);

/* client: the message is one that a client sends. False: not known, or bad arguments. */
bool proto_encode(const struct words *w, bool client, struct bytes *out);
/* Takes a message from the front. start: the first packet of a connection comes, without a type.
 * False: not complete yet. */
bool proto_decode(struct bytes *in, bool client, bool start, struct words *ret);

#endif
