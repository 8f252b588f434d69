/*
 * Who may come in, and how he proves it: one decision for each login, from auth_type or the rules
 * of auth_hba_file, fail closed. Where auth_query is needed the client waits for it; what fails is
 * answered later and later to an address that fails again and again. Must not know packets of the
 * start-up, nor what comes after the login. Entry points: login_int.h.
 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "auth/penalty.h"
#include "login_int.h"

#define HINT_RULES "The rules are in auth_hba_file; the first one that fits decides."

static const char *address_of(const struct client *c)
{
	const struct conn_addr *peer = conn_peer(c->conn);

	return peer->is_unix ? "unix" : peer->host;
}

/* Who pays for failed logins: an address, or a user of this machine. */
static const char *origin_of(const struct client *c, char dst[64])
{
	unsigned uid;

	if (!conn_peer(c->conn)->is_unix)
		return conn_peer(c->conn)->host;
	if (!conn_peer_uid(c->conn, &uid))
		return "unix";
	snprintf(dst, 64, "unix user %u", uid);
	return dst;
}

static bool is_tls(const struct client *c)
{
	return conn_is_tls(c->conn);
}

/* The name in the certificate that the client has shown and we have verified; NULL for none. */
static const char *cert_name(const struct client *c, char *dst, size_t size)
{
	struct conn_tls_peer peer;

	CHECK_CLIENT(c);
	if (!conn_tls_peer(c->conn, &peer) || !peer.verified || peer.cn[0] == '\0' ||
		util_strlcpy(dst, peer.cn, size) >= size)
		return NULL;
	return dst;
}

static bool find_rule(struct client *c);
static void choose(struct client *c);

/* --- refusals --- */

/* The answer to a failed login may come late; until then nothing is read. */
static void refuse_late(struct client *c, const struct pg_error *err)
{
	struct client_login *l = c->login;
	usec_t now = loop_now(), most = conf_current()->p.login_failure_delay;
	char text[64];
	usec_t wait = most > 0 ? penalty_failed(origin_of(c, text), now, most) : 0;

	auth_session_free(&l->auth);
	if (wait > 0)
		l->refusal = mem_dup(err, sizeof(*err));
	if (l->refusal == NULL) {
		client_fatal_because(c, err, l->log_reason != NULL ? l->log_reason : err->message);
		return;
	}
	l->phase = PHASE_REFUSED;
	l->held_until = now + wait;
	conn_want_read(c->conn, false);
}

/* Only what says something about passwords and names is held back. */
static void refuse(struct client *c, const struct pg_error *err)
{
	if (strncmp(err->sqlstate, "28", 2) == 0)
		refuse_late(c, err);
	else
		client_fatal(c, err);
}

void client_auth_tick(struct client *c, usec_t now)
{
	struct client_login *l = c->login;

	CHECK_CLIENT(c);
	if (l == NULL || now < l->held_until)
		return;
	if (l->phase == PHASE_REFUSED) {
		client_fatal_because(
			c, l->refusal, l->log_reason != NULL ? l->log_reason : l->refusal->message);
	} else if (l->phase == PHASE_DEFERRED) {
		l->phase = PHASE_AUTH;
		conn_want_read(c->conn, true);
	}
}

/* The first message of a proof waits when many from there have failed just now. */
bool client_auth_defers(struct client *c)
{
	const struct params *p = &conf_current()->p;
	struct client_login *l = c->login;
	usec_t most = p->login_failure_delay, wait;
	char text[64];

	CHECK_CLIENT(c);
	if (l->deferred || most == 0)
		return false;
	l->deferred = true;
	wait = penalty_deferral(origin_of(c, text), loop_now(), most);
	if (p->client_login_timeout > 0 && wait > p->client_login_timeout / 2)
		wait = p->client_login_timeout / 2;
	if (wait == 0)
		return false;
	l->phase = PHASE_DEFERRED;
	l->held_until = loop_now() + wait;
	conn_want_read(c->conn, false);
	return true;
}

/* Since when it does not get on: our own delay is not its fault. */
usec_t client_login_slow_since(const struct client *c)
{
	const struct client_login *l = c->login;

	CHECK_CLIENT(c);
	if (l == NULL || !l->deferred || l->phase == PHASE_REFUSED || l->held_until == 0)
		return c->connect_time;
	return l->held_until;
}

