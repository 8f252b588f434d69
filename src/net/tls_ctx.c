/*
 * TLS contexts from settings: files, versions, ciphers, who is checked. All of them are made anew
 * at each reload, and put in force together when every one is good. Knows nothing of connections.
 *
 * Entry points: net/tls.h; tls_ctx_session and its neighbours in conn_int.h.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "conn_int.h"
#include "net/tls.h"

struct tls_ctx {
	SSL_CTX *ssl;
	unsigned refs;
	enum sslmode mode;
	bool server, direct;
};

static const unsigned char alpn[] = "\012postgresql";
#define ALPN_LEN (sizeof(alpn) - 1)

/* --- errors --- */

/* All mistakes of a context are told, a line each.
 */

struct complaint {
	const char *side; /* "client" or "server", as the settings begin */
	char *text;
	size_t size;
};

static bool PRINTF_LIKE(3, 4)
	complain(const struct complaint *e, const char *setting, const char *fmt, ...)
{
	char line[700];
	size_t n = (size_t)snprintf(line, sizeof(line), "%s_%s: ", e->side, setting);
	va_list ap;

	va_start(ap, fmt);
	if (n < sizeof(line))
		(void)vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	(void)util_add_line(e->text, e->size, line);
	return false;
}

const char *tls_error(void)
{
	static char text[256];
	unsigned long err = ERR_peek_error();
	const char *reason = ERR_reason_error_string(err);

	if (reason)
		util_strlcpy(text, reason, sizeof(text));
	else if (err != 0)
		snprintf(text, sizeof(text), "error %lx of the TLS library", err);
	else
		util_strlcpy(text, "unknown error", sizeof(text));
	ERR_clear_error();
	return text;
}

/* A file that cannot be opened at all has a better reason than the library gives. */
static bool complain_file(const struct complaint *e, const char *setting, const char *path)
{
	if (access(path, R_OK) != 0)
		return complain(e, setting, "cannot read \"%s\": %s", path, strerror(errno));
	return complain(e, setting, "\"%s\": %s", path, tls_error());
}

/* --- versions --- */

enum { V10 = 1, V11 = 2, V12 = 4, V13 = 8, V_SECURE = V12 | V13, V_ALL = 15 };

static unsigned version_word(const char *word, size_t len)
{
	static const struct {
		const char *word;
		unsigned bits;
	} table[] = {{"all", V_ALL}, {"legacy", V_ALL}, {"tlsv1", V_ALL}, {"secure", V_SECURE},
		{"default", V_SECURE}, {"tlsv1.0", V10}, {"tlsv1.1", V11}, {"tlsv1.2", V12},
		{"tlsv1.3", V13}};

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].word) == len && util_memcasecmp(table[i].word, word, len) == 0)
			return table[i].bits;
	return 0;
}

/* Words with commas, colons or blanks between them; ! takes away. 0: not that. */
static unsigned read_versions(const char *text)
{
	static const char between[] = ",: \t";
	unsigned set = 0, bits;
	bool any = false;

	for (text += strspn(text, between); *text; text += strspn(text, between)) {
		bool without = *text == '!';
		size_t len = strcspn(text += without, between);

		bits = version_word(text, len);
		if (bits == 0)
			return 0;
		if (without && !any)
			set = V_ALL;
		set = without ? set & ~bits : set | bits;
		any = true;
		text += len;
	}
	return set;
}

static bool set_versions(SSL_CTX *x, const char *text, const struct complaint *e)
{
	static const struct {
		unsigned bit;
		uint64_t off;
		int version;
	} table[] = {{V10, SSL_OP_NO_TLSv1, TLS1_VERSION}, {V11, SSL_OP_NO_TLSv1_1, TLS1_1_VERSION},
		{V12, SSL_OP_NO_TLSv1_2, TLS1_2_VERSION}, {V13, SSL_OP_NO_TLSv1_3, TLS1_3_VERSION}};
	unsigned set = read_versions(text);
	int lowest = 0, highest = 0;

	if (set == 0)
		return complain(e, "tls_protocols",
			"\"%.100s\" is not a list of secure, all, tlsv1.0, tlsv1.1, tlsv1.2 and tlsv1.3",
			text);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (!(set & table[i].bit)) {
			SSL_CTX_set_options(x, table[i].off);
			continue;
		}
		highest = table[i].version;
		if (lowest == 0)
			lowest = highest;
	}
	/* Distributions set a floor of their own. */
	return (SSL_CTX_set_min_proto_version(x, lowest) == 1 &&
		       SSL_CTX_set_max_proto_version(x, highest) == 1) ||
	       complain(e, "tls_protocols", "%s", tls_error());
}

