/*
 * What the console commands do. Some answer later: each such client has one `wait` in a list,
 * looked at by a tick as long as there is one; a wait ends when its condition holds, when it is
 * cancelled, or with its client. Entry points: command_run() and its like in admin_int.h.
 */
#include <string.h>

#include <utlist.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "net/loop.h"
#include "net/team.h"
#include "pooler/stat.h"
#include "queue/queue.h"
#include "others.h"

#define WAIT_LOOK (20 * USEC_MSEC)

/* A client whose answer comes later; it is the client's slot. INSTALL may outlive its client. */
struct wait {
	struct wait *prev, *next;
	struct client *client; /* NULL: it has left, or does not wait any more; or there was none */
	struct others others;  /* who does the same, or has asked for it */
	enum { OWN_WAITS, OWN_DONE, OWN_FAILED } own;
	struct pg_error err; /* own, or of the others */
	enum console_command id;
	char database[CONSOLE_NAME_MAX];
	struct buf notices;
};

static void do_without_looking(const struct wait *w);

static struct wait *waits;
static struct loop_tick *tick;
static const struct admin_hooks *program;

/* --- small answers --- */

static enum exec_verdict answer(struct exec *x, const char *tag)
{
	util_strlcpy(x->answer.tag, tag, sizeof(x->answer.tag));
	return EXEC_ANSWER;
}

static enum exec_verdict fail_no_database(struct exec *x, const char *name)
{
	pg_error_set(&x->err, CONSOLE_ERROR, "no such database: %s", name);
	pg_error_hint(&x->err, "SHOW DATABASES lists them.");
	return EXEC_ERROR;
}

static const char *tag_of(enum console_command id)
{
	return console_commands[id].name;
}

struct find_database {
	const char *name;
	bool found;
	char user[CONSOLE_NAME_MAX]; /* that its entry forces; "" for none */
};

static void match_database(const struct stat_database *st, void *arg)
{
	struct find_database *f = arg;

	if (strcmp(st->name, f->name) != 0)
		return;
	f->found = true;
	if (st->force_user != NULL)
		util_strlcpy(f->user, st->force_user, sizeof(f->user));
}

/* One that exists already: a name that only `*` would serve is none. */
static bool has_database(const char *name)
{
	struct find_database f = {.name = name};

	stat_each_database(match_database, &f);
	return f.found;
}

/* --- later --- */

static void count_closing(const struct stat_session *st, void *arg)
{
	const struct wait **w = arg;

	if (*w != NULL && st->close_needed &&
		((*w)->database[0] == '\0' || strcmp((*w)->database, st->database) == 0))
		*w = NULL;
}

enum wait_state { WAIT_GOES_ON, WAIT_OVER, WAIT_RESUMED };

static enum wait_state pause_state(const char *database)
{
	if (pooler_is_paused(database))
		return WAIT_OVER;
	return pooler_pause_holds(database) ? WAIT_GOES_ON : WAIT_RESUMED;
}

static enum wait_state suspend_state(void)
{
	switch (pooler_is_suspended()) {
	case SUSPENDED_NO:
		return WAIT_RESUMED;
	case SUSPENDED_SOON:
		return WAIT_GOES_ON;
	case SUSPENDED_YES:
		break;
	}
	return WAIT_OVER;
}

static enum wait_state wait_look(const struct wait *w)
{
	const struct wait *left = w;

	if (w->id == CMD_PAUSE)
		return pause_state(w->database[0] != '\0' ? w->database : NULL);
	if (w->id == CMD_SUSPEND)
		return suspend_state();
	if (w->id != CMD_WAIT_CLOSE)
		return WAIT_GOES_ON;
	stat_each_server(count_closing, &left);
	return left != NULL ? WAIT_OVER : WAIT_GOES_ON;
}

static void wait_free(struct wait *w)
{
	if (w->client != NULL)
		client_slot_set(w->client, NULL);
	DL_DELETE(waits, w);
	buf_free(&w->others.rows);
	buf_free(&w->notices);
	mem_free(w);
}

/* The client has its answer; what is left of the wait is not its concern any more. */
static void wait_answer(struct wait *w, const struct pg_error *err)
{
	struct client *c = w->client;
	struct answer a = {0};

	if (c == NULL) {
		others_answer(&w->others, NULL, err);
		return;
	}
	w->client = NULL;
	client_slot_set(c, NULL);
	util_strlcpy(a.tag, tag_of(w->id), sizeof(a.tag));
	a.notices = w->notices;
	w->notices = BUF_INIT;
	a.rows = w->others.rows;
	a.n_rows = w->others.n_rows;
	w->others.rows = BUF_INIT;
	if (err != NULL) {
		buf_free(&a.notices);
		buf_free(&a.rows);
	}
	if (err != NULL)
		client_fail(c, err);
	else
		client_answer(c, &a);
}