void client_auth_closing(struct client *c)
{
	struct client_login *l = c->login;

	CHECK_CLIENT(c);
	if (l == NULL)
		return;
	mem_free(l->refusal);
	l->refusal = NULL;
	outside_drop(&l->outside);
	dns_peer_cancel(&l->host_ask);
	lookup_leave(c);
	prove_end(c);
}

/* --- PAM and LDAP --- */

#define TOO_MANY "Too many logins wait for it."

static const char *method_name(const struct client *c)
{
	return c->login->type == AUTH_PAM ? "PAM" : "LDAP";
}

static void refuse_outside(struct client *c, const char *sqlstate, const char *detail)
{
	struct pg_error err;

	pg_error_set(&err, sqlstate, "%s authentication failed for user \"%s\"", method_name(c),
		client_user(c));
	if (detail != NULL)
		pg_error_detail(&err, "%s", detail);
	refuse(c, &err);
}

static void on_outside(void *arg, enum outside_verdict v, const char *note)
{
	struct client *c = arg;

	c->login->outside = NULL;
	if (c->state == CLIENT_DEAD)
		return;
	if (v == OUTSIDE_GOOD) {
		c->login->then->authenticated(c, auth_session_proved(c->login->auth));
		return;
	}
	if (v == OUTSIDE_CROWDED) {
		refuse_outside(c, "53300", TOO_MANY);
		return;
	}
	log_write(
		v == OUTSIDE_WRONG ? LOG_LVL_INFO : LOG_LVL_WARNING, client_prefix(c), "%s", note);
	refuse_outside(c, "28000", NULL);
}

static void ask_outside(struct client *c)
{
	struct client_login *l = c->login;
	const struct outside_request r = {.type = l->type,
		.user = client_user(c),
		.password = auth_session_proved(l->auth)->plain,
		.address = conn_peer(c->conn)->is_unix ? "" : address_of(c),
		.options = l->options != NULL ? l->options : ""};

	l->phase = PHASE_OUTSIDE;
	l->outside = outside_start(&r, on_outside, c);
	if (l->outside == NULL)
		refuse_outside(c, "53300", TOO_MANY);
}

/* --- the conversation --- */

#define SASL_FAILED "SASL authentication failed"

/* What the client is not told. */
static void tell_reason(struct client *c, const struct auth_session *s)
{
	const char *reason = auth_session_reason(s);

	if (reason[0] != '\0' && conf_current()->p.log_pooler_errors)
		log_write(LOG_LVL_INFO, client_prefix(c), "login failed: db=%s user=%s: %s",
			client_database(c), client_user(c), reason);
	if (auth_session_was_wrong(s) && auth_session_is_sasl(s))
		c->login->log_reason = SASL_FAILED;
}

/* The message is that of Postgres; who looks for that of pgbouncer finds it, too. */
static void refuse_in_both_words(struct client *c, const struct pg_error *err)
{
	struct pg_error both = *err;

	if (c->login->log_reason != NULL && both.detail[0] == '\0')
		pg_error_detail(&both, "%s", c->login->log_reason);
	refuse(c, &both);
}

static void verdict(
	struct client *c, enum auth_verdict v, struct buf *out, const struct pg_error *err)
{
	struct client_login *l = c->login;

	if (!buf_failed(out))
		client_write(c, out);
	else
		v = AUTH_REFUSED;
	buf_free(out);
	switch (v) {
	case AUTH_CONTINUE:
		l->phase = PHASE_AUTH;
		break;
	case AUTH_OUTSIDE:
		ask_outside(c);
		break;
	case AUTH_ACCEPTED:
		c->login->then->authenticated(
			c, l->auth != NULL ? auth_session_proved(l->auth) : NULL);
		break;
	case AUTH_REFUSED:
		if (l->auth != NULL)
			tell_reason(c, l->auth);
		if (l->auth != NULL && auth_session_was_wrong(l->auth))
			lookup_forget(client_user(c));
		refuse_in_both_words(c, err);
		break;
	}
}

void client_auth_message(struct client *c, const uint8_t *body, size_t len)
{
	struct buf out = BUF_INIT;
	struct pg_error err;
	enum auth_verdict v;

	CHECK_CLIENT(c);
	pg_error_set(&err, "53200", "out of memory");
	v = auth_session_message(c->login->auth, body, len, &out, &err);
	verdict(c, v, &out, &err);
}

