/*
 * TLS on a connection, between the kernel and what conn_in.c and conn_out.c know as bytes. OpenSSL
 * never sees a descriptor: what came is put in front of it, what it has to say is gathered and sent
 * by us, so that a turn costs as many system calls as without TLS, and a session that is idle holds
 * no buffers. Knows nothing of settings (tls_ctx.c) or of who owns the connection.
 *
 * Entry points: conn_start_tls and its neighbours in net/conn.h; tls_* in conn_int.h.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/buf.h"
#include "base/mem.h"
#include "conn_int.h"
#include "net/tls.h"

#define CIPHER_SIZE ((size_t)64 * 1024)
#define RECORD_MAX  ((size_t)17 * 1024)
/* We write nothing more while the kernel takes nothing: what grows then are answers to a peer that
 * asks for new keys again and again and does not read. */
#define KEPT_MAX ((size_t)256 * 1024)

struct tls {
	SSL *ssl;
	struct tls_ctx *ctx;
	struct buf out; /* ciphertext that the kernel did not take */
	bool direct;
};

/* What a session reads from and writes to while it is called; there is one call at a time. */
static struct {
	uint8_t *raw; /* one read */
	const uint8_t *in;
	size_t in_len;
	struct buf out;
} io;

static BIO_METHOD *method;

/* --- the library's transport --- */

static int bio_read(BIO *b, char *dst, int size)
{
	size_t n = size > 0 ? (size_t)size : 0;

	BIO_clear_retry_flags(b);
	if (io.in_len == 0) {
		BIO_set_retry_read(b);
		return -1;
	}
	if (n > io.in_len)
		n = io.in_len;
	memcpy(dst, io.in, n);
	io.in += n;
	io.in_len -= n;
	return (int)n;
}

static int bio_write(BIO *b, const char *src, int len)
{
	BIO_clear_retry_flags(b);
	if (len <= 0)
		return 0;
	buf_put(&io.out, src, (size_t)len);
	return buf_failed(&io.out) ? -1 : len;
}

static long bio_ctrl(BIO *b, int cmd, long larg, void *parg)
{
	(void)b, (void)larg, (void)parg;
	return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

bool tls_module_init(void)
{
	io.raw = mem_alloc(CIPHER_SIZE);
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "conn");
	return io.raw && method && BIO_meth_set_read(method, bio_read) &&
	       BIO_meth_set_write(method, bio_write) && BIO_meth_set_ctrl(method, bio_ctrl);
}

void tls_module_free(void)
{
	mem_free(io.raw);
	io.raw = NULL;
	buf_free(&io.out);
	BIO_meth_free(method);
	method = NULL;
}

/* Those of others, which would be taken for those of the call that follows. Mostly there are none,
 * and looking is cheap. */
static void forget_errors(void)
{
	if (ERR_peek_error() != 0)
		ERR_clear_error();
}

static bool session_new(struct tls *t)
{
	BIO *b;

	t->ssl = tls_ctx_session(t->ctx);
	if (!t->ssl)
		return false;
	b = BIO_new(method);
	if (!b)
		return false;
	BIO_set_init(b, 1);
	SSL_set_bio(t->ssl, b, b);
	return true;
}

/* --- out --- */

size_t tls_gathered(void)
{
	return io.out.len;
}

bool tls_has_unsent(const struct conn *c)
{
	return c->tls && buf_used(&c->tls->out) > 0;
}

static void no_memory(struct conn *c)
{
	c->flags |= F_NO_MEMORY;
	buf_reset(&io.out);
	conn_mark_dirty(c);
}

static void broken(struct conn *c)
{
	c->flags |= F_BROKEN;
	c->err = EPROTO;
	conn_mark_dirty(c);
}

/* Sends what is kept in front of what was gathered now. */
static void push_kept(struct conn *c, struct buf *kept)
{
	buf_compact(kept);
	buf_put(kept, io.out.data, io.out.len);
	buf_reset(&io.out);
	if (buf_failed(kept)) {
		no_memory(c);
		return;
	}
	if (!(c->flags & F_BLOCKED))
		kept->off += out_send(c, kept->data + kept->off, buf_used(kept));
	if (buf_used(kept) == 0)
		buf_free(kept);
}

