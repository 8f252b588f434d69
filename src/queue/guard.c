/*
 * Stands between a server and libpq while the system session logs in. libpq computes as many rounds
 * of SCRAM as the server asks for, two thousand millions if it likes, and the loop waits for it;
 * and it would ask a Kerberos server, for which the loop waits too. So each message of the login is
 * looked at before libpq reads it (the caller peeks), and what is out of order is refused.
 *
 * libpq may read more than was seen: what came since. Therefore no state may let it read a message
 * after which unseen bytes cost anything. For the rounds to be computed the server has to repeat
 * the nonce of our first SCRAM message. That is sent when libpq has read GUARD_FIRST's, so what is
 * read together with that cannot know it; in GUARD_SCRAM nothing but a whole message with few
 * rounds is let, libpq takes a second one for an error. What begins in the unseen bytes and ends
 * behind the nonce cannot do it either: what is seen of it then begins with the nonce, or inside
 * the head of the message, and is no message.
 *
 * Must not know where the bytes come from. Entry point: guard_look.
 */
#include <stdio.h>
#include <string.h>

#include "guard.h"
#include "wire/scram.h"

enum code { CODE_OK = 0, CODE_PASSWORD = 3, CODE_MD5 = 5, CODE_SASL = 10, CODE_CONTINUE = 11 };

#define HEAD 5 /* type and length */

static uint32_t number_at(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum guard_verdict refuse(struct guard *g, const char *why)
{
	util_strlcpy(g->why, why, sizeof(g->why));
	return GUARD_REFUSE;
}

static enum guard_verdict let(struct guard *g, enum guard_state next)
{
	g->state = next;
	return GUARD_LET;
}

static enum guard_verdict look_at_rounds(struct guard *g, const char *msg, size_t len)
{
	int64_t rounds = scram_rounds_asked(msg, len);

	if (rounds < 0)
		return refuse(g, "malformed SCRAM message from the server");
	if (rounds <= scram_limit())
		return let(g, GUARD_PASSED);
	snprintf(g->why, sizeof(g->why),
		"the server asks for %lld rounds of SCRAM; max_scram_iterations allows %d",
		(long long)rounds, scram_limit());
	return GUARD_REFUSE;
}

static enum guard_verdict look_at_first(struct guard *g, uint32_t code)
{
	switch (code) {
	case CODE_OK:
		return let(g, GUARD_PASSED);
	case CODE_PASSWORD:
	case CODE_MD5:
		return let(g, GUARD_OTHER);
	case CODE_SASL:
		return let(g, GUARD_SCRAM);
	default:
		snprintf(g->why, sizeof(g->why),
			"the server asks for an authentication that qbouncer does not support "
			"(code %u)",
			(unsigned)code);
		return GUARD_REFUSE;
	}
}

enum guard_verdict guard_look(struct guard *g, const uint8_t *data, size_t len)
{
	static const char disorder[] = "the server's messages of the login are out of order";
	size_t all;
	uint32_t code;

	if (g->state == GUARD_PASSED)
		return GUARD_LET;
	if (len == 0)
		return GUARD_WAIT;
	if (g->state == GUARD_FAILED || (data[0] != 'R' && data[0] != 'E'))
		return refuse(g, disorder);
	if (len < HEAD)
		return GUARD_WAIT;
	all = (size_t)number_at(data + 1) + 1;
	if (all < HEAD + (data[0] == 'R' ? 4 : 0) || all > GUARD_BYTES)
		return refuse(g, "the server sends a malformed message of the login");
	if (len < all)
		return GUARD_WAIT;
	if (data[0] == 'E')
		return let(g, GUARD_FAILED);
	code = number_at(data + HEAD);
	if (g->state == GUARD_FIRST)
		return look_at_first(g, code);
	if (g->state == GUARD_SCRAM && code == CODE_CONTINUE)
		return look_at_rounds(g, (const char *)data + HEAD + 4, all - HEAD - 4);
	if (g->state == GUARD_OTHER && code == CODE_OK)
		return let(g, GUARD_PASSED);
	return refuse(g, disorder);
}
