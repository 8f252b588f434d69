/* TLS on connections over a socket pair: both roles, every way to fail, lack of memory. */
#include "net_fixture.h"

#include <signal.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/tls.h"

/* --- files --- */

static char folder[] = "/tmp/qbtlsXXXXXX";
static char key_file[64], cert_file[64], other_key[64];

static void write_key(const char *path, EVP_PKEY *key)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(f);
	assert_int_equal(chmod(path, 0600), 0);
}

static void write_certificate(const char *path, EVP_PKEY *key, const char *cn, size_t cn_len)
{
	X509 *x = X509_new();
	X509_NAME *name = X509_get_subject_name(x);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 7);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 86400);
	X509_set_pubkey(x, key);
	assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
				 (const unsigned char *)cn, (int)cn_len, -1, 0),
		1);
	X509_set_issuer_name(x, name);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	assert_int_equal(PEM_write_X509(f, x), 1);
	fclose(f);
	X509_free(x);
}

static int setup_files(void **state)
{
	EVP_PKEY *key = EVP_EC_gen("P-256"), *other = EVP_EC_gen("P-256");

	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(key_file, sizeof(key_file), "%s/key", folder);
	snprintf(cert_file, sizeof(cert_file), "%s/cert", folder);
	snprintf(other_key, sizeof(other_key), "%s/other", folder);
	write_key(key_file, key);
	write_key(other_key, other);
	write_certificate(cert_file, key, "ann", 3);
	EVP_PKEY_free(key);
	EVP_PKEY_free(other);
	return setup_loop(state);
}

static int teardown_files(void **state)
{
	unlink(key_file);
	unlink(cert_file);
	unlink(other_key);
	rmdir(folder);
	return teardown_loop(state);
}

static struct tls_spec spec(bool server)
{
	return (struct tls_spec){.server = server,
		.mode = SSLMODE_REQUIRE,
		.key_file = server ? key_file : "",
		.cert_file = server ? cert_file : "",
		.ca_file = "",
		.protocols = "secure",
		.ciphers = "default",
		.ciphersuites = "",
		.dheparams = "auto",
		.curve = "auto"};
}

static struct tls_ctx *context(const struct tls_spec *s)
{
	char err[512] = "";
	struct tls_ctx *x = tls_ctx_new(s, err, sizeof(err));

	if (!x)
		fail_msg("%s", err);
	return x;
}

/* --- two ends --- */

struct end {
	struct conn *c;
	struct buf got;
	bool secure, failed, ended, keep;
	char error[512];
	size_t echo; /* write this many bytes as soon as it is secure */
	size_t drains;
};

static size_t end_on_data(struct conn *c, void *arg, const uint8_t *data, size_t len)
{
	struct end *e = arg;

	(void)c;
	if (e->keep)
		return 0;
	buf_put(&e->got, data, len);
	return len;
}

static void end_on_end(struct conn *c, void *arg, enum conn_end why, int err)
{
	struct end *e = arg;

	(void)c, (void)why, (void)err;
	e->ended = true;
}

static void end_on_drain(struct conn *c, void *arg)
{
	(void)c;
	((struct end *)arg)->drains++;
}

static void end_on_secure(struct conn *c, void *arg, const char *error)
{
	struct end *e = arg;

	assert_false(e->secure || e->failed);
	e->secure = !error;
	e->failed = error != NULL;
	util_strlcpy(e->error, error ? error : "", sizeof(e->error));
	assert_int_equal(conn_is_tls(c), e->secure);
	if (e->secure && e->echo) {
		uint8_t *data = malloc(e->echo);

		memset(data, 'e', e->echo);
		conn_write(c, data, e->echo);
		free(data);
	}
}

static const struct conn_ops end_ops = {.on_data = end_on_data,
	.on_end = end_on_end,
	.on_drain = end_on_drain,
	.on_secure = end_on_secure};

struct pair {
	struct end server, client;
	int raw; /* instead of the client: a descriptor; -1 */
};

