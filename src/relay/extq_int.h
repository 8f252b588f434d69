/*
 * Between cstmt.c, extq.c and extq_bind.c: names of statements, and small answers.
 */
#ifndef QB_EXTQ_INT_H
#define QB_EXTQ_INT_H

#include "pool/reading.h"
#include "relay_int.h"

/* cstmt.c */
bool cstmt_tracks_names(const struct client *c);
/* A name whose meaning depends on answers that have not come. false: the client waits for them. */
bool cstmt_is_decided(struct client *c, const char *name);

/* Has the client's server the statement, or is it known under which settings it parses now? false: the client waits. */
bool cstmt_is_readable(struct client *c, const struct cstmt *st);

/* extq.c */
enum step extq_emit_simple(struct client *c, uint8_t type);
enum step extq_refuse(struct client *c, const char *sqlstate, const char *fmt, const char *name);
enum step extq_refuse_failed(struct client *c);
/* Is the block aborted, so that this fails? What is under way may end it; or abort it, which is
 * asked for where no pipeline is slowed down by the question. */
bool extq_refused_in_failed(struct client *c, bool exact, enum step *ret);

/* extq_bind.c */
bool extq_shape_ready(struct client *c, const struct lstmt *l, const struct portal *p, bool describes);
/* The transaction that a portal belongs to may be ending. false: the client waits for the news. */
bool extq_portal_is_decided(struct client *c, const char *name);
/* The unnamed statement may have been parsed on another server, or replaced there by somebody else's. */
bool extq_restore_unnamed(struct client *c);

#endif
