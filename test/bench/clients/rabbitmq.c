/*
 * RabbitMQ: a durable queue, persistent messages with publisher confirms, basic.get and basic.ack
 * (which the protocol does not answer). AMQP 0-9-1 by hand: as much of it as that needs.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"

#define METHOD(class, number) ((uint32_t)(class) << 16 | (number))

enum {
	START = METHOD(10, 10),
	START_OK = METHOD(10, 11),
	TUNE = METHOD(10, 30),
	TUNE_OK = METHOD(10, 31),
	OPEN = METHOD(10, 40),
	OPEN_OK = METHOD(10, 41),
	CHANNEL_OPEN = METHOD(20, 10),
	CHANNEL_OPEN_OK = METHOD(20, 11),
	DECLARE = METHOD(50, 10),
	DECLARE_OK = METHOD(50, 11),
	PUBLISH = METHOD(60, 40),
	GET = METHOD(60, 70),
	GET_OK = METHOD(60, 71),
	GET_EMPTY = METHOD(60, 72),
	ACK = METHOD(60, 80),
	CONFIRM = METHOD(85, 10),
	CONFIRM_OK = METHOD(85, 11),
};

enum { FRAME_METHOD = 1, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT = 8 };

/* What is sent: frames, one behind the other. */
struct out {
	uint8_t data[8192];
	size_t len, frame;
};

static void put(struct out *o, const void *p, size_t len)
{
	if (sizeof(o->data) - o->len < len)
		exit(2);
	memcpy(o->data + o->len, p, len);
	o->len += len;
}

static void put_u8(struct out *o, uint8_t v)
{
	put(o, &v, 1);
}

static void put_u16(struct out *o, uint16_t v)
{
	v = htons(v);
	put(o, &v, 2);
}

static void put_u32(struct out *o, uint32_t v)
{
	v = htonl(v);
	put(o, &v, 4);
}

static void put_u64(struct out *o, uint64_t v)
{
	v = htobe64(v);
	put(o, &v, 8);
}

static void put_short(struct out *o, const char *s)
{
	put_u8(o, (uint8_t)strlen(s));
	put(o, s, strlen(s));
}

static void frame(struct out *o, uint8_t type, uint16_t channel)
{
	put_u8(o, type);
	put_u16(o, channel);
	put_u32(o, 0);
	o->frame = o->len;
}

static void end(struct out *o)
{
	uint32_t be = htonl((uint32_t)(o->len - o->frame));

	memcpy(o->data + o->frame - 4, &be, 4);
	put_u8(o, 0xce);
}

static void method(struct out *o, uint32_t id)
{
	frame(o, FRAME_METHOD, id >> 16 == 10 ? 0 : 1);
	put_u32(o, id);
}

static void flush(struct peer *p, struct out *o)
{
	put_all(p->fd, o->data, o->len);
	o->len = 0;
}

/* The next frame of this type: its payload, which is worked off. */
static const uint8_t *next(struct peer *p, uint8_t want, size_t *ret_len)
{
	for (;;) {
		const uint8_t *head = peek(p, 7);
		uint8_t type = head[0];
		uint32_t len;

		memcpy(&len, head + 3, 4);
		len = ntohl(len);
		head = peek(p, 7 + (size_t)len + 1) + 7;
		p->at += 7 + (size_t)len + 1;
		*ret_len = len;
		if (type == want)
			return head;
		if (type != FRAME_HEARTBEAT)
			broken("rabbitmq", head, len);
	}
}

/* The next method, which is one of two: its arguments. */
static const uint8_t *expect(struct peer *p, uint32_t want, uint32_t or, uint32_t *ret_got)
{
	size_t len;
	const uint8_t *m = next(p, FRAME_METHOD, &len);
	uint32_t id;

	memcpy(&id, m, 4);
	id = ntohl(id);
	if (id != want && id != or)
		broken("rabbitmq", m + 4, len - 4);
	if (ret_got)
		*ret_got = id;
	return m + 4;
}