static void pair_open(struct pair *p, bool raw)
{
	int fds[2];

	memset(p, 0, sizeof(*p));
	p->raw = -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	p->server.c = conn_new(fds[0], NULL, &end_ops, &p->server);
	if (raw)
		p->raw = fds[1];
	else
		p->client.c = conn_new(fds[1], NULL, &end_ops, &p->client);
}

static void pair_close(struct pair *p)
{
	conn_close(&p->server.c);
	conn_close(&p->client.c);
	if (p->raw >= 0)
		close(p->raw);
	buf_free(&p->server.got);
	buf_free(&p->client.got);
	run_turns(2);
}

static bool settled(const struct end *e)
{
	return e->secure || e->failed || e->ended || !e->c;
}

static bool both_settled(void *arg)
{
	struct pair *p = arg;

	return settled(&p->server) && settled(&p->client);
}

static bool server_settled(void *arg)
{
	return settled(&((struct pair *)arg)->server);
}

/* A pair with TLS on, or the reason why not in both ends' error. */
static void shake_hands(
	struct pair *p, const struct tls_spec *s, const struct tls_spec *c, bool direct)
{
	struct tls_ctx *server = context(s), *client = context(c);

	assert_true(conn_start_tls(p->server.c, server, direct));
	assert_true(conn_start_tls(p->client.c, client, direct));
	/* connections hold what they began with */
	tls_ctx_drop(&server);
	tls_ctx_drop(&client);
	run_until(both_settled, p);
}

static size_t wanted;

static bool client_has_all(void *arg)
{
	return ((struct pair *)arg)->client.got.len >= wanted;
}

static bool server_has_all(void *arg)
{
	return ((struct pair *)arg)->server.got.len >= wanted;
}

/* --- tests --- */

static void test_bytes_go_both_ways(void **state)
{
	static const size_t sizes[] = {1, 100, 8191, 8192, 16384, 16385, 65536, 3000000};
	struct tls_spec s = spec(true), c = spec(false);
	struct pair p;
	uint8_t one[CONN_TLS_BINDING_MAX], two[CONN_TLS_BINDING_MAX];

	(void)state;
	pair_open(&p, false);
	conn_write(p.client.c, "", 0);
	shake_hands(&p, &s, &c, false);
	assert_string_equal(p.server.error, "");
	assert_string_equal(p.client.error, "");
	assert_int_equal(strncmp(conn_tls_text(p.server.c), "TLSv1.3/", 8), 0);
	assert_string_equal(strrchr(conn_tls_text(p.client.c), '/'), "/ECDH=X25519");
	assert_int_equal(conn_tls_binding(p.server.c, one), 32);
	assert_int_equal(conn_tls_binding(p.client.c, two), 32);
	assert_memory_equal(one, two, 32);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint8_t *data = malloc(sizes[i]);
		uint64_t before = conn_bytes_out(p.server.c);

		for (size_t n = 0; n < sizes[i]; n++)
			data[n] = (uint8_t)(n * 7 + i);
		buf_reset(&p.server.got);
		buf_reset(&p.client.got);
		wanted = sizes[i];
		conn_write(p.server.c, data, sizes[i]);
		run_until(client_has_all, &p);
		assert_memory_equal(p.client.got.data, data, sizes[i]);
		assert_int_equal(conn_bytes_out(p.server.c) - before, sizes[i]);
		for (size_t n = 0; n < sizes[i]; n += 4096)
			conn_write(p.client.c, data + n, sizes[i] - n < 4096 ? sizes[i] - n : 4096);
		run_until(server_has_all, &p);
		assert_memory_equal(p.server.got.data, data, sizes[i]);
		assert_true(conn_sent(p.server.c) >= conn_output_end(p.server.c));
		assert_int_equal(conn_pending_input(p.server.c), 0);
		free(data);
	}
	pair_close(&p);
}

