/*
 * A dialogue: a file of steps, and how one of them is carried out.
 */
#ifndef QB_SCENARIO_SCRIPT_H
#define QB_SCENARIO_SCRIPT_H

#include "fake_net.h"

struct step {
	int line;
	char *text;
};

struct script {
	char *path;
	struct bytes settings, databases; /* ini lines, terminated */
	struct step *steps;
	int count;
	bool leases_stay; /* nobody can give back what is leased in it */
};

/* Ends the test program when the file cannot be read. */
void script_load(struct script *s, const char *path);
void script_free(struct script *s);

/* Does the step make something happen (not: expect)? Nothing happens without such a step. */
bool step_acts(const struct step *st);

/* lenient: expectations are not looked at, and what cannot be done any more is left out. The answer
 * is NULL or what was wrong (static). */
const char *step_run(const struct step *st, bool lenient);
/* Lets everything happen that can happen now. NULL or what was wrong. */
const char *script_settle(void);
struct actor;
/* A CancelRequest with the key of that client. */
const char *script_cancel(struct actor *a);
const char *script_time(usec_t span);
const char *script_read_time(const char *text, usec_t *ret); /* +5s */
/* Everybody leaves, time passes: NULL when nothing is left over. leases_may_stay: without memory a
 * job is not given back, its lease runs out. late: so much later deadlines are noticed. */
const char *script_finish(bool leases_may_stay, usec_t late);
/* Messages that no step expected; NULL: none. */
const char *script_unexpected(void);

#endif