/* What the kernel says of the peer of a unix socket. */
static const char *peer_name(const struct client *c, char *dst, size_t size)
{
	struct passwd pw, *found = NULL;
	char text[4096];
	unsigned uid;

	if (!conn_peer_uid(c->conn, &uid) ||
		getpwuid_r((uid_t)uid, &pw, text, sizeof(text), &found) != 0 || found == NULL ||
		util_strlcpy(dst, found->pw_name, size) >= size)
		return NULL;
	return dst;
}

static void converse(struct client *c)
{
	const struct params *p = &conf_current()->p;
	struct client_login *l = c->login;
	struct auth_request r = {.type = l->type,
		.user = client_user(c),
		.scram_iterations = p->scram_iterations,
		.map = l->map};
	struct buf out = BUF_INIT;
	enum auth_verdict v = AUTH_REFUSED;
	struct pg_error err;
	char name[128];

	if (l->lookup != NULL) {
		r.looked_up = true;
		r.secret = lookup_result(c) == LOOKUP_KNOWN ? lookup_secret(c) : NULL;
	}
	if (l->type == AUTH_PEER)
		r.system_name = peer_name(c, name, sizeof(name));
	else if (l->type == AUTH_CERT)
		r.system_name = cert_name(c, name, sizeof(name));
	r.binding_len = conn_tls_binding(c->conn, r.binding);
	pg_error_set(&err, "53200", "out of memory");
	l->auth = auth_session_new(&r, &out, &v, &err);
	l->map = NULL;
	lookup_leave(c);
	verdict(c, v, &out, &err);
}

/* The client may have said more while it waited. */
static void go_on(struct client *c)
{
	if (c->state == CLIENT_LOGIN && c->login->phase == PHASE_AUTH)
		conn_kick(c->conn);
}

void client_auth_looked_up(struct client *c)
{
	struct pg_error err;

	CHECK_CLIENT(c);
	if (c->state == CLIENT_DEAD)
		return;
	if (lookup_result(c) != LOOKUP_FAILED) {
		c->login->phase = PHASE_FIRST;
		if (!find_rule(c))
			return; /* the rules have changed meanwhile */
		converse(c);
		go_on(c);
		return;
	}
	if (lookup_was_late(c))
		pg_error_set(&err, "53300", "query_wait_timeout");
	else
		pg_error_set(&err, "08006", "authentication query failed");
	if (c->login->lookup_disabled)
		pg_error_detail(&err,
			"qbouncer config error: authentication database \"%s\" is disabled",
			lookup_database(c));
	else
		pg_error_detail(&err,
			"qbouncer config error: the secret of user \"%s\" could not be looked up.",
			client_user(c));
	pg_error_hint(&err, "The log of the pooler has the reason.");
	client_fatal(c, &err);
}

/* --- the decision --- */

static void describe_peer(const struct client *c, char *dst, size_t size)
{
	snprintf(dst, size, "%s%s%s, user \"%s\", database \"%s\", %s",
		conn_peer(c->conn)->is_unix ? "unix socket" : "host \"",
		conn_peer(c->conn)->is_unix ? "" : address_of(c),
		conn_peer(c->conn)->is_unix ? "" : "\"", client_user(c), client_database(c),
		is_tls(c) ? "TLS" : "no encryption");
}

static bool refuse_by_rule(struct client *c, const struct hba_rule *rule)
{
	struct pg_error err;
	char who[320];

	describe_peer(c, who, sizeof(who));
	if (rule != NULL) {
		log_write(LOG_LVL_INFO, client_prefix(c), "%s:%d rejects the connection",
			rule->file, rule->line);
		pg_error_set(&err, "28000", "pg_hba.conf rejects connection for %s", who);
	} else {
		pg_error_set(&err, "28000", "no pg_hba.conf entry for %s", who);
	}
	pg_error_hint(&err, HINT_RULES);
	refuse(c, &err);
	return false;
}

static bool refuse_without_cert(struct client *c)
{
	struct pg_error err;

	pg_error_set(&err, "28000", "connection requires a valid client certificate");
	pg_error_hint(&err, HINT_RULES);
	refuse(c, &err);
	return false;
}

/* A rule may ask for a certificate beside its method. */
static bool cert_is_good(const struct client *c, const struct hba_rule *rule)
{
	char name[128];

	if (!rule->needs_cert)
		return true;
	if (cert_name(c, name, sizeof(name)) == NULL)
		return false;
	return !rule->needs_name || hba_map_allows(rule->map, name, client_user(c));
}

static bool is_outside(enum auth_type t)
{
	return t == AUTH_PAM || t == AUTH_LDAP;
}

