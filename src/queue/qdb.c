/*
 * The databases that have queues, by name and one after the other. Knows nothing of what is kept of them.
 */
#include <string.h>

#include "queue_int.h"
#include "spelling.h"

static struct qdb *databases;

struct qdb *qdb_first(void)
{
	return databases;
}

struct qdb *qdb_find(const char *name)
{
	struct qdb *db;

	HASH_FIND_STR(databases, name, db);
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
	HASH_ADD_STR(databases, name, db);
	if (db->hh.tbl != NULL)
		return db;
	mem_free(db);
	return NULL;
}

void qdb_free(struct qdb *db)
{
	HASH_DEL(databases, db);
	db->magic = 0;
	mem_free(db);
}

void qdb_is_spelt(struct qdb *db, const char *name)
{
	CHECK_QDB(db);
	db->spelt = db->spelt || !spelling_is_utf8(name);
}

bool qdb_may_be_spelt(const struct qdb *db, const char *name)
{
	CHECK_QDB(db);
	return !spelling_is_ascii(name, strlen(name)) && (db->spelt || !spelling_is_utf8(name));
}
