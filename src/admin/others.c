/*
 * The console of several processes: what one is asked the others do too, and their rows and refusals
 * come back to it. A process that has begun hears from the others what holds: which databases are
 * paused or disabled. Must not know what a command does. Entry points: others_ask(), others_answer().
 */
#include <string.h>

#include "base/mem.h"
#include "net/loop.h"
#include "net/team.h"
#include "pooler/stat.h"
#include "others.h"

#define PATIENCE (3 * USEC_SEC)

/* Followed by formats, name and value. */
struct ask {
	uint32_t number; /* 0: no answer */
	uint8_t id, show, known, hello;
	uint64_t client;
	uint16_t n_formats, name_len, value_len;
};

/* Followed by rows, or by a struct pg_error. */
struct reply {
	uint32_t number;
	int32_t n_rows;
	uint8_t last, failed;
};

static struct {
	const struct others_ops *ops;
	uint32_t last_number;
	uint8_t text[TEAM_TEXT_MAX]; /* that is sent */
} between;

static uint32_t next_number(void)
{
	/* an answer to who had the place before us is not ours */
	while (between.last_number == 0)
		util_random(&between.last_number, sizeof(between.last_number));
	if (++between.last_number == 0)
		++between.last_number;
	return between.last_number;
}

static size_t ask_write(
	uint8_t *to, const struct command *cmd, const struct exec *x, uint32_t number)
{
	struct ask a = {.number = number,
		.id = (uint8_t)cmd->id,
		.show = (uint8_t)cmd->show,
		.known = cmd->known,
		.client = cmd->number,
		.n_formats = (uint16_t)x->bind.n_formats,
		.name_len = (uint16_t)strlen(cmd->name),
		.value_len = (uint16_t)(cmd->value != NULL ? strlen(cmd->value) : 0)};
	size_t at = sizeof(a);

	memcpy(to, &a, sizeof(a));
	if (a.n_formats > 0)
		memcpy(to + at, x->bind.formats, a.n_formats * sizeof(int16_t));
	at += a.n_formats * sizeof(int16_t);
	memcpy(to + at, cmd->name, a.name_len);
	at += a.name_len;
	if (a.value_len > 0)
		memcpy(to + at, cmd->value, a.value_len);
	return at + a.value_len;
}

void others_ask(const struct command *cmd, const struct exec *x, struct others *o)
{
	uint32_t number = o != NULL ? next_number() : 0;
	size_t len = ask_write(between.text, cmd, x, number);

	if (o != NULL) {
		o->number = number;
		o->awaited = 0;
		o->until = loop_now() + PATIENCE;
	}
	for (int i = 1; i <= team_size(); i++)
		if (i != team_self() && team_send(i, TEAM_ASK, between.text, len) && o != NULL)
			o->awaited |= 1ULL << (i - 1);
	between.ops->moved();
}

/* --- the answers --- */

static void reply(const struct others *o, struct reply r, const void *data, size_t len)
{

	r.number = o->number;
	memcpy(between.text, &r, sizeof(r));
	if (len > 0)
		memcpy(between.text + sizeof(r), data, len);
	(void)team_send(o->process, TEAM_ANSWER, between.text, sizeof(r) + len);
}

/* Of one DataRow, with its type; 0: it is not whole. */
static size_t row_size(const uint8_t *p, size_t len)
{
	size_t size;

	if (len < 5)
		return 0;
	size = 1 + ((size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4]);
	return size <= len ? size : 0;
}

/* In pieces of whole rows. */
static void reply_rows(const struct others *o, const struct buf *rows)
{
	const size_t most = TEAM_TEXT_MAX - sizeof(struct reply);
	size_t at = rows->off, from = at, size;
	int32_t n = 0;

	while ((size = row_size(rows->data + at, rows->len - at)) > 0) {
		if (at + size - from > most && n > 0) {
			reply(o, (struct reply){.n_rows = n}, rows->data + from, at - from);
			from = at;
			n = 0;
		}
		at += size;
		n++;
		if (at - from > most) { /* a row that is too long */
			from = at;
			n = 0;
		}
	}
	reply(o, (struct reply){.n_rows = n, .last = 1}, rows->data + from, at - from);
}

