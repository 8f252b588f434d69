/*
 * From a database name to where it lives: the entries of [databases] in force, and those made from
 * "*" on demand.
 */
#include <string.h>

#include "pool/rooms.h"

static void (*on_moved)(const char *database);

void route_on_moved(void (*fn)(const char *database))
{
	on_moved = fn;
}

static void moved(const struct database *db)
{
	if (on_moved != NULL)
		on_moved(db->name);
}

static bool replace_text(char **dst, const char *src)
{
	char *copy = NULL;

	if (src != NULL && (copy = mem_strdup(src)) == NULL)
		return false;
	mem_free(*dst);
	*dst = copy;
	return true;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static int number(int value, int fallback)
{
	return value >= 0 ? value : fallback;
}

/* The hosts keep what is known of them as long as the list is the same. */
static bool copy_hosts(struct database *db, const struct conf_database *d)
{
	const char *text = d->host != NULL ? d->host : "/tmp";
	struct hosts *hosts;

	db->target = d->target_session_attrs != TARGET_UNSET ? d->target_session_attrs : TARGET_ANY;
	db->balance = d->load_balance_hosts != BALANCE_UNSET ? d->load_balance_hosts
							     : BALANCE_ROUND_ROBIN;
	if (db->hosts != NULL && db->host != NULL && strcmp(db->host, text) == 0)
		return true;
	hosts = hosts_new(text);
	if (hosts == NULL || !replace_text(&db->host, text)) {
		hosts_free(&hosts);
		return false;
	}
	hosts_free(&db->hosts);
	db->hosts = hosts;
	return true;
}

static bool copy_texts(struct database *db, const struct conf_database *d)
{
	return copy_hosts(db, d) &&
	       replace_text(&db->dbname, d->dbname != NULL ? d->dbname : db->name) &&
	       replace_text(&db->user, d->user) && replace_text(&db->password, d->password) &&
	       replace_text(&db->connect_query, d->connect_query) &&
	       replace_text(&db->queue_user, d->queue_user) &&
	       replace_text(&db->queue_password, d->queue_password);
}

static void copy_defaults(struct database *db, const struct conf_database *d)
{
	const struct {
		enum var_id id;
		const char *value;
	} given[] = {{VAR_CLIENT_ENCODING, d->client_encoding}, {VAR_DATESTYLE, d->datestyle},
		{VAR_TIMEZONE, d->timezone}, {VAR_APPLICATION_NAME, d->application_name}};

	vars_clear(&db->defaults);
	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		if (given[i].value != NULL)
			vars_set(&db->defaults, given[i].id, given[i].value);
}

/* Puts an entry in force. false without memory. */
static bool configure(struct database *db, const struct conf *c, const struct conf_database *d)
{
	if (!copy_texts(db, d))
		return false;
	copy_defaults(db, d);
	db->port = d->port > 0 ? d->port : 5432;
	db->pool_size = number(d->pool_size, c->p.default_pool_size);
	db->min_pool_size = number(d->min_pool_size, c->p.min_pool_size);
	db->reserve_pool_size = number(d->reserve_pool_size, c->p.reserve_pool_size);
	db->max_connections = number(d->max_db_connections, c->p.max_db_connections);
	db->max_client_connections =
		number(d->max_db_client_connections, c->p.max_db_client_connections);
	db->mode = d->pool_mode != POOL_MODE_UNSET ? d->pool_mode : c->p.pool_mode;
	db->server_lifetime =
		d->server_lifetime != USEC_NEVER ? d->server_lifetime : c->p.server_lifetime;
	db->query_wait_timeout = d->query_wait_timeout != USEC_NEVER ? d->query_wait_timeout
								     : c->p.query_wait_timeout;
	db->generation = c->generation;
	return true;
}

static void database_free(struct database *db)
{
	CHECK_DATABASE(db);
	INVARIANT(db->pools == NULL && db->n_servers == 0, "a database is freed that has pools");
	LL_DELETE(pool_all.databases, db);
	mem_free(db->host);
	hosts_free(&db->hosts);
	mem_free(db->dbname);
	mem_free(db->user);
	if (db->password != NULL)
		util_erase(db->password, strlen(db->password));
	mem_free(db->password);
	mem_free(db->connect_query);
	mem_free(db->queue_user);
	if (db->queue_password != NULL)
		util_erase(db->queue_password, strlen(db->queue_password));
	mem_free(db->queue_password);
	vars_clear(&db->defaults);
	db->magic = 0;
	mem_free(db);
}

static struct database *database_new(
	const struct conf *c, const struct conf_database *d, const char *name)
{
	struct database *db = mem_zalloc(sizeof(*db));

	if (db == NULL)
		return NULL;
	db->magic = DATABASE_MAGIC;
	util_strlcpy(db->name, name, sizeof(db->name));
	db->automatic = strcmp(d->name, "*") == 0;
	db->idle_since = loop_now();
	if (!configure(db, c, d)) {
		LL_PREPEND(pool_all.databases, db);
		database_free(db);
		return NULL;
	}
	LL_APPEND(pool_all.databases, db);
	moved(db);
	return db;
}

static struct database *find(const char *name)
{
	struct database *db;

	for (db = pool_all.databases; db != NULL; db = db->next)
		if (!db->gone && strcmp(db->name, name) == 0)
			return db;
	return NULL;
}

static struct database *find_or_make(const char *name)
{
	struct database *db = find(name);
	const struct conf *c = conf_current();
	const struct conf_database *d;

	if (db != NULL)
		return db;
	d = conf_find_database(c, name);
	if (d == NULL || strlen(name) >= sizeof(db->name))
		return NULL;
	return database_new(c, d, name);
}

static void registered(const struct database *db)
{
	if (db != NULL && db->automatic)
		log_info("registered new auto-database: %s", db->name);
}

struct database *route_find(const char *name)
{
	struct database *db = find(name);

	if (db == NULL) {
		db = find_or_make(name);
		registered(db);
	}
	return db;
}

/* --- those that clients name --- */

#define UNPROVEN_MAX 32

static bool has_tasks(const struct database *db)
{
	for (const struct pool *p = db->pools; p != NULL; p = p->next)
		if (p->n_tasks > 0)
			return true;
	return false;
}

static bool has_servers_in_use(const struct database *db)
{
	for (const struct pool *p = db->pools; p != NULL; p = p->next)
		if (pool_servers_total(p) !=
				p->servers[SERVER_IDLE].count + p->servers[SERVER_KEPT].count ||
			p->servers[SERVER_LISTENING].count > 0)
			return true;
	return false;
}

/* Nobody would miss it. */
static bool may_go(const struct database *db, bool unproven)
{
	return db->automatic && !db->gone && db->unproven == unproven && db->n_clients == 0 &&
	       !db->paused && !db->disabled && !has_tasks(db) &&
	       (unproven || !has_servers_in_use(db));
}

static unsigned count_automatic(bool unproven)
{
	unsigned n = 0;

	for (const struct database *db = pool_all.databases; db != NULL; db = db->next)
		n += db->automatic && !db->gone && db->unproven == unproven;
	return n;
}

/* What has been unused for the longest time goes, with its idle connections; route_tick() frees it.
 */
static bool make_room(bool unproven)
{
	struct database *victim = NULL;

	for (struct database *db = pool_all.databases; db != NULL; db = db->next)
		if (may_go(db, unproven) && (victim == NULL || db->idle_since < victim->idle_since))
			victim = db;
	if (victim == NULL)
		return false;
	for (struct pool *p = victim->pools; p != NULL; p = p->next)
		for (int i = 0; i < SERVER_DEAD; i++)
			while (p->servers[i].head != NULL)
				server_close(p->servers[i].head, "database is not used", NULL);
	victim->gone = true;
	return true;
}

struct database *route_find_unproven(const char *name)
{
	struct database *db = find(name);
	const struct conf_database *d;

	if (db != NULL)
		return db;
	d = conf_find_database(conf_current(), name);
	if (d != NULL && strcmp(d->name, "*") == 0 && count_automatic(true) >= UNPROVEN_MAX &&
		!make_room(true))
		return NULL;
	db = find_or_make(name);
	if (db != NULL)
		db->unproven = db->automatic;
	return db;
}

struct database *route_enter(const char *name, bool *ret_full)
{
	struct database *db = find(name);
	const struct conf_database *d = conf_find_database(conf_current(), name);

	*ret_full = false;
	if (db != NULL && !db->unproven)
		return db;
	if (d != NULL && strcmp(d->name, "*") == 0 &&
		count_automatic(false) >= (unsigned)conf_current()->p.max_auto_databases &&
		!make_room(false)) {
		*ret_full = true;
		return NULL;
	}
	db = find_or_make(name);
	if (db != NULL)
		db->unproven = false;
	registered(db);
	return db;
}

static void close_servers_soon(struct database *db)
{
	struct server *s;

	for (struct pool *p = db->pools; p != NULL; p = p->next) {
		for (int i = 0; i < SERVER_DEAD; i++)
			DL_FOREACH (p->servers[i].head, s)
				s->close_needed = true;
		p->welcome_known = false;
		pool_forget_accepted(p);
		vars_clear(&p->welcome);
		buf_free(&p->welcome_rest);
		p->failed_at = 0;
		pool_mark_ready(p);
	}
}

void route_reconnect(struct database *db)
{
	close_servers_soon(db);
}

static void reload_one(struct database *db, const struct conf *c, const struct conf_database *d)
{
	bool same = same_text(db->host, d->host != NULL ? d->host : "/tmp") &&
		    same_text(db->dbname, d->dbname != NULL ? d->dbname : db->name) &&
		    same_text(db->user, d->user) && same_text(db->password, d->password) &&
		    db->port == (d->port > 0 ? d->port : 5432) &&
		    db->target == (d->target_session_attrs != TARGET_UNSET ? d->target_session_attrs
									   : TARGET_ANY);

	if (!configure(db, c, d))
		log_error("reload: out of memory; database \"%s\" keeps its old settings in part",
			db->name);
	db->automatic = strcmp(d->name, "*") == 0;
	db->unproven = db->unproven && db->automatic;
	if (same)
		return;
	close_servers_soon(db);
	moved(db);
}

void route_reload(const struct conf *c)
{
	struct database *db;

	pool_all.generation++;
	for (db = pool_all.databases; db != NULL; db = db->next) {
		const struct conf_database *d = conf_find_database(c, db->name);

		if (d != NULL)
			reload_one(db, c, d);
		else
			db->gone = true;
		over_begin(db); /* limits may be lower, or higher */
	}
	for (const struct conf_database *d = c->databases; d != NULL; d = d->next)
		if (strcmp(d->name, "*") != 0 && find(d->name) == NULL &&
			database_new(c, d, d->name) == NULL)
			log_error("out of memory: database \"%s\" is not there", d->name);
}

/* On their way to another process, and back if that cannot have them. */
static bool has_moving(const struct pool *p)
{
	const struct client *c;

	DL_FOREACH (client_all.moving.head, c)
		if (c->pool == p)
			return true;
	return false;
}

static bool pool_is_unused(const struct pool *p)
{
	return !has_moving(p) && p->active.count + p->waiting.count + p->greeting.count +
						 p->n_tasks + p->n_keepers + pool_servers_total(p) +
						 p->servers[SERVER_LISTENING].count ==
					 0;
}

/* Pools that nobody has used for a while, if the operator wants that, and those of one client. */
static void forget_pools(struct database *db, usec_t now)
{
	usec_t limit = conf_current()->p.pool_idle_timeout;
	struct pool *p, *tmp;

	LL_FOREACH_SAFE (db->pools, p, tmp) {
		struct pool *unused = p;

		if (!pool_is_unused(p))
			p->idle_since = now;
		else if (p->startup != NULL)
			pool_free(&unused);
		else if (limit > 0 && now - p->idle_since > limit) {
			log_info("cleaning up idle pool: %s/%s", db->name, istr_text(p->user));
			pool_free(&unused);
		}
	}
}

/* How long one that was made from "*" stays unused; 0: for ever. Anybody may name what is not
 * there, also before he has logged in: that stays as long as a failure is remembered. */
static usec_t idle_limit(const struct database *db)
{
	usec_t limit = conf_current()->p.autodb_idle_timeout;
	usec_t retry = 2 * conf_current()->p.server_login_retry + USEC_SEC;

	if ((db->reached && !db->unproven) || db->paused || db->disabled)
		return limit;
	return limit == 0 || retry < limit ? retry : limit;
}

/* Databases made from "*" that nobody has used for a while, and those that the file has no more. */
void route_tick(usec_t now)
{
	struct database *db, *tmp;
	struct pool *p, *ptmp;

	LL_FOREACH_SAFE (pool_all.databases, db, tmp) {
		bool used = db->n_clients > 0 || db->n_servers > 0;
		usec_t limit = idle_limit(db);

		forget_pools(db, now);
		if (used)
			db->idle_since = now;
		if (used || (!db->gone &&
				    (!db->automatic || limit == 0 || now - db->idle_since < limit)))
			continue;
		LL_FOREACH_SAFE (db->pools, p, ptmp)
			if (pool_is_unused(p)) {
				struct pool *unused = p;

				pool_free(&unused);
			}
		if (db->pools == NULL && (db->gone || db->automatic))
			database_free(db);
	}
}

void route_free(void)
{
	struct database *db, *tmp;

	LL_FOREACH_SAFE (pool_all.databases, db, tmp) {
		while (db->pools != NULL) {
			struct pool *p = db->pools;

			pool_free(&p);
		}
		database_free(db);
	}
}
