/*
 * TLS contexts: keys, certificates and rules, made from the settings and shared by all connections
 * that begin while they are in force. A connection keeps the context that it began with, so that a
 * reload drops nobody. What a connection does with one is in net/conn.h: conn_start_tls().
 */
#ifndef QB_NET_TLS_H
#define QB_NET_TLS_H

#include <sys/types.h>

#include "conf/conf.h"

struct tls_ctx;

struct tls_spec {
	bool server; /* we are the TLS server: the peer is a client */
	bool direct; /* towards servers: TLS begins without SSLRequest */
	enum sslmode mode;
	/* As in conf/params.h; never NULL. */
	const char *key_file, *cert_file, *ca_file, *protocols, *ciphers, *ciphersuites, *dheparams,
		*curve;
};

/* Reads the files and checks everything. NULL: err says which settings are wrong and why, a line
 * each; also for tls_set_new(). */
MUST_CHECK struct tls_ctx *tls_ctx_new(const struct tls_spec *spec, char *err, size_t err_size);
/* Who keeps one beyond the turn takes a reference; NULL gives NULL. */
struct tls_ctx *tls_ctx_ref(struct tls_ctx *x);
void tls_ctx_drop(struct tls_ctx **p);
/* The file of root certificates that OpenSSL takes by itself. */
const char *tls_system_ca(void);
/* DISABLE for NULL. */
enum sslmode tls_ctx_mode(const struct tls_ctx *x);
bool tls_ctx_is_direct(const struct tls_ctx *x);

/* The same rules for a library that does its own TLS. Texts of the configuration in force; ca_file
 * is that of the system where verify-full stands without one. */
struct tls_files {
	const char *ca_file, *cert_file, *key_file; /* "": none */
};
enum sslmode tls_files_for_database(const char *entry, struct tls_files *ret);
/* What its SSL, whose handshake is done, would read next: as recv() with MSG_PEEK, of one record. */
ssize_t tls_peek(void *ssl, void *dst, size_t size);

/* All contexts of a configuration. */
struct tls_set;
MUST_CHECK struct tls_set *tls_set_new(const struct conf *c, char *err, size_t err_size);
void tls_set_free(struct tls_set **p);
/* Puts a set in force, and frees the one before. Returns true when the rules towards servers are
 * others than before. */
bool tls_set_install(struct tls_set **p);
void tls_set_uninstall(void);

/* In force; borrowed until the loop's turn ends. NULL: TLS is switched off. */
struct tls_ctx *tls_for_clients(void);
/* entry: of [databases], "*" for those made from it. */
struct tls_ctx *tls_for_database(const char *entry);

#endif
