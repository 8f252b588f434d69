/*
 * The fillers of shows.h.
 */
#ifndef QB_ADMIN_SHOW_H
#define QB_ADMIN_SHOW_H

#include "admin_int.h"

void show_nothing(struct show_rows *r);
void show_dns_hosts(struct show_rows *r);
void show_dns_zones(struct show_rows *r);
void show_fds(struct show_rows *r);
void show_version(struct show_rows *r);
void show_state(struct show_rows *r);
void show_config(struct show_rows *r);
void show_databases(struct show_rows *r);
void show_users(struct show_rows *r);
void show_pools(struct show_rows *r);
void show_peers(struct show_rows *r);
void show_peer_pools(struct show_rows *r);
void show_clients(struct show_rows *r);
void show_servers(struct show_rows *r);
void show_sockets(struct show_rows *r);
void show_active_sockets(struct show_rows *r);
void show_lists(struct show_rows *r);
void show_stats(struct show_rows *r);
void show_stats_totals(struct show_rows *r);
void show_stats_averages(struct show_rows *r);
void show_totals(struct show_rows *r);
void show_mem(struct show_rows *r);
void show_queues(struct show_rows *r);
void show_waiters(struct show_rows *r);
void show_leases(struct show_rows *r);

#endif
