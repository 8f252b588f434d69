/*
 * Connecting: hosts in order, the addresses of each in order, until one answers. All steps run in
 * the kick phase or in an event of the loop, so that the owner is never called from inside
 * conn_connect(). What failed is told in libpq's words, a line for each attempt.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "conn_int.h"
#include "resolve.h"

struct dial {
	char *hosts; /* the list, cut at its commas as we go */
	char *host;  /* the one being tried; NULL before the first */
	char *rest;  /* NULL: no more hosts */
	int port;
	struct net_addr *addrs; /* of host, not tried yet: [next..count) */
	size_t next, count;
	struct net_addr trying;
	struct resolve *resolve;
	bool no_name; /* of the host that was tried last */
	struct buf errors;
};

struct conn *conn_connect(const char *host, int port, const struct conn_ops *ops, void *owner)
{
	struct conn *c = conn_blank(ops, owner);

	if (!c)
		return NULL;
	c->dial = mem_zalloc(sizeof(*c->dial));
	if (c->dial) {
		c->dial->port = port;
		c->dial->hosts = c->dial->rest = mem_strdup(host);
		if (c->dial->hosts) {
			conn_mark_kick(c);
			return c;
		}
	}
	conn_close(&c);
	return NULL;
}

struct conn *conn_connect_beside(const struct conn *there, const struct conn_ops *ops, void *owner)
{
	struct conn *c = conn_connect(there->host ? there->host : "", there->peer.port, ops, owner);
	struct net_addr a = {.len = sizeof(a.u)};

	if (!c || there->peer.family == AF_UNIX)
		return c;
	if (getpeername(there->fd, &a.u.sa, &a.len) == 0)
		c->dial->addrs = mem_dup(&a, sizeof(a));
	if (!c->dial->addrs) {
		conn_close(&c);
		return NULL;
	}
	c->dial->count = 1;
	c->dial->host = c->dial->hosts;
	c->dial->rest = NULL;
	return c;
}

bool conn_name_unknown(const struct conn *c)
{
	return c->dial && c->dial->no_name;
}

void dial_cancel(struct conn *c)
{
	if (c->dial)
		resolve_cancel(&c->dial->resolve);
}

void dial_free(struct conn *c)
{
	struct dial *d = c->dial;

	if (!d)
		return;
	dial_cancel(c);
	c->dial = NULL;
	buf_free(&d->errors);
	mem_free(d->addrs);
	mem_free(d->hosts);
	mem_free(d);
}

/* Gives up this attempt; output stays blocked until another one succeeds. */
static void dial_fd_close(struct conn *c)
{
	int fd = c->fd;

	if (fd < 0)
		return;
	c->fd = -1;
	c->flags |= F_BLOCKED;
	conn_install(c);
	close(fd);
}

static void dial_failed(struct conn *c)
{
	const char *text = buf_cstr(&c->dial->errors);

	if (buf_failed(&c->dial->errors))
		text = "out of memory";
	c->flags |= F_ENDED;
	conn_install(c);
	out_drop(c);
	c->ops->on_connect(c, c->owner, text);
}

void dial_no_memory(struct conn *c)
{
	c->dial->errors.failed = true;
	dial_failed(c);
}

static void dial_done(struct conn *c)
{
	c->host = mem_strdup(c->dial->host[0] ? c->dial->host : "/tmp");
	if (!c->host) {
		dial_no_memory(c);
		return;
	}
	if (c->dial->trying.u.sa.sa_family == AF_UNIX)
		c->peer.port = (uint16_t)c->dial->port;
	conn_set_peer(c, &c->dial->trying);
	dial_free(c);
	c->flags &= ~(uint32_t)(F_CONNECTING | F_BLOCKED);
	conn_install(c);
	if (c->out_len > 0)
		conn_mark_dirty(c);
	c->ops->on_connect(c, c->owner, NULL);
}

