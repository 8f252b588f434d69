/*
 * We prove who we are to a server: answers to its AuthenticationXxx requests. The server is not
 * trusted: it may ask once, for one method, and with SCRAM it must prove itself. Knows messages and
 * secrets, no sockets. Entry points: auth_login_*.
 */
#include "auth/auth.h"

#include <string.h>

#include "base/mem.h"
#include "wire/msg.h"

#define MECHANISM      "SCRAM-SHA-256"
#define MECHANISM_PLUS "SCRAM-SHA-256-PLUS"

enum {
	R_OK = 0,
	R_KERBEROS_V5 = 2,
	R_CLEARTEXT = 3,
	R_MD5 = 5,
	R_SCM = 6,
	R_GSS = 7,
	R_SSPI = 9,
	R_SASL = 10,
	R_SASL_CONTINUE = 11,
	R_SASL_FINAL = 12,
};

enum login_state {
	LOGIN_START,         /* nothing asked yet */
	LOGIN_ANSWERED,      /* a password was sent */
	LOGIN_SASL_CONTINUE, /* server-first-message is awaited */
	LOGIN_SASL_FINAL,    /* server-final-message is awaited */
	LOGIN_PROVED,        /* the server proved itself */
	LOGIN_FAILED,
};

struct auth_login {
	enum login_state state;
	char user[128];
	struct secret secret;
	struct scram_client *scram;
	uint8_t binding[SCRAM_BINDING_MAX];
	size_t binding_len; /* 0: the connection has none */
};

struct auth_login *auth_login_new(const char *user, const struct secret *secret)
{
	struct auth_login *l = mem_zalloc(sizeof(*l));

	if (!l)
		return NULL;
	util_strlcpy(l->user, user, sizeof(l->user));
	if (secret && !secret_copy(&l->secret, secret))
		auth_login_free(&l);
	return l;
}

void auth_login_bind(struct auth_login *l, const uint8_t *data, size_t len)
{
	if (len > sizeof(l->binding))
		return;
	memcpy(l->binding, data, len);
	l->binding_len = len;
}

void auth_login_free(struct auth_login **p)
{
	struct auth_login *l = *p;

	*p = NULL;
	if (!l)
		return;
	scram_client_free(&l->scram);
	secret_erase(&l->secret);
	util_erase(l, sizeof(*l));
	mem_free(l);
}

bool auth_login_complete(const struct auth_login *l)
{
	return l->state == LOGIN_START || l->state == LOGIN_ANSWERED || l->state == LOGIN_PROVED;
}

static enum auth_verdict refuse(
	struct auth_login *l, struct pg_error *err, const char *sqlstate, const char *message)
{
	pg_error_severity(pg_error_set(err, sqlstate, "%s", message), "FATAL");
	l->state = LOGIN_FAILED;
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_memory(struct auth_login *l, struct pg_error *err)
{
	return refuse(l, err, "53200", "out of memory");
}

static const char *secret_words(enum secret_kind kind)
{
	switch (kind) {
	case SECRET_MD5:
		return "an md5 hash";
	case SECRET_SCRAM:
		return "a SCRAM verifier";
	case SECRET_SCRAM_KEYS:
		return "the SCRAM keys of a client's login";
	case SECRET_NONE:
	case SECRET_PLAIN:
		break;
	}
	return "nothing";
}

/* The server asked for what our kind of secret cannot answer. */
static enum auth_verdict refuse_secret(
	struct auth_login *l, struct pg_error *err, const char *method)
{
	pg_error_set(err, "28P01", "qbouncer has no password for user \"%s\" to give to the server",
		l->user);
	pg_error_detail(err,
		"server login failed: wrong password type: the server asks for %s; known of the user is %s.",
		method, secret_words(l->secret.kind));
	pg_error_hint(err,
		"Put the user's password in auth_file, or password= in the [databases] entry, or let "
		"clients log in with SCRAM and the server's own SCRAM verifier in auth_file, so that "
		"their keys can be passed through.");
	pg_error_severity(err, "FATAL");
	l->state = LOGIN_FAILED;
	return AUTH_REFUSED;
}

static enum auth_verdict answer_text(
	struct auth_login *l, const char *text, struct buf *out, struct pg_error *err)
{
	build_password(out, text, strlen(text) + 1);
	if (buf_failed(out))
		return refuse_memory(l, err);
	l->state = LOGIN_ANSWERED;
	return AUTH_CONTINUE;
}

static enum auth_verdict on_cleartext(struct auth_login *l, struct buf *out, struct pg_error *err)
{
	if (l->secret.kind != SECRET_PLAIN)
		return refuse_secret(l, err, "a password in clear text");
	return answer_text(l, l->secret.plain, out, err);
}

static enum auth_verdict on_md5(
	struct auth_login *l, struct wire_reader *r, struct buf *out, struct pg_error *err)
{
	const uint8_t *salt = wire_get_bytes(r, 4);
	char stored[36], answer[36];
	enum auth_verdict verdict;

