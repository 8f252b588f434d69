/*
 * NATS JetStream: a stream that is a work queue, in files, and a consumer from which each client
 * pulls one message. All three steps are answered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"

#define STREAM                                                                                     \
	"{\"name\": \"q\", \"subjects\": [\"jobs\"], \"retention\": \"workqueue\", "               \
	"\"storage\": \"file\", \"num_replicas\": 1}"
#define CONSUMER                                                                                        \
	"{\"stream_name\": \"q\", \"config\": {\"durable_name\": \"w\", \"ack_policy\": \"explicit\", " \
	"\"deliver_policy\": \"all\", \"ack_wait\": 300000000000, \"max_ack_pending\": -1, "            \
	"\"max_waiting\": 2000}}"

/* The next line, without its end, which is worked off. */
static char *line(struct peer *p)
{
	size_t len = 1;
	uint8_t *end = NULL;
	char *text;

	while (!end) {
		const uint8_t *from = peek(p, len);

		len = p->have - p->at;
		end = memmem(from, len, "\r\n", 2);
		len++;
	}
	text = (char *)p->in + p->at;
	p->at = (size_t)(end + 2 - p->in);
	*end = '\0';
	return text;
}

static void publish(struct peer *p, const char *subject, const char *payload)
{
	char out[8192];
	int n = snprintf(out, sizeof(out), "PUB %s _I.%d %zu\r\n%s\r\n", subject, p->number,
		strlen(payload), payload);

	if (n < 0 || (size_t)n >= sizeof(out))
		exit(2);
	put_all(p->fd, out, (size_t)n);
}

/* The answer to a request: its bytes, which are worked off; keeps where it wants to be answered. */
static const char *answer(struct peer *p, size_t *ret_len)
{
	for (;;) {
		char *l = line(p), *last, reply[256];
		size_t len;

		if (strcmp(l, "PING") == 0) {
			put_all(p->fd, "PONG\r\n", 6);
			continue;
		}
		if (strncmp(l, "MSG ", 4) != 0 && strncmp(l, "HMSG ", 5) != 0)
			broken("nats", l, strlen(l));
		last = strrchr(l, ' ');
		len = strtoul(last + 1, NULL, 10);
		p->ack[0] = '\0';
		/* MSG subject number [reply] length */
		if (l[0] == 'M' && sscanf(l, "MSG %*s %*s %255s %zu", reply, &len) == 2)
			strcpy(p->ack, reply);
		l = (char *)peek(p, len + 2);
		p->at += len + 2;
		*ret_len = len;
		return l;
	}
}

/* A request whose answer is no error. */
static void ask(struct peer *p, const char *subject, const char *payload)
{
	size_t len;
	const char *said;

	publish(p, subject, payload);
	said = answer(p, &len);
	if (memmem(said, len, "\"error\"", 7) || memmem(said, len, "NATS/1.0 ", 9))
		broken("nats", said, len);
}

static void nats_open(struct peer *p)
{
	char out[256];
	int n = snprintf(out, sizeof(out),
		"CONNECT {\"verbose\": false, \"pedantic\": false, \"headers\": true, "
		"\"no_responders\": true}\r\nSUB _I.%d 1\r\nPING\r\n",
		p->number);
	char *l;

	put_all(p->fd, out, (size_t)n);
	do
		l = line(p);
	while (strncmp(l, "INFO ", 5) == 0);
	if (strcmp(l, "PONG") != 0)
		broken("nats", l, strlen(l));
}

static void nats_setup(struct peer *p)
{
	ask(p, "$JS.API.STREAM.CREATE.q", STREAM);
	ask(p, "$JS.API.CONSUMER.DURABLE.CREATE.q.w", CONSUMER);
}

static void nats_push(struct peer *p, const char *payload)
{
	ask(p, "jobs", payload);
}

static bool nats_take(struct peer *p)
{
	size_t len;

	publish(p, "$JS.API.CONSUMER.MSG.NEXT.q.w", "{\"batch\": 1, \"no_wait\": true}");
	(void)answer(p, &len);
	return p->ack[0] != '\0';
}

static void nats_done(struct peer *p)
{
	char subject[256];

	strcpy(subject, p->ack);
	ask(p, subject, "+ACK");
}

int do_nats(const struct target *t, char **arg)
{
	static const struct broker b = {nats_open, nats_setup, nats_push, nats_take, nats_done};

	return run_broker(&b, t, arg);
}
