/*
 * THE list of what SHOW shows: from a row come RowDescription, the values, SHOW HELP, the manual and a
 * test that runs it. Names, order and types of columns are those of pgbouncer where it has the command,
 * because monitoring reads them.
 *
 *   SHOW_EACH(id, record, each, who may, help, COL(type, name, value) ...)
 *        each(fn, arg) calls fn with one `const record *st` after the other; value: of st
 *   SHOW(id, filler, who may, help, COL(type, name) ...)
 *        show_<filler>() in src/show/fill.c says what there is
 *
 * type: a name of enum wire_oid without OID_. A value has the type that row_put() takes (show_int.h).
 * A new column is a COL here, a member of the record (include/pool/stat.h, include/queue/stat.h) and
 * where that is filled; `sh dev/gen.sh` writes it into the manual.
 *
 * No include guard.
 */
#ifndef COL
#define COL(...)
#endif
#ifndef SHOW
#define SHOW(...)
#endif
#ifndef SHOW_EACH
#define SHOW_EACH(...)
#endif

/* clang-format off */

#ifndef SESSION_COLUMNS
#define SESSION_COLUMNS(its_state) \
	COL(TEXT, type, st->type) COL(TEXT, user, st->user) COL(TEXT, database, st->database) \
	COL(TEXT, replication, "none") COL(TEXT, state, its_state) COL(TEXT, addr, st->addr) \
	COL(INT4, port, st->port) COL(TEXT, local_addr, st->local_addr) COL(INT4, local_port, st->local_port) \
	COL(TEXT, connect_time, put_time(st->connect_time_us)) \
	COL(TEXT, request_time, put_time(st->request_time_us)) COL(INT4, wait, st->wait / USEC_SEC) \
	COL(INT4, wait_us, st->wait % USEC_SEC) COL(INT4, close_needed, st->close_needed) \
	COL(TEXT, ptr, put_object(st->id)) COL(TEXT, link, put_object(st->link_id)) \
	COL(INT4, remote_pid, st->remote_pid) COL(TEXT, tls, st->tls) \
	COL(TEXT, application_name, st->application_name) \
	COL(INT4, prepared_statements, st->prepared_statements) COL(INT8, id, st->id)

/* No position in a buffer is kept: 0. */
#define SOCKET_COLUMNS \
	SESSION_COLUMNS(put_socket_state(st)) \
	COL(INT4, recv_pos, 0) COL(INT4, pkt_pos, 0) COL(INT4, pkt_remain, 0) COL(INT4, send_pos, 0) \
	COL(INT4, send_remain, 0) COL(INT4, pkt_avail, st->unread) COL(INT4, send_avail, st->unsent)

/* A row of SHOW STATS; over all databases, a row each, SHOW TOTALS. */
#define STATS_COLUMNS \
	COL(NUMERIC, total_server_assignment_count, st->total.server_assignments) \
	COL(NUMERIC, total_xact_count, st->total.xacts) COL(NUMERIC, total_query_count, st->total.queries) \
	COL(NUMERIC, total_received, st->total.bytes_in) COL(NUMERIC, total_sent, st->total.bytes_out) \
	COL(NUMERIC, total_xact_time, st->total.xact_time) COL(NUMERIC, total_query_time, st->total.query_time) \
	COL(NUMERIC, total_wait_time, st->total.wait_time) \
	COL(NUMERIC, total_client_parse_count, st->total.client_parses) \
	COL(NUMERIC, total_server_parse_count, st->total.server_parses) \
	COL(NUMERIC, total_bind_count, st->total.binds) COL(NUMERIC, total_client_login_count, st->total.logins) \
	COL(NUMERIC, avg_server_assignment_count, st->avg.server_assignments) \
	COL(NUMERIC, avg_xact_count, st->avg.xacts) COL(NUMERIC, avg_query_count, st->avg.queries) \
	COL(NUMERIC, avg_recv, st->avg.bytes_in) COL(NUMERIC, avg_sent, st->avg.bytes_out) \
	COL(NUMERIC, avg_xact_time, st->avg.xact_time) COL(NUMERIC, avg_query_time, st->avg.query_time) \
	COL(NUMERIC, avg_wait_time, st->avg.wait_time) COL(NUMERIC, avg_client_parse_count, st->avg.client_parses) \
	COL(NUMERIC, avg_server_parse_count, st->avg.server_parses) COL(NUMERIC, avg_bind_count, st->avg.binds) \
	COL(NUMERIC, avg_client_login_count, st->avg.logins) \
	COL(NUMERIC, total_pin_count, st->total.pins) COL(NUMERIC, total_look_count, st->total.looks) \
	COL(NUMERIC, total_replay_count, st->total.replays) COL(NUMERIC, total_reset_count, st->total.resets)