	if (!salt || !wire_done(r))
		return refuse(l, err, "08P01", "malformed md5 request from the server");
	if (l->secret.kind == SECRET_MD5)
		memcpy(stored, l->secret.md5, sizeof(stored));
	else if (l->secret.kind == SECRET_PLAIN)
		md5_secret(stored, l->secret.plain, l->user);
	else
		return refuse_secret(l, err, "an md5 password");
	md5_response(answer, stored, salt);
	verdict = answer_text(l, answer, out, err);
	util_erase(stored, sizeof(stored));
	util_erase(answer, sizeof(answer));
	return verdict;
}

/* The best of our mechanisms that the list has; NULL also when it is malformed: then wire_done is
 * false. */
static const char *find_mechanism(const struct auth_login *l, struct wire_reader *r)
{
	const char *name, *found = NULL;
	size_t len;

	for (;;) {
		name = wire_get_cstr(r, &len);
		if (r->failed || len == 0)
			break;
		if (l->binding_len > 0 && strcmp(name, MECHANISM_PLUS) == 0)
			found = MECHANISM_PLUS;
		else if (!found && strcmp(name, MECHANISM) == 0)
			found = MECHANISM;
	}
	return wire_done(r) ? found : NULL;
}

static enum auth_verdict on_sasl(
	struct auth_login *l, struct wire_reader *r, struct buf *out, struct pg_error *err)
{
	const char *mechanism = find_mechanism(l, r);
	size_t start, length_at;

	if (!mechanism) {
		if (!wire_done(r))
			return refuse(l, err, "08P01", "malformed SASL request from the server");
		return refuse(l, err, "0A000",
			"none of the server's SASL authentication mechanisms are supported");
	}
	if (l->secret.kind != SECRET_PLAIN && l->secret.kind != SECRET_SCRAM_KEYS)
		return refuse_secret(l, err, mechanism);
	l->scram = scram_client_new(&l->secret);
	if (!l->scram)
		return refuse_memory(l, err);
	if (l->binding_len > 0)
		scram_client_bind(l->scram, l->binding, l->binding_len,
			strcmp(mechanism, MECHANISM_PLUS) == 0);
	start = build_begin(out, 'p');
	build_cstr(out, mechanism);
	length_at = build_begin(out, 0);
	scram_client_first(l->scram, out);
	build_end_counted(out, length_at);
	build_end(out, start);
	if (buf_failed(out))
		return refuse_memory(l, err);
	l->state = LOGIN_SASL_CONTINUE;
	return AUTH_CONTINUE;
}

static enum auth_verdict on_sasl_continue(
	struct auth_login *l, struct wire_reader *r, struct buf *out, struct pg_error *err)
{
	size_t len = wire_left(r);
	const char *msg = (const char *)wire_get_bytes(r, len);
	size_t before = out->len, start = build_begin(out, 'p');
	enum scram_step step = scram_client_continue(l->scram, msg, len, out);

