/*
 * A client proves who it is: one conversation, from the AuthenticationXxx request to the verdict.
 * Knows messages and the user table, no sockets. A user without a usable secret goes through the
 * same conversation with a mock secret and fails at its end, so that nothing tells which names
 * exist. Entry points: auth_session_*.
 */
#include "auth_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "auth/hba.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/msg.h"

#define MECHANISM      "SCRAM-SHA-256"
#define MECHANISM_PLUS "SCRAM-SHA-256-PLUS"

/* Codes of AuthenticationXxx. */
enum { R_CLEARTEXT = 3, R_MD5 = 5, R_SASL = 10, R_SASL_CONTINUE = 11, R_SASL_FINAL = 12 };

enum session_state {
	SESSION_PLAIN,      /* a password in clear text is awaited */
	SESSION_MD5,        /* the md5 answer is awaited */
	SESSION_MECHANISM,  /* SASLInitialResponse is awaited */
	SESSION_SASL_FIRST, /* client-first-message, asked for by an empty challenge */
	SESSION_SASL_FINAL, /* client-final-message */
	SESSION_OVER,       /* verdict given */
};

struct auth_session {
	enum session_state state;
	char user[128];
	bool doomed; /* mock conversation: refused whatever is proved */
	struct secret
		secret;  /* PLAIN and MD5 states; a copy, the table may be reloaded meanwhile */
	uint8_t salt[4]; /* MD5 */
	uint8_t binding[SCRAM_BINDING_MAX];
	size_t binding_len;
	struct scram_server *scram;
	struct scram_verifier verifier; /* SASL states */
	bool learn;                     /* the keys of this login serve for pass-through */
	bool looked_up;                 /* auth_query knows the user, not the user file */
	bool wrong;                     /* refused because of the password */
	bool outside;                   /* PAM or LDAP decides */
	char reason[400];               /* of the refusal, for the log alone */
	struct secret proved;           /* looked up: what was proved */
};

static bool is_known(const struct auth_request *r)
{
	return r->looked_up ? r->secret != NULL : auth_user_in_file(r->user);
}

/* --- verdicts --- */

/* The first one counts: who is doomed is refused for that, whatever his password is. */
static void PRINTF_LIKE(2, 3) because(struct auth_session *s, const char *fmt, ...)
{
	va_list ap;

	if (s->reason[0] != '\0')
		return;
	va_start(ap, fmt);
	(void)vsnprintf(s->reason, sizeof(s->reason), fmt, ap);
	va_end(ap);
}

