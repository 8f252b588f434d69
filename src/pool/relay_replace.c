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
	case REPLACE_TAG_VALUE:
		snprintf(tag, sizeof(tag), "%s %lld", one->tag_text, (long long)rp->value);
		break;
	}
	build_complete(&b, tag);
	relay_emit(r, &b);
	buf_free(&b);
	if (one->on_done != NULL && r->s->link != NULL)
		one->on_done(r->s->link, one->arg, true);
}

enum relay_step relay_replace_answer(
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
	else if (m->type == 's' || m->type == 'I')
		step = RELAY_FORWARD;
	else if (m->type == 'C' && one->tag == REPLACE_TAG_KEEP)
		step = RELAY_FORWARD;
	else if (m->type == 'C')
		complete(r, rp, one);
	if (m->type == 'C' || m->type == 'I' || m->type == 's') {
		if (one != NULL && step == RELAY_FORWARD && one->on_done != NULL &&
			r->s->link != NULL)
			one->on_done(r->s->link, one->arg, true);
		rp->at++;
		rp->rows = 0;
		rp->value = 0;
	}
	if (end)
		relay_pop(r);
	return step;
}

/* Fields that speak of our text, or of functions that the client never called. */
static bool hidden(char field)
{
	return strchr("PpqWFLR", field) != NULL;
}

void relay_replace_error(struct relay *r, const struct wire_msg *m)
{
	struct buf b = BUF_INIT;
	struct wire_reader rd;
	size_t start = build_begin(&b, 'E');
	struct replaced *rp = expect_head(&r->s->expect)->arg;
	uint8_t field;

	if (rp != NULL)
		rp->failed = true;
	wire_reader_init(&rd, m->body, m->have);
	while ((field = wire_get_u8(&rd)) != 0) {
		size_t len;
		const char *text = wire_get_cstr(&rd, &len);

		if (rd.failed)
			break;
		if (hidden((char)field))
			continue;
		build_u8(&b, field);
		build_cstr(&b, text);
	}
	build_u8(&b, 0);
	build_end(&b, start);
	if (r->s->link != NULL)
		r->s->link->tx_failed = true;
	relay_emit(r, &b);
	buf_free(&b);
}