void tls_push(struct conn *c)
{
	struct buf *kept = &c->tls->out;
	size_t n = 0;

	if (io.out.len == 0 && buf_used(kept) == 0)
		return;
	if (c->flags & F_BROKEN) {
		buf_reset(&io.out);
		buf_free(kept);
		return;
	}
	if (buf_used(kept) > 0) {
		push_kept(c, kept);
	} else {
		if (!(c->flags & F_BLOCKED))
			n = out_send(c, io.out.data, io.out.len);
		if (n < io.out.len && !(c->flags & F_BROKEN)) {
			buf_put(kept, io.out.data + n, io.out.len - n);
			if (buf_failed(kept))
				no_memory(c);
		}
		buf_reset(&io.out);
	}
	if (c->flags & (F_BLOCKED | F_BROKEN))
		conn_mark_dirty(c);
	if (buf_used(kept) > KEPT_MAX) {
		buf_free(kept);
		broken(c);
	}
	if (io.out.cap > 4 * CIPHER_SIZE)
		buf_free(&io.out);
}

bool tls_encrypt(struct conn *c, const void *data, size_t len)
{
	size_t n, in_len = io.in_len;
	bool ok;

	/* May be called from on_secure, with something of whoever's to be read. */
	io.in_len = 0;
	forget_errors();
	ok = SSL_write_ex(c->tls->ssl, data, len, &n) == 1 && n == len;
	io.in_len = in_len;
	if (ok)
		return true;
	if (buf_failed(&io.out)) {
		no_memory(c);
	} else {
		broken(c);
	}
	buf_reset(&io.out);
	return false;
}

/* The orderly end of our half; the peer's is not waited for. */
void tls_goodbye(struct conn *c)
{
	if (c->flags & (F_HANDSHAKE | F_BROKEN | F_NO_MEMORY | F_BLOCKED))
		return;
	ERR_clear_error();
	(void)SSL_shutdown(c->tls->ssl); /* the first call only writes */
	tls_push(c);
}

/* --- the handshake --- */

void tls_fail(struct conn *c, const char *reason)
{
	if (c->flags & (F_CLOSED | F_ENDED))
		return;
	c->flags |= F_ENDED; /* F_HANDSHAKE stays: it was never secure */
	conn_install(c);
	out_drop(c);
	if (c->ops->on_secure)
		c->ops->on_secure(c, c->owner, reason);
}

static bool is_address(const char *host)
{
	struct net_addr a;

	return net_addr_numeric(&a, host, 0);
}

/* As libpq: the name of the certificate counts only when it has no names of its own kind. */
static bool address_matches(X509 *cert, const char *host)
{
	char cn[CONN_TLS_NAME];
	int len;

	if (X509_check_ip_asc(cert, host, 0) == 1)
		return true;
	len = X509_NAME_get_text_by_NID(
		X509_get_subject_name(cert), NID_commonName, cn, sizeof(cn));
	return X509_get_ext_by_NID(cert, NID_subject_alt_name, -1) < 0 && len > 0 &&
	       (size_t)len == strlen(cn) && strcmp(cn, host) == 0;
}