static enum auth_verdict refuse_password(struct auth_session *s, struct pg_error *err)
{
	because(s, "wrong password");
	pg_error_set(err, "28P01", "password authentication failed for user \"%s\"", s->user);
	pg_error_severity(err, "FATAL");
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_garbage(struct pg_error *err, const char *what)
{
	pg_error_severity(pg_error_set(err, "08P01", "%s", what), "FATAL");
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_memory(struct pg_error *err)
{
	pg_error_severity(pg_error_set(err, "53200", "out of memory"), "FATAL");
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_trust(struct auth_session *s, struct pg_error *err)
{
	because(s, "no such user");
	pg_error_set(err, "28P01", "\"trust\" authentication failed");
	pg_error_detail(err, "There is no such user: \"%s\".", s->user);
	pg_error_hint(err,
		"Add the user to auth_file, or let auth_query find it, or use auth_type = any.");
	pg_error_severity(err, "FATAL");
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_name(
	struct auth_session *s, const struct auth_request *r, struct pg_error *err)
{
	const char *method = r->type == AUTH_PEER ? "Peer" : "certificate";

	pg_error_set(err, "28000", "%s authentication failed for user \"%s\"", method, r->user);
	pg_error_severity(err, "FATAL");
	if (r->system_name == NULL)
		because(s, "%s authentication: the user has shown no name", method);
	else if (!is_known(r))
		because(s, "no such user");
	else if (r->map)
		because(s, "ident map: %s does not have a match for \"%.200s\"", r->map,
			r->system_name);
	else
		because(s, "%s authentication: \"%.200s\" is not the user's name", method,
			r->system_name);
	return AUTH_REFUSED;
}

static enum auth_verdict refuse_type(enum auth_type type, struct pg_error *err)
{
	pg_error_set(err, "0A000", "auth_type \"%s\" is not supported", auth_type_name(type));
	pg_error_hint(err, "Use scram-sha-256, md5, cert, plain, trust or any.");
	pg_error_severity(err, "FATAL");
	return AUTH_REFUSED;
}

/* --- the request --- */

static enum auth_verdict ask_plain(struct auth_session *s, struct buf *out)
{
	build_auth(out, R_CLEARTEXT, NULL, 0);
	s->state = SESSION_PLAIN;
	return AUTH_CONTINUE;
}

static enum auth_verdict ask_md5(struct auth_session *s, struct buf *out)
{
	util_random(s->salt, sizeof(s->salt));
	build_auth(out, R_MD5, s->salt, sizeof(s->salt));
	s->state = SESSION_MD5;
	return AUTH_CONTINUE;
}

static enum auth_verdict ask_scram(
	struct auth_session *s, int iterations, struct buf *out, struct pg_error *err)
{
	/* lists: they end with an empty name */
	static const char mechanisms[] = MECHANISM "\0",
			  with_plus[] = MECHANISM_PLUS "\0" MECHANISM "\0";
	const struct scram_verifier *v = NULL;

	if (s->secret.kind == SECRET_SCRAM) {
		v = &s->secret.scram;
		s->learn = true;
	} else if (s->secret.kind == SECRET_PLAIN) {
		if (s->looked_up) {
			if (!scram_verifier_recall(
				    &s->verifier, s->user, s->secret.plain, iterations))
				return refuse_memory(err);
			v = &s->verifier;
		} else {
			v = auth_user_verifier(s->user, iterations);
		}
		if (!v)
			return refuse_memory(err);
	}
	if (v) {
		if (v != &s->verifier)
			s->verifier = *v;
	} else {
		scram_verifier_mock(&s->verifier, s->user, iterations);
		s->doomed = true;
	}
	s->scram = scram_server_new(&s->verifier);
	if (!s->scram)
		return refuse_memory(err);
	if (s->binding_len > 0)
		build_auth(out, R_SASL, with_plus, sizeof(with_plus));
	else
		build_auth(out, R_SASL, mechanisms, sizeof(mechanisms));
	s->state = SESSION_MECHANISM;
	return AUTH_CONTINUE;
}

/* md5 stands for "what the secret allows", as in Postgres; unknown users get what most others get.
 */
static enum auth_verdict ask_md5_or_scram(
	struct auth_session *s, int iterations, struct buf *out, struct pg_error *err)
{
	if (s->secret.kind == SECRET_SCRAM)
		return ask_scram(s, iterations, out, err);
	if (s->doomed && auth_file_prefers_scram())
		return ask_scram(s, iterations, out, err);
	return ask_md5(s, out);
}

/* What the user proves against; NULL: he has nothing to prove with, or is not known. */
static const struct secret *secret_of(const struct auth_request *r)
{
	const struct auth_user *u;

	if (r->looked_up)
		return r->secret && r->secret->kind != SECRET_NONE ? r->secret : NULL;
	u = auth_user_find(r->user);
	return u && u->secret.kind != SECRET_NONE ? &u->secret : NULL;
}

static bool load_secret(struct auth_session *s, const struct auth_request *r)
{
	const struct secret *secret = secret_of(r);

	s->doomed = true;
	if (!secret) {
		because(s, is_known(r) ? "the user has no password, or it has expired"
				       : "no such user");
		if (r->type == AUTH_PLAIN && auth_file_prefers_scram()) {
			/* Checking a password costs the others a PBKDF2, so it costs one here. */
			s->secret.kind = SECRET_SCRAM;
			scram_verifier_mock(&s->secret.scram, s->user, r->scram_iterations);
		}
		return true;
	}
	if (r->type == AUTH_SCRAM && secret->kind == SECRET_MD5) {
		because(s, "SCRAM authentication failed: user has MD5 secret");
		return true;
	}
	s->doomed = false;
	return secret_copy(&s->secret, secret);
}

static enum auth_verdict session_start(
	struct auth_session *s, const struct auth_request *r, struct buf *out, struct pg_error *err)
{
	switch (r->type) {
	case AUTH_ANY:
		return AUTH_ACCEPTED;
	case AUTH_TRUST:
		return is_known(r) ? AUTH_ACCEPTED : refuse_trust(s, err);
	case AUTH_CERT:
	case AUTH_PEER:
		return r->system_name && is_known(r) &&
				       hba_map_allows(r->map, r->system_name, s->user)
			       ? AUTH_ACCEPTED
			       : refuse_name(s, r, err);
	case AUTH_PLAIN:
	case AUTH_MD5:
	case AUTH_SCRAM:
		break;
	case AUTH_PAM:
	case AUTH_LDAP:
		s->outside = true;
		return ask_plain(s, out);
	case AUTH_HBA:
	case AUTH_REJECT:
		return refuse_type(r->type, err);
	}
	if (!load_secret(s, r))
		return refuse_memory(err);
	if (r->type == AUTH_PLAIN)
		return ask_plain(s, out);
	if (r->type == AUTH_MD5)
		return ask_md5_or_scram(s, r->scram_iterations, out, err);
	return ask_scram(s, r->scram_iterations, out, err);
}

struct auth_session *auth_session_new(const struct auth_request *req, struct buf *out,
	enum auth_verdict *ret, struct pg_error *err)
{
	struct auth_session *s = mem_zalloc(sizeof(*s));

	if (!s) {
		*ret = refuse_memory(err);
		return NULL;
	}
	s->state = SESSION_OVER;
	s->looked_up = req->looked_up;
	s->binding_len = req->binding_len;
	memcpy(s->binding, req->binding, sizeof(s->binding));
	if (util_strlcpy(s->user, req->user, sizeof(s->user)) >= sizeof(s->user))
		*ret = refuse_garbage(err, "user name is too long");
	else
		*ret = session_start(s, req, out, err);
	if (*ret == AUTH_CONTINUE && buf_failed(out)) {
		s->state = SESSION_OVER;
		*ret = refuse_memory(err);
	}
	return s;
}

void auth_session_free(struct auth_session **p)
{
	struct auth_session *s = *p;

	*p = NULL;
	if (!s)
		return;
	secret_erase(&s->secret);
	secret_erase(&s->proved);
	scram_server_free(&s->scram);
	util_erase(s, sizeof(*s));
	mem_free(s);
}

const struct secret *auth_session_proved(const struct auth_session *s)
{
	if (s->outside)
		return s->secret.kind == SECRET_PLAIN ? &s->secret : NULL;
	if (!s->looked_up)
		return NULL;
	if (s->proved.kind != SECRET_NONE)
		return &s->proved;
	return s->secret.kind == SECRET_PLAIN || s->secret.kind == SECRET_MD5 ? &s->secret : NULL;
}

const char *auth_session_reason(const struct auth_session *s)
{
	return s->reason;
}

bool auth_session_is_sasl(const struct auth_session *s)
{
	return s->scram != NULL;
}

bool auth_session_was_wrong(const struct auth_session *s)
{
	return s->wrong;
}

/* The keys of a login open servers too, for a user that the file knows, or for this session. */
static void learn(struct auth_session *s, const struct scram_verifier *v,
	const uint8_t client_key[SCRAM_KEY_LEN])
{
	if (!s->looked_up) {
		auth_user_learn(s->user, v, client_key);
		return;
	}
	s->proved.kind = SECRET_SCRAM_KEYS;
	s->proved.scram = *v;
	memcpy(s->proved.client_key, client_key, SCRAM_KEY_LEN);
}

/* --- the answer --- */

/* The body of a PasswordMessage: one text, not empty. NULL: err is filled. */
static const char *read_password(const uint8_t *body, size_t len, struct pg_error *err)
{
	struct wire_reader r;
	const char *text;
	size_t text_len;

	wire_reader_init(&r, body, len);
	text = wire_get_cstr(&r, &text_len);
	if (!wire_done(&r)) {
		refuse_garbage(err, "invalid password packet size");
		return NULL;
	}
	if (text_len == 0) {
		pg_error_set(err, "28P01", "empty password returned by client");
		pg_error_severity(err, "FATAL");
		return NULL;
	}
	return text;
}

static enum auth_verdict on_plain(
	struct auth_session *s, const uint8_t *body, size_t len, struct pg_error *err)
{
	const char *password = read_password(body, len, err);
	uint8_t client_key[SCRAM_KEY_LEN];
	bool good;

	if (!password)
		return AUTH_REFUSED;
	if (s->outside) {
		s->secret.plain = mem_strdup(password);
		if (s->secret.plain == NULL)
			return refuse_memory(err);
		s->secret.kind = SECRET_PLAIN;
		return AUTH_OUTSIDE;
	}
	if (s->secret.kind == SECRET_SCRAM && s->secret.scram.iterations > scram_limit())
		log_warning("the secret of user \"%s\" has %d rounds of SCRAM, more than "
			    "max_scram_iterations = %d: no password is compared with it",
			s->user, s->secret.scram.iterations, scram_limit());
	good = secret_matches(&s->secret, s->user, password, client_key);
	if (!good || s->doomed)
		return refuse_password(s, err);
	if (s->secret.kind == SECRET_SCRAM)
		learn(s, &s->secret.scram, client_key);
	util_erase(client_key, sizeof(client_key));
	return AUTH_ACCEPTED;
}

static enum auth_verdict on_md5(
	struct auth_session *s, const uint8_t *body, size_t len, struct pg_error *err)
{
	const char *answer = read_password(body, len, err);
	char stored[36] = {0}, expected[36];
	bool good;

	if (!answer)
		return AUTH_REFUSED;
	if (s->secret.kind == SECRET_MD5)
		memcpy(stored, s->secret.md5, sizeof(stored));
	else
		md5_secret(stored, s->secret.plain ? s->secret.plain : "", s->user);
	md5_response(expected, stored, s->salt);
	good = strlen(answer) == 35 && util_equal_secret(answer, expected, 35);
	util_erase(stored, sizeof(stored));
	util_erase(expected, sizeof(expected));
	return good && !s->doomed ? AUTH_ACCEPTED : refuse_password(s, err);
}

static enum auth_verdict refuse_downgrade(struct pg_error *err)
{
	pg_error_set(err, "28000", "SCRAM channel binding negotiation error");
	pg_error_detail(err,
		"The client supports SCRAM channel binding but thinks the server does not. "
		"However, this server does support channel binding.");
	pg_error_severity(err, "FATAL");
	return AUTH_REFUSED;
}

static enum auth_verdict on_sasl_first(
	struct auth_session *s, const char *msg, size_t len, struct buf *out, struct pg_error *err)
{
	size_t before = out->len, start = build_begin(out, 'R');
	enum scram_step step;

	build_i32(out, R_SASL_CONTINUE);
	step = scram_server_first(s->scram, msg, len, out);
	build_end(out, start);
	if (buf_failed(out))
		return refuse_memory(err);
	if (step == SCRAM_REFUSED) {
		out->len = before;
		return refuse_downgrade(err);
	}
	if (step != SCRAM_CONTINUE) {
		out->len = before; /* no half message in front of the error */
		return refuse_garbage(err, "malformed SCRAM message");
	}
	s->state = SESSION_SASL_FINAL;
	return AUTH_CONTINUE;
}

/* SASLInitialResponse: mechanism, length or -1, client-first-message. */
static enum auth_verdict on_mechanism(struct auth_session *s, const uint8_t *body, size_t len,
	struct buf *out, struct pg_error *err)
{
	struct wire_reader r;
	const char *mechanism;
	const uint8_t *msg = NULL;
	int32_t msg_len;
	bool plus = false;

	wire_reader_init(&r, body, len);
	mechanism = wire_get_cstr(&r, NULL);
	if (!r.failed)
		plus = s->binding_len > 0 && strcmp(mechanism, MECHANISM_PLUS) == 0;
	if (!r.failed && !plus && strcmp(mechanism, MECHANISM) != 0)
		return refuse_garbage(
			err, "client selected an invalid SASL authentication mechanism");
	msg_len = wire_get_i32(&r);
	if (msg_len >= 0)
		msg = wire_get_bytes(&r, (size_t)msg_len);
	if (msg_len < -1 || !wire_done(&r))
		return refuse_garbage(err, "malformed SASLInitialResponse message");
	if (s->binding_len > 0)
		scram_server_bind(s->scram, s->binding, s->binding_len, plus);
	if (msg)
		return on_sasl_first(s, (const char *)msg, (size_t)msg_len, out, err);
	/* No client-first yet: an empty challenge asks for it. */
	build_auth(out, R_SASL_CONTINUE, NULL, 0);
	s->state = SESSION_SASL_FIRST;
	return buf_failed(out) ? refuse_memory(err) : AUTH_CONTINUE;
}

static enum auth_verdict on_sasl_final(
	struct auth_session *s, const char *msg, size_t len, struct buf *out, struct pg_error *err)
{
	struct buf final = BUF_INIT;
	uint8_t client_key[SCRAM_KEY_LEN];
	enum scram_step step = scram_server_final(s->scram, msg, len, &final, client_key);
	enum auth_verdict verdict = AUTH_ACCEPTED;

	if (buf_failed(&final))
		verdict = refuse_memory(err);
	else if (step == SCRAM_MALFORMED)
		verdict = refuse_garbage(err, "malformed SCRAM message");
	else if (step != SCRAM_OK || s->doomed)
		verdict = refuse_password(s, err);
	else
		build_auth(out, R_SASL_FINAL, final.data, final.len);
	buf_free(&final);
	if (verdict == AUTH_ACCEPTED && buf_failed(out))
		verdict = refuse_memory(err);
	if (verdict == AUTH_ACCEPTED && s->learn)
		learn(s, &s->verifier, client_key);
	if (step == SCRAM_OK)
		util_erase(client_key, sizeof(client_key));
	return verdict;
}

enum auth_verdict auth_session_message(struct auth_session *s, const uint8_t *body, size_t len,
	struct buf *out, struct pg_error *err)
{
	enum auth_verdict verdict = AUTH_REFUSED;

	switch (s->state) {
	case SESSION_PLAIN:
		verdict = on_plain(s, body, len, err);
		break;
	case SESSION_MD5:
		verdict = on_md5(s, body, len, err);
		break;
	case SESSION_MECHANISM:
		verdict = on_mechanism(s, body, len, out, err);
		break;
	case SESSION_SASL_FIRST:
		verdict = on_sasl_first(s, (const char *)body, len, out, err);
		break;
	case SESSION_SASL_FINAL:
		verdict = on_sasl_final(s, (const char *)body, len, out, err);
		break;
	case SESSION_OVER:
		refuse_garbage(err, "unexpected password message");
		break;
	}
	if (verdict != AUTH_CONTINUE)
		s->state = SESSION_OVER;
	s->wrong = verdict == AUTH_REFUSED && strcmp(err->sqlstate, "28P01") == 0;
	return verdict;
}