static void dial_note(struct dial *d, const char *reason)
{
	const struct net_addr *a = &d->trying;
	struct conn_addr text;

	if (buf_used(&d->errors))
		buf_putc(&d->errors, '\n');
	if (a->u.sa.sa_family == AF_UNIX) {
		const char *path = a->u.un.sun_path;

		buf_printf(&d->errors, "connection to server on socket \"%s%s\" failed: %s",
			path[0] ? "" : "@", path[0] ? path : path + 1, reason);
		return;
	}
	net_addr_print(a, &text);
	buf_printf(&d->errors, "connection to server at \"%s\"", d->host);
	if (strcmp(text.host, d->host) != 0)
		buf_printf(&d->errors, " (%s)", text.host);
	buf_printf(&d->errors, ", port %d failed: %s", d->port, reason);
}

/* Starts one attempt. False: it failed at once, and that has been noted. */
static bool dial_try(struct conn *c, const struct net_addr *a)
{
	struct dial *d = c->dial;

	d->trying = *a;
	d->no_name = false;
	c->fd = socket(a->u.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0) {
		dial_note(d, strerror(errno));
		return false;
	}
	conn_tune_made(c->fd, a->u.sa.sa_family);
	if (connect(c->fd, &a->u.sa, a->len) == 0) {
		dial_done(c);
		return true;
	}
	if (errno == EINPROGRESS) {
		c->flags |= F_BLOCKED;
		conn_install(c);
		return true;
	}
	dial_note(d, strerror(errno));
	dial_fd_close(c);
	return false;
}

void dial_writable(struct conn *c)
{
	int err = conn_fd_error(c->fd);

	if (err == 0) {
		dial_done(c);
		return;
	}
	dial_note(c->dial, strerror(err));
	dial_fd_close(c);
	dial_step(c);
}

static void on_resolved(void *arg, const char *error, const struct net_addr *list, size_t count)
{
	struct conn *c = arg;
	struct dial *d = c->dial;

	d->no_name = error != NULL;
	if (error) {
		if (buf_used(&d->errors))
			buf_putc(&d->errors, '\n');
		buf_printf(&d->errors, "could not translate host name \"%s\" to address: %s",
			d->host, error);
	} else {
		d->addrs = mem_dup(list, count * sizeof(*list));
		d->next = 0;
		d->count = d->addrs ? count : 0;
		if (!d->addrs)
			d->errors.failed = true;
	}
	/* May be inside resolve_start(): go on from the loop. */
	conn_mark_kick(c);
}

/* The next host of the list, without the blanks around it. */
static void dial_next_host(struct dial *d)
{
	char *end;

	mem_free(d->addrs);
	d->addrs = NULL;
	d->next = d->count = 0;
	d->host = d->rest;
	while (*d->host == ' ')
		d->host++;
	d->rest = strchr(d->host, ',');
	if (d->rest)
		*d->rest++ = '\0';
	for (end = d->host + strlen(d->host); end > d->host && end[-1] == ' ';)
		*--end = '\0';
}

/* Begins with d->host. True: an attempt or a question is under way, or the end was told. */
static bool dial_host(struct conn *c)
{
	struct dial *d = c->dial;
	struct net_addr a;

	if (d->host[0] == '/' || d->host[0] == '@' || d->host[0] == '\0') {
		if (net_addr_unix(&a, d->host, d->port))
			return dial_try(c, &a);
		buf_printf(&d->errors, "%ssocket directory \"%s\" is too long",
			buf_used(&d->errors) ? "\n" : "", d->host);
		return false;
	}
	if (net_addr_numeric(&a, d->host, d->port))
		return dial_try(c, &a);
	if (!resolve_start(&d->resolve, d->host, d->port, on_resolved, c))
		dial_no_memory(c);
	return true;
}

void dial_step(struct conn *c)
{
	struct dial *d = c->dial;

	for (;;) {
		if (buf_failed(&d->errors)) {
			dial_failed(c);
			return;
		}
		if (d->next < d->count) {
			if (dial_try(c, &d->addrs[d->next++]))
				return;
		} else if (d->rest) {
			dial_next_host(d);
			if (dial_host(c))
				return;
		} else {
			dial_failed(c);
			return;
		}
	}
}