void others_answer(const struct others *o, const struct exec *x, const struct pg_error *err)
{
	static const struct reply done = {.last = 1}, failed = {.last = 1, .failed = 1};

	if (o->process == 0 || o->number == 0)
		return;
	if (err != NULL)
		reply(o, failed, err, sizeof(*err));
	else if (x != NULL && x->answer.n_rows > 0 && !buf_failed(&x->answer.rows))
		reply_rows(o, &x->answer.rows);
	else
		reply(o, done, NULL, 0);
}

static void take_answer(struct others *o, const struct reply *r, const uint8_t *data, size_t len)
{
	if (r->failed && len == sizeof(o->err) && !o->failed) {
		memcpy(&o->err, data, len);
		o->err.severity = "ERROR"; /* a place in the memory of another process */
		o->failed = true;
	}
	if (r->failed)
		return;
	buf_put(&o->rows, data, len);
	o->n_rows += r->n_rows;
	o->done |= r->last;
}

static void on_answer(int from, const uint8_t *text, size_t len)
{
	struct reply r;
	struct others *o;

	if (len < sizeof(r))
		return;
	memcpy(&r, text, sizeof(r));
	o = between.ops->find(r.number);
	if (o == NULL)
		return;
	take_answer(o, &r, text + sizeof(r), len - sizeof(r));
	if (r.last)
		o->awaited &= ~(1ULL << (from - 1));
	between.ops->moved();
}

/* --- asked --- */

static void tell(int to, enum console_command id, const char *name)
{
	uint8_t text[sizeof(struct ask) + CONSOLE_NAME_MAX];
	struct command cmd = {.id = id, .known = true};
	struct exec x = {0};

	util_strlcpy(cmd.name, name, sizeof(cmd.name));
	(void)team_send(to, TEAM_ASK, text, ask_write(text, &cmd, &x, 0));
}

static void tell_database(const struct stat_database *st, void *arg)
{
	const int *to = arg;

	if (st->disabled)
		tell(*to, CMD_DISABLE, st->name);
	if (st->paused && !pooler_all_paused())
		tell(*to, CMD_PAUSE, st->name);
}

static void tell_what_holds(int to)
{
	if (pooler_all_paused())
		tell(to, CMD_PAUSE, "");
	if (pooler_is_suspended() != SUSPENDED_NO)
		tell(to, CMD_SUSPEND, "");
	stat_each_database(tell_database, &to);
}

static void on_ask(int from, const uint8_t *text, size_t len)
{
	struct command cmd = {0};
	struct exec x = {0};
	struct others asked = {.process = from};
	struct ask a;
	const uint8_t *at = text + sizeof(a);

	if (len < sizeof(a))
		return;
	memcpy(&a, text, sizeof(a));
	if (a.hello) {
		tell_what_holds(from);
		return;
	}
	if (a.id >= CMD_COUNT || a.show >= SHOW_COUNT || a.name_len >= sizeof(cmd.name) ||
		len != sizeof(a) + a.n_formats * sizeof(int16_t) + a.name_len + a.value_len)
		return;
	cmd.id = (enum console_command)a.id;
	cmd.show = (enum show_id)a.show;
	cmd.number = a.client;
	cmd.known = a.known;
	asked.number = a.number;
	x.bind.formats = (const int16_t *)(const void *)at;
	x.bind.n_formats = a.n_formats;
	at += a.n_formats * sizeof(int16_t);
	memcpy(cmd.name, at, a.name_len);
	cmd.value = mem_zalloc(a.value_len + 1U);
	if (cmd.value == NULL)
		return;
	memcpy(cmd.value, at + a.name_len, a.value_len);
	between.ops->run(&asked, &cmd, &x);
	console_command_clear(&cmd);
}

static void on_gone(int from, const uint8_t *text, size_t len)
{
	(void)text;
	(void)len;
	between.ops->gone(from);
}

void others_start(const struct others_ops *ops)
{
	struct ask hello = {.hello = 1};

	between.ops = ops;
	team_hear(TEAM_ASK, on_ask);
	team_hear(TEAM_ANSWER, on_answer);
	team_hear_gone(on_gone);
	(void)team_send_all(TEAM_ASK, &hello, sizeof(hello));
}
