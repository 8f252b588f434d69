/*
 * From a fresh connection to a server to the point where its first packet can be sent: SSLRequest
 * and the answer, or TLS at once, as the rules for the database say. The same for logins and for
 * cancel requests. Must not know what is sent then. Entry points: server_tls_*.
 */
#include "net/tls.h"
#include "pool/rooms.h"

struct tls_ctx *server_tls_rules(const struct database *db)
{
	return tls_for_database(db->automatic ? "*" : db->name);
}

static enum server_tls begin(struct conn *conn, struct tls_ctx *ctx, bool direct, const char **why)
{
	if (conn_start_tls(conn, ctx, direct))
		return SERVER_TLS_MORE;
	*why = "could not begin TLS";
	return SERVER_TLS_FAILED;
}

enum server_tls server_tls_start(struct conn *conn, struct tls_ctx *ctx, const char **why)
{
	struct buf b = BUF_INIT;

	if (ctx == NULL || conn_peer(conn)->is_unix)
		return SERVER_TLS_READY;
	if (tls_ctx_is_direct(ctx))
		return begin(conn, ctx, true, why);
	build_ssl_request(&b);
	if (buf_failed(&b)) {
		*why = "out of memory";
		return SERVER_TLS_FAILED;
	}
	conn_write(conn, b.data, b.len);
	buf_free(&b);
	return SERVER_TLS_MORE;
}

/* What comes with the answer came in plain text, whoever sent it. */
enum server_tls server_tls_answer(
	struct conn *conn, struct tls_ctx *ctx, const uint8_t *data, size_t len, const char **why)
{
	if (data[0] != 'S' && data[0] != 'N') {
		*why = "the server did not understand SSLRequest";
		return SERVER_TLS_FAILED;
	}
	if (len != 1) {
		*why = "received unencrypted data after SSL response";
		return SERVER_TLS_FAILED;
	}
	if (data[0] == 'S' && ctx != NULL)
		return begin(conn, ctx, false, why);
	if (data[0] == 'N' && tls_ctx_mode(ctx) < SSLMODE_REQUIRE)
		return SERVER_TLS_READY;
	*why = data[0] == 'S'
		       ? "TLS was switched off meanwhile"
		       : "the server does not support TLS, but server_tls_sslmode demands it";
	return SERVER_TLS_FAILED;
}