/* The rules may change until they are needed. */
static bool keep_options(struct client *c, char *options)
{
	outside_options_free(&c->login->options);
	c->login->options = options;
	return options != NULL || client_out_of_memory(c);
}

static bool keep_ldap_options(struct client *c)
{
	return keep_options(c, outside_lines(conf_current()->p.auth_ldap_options));
}

static void on_host(void *arg, const char *name)
{
	struct client *c = arg;

	c->login->phase = PHASE_FIRST;
	if (c->state == CLIENT_DEAD)
		return;
	c->login->host = mem_strdup(name);
	if (c->login->host == NULL) {
		client_out_of_memory(c);
		return;
	}
	choose(c);
	go_on(c);
}

/* Where rules name hosts. true: the answer is awaited, and then all begins again. Without memory
 * the name stays unknown, and hba_find() finds nothing. */
static bool awaits_host(struct client *c, const struct hba_peer *who)
{
	struct client_login *l = c->login;
	const char *name;

	if (!hba_wants_host(who))
		return false;
	name = dns_peer_known(who->address);
	if (name == NULL && dns_peer_wait(&l->host_ask, who->address, on_host, c)) {
		lookup_leave(c);
		l->phase = PHASE_HOST;
		return true;
	}
	l->host = name != NULL ? mem_strdup(name) : NULL;
	return false;
}

/* Sets what is asked of the client. false: it was refused, or the name of its host is awaited. */
static bool find_rule(struct client *c)
{
	const struct conn_addr *peer = conn_peer(c->conn);
	struct client_login *l = c->login;
	struct hba_peer who = {.is_unix = peer->is_unix,
		.tls = is_tls(c),
		.replication = l->replication,
		.address = peer->host,
		.host = l->host,
		.database = client_database(c),
		.user = client_user(c)};
	const struct hba_rule *rule;

	l->type = conf_current()->p.auth_type;
	l->map = NULL;
	if (l->type == AUTH_LDAP)
		return keep_ldap_options(c);
	if (l->type != AUTH_HBA)
		return true;
	if (awaits_host(c, &who))
		return false;
	who.host = l->host;
	rule = hba_find(&who);
	if (rule == NULL || rule->type == AUTH_REJECT)
		return refuse_by_rule(c, rule);
	if (!cert_is_good(c, rule))
		return refuse_without_cert(c);
	l->type = rule->type;
	l->map = rule->map;
	return !is_outside(l->type) || keep_options(c, mem_strdup(rule->options));
}

/* The same unix user as ours may use the console as "pgbouncer" or "qbouncer" without a password.
 */
static bool is_own_unix_user(struct client *c)
{
	unsigned uid;

	return c->console &&
	       (strcmp(client_user(c), "pgbouncer") == 0 ||
		       strcmp(client_user(c), "qbouncer") == 0) &&
	       conn_peer_uid(c->conn, &uid) && uid == geteuid();
}

static bool begin_console(struct client *c)
{
	const struct params *p = &conf_current()->p;
	struct client_login *l = c->login;

	if (conf_list_has(p->admin_users, client_user(c)))
		l->rights = RIGHTS_ADMIN;
	else if (conf_list_has(p->stats_users, client_user(c)))
		l->rights = RIGHTS_STATS;
	if (!is_own_unix_user(c))
		return false;
	l->rights = RIGHTS_ADMIN;
	c->console = CONSOLE_OWN_USER;
	c->login->then->authenticated(c, NULL);
	return true;
}

static void choose(struct client *c)
{
	if (!find_rule(c))
		return;
	if (c->login->type == AUTH_ANY || is_outside(c->login->type) || !lookup_wanted(c)) {
		converse(c);
		return;
	}
	switch (lookup_start(c)) {
	case LOOKUP_PENDING:
		c->login->phase = PHASE_LOOKUP;
		break;
	case LOOKUP_KNOWN:
	case LOOKUP_UNKNOWN:
	case LOOKUP_FAILED:
		client_auth_looked_up(c);
		break;
	}
}

void client_auth_begin(struct client *c)
{
	CHECK_CLIENT(c);
	if (!c->console || !begin_console(c))
		choose(c);
}

int client_own_fd(const struct client *c)
{
	unsigned uid;

	CHECK_CLIENT(c);
	if (c->conn == NULL || !conn_peer_uid(c->conn, &uid) || uid != geteuid() ||
		conn_is_tls(c->conn) || conn_pending_output(c->conn) > 0)
		return -1;
	return conn_fd(c->conn);
}