static void rabbit_open(struct peer *p)
{
	struct out o = {.len = 0};
	uint8_t limits[8];

	put(&o, "AMQP\0\0\x09\x01", 8);
	flush(p, &o);
	expect(p, START, START, NULL);
	method(&o, START_OK);
	put_u32(&o, 0); /* no properties */
	put_short(&o, "PLAIN");
	put_u32(&o, 12);
	put(&o, "\0guest\0guest", 12);
	put_short(&o, "en_US");
	end(&o);
	flush(p, &o);
	memcpy(limits, expect(p, TUNE, TUNE, NULL), sizeof(limits));
	method(&o, TUNE_OK);
	put(&o, limits, 6); /* channels, bytes of a frame */
	put_u16(&o, 0);     /* no heartbeat */
	end(&o);
	method(&o, OPEN);
	put_short(&o, "/");
	put_short(&o, "");
	put_u8(&o, 0);
	end(&o);
	flush(p, &o);
	expect(p, OPEN_OK, OPEN_OK, NULL);
	method(&o, CHANNEL_OPEN);
	put_short(&o, "");
	end(&o);
	method(&o, CONFIRM);
	put_u8(&o, 0);
	end(&o);
	flush(p, &o);
	expect(p, CHANNEL_OPEN_OK, CHANNEL_OPEN_OK, NULL);
	expect(p, CONFIRM_OK, CONFIRM_OK, NULL);
}

static void rabbit_setup(struct peer *p)
{
	struct out o = {.len = 0};

	method(&o, DECLARE);
	put_u16(&o, 0);
	put_short(&o, "q");
	put_u8(&o, 2); /* durable */
	put_u32(&o, 0);
	end(&o);
	flush(p, &o);
	expect(p, DECLARE_OK, DECLARE_OK, NULL);
}

static void rabbit_push(struct peer *p, const char *payload)
{
	struct out o = {.len = 0};
	size_t len = strlen(payload);

	method(&o, PUBLISH);
	put_u16(&o, 0);
	put_short(&o, "");
	put_short(&o, "q");
	put_u8(&o, 0);
	end(&o);
	frame(&o, FRAME_HEADER, 1);
	put_u16(&o, 60);
	put_u16(&o, 0);
	put_u64(&o, len);
	put_u16(&o, 0x1000); /* one property: */
	put_u8(&o, 2);       /* persistent */
	end(&o);
	frame(&o, FRAME_BODY, 1);
	put(&o, payload, len);
	end(&o);
	flush(p, &o);
	expect(p, ACK, ACK, NULL);
}

static bool rabbit_take(struct peer *p)
{
	struct out o = {.len = 0};
	const uint8_t *m;
	uint32_t got;
	uint64_t size;
	size_t len;

	method(&o, GET);
	put_u16(&o, 0);
	put_short(&o, "q");
	put_u8(&o, 0);
	end(&o);
	flush(p, &o);
	m = expect(p, GET_OK, GET_EMPTY, &got);
	if (got == GET_EMPTY)
		return false;
	memcpy(&p->tag, m, 8);
	p->tag = be64toh(p->tag);
	memcpy(&size, next(p, FRAME_HEADER, &len) + 4, 8);
	for (size_t left = be64toh(size); left > 0; left -= len)
		next(p, FRAME_BODY, &len);
	return true;
}

static void rabbit_done(struct peer *p)
{
	struct out o = {.len = 0};

	method(&o, ACK);
	put_u64(&o, p->tag);
	put_u8(&o, 0);
	end(&o);
	flush(p, &o);
}

int do_rabbitmq(const struct target *t, char **arg)
{
	static const struct broker b = {
		rabbit_open, rabbit_setup, rabbit_push, rabbit_take, rabbit_done};

	return run_broker(&b, t, arg);
}