static void look_at_own(struct wait *w)
{
	switch (wait_look(w)) {
	case WAIT_GOES_ON:
		break;
	case WAIT_OVER:
		w->own = OWN_DONE;
		break;
	case WAIT_RESUMED:
		w->own = OWN_FAILED;
		pg_error_set(&w->err, "55000", "%s was ended by a RESUME before it was complete",
			tag_of(w->id));
		break;
	}
}

/* Who is silent for too long is not waited for where there are only rows to come. */
static void say_who_is_silent(struct wait *w)
{
	struct pg_error said;

	if (w->others.awaited == 0)
		return;
	pg_error_set(&said, "01000", "not all processes have answered: their rows are missing");
	pg_error_severity(&said, "WARNING");
	build_notice(&w->notices, &said);
}

/* Own part and theirs: some have to be done everywhere, of others it is enough that somebody has found what it is about. */
static bool has_failed(const struct wait *w)
{
	bool everywhere = w->id == CMD_SET || w->id == CMD_RELOAD || w->id == CMD_SUSPEND;

	if (everywhere)
		return w->own == OWN_FAILED || w->others.failed;
	return w->own == OWN_FAILED && !w->others.done;
}

static void wait_end(struct wait *w)
{
	bool failed = has_failed(w);

	say_who_is_silent(w);
	if (!failed && w->own == OWN_FAILED)
		do_without_looking(w);
	wait_answer(w, !failed ? NULL : w->own == OWN_FAILED ? &w->err : &w->others.err);
	wait_free(w);
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct wait *w, *next;
	bool more = false;

	(void)arg;
	DL_FOREACH_SAFE (waits, w, next) {
		if (w->own == OWN_WAITS)
			look_at_own(w);
		if (w->own == OWN_WAITS ||
			(w->others.awaited != 0 && !(w->id == CMD_SHOW && now >= w->others.until)))
			more = more || w->id != CMD_INSTALL;
		else
			wait_end(w);
	}
	return more ? now + WAIT_LOOK : USEC_NEVER;
}

static struct wait *wait_new(struct exec *x, enum console_command id, const char *database)
{
	struct wait *w = mem_zalloc(sizeof(*w));

	if (w == NULL) {
		pg_error_set(&x->err, "53200", "out of memory");
		return NULL;
	}
	w->client = x->client;
	w->id = id;
	util_strlcpy(w->database, database, sizeof(w->database));
	if (x->client != NULL)
		client_slot_set(x->client, w);
	DL_APPEND(waits, w);
	if (id != CMD_INSTALL)
		loop_tick_at(tick, loop_now());
	return w;
}

static enum exec_verdict wait_for(struct exec *x, const struct command *cmd)
{
	struct wait *w = wait_new(x, cmd->id, cmd->name);

	if (w == NULL)
		return EXEC_ERROR;
	if (wait_look(w) != WAIT_OVER)
		return EXEC_PARK;
	wait_free(w);
	return answer(x, tag_of(cmd->id));
}

/* Who owns the schema decides who may make queues: it is told. */
static void on_installed(void *arg, const char *role, const struct pg_error *err)
{
	struct pg_error said;
	struct wait *w = arg;

	if (err == NULL) {
		pg_error_set(&said, "00000",
			"the schema \"queue\" of database \"%s\" is there (asked for as role \"%s\")",
			w->database, role);
		pg_error_severity(&said, "NOTICE");
		build_notice(&w->notices, &said);
	} else {
		said = *err;
		if (said.detail[0] == '\0')
			pg_error_detail(&said, "It was tried as role \"%s\".", role);
		if (said.hint[0] == '\0')
			pg_error_hint(&said, "Another role is named by: INSTALL %s AS user;",
				w->database);
	}
	if (w->client != NULL)
		wait_answer(w, err != NULL ? &said : NULL);
	else if (err != NULL)
		log_warning("INSTALL of \"%s\" as role %s: %s", w->database, role, err->message);
	wait_free(w);
}