/* What is written before the handshake is over comes behind it. */
static void test_early_writes_wait(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	struct tls_ctx *server = context(&s), *client = context(&c);
	struct pair p;

	(void)state;
	pair_open(&p, false);
	p.server.echo = 200000;
	assert_true(conn_start_tls(p.client.c, client, false));
	conn_write(p.client.c, "early", 5);
	assert_true(conn_start_tls(p.server.c, server, false));
	wanted = 5;
	run_until(server_has_all, &p);
	assert_memory_equal(p.server.got.data, "early", 5);
	wanted = 200000;
	run_until(client_has_all, &p);
	/* once only */
	assert_false(conn_start_tls(p.client.c, client, false));
	tls_ctx_drop(&server);
	tls_ctx_drop(&client);
	pair_close(&p);
}

static bool client_ended(void *arg)
{
	return ((struct pair *)arg)->client.ended;
}

/* The last bytes arrive, then the end; also when the owner had stopped reading meanwhile. */
static void test_end(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);

	(void)state;
	for (int stopped = 0; stopped < 2; stopped++) {
		struct pair p;

		pair_open(&p, false);
		shake_hands(&p, &s, &c, false);
		conn_write(p.server.c, "last words", 10);
		conn_close(&p.server.c);
		if (stopped) {
			p.client.keep = true;
			run_turns(3);
			p.client.keep = false;
			if (p.client.c && !p.client.ended)
				conn_kick(p.client.c);
		}
		run_until(client_ended, &p);
		if (!stopped)
			assert_memory_equal(p.client.got.data, "last words", 10);
		pair_close(&p);
	}
}

static void test_direct_wants_alpn(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	struct pair p;

	(void)state;
	pair_open(&p, false);
	shake_hands(&p, &s, &c, true);
	assert_true(p.server.secure && p.client.secure);
	pair_close(&p);
}

static void test_certificates(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	struct conn_tls_peer peer;
	struct pair p;

	(void)state;
	c.mode = SSLMODE_VERIFY_CA;
	c.ca_file = cert_file;
	s.mode = SSLMODE_VERIFY_CA;
	s.ca_file = cert_file;
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false); /* the client shows none */
	assert_true(p.server.failed);
	assert_string_equal(p.server.error, "peer did not return a certificate");
	pair_close(&p);

	c.key_file = key_file;
	c.cert_file = cert_file;
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false);
	assert_true(p.server.secure);
	assert_true(conn_tls_peer(p.server.c, &peer));
	assert_true(peer.verified);
	assert_string_equal(peer.cn, "ann");
	assert_string_equal(peer.dn, "CN=ann");
	pair_close(&p);

	/* asked for by the file of authorities alone: anybody comes in, nobody is believed */
	s.mode = SSLMODE_REQUIRE;
	s.ca_file = "";
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false);
	assert_true(p.server.secure);
	assert_false(conn_tls_peer(p.server.c, &peer));
	pair_close(&p);
}

/* "ann", a zero byte, "x": whoever reads C strings would take it for ann. */
static void test_zero_byte_in_a_name(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	char strange[64], strange_key[64];
	struct conn_tls_peer peer;
	struct pair p;

	(void)state;
	snprintf(strange, sizeof(strange), "%s/strange", folder);
	snprintf(strange_key, sizeof(strange_key), "%s/strange_key", folder);
	write_key(strange_key, key);
	write_certificate(strange, key, "ann\0x", 5);
	EVP_PKEY_free(key);
	s.mode = SSLMODE_VERIFY_CA;
	s.ca_file = strange;
	c.cert_file = strange;
	c.key_file = strange_key;
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false);
	assert_true(p.server.secure);
	assert_true(conn_tls_peer(p.server.c, &peer));
	assert_string_equal(peer.cn, "");
	pair_close(&p);
	unlink(strange);
	unlink(strange_key);
}

static void test_nothing_in_common(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	struct pair p;

	(void)state;
	s.protocols = "tlsv1.2";
	c.protocols = "tlsv1.3";
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false);
	assert_true(p.server.failed && p.client.failed);
	assert_string_equal(p.server.error, "unsupported protocol");
	pair_close(&p);
}

