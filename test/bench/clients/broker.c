/*
 * The same loop of push, take and done against brokers (broker.h): NATS JetStream, RabbitMQ.
 *
 *   client nats     TARGET N SECONDS LIMIT PAYLOAD
 *   client rabbitmq TARGET N SECONDS LIMIT PAYLOAD
 *
 * Arguments and output are those of outside.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker.h"

struct run {
	const struct broker *broker;
	const char *load, *payload;
	unsigned long limit;
	double from, until;
	atomic_ulong turns, counted;
};

struct thread {
	struct peer peer;
	struct run *run;
	pthread_t id;
};

const uint8_t *peek(struct peer *p, size_t len)
{
	if (p->at > 0 && p->at + len > sizeof(p->in)) {
		memmove(p->in, p->in + p->at, p->have - p->at);
		p->have -= p->at;
		p->at = 0;
	}
	while (p->have - p->at < len) {
		ssize_t n = recv(p->fd, p->in + p->have, sizeof(p->in) - p->have, 0);

		if (n <= 0)
			die(n == 0 ? "the connection was closed" : "recv");
		p->have += (size_t)n;
	}
	return p->in + p->at;
}

void broken(const char *who, const void *said, size_t len)
{
	fprintf(stderr, "%s: %.*s\n", who, (int)len, (const char *)said);
	exit(1);
}

static bool over(struct run *r)
{
	return now() >= r->until || (r->limit > 0 && r->turns >= r->limit);
}

static void *work(void *arg)
{
	struct thread *t = arg;
	struct run *r = t->run;
	const struct broker *b = r->broker;
	bool drain = strcmp(r->load, "drain") == 0, push = strcmp(r->load, "push") == 0;

	while (!over(r)) {
		if (!drain)
			b->push(&t->peer, r->payload);
		if (!push) {
			while (!b->take(&t->peer))
				if (drain || now() >= r->until)
					return NULL;
			b->done(&t->peer);
		}
		r->turns++;
		if (now() >= r->from)
			r->counted++;
	}
	return NULL;
}

int run_broker(const struct broker *b, const struct target *t, char **arg)
{
	int n = atoi(arg[0]);
	double seconds = atof(arg[1]), start;
	struct run r = {.broker = b,
		.load = t->user,
		.limit = strtoul(arg[2], NULL, 10),
		.payload = arg[3]};
	struct thread *all = need((size_t)n, sizeof(*all));

	for (int i = 0; i < n; i++) {
		all[i].run = &r;
		all[i].peer.number = i;
		all[i].peer.fd = dial(t);
		b->open(&all[i].peer);
		if (i == 0)
			b->setup(&all[i].peer);
	}
	start = now();
	r.from = r.limit > 0 ? start : start + seconds / 5;
	r.until = r.from + seconds;
	for (int i = 0; i < n; i++)
		if (pthread_create(&all[i].id, NULL, work, &all[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(all[i].id, NULL);
	printf("rate %.1f\nturns %lu\nseconds %.4f\n", (double)r.counted / (now() - r.from),
		(unsigned long)r.turns, now() - start);
	return 0;
}