/* --- ciphers and key exchange --- */

static bool is_word(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (util_strcasecmp(text, words[i]) == 0)
			return true;
	return false;
}

/* The words are those of pgbouncer, of all its versions. */
static bool set_ciphers(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	static const char *const defaults[] = {
		"", "default", "secure", "fast", "normal", "compat", "legacy"};
	static const char *const all[] = {"all", "insecure"};
	bool no_curve = strcmp(s->curve, "none") == 0;
	bool given = !is_word(s->ciphers, defaults, ARRAY_LEN(defaults));
	char list[8300];

	if (!given && !no_curve)
		return true;
	snprintf(list, sizeof(list), "%s%s",
		!given                                     ? "DEFAULT"
		: is_word(s->ciphers, all, ARRAY_LEN(all)) ? "ALL:!aNULL:!eNULL"
							   : s->ciphers,
		no_curve ? ":!kECDHE" : "");
	return SSL_CTX_set_cipher_list(x, list) == 1 ||
	       complain(e, "tls_ciphers", "\"%.200s\": %s", s->ciphers, tls_error());
}

static bool set_suites(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	return s->ciphersuites[0] == '\0' || SSL_CTX_set_ciphersuites(x, s->ciphersuites) == 1 ||
	       complain(e, "tls13_ciphers",
		       "\"%.200s\": failed to set the TLSv1.3 cipher suites: %s", s->ciphersuites,
		       tls_error());
}

static bool set_exchange(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	if (strcmp(s->dheparams, "none") != 0)
		(void)SSL_CTX_set_dh_auto(x, 1);
	if (s->curve[0] == '\0' || strcmp(s->curve, "auto") == 0 || strcmp(s->curve, "none") == 0)
		return true;
	return SSL_CTX_set1_groups_list(x, s->curve) == 1 ||
	       complain(e, "tls_ecdhcurve", "\"%.100s\" is not a known curve", s->curve);
}

/* --- certificates --- */

/* Nobody is there to type a pass phrase. */
static int no_passphrase(char *dst, int size, int writing, void *arg)
{
	(void)dst, (void)size, (void)writing, (void)arg;
	return 0;
}

static void warn_of_readable_key(const struct complaint *e, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && (st.st_mode & S_IRWXO) != 0)
		log_warning("%s_tls_key_file \"%s\" can be read by every user of this machine",
			e->side, path);
}

static bool load_key(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	bool ok;

	if (s->cert_file[0] == '\0' && s->key_file[0] == '\0') {
		if (s->server)
			return complain(e, "tls_sslmode", "needs tls_key_file and tls_cert_file");
		return true;
	}
	if (s->cert_file[0] == '\0')
		return complain(e, "tls_cert_file", "is missing, but tls_key_file is there");
	if (s->key_file[0] == '\0')
		return complain(e, "tls_key_file", "is missing, but tls_cert_file is there");
	SSL_CTX_set_default_passwd_cb(x, no_passphrase);
	ok = SSL_CTX_use_certificate_chain_file(x, s->cert_file) == 1 ||
	     complain_file(e, "tls_cert_file", s->cert_file);
	ok = (SSL_CTX_use_PrivateKey_file(x, s->key_file, SSL_FILETYPE_PEM) == 1 ||
		     complain_file(e, "tls_key_file", s->key_file)) &&
	     ok;
	if (!ok)
		return false;
	if (SSL_CTX_check_private_key(x) != 1)
		return complain(e, "tls_key_file", "\"%s\" is not the key of \"%s\"", s->key_file,
			s->cert_file);
	warn_of_readable_key(e, s->key_file);
	return true;
}

static bool load_authorities(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	STACK_OF(X509_NAME) * names;

	if (s->ca_file[0] == '\0') {
		if (s->mode < SSLMODE_VERIFY_CA)
			return true;
		if (!s->server && s->mode == SSLMODE_VERIFY_FULL)
			return SSL_CTX_set_default_verify_paths(x) == 1 ||
			       complain(e, "tls_ca_file", "%s", tls_error());
		return complain(e, "tls_ca_file", "is needed for verify-ca%s",
			s->server ? " and verify-full" : "");
	}
	if (SSL_CTX_load_verify_locations(x, s->ca_file, NULL) != 1)
		return complain_file(e, "tls_ca_file", s->ca_file);
	if (!s->server)
		return true;
	names = SSL_load_client_CA_file(s->ca_file);
	if (!names)
		return complain_file(e, "tls_ca_file", s->ca_file);
	SSL_CTX_set_client_CA_list(x, names);
	return true;
}

