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

static const char *its_address(const struct taker *t)
{
	return client_address(of_taker(t)->client);
}

static struct task_settings *its_settings(const struct taker *t)
{
	return task_settings_of(of_taker(t)->client);
}

static void speaks(const struct taker *t, struct task_spec *spec)
{
	spec->client = of_taker(t)->client;
}

static usec_t its_timeout(const struct taker *t)
{
	return client_statement_timeout(of_taker(t)->client);
}

static bool is_there(const struct taker *t)
{
	return client_is_alive(of_taker(t)->client);
}

/* In a transaction it may finish them. */
static bool is_to_leave(const struct taker *t)
{
	const struct client *c = of_taker(t)->client;

	return pooler_is_shutting_down() >= SHUTDOWN_WAIT_SERVERS && client_is_to_leave(c) &&
	       client_tx(c) == CLIENT_TX_IDLE;
}

/* When the client ends in it, nothing was delivered. */
static void deliver(struct taker *t, struct answer *a)
{
	struct qclient *qc = of_taker(t);
	struct client *c = qc->client;

	qc->answer_end = UINT64_MAX;
	client_answer(c, a);
	qc = qclient_find(c);
	if (qc != NULL)
		qc->answer_end = client_output_end(c);
}

static void answer(struct taker *t, struct answer *a)
{
	client_answer(of_taker(t)->client, a);
}

static enum part_taken part(struct taker *t, struct answer *a)
{
	return client_answer_part(of_taker(t)->client, a);
}

static uint64_t sent(const struct taker *t)
{
	return client_sent(of_taker(t)->client);
}

static void fail(struct taker *t, const struct pg_error *err)
{
	client_fail(of_taker(t)->client, err);
}

static void send_away(struct taker *t)
{
	client_send_away(of_taker(t)->client);
}

static void leased(struct taker *t)
{
	client_watch_tx(of_taker(t)->client);
}

static void waits(struct taker *t)
{
	client_show_beginning(of_taker(t)->client);
}

static void waited(struct taker *t, usec_t time)
{
	client_waited(of_taker(t)->client, time);
}

static void heartbeat(struct taker *t)
{
	client_heartbeat(of_taker(t)->client);
}

static const struct taker_ops ops = {.kind = "client",
	.id = its_id,
	.user = its_user,
	.address = its_address,
	.settings = its_settings,
	.speaks = speaks,
	.statement_timeout = its_timeout,
	.is_there = is_there,
	.is_to_leave = is_to_leave,
	.deliver = deliver,
	.answer = answer,
	.part = part,
	.sent = sent,
	.fail = fail,
	.send_away = send_away,
	.leased = leased,
	.waits = waits,
	.waited = waited,
	.heartbeat = heartbeat};

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
	db->had_clients = true;
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
