/*
 * The three addresses that answer over HTTP. Must not know what is measured, nor how HTTP is
 * spoken.
 */
#include <string.h>

#include "base/log.h"
#include "conf/conf.h"
#include "http/http.h"
#include "gather.h"
#include "choice.h"
#include "http_int.h"
#include "net/team.h"
#include "pooler/pooler.h"

#define REQUEST_TIME (10 * USEC_SEC)

static struct {
	char addr[256];
	int port;
} http;

static void set_metrics(struct http_reply *r)
{
	r->code = 200;
	r->type = "text/plain; version=0.0.4; charset=utf-8";
}

static bool answer_metrics(struct http_reply *r)
{
	if (team_size() > 1) {
		gather_begin();
		return false;
	}
	set_metrics(r);
	metrics_write(&r->body);
	return true;
}

static void answer_gathered(struct buf *text)
{
	struct http_reply r = {.body = *text};

	set_metrics(&r);
	serve_answer_waiting(&r);
}

/* The process lives and its loop turns. */
static bool answer_health(struct http_reply *r)
{
	http_reply_text(r, 200, "ok\n");
	return true;
}

/* New clients may come. */
static bool answer_ready(struct http_reply *r)
{
	if (pooler_is_shutting_down() != SHUTDOWN_NONE)
		http_reply_text(r, 503, "shutting down\n");
	else if (pooler_is_suspended() != SUSPENDED_NO)
		http_reply_text(r, 503, "suspended\n");
	else if (pooler_all_paused())
		http_reply_text(r, 503, "paused\n");
	else
		http_reply_text(r, 200, "ok\n");
	return true;
}

static bool answer(const char *path, struct http_reply *r)
{
	static const struct {
		const char *path;
		bool (*fn)(struct http_reply *r);
	} table[] = {{"/metrics", answer_metrics}, {"/healthz", answer_health},
		{"/readyz", answer_ready}};

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strcmp(path, table[i].path) == 0)
			return table[i].fn(r);
	http_reply_text(r, 404, "There are /metrics, /healthz and /readyz.\n");
	return true;
}

bool http_start(void)
{
	serve_start();
	return team_size() == 1 || gather_start(metrics_write, answer_gathered);
}

void http_close(void)
{
	serve_close();
	choice_stop();
	memset(&http, 0, sizeof(http));
}

bool http_apply(char *err, size_t err_size)
{
	const struct params *p = &conf_current()->p;
	struct serve_spec spec = {.addr = http.addr,
		.port = p->metrics_port,
		.reuseport = p->so_reuseport,
		.most = HTTP_CONNECTIONS_MAX,
		.patience = REQUEST_TIME,
		.answer = answer};

	if (p->metrics_port == http.port && strcmp(p->metrics_addr, http.addr) == 0)
		return true;
	http_close();
	/* of several processes the first one has the port */
	if (p->metrics_port == 0 || team_self() > 1)
		return true;
	util_strlcpy(http.addr, p->metrics_addr, sizeof(http.addr));
	if (!serve_open(&spec, err, err_size)) {
		http.addr[0] = '\0';
		return false;
	}
	http.port = p->metrics_port;
	log_info("metrics on http://%s:%d/metrics", http.addr, http.port);
	return true;
}
