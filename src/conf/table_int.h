/*
 * The three tables of keys: parameters, what an entry of [databases] may say, what one of [users]
 * may say.
 */
#ifndef QB_CONF_TABLE_INT_H
#define QB_CONF_TABLE_INT_H

#include "field_int.h"
#include "ini_int.h"

struct field_table {
	const struct field *fields;
	size_t n;
};

extern const struct field_table conf_peer_keys;
extern const struct field_table conf_params;        /* of struct params */
extern const struct field_table conf_database_keys; /* of struct conf_database */
extern const struct field_table conf_user_keys;     /* of struct conf_user */
extern const struct field_word conf_pool_mode_words[], conf_sslmode_words[],
	conf_tls_negotiation_words[];

/* All parameters at their defaults; false when out of memory, with the struct to be cleared. */
MUST_CHECK bool params_init(struct params *p);
void params_clear(struct params *p);
const char *conf_check_auth_dbname(const union field_value *v);
/* What concerns more than one parameter: NULL, or the error. */
const char *params_conflict(const struct params *p);

void database_free(struct conf_database **p);
void user_free(struct conf_user **p);
void peer_free(struct conf_peer **p);

/* Entry functions of the sections; arg is the struct conf that grows. */
ini_entry_fn section_params, section_databases, section_users, section_peers;

#endif
