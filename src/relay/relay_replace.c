/*
 * Answers of statements that were replaced: the client sees the rows it was promised and a tag that
 * its driver knows, and errors without the traces of our text.
 */
#include <stdio.h>
#include <string.h>

#include "relay_int.h"

/* The first column of the first row, when it is a number in text form. */
static void note_value(struct replaced *rp, const uint8_t *body, size_t len)
{
	struct wire_reader rd;
	int32_t n;
	const uint8_t *p;
	int64_t v;

	wire_reader_init(&rd, body, len);
	if (wire_get_i16(&rd) < 1 || (n = wire_get_i32(&rd)) < 0)
		return;
	p = wire_get_bytes(&rd, (size_t)n);
	if (p != NULL && util_parse_i64((const char *)p, (size_t)n, &v))
		rp->value = v;
}

static enum relay_step row(
	struct relay *r, const struct wire_msg *m, struct replaced *rp, struct replace *one)
{
	if (rp->rows++ == 0)
		note_value(rp, m->body, m->have);
	if (one->on_row != NULL && r->s->link != NULL)
		one->on_row(r->s->link, one->arg, m->body, m->have);
	return one->rows ? RELAY_FORWARD : RELAY_DROP;
}

static void complete(struct relay *r, struct replaced *rp, struct replace *one)
{
	struct buf b = BUF_INIT;
	char tag[96];

	switch (one->tag) {
	case REPLACE_TAG_KEEP:
	case REPLACE_TAG_FIXED:
		snprintf(tag, sizeof(tag), "%s", one->tag_text);
		break;
	case REPLACE_TAG_ROWS:
		snprintf(tag, sizeof(tag), "%s %llu", one->tag_text, (unsigned long long)rp->rows);
		break;
	case REPLACE_TAG_TOLD:
		snprintf(tag, sizeof(tag), "%s %llu", one->tag_text, (unsigned long long)one->told);
		break;
	case REPLACE_TAG_VALUE:
		snprintf(tag, sizeof(tag), "%s %lld", one->tag_text, (long long)rp->value);
		break;
	}
	if (!one->again) {
		build_complete(&b, tag);
		relay_emit(r, &b);
		buf_free(&b);
	}
	if (one->on_done != NULL && r->s->link != NULL)
		one->on_done(r->s->link, one->arg, true, 0);
}

/* "INSERT 0 17", "COPY 17" */
static uint64_t tag_number(const struct wire_msg *m)
{
	const char *tag = (const char *)m->body, *last;
	int64_t n = 0;

	if (m->type != 'C' || m->have == 0 || tag[m->have - 1] != '\0')
		return 0;
	last = strrchr(tag, ' ');
	return last != NULL && util_parse_i64(last + 1, strlen(last + 1), &n) && n > 0 ? (uint64_t)n
										       : 0;
}

/* CopyInResponse and its like. */
static bool is_copy(const struct wire_msg *m)
{
	return strchr("GHWdc", m->type) != NULL;
}

static enum relay_step statement(
	struct relay *r, const struct wire_msg *m, struct expect *e, bool end)
{
	struct replaced *rp = e->arg;
	struct replace *one = rp->at < rp->n ? rp->list[rp->at] : NULL;
	enum relay_step step = RELAY_DROP;

	if (one == NULL)
		step = RELAY_FORWARD;
	else if (m->type == 'D')
		step = row(r, m, rp, one);
	else if (m->type == 'T')
		step = one->rows ? RELAY_FORWARD : RELAY_DROP;
	else if (m->type == 's' || m->type == 'I' || is_copy(m))
		step = RELAY_FORWARD;
	else if (m->type == 'C' && one->tag == REPLACE_TAG_KEEP)
		step = RELAY_FORWARD;
	else if (m->type == 'C')
		complete(r, rp, one);
	if (m->type == 'C' && one != NULL && one->again) {
		e->final = false; /* ReadyForQuery comes with the answer */
		if (r->s->link != NULL)
			r->s->link->head.again = true;
	}
	if (m->type == 'C' || m->type == 'I' || m->type == 's') {
		if (one != NULL && step == RELAY_FORWARD && one->on_done != NULL &&
			r->s->link != NULL)
			one->on_done(r->s->link, one->arg, true, tag_number(m));
		rp->at++;
		rp->rows = 0;
		rp->value = 0;
	}
	if (end)
		relay_pop(r, true);
	return step;
}

/* Does the client see its rows? */
static bool shows_rows(const struct expect *e)
{
	const struct replaced *rp = e->arg;

	return rp->n > 0 && rp->list[0]->rows;
}

/* In place of the description of rows that it does not see. */
static void emit_no_data(struct relay *r)
{
	struct buf b = BUF_INIT;

	build_simple(&b, 'n');
	relay_emit(r, &b);
	buf_free(&b);
}

/* What describes a replacement is for the client. */
static enum relay_step description(
	struct relay *r, const struct wire_msg *m, const struct expect *e, bool end)
{
	if (m->type == 'T' && !shows_rows(e))
		emit_no_data(r);
	else
		relay_run_add(r, m->data, WIRE_HEADER + m->have);
	if (end)
		relay_pop(r, true);
	return RELAY_DONE;
}

static enum relay_step answer(struct relay *r, const struct wire_msg *m, struct expect *e, bool end)
{
	return e->kind == EXPECT_DESCRIBE ? description(r, m, e, end) : statement(r, m, e, end);
}

