/*
 * The configuration as the program as a whole lives by it: read, put in force, read again. Must not
 * know who asks for that. Entry points: settings.h.
 */
#include "settings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "auth/auth.h"
#include "auth/hba.h"
#include "auth/outside.h"
#include "conf/conf.h"
#include "http/http.h"
#include "net/conn.h"
#include "net/dns.h"
#include "net/listen.h"
#include "net/tls.h"
#include "pooler/pooler.h"
#include "process.h"
#include "queue/queue.h"

static struct options opts;

/* --- reports --- */

static char mistakes[64 * 1024]; /* of the file that is read */

static void report_log(struct conf_report *r)
{
	const char *line = buf_cstr(&r->text), *end;

	for (; *line != '\0'; line = *end != '\0' ? end + 1 : end) {
		bool error;

		end = line + strcspn(line, "\n");
		if (strncmp(line, "warning: ", 9) == 0)
			line += 9; /* the level says it */
		error = memmem(line, (size_t)(end - line), "error: ", 7) != NULL;
		log_write(error ? LOG_LVL_ERROR : LOG_LVL_WARNING, NULL, "%.*s", (int)(end - line),
			line);
	}
}

/* Of the report: the first that is no warning. */
static const char *first_error(const char *text, size_t *ret_len)
{
	for (const char *line = text; *line != '\0'; line += *ret_len + 1) {
		*ret_len = strcspn(line, "\n");
		if (memmem(line, *ret_len, "error: ", 7) != NULL)
			return line;
		if (line[*ret_len] == '\0')
			break;
	}
	*ret_len = strcspn(text, "\n");
	return text;
}

/* All mistakes of a file that a setting names, a line each. */
static void report_file(struct conf_report *r, bool error, const char *setting, const char *text)
{
	const char *line = text, *end;

	for (;; line = end + 1) {
		end = line + strcspn(line, "\n");
		buf_printf(&r->text, "%s: %s: %.*s\n", error ? "error" : "warning", setting,
			(int)(end - line), line);
		r->errors += error;
		r->warnings += !error;
		if (*end == '\0')
			return;
	}
}

static void warn_of_readable(struct conf_report *r, const char *setting, const char *path)
{
	struct stat st;

	if (!auth_file_has_secrets() || stat(path, &st) != 0 || (st.st_mode & S_IROTH) == 0)
		return;
	buf_printf(&r->text,
		"warning: %s: every user of this machine can read the secrets in \"%s\": chmod o-r\n",
		setting, path);
	r->warnings++;
}

/* Of users, the entries that the file has. */
static bool users_load(const struct conf *c, struct conf_report *r, bool install)
{
	const char *path = c->p.auth_file;

	if (install ? auth_file_load(path, mistakes, sizeof(mistakes))
		    : auth_file_check(path, mistakes, sizeof(mistakes))) {
		warn_of_readable(r, "auth_file", path);
		return true;
	}
	report_file(r, true, "auth_file", mistakes);
	return false;
}

static bool ldap_is_good(const struct conf *c, struct conf_report *r)
{
	char err[256] = "out of memory", *lines;
	bool ok;

	if (c->p.auth_type != AUTH_LDAP)
		return true;
	lines = outside_lines(c->p.auth_ldap_options);
	ok = lines != NULL && outside_check(AUTH_LDAP, lines, err, sizeof(err));
	outside_options_free(&lines);
	if (!ok)
		buf_printf(&r->text, "error: auth_ldap_options: %s\n", err);
	r->errors += !ok;
	return ok;
}

/* Users and rules, in force together or not at all. Rules that no client needs may be wrong.
 * install false: only what is wrong with them is asked for. */
static bool access_load(const struct conf *c, struct conf_report *r, bool install)
{
	bool needed = c->p.auth_type == AUTH_HBA;
	struct hba *rules = NULL;
	bool ok = true;

	if (c->p.auth_hba_file[0] != '\0') {
		rules = hba_read(
			c->p.auth_hba_file, c->p.auth_ident_file, mistakes, sizeof(mistakes));
		if (rules == NULL) {
			report_file(r, needed, "auth_hba_file", mistakes);
			ok = !needed;
		}
	}
	ok = ldap_is_good(c, r) && ok;
	install = install && ok;
	if (users_load(c, r, install) && install) {
		hba_install(rules);
		return true;
	}
	hba_free(&rules);
	return false;
}