	build_end(out, start);
	if (buf_failed(out))
		return refuse_memory(l, err);
	if (step == SCRAM_CONTINUE) {
		l->state = LOGIN_SASL_FINAL;
		return AUTH_CONTINUE;
	}
	out->len = before; /* no half message */
	if (step == SCRAM_MALFORMED)
		return refuse(l, err, "08P01", "malformed SCRAM message from the server");
	refuse(l, err, "28P01", "the server's SCRAM parameters cannot be answered");
	if (scram_client_too_many(l->scram) > 0) {
		pg_error_detail(err,
			"It asks for %lld rounds; max_scram_iterations allows %d, because no "
			"client is served meanwhile.",
			(long long)scram_client_too_many(l->scram), scram_limit());
		pg_error_hint(err, "If that is the server you mean, raise max_scram_iterations, or "
				   "set the password there again with fewer scram_iterations.");
		return AUTH_REFUSED;
	}
	if (l->secret.kind == SECRET_SCRAM_KEYS)
		pg_error_detail(err,
			"Salt or iteration count of user \"%s\" on the server differ from those in "
			"auth_file.",
			l->user);
	return AUTH_REFUSED;
}

static enum auth_verdict on_sasl_final(
	struct auth_login *l, struct wire_reader *r, struct pg_error *err)
{
	size_t len = wire_left(r);
	const char *msg = (const char *)wire_get_bytes(r, len);

	switch (scram_client_verify(l->scram, msg, len)) {
	case SCRAM_OK:
		l->state = LOGIN_PROVED;
		return AUTH_CONTINUE;
	case SCRAM_REFUSED:
		return refuse(l, err, "28P01",
			"the server could not prove that it knows the password (wrong SCRAM signature)");
	default:
		return refuse(l, err, "08P01", "malformed SCRAM message from the server");
	}
}

static enum auth_verdict on_unsupported(struct auth_login *l, int32_t code, struct pg_error *err)
{
	const char *method = "unknown";

	switch (code) {
	case R_KERBEROS_V5:
		method = "Kerberos V5";
		break;
	case R_SCM:
		method = "SCM credential";
		break;
	case R_GSS:
		method = "GSSAPI";
		break;
	case R_SSPI:
		method = "SSPI";
		break;
	default:
		break;
	}
	pg_error_set(err, "0A000",
		"the server asks for %s authentication (code %d), which qbouncer "
		"does not support",
		method, (int)code);
	pg_error_hint(
		err, "Use scram-sha-256, md5, password or trust in the server's pg_hba.conf.");
	pg_error_severity(err, "FATAL");
	l->state = LOGIN_FAILED;
	return AUTH_REFUSED;
}

/* The first request; there is only one, so a server cannot ask for less after SCRAM began. */
static enum auth_verdict on_request(struct auth_login *l, int32_t code, struct wire_reader *r,
	struct buf *out, struct pg_error *err)
{
	switch (code) {
	case R_CLEARTEXT:
		return on_cleartext(l, out, err);
	case R_MD5:
		return on_md5(l, r, out, err);
	case R_SASL:
		return on_sasl(l, r, out, err);
	default:
		return on_unsupported(l, code, err);
	}
}

enum auth_verdict auth_login_message(struct auth_login *l, const uint8_t *body, size_t len,
	struct buf *out, struct pg_error *err)
{
	struct wire_reader r;
	int32_t code;

	wire_reader_init(&r, body, len);
	code = wire_get_i32(&r);
	if (r.failed)
		return refuse(l, err, "08P01", "malformed authentication request from the server");
	if (code == R_OK)
		return auth_login_complete(l)
			       ? AUTH_ACCEPTED
			       : refuse(l, err, "08P01", "the server skipped the end of SCRAM");
	if (l->state == LOGIN_SASL_CONTINUE && code == R_SASL_CONTINUE)
		return on_sasl_continue(l, &r, out, err);
	if (l->state == LOGIN_SASL_FINAL && code == R_SASL_FINAL)
		return on_sasl_final(l, &r, err);
	if (l->state != LOGIN_START || code == R_SASL_CONTINUE || code == R_SASL_FINAL)
		return refuse(l, err, "08P01", "unexpected authentication request from the server");
	return on_request(l, code, &r, out, err);
}
