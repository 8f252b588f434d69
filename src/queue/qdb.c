/*
 * The databases and the clients that have queues, by name and one after the other. Knows nothing of
 * what is kept of them.
 */
#include <string.h>

#include "queue_int.h"

static struct {
	struct qdb *databases;
	struct qclient *clients; /* all of them, for the snapshot of leases */
} known;

/* --- databases --- */

struct qdb *qdb_first(void)
{
	return known.databases;
}

struct qdb *qdb_find(const char *name)
{
	struct qdb *db;

	HASH_FIND_STR(known.databases, name, db);
	return db;
}

struct qdb *qdb_get(const char *name)
{
	struct qdb *db = qdb_find(name);

	if (db != NULL)
		return db;
	db = mem_zalloc(sizeof(*db));
	if (db == NULL)
		return NULL;
	db->magic = QDB_MAGIC;
	util_strlcpy(db->name, name, sizeof(db->name));
	HASH_ADD_STR(known.databases, name, db);
	if (db->hh.tbl != NULL)
		return db;
	mem_free(db);
	return NULL;
}

void qdb_free(struct qdb *db)
{
	HASH_DEL(known.databases, db);
	db->magic = 0;
	mem_free(db);
}

/* --- clients --- */

struct qclient *qclients(void)
{
	return known.clients;
}

struct qclient *qclient_find(struct client *c)
{
	return client_slot(c);
}

struct qclient *qclient_get(struct client *c)
{
	struct qclient *qc = client_slot(c);

	if (qc != NULL)
		return qc;
	qc = mem_zalloc(sizeof(*qc));
	if (qc == NULL)
		return NULL;
	qc->magic = QCLIENT_MAGIC;
	qc->client = c;
	qc->db = qdb_get(client_database(c));
	if (qc->db == NULL) {
		mem_free(qc);
		return NULL;
	}
	DL_APPEND(known.clients, qc);
	client_slot_set(c, qc);
	return qc;
}

void qclient_free(struct qclient *qc)
{
	client_slot_set(qc->client, NULL);
	DL_DELETE(known.clients, qc);
	qc->magic = 0;
	mem_free(qc);
}