/* The files that the TLS settings name. NULL: the report says why not. */
static struct tls_set *tls_load(const struct conf *c, struct conf_report *r)
{
	struct tls_set *set = tls_set_new(c, mistakes, sizeof(mistakes));

	if (set == NULL)
		report_file(r, true, "TLS setup failed", mistakes);
	return set;
}

/* Reads everything, so that all mistakes are told at once. Puts nothing in force but users and
 * rules, which come last and decide. */
static struct conf *load(const char *path, struct conf_report *r, struct tls_set **ret_tls)
{
	struct conf *c = conf_load_partly(path, r);
	bool ok = r->errors == 0;

	*ret_tls = c != NULL ? tls_load(c, r) : NULL;
	if (c != NULL && access_load(c, r, ok && *ret_tls != NULL))
		return c;
	tls_set_free(ret_tls);
	conf_free(&c);
	return NULL;
}

/* What a start tells as well, when it is known whether systemd gives sockets. */
static void check_listening(const struct conf *c, struct conf_report *r)
{
	if (c->p.listen_addr[0] != '\0' || c->p.unix_socket_dir[0] != '\0')
		return;
	buf_puts(&r->text, "warning: \"listen_addr\" and \"unix_socket_dir\" are both empty: "
			   "there is nowhere to listen, unless systemd does (qbouncer.socket)\n");
	r->warnings++;
}

int settings_check(const char *path)
{
	struct conf_report report = {0};
	struct tls_set *tls;
	struct conf *c = load(path, &report, &tls);
	bool ok = c != NULL;

	if (ok)
		check_listening(c, &report);
	fputs(buf_cstr(&report.text), stderr);
	printf("%s: %s (%d errors, %d warnings)\n", path, ok ? "good" : "bad", report.errors,
		report.warnings);
	buf_free(&report.text);
	conf_free(&c);
	tls_set_free(&tls);
	auth_file_free();
	hba_install(NULL);
	return ok ? 0 : 1;
}

/* --- start --- */

bool settings_load(const struct options *o)
{
	struct conf_report report = {0};
	struct tls_set *tls;
	struct conf *c = load(o->config, &report, &tls);
	bool ok = c != NULL;

	opts = *o;
	if (ok) {
		conf_install(c, &report);
		(void)tls_set_install(&tls);
	}
	report_log(&report);
	buf_free(&report.text);
	return ok;
}

void settings_free(void)
{
	auth_file_free();
	hba_install(NULL);
	tls_set_uninstall();
	conf_uninstall();
	log_close();
}

bool settings_open_log(char *err, size_t err_size)
{
	const struct params *p = &conf_current()->p;
	struct log_target t = {
		.file = p->logfile,
		.to_stderr = !opts.quiet && !opts.daemon,
		.to_syslog = p->syslog,
		.json = p->log_style == LOG_STYLE_JSON,
		.syslog_ident = p->syslog_ident,
		.syslog_facility = p->syslog_facility,
		.verbose = opts.verbose > p->verbose ? opts.verbose : p->verbose,
	};

	if (log_open(&t))
		return true;
	snprintf(err, err_size, "could not open logfile \"%s\": %s", p->logfile, strerror(errno));
	return false;
}

static void count_user(const struct auth_user *u, void *arg)
{
	(void)u;
	++*(long *)arg;
}

/* Every user may open a pool in every database, unless the entry forces one user. */
static long files_wanted(const struct conf *c)
{
	long users = 0, sum = c->p.max_client_conn + 32L;

	if (c->p.metrics_port != 0)
		sum += HTTP_CONNECTIONS_MAX;
	auth_each_user(count_user, &users);
	for (const struct conf_database *d = c->databases; d != NULL; d = d->next) {
		long size = d->pool_size >= 0 ? d->pool_size : c->p.default_pool_size;

		size += d->reserve_pool_size >= 0 ? d->reserve_pool_size : c->p.reserve_pool_size;
		size += c->p.queue_pool_size;
		if (d->user == NULL && users > 1)
			size = size > LONG_MAX / 4 / users ? LONG_MAX / 4 : size * users;
		sum = sum > LONG_MAX / 4 ? sum : sum + size;
	}
	return sum;
}

void settings_check_files(unsigned long limit)
{
	const struct conf *c = conf_current();
	long wanted = files_wanted(c);

	log_debug("file descriptors: limit %lu, at most %ld in use", limit, wanted);
	if ((unsigned long)wanted > limit)
		log_warning(
			"up to %ld file descriptors may be needed (max_client_conn = %d and the "
			"pools of all users), but the limit is %lu: raise it (ulimit -n, LimitNOFILE=) "
			"or lower max_client_conn",
			wanted, c->p.max_client_conn, limit);
}

