/*
 * THE table of what SHOW shows: from a row come RowDescription, SHOW HELP, the manual and a test
 * that runs it. The filler is show_<filler>(), in show*.c. Names, order and types of columns are those
 * of pgbouncer where it has the command, because monitoring reads them.
 *
 *   SHOW(id, filler, who may, help, COL(type, name) ...)      type: a name of enum wire_oid without OID_
 *
 * No include guard.
 */
#ifndef COL
#define COL(type, name)
#endif

/* clang-format off */

SHOW(HELP, nothing, WHO_STATS, "This list. `HELP` alone is the same.", )
SHOW(VERSION, version, WHO_STATS, "The version of the program.",
	COL(TEXT, version))
SHOW(STATE, state, WHO_STATS, "Is the pooler active, paused, suspended?",
	COL(TEXT, key) COL(TEXT, value))
SHOW(CONFIG, config, WHO_STATS, "All parameters; secrets as ***.",
	COL(TEXT, key) COL(TEXT, value) COL(TEXT, default) COL(TEXT, changeable))
SHOW(DATABASES, databases, WHO_STATS, "The entries of [databases], and those that came from `*`.",
	COL(TEXT, name) COL(TEXT, host) COL(INT4, port) COL(TEXT, database) COL(TEXT, force_user)
	COL(INT4, pool_size) COL(INT4, min_pool_size) COL(INT4, reserve_pool_size) COL(INT4, server_lifetime)
	COL(TEXT, pool_mode) COL(TEXT, load_balance_hosts) COL(INT4, max_connections)
	COL(INT4, current_connections) COL(INT4, max_client_connections)
	COL(INT4, current_client_connections) COL(INT4, paused) COL(INT4, disabled))
SHOW(USERS, users, WHO_STATS, "The users of the user file, with what [users] says of them.",
	COL(TEXT, name) COL(TEXT, pool_size) COL(TEXT, reserve_pool_size) COL(TEXT, pool_mode)
	COL(INT4, max_user_connections) COL(INT4, current_connections)
	COL(INT4, max_user_client_connections) COL(INT4, current_client_connections))
SHOW(POOLS, pools, WHO_STATS, "Clients and servers of each pair of database and user.",
	COL(TEXT, database) COL(TEXT, user) COL(INT4, cl_active) COL(INT4, cl_waiting)
	COL(INT4, cl_active_cancel_req) COL(INT4, cl_waiting_cancel_req) COL(INT4, sv_active)
	COL(INT4, sv_active_cancel) COL(INT4, sv_being_canceled) COL(INT4, sv_idle) COL(INT4, sv_used)
	COL(INT4, sv_tested) COL(INT4, sv_login) COL(INT4, maxwait) COL(INT4, maxwait_us)
	COL(TEXT, pool_mode) COL(TEXT, load_balance_hosts) COL(INT4, sv_pinned))
SHOW(CLIENTS, clients, WHO_STATS, "Each client.",
	COL(TEXT, type) COL(TEXT, user) COL(TEXT, database) COL(TEXT, replication) COL(TEXT, state)
	COL(TEXT, addr) COL(INT4, port) COL(TEXT, local_addr) COL(INT4, local_port)
	COL(TEXT, connect_time) COL(TEXT, request_time) COL(INT4, wait) COL(INT4, wait_us)
	COL(INT4, close_needed) COL(TEXT, ptr) COL(TEXT, link) COL(INT4, remote_pid) COL(TEXT, tls)
	COL(TEXT, application_name) COL(INT4, prepared_statements) COL(INT8, id)
	COL(TEXT, pinned))
SHOW(SERVERS, servers, WHO_STATS, "Each server connection.",
	COL(TEXT, type) COL(TEXT, user) COL(TEXT, database) COL(TEXT, replication) COL(TEXT, state)
	COL(TEXT, addr) COL(INT4, port) COL(TEXT, local_addr) COL(INT4, local_port)
	COL(TEXT, connect_time) COL(TEXT, request_time) COL(INT4, wait) COL(INT4, wait_us)
	COL(INT4, close_needed) COL(TEXT, ptr) COL(TEXT, link) COL(INT4, remote_pid) COL(TEXT, tls)
	COL(TEXT, application_name) COL(INT4, prepared_statements) COL(INT8, id))
