/*
 * What the rooms of the pooler (pool, session, relay, login, pooler) have in common. Nobody else
 * includes it.
 *
 *   database (route)  -> pool (database, user) -> servers, waiting clients, waiting tasks
 *   client  -- link --  server                    (at most one each)
 *
 * One FIFO keeps the order of answers: `expect`, of the server. An entry says what the server will
 * answer next and for whom. An answer that we give ourselves while the server still owes earlier ones
 * is an entry too (EXPECT_LOCAL): it leaves when it comes to the head. A client without a linked
 * server is owed nothing, so our answers go straight to its connection. A pending answer of ours (a
 * parked TAKE) stops the reading of the client's input, so nothing is ever behind it.
 */
#ifndef QB_POOL_ROOMS_H
#define QB_POOL_ROOMS_H

#include <utlist.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "conf/conf.h"
#include "net/conn.h"
#include "net/loop.h"
#include "pool/client.h"
#include "pool/database.h"
#include "pool/expect.h"
#include "pool/hand_out.h"
#include "pool/intercept.h"
#include "pool/server.h"
#include "pool/task.h"
#include "wire/build.h"
#include "wire/msg.h"
#include "wire/sqllex.h"

#define STATEMENT_MAX (16 * 1024 * 1024) /* text of a statement that we have to look at as a whole */
#define SCAN_MAX      (1024 * 1024)      /* a simple query up to this size is searched for QUEUE behind the first statement */
#define INTERN_MAX    (64 * 1024)        /* an unnamed statement up to this size can be prepared again on another server */
#define CONTROL_MAX   (16 * 1024 * 1024) /* server messages that we read as a whole */
#define CUT_AT        ((size_t)32 * 1024) /* what is read of errors and notices that are too long for that */
#define EXPECT_HIGH   4096 /* answers outstanding: the client is read no more until fewer than EXPECT_LOW are */
#define EXPECT_LOW    2048
#define PARKED_INPUT_MAX (64 * 1024)     /* pipelined input kept behind a parked statement */

#endif