void command_cancel(struct client *c)
{
	struct wait *w = client_slot(c);
	struct pg_error err;

	if (w == NULL)
		return;
	pg_error_set(&err, "57014", "canceling statement due to user request");
	if (w->id == CMD_PAUSE || w->id == CMD_SUSPEND)
		pg_error_hint(&err, "%s stays in force; RESUME ends it.", tag_of(w->id));
	wait_answer(w, &err);
	if (w->id != CMD_INSTALL)
		wait_free(w);
}

void command_client_ended(struct client *c)
{
	struct wait *w = client_slot(c);

	if (w == NULL)
		return;
	if (w->id != CMD_INSTALL) {
		wait_free(w);
		return;
	}
	client_slot_set(c, NULL);
	w->client = NULL;
}

/* --- the commands --- */

static enum exec_verdict run_show(struct exec *x, const struct command *cmd)
{
	const struct show *row = &shows[cmd->show];
	struct show_rows r = {.out = &x->answer.rows,
		.process = show_is_of_each(cmd->show) ? team_self() : 0,
		.formats = x->bind.formats,
		.n_formats = x->bind.n_formats};

	r.fields = show_fields(cmd->show, &r.n_fields);
	if (cmd->show == SHOW_HELP)
		console_help_notice(&x->answer.notices);
	row->fill(&r);
	x->answer.n_rows = r.n_rows;
	return answer(x, "SHOW");
}

/* What another process has been asked stands in its log. */
static void say(const struct exec *x, const char *what, const char *of)
{
	if (x->client != NULL)
		client_log(x->client, LOG_LVL_INFO, "%s%s", what, of);
}

static enum exec_verdict run_set(struct exec *x, const struct command *cmd)
{
	char err[512];

	if (conf_set(cmd->name, cmd->value, err, sizeof(err))) {
		say(x, "SET ", cmd->name);
		program->changed();
		return answer(x, "SET");
	}
	pg_error_set(&x->err, CONSOLE_ERROR, "SET failed");
	pg_error_detail(&x->err, "%s", err);
	return EXEC_ERROR;
}

static enum exec_verdict run_reload(struct exec *x)
{
	say(x, "RELOAD command issued", "");
	if (program->reload(&x->err))
		return answer(x, "RELOAD");
	util_strlcpy(x->err.sqlstate, CONSOLE_ERROR, sizeof(x->err.sqlstate));
	return EXEC_ERROR;
}

/* The pool's commands: a database, or all. */
static enum exec_verdict run_pooler(
	struct exec *x, const struct command *cmd, enum pooler_command what)
{
	const char *db = cmd->name[0] != '\0' ? cmd->name : NULL;

	if (db != NULL && !cmd->known && !has_database(db))
		return fail_no_database(x, db);
	if (x->client == NULL)
		log_debug("%s %s", tag_of(cmd->id), cmd->name);
	else if (db != NULL)
		client_log(x->client, LOG_LVL_INFO, "%s '%s' command issued", tag_of(cmd->id), db);
	else
		client_log(x->client, LOG_LVL_INFO, "%s command issued", tag_of(cmd->id));
	/* what a shutdown has paused stays so; a SUSPEND that came during one is over */
	if (what == POOLER_RESUME && db == NULL && pooler_is_shutting_down() != SHUTDOWN_NONE &&
		pooler_is_suspended() == SUSPENDED_NO) {
		pg_error_set(&x->err, CONSOLE_ERROR, "pooler is shutting down");
		return EXEC_ERROR;
	}
	switch (pooler_command(what, db)) {
	case POOLER_OK:
		return cmd->id == CMD_PAUSE || cmd->id == CMD_SUSPEND ? wait_for(x, cmd)
								      : answer(x, tag_of(cmd->id));
	case POOLER_NO_DATABASE:
		return fail_no_database(x, cmd->name);
	case POOLER_NOT_PAUSED:
		if (db != NULL)
			pg_error_set(&x->err, CONSOLE_ERROR, "database %s is not paused", db);
		else
			pg_error_set(&x->err, CONSOLE_ERROR, "pooler is not paused/suspended");
		return EXEC_ERROR;
	case POOLER_ALREADY_PAUSED:
		pg_error_set(&x->err, CONSOLE_ERROR, "already suspended/paused");
		return EXEC_ERROR;
	case POOLER_SOME_PAUSED:
		pg_error_set(&x->err, CONSOLE_ERROR, "cannot suspend with paused databases");
		pg_error_hint(&x->err, "SHOW DATABASES tells which; RESUME them first.");
		return EXEC_ERROR;
	}
	return EXEC_ERROR;
}