static bool host_matches(const struct tls *t, const char *host)
{
	X509 *cert = SSL_get_peer_certificate(t->ssl);
	bool ok = false;

	if (cert && host)
		ok = is_address(host) ? address_matches(cert, host)
				      : X509_check_host(cert, host, 0,
						X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
	X509_free(cert);
	return ok;
}

static bool protocol_agreed(const struct tls *t)
{
	const unsigned char *name;
	unsigned len;

	SSL_get0_alpn_selected(t->ssl, &name, &len);
	return len == 10 && memcmp(name, "postgresql", 10) == 0;
}

/* The library is content; are we? NULL: yes. */
static const char *objection(const struct conn *c)
{
	static char text[512];
	const struct tls *t = c->tls;

	if (t->direct && !protocol_agreed(t))
		return "direct TLS without the application protocol \"postgresql\" (ALPN)";
	if (!tls_ctx_is_server(t->ctx) && tls_ctx_mode(t->ctx) == SSLMODE_VERIFY_FULL &&
		!host_matches(t, c->host)) {
		snprintf(text, sizeof(text),
			"the certificate of the server does not match the host name \"%s\"",
			c->host ? c->host : "");
		return text;
	}
	return NULL;
}

static void handshake_done(struct conn *c)
{
	const char *why = objection(c);

	if (why) {
		(void)SSL_shutdown(c->tls->ssl);
		tls_push(c);
		tls_fail(c, why);
		return;
	}
	c->flags &= ~(uint32_t)F_HANDSHAKE;
	if (c->out_len > 0)
		conn_mark_dirty(c);
	if (c->ops->on_secure)
		c->ops->on_secure(c, c->owner, NULL);
}

static const char *handshake_error(const struct tls *t, int what)
{
	static char text[512];
	long verdict = SSL_get_verify_result(t->ssl);
	unsigned long err = ERR_peek_error();

	if (buf_failed(&io.out))
		return "out of memory";
	if (ERR_GET_REASON(err) == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK) {
		snprintf(text, sizeof(text), "certificate verify failed: %s",
			X509_verify_cert_error_string(verdict));
		return text;
	}
	if (err != 0)
		return tls_error();
	return what == SSL_ERROR_ZERO_RETURN ? "the peer ended TLS" : "unexpected end of TLS";
}

static void handshake_step(struct conn *c)
{
	struct tls *t = c->tls;
	int rc, what;

	ERR_clear_error();
	rc = SSL_do_handshake(t->ssl);
	what = SSL_get_error(t->ssl, rc);
	if (rc != 1 && what != SSL_ERROR_WANT_READ) {
		const char *reason = handshake_error(t, what);

		tls_push(c); /* the alert */
		tls_fail(c, reason);
		return;
	}
	tls_push(c);
	if (rc == 1)
		handshake_done(c);
}

void tls_begin(struct conn *c)
{
	c->flags &= ~(uint32_t)F_TLS_NEW;
	io.in = c->in ? c->in->data + c->in->off : NULL;
	io.in_len = c->in ? c->in->len - c->in->off : 0;
	if (io.in_len > 0 && !c->tls->direct) {
		io.in_len = 0;
		tls_fail(c, "received unencrypted data in front of the TLS handshake");
		return;
	}
	handshake_step(c);
	io.in_len = 0;
}

bool conn_start_tls(struct conn *c, struct tls_ctx *ctx, bool direct)
{
	struct tls *t;

	if (c->tls || (c->flags & (F_CLOSED | F_ENDED | F_BROKEN | F_NO_MEMORY)))
		return false;
	out_flush(c);
	if (c->out_len > 0 || (c->flags & F_BROKEN))
		return false;
	t = mem_zalloc(sizeof(*t));
	if (!t)
		return false;
	t->ctx = tls_ctx_ref(ctx);
	t->direct = direct;
	c->tls = t;
	if (!session_new(t)) {
		tls_free(c);
		return false;
	}
	if (!tls_ctx_is_server(ctx) && c->host && !is_address(c->host))
		(void)SSL_set_tlsext_host_name(t->ssl, c->host);
	c->flags |= F_TLS | F_TLS_NEW | F_HANDSHAKE;
	conn_mark_kick(c);
	return true;
}

void tls_free(struct conn *c)
{
	struct tls *t = c->tls;

	if (!t)
		return;
	c->tls = NULL;
	SSL_free(t->ssl);
	tls_ctx_drop(&t->ctx);
	buf_free(&t->out);
	mem_free(t);
}

/* --- in --- */

/* Has the library anything to go on with? Asking it to read in vain takes 1700 instructions, a
 * twelfth of what a query takes. */
static bool may_have_more(const SSL *ssl)
{
	return io.in_len > 0 || SSL_has_pending(ssl);
}

/* 0 and -1 as recv(). */
static ssize_t decrypt(struct conn *c, uint8_t *dst, size_t size)
{
	SSL *ssl = c->tls->ssl;
	size_t done = 0, n;
	int what = SSL_ERROR_NONE;

	forget_errors();
	do {
		if (SSL_read_ex(ssl, dst + done, size - done, &n) == 1)
			done += n;
		else
			what = SSL_get_error(ssl, 0);
	} while (done < size && what == SSL_ERROR_NONE && may_have_more(ssl));
	tls_push(c); /* an alert, or an answer to new keys */
	if (what != SSL_ERROR_NONE && what != SSL_ERROR_WANT_READ) {
		if (done > 0) {
			c->flags |= F_TLS_END;
			conn_mark_kick(c);
			return (ssize_t)done;
		}
		errno = EPROTO;
		return what == SSL_ERROR_ZERO_RETURN ? 0 : -1;
	}
	errno = EAGAIN;
	return done > 0 ? (ssize_t)done : -1;
}

ssize_t tls_peek(void *ssl, void *dst, size_t size)
{
	size_t n;
	int what;

	forget_errors();
	if (SSL_peek_ex(ssl, dst, size, &n) == 1)
		return (ssize_t)n;
	what = SSL_get_error(ssl, 0);
	forget_errors();
	if (what == SSL_ERROR_ZERO_RETURN)
		return 0;
	errno = what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
	return -1;
}

ssize_t tls_recv(struct conn *c, void *dst, size_t size)
{
	ssize_t n;

	if (c->flags & F_TLS_NEW) {
		errno = EAGAIN;
		return -1; /* the kick comes in this turn */
	}
	if (c->flags & F_TLS_END)
		return decrypt(c, dst, size);
	/* All of it must come out again now: plaintext is shorter than its ciphertext, but the
	 * session may hold the beginning of a record. */
	ASSERT(size > RECORD_MAX);
	n = recv(c->fd, io.raw, size - RECORD_MAX < CIPHER_SIZE ? size - RECORD_MAX : CIPHER_SIZE,
		MSG_DONTWAIT);
	if (n <= 0)
		return n;
	io.in = io.raw;
	io.in_len = (size_t)n;
	if (c->flags & F_HANDSHAKE) {
		handshake_step(c);
		if (c->flags & (F_HANDSHAKE | F_CLOSED | F_ENDED)) {
			io.in_len = 0;
			errno = EAGAIN;
			return -1;
		}
	}
	n = decrypt(c, dst, size);
	io.in_len = 0;
	return n;
}

/* --- questions --- */

bool conn_is_tls(const struct conn *c)
{
	return (c->flags & (F_TLS | F_HANDSHAKE)) == F_TLS;
}

static void put_key_exchange(SSL *ssl, char *dst, size_t size)
{
	EVP_PKEY *key = NULL;
	long group = SSL_get_negotiated_group(ssl);

	if (group > 0 && !(group & TLSEXT_nid_unknown)) {
		snprintf(dst, size, "/ECDH=%s", OBJ_nid2sn((int)group));
	} else if (SSL_get_peer_tmp_key(ssl, &key) == 1) {
		snprintf(dst, size, "/DH=%d", EVP_PKEY_bits(key));
		EVP_PKEY_free(key);
	}
}

const char *conn_tls_text(const struct conn *c)
{
	static char text[160];
	size_t n;

	text[0] = '\0';
	if (!conn_is_tls(c))
		return text;
	snprintf(text, sizeof(text), "%s/%s", SSL_get_version(c->tls->ssl),
		SSL_get_cipher_name(c->tls->ssl));
	n = strlen(text);
	put_key_exchange(c->tls->ssl, text + n, sizeof(text) - n);
	return text;
}

/* A name with a zero byte in it is none: it would read as another one. */
static void put_common_name(X509_NAME *name, char dst[CONN_TLS_NAME])
{
	int len = X509_NAME_get_text_by_NID(name, NID_commonName, NULL, 0);

	dst[0] = '\0';
	if (len <= 0 || len >= CONN_TLS_NAME)
		return;
	(void)X509_NAME_get_text_by_NID(name, NID_commonName, dst, CONN_TLS_NAME);
	if (strlen(dst) != (size_t)len)
		dst[0] = '\0';
}

static void put_distinguished_name(X509_NAME *name, char *dst, size_t size)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *data;
	long len;

	dst[0] = '\0';
	if (!b)
		return;
	if (X509_NAME_print_ex(b, name, 0, XN_FLAG_RFC2253) >= 0) {
		len = BIO_get_mem_data(b, &data);
		if (len > 0 && (size_t)len < size && !memchr(data, '\0', (size_t)len)) {
			memcpy(dst, data, (size_t)len);
			dst[len] = '\0';
		}
	}
	BIO_free(b);
}

