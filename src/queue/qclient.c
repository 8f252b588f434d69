/*
 * What the queue keeps of a client: it is a kind of taker (taker.h). Must not know: what it takes, or how.
 */
#include "queue_int.h"

static struct qclient *of_taker(const struct taker *t)
{
	return CONTAINER_OF(t, struct qclient, taker);
}

static uint64_t its_id(const struct taker *t)
{
	return client_id(of_taker(t)->client);
}

static const char *its_user(const struct taker *t)
{
	return client_user(of_taker(t)->client);
}

static const struct taker_ops ops = {.kind = "client", .id = its_id, .user = its_user};

struct qclient *qclient_find(struct client *c)
{
	return client_slot(c);
}

struct qclient *qclient_get(struct client *c)
{
	struct qclient *qc = client_slot(c);
	struct qdb *db;

	if (qc != NULL)
		return qc;
	qc = mem_zalloc(sizeof(*qc));
	if (qc == NULL)
		return NULL;
	db = qdb_get(client_database(c));
	if (db == NULL) {
		mem_free(qc);
		return NULL;
	}
	qc->client = c;
	taker_begin(&qc->taker, &ops, db, client_pool(c));
	client_slot_set(c, qc);
	return qc;
}

void qclient_free(struct qclient *qc)
{
	client_slot_set(qc->client, NULL);
	taker_end(&qc->taker);
	mem_free(qc);
}
