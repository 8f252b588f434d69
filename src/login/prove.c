/*
 * Settings of the start-up packet are the server's to judge, and a login with bad ones fails, as in
 * Postgres: what a client brings that no server of its pool has accepted yet is put in force on one
 * before the client is greeted. What was accepted is remembered, so that few logins wait for it.
 * Must not know what the settings mean. Entry points: prove_* of login_int.h.
 */
#include <string.h>

#include "login_int.h"

/* All but the name of the application, which may be anything. NULL: nothing that a fresh session
 * does not have, or no memory. */
static struct istr *brought(const struct client *c)
{
	const struct vars *welcome = &c->pool->welcome;
	struct buf key = BUF_INIT;
	struct istr *i = NULL;

	for (int v = 0; v < VAR_COUNT; v++) {
		const struct istr *value = c->vars.v[v];

		if (v == VAR_APPLICATION_NAME || value == NULL || value == welcome->v[v])
			continue;
		buf_putc(&key, (char)('a' + v));
		buf_put(&key, istr_text(value), istr_len(value) + 1);
	}
	if (key.len > 0 || c->extra != NULL) {
		buf_putc(&key, '\0');
		buf_put(&key, istr_text(c->extra), istr_len(c->extra));
		if (!buf_failed(&key))
			i = istr_get((const char *)key.data, key.len);
	}
	buf_free(&key);
	return i;
}

static bool is_accepted(const struct pool *p, const struct istr *key)
{
	for (size_t i = 0; i < ARRAY_LEN(p->accepted); i++)
		if (p->accepted[i] == key)
			return true;
	return false;
}

/* In the place of the one that has been there for longest. */
static void accept_key(struct pool *p, struct istr *key)
{
	struct istr **at = &p->accepted[p->n_accepted++ % ARRAY_LEN(p->accepted)];

	if (is_accepted(p, key))
		return;
	istr_drop(at);
	*at = istr_ref(key);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct client *c = arg;
	struct client_login *l = c->login;

	l->proof = NULL;
	if (c->state == CLIENT_DEAD)
		return;
	if (err != NULL) {
		client_fatal(c, err);
		return;
	}
	accept_key(c->pool, l->proof_key);
	c->proven = true;
	c->login->then->proven(c);
}

bool prove_start(struct client *c)
{
	static const struct task_ops ops = {.done = on_done};
	const struct task_spec spec = {
		.ops = &ops, .arg = c, .client = c, .sql = ";", .script = true};
	struct client_login *l = c->login;

	CHECK_CLIENT(c);
	/* nobody is given a server now: the first statement will tell */
	if (route_stopped(c->pool->db) || (l->proof_key = brought(c)) == NULL)
		return false;
	if (is_accepted(c->pool, l->proof_key)) {
		c->proven = true;
		return false;
	}
	l->proof = task_submit(c->pool, &spec);
	return l->proof != NULL;
}

void prove_end(struct client *c)
{
	CHECK_CLIENT(c);
	(void)task_drop(&c->login->proof);
	istr_drop(&c->login->proof_key);
}