/* Where one of them has failed, what is left of the client's string is not carried out. */
static void ending(struct relay *r, struct expect *e)
{
	const struct replaced *rp = e->arg;

	if (e->kind != EXPECT_QUERY || !rp->part || !rp->failed)
		return;
	if (r->s->link != NULL)
		r->s->link->head.string_at = STRING_FAILED;
	e->final = true;
}

/* --- errors --- */

/* The replacement that the head belongs to; NULL: to none. */
static struct replaced *replaced(struct server *s)
{
	CHECK_SERVER(s);
	/* its Parse and Bind are ours */
	for (unsigned i = 0; i < s->expect.count; i++) {
		const struct expect *e = expect_at(&s->expect, i);

		if (e->dest == &dest_replace)
			return e->arg;
		if (e->dest != &dest_swallow || (e->kind != EXPECT_PARSE && e->kind != EXPECT_BIND))
			break;
	}
	return NULL;
}

/* Fields that speak of our text, or of functions that the client never called. */
static bool hidden(char field)
{
	return strchr("PpqWFLR", field) != NULL;
}

/* The client's position of ours; 0: we wrote that. */
static int their_position(const struct replace *one, int64_t ours)
{
	for (int i = 0; i < one->n_spans; i++) {
		const struct replace_span *span = &one->spans[i];

		/* the end belongs to it: "syntax error at end of input" */
		if (span->len > 0 && ours >= span->ours && ours <= span->ours + span->len)
			return span->theirs + (int)(ours - span->ours);
	}
	return 0;
}

struct error_field {
	uint8_t type; /* 0: the end */
	const char *text;
};

static struct error_field next_field(struct wire_reader *rd)
{
	struct error_field f = {.type = wire_get_u8(rd)};

	if (f.type != 0)
		f.text = wire_get_cstr(rd, NULL);
	if (rd->failed)
		f.type = 0;
	return f;
}

/* position: the client's, of REPLACE_THEIRS. */
static void read_error(const struct replace *one, const struct wire_msg *m,
	struct replace_error *ret, int *position)
{
	const struct {
		uint8_t type;
		const char **to;
	} texts[] = {{'C', &ret->sqlstate}, {'M', &ret->message}, {'D', &ret->detail},
		{'H', &ret->hint}, {'W', &ret->context}, {'t', &ret->table}, {'c', &ret->column}};
	struct error_field f;
	struct wire_reader rd;
	int64_t ours;

	*ret = (struct replace_error){0};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		*texts[i].to = "";
	*position = 0;
	wire_reader_init(&rd, m->body, m->have);
	while ((f = next_field(&rd)).type != 0) {
		for (size_t i = 0; i < ARRAY_LEN(texts); i++)
			if (texts[i].type == f.type)
				*texts[i].to = f.text;
		if (f.type != 'P' || !util_parse_i64(f.text, strlen(f.text), &ours))
			continue;
		*position = one != NULL ? their_position(one, ours) : 0;
		ret->place = *position > 0 ? REPLACE_THEIRS : REPLACE_OURS;
	}
}

static void put_error(
	struct buf *b, const struct replace *one, const struct wire_msg *m, int position)
{
	bool own_text = one == NULL || one->own_text; /* a statement of the client's beside ours */
	size_t start = build_begin(b, 'E');
	struct error_field f;
	struct wire_reader rd;
	char number[16];

	wire_reader_init(&rd, m->body, m->have);
	while ((f = next_field(&rd)).type != 0) {
		if (f.type == 'P' && position > 0) {
			snprintf(number, sizeof(number), "%d", position);
			f.text = number;
		} else if (own_text ? f.type == 'P' : hidden((char)f.type)) {
			continue;
		}
		build_u8(b, f.type);
		build_cstr(b, f.text);
	}
	build_u8(b, 0);
	build_end(b, start);
}

static enum relay_step say_ours(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	struct replaced *rp = replaced(r->s);
	struct replace *one = rp->at < rp->n ? rp->list[rp->at] : NULL;
	struct buf b = BUF_INIT;
	struct replace_error said;
	struct pg_error instead;
	int position;

	(void)e;
	rp->failed = true;
	if (one != NULL && one->again && rp->simple && r->s->link != NULL)
		r->s->link->head.string_at = STRING_FAILED;
	read_error(one, m, &said, &position);
	if (one != NULL && one->on_error != NULL && one->on_error(one->arg, &said, &instead))
		build_error(&b, &instead);
	else
		put_error(&b, one, m, position);
	relay_emit(r, &b);
	buf_free(&b);
	return RELAY_DROP;
}

static enum relay_step error(struct relay *r, const struct wire_msg *m, struct expect *e)
{
	if (replaced(r->s) == NULL)
		return dest_client_error(r, m, e);
	return dest_error(r, m, e, say_ours);
}

static void free_replaced(struct server *s, struct expect *e, bool ok)
{
	struct replaced *rp = e->arg;

	e->arg = NULL;
	replaced_free(&rp, s->link, ok);
}

/* Among them is the BEGIN that a client has executed. */
const struct dest dest_replace = {.seen = SEEN_ALL,
	.may_begin = 1u << EXPECT_QUERY | 1u << EXPECT_DESCRIBE | 1u << EXPECT_EXECUTE,
	.tells = true,
	.answer = answer,
	.ending = ending,
	.error = error,
	.free = free_replaced};

/* What we prepare for a statement of the client's, or for one that replaces it, fails with it. */
const struct dest dest_swallow = {.seen = SEEN_STATUS, .error = error};