#endif

SHOW(HELP, nothing, WHO_STATS, "This list. `HELP` alone is the same.", )
SHOW(VERSION, version, WHO_STATS, "The version of the program.",
	COL(TEXT, version))
SHOW(STATE, state, WHO_STATS, "Is the pooler active, paused, suspended?",
	COL(TEXT, key) COL(TEXT, value))
SHOW(CONFIG, config, WHO_STATS, "All parameters; secrets as ***.",
	COL(TEXT, key) COL(TEXT, value) COL(TEXT, default) COL(TEXT, changeable))
SHOW_EACH(DATABASES, struct stat_database, each_database, WHO_STATS, "The entries of [databases], and those that came from `*`.",
	COL(TEXT, name, st->name) COL(TEXT, host, st->host) COL(INT4, port, st->port) COL(TEXT, database, st->dbname)
	COL(TEXT, force_user, st->force_user) COL(INT4, pool_size, st->pool_size)
	COL(INT4, min_pool_size, st->min_pool_size) COL(INT4, reserve_pool_size, st->reserve_pool_size)
	COL(INT4, server_lifetime, st->server_lifetime / USEC_SEC) COL(TEXT, pool_mode, pool_mode_name(st->mode))
	COL(TEXT, load_balance_hosts, st->load_balance_hosts) COL(INT4, max_connections, st->max_connections)
	COL(INT4, current_connections, st->current_connections)
	COL(INT4, max_client_connections, st->max_client_connections)
	COL(INT4, current_client_connections, st->current_client_connections)
	COL(INT4, paused, st->paused) COL(INT4, disabled, st->disabled))
SHOW_EACH(USERS, struct stat_user, stat_each_user, WHO_STATS, "The users of the user file, with what [users] says of them.",
	COL(TEXT, name, st->name) COL(TEXT, pool_size, put_optional(st->pool_size))
	COL(TEXT, reserve_pool_size, put_optional(st->reserve_pool_size)) COL(TEXT, pool_mode, pool_mode_name(st->mode))
	COL(INT4, max_user_connections, st->max_user_connections) COL(INT4, current_connections, st->connections)
	COL(INT4, max_user_client_connections, st->max_user_client_connections)
	COL(INT4, current_client_connections, st->client_connections))
SHOW_EACH(POOLS, struct stat_pool, each_pool, WHO_STATS, "Clients and servers of each pair of database and user.",
	COL(TEXT, database, st->database) COL(TEXT, user, st->user) COL(INT4, cl_active, st->cl_active)
	COL(INT4, cl_waiting, st->cl_waiting) COL(INT4, cl_active_cancel_req, st->cl_active_cancel_req)
	COL(INT4, cl_waiting_cancel_req, 0) COL(INT4, sv_active, st->sv_active)
	COL(INT4, sv_active_cancel, st->sv_active_cancel) COL(INT4, sv_being_canceled, st->sv_being_canceled)
	COL(INT4, sv_idle, st->sv_idle) COL(INT4, sv_used, st->sv_used) COL(INT4, sv_tested, st->sv_tested)
	COL(INT4, sv_login, st->sv_login) COL(INT4, maxwait, st->maxwait / USEC_SEC)
	COL(INT4, maxwait_us, st->maxwait % USEC_SEC) COL(TEXT, pool_mode, pool_mode_name(st->mode))
	COL(TEXT, load_balance_hosts, st->load_balance_hosts) COL(INT4, sv_pinned, st->sv_pinned)
	COL(INT4, sv_engine, st->sv_engine) COL(INT4, sv_kept, st->sv_kept))
SHOW_EACH(CLIENTS, struct stat_session, stat_each_client, WHO_STATS, "Each client.",
	SESSION_COLUMNS(st->state) COL(TEXT, pinned, st->pinned))
