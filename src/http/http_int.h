/* The private face of the http module. */
#ifndef QB_HTTP_INT_H
#define QB_HTTP_INT_H

#include "base/buf.h"
#include "base/util.h"

/* serve.c: an answer, filled in by whom the server asks. */
struct http_reply {
	int code;
	const char *type;
	struct buf body;
};
void http_reply_text(struct http_reply *r, int code, const char *text);

struct serve_spec {
	const char *addr; /* borrowed until serve_close() */
	int port;
	bool reuseport;
	unsigned most;   /* connections; those that came first make room */
	usec_t patience; /* for a request and its answer, from the first moment on */
	/* false: it is to be had later, from serve_answer_waiting() */
	bool (*answer)(const char *path, struct http_reply *ret);
};
/* Once for each loop. */
void serve_start(void);
/* false: err says why, and nothing is listened on. */
MUST_CHECK bool serve_open(const struct serve_spec *spec, char *err, size_t err_size);
void serve_close(void);
/* To all that were told "later". The body stays the caller's. */
void serve_answer_waiting(const struct http_reply *r);

/* The whole answer of /metrics: Prometheus' text format, version 0.0.4. */
void metrics_write(struct buf *b);

#endif