bool conn_tls_peer(const struct conn *c, struct conn_tls_peer *ret)
{
	X509 *cert = conn_is_tls(c) ? SSL_get_peer_certificate(c->tls->ssl) : NULL;

	if (!cert)
		return false;
	ret->verified = SSL_get_verify_result(c->tls->ssl) == X509_V_OK;
	put_common_name(X509_get_subject_name(cert), ret->cn);
	put_distinguished_name(X509_get_subject_name(cert), ret->dn, sizeof(ret->dn));
	X509_free(cert);
	ERR_clear_error();
	return true;
}

/* The digest of the certificate's signature; RFC 5929 wants SHA-256 in the place of weak ones. */
static size_t certificate_hash(const X509 *cert, uint8_t ret[CONN_TLS_BINDING_MAX])
{
	const EVP_MD *md;
	unsigned len = 0;
	int digest;

	if (!OBJ_find_sigid_algs(X509_get_signature_nid(cert), &digest, NULL))
		return 0;
	if (digest == NID_md5 || digest == NID_sha1)
		digest = NID_sha256;
	md = digest != NID_undef ? EVP_get_digestbynid(digest) : NULL;
	if (!md || EVP_MD_size(md) > CONN_TLS_BINDING_MAX || X509_digest(cert, md, ret, &len) != 1)
		return 0;
	return len;
}

size_t conn_tls_binding(const struct conn *c, uint8_t ret[CONN_TLS_BINDING_MAX])
{
	X509 *cert;
	size_t len = 0;

	if (!conn_is_tls(c))
		return 0;
	if (tls_ctx_is_server(c->tls->ctx)) {
		cert = SSL_get_certificate(c->tls->ssl); /* borrowed */
		return cert ? certificate_hash(cert, ret) : 0;
	}
	cert = SSL_get_peer_certificate(c->tls->ssl);
	if (cert)
		len = certificate_hash(cert, ret);
	X509_free(cert);
	return len;
}