SHOW_EACH(SERVERS, struct stat_session, stat_each_server, WHO_STATS, "Each server connection.",
	SESSION_COLUMNS(st->state) COL(INT4, engine, st->engine))
SHOW_EACH(SOCKETS, struct stat_session, each_socket, WHO_STATS, "Clients and servers. The positions in buffers are 0; pkt_avail and send_avail are the bytes kept that were not read and not written.",
	SOCKET_COLUMNS)
SHOW_EACH(ACTIVE_SOCKETS, struct stat_session, each_active_socket, WHO_STATS, "Those of SHOW SOCKETS that are at work.",
	SOCKET_COLUMNS)
SHOW(LISTS, lists, WHO_STATS, "How many there are of everything.",
	COL(TEXT, list) COL(INT4, items))
SHOW_EACH(STATS, struct stat_database, each_database, WHO_STATS, "Totals of each database, and averages per second of the last period; times in microseconds.",
	COL(TEXT, database, st->name) STATS_COLUMNS)
SHOW_EACH(STATS_TOTALS, struct stat_database, each_database, WHO_STATS, "The totals of SHOW STATS.",
	COL(TEXT, database, st->name) COL(NUMERIC, server_assignment_count, st->total.server_assignments)
	COL(NUMERIC, xact_count, st->total.xacts) COL(NUMERIC, query_count, st->total.queries)
	COL(NUMERIC, bytes_received, st->total.bytes_in) COL(NUMERIC, bytes_sent, st->total.bytes_out)
	COL(NUMERIC, xact_time, st->total.xact_time) COL(NUMERIC, query_time, st->total.query_time)
	COL(NUMERIC, wait_time, st->total.wait_time) COL(NUMERIC, client_parse_count, st->total.client_parses)
	COL(NUMERIC, server_parse_count, st->total.server_parses) COL(NUMERIC, bind_count, st->total.binds)
	COL(NUMERIC, client_login_count, st->total.logins)
	COL(NUMERIC, pin_count, st->total.pins) COL(NUMERIC, look_count, st->total.looks)
	COL(NUMERIC, replay_count, st->total.replays) COL(NUMERIC, reset_count, st->total.resets))
SHOW_EACH(STATS_AVERAGES, struct stat_database, each_database, WHO_STATS, "The averages of SHOW STATS.",
	COL(TEXT, database, st->name) COL(NUMERIC, server_assignment_count, st->avg.server_assignments)
	COL(NUMERIC, xact_count, st->avg.xacts) COL(NUMERIC, query_count, st->avg.queries)
	COL(NUMERIC, bytes_received, st->avg.bytes_in) COL(NUMERIC, bytes_sent, st->avg.bytes_out)
	COL(NUMERIC, xact_time, st->avg.xact_time) COL(NUMERIC, query_time, st->avg.query_time)
	COL(NUMERIC, wait_time, st->avg.wait_time) COL(NUMERIC, avg_client_parse_count, st->avg.client_parses)
	COL(NUMERIC, avg_server_parse_count, st->avg.server_parses) COL(NUMERIC, avg_bind_count, st->avg.binds)
	COL(NUMERIC, avg_client_login_count, st->avg.logins))
SHOW(TOTALS, totals, WHO_STATS, "SHOW STATS over all databases, a row for each figure.",
	COL(TEXT, name) COL(NUMERIC, value))
SHOW_EACH(MEM, struct slab_stat, slab_each, WHO_STATS, "Memory of the objects that are kept in slabs.",
	COL(TEXT, name, st->name) COL(INT4, size, st->size) COL(INT4, used, st->used) COL(INT4, free, st->free)
	COL(INT4, memtotal, st->total))
SHOW_EACH(QUEUES, struct queue_stat_queue, queue_stat_each_queue, WHO_STATS, "Each queue that was used through this proxy, and the notification session of its database. others: proxies there, but for processes of this program: none, asleep (none of them needs to be told what is pushed here), awake, unknown. asleep: 1: this one need not be told.",
	COL(TEXT, database, st->database) COL(TEXT, queue, st->queue) COL(INT4, waiters, st->waiters)
	COL(INT4, probing, st->fetching) COL(INT8, next_due_us, put_unless_negative(st->next_due_us))
	COL(INT8, wakes, st->wakes) COL(INT8, probes, st->fetches) COL(INT8, handed, st->handed)
	COL(INT8, served, st->served) COL(TEXT, system, st->system) COL(INT8, failed, st->failed)
	COL(TEXT, others, st->others) COL(INT4, asleep, st->asleep))
