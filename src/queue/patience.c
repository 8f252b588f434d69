/*
 * When it is worth while to ask for MIN events (patience.h).
 */
#include "patience.h"

#define DOUBT (5 * USEC_MSEC)

void patience_sent(struct patience *p, uint64_t counted)
{
	*p = (struct patience){.sent = counted, .seen = counted};
}

void patience_told(struct patience *p, const int64_t numbers[PATIENCE_NUMBERS])
{
	p->missing = numbers[PATIENCE_MISSING] > 0 ? numbers[PATIENCE_MISSING] : 0;
	p->within = numbers[PATIENCE_WITHIN] > 0 ? (usec_t)numbers[PATIENCE_WITHIN] * USEC_MSEC : 0;
	p->some = numbers[PATIENCE_PAUSE] > 0;
}

usec_t patience_answered(struct patience *p, uint64_t counted, usec_t now)
{
	p->seen = counted;
	return patience_counted(p, counted, now);
}

usec_t patience_counted(struct patience *p, uint64_t counted, usec_t now)
{
	usec_t at = USEC_NEVER;

	if (counted == p->sent)
		return USEC_NEVER;
	if (p->first == 0)
		p->first = now;
	if (p->missing == 0 || counted - p->seen >= (uint64_t)p->missing)
		return now;
	if (p->doubt == 0 && counted - p->sent >= (uint64_t)p->missing)
		p->doubt = now + DOUBT;
	if (!p->some)
		at = p->first + p->within;
	return p->doubt != 0 && p->doubt < at ? p->doubt : at;
}
