/*
 * The beginning of TLS with a hostile peer, both roles: the first byte says which, and whether TLS
 * is direct; the rest is what the peer sends before it leaves. Nothing of it may come out as plain
 * text.
 */
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/conn.h"
#include "net/loop.h"
#include "net/tls.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tls_ctx *contexts[2];

static void write_pair(const char *key_file, const char *cert_file)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	FILE *k = fopen(key_file, "w"), *c = fopen(cert_file, "w");

	if (!key || !x || !k || !c)
		abort();
	X509_gmtime_adj(X509_getm_notBefore(x), 0);
	X509_gmtime_adj(X509_getm_notAfter(x), 86400);
	X509_set_pubkey(x, key);
	if (!X509_sign(x, key, EVP_sha256()) || !PEM_write_X509(c, x) ||
		!PEM_write_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL))
		abort();
	fclose(k);
	fclose(c);
	X509_free(x);
	EVP_PKEY_free(key);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char key[] = "/tmp/qbfuzzkeyXXXXXX", cert[] = "/tmp/qbfuzzcrtXXXXXX", err[256];

	(void)argc, (void)argv;
	signal(SIGPIPE, SIG_IGN);
	close(mkstemp(key));
	close(mkstemp(cert));
	write_pair(key, cert);
	for (int i = 0; i < 2; i++) {
		struct tls_spec s = {.server = i == 0,
			.mode = SSLMODE_REQUIRE,
			.key_file = key,
			.cert_file = cert,
			.ca_file = i == 0 ? cert : "",
			.protocols = "all",
			.ciphers = "default",
			.ciphersuites = "",
			.dheparams = "auto",
			.curve = "auto"};

		contexts[i] = tls_ctx_new(&s, err, sizeof(err));
		if (!contexts[i])
			abort();
	}
	unlink(key);
	unlink(cert);
	if (!loop_init())
		abort();
	return 0;
}

static size_t on_data(struct conn *c, void *owner, const uint8_t *data, size_t len)
{
	(void)c, (void)owner, (void)data, (void)len;
	abort();
}

static void on_end(struct conn *c, void *owner, enum conn_end why, int err)
{
	(void)c, (void)owner, (void)why, (void)err;
	abort();
}

static void on_secure(struct conn *c, void *owner, const char *error)
{
	(void)c, (void)owner;
	if (!error)
		abort(); /* the peer has no keys to say Finished with */
	loop_stop();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct conn_ops ops = {
		.on_data = on_data, .on_end = on_end, .on_secure = on_secure};
	struct conn *c;
	int fds[2];

	if (size < 1 || size > 60000)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
		abort();
	c = conn_new(fds[0], NULL, &ops, NULL);
	if (!c || !conn_start_tls(c, contexts[data[0] & 1], (data[0] & 2) != 0))
		abort();
	if (size > 1 && write(fds[1], data + 1, size - 1) < 0)
		abort();
	shutdown(fds[1], SHUT_WR);
	loop_run();
	conn_close(&c);
	close(fds[1]);
	return 0;
}