SHOW(SOCKETS, sockets, WHO_STATS, "Clients and servers. The positions in buffers are 0; pkt_avail and send_avail are the bytes kept that were not read and not written.",
	COL(TEXT, type) COL(TEXT, user) COL(TEXT, database) COL(TEXT, replication) COL(TEXT, state)
	COL(TEXT, addr) COL(INT4, port) COL(TEXT, local_addr) COL(INT4, local_port)
	COL(TEXT, connect_time) COL(TEXT, request_time) COL(INT4, wait) COL(INT4, wait_us)
	COL(INT4, close_needed) COL(TEXT, ptr) COL(TEXT, link) COL(INT4, remote_pid) COL(TEXT, tls)
	COL(TEXT, application_name) COL(INT4, prepared_statements) COL(INT8, id)
	COL(INT4, recv_pos) COL(INT4, pkt_pos) COL(INT4, pkt_remain) COL(INT4, send_pos)
	COL(INT4, send_remain) COL(INT4, pkt_avail) COL(INT4, send_avail))
SHOW(ACTIVE_SOCKETS, active_sockets, WHO_STATS, "Those of SHOW SOCKETS that are at work.",
	COL(TEXT, type) COL(TEXT, user) COL(TEXT, database) COL(TEXT, replication) COL(TEXT, state)
	COL(TEXT, addr) COL(INT4, port) COL(TEXT, local_addr) COL(INT4, local_port)
	COL(TEXT, connect_time) COL(TEXT, request_time) COL(INT4, wait) COL(INT4, wait_us)
	COL(INT4, close_needed) COL(TEXT, ptr) COL(TEXT, link) COL(INT4, remote_pid) COL(TEXT, tls)
	COL(TEXT, application_name) COL(INT4, prepared_statements) COL(INT8, id)
	COL(INT4, recv_pos) COL(INT4, pkt_pos) COL(INT4, pkt_remain) COL(INT4, send_pos)
	COL(INT4, send_remain) COL(INT4, pkt_avail) COL(INT4, send_avail))
SHOW(LISTS, lists, WHO_STATS, "How many there are of everything.",
	COL(TEXT, list) COL(INT4, items))
SHOW(STATS, stats, WHO_STATS, "Totals of each database, and averages per second of the last period; times in microseconds.",
	COL(TEXT, database) COL(NUMERIC, total_server_assignment_count) COL(NUMERIC, total_xact_count)
	COL(NUMERIC, total_query_count) COL(NUMERIC, total_received) COL(NUMERIC, total_sent)
	COL(NUMERIC, total_xact_time) COL(NUMERIC, total_query_time) COL(NUMERIC, total_wait_time)
	COL(NUMERIC, total_client_parse_count) COL(NUMERIC, total_server_parse_count)
	COL(NUMERIC, total_bind_count) COL(NUMERIC, total_client_login_count)
	COL(NUMERIC, avg_server_assignment_count) COL(NUMERIC, avg_xact_count)
	COL(NUMERIC, avg_query_count) COL(NUMERIC, avg_recv) COL(NUMERIC, avg_sent)
	COL(NUMERIC, avg_xact_time) COL(NUMERIC, avg_query_time) COL(NUMERIC, avg_wait_time)
	COL(NUMERIC, avg_client_parse_count) COL(NUMERIC, avg_server_parse_count)
	COL(NUMERIC, avg_bind_count) COL(NUMERIC, avg_client_login_count)
	COL(NUMERIC, total_pin_count) COL(NUMERIC, total_look_count)
	COL(NUMERIC, total_replay_count) COL(NUMERIC, total_reset_count))
SHOW(STATS_TOTALS, stats_totals, WHO_STATS, "The totals of SHOW STATS.",
	COL(TEXT, database) COL(NUMERIC, server_assignment_count) COL(NUMERIC, xact_count)
	COL(NUMERIC, query_count) COL(NUMERIC, bytes_received) COL(NUMERIC, bytes_sent)
	COL(NUMERIC, xact_time) COL(NUMERIC, query_time) COL(NUMERIC, wait_time)
	COL(NUMERIC, client_parse_count) COL(NUMERIC, server_parse_count) COL(NUMERIC, bind_count)
	COL(NUMERIC, client_login_count)
	COL(NUMERIC, pin_count) COL(NUMERIC, look_count) COL(NUMERIC, replay_count)
	COL(NUMERIC, reset_count))