SHOW_EACH(WAITERS, struct queue_stat_waiter, queue_stat_each_waiter, WHO_STATS, "Each client that waits for a job. kind: client, or worker: the proxy itself, whose id is 0.",
	COL(INT8, id, st->client_id) COL(TEXT, database, st->database) COL(TEXT, user, st->user)
	COL(TEXT, queues, st->queues) COL(TEXT, state, st->state) COL(INT4, limit, st->limit)
	COL(INT8, waited_us, st->waited_us) COL(INT8, left_us, st->left_us) COL(TEXT, worker, st->worker)
	COL(TEXT, kind, st->kind) COL(INT4, rank, st->rank))
SHOW_EACH(LEASES, struct queue_stat_lease, queue_stat_each_lease, WHO_STATS, "Each job that a client holds. kind: as in SHOW WAITERS.",
	COL(INT8, id, st->client_id) COL(TEXT, database, st->database) COL(TEXT, user, st->user)
	COL(TEXT, queue, st->queue) COL(INT8, job, st->job_id) COL(TEXT, policy, st->policy)
	COL(INT8, held_us, st->held_us) COL(INT4, in_transaction, st->in_transaction)
	COL(TEXT, kind, st->kind))
SHOW_EACH(RUNNING, struct queue_stat_run, queue_stat_each_run, WHO_STATS, "Each job that the proxy carries out itself, or is about to. pid: of the server process. state: waiting, running, ending, failing. runs_in: where, if the job has named another database. before: how many jobs were carried out in its session before it, if that is kept (session = keep).",
	COL(TEXT, database, st->database) COL(TEXT, user, st->user) COL(TEXT, queue, st->queue)
	COL(TEXT, job, st->job) COL(INT4, attempt, st->attempt) COL(TEXT, state, st->state) COL(INT4, pid, st->pid)
	COL(INT8, running_us, st->running_us) COL(INT8, left_us, put_unless_negative(st->left_us))
	COL(TEXT, runs_in, st->runs_in) COL(INT4, before, put_unless_negative(st->before)))
SHOW_EACH(PEERS, struct conf_peer, each_peer, WHO_STATS, "The entries of [peers].",
	COL(INT4, peer_id, st->id) COL(TEXT, host, st->host) COL(INT4, port, st->port > 0 ? st->port : 6432)
	COL(INT4, pool_size, st->pool_size > 0 ? st->pool_size : conf_current()->p.default_pool_size))
SHOW_EACH(PEER_POOLS, struct conf_peer, each_peer, WHO_STATS, "A row for each peer, with the cancel requests that it is being given; none waits, so the other counts are 0.",
	COL(INT4, peer_id, st->id) COL(INT4, cl_active_cancel_req, stat_peer_cancels(st->id))
	COL(INT4, cl_waiting_cancel_req, 0) COL(INT4, sv_active_cancel, stat_peer_cancels(st->id)) COL(INT4, sv_login, 0))
SHOW_EACH(DNS_HOSTS, struct dns_host_stat, dns_each_host, WHO_STATS, "Names that were looked up, with the seconds that the answer is good.",
	COL(TEXT, hostname, st->host) COL(INT8, ttl, st->ttl / USEC_SEC) COL(TEXT, addrs, st->addrs))
SHOW(DNS_ZONES, dns_zones, WHO_STATS, "Zones of the names in SHOW DNS_HOSTS. The serial is 0: names are watched, not zones.",
	COL(TEXT, zonename) COL(INT8, serial) COL(INT4, count))
SHOW(FDS, fds, WHO_ADMIN, "The descriptor of each listening socket, client and server. Keys and secrets are not shown.",
	COL(INT4, fd) COL(TEXT, task) COL(TEXT, user) COL(TEXT, database) COL(TEXT, addr) COL(INT4, port)
	COL(INT8, cancel) COL(INT4, link) COL(TEXT, client_encoding) COL(TEXT, std_strings)
	COL(TEXT, datestyle) COL(TEXT, timezone) COL(TEXT, password) COL(TEXT, scram_client_key)
	COL(TEXT, scram_server_key))

/* clang-format on */

#undef SHOW
#undef SHOW_EACH
#undef COL
