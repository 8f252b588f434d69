/*
 * What claimants see of a client. Changes nothing that the pool goes by.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/rooms.h"
#include "wire/sqllex.h"

enum client_tx client_tx(const struct client *c)
{
	if (c->tx.virtual == VTX_FAILED)
		return CLIENT_TX_FAILED;
	if (c->tx.virtual == VTX_OPEN)
		return CLIENT_TX_VIRTUAL;
	if (c->link == NULL || c->link->tx == 'I')
		return CLIENT_TX_IDLE;
	return c->link->tx == 'E' ? CLIENT_TX_FAILED : CLIENT_TX_OPEN;
}

char client_status(const struct client *c)
{
	switch (client_tx(c)) {
	case CLIENT_TX_IDLE:
		return 'I';
	case CLIENT_TX_FAILED:
		return 'E';
	case CLIENT_TX_VIRTUAL:
	case CLIENT_TX_OPEN:
		break;
	}
	return 'T';
}

bool client_is_linked(const struct client *c)
{
	return c->link != NULL;
}

struct pool *client_pool(const struct client *c)
{
	return c->pool;
}

const char *client_database(const struct client *c)
{
	return istr_text(c->database);
}

const char *client_user(const struct client *c)
{
	return istr_text(c->user);
}

const char *client_address(const struct client *c)
{
	const struct conn_addr *a = c->conn != NULL ? conn_peer(c->conn) : NULL;

	if (a == NULL)
		return "";
	return a->is_unix ? "unix" : a->host;
}

uint64_t client_id(const struct client *c)
{
	return c->id;
}

void *client_slot(const struct client *c)
{
	return c->slot;
}

void client_slot_set(struct client *c, void *data)
{
	c->slot = data;
}

bool client_is_alive(const struct client *c)
{
	return c->state != CLIENT_DEAD && c->conn != NULL && conn_alive(c->conn);
}

uint64_t client_output_end(const struct client *c)
{
	return c->conn != NULL ? conn_output_end(c->conn) : UINT64_MAX;
}

uint64_t client_sent(const struct client *c)
{
	return c->conn != NULL ? conn_sent(c->conn) : c->sent;
}

static const struct {
	const char *encoding;
	unsigned wide;
} wide_encodings[] = {
	{"SJIS", SQL_WIDE_SJIS},
	{"BIG5", SQL_WIDE},
	{"GBK", SQL_WIDE},
	{"UHC", SQL_WIDE},
	{"GB18030", SQL_WIDE_GB18030},
	{"JOHAB", SQL_WIDE},
	{"SHIFT_JIS_2004", SQL_WIDE_SJIS | SQL_WIDE_JIS_2004},
};

static unsigned wide_of(const char *encoding)
{
	if (encoding[0] == 'U' && encoding[1] == 'T') /* UTF8: nearly always */
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(wide_encodings); i++)
		if (strcmp(encoding, wide_encodings[i].encoding) == 0)
			return wide_encodings[i].wide;
	return 0;
}

unsigned vars_dialect(const struct vars *v)
{
	const char *standard = istr_text(v->v[VAR_STANDARD_STRINGS]);
	bool off = standard[0] == 'o' && standard[1] == 'f';

	return wide_of(istr_text(v->v[VAR_CLIENT_ENCODING])) | (off ? 0 : SQL_STANDARD);
}

unsigned client_dialect(const struct client *c)
{
	return vars_dialect(&c->vars);
}

bool client_encoding_unsafe(const struct client *c)
{
	return wide_of(istr_text(c->vars.v[VAR_CLIENT_ENCODING])) != 0;
}

/* A number of milliseconds, or with a unit, as Postgres takes it. */
static usec_t timeout_value(const char *text)
{
	static const struct {
		const char *unit;
		usec_t factor;
	} units[] = {{"", USEC_MSEC}, {"us", 1}, {"ms", USEC_MSEC}, {"s", USEC_SEC},
		{"min", 60 * USEC_SEC}, {"h", 3600 * USEC_SEC}, {"d", 86400 * USEC_SEC}};
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	while (*end == ' ')
		end++;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(end, units[i].unit) == 0 && n < USEC_NEVER / units[i].factor)
			return (usec_t)n * units[i].factor;
	return 0;
}

usec_t client_statement_timeout(const struct client *c)
{
	const char *p = istr_text(c->extra), *end = p + istr_len(c->extra);

	CHECK_CLIENT(c);
	while (p < end) {
		const char *name = p, *value = name + strlen(name) + 1;

		if (util_strcasecmp(name, "statement_timeout") == 0)
			return timeout_value(value);
		p = value + strlen(value) + 1;
	}
	return 0;
}

void client_watch_tx(struct client *c)
{
	c->tx.watched = true;
}

bool client_tx_in_part(const struct client *c)
{
	return c->tx.failed;
}
