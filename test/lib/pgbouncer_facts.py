"""What pgbouncer (1.25) has: settings with defaults, keys of entries, commands, columns.

For:     the tests that compare it with what is here and with doc/pgbouncer.md.
"""

# name: (default, changed by RELOAD)
SETTINGS = {
    "admin_users": ("", True),
    "application_name_add_host": ("0", True),
    "auth_dbname": ("", True),
    "auth_file": ("", True),
    "auth_hba_file": ("", True),
    "auth_ident_file": ("", True),
    "auth_ldap_options": ("", True),
    'auth_query': (
        'SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpass'
        'word END FROM pg_authid WHERE rolname=$1 AND rolcanlogin', True),
    "auth_type": ("md5", True),
    "auth_user": ("", True),
    "autodb_idle_timeout": ("3600", True),
    "cancel_wait_timeout": ("10", True),
    "client_idle_timeout": ("0", True),
    "client_login_timeout": ("60", True),
    "client_tls13_ciphers": ("", True),
    "client_tls_ca_file": ("", True),
    "client_tls_cert_file": ("", True),
    "client_tls_ciphers": ("default", True),
    "client_tls_dheparams": ("auto", True),
    "client_tls_ecdhcurve": ("auto", True),
    "client_tls_key_file": ("", True),
    "client_tls_protocols": ("secure", True),
    "client_tls_sslmode": ("disable", True),
    "conffile": ("", True),
    "default_pool_size": ("20", True),
    "disable_pqexec": ("0", False),
    "dns_max_ttl": ("15", True),
    "dns_nxdomain_ttl": ("15", True),
    "dns_zone_check_period": ("0", True),
    "idle_transaction_timeout": ("0", True),
    "ignore_startup_parameters": ("", True),
    "job_name": ("pgbouncer", False),
    "listen_addr": ("", False),
    "listen_backlog": ("128", False),
    "listen_port": ("6432", False),
    "log_connections": ("1", True),
    "log_disconnections": ("1", True),
    "log_pooler_errors": ("1", True),
    "log_stats": ("1", True),
    "logfile": ("", True),
    "login_notify_message": ("", True),
    "max_client_conn": ("100", True),
    "max_db_client_connections": ("0", True),
    "max_db_connections": ("0", True),
    "max_packet_size": ("2147483647", True),
    "max_prepared_statements": ("200", True),
    "max_user_client_connections": ("0", True),
    "max_user_connections": ("0", True),
    "min_pool_size": ("0", True),
    "peer_id": ("0", True),
    "pidfile": ("", False),
    "pkt_buf": ("4096", False),
    "pool_mode": ("session", True),
    "pool_idle_timeout": ("0", True),
    "query_timeout": ("0", True),
    "query_wait_notify": ("5", True),
    "query_wait_timeout": ("120", True),
    "reserve_pool_size": ("0", True),
    "reserve_pool_timeout": ("5", True),
    "resolv_conf": ("", False),
    "sbuf_loopcnt": ("5", True),
    "scram_iterations": ("4096", True),
    "server_check_delay": ("30", True),
    "server_check_query": ("<empty>", True),
    "server_connect_timeout": ("15", True),
    "server_fast_close": ("0", True),
    "server_idle_timeout": ("600", True),
    "server_lifetime": ("3600", True),
    "server_login_retry": ("15", True),
    "server_reset_query": ("DISCARD ALL", True),
    "server_reset_query_always": ("0", True),
    "server_round_robin": ("0", True),
    "server_tls13_ciphers": ("", True),
    "server_tls_ca_file": ("", True),
    "server_tls_cert_file": ("", True),
    "server_tls_ciphers": ("default", True),
    "server_tls_key_file": ("", True),
    "server_tls_protocols": ("secure", True),
    "server_tls_sslmode": ("prefer", True),
    "service_name": ("", False),
    "so_reuseport": ("0", False),
    "stats_period": ("60", True),
    "stats_users": ("", True),
    "suspend_timeout": ("10", True),
    "syslog": ("0", True),
    "syslog_facility": ("daemon", True),
    "syslog_ident": ("pgbouncer", True),
    "tcp_defer_accept": ("1", True),
    "tcp_keepalive": ("1", True),
    "tcp_keepcnt": ("0", True),
    "tcp_keepidle": ("0", True),
    "tcp_keepintvl": ("0", True),
    "tcp_socket_buffer": ("0", True),
    "tcp_user_timeout": ("0", True),
    "track_extra_parameters": ("IntervalStyle", False),
    "transaction_timeout": ("0", True),
    "unix_socket_dir": ("/tmp", False),
    "unix_socket_group": ("", False),
    "unix_socket_mode": ("0777", False),
    "user": ("", False),
    "verbose": ("", True),
}