/* --- change --- */

#define PROBES 4 /* of keepalive, unless the settings say otherwise */

/* A peer that has gone without a word is noticed after this: unused as well as with bytes under
 * way. What the operator has set stays. */
static void tune_towards_servers(struct conn_tuning *t, usec_t limit)
{
	int seconds = limit > USEC_SEC ? (int)(limit / USEC_SEC) : 1;

	if (t->keepidle == 0 && t->keepintvl == 0 && t->keepcnt == 0) {
		t->keepintvl = seconds / (PROBES + 2) > 0 ? seconds / (PROBES + 2) : 1;
		t->keepidle = seconds - PROBES * t->keepintvl;
		if (t->keepidle < 1)
			t->keepidle = 1;
		t->keepcnt = PROBES;
	}
	if (t->user_timeout_ms == 0)
		t->user_timeout_ms = seconds * 1000;
}

static void tune_connections(void)
{
	const struct params *p = &conf_current()->p;
	struct conn_tuning t = {
		.keepalive = p->tcp_keepalive,
		.keepidle = p->tcp_keepidle,
		.keepintvl = p->tcp_keepintvl,
		.keepcnt = p->tcp_keepcnt,
		.user_timeout_ms = p->tcp_user_timeout,
		.socket_buffer = (int)p->tcp_socket_buffer,
	};

	struct conn_tuning made = t;

	if (p->server_tcp_timeout > 0)
		tune_towards_servers(&made, p->server_tcp_timeout);
	conn_tune(&t, &made);
	conn_send_together(p->io_uring);
	listen_tune();
	scram_set_limit(p->max_scram_iterations);
	dns_tune(&(struct dns_tuning){.resolv_conf = p->resolv_conf,
		.max_ttl = p->dns_max_ttl,
		.negative_ttl = p->dns_nxdomain_ttl,
		.check_period = p->dns_zone_check_period});
}

/* Sessions with servers that began under other rules end as they become free. */
static void install_tls(struct tls_set *tls)
{
	if (tls_set_install(&tls) && pooler_command(POOLER_RECONNECT, NULL) != POOLER_OK)
		log_warning("connections to servers keep the TLS settings they began with");
}

void settings_apply(void)
{
	char err[512];

	if (!settings_open_log(err, sizeof(err)))
		log_error("%s; the log stays as it was", err);
	if (!http_apply(err, sizeof(err)))
		log_error("%s", err);
	tune_connections();
	pooler_reloaded();
	queue_reloaded();
}

/* SET may have named other files. */
void settings_changed(void)
{
	struct conf_report report = {0};

	struct tls_set *tls = tls_load(conf_current(), &report);

	if (tls == NULL)
		log_error("TLS stays as it was");
	if (!access_load(conf_current(), &report, true))
		log_error("users and rules stay as they were");
	report_log(&report);
	buf_free(&report.text);
	settings_apply();
	if (tls != NULL)
		install_tls(tls);
}

/* What is wrong with it the others tell. */
void settings_follow(void)
{
	struct conf_report report = {0};
	struct tls_set *tls;
	struct conf *c = load(opts.config, &report, &tls);
	char err[512];

	if (c != NULL) {
		conf_install(c, &report);
		(void)tls_set_install(&tls);
	}
	if (!settings_open_log(err, sizeof(err)))
		log_error("%s; the log stays as it was", err);
	buf_free(&report.text);
}

bool settings_reload(struct pg_error *err)
{
	struct conf_report report = {0};
	struct tls_set *tls;
	struct conf *c;
	bool ok;

	process_notify_reloading();
	log_info("reload: reading \"%s\"", opts.config);
	c = load(opts.config, &report, &tls);
	ok = c != NULL;
	if (ok)
		conf_install(c, &report);
	report_log(&report);
	if (ok) {
		settings_apply();
		install_tls(tls);
		log_info("reload: the configuration is in force (%d warnings)", report.warnings);
	} else {
		size_t len;
		const char *text = first_error(buf_cstr(&report.text), &len);

		log_error("reload: nothing was changed (%d errors)", report.errors);
		pg_error_set(err, "F0000", "RELOAD failed, see logs for additional details");
		pg_error_detail(err, "%.*s", (int)len, text);
	}
	buf_free(&report.text);
	process_notify_ready();
	return ok;
}