static enum exec_verdict run_wait_close(struct exec *x, const struct command *cmd)
{
	if (cmd->name[0] != '\0' && !has_database(cmd->name))
		return fail_no_database(x, cmd->name);
	return wait_for(x, cmd);
}

static enum exec_verdict run_kill_client(struct exec *x, const struct command *cmd)
{
	if (x->client != NULL && cmd->number == client_id(x->client)) {
		pg_error_set(&x->err, CONSOLE_ERROR, "this is the client that asks");
		return EXEC_ERROR;
	}
	if (!pooler_kill_client(cmd->number)) {
		pg_error_set(&x->err, CONSOLE_ERROR, "client not found");
		pg_error_hint(&x->err, "The number is `id` of SHOW CLIENTS.");
		return EXEC_ERROR;
	}
	log_info("KILL_CLIENT %llu", (unsigned long long)cmd->number);
	return answer(x, "KILL_CLIENT");
}

static enum exec_verdict run_shutdown(struct exec *x, const struct command *cmd)
{
	client_log(x->client, LOG_LVL_INFO, "SHUTDOWN command issued");
	program->shutdown(cmd->how);
	return answer(x, "SHUTDOWN");
}

static enum exec_verdict run_takeover(struct exec *x, const struct command *cmd)
{
	client_log(x->client, LOG_LVL_INFO, "TAKEOVER command issued");
	return program->takeover(client_own_fd(x->client), cmd->number, &x->err)
		       ? answer(x, "TAKEOVER")
		       : EXEC_ERROR;
}

static enum exec_verdict run_install(struct exec *x, const struct command *cmd)
{
	struct find_database f = {.name = cmd->name};
	struct wait *w;

	stat_each_database(match_database, &f);
	if (!f.found && !pooler_has_database(cmd->name))
		return fail_no_database(x, cmd->name);
	if (cmd->user[0] != '\0' && f.user[0] != '\0' && strcmp(cmd->user, f.user) != 0) {
		pg_error_set(&x->err, "55000",
			"the entry of database \"%s\" has user=%s: nobody else comes to it",
			cmd->name, f.user);
		return EXEC_ERROR;
	}
	if (cmd->user[0] != '\0')
		util_strlcpy(f.user, cmd->user, sizeof(f.user));
	w = wait_new(x, CMD_INSTALL, cmd->name);
	if (w == NULL)
		return EXEC_ERROR;
	if (queue_install(cmd->name, f.user[0] != '\0' ? f.user : NULL, on_installed, w))
		return EXEC_PARK;
	wait_free(w);
	pg_error_set(
		&x->err, "55000", "there is no pool of database %s to install with", cmd->name);
	pg_error_hint(
		&x->err, "Name the role that is to own the schema: INSTALL %s AS user;", cmd->name);
	return EXEC_ERROR;
}

static enum exec_verdict run_probe(struct exec *x, const struct command *cmd)
{
	const struct probe *p = &cmd->probe;
	struct show_rows r = {.out = &x->answer.rows,
		.fields = &p->field,
		.n_fields = 1,
		.formats = x->bind.formats,
		.n_formats = x->bind.n_formats};
	struct pg_error err;

	if (strcmp(p->tag, "BEGIN") == 0) {
		pg_error_set(&err, "25001", "there is already a transaction in progress");
		pg_error_severity(&err, "WARNING");
		build_notice(&x->answer.notices, &err);
	}
	if (p->field.name == NULL)
		return answer(x, p->tag);
	row_begin(&r);
	row_constant(&r, p->value);
	row_end(&r);
	x->answer.n_rows = 1;
	return answer(x, p->tag);
}

static bool may(const struct client *c, const struct command *cmd)
{
	if (cmd->id == CMD_PROBE || client_is_admin(c))
		return true;
	if (console_commands[cmd->id].who != WHO_STATS)
		return false;
	return cmd->id != CMD_SHOW || shows[cmd->show].who == WHO_STATS;
}