SHOW(STATS_AVERAGES, stats_averages, WHO_STATS, "The averages of SHOW STATS.",
	COL(TEXT, database) COL(NUMERIC, server_assignment_count) COL(NUMERIC, xact_count)
	COL(NUMERIC, query_count) COL(NUMERIC, bytes_received) COL(NUMERIC, bytes_sent)
	COL(NUMERIC, xact_time) COL(NUMERIC, query_time) COL(NUMERIC, wait_time)
	COL(NUMERIC, avg_client_parse_count) COL(NUMERIC, avg_server_parse_count)
	COL(NUMERIC, avg_bind_count) COL(NUMERIC, avg_client_login_count))
SHOW(TOTALS, totals, WHO_STATS, "SHOW STATS over all databases, a row for each figure.",
	COL(TEXT, name) COL(NUMERIC, value))
SHOW(MEM, mem, WHO_STATS, "Memory of the objects that are kept in slabs.",
	COL(TEXT, name) COL(INT4, size) COL(INT4, used) COL(INT4, free) COL(INT4, memtotal))
SHOW(QUEUES, queues, WHO_STATS, "Each queue that was used through this proxy, and the notification session of its database.",
	COL(TEXT, database) COL(TEXT, queue) COL(INT4, waiters) COL(INT4, probing)
	COL(INT8, next_due_us) COL(INT8, wakes) COL(INT8, probes) COL(INT8, handed) COL(INT8, served) COL(TEXT, system)
	COL(INT8, failed))
SHOW(WAITERS, waiters, WHO_STATS, "Each client that waits for a job.",
	COL(INT8, id) COL(TEXT, database) COL(TEXT, user) COL(TEXT, queues) COL(TEXT, state)
	COL(INT4, limit) COL(INT8, waited_us) COL(INT8, left_us))
SHOW(LEASES, leases, WHO_STATS, "Each job that a client holds.",
	COL(INT8, id) COL(TEXT, database) COL(TEXT, user) COL(TEXT, queue) COL(INT8, job)
	COL(TEXT, policy) COL(INT8, held_us) COL(INT4, in_transaction))
SHOW(PEERS, peers, WHO_STATS, "The entries of [peers].",
	COL(INT4, peer_id) COL(TEXT, host) COL(INT4, port) COL(INT4, pool_size))
SHOW(PEER_POOLS, peer_pools, WHO_STATS, "A row for each peer, with the cancel requests that it is being given; none waits, so the other counts are 0.",
	COL(INT4, peer_id) COL(INT4, cl_active_cancel_req) COL(INT4, cl_waiting_cancel_req)
	COL(INT4, sv_active_cancel) COL(INT4, sv_login))
SHOW(DNS_HOSTS, dns_hosts, WHO_STATS, "Names that were looked up, with the seconds that the answer is good.",
	COL(TEXT, hostname) COL(INT8, ttl) COL(TEXT, addrs))
SHOW(DNS_ZONES, dns_zones, WHO_STATS, "Zones of the names in SHOW DNS_HOSTS. The serial is 0: names are watched, not zones.",
	COL(TEXT, zonename) COL(INT8, serial) COL(INT4, count))
SHOW(FDS, fds, WHO_ADMIN, "The descriptor of each listening socket, client and server. Keys and secrets are not shown.",
	COL(INT4, fd) COL(TEXT, task) COL(TEXT, user) COL(TEXT, database) COL(TEXT, addr) COL(INT4, port)
	COL(INT8, cancel) COL(INT4, link) COL(TEXT, client_encoding) COL(TEXT, std_strings)
	COL(TEXT, datestyle) COL(TEXT, timezone) COL(TEXT, password) COL(TEXT, scram_client_key)
	COL(TEXT, scram_server_key))

/* clang-format on */

#undef SHOW
#undef COL