/* Bytes of every kind in the place of a handshake. */
static void test_garbage(void **state)
{
	static const struct {
		const char *data;
		size_t len;
		bool leaves; /* the peer, behind them */
	} cases[] = {
		{"\0\0\0\10\4\322\26\57", 8, false},
		{"GET / HTTP/1.0\r\n\r\n", 18, false},
		{"\26\3\1\377\377", 5, false},
		{"\26\3\1\0\5\1\0\0\1\0", 10, false},
		{"\26\3\1\0\1\1", 6, true},
		{"\26", 1, true},
		{"", 0, true},
		{"\27\3\3\0\1x", 6, false},
		{"\25\3\3\0\2\2\50", 7, false},
	};
	struct tls_spec s = spec(true);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tls_ctx *x = context(&s);
		struct pair p;

		pair_open(&p, true);
		assert_true(conn_start_tls(p.server.c, x, i % 2));
		tls_ctx_drop(&x);
		assert_int_equal(write(p.raw, cases[i].data, cases[i].len), cases[i].len);
		if (cases[i].leaves) {
			close(p.raw);
			p.raw = -1;
		}
		run_until(server_settled, &p);
		assert_true(p.server.failed);
		assert_string_not_equal(p.server.error, "");
		pair_close(&p);
	}
}

static bool server_pending(void *arg)
{
	return conn_pending_input(((struct pair *)arg)->server.c) > 0;
}

static void test_security_bytes_in_front(void **state)
{
	struct tls_spec s = spec(true);
	struct tls_ctx *x = context(&s);
	struct pair p;

	(void)state;
	pair_open(&p, true);
	p.server.keep = true;
	assert_int_equal(write(p.raw, "SELECT", 6), 6);
	run_until(server_pending, &p);
	assert_true(conn_start_tls(p.server.c, x, false));
	run_until(server_settled, &p);
	assert_string_equal(
		p.server.error, "received unencrypted data in front of the TLS handshake");
	assert_int_equal(p.server.got.len, 0);
	tls_ctx_drop(&x);
	pair_close(&p);
}

static void test_garbage_behind_the_handshake(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	struct pair p;

	(void)state;
	pair_open(&p, false);
	shake_hands(&p, &s, &c, false);
	assert_int_equal(write(conn_fd(p.server.c), "\27\3\3\0\3abc", 8), 8);
	run_until(client_ended, &p);
	assert_int_equal(p.client.got.len, 0);
	pair_close(&p);
}

/* Each request for new keys has to be answered: who does not read the answers is not answered
 * for ever. */
static void test_new_keys_again_and_again(void **state)
{
	struct tls_spec s = spec(true);
	struct tls_ctx *server = context(&s);
	SSL_CTX *x = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(x);
	struct pair p;
	int asked = 0, rc;

	(void)state;
	pair_open(&p, true);
	assert_true(conn_start_tls(p.server.c, server, false));
	tls_ctx_drop(&server);
	assert_int_equal(SSL_set_fd(ssl, p.raw), 1);
	SSL_set_connect_state(ssl);
	for (int i = 0; i < 1000 && (rc = SSL_do_handshake(ssl)) != 1; i++) {
		assert_int_equal(SSL_get_error(ssl, rc), SSL_ERROR_WANT_READ);
		run_turns(1);
	}
	run_until(server_settled, &p);
	assert_true(p.server.secure);
	for (; asked < 500000 && !p.server.ended; asked++) {
		if (SSL_get_key_update_type(ssl) == SSL_KEY_UPDATE_NONE)
			(void)SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
		if (SSL_do_handshake(ssl) != 1 || asked % 100 == 0)
			run_turns(1);
	}
	assert_true(p.server.ended);
	SSL_free(ssl);
	SSL_CTX_free(x);
	pair_close(&p);
}

static void test_no_memory(void **state)
{
	struct tls_spec s = spec(true), c = spec(false);
	bool done = false;

	(void)state;
	for (unsigned long n = 1; !done; n++) {
		struct tls_ctx *server = context(&s), *client = context(&c);
		struct pair p;

		pair_open(&p, false);
		p.server.echo = 300000;
		mem_fail_after(n);
		done = conn_start_tls(p.server.c, server, false) &&
		       conn_start_tls(p.client.c, client, false);
		if (done)
			run_until(both_settled, &p);
		done = done && p.server.secure && p.client.secure && !p.server.ended;
		mem_fail_after(0);
		tls_ctx_drop(&server);
		tls_ctx_drop(&client);
		pair_close(&p);
		assert_true(n < 100);
	}
}

