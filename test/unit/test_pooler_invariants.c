/* What is wrong in the pool's own state is found where it comes in, and where a state changes. */
#include "invariants.h"

#include "pool/reading.h"
#include "../../src/pooler/pooler_int.h"

static struct pool pool, other;
static struct database db;
static struct account account;

static int setup(void **state)
{
	(void)state;
	db = (struct database){.magic = DATABASE_MAGIC};
	pool = (struct pool){.magic = POOL_MAGIC, .db = &db, .account = &account};
	other = pool;
	return 0;
}

static struct client a_client(void)
{
	return (struct client){.magic = CLIENT_MAGIC, .state = CLIENT_ACTIVE, .pool = &pool};
}

static struct server a_server(void)
{
	return (struct server){
		.magic = SERVER_MAGIC, .state = SERVER_IDLE, .tx = 'I', .pool = &pool};
}

static void freed_client(void)
{
	struct client c = a_client();

	c.magic = 0;
	client_move(&c, CLIENT_BARRIER);
}

static void dead_client(void)
{
	struct client c = a_client();

	c.state = CLIENT_DEAD;
	client_move(&c, CLIENT_ACTIVE);
}

static void waits_with_a_server(void)
{
	struct client c = a_client();
	struct server s = a_server();

	c.link = &s;
	client_move(&c, CLIENT_WAITING);
}

static void parked_for_nothing(void)
{
	struct client c = a_client();

	client_move(&c, CLIENT_PARKED);
}

static void answer_unasked(void)
{
	struct client c = a_client();
	struct answer a = {0};

	client_answer(&c, &a);
}

static void freed_server(void)
{
	struct server s = a_server();

	s.magic = CLIENT_MAGIC;
	server_move(&s, SERVER_CLEANING);
}

static void active_alone(void)
{
	struct server s = a_server();

	pool.servers[SERVER_IDLE].count = 1;
	server_move(&s, SERVER_ACTIVE);
}

static void idle_with_a_task(void)
{
	struct server s = a_server();
	struct task t = {.magic = TASK_MAGIC};

	s.state = SERVER_TASK;
	s.task = &t;
	pool.servers[SERVER_TASK].count = 1;
	server_move(&s, SERVER_IDLE);
}

static void linked_twice(void)
{
	struct client one = a_client(), two = a_client();
	struct server s = a_server();

	s.link = &one;
	server_link(&s, &two);
}

static void linked_across_pools(void)
{
	struct client c = a_client();
	struct server s = a_server();

	s.pool = &other;
	server_link(&s, &c);
}

static void released_of_another(void)
{
	struct client c = a_client();
	struct server s = a_server();

	s.link = &c; /* and c knows nothing of it */
	server_release(&s);
}

static void two_tasks(void)
{
	struct task one = {.magic = TASK_MAGIC}, two = {.magic = TASK_MAGIC};
	struct server s = a_server();

	s.task = &one;
	task_start(&two, &s);
}

static void ended_task(void)
{
	struct task ended = {.magic = 0}, *t = &ended;

	(void)task_drop(&t);
}

static void dropped_too_often(void)
{
	struct pstmt *p, *again;
	struct sql_text t;

	sql_text_init(&t, "SELECT 1", 8, SQL_STANDARD, SQL_OF_PARSE);
	p = again = pstmt_get(NULL, &t, NULL, 0);
	p->refs = 0; /* as if somebody had dropped what he did not hold */
	pstmt_drop(&again);
}

static void freed_with_clients(void)
{
	struct client c = a_client();
	struct pool *p = &pool;

	pool.active.head = &c;
	pool_free(&p);
}

static void test_broken(void **state)
{
	(void)state;
	breaks(freed_client, "no client, or a freed one");
	breaks(dead_client, "a dead client moves");
	breaks(waits_with_a_server, "a client waits for a server and has one");
	breaks(parked_for_nothing, "a client is parked without a statement");
	breaks(answer_unasked, "an answer for a client that is not parked");
	breaks(freed_server, "no server, or a freed one");
	breaks(active_alone, "a server is active without a client");
	breaks(idle_with_a_task, "a server is idle and has work");
	breaks(linked_twice, "a server or a client is given away twice");
	breaks(linked_across_pools, "a client gets a server of another pool");
	breaks(released_of_another, "client and server are not linked both ways");
	breaks(two_tasks, "a task is started twice, or two on one server");
	breaks(ended_task, "no task, or one that has ended");
	breaks(dropped_too_often, "a statement is dropped by more than hold it");
	breaks(freed_with_clients, "a pool is freed that has clients");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_broken, setup)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
