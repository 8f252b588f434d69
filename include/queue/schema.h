/*
 * The install script of the queue schema: the files of sql/ as the build embeds them.
 */
#ifndef QB_QUEUE_SCHEMA_H
#define QB_QUEUE_SCHEMA_H

extern const char queue_install_sql[];

#endif
