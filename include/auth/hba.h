/*
 * Which way of proving is asked of whom: the rules of auth_hba_file (the format of pg_hba.conf) and
 * the maps of auth_ident_file. Knows text and addresses, no sockets.
 */
#ifndef QB_AUTH_HBA_H
#define QB_AUTH_HBA_H

#include "conf/conf.h"

struct hba_rule {
	enum auth_type type;    /* AUTH_REJECT and AUTH_PEER come from here only */
	const char *map;        /* of auth_ident_file; NULL: none */
	bool needs_cert;        /* clientcert=verify-ca or verify-full beside another method */
	bool needs_name;        /* ... verify-full: the certificate names the user */
	const char *options;    /* of LDAP and PAM: name=value, a line each; "" for none */
	const char *file;
	int line;
};

/* Who asks to come in. */
struct hba_peer {
	bool is_unix, tls, replication; /* replication: physical */
	const char *address;            /* numeric; not looked at for unix */
	const char *host;               /* its confirmed name, "" for none; NULL: not asked yet */
	const char *database, *user;
};

struct hba;
/* Reads both files; ident_path NULL or "": no maps. NULL: err says "file:line: why" of
 * each mistake, a line each, as many as fit. */
MUST_CHECK struct hba *hba_read(const char *path, const char *ident_path, char *err, size_t err_size);
void hba_free(struct hba **p);

/* Puts rules in force, NULL for none, and frees those that were. */
void hba_install(struct hba *h);
/* A rule that names hosts may decide, and peer->host is NULL: to be asked for first. */
MUST_CHECK bool hba_wants_host(const struct hba_peer *peer);
/* The first rule that fits, or NULL: nobody may come in that way. Borrowed until the next install. */
const struct hba_rule *hba_find(const struct hba_peer *peer);
/* May the holder of a name of the system (of a unix user, a certificate) be that database user?
 * Without a map both names have to be the same. */
MUST_CHECK bool hba_map_allows(const char *map, const char *system_name, const char *user);

#endif