static enum exec_verdict run(struct exec *x, const struct command *cmd)
{
	switch (cmd->id) {
	case CMD_SHOW:
		return run_show(x, cmd);
	case CMD_SET:
		return run_set(x, cmd);
	case CMD_RELOAD:
		return run_reload(x);
	case CMD_PAUSE:
		return run_pooler(x, cmd, POOLER_PAUSE);
	case CMD_RESUME:
		return run_pooler(x, cmd, POOLER_RESUME);
	case CMD_DISABLE:
		return run_pooler(x, cmd, POOLER_DISABLE);
	case CMD_ENABLE:
		return run_pooler(x, cmd, POOLER_ENABLE);
	case CMD_RECONNECT:
		return run_pooler(x, cmd, POOLER_RECONNECT);
	case CMD_WAIT_CLOSE:
		return run_wait_close(x, cmd);
	case CMD_KILL:
		return run_pooler(x, cmd, POOLER_KILL);
	case CMD_KILL_CLIENT:
		return run_kill_client(x, cmd);
	case CMD_SUSPEND:
		return run_pooler(x, cmd, POOLER_SUSPEND);
	case CMD_SHUTDOWN:
		return run_shutdown(x, cmd);
	case CMD_TAKEOVER:
		return run_takeover(x, cmd);
	case CMD_INSTALL:
		return run_install(x, cmd);
	case CMD_PROBE:
		return run_probe(x, cmd);
	case CMD_COUNT:
		break;
	}
	return EXEC_ERROR;
}

/* --- with the other processes of the program --- */

static bool is_for_all(const struct command *cmd)
{
	switch (cmd->id) {
	case CMD_SHOW:
		return show_is_of_each(cmd->show);
	case CMD_SHUTDOWN: /* by the process that has started us */
	case CMD_TAKEOVER:
	case CMD_INSTALL:
	case CMD_PROBE:
	case CMD_COUNT:
		return false;
	default:
		return team_self() != 0;
	}
}

/* Asked by another process. */
static void run_asked(const struct others *asked, const struct command *cmd, struct exec *x)
{
	x->client = NULL;
	switch (run(x, cmd)) {
	case EXEC_PARK:
		waits->prev->others = *asked;
		break;
	case EXEC_ANSWER:
		others_answer(asked, x, NULL);
		break;
	default:
		others_answer(asked, x, &x->err);
	}
	answer_free(&x->answer);
}

/* Somebody knows the database; it comes from `*` here. */
static void do_without_looking(const struct wait *w)
{
	struct command cmd = {.id = w->id, .known = true};
	struct others nobody = {0};
	struct exec x = {0};

	if (w->database[0] == '\0')
		return;
	util_strlcpy(cmd.name, w->database, sizeof(cmd.name));
	others_ask(&cmd, &x, NULL);
	run_asked(&nobody, &cmd, &x);
}

static enum exec_verdict run_with_others(struct exec *x, const struct command *cmd)
{
	enum exec_verdict v = run(x, cmd);
	struct command theirs = *cmd;
	struct wait *w;

	if (v == EXEC_PARK)
		w = waits->prev; /* the last one */
	else if ((w = wait_new(x, cmd->id, cmd->name)) == NULL)
		return EXEC_ERROR;
	w->own = v == EXEC_PARK ? OWN_WAITS : v == EXEC_ERROR ? OWN_FAILED : OWN_DONE;
	if (v == EXEC_ERROR) /* else nothing has filled it */
		w->err = x->err;
	w->others.rows = x->answer.rows;
	w->others.n_rows = x->answer.n_rows;
	x->answer.rows = BUF_INIT;
	x->answer.n_rows = 0;
	theirs.known = v != EXEC_ERROR;
	others_ask(&theirs, x, &w->others);
	return EXEC_PARK;
}

static void others_moved(void)
{
	loop_tick_at(tick, loop_now());
}

static struct others *find_asker(uint32_t number)
{
	struct wait *w;

	DL_FOREACH (waits, w)
		if (w->others.awaited != 0 && w->others.number == number)
			return &w->others;
	return NULL;
}

static void others_gone(int process)
{
	struct wait *w;

	DL_FOREACH (waits, w)
		w->others.awaited &= ~(1ULL << (process - 1));
	others_moved();
}

enum exec_verdict command_run(struct exec *x, const struct command *cmd)
{
	if (!may(x->client, cmd)) {
		pg_error_set(&x->err, CONSOLE_ERROR, "admin access needed");
		return EXEC_ERROR;
	}
	return is_for_all(cmd) ? run_with_others(x, cmd) : run(x, cmd);
}

/* --- start and end --- */

bool command_start(const struct admin_hooks *hooks)
{
	static const struct others_ops ops = {
		.run = run_asked, .find = find_asker, .moved = others_moved, .gone = others_gone};

	program = hooks;
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	others_start(&ops);
	return tick != NULL;
}

void command_free(void)
{
	while (waits != NULL)
		wait_free(waits);
	loop_tick_free(&tick);
}