DATABASE_KEYS = """dbname host port user password auth_user auth_query auth_dbname pool_size min_pool_size
    reserve_pool_size reserve_pool connect_query pool_mode query_wait_timeout load_balance_hosts max_db_connections
    max_db_client_connections server_lifetime client_encoding datestyle timezone""".split()
USER_KEYS = """pool_size reserve_pool_size pool_mode max_user_connections query_timeout query_wait_timeout
    idle_transaction_timeout transaction_timeout client_idle_timeout max_user_client_connections""".split()
PEER_KEYS = ["host", "port", "pool_size"]

COMMANDS = ["SHOW", "SET", "RELOAD", "PAUSE", "RESUME", "DISABLE", "ENABLE", "RECONNECT", "KILL", "KILL_CLIENT",
            "SUSPEND", "SHUTDOWN", "WAIT_CLOSE"]

# Columns in their order.
SHOWS = {
    "VERSION": "version".split(),
    "STATE": "key value".split(),
    "CONFIG": "key value default changeable".split(),
    "MEM": "name size used free memtotal".split(),
    "DATABASES": """name host port database force_user pool_size min_pool_size reserve_pool_size server_lifetime
        pool_mode load_balance_hosts max_connections current_connections max_client_connections
        current_client_connections paused disabled""".split(),
    "USERS": """name pool_size reserve_pool_size pool_mode max_user_connections current_connections
        max_user_client_connections current_client_connections""".split(),
    "POOLS": """database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active
        sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us
        pool_mode load_balance_hosts""".split(),
    "PEERS": "peer_id host port pool_size".split(),
    "PEER_POOLS": "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login".split(),
    "CLIENTS": """type user database replication state addr port local_addr local_port connect_time request_time
        wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id""".split(),
    "SERVERS": """type user database replication state addr port local_addr local_port connect_time request_time
        wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id""".split(),
    "SOCKETS": """type user database replication state addr port local_addr local_port connect_time request_time
        wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id
        recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail""".split(),
    "ACTIVE_SOCKETS": """type user database replication state addr port local_addr local_port connect_time request_time
        wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id
        recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail""".split(),
    "LISTS": "list items".split(),
    "DNS_HOSTS": "hostname ttl addrs".split(),
    "DNS_ZONES": "zonename serial count".split(),
    "STATS": """database total_server_assignment_count total_xact_count total_query_count total_received
        total_sent total_xact_time total_query_time total_wait_time total_client_parse_count
        total_server_parse_count total_bind_count total_client_login_count avg_server_assignment_count
        avg_xact_count avg_query_count avg_recv avg_sent avg_xact_time avg_query_time avg_wait_time
        avg_client_parse_count avg_server_parse_count avg_bind_count avg_client_login_count""".split(),
    "STATS_TOTALS": """database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time
        query_time wait_time client_parse_count server_parse_count bind_count client_login_count""".split(),
    "STATS_AVERAGES": """database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time
        query_time wait_time avg_client_parse_count avg_server_parse_count avg_bind_count
        avg_client_login_count""".split(),
    "TOTALS": "name value".split(),
    "FDS": """fd task user database addr port cancel link client_encoding std_strings datestyle timezone
        password scram_client_key scram_server_key""".split(),
}
