/*
 * Users, as far as limits know them: how many clients and servers each has over all databases, and
 * what [users] allows them. An account exists as long as a client or a pool refers to it. Must not
 * know who waits for what. Entry points: account_* of pool_int.h.
 */
#include <string.h>

#include "pool/rooms.h"

static struct account *accounts;

struct account *account_find(const struct istr *name)
{
	struct account *a;

	HASH_FIND_PTR(accounts, &name, a);
	return a;
}

void account_each(void (*fn)(const struct account *a, void *arg), void *arg)
{
	struct account *a, *tmp;

	HASH_ITER (hh, accounts, a, tmp)
		fn(a, arg);
}

struct account *account_get(struct istr *name)
{
	struct account *a = account_find(name);

	if (a != NULL) {
		a->refs++;
		return a;
	}
	a = mem_zalloc(sizeof(*a));
	if (a == NULL)
		return NULL;
	a->name = istr_ref(name);
	HASH_ADD_PTR(accounts, name, a);
	if (a->hh.tbl == NULL) {
		istr_drop(&a->name);
		mem_free(a);
		return NULL;
	}
	a->refs = 1;
	return a;
}

void account_put(struct account **p)
{
	struct account *a = *p;

	*p = NULL;
	INVARIANT(a == NULL || a->refs > 0, "an account is put by more than hold it");
	if (a == NULL || --a->refs > 0)
		return;
	HASH_DEL(accounts, a);
	istr_drop(&a->name);
	mem_free(a);
}

static usec_t time_or(usec_t given, usec_t fallback)
{
	return given != USEC_NEVER ? given : fallback;
}

static int number_or(int given, int fallback)
{
	return given >= 0 ? given : fallback;
}

/* What the user's line does not say holds as for everybody. */
static void refresh(struct account *a)
{
	static const struct conf_user nothing = {.pool_mode = POOL_MODE_UNSET,
		.pool_size = -1,
		.reserve_pool_size = -1,
		.max_user_connections = -1,
		.max_user_client_connections = -1,
		.query_timeout = USEC_NEVER,
		.query_wait_timeout = USEC_NEVER,
		.idle_transaction_timeout = USEC_NEVER,
		.transaction_timeout = USEC_NEVER,
		.client_idle_timeout = USEC_NEVER};
	const struct params *p = &conf_current()->p;
	const struct conf_user *u = conf_find_user(conf_current(), istr_text(a->name));
	struct account_limits *l = &a->limits;

	if (u == NULL)
		u = &nothing;
	l->pool_mode = u->pool_mode;
	l->pool_size = u->pool_size;
	l->reserve_pool_size = u->reserve_pool_size;
	l->max_clients = number_or(u->max_user_client_connections, p->max_user_client_connections);
	l->max_servers = number_or(u->max_user_connections, p->max_user_connections);
	l->query_timeout = time_or(u->query_timeout, p->query_timeout);
	l->query_wait_timeout = u->query_wait_timeout;
	l->idle_transaction_timeout =
		time_or(u->idle_transaction_timeout, p->idle_transaction_timeout);
	l->transaction_timeout = time_or(u->transaction_timeout, p->transaction_timeout);
	l->client_idle_timeout = time_or(u->client_idle_timeout, p->client_idle_timeout);
	a->generation = pool_all.generation;
}

const struct account_limits *account_limits(struct account *a)
{
	if (a->generation != pool_all.generation)
		refresh(a);
	return &a->limits;
}
