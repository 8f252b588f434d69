/*
 * THE table of console commands: from a row come the parser, the privilege, SHOW HELP, the manual
 * and the tests of every command as every kind of user.
 *
 *   COMMAND(id, argument, who may, usage, help)
 *
 * The word is the id. Who is not named in the row may not: the default is admin. No include guard.
 */

/* clang-format off */

COMMAND(SHOW, ARG_SHOW, WHO_STATS, "SHOW what",
	"Look at something: the list is below. `SELECT what` is the same.")
COMMAND(SET, ARG_SET, WHO_ADMIN, "SET key = 'value'",
	"Change a parameter until the next start or RELOAD. `SET key TO value` is the same.")
COMMAND(RELOAD, ARG_NONE, WHO_ADMIN, "RELOAD",
	"Read the configuration and the user file again; all or nothing.")
COMMAND(PAUSE, ARG_DB_MAY, WHO_ADMIN, "PAUSE [db]",
	"Give no server to clients any more; answers when all servers are free and closed.")
COMMAND(RESUME, ARG_DB_MAY, WHO_ADMIN, "RESUME [db]",
	"End PAUSE, SUSPEND or KILL.")
COMMAND(DISABLE, ARG_DB_MUST, WHO_ADMIN, "DISABLE db",
	"Refuse new clients of a database.")
COMMAND(ENABLE, ARG_DB_MUST, WHO_ADMIN, "ENABLE db",
	"End DISABLE.")
COMMAND(RECONNECT, ARG_DB_MAY, WHO_ADMIN, "RECONNECT [db]",
	"Close each server connection as soon as it is free; clients get new ones.")
COMMAND(WAIT_CLOSE, ARG_DB_MAY, WHO_ADMIN, "WAIT_CLOSE [db]",
	"Answers when the connections that RECONNECT or RELOAD marked are closed.")
COMMAND(KILL, ARG_DB_MAY, WHO_ADMIN, "KILL [db]",
	"Disconnect all clients and servers at once and pause; RESUME lets them back in.")
COMMAND(KILL_CLIENT, ARG_CLIENT, WHO_ADMIN, "KILL_CLIENT id",
	"Disconnect one client: `id` of SHOW CLIENTS.")
COMMAND(SUSPEND, ARG_NONE, WHO_ADMIN, "SUSPEND",
	"Read nothing from anybody any more and accept nobody; answers when all output is written. RESUME from this connection, or SIGUSR2, ends it.")
COMMAND(SHUTDOWN, ARG_SHUTDOWN, WHO_ADMIN, "SHUTDOWN [WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS]",
	"End at once; when the servers are free; or when the clients have left.")
COMMAND(TAKEOVER, ARG_CLIENT, WHO_ADMIN, "TAKEOVER version",
	"What `qbouncer -R` says to the process that runs, over the unix socket. Not for use by hand.")
COMMAND(INSTALL, ARG_INSTALL, WHO_ADMIN, "INSTALL db [AS user]",
	"Install or upgrade the schema `queue` in a database, as this role, or as that of the entry or of a client that has been there; a notice says as which.")

/* clang-format on */

#undef COMMAND
