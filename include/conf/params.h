/*
 * THE table of configuration parameters: one row makes the typed field of struct params, the key of
 * the ini file, bounds and units, SHOW CONFIG, SET, the reload rule, the sample ini, the manual and
 * the test of the limits. Include it with the PARAM_* macros you need defined; the others expand to
 * nothing, and all of them are undefined at the end.
 *
 *   PARAM_GROUP(title)
 *   PARAM_STR (name, default, min length, max length, flags, check, help)     char *, never NULL
 *   PARAM_INT (name, default, min, max, flags, check, help)                   int
 *   PARAM_BOOL(name, default, flags, check, help)                             bool
 *   PARAM_TIME(name, default, min, max, flags, check, help)                   usec_t
 *   PARAM_SIZE(name, default, min, max, flags, check, help)                   int64_t
 *   PARAM_ENUM(name, type, default, flags, check, help)                       enum type
 *
 * default: the text one would write in the file, so that it goes through the same parser.
 * min, max: in the unit of the field (microseconds for times, bytes for sizes).
 * flags: PARAM_RELOAD or PARAM_RESTART, with PARAM_SECRET, PARAM_OCTAL,
 *   PARAM_COMPUTED of conf/conf.h.
 * check: NULL or a function of src/conf/params.c that refuses a value that is in bounds.
 * No include guard: it is meant to be included several times.
 */
#ifndef PARAM_GROUP
#define PARAM_GROUP(title)
#endif
#ifndef PARAM_STR
#define PARAM_STR(...)
#endif
#ifndef PARAM_INT
#define PARAM_INT(...)
#endif
#ifndef PARAM_BOOL
#define PARAM_BOOL(...)
#endif
#ifndef PARAM_TIME
#define PARAM_TIME(...)
#endif
#ifndef PARAM_SIZE
#define PARAM_SIZE(...)
#endif
#ifndef PARAM_ENUM
#define PARAM_ENUM(...)
#endif

/* clang-format off */

PARAM_GROUP("Listening")
PARAM_STR (listen_addr, "", 0, 4096, PARAM_RESTART, NULL,
	"Addresses to listen on for TCP, separated by commas; `*` is all of them, empty is none (the unix socket only).")
PARAM_INT (listen_port, "6432", 1, 65535, PARAM_RESTART, NULL,
	"Port to listen on; it also names the unix socket.")
PARAM_INT (listen_backlog, "128", 1, 65535, PARAM_RESTART, NULL,
	"Connections that the kernel holds until they are accepted.")
PARAM_STR (unix_socket_dir, "/tmp", 0, 90, PARAM_RESTART, NULL,
	"Directory of the unix socket; empty for none. The unit of systemd makes `/run/qbouncer` for it.")
PARAM_INT (unix_socket_mode, "0777", 0, 0777, PARAM_RESTART | PARAM_OCTAL, NULL,
	"Permissions of the unix socket, an octal number.")
PARAM_STR (unix_socket_group, "", 0, 255, PARAM_RESTART, NULL,
	"Group of the unix socket; empty leaves the group of the process.")
PARAM_BOOL(so_reuseport, "0", PARAM_RESTART, NULL,
	"Share the TCP port with other processes that set it too (SO_REUSEPORT).")
PARAM_INT (processes, "1", 0, 64, PARAM_RESTART, NULL,
	"Processes that share the work, one program for the operator; 0: one for each core.")
PARAM_INT (max_client_conn, "100", 1, 10000000, PARAM_RELOAD, NULL,
	"Client connections allowed altogether. Each needs a file descriptor.")