/* The result is kept, and is looked at when the certificate is to prove something. */
static int take_any(int ok, X509_STORE_CTX *store)
{
	(void)ok, (void)store;
	return 1;
}

static void set_checks(SSL_CTX *x, const struct tls_spec *s)
{
	if (s->mode >= SSLMODE_VERIFY_CA)
		SSL_CTX_set_verify(x,
			SSL_VERIFY_PEER | (s->server ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
	else if (s->server && s->ca_file[0] != '\0')
		SSL_CTX_set_verify(x, SSL_VERIFY_PEER, take_any);
	else
		SSL_CTX_set_verify(x, SSL_VERIFY_NONE, NULL);
}

/* --- a context --- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned in_len, void *arg)
{
	unsigned char *chosen;

	(void)ssl, (void)arg;
	if (SSL_select_next_proto(&chosen, out_len, alpn, ALPN_LEN, in, in_len) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static bool configure(SSL_CTX *x, const struct tls_spec *s, const struct complaint *e)
{
	bool ok;

	SSL_CTX_set_mode(x, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(x, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
				       SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
	SSL_CTX_set_options(x, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
	SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
	if (s->server) {
		(void)SSL_CTX_set_num_tickets(x, 0);
		SSL_CTX_set_alpn_select_cb(x, choose_protocol, NULL);
	} else if (SSL_CTX_set_alpn_protos(x, alpn, ALPN_LEN) != 0) {
		return complain(e, "tls_sslmode", "out of memory");
	}
	set_checks(x, s);
	ok = set_versions(x, s->protocols, e);
	ok = set_ciphers(x, s, e) && ok;
	ok = set_suites(x, s, e) && ok;
	ok = set_exchange(x, s, e) && ok;
	ok = load_key(x, s, e) && ok;
	return load_authorities(x, s, e) && ok;
}

struct tls_ctx *tls_ctx_new(const struct tls_spec *s, char *err, size_t err_size)
{
	const struct complaint e = {s->server ? "client" : "server", err, err_size};
	struct tls_ctx *x = mem_zalloc(sizeof(*x));

	ERR_clear_error();
	if (err_size > 0)
		err[0] = '\0';
	if (x)
		x->ssl = SSL_CTX_new(s->server ? TLS_server_method() : TLS_client_method());
	if (!x || !x->ssl) {
		complain(&e, "tls_sslmode", "%s", x ? tls_error() : "out of memory");
		mem_free(x);
		return NULL;
	}
	x->refs = 1;
	x->mode = s->mode;
	x->server = s->server;
	x->direct = s->direct;
	if (!configure(x->ssl, s, &e))
		tls_ctx_drop(&x);
	return x;
}

struct tls_ctx *tls_ctx_ref(struct tls_ctx *x)
{
	if (x)
		x->refs++;
	return x;
}

void tls_ctx_drop(struct tls_ctx **p)
{
	struct tls_ctx *x = *p;

	*p = NULL;
	if (!x || --x->refs > 0)
		return;
	SSL_CTX_free(x->ssl);
	mem_free(x);
}

const char *tls_system_ca(void)
{
	static const char debian[] = "/etc/ssl/certs/ca-certificates.crt";
	const char *file = X509_get_default_cert_file();

	return access(file, R_OK) == 0 || access(debian, R_OK) != 0 ? file : debian;
}

struct ssl_st *tls_ctx_session(struct tls_ctx *x)
{
	SSL *ssl = SSL_new(x->ssl);

	if (ssl && x->server)
		SSL_set_accept_state(ssl);
	else if (ssl)
		SSL_set_connect_state(ssl);
	return ssl;
}

bool tls_ctx_is_server(const struct tls_ctx *x)
{
	return x->server;
}

enum sslmode tls_ctx_mode(const struct tls_ctx *x)
{
	return x ? x->mode : SSLMODE_DISABLE;
}

bool tls_ctx_is_direct(const struct tls_ctx *x)
{
	return x && x->direct;
}
