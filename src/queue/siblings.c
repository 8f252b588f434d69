/*
 * What processes of one program say to each other about queues: that one has something new, and
 * with which number each stamps its leases. Must not know what follows from that: it is told as the system session
 * tells what other proxies say (system.h), and to the registry. Entry point: siblings_tell().
 */
#include <string.h>

#include "net/team.h"
#include "siblings.h"
#include "system.h"

static const struct siblings_ops *siblings;

enum what { WHAT_EVENT, WHAT_ANY, WHAT_NUMBER, WHAT_NUMBER_TOO };

/* Followed by the names of the database and, of an event, of the queue, each with its terminator. */
struct said {
	int32_t id;
	uint8_t what;
};

struct text {
	uint8_t data[512];
	size_t len;
};

static bool put_name(struct text *t, const char *name)
{
	size_t len = strlen(name) + 1;

	if (len > sizeof(t->data) - t->len)
		return false;
	memcpy(t->data + t->len, name, len);
	t->len += len;
	return true;
}

static void say(int to, enum what what, const struct qdb *db, const char *queue, int32_t id)
{
	struct said head = {.id = id, .what = (uint8_t)what};
	struct text t = {.len = sizeof(head)};

	memcpy(t.data, &head, sizeof(head));
	if (!put_name(&t, db->name) || !put_name(&t, queue))
		return;
	if (to != 0)
		(void)team_send(to, TEAM_EVENT, t.data, t.len);
	else
		(void)team_send_all(TEAM_EVENT, t.data, t.len);
}

void siblings_tell(const struct qdb *db, const char *queue)
{
	CHECK_QDB(db);
	if (team_self() != 0)
		say(0, queue != NULL ? WHAT_EVENT : WHAT_ANY, db, queue != NULL ? queue : "", 0);
}

void siblings_number(const struct qdb *db, int32_t id)
{
	CHECK_QDB(db);
	if (team_self() != 0)
		say(0, WHAT_NUMBER, db, "", id);
}

static void heard_number(int from, const struct said *said, struct qdb *db)
{
	int32_t own = siblings->number(db, from, said->id);

	if (said->what == WHAT_NUMBER && own > 0)
		say(from, WHAT_NUMBER_TOO, db, "", own);
}

static void on_said(int from, const uint8_t *text, size_t len)
{
	const char *name = (const char *)text + sizeof(struct said), *queue;
	struct said said;
	struct qdb *db;

	if (len < sizeof(said) + 2 || text[len - 1] != '\0')
		return;
	memcpy(&said, text, sizeof(said));
	queue = name + strlen(name) + 1;
	db = qdb_find(name);
	/* one that is not used here has nobody who waits, and nothing that is remembered */
	if (db == NULL || queue >= (const char *)text + len)
		return;
	if (said.what == WHAT_NUMBER || said.what == WHAT_NUMBER_TOO)
		heard_number(from, &said, db);
	else
		system_heard(db, said.what == WHAT_EVENT ? queue : NULL);
}

static void on_gone(int from, const uint8_t *text, size_t len)
{
	(void)text;
	(void)len;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		siblings->gone(db, from);
}

void siblings_start(const struct siblings_ops *ops)
{
	siblings = ops;
	team_hear(TEAM_EVENT, on_said);
	team_hear_gone(on_gone);
}