PARAM_INT (max_db_client_connections, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Client connections allowed per database; 0 is no limit.")
PARAM_INT (max_user_client_connections, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Client connections allowed per user; 0 is no limit.")

PARAM_GROUP("Authentication of clients")
PARAM_ENUM(auth_type, auth_type, "md5", PARAM_RELOAD, check_auth_type,
	"How clients prove who they are. `md5` uses SCRAM for users whose stored secret is a SCRAM secret; `trust` asks for no password; `any` as well, and takes the user name of the database entry.")
PARAM_STR (auth_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"File of users and secrets: lines of \"user\" \"secret\", the secret in plain text, as md5 or as SCRAM-SHA-256.")
PARAM_STR (auth_query, CONF_AUTH_QUERY, 0, 8192, PARAM_RELOAD, NULL,
	"Query that looks up the secret of a user who is not in `auth_file`: `$1` is the name; name and secret are the columns of its only row. A third column, if there is one, is the number of seconds until the secret expires. Names without a schema are found by the `search_path` that the server has for `auth_user`, or that `connect_query` sets, never by one of a client: who may create there could put a function of his own in their way.")
PARAM_TIME(auth_query_cache, "5", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long the answer of `auth_query` is used again; 0 asks for each login. A failed login ends it at once.")
PARAM_STR (auth_user, "", 0, 127, PARAM_RELOAD, NULL,
	"Role that runs `auth_query`, on a connection of its own; empty: only users in `auth_file` are known.")
PARAM_STR (auth_dbname, "", 0, 63, PARAM_RELOAD, check_auth_dbname,
	"Entry of [databases] where `auth_query` runs; empty: the database that the client asks for. The console is none.")
PARAM_STR (auth_hba_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Rules for `auth_type = hba`, in the format of pg_hba.conf. A mistake in it keeps the rules that are in force.")
PARAM_STR (auth_ident_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Maps of names for rules of `auth_hba_file` with `map=`, in the format of pg_ident.conf.")
PARAM_STR (auth_ldap_options, "", 0, 8192, PARAM_RELOAD | PARAM_SECRET, NULL,
	"Options for `auth_type = ldap`, as in a rule of `auth_hba_file`: `ldapurl=\"ldap://host/dc=example,dc=net?uid?sub\"`.")
PARAM_STR (auth_pam_dir, "", 0, 4095, PARAM_RELOAD, NULL,
	"Folder with the services of PAM; empty for the system's. The service is `qbouncer`, or `pgbouncer` where only that one is there.")
PARAM_INT (scram_iterations, "4096", 1, 1000000, PARAM_RELOAD, NULL,
	"Rounds of SCRAM for users whose secret is stored in plain text.")
PARAM_INT (max_scram_iterations, "100000", 4096, 1000000, PARAM_RELOAD, NULL,
	"Rounds of SCRAM that a server may ask of us, or that a stored secret may have with which a password is compared. 100000 take some 50 ms, in which no other client is served; whoever asks for more is refused.")
PARAM_TIME(client_login_timeout, "60", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client that has not logged in after this time is disconnected; 0 waits for ever.")
PARAM_TIME(login_failure_delay, "3", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Longest time for which the answer to a failed login is held back. It grows with the failures of an address (with IPv6 of its /64 network, on the unix socket of a unix user), from the fourth on. Where 20 have failed within this time every proof from there waits for it, right or wrong, and is then looked at: nobody is locked out. 0 never delays.")
PARAM_INT (max_unauthenticated_conn, "1000", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Connections that have not logged in, altogether; beyond, those that take long are closed and new ones wait to be accepted. 0 is no limit.")
PARAM_STR (login_notify_message, "", 0, 4096, PARAM_RELOAD, NULL,
	"Text that each client gets as a NOTICE after its login; empty for none.")

PARAM_GROUP("Pools")
PARAM_ENUM(pool_mode, pool_mode, "session", PARAM_RELOAD, NULL,
	"When a server connection is free for another client: at the end of the session, of each transaction, or of each statement.")
PARAM_INT (default_pool_size, "20", 1, INT_MAX, PARAM_RELOAD, NULL,
	"Server connections per pool, which is a pair of user and database.")
PARAM_INT (min_pool_size, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Server connections that a pool in use keeps open even when it needs fewer.")
PARAM_INT (reserve_pool_size, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Further connections that a pool may open when clients wait longer than `reserve_pool_timeout`.")
PARAM_TIME(reserve_pool_timeout, "5", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long a client waits before the reserve is used; 0 never uses it.")
PARAM_INT (max_pinned_servers, "-1", -1, INT_MAX, PARAM_RELOAD, NULL,
	"Server connections of a pool that clients may keep beyond their transactions, in transaction pooling (doc/sessions.md, \"What pins\"). A statement that needs another one fails. -1: all of the pool but one, and at least one.")
PARAM_INT (max_db_connections, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Server connections per database, over all users; 0 is no limit.")
PARAM_INT (max_user_connections, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Server connections per user, over all databases; 0 is no limit.")
PARAM_BOOL(server_round_robin, "0", PARAM_RELOAD, NULL,
	"Use server connections in turn; otherwise the one that was used last is used next, so that few stay busy.")
PARAM_TIME(query_wait_timeout, "120", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client that got no server connection after this time is disconnected; a QUEUE statement that runs beside the pool fails, but one with `WAIT` goes on waiting. 0 waits for ever.")
PARAM_TIME(query_wait_notify, "5", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client that waits this long for a server connection gets a NOTICE; 0 for none.")
PARAM_TIME(cancel_wait_timeout, "10", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long a cancel request may wait for a connection to the server.")
PARAM_INT (max_auto_databases, "1000", 1, 1000000, PARAM_RELOAD, NULL,
	"Databases that came from the `*` entry, at most. One more, and the one that has been unused for the longest time is forgotten; when all are in use the client is refused.")
PARAM_TIME(autodb_idle_timeout, "3600", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Databases that came from the `*` entry are forgotten after this time without use. One that no server has let us into goes after twice `server_login_retry`.")
PARAM_TIME(pool_idle_timeout, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A pool without clients and servers is forgotten after this time; 0 never.")

PARAM_GROUP("Connections to servers")
PARAM_TIME(server_lifetime, "3600", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A server connection older than this is closed when it is next unused; 0 closes it after one use.")
PARAM_TIME(server_idle_timeout, "600", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A server connection unused for this long is closed; 0 keeps it.")
PARAM_TIME(server_connect_timeout, "15", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Time in which a server must be connected and logged in to; 0 waits for ever.")
PARAM_TIME(server_login_retry, "15", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Pause after a failed login to a server. Clients that come meanwhile get the error at once.")
PARAM_STR (server_reset_query, "DISCARD ALL", 0, 8192, PARAM_RELOAD, NULL,
	"Sent when a client leaves its server connection in session pooling, before another client gets it.")
PARAM_BOOL(server_reset_query_always, "0", PARAM_RELOAD, NULL,
	"Send `server_reset_query` in all pool modes.")
PARAM_STR (server_check_query, "<empty>", 0, 8192, PARAM_RELOAD, NULL,
	"Sent to a connection that was unused for `server_check_delay`, before it is used; `<empty>` sends an empty query, empty sends none.")
PARAM_TIME(server_check_delay, "30", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long an unused server connection is believed to be alive without a check.")
PARAM_BOOL(server_fast_close, "0", PARAM_RELOAD, NULL,
	"In session pooling, close a connection marked for closing at the end of the transaction rather than of the session.")

PARAM_TIME(server_tcp_timeout, "30s", 0, 24 * 3600 * USEC_SEC, PARAM_RELOAD, NULL,
	"Within this time it is noticed that the host of a server is gone: it sets keepalive and TCP_USER_TIMEOUT of TCP connections to servers where the `tcp_` settings say 0. 0: those alone count.")

PARAM_GROUP("Time limits for queries and transactions")
PARAM_TIME(query_timeout, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A query that runs longer is cancelled and its client disconnected; a QUEUE statement that runs beside the pool fails with 08006. 0 is no limit. Keep it above `statement_timeout` of the server.")
PARAM_TIME(transaction_timeout, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client whose transaction lasts longer is disconnected; 0 is no limit.")
PARAM_TIME(idle_transaction_timeout, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client that is idle in a transaction for longer is disconnected; 0 is no limit.")
PARAM_TIME(client_idle_timeout, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"A client that sends nothing for longer is disconnected; 0 is no limit.")

PARAM_GROUP("Queues")
PARAM_INT (queue_pool_size, "5", 1, 10000, PARAM_RELOAD, NULL,
	"Server connections of the queue engine, beside those of each pool.")
PARAM_INT (queue_run_pool_size, "2", 0, 1000, PARAM_RELOAD, NULL,
	"Jobs of queues with a handler, or with run = sql, that run in this process at the same time, each on a server connection beside those of its pool; sessions that are kept for the next job (`session = keep`) are among these. 0: none.")
PARAM_BOOL(queue_run_superuser, "0", PARAM_RELOAD, NULL,
	"Jobs run by themselves also where the owner of the queue is a superuser.")
PARAM_INT (queue_engine_after, "100", 0, 1000000, PARAM_RELOAD, NULL,
	"So many statements of the queue engine within a minute run on connections that clients use too before it gets one of its own, of the `queue_pool_size` that it may have, all but one; sooner where many wait at the same moment. 0: it gets none.")
PARAM_INT (queue_engine_statements, "3000", 100, 100000, PARAM_RELOAD, NULL,
	"Statements of queues that are kept prepared on each connection of the queue engine's own: three for each queue that is used there. A session of Postgres needs some 130 kB for each.")
PARAM_INT (queue_batches, "1", 1, 64, PARAM_RELOAD, NULL,
	"Merged PUSH or DONE statements of one role that are under way at the same time; what comes meanwhile gathers for the next, except that few do not wait for a slow commit.")
PARAM_TIME(queue_engine_timeout, "10s", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long the server may take to answer a statement of the queue engine before its connection is given up: PUSH and DONE then fail with 08007, TAKE is asked again. One that waits for a lock, or for a synchronous standby, is waited for. 0: no limit.")
PARAM_TIME(queue_wait_default, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long a TAKE without WAIT waits for a job; 0 does not wait.")
PARAM_TIME(queue_wait_max, "1h", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Longest WAIT that a client may ask for.")
PARAM_TIME(queue_hold_lease, "60s", 1 * USEC_SEC, 24 * 3600 * USEC_SEC, PARAM_RELOAD, NULL,
	"Lease of jobs that are taken with HOLD; it is renewed when half of it is over.")
PARAM_TIME(queue_orphan_grace, "3s", 100 * USEC_MSEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long another proxy must be gone before the jobs that it held are given back.")
PARAM_TIME(queue_sleep_after, "1min", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Where nobody has taken or waited for jobs for this long, other proxies of the database are told that they need not notify this one of what they push, until somebody takes again; 0 never.")
PARAM_TIME(queue_heartbeat, "10s", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often a waiting client gets a sign of life, so that no time limit of a driver or a middle box ends its wait; 0 never.")
PARAM_TIME(queue_safety_poll, "1s", 10 * USEC_MSEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often queues with waiting clients are looked at while the notification session of the database is down.")
PARAM_TIME(queue_rescan, "10s", 10 * USEC_MSEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often queues with waiting clients are looked at in any case.")
PARAM_TIME(queue_await_poll, "2s", 250 * USEC_MSEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Longest time between two looks at a job that somebody awaits, in case it ends otherwise than through this proxy.")
PARAM_TIME(queue_maintenance, "1min", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often what queues have kept for long enough (`retain_done`, `retain_dead`) is deleted; 0: never.")
PARAM_TIME(queue_figures, "1min", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often what was counted for `QUEUE STATS ... BY` is written, one row for each queue in which something happened; 0: never. Jobs that die otherwise than by FAIL are written down by the database, which does not know this setting: `ALTER DATABASE app SET qbouncer.figures = off`, by a superuser, where nobody wants figures.")
PARAM_BOOL(queue_auto_install, "1", PARAM_RELOAD, NULL,
	"Install the schema `queue` at the first QUEUE statement in a database that lacks it, if that is by a superuser, the owner of the database or `queue_user`.")
PARAM_SIZE(queue_max_payload, "16MB", 1, 1024 * 1024 * 1024, PARAM_RELOAD, NULL,
	"Largest payload of one job.")
PARAM_SIZE(queue_answer_max, "256MB", 0, 1024LL * 1024 * 1024 * 1024, PARAM_RELOAD, NULL,
	"How much is kept of the answer to a TAKE or POP, or, outside of a transaction, to a PEEK, AWAIT or another QUEUE statement: they are answered when they have ended. One whose rows are more than that, and not a single one, is stopped and rolled back, and fails with 54000. 0: no limit.")
PARAM_SIZE(queue_answers_max, "1GB", 0, 1024LL * 1024 * 1024 * 1024, PARAM_RELOAD, NULL,
	"How much is kept of all answers together, by each process: of those that come, and of what clients have not read yet. Beyond that, one of more than 64 kB is stopped and rolled back: with WAIT it is asked for again, else it fails with 53000; and so does an AWAIT that keeps more than that while other jobs are missing. 0: no limit.")
PARAM_STR (queue_user, "", 0, 63, PARAM_RELOAD, NULL,
	"Role of the proxy's own session in each database, which listens for new jobs and counts them; empty takes the user of the database entry, or the role of a client.")
PARAM_BOOL(queue_user_superuser, "0", PARAM_RELOAD, NULL,
	"The proxy's own session may be a superuser's.")
PARAM_STR (queue_password, "", 0, 4096, PARAM_RELOAD | PARAM_SECRET, NULL,
	"Password of `queue_user`; empty takes it from `auth_file`.")

PARAM_GROUP("Protocol")
PARAM_STR (ignore_startup_parameters, "", 0, 8192, PARAM_RELOAD, NULL,
	"Start-up parameters that are dropped, separated by commas, instead of following the client.")
PARAM_STR (track_extra_parameters, "IntervalStyle", 0, 8192, PARAM_RESTART | PARAM_INERT, NULL,
	"Read for pgbouncer's sake: every setting follows its client.")
PARAM_INT (max_prepared_statements, "200", 0, INT_MAX, PARAM_RELOAD, NULL,
	"Named prepared statements kept on each server connection in transaction and statement pooling; 0 switches them off there.")
PARAM_BOOL(application_name_add_host, "0", PARAM_RELOAD, NULL,
	"Append address and port of the client to its application_name at the start of its session.")
PARAM_BOOL(disable_pqexec, "0", PARAM_RESTART, NULL,
	"Refuse the simple query protocol, and with it several statements in one string.")
PARAM_SIZE(max_packet_size, "2147483647", 1024, 2147483647, PARAM_RELOAD, NULL,
	"Largest message that passes in either direction. Of an error of Postgres' that is longer than 16 MiB the first 32 KiB do.")

PARAM_GROUP("Log")
PARAM_STR (logfile, "", 0, 4096, PARAM_RELOAD, NULL,
	"File to write the log to, opened again on SIGHUP; empty for none.")
PARAM_BOOL(syslog, "0", PARAM_RELOAD, NULL,
	"Write the log to syslog.")
PARAM_STR (syslog_ident, "qbouncer", 0, 255, PARAM_RELOAD, NULL,
	"Name to write to syslog under.")
PARAM_STR (syslog_facility, "daemon", 0, 32, PARAM_RELOAD, check_syslog_facility,
	"Facility of syslog: auth, authpriv, daemon, user, local0 to local7.")
PARAM_ENUM(log_style, log_style, "plain", PARAM_RELOAD, NULL,
	"Form of a line in `logfile` and on stderr: plain, in pgbouncer's words, or json, an object with time, pid, level, object and message.")
PARAM_BOOL(log_connections, "1", PARAM_RELOAD, NULL,
	"Log each successful login.")
PARAM_BOOL(log_disconnections, "1", PARAM_RELOAD, NULL,
	"Log each disconnection with its reason.")
PARAM_BOOL(log_pooler_errors, "1", PARAM_RELOAD, NULL,
	"Log the errors that the proxy itself sends to clients.")
PARAM_BOOL(log_stats, "1", PARAM_RELOAD, NULL,
	"Log a line of totals every `stats_period`.")
PARAM_TIME(stats_period, "60", USEC_SEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"Length of the period over which SHOW STATS averages.")
PARAM_INT (verbose, "0", 0, 9, PARAM_RELOAD, NULL,
	"How much more to log: 1 for debugging, 2 for every message.")
PARAM_BOOL(core_dumps, "0", PARAM_RESTART, NULL,
	"Let a crash write a core file, and debuggers attach; `-v` does so too. There are passwords in it, and what clients send.")

PARAM_GROUP("Metrics")
PARAM_INT (metrics_port, "0", 0, 65535, PARAM_RELOAD, NULL,
	"TCP port for Prometheus (`/metrics`) and for load balancers (`/healthz`, `/readyz`), over HTTP without authentication; 0 is off.")
PARAM_STR (metrics_addr, "127.0.0.1", 1, 255, PARAM_RELOAD, NULL,
	"Address for `metrics_port`. Whoever reaches it may read.")
PARAM_TIME(metrics_queue_interval, "15s", USEC_SEC, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often the jobs of each queue are counted in the database, as long as the metrics are read.")
PARAM_INT (metrics_queues, "1000", 0, 1000000, PARAM_RELOAD, NULL,
	"How many queues, streams and subscriptions have metrics of their own, the most used first; of the others there are sums.")

PARAM_GROUP("Console")
PARAM_STR (admin_users, "", 0, 8192, PARAM_RELOAD, NULL,
	"Users who may run every command of the console, separated by commas.")
PARAM_STR (stats_users, "", 0, 8192, PARAM_RELOAD, NULL,
	"Users who may look at the console but change nothing, separated by commas.")
PARAM_TIME(suspend_timeout, "10", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long SUSPEND waits for output to be written and logins to end; who is not done by then is disconnected. 0: for ever.")

PARAM_GROUP("Process")
PARAM_STR (user, "", 0, 255, PARAM_RESTART, NULL,
	"Unix user to become after the start, when started as root.")
PARAM_STR (pidfile, "", 0, 4096, PARAM_RESTART, NULL,
	"File that holds the process number; needed to start as a daemon.")
PARAM_STR (conffile, "", 0, 4096, PARAM_RELOAD | PARAM_COMPUTED, NULL,
	"The configuration file in force. Shown only; it is given on the command line.")
PARAM_STR (job_name, "pgbouncer", 0, 255, PARAM_RESTART | PARAM_INERT, NULL,
	"Read for pgbouncer's sake; it names a Windows service there.")
PARAM_STR (service_name, "", 0, 255, PARAM_RESTART | PARAM_INERT, NULL,
	"Read for pgbouncer's sake; it names a Windows service there.")
PARAM_INT (peer_id, "0", 0, 16383, PARAM_RELOAD, NULL,
	"Number of this process in a group of peers that forward cancel requests to each other.")

PARAM_GROUP("Sockets")
PARAM_SIZE(pkt_buf, "4096", 1, 16 * 1024 * 1024, PARAM_RESTART | PARAM_INERT, NULL,
	"Read for pgbouncer's sake: connections own no fixed buffers here.")
PARAM_INT (sbuf_loopcnt, "5", 0, INT_MAX, PARAM_RELOAD | PARAM_INERT, NULL,
	"Read for pgbouncer's sake: each connection is read once per turn.")
PARAM_BOOL(io_uring, "1", PARAM_RELOAD, NULL,
	"Send to several connections with one system call, where the kernel has io_uring and lets us use it (Linux 5.7); otherwise as with 0.")
PARAM_INT (tcp_defer_accept, "1", 0, INT_MAX, PARAM_RELOAD, NULL,
	"TCP_DEFER_ACCEPT: seconds that the kernel waits for the first bytes of a client; 0 is off.")
PARAM_SIZE(tcp_socket_buffer, "0", 0, 1024 * 1024 * 1024, PARAM_RELOAD, NULL,
	"Size of the kernel's buffers of a TCP connection; 0 leaves it to the kernel.")
PARAM_BOOL(tcp_keepalive, "1", PARAM_RELOAD, NULL,
	"Switch on TCP keepalive.")
PARAM_INT (tcp_keepcnt, "0", 0, 127, PARAM_RELOAD, NULL,
	"Unanswered keepalive probes after which a connection is dead; 0 leaves it to the kernel.")
PARAM_INT (tcp_keepidle, "0", 0, 32767, PARAM_RELOAD, NULL,
	"Seconds of silence before the first keepalive probe; 0 leaves it to the kernel.")
PARAM_INT (tcp_keepintvl, "0", 0, 32767, PARAM_RELOAD, NULL,
	"Seconds between keepalive probes; 0 leaves it to the kernel.")
PARAM_INT (tcp_user_timeout, "0", 0, INT_MAX, PARAM_RELOAD, NULL,
	"TCP_USER_TIMEOUT: milliseconds for which sent bytes may stay unacknowledged; 0 leaves it to the kernel.")

PARAM_GROUP("TLS")
PARAM_ENUM(client_tls_sslmode, sslmode, "disable", PARAM_RELOAD, NULL,
	"TLS for clients that come over TCP: `disable` refuses it, `allow` and `prefer` leave it to them, `require` insists, `verify-ca` and `verify-full` also want a certificate signed by `client_tls_ca_file`.")
PARAM_STR (client_tls_key_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Private key to show to clients. Files of this section are read again at each RELOAD.")
PARAM_STR (client_tls_cert_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Certificate to show to clients, and behind it those between it and the root.")
PARAM_STR (client_tls_ca_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Root certificates that client certificates are checked against.")
PARAM_STR (client_tls_protocols, "secure", 0, 255, PARAM_RELOAD, NULL,
	"Versions of TLS for clients: `secure` (1.2 and 1.3), `all`, or a list of `tlsv1.0`, `tlsv1.1`, `tlsv1.2`, `tlsv1.3`.")
PARAM_STR (client_tls_ciphers, "default", 0, 8192, PARAM_RELOAD, NULL,
	"Ciphers of TLS 1.2 and older for clients, as OpenSSL writes them; `default`, `secure`, `fast`, `normal`, `compat` and `legacy` are its own choice, `all` and `insecure` are every one that authenticates.")
PARAM_STR (client_tls13_ciphers, "", 0, 8192, PARAM_RELOAD, NULL,
	"Cipher suites of TLS 1.3 for clients; empty is the choice of OpenSSL.")
PARAM_STR (client_tls_dheparams, "auto", 0, 255, PARAM_RELOAD, check_dheparams,
	"Diffie-Hellman key exchange with clients: `auto`, `none`; `legacy` means `auto`.")
PARAM_STR (client_tls_ecdhcurve, "auto", 0, 255, PARAM_RELOAD, NULL,
	"Elliptic curve for clients: `auto`, `none` (TLS 1.2 only), or names with colons between them.")
PARAM_ENUM(server_tls_sslmode, sslmode, "prefer", PARAM_RELOAD, NULL,
	"TLS towards servers over TCP: `disable` never, `allow` and `prefer` if the server offers it, `require` always, `verify-ca` with a certificate signed by `server_tls_ca_file`, `verify-full` in the name of the host, too.")
PARAM_ENUM(server_tls_negotiation, tls_negotiation, "postgres", PARAM_RELOAD, NULL,
	"How TLS towards servers begins: `postgres` asks first, `direct` saves that round trip (PostgreSQL 17 and newer; needs `require` or stricter).")
PARAM_STR (server_tls_ca_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Root certificates that servers are checked against; empty takes those of the system for `verify-full`.")
PARAM_STR (server_tls_key_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Private key to show to servers that ask for a client certificate.")
PARAM_STR (server_tls_cert_file, "", 0, 4096, PARAM_RELOAD, NULL,
	"Certificate to show to servers that ask for one.")
PARAM_STR (server_tls_protocols, "secure", 0, 255, PARAM_RELOAD, NULL,
	"Versions of TLS towards servers, as `client_tls_protocols`.")
PARAM_STR (server_tls_ciphers, "default", 0, 8192, PARAM_RELOAD, NULL,
	"Ciphers of TLS 1.2 and older towards servers, as `client_tls_ciphers`.")
PARAM_STR (server_tls13_ciphers, "", 0, 8192, PARAM_RELOAD, NULL,
	"Cipher suites of TLS 1.3 towards servers; empty is the choice of OpenSSL.")

PARAM_GROUP("Names of hosts")
PARAM_TIME(dns_max_ttl, "15", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long the addresses of a name are remembered; the time to live that the nameserver gives does not count.")
PARAM_TIME(dns_nxdomain_ttl, "15", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How long it is remembered that a name could not be looked up. When no nameserver answers, the addresses that the name had last are used.")
PARAM_TIME(dns_zone_check_period, "0", 0, CONF_TIME_MAX, PARAM_RELOAD, NULL,
	"How often names in use are looked up again, though nobody connects; connections to addresses that are gone are closed when they are free. 0: only when somebody connects.")
PARAM_STR (resolv_conf, "", 0, 4095, PARAM_RESTART, NULL,
	"Configuration of the resolver, as `/etc/resolv.conf`; a port may follow the address of a nameserver. Empty for the system's.")

/* clang-format on */

#undef PARAM_GROUP
#undef PARAM_STR
#undef PARAM_INT
#undef PARAM_BOOL
#undef PARAM_TIME
#undef PARAM_SIZE
#undef PARAM_ENUM