static void test_bad_settings(void **state)
{
	const struct {
		struct tls_spec with;
		const char *told;
	} cases[] = {
		{{.key_file = "/nowhere"}, "client_tls_key_file: cannot read \"/nowhere\""},
		{{.cert_file = "/nowhere"}, "client_tls_cert_file: cannot read \"/nowhere\""},
		{{.cert_file = key_file}, "client_tls_cert_file: \""},
		{{.key_file = other_key}, "client_tls_key_file: \""},
		{{.ca_file = key_file}, "client_tls_ca_file: \""},
		{{.key_file = ""}, "client_tls_key_file: is missing"},
		{{.protocols = "tlsv9"}, "client_tls_protocols: \"tlsv9\" is not"},
		{{.protocols = "!tlsv1"}, "client_tls_protocols: "},
		{{.ciphers = "NONE"}, "client_tls_ciphers: \"NONE\""},
		{{.ciphersuites = "NONE"}, "client_tls13_ciphers: \"NONE\""},
		{{.curve = "flat"}, "client_tls_ecdhcurve: \"flat\""},
		{{.mode = SSLMODE_VERIFY_FULL}, "client_tls_ca_file: is needed"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct tls_spec *w = &cases[i].with;
		struct tls_spec s = spec(true);
		struct tls_ctx *x;
		char err[512] = "";

		s.mode = w->mode ? w->mode : s.mode;
		s.key_file = w->key_file ? w->key_file : s.key_file;
		s.cert_file = w->cert_file ? w->cert_file : s.cert_file;
		s.ca_file = w->ca_file ? w->ca_file : s.ca_file;
		s.protocols = w->protocols ? w->protocols : s.protocols;
		s.ciphers = w->ciphers ? w->ciphers : s.ciphers;
		s.ciphersuites = w->ciphersuites ? w->ciphersuites : s.ciphersuites;
		s.curve = w->curve ? w->curve : s.curve;
		x = tls_ctx_new(&s, err, sizeof(err));
		if (x || strncmp(err, cases[i].told, strlen(cases[i].told)) != 0)
			fail_msg("%zu: %s", i, err);
	}
}

static void test_good_settings(void **state)
{
	static const char *const protocols[] = {"secure", "all", "tlsv1.2,tlsv1.3", "tlsv1.3",
		"tlsv1.2:tlsv1.3", "all,!tlsv1.0", "!tlsv1.0", "default", "legacy"};
	static const char *const curves[] = {"auto", "none", "prime256v1", "X25519:P-384", ""};
	static const char *const ciphers[] = {"HIGH:!aNULL", "default", "secure", "fast", "normal",
		"compat", "legacy", "Insecure", "all"};
	struct tls_spec s = spec(true);

	(void)state;
	_Static_assert(ARRAY_LEN(ciphers) == ARRAY_LEN(protocols), "one of each");
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		struct tls_ctx *x;

		s.protocols = protocols[i];
		s.curve = curves[i % ARRAY_LEN(curves)];
		s.ciphers = ciphers[i];
		s.dheparams = i % 2 ? "auto" : "none";
		x = context(&s);
		assert_int_equal(tls_ctx_mode(x), SSLMODE_REQUIRE);
		tls_ctx_drop(&x);
		assert_null(x);
	}
	assert_int_equal(tls_ctx_mode(NULL), SSLMODE_DISABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_go_both_ways),
		cmocka_unit_test(test_early_writes_wait),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_direct_wants_alpn),
		cmocka_unit_test(test_certificates),
		cmocka_unit_test(test_zero_byte_in_a_name),
		cmocka_unit_test(test_nothing_in_common),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_security_bytes_in_front),
		cmocka_unit_test(test_garbage_behind_the_handshake),
		cmocka_unit_test(test_new_keys_again_and_again),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_bad_settings),
		cmocka_unit_test(test_good_settings),
	};

	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	return cmocka_run_group_tests(tests, setup_files, teardown_files);
}
