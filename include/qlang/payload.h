/*
 * What the payloads of a queue are: jsonb, text or bytea.
 */
#ifndef QB_QLANG_PAYLOAD_H
#define QB_QLANG_PAYLOAD_H

#include "base/util.h"

/* What the payloads of a queue are: an option of the queue, and the type of a column. */
enum qpayload { QPAYLOAD_JSONB, QPAYLOAD_TEXT, QPAYLOAD_BYTEA, QPAYLOAD_COUNT };

struct qpayload_type {
	const char *name;   /* as the option has it, and SQL */
	const char *suffix; /* of the SQL functions that give such payloads */
	uint32_t oid;
};
extern const struct qpayload_type qpayloads[QPAYLOAD_COUNT];
bool qpayload_read(const char *name, size_t len, enum qpayload *ret); /* by name; false: there is no such */

#endif
