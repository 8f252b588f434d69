/*
 * The HTTP server (libevent's) and its three addresses. Must not know what is measured.
 */
#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "conf/conf.h"
#include "http/http.h"
#include "http_int.h"
#include "net/loop.h"
#include "pool/pool.h"

#define REQUEST_SECONDS 10   /* a request and its answer */
#define REQUEST_MAX     8192 /* bytes of its head; a body is refused */

static struct {
	struct evhttp *server;
	char addr[256];
	int port;
} http;

static void answer(struct evhttp_request *req, int code, const char *reason, const char *type,
	const void *body, size_t len)
{
	struct evbuffer *out = evbuffer_new();

	evhttp_add_header(evhttp_request_get_output_headers(req), "Content-Type", type);
	evhttp_add_header(evhttp_request_get_output_headers(req), "Cache-Control", "no-store");
	if (out != NULL && evbuffer_add(out, body, len) == 0)
		evhttp_send_reply(req, code, reason, out);
	else
		evhttp_send_reply(req, 500, "out of memory", NULL);
	if (out != NULL)
		evbuffer_free(out);
}

static void answer_text(struct evhttp_request *req, int code, const char *reason, const char *text)
{
	answer(req, code, reason, "text/plain; charset=utf-8", text, strlen(text));
}

static void on_metrics(struct evhttp_request *req, void *arg)
{
	struct buf b = BUF_INIT;

	(void)arg;
	metrics_write(&b);
	if (buf_failed(&b))
		answer_text(req, 500, "Internal Server Error", "out of memory\n");
	else
		answer(req, 200, "OK", "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
	buf_free(&b);
}

/* The process lives and its loop turns. */
static void on_health(struct evhttp_request *req, void *arg)
{
	(void)arg;
	answer_text(req, 200, "OK", "ok\n");
}

/* New clients may come. */
static void on_ready(struct evhttp_request *req, void *arg)
{
	(void)arg;
	if (pooler_is_shutting_down() != SHUTDOWN_NONE)
		answer_text(req, 503, "Service Unavailable", "shutting down\n");
	else if (pooler_is_suspended() != SUSPENDED_NO)
		answer_text(req, 503, "Service Unavailable", "suspended\n");
	else if (pooler_all_paused())
		answer_text(req, 503, "Service Unavailable", "paused\n");
	else
		answer_text(req, 200, "OK", "ok\n");
}

static void on_other(struct evhttp_request *req, void *arg)
{
	(void)arg;
	answer_text(req, 404, "Not Found", "There are /metrics, /healthz and /readyz.\n");
}

/* As the other listening sockets: a process that takes over listens before the old one stops. */
static bool bind_server(struct evhttp *server, const char *addr, int port)
{
	unsigned flags = LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE;
	struct evutil_addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = EVUTIL_AI_PASSIVE | EVUTIL_AI_NUMERICSERV};
	struct evutil_addrinfo *ai = NULL;
	struct evconnlistener *listener = NULL;
	char text[16];

	snprintf(text, sizeof(text), "%d", port);
	if (conf_current()->p.so_reuseport)
		flags |= LEV_OPT_REUSEABLE_PORT;
	if (evutil_getaddrinfo(addr, text, &hints, &ai) == 0)
		listener = evconnlistener_new_bind(
			loop_base(), NULL, NULL, flags, 128, ai->ai_addr, (int)ai->ai_addrlen);
	if (ai != NULL)
		evutil_freeaddrinfo(ai);
	if (listener == NULL)
		return false;
	if (evhttp_bind_listener(server, listener) != NULL)
		return true;
	evconnlistener_free(listener);
	return false;
}

static struct evhttp *open_server(const char *addr, int port, char *err, size_t err_size)
{
	struct evhttp *server = evhttp_new(loop_base());

	if (server == NULL) {
		snprintf(err, err_size, "out of memory");
		return NULL;
	}
	evhttp_set_allowed_methods(server, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
	evhttp_set_timeout(server, REQUEST_SECONDS);
	evhttp_set_max_headers_size(server, REQUEST_MAX);
	evhttp_set_max_body_size(server, 0);
	evhttp_set_gencb(server, on_other, NULL);
	if (evhttp_set_cb(server, "/metrics", on_metrics, NULL) == 0 &&
		evhttp_set_cb(server, "/healthz", on_health, NULL) == 0 &&
		evhttp_set_cb(server, "/readyz", on_ready, NULL) == 0 &&
		bind_server(server, addr, port))
		return server;
	snprintf(err, err_size, "cannot listen for metrics on %s:%d: %s", addr, port,
		evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
	evhttp_free(server);
	return NULL;
}

void http_close(void)
{
	if (http.server != NULL)
		evhttp_free(http.server);
	memset(&http, 0, sizeof(http));
}

bool http_apply(char *err, size_t err_size)
{
	const struct params *p = &conf_current()->p;

	if (p->metrics_port == http.port && strcmp(p->metrics_addr, http.addr) == 0)
		return true;
	http_close();
	if (p->metrics_port == 0)
		return true;
	http.server = open_server(p->metrics_addr, p->metrics_port, err, err_size);
	if (http.server == NULL)
		return false;
	http.port = p->metrics_port;
	util_strlcpy(http.addr, p->metrics_addr, sizeof(http.addr));
	log_info("metrics on http://%s:%d/metrics", http.addr, http.port);
	return true;
}
