/*
 * Figures for Prometheus and signs of life for load balancers, over HTTP: GET /metrics, /healthz,
 * /readyz. Off unless metrics_port is set. It only reads snapshots, changes nothing and knows no
 * secret; who may reach the address may read.
 */
#ifndef QB_HTTP_HTTP_H
#define QB_HTTP_HTTP_H

#include "base/util.h"

/* Who keeps connections open costs the pooler no more than these. */
#define HTTP_CONNECTIONS_MAX 64

/* Once, before the rest. false: no memory. */
MUST_CHECK bool http_start(void);
/* Listens where the configuration in force says; closes and opens when that has changed. false:
 * err says why, and nothing is listened on. */
MUST_CHECK bool http_apply(char *err, size_t err_size);
void http_close(void);

#endif
