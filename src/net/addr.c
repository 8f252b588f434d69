/*
 * Socket addresses: making them from text and text from them. No name is looked up here.
 */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>

#include "conn_int.h"

bool net_addr_unix(struct net_addr *a, const char *dir, int port)
{
	struct sockaddr_un *un = &a->u.un;
	int n;

	memset(a, 0, sizeof(*a));
	un->sun_family = AF_UNIX;
	if (!dir[0])
		dir = "/tmp";
	n = snprintf(un->sun_path, sizeof(un->sun_path), "%s/.s.PGSQL.%d", dir, port);
	if (n < 0 || (size_t)n >= sizeof(un->sun_path))
		return false;
	a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n);
	if (dir[0] == '@')
		un->sun_path[0] = '\0';
	else
		a->len++;
	return true;
}

bool net_addr_unix_beside(struct net_addr *a)
{
	static const char more[] = ".new";
	char *path = a->u.un.sun_path;
	size_t len = strlen(path);

	if (sizeof(more) > sizeof(a->u.un.sun_path) - len)
		return false;
	memcpy(path + len, more, sizeof(more));
	a->len += (socklen_t)(sizeof(more) - 1);
	return true;
}

bool net_addr_numeric(struct net_addr *a, const char *host, int port)
{
	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, host, &a->u.in.sin_addr) == 1) {
		a->u.in.sin_family = AF_INET;
		a->u.in.sin_port = htons((uint16_t)port);
		a->len = sizeof(a->u.in);
		return true;
	}
	if (inet_pton(AF_INET6, host, &a->u.in6.sin6_addr) == 1) {
		a->u.in6.sin6_family = AF_INET6;
		a->u.in6.sin6_port = htons((uint16_t)port);
		a->len = sizeof(a->u.in6);
		return true;
	}
	return false;
}

/* As inet_ntop() does, without printf: each login comes here. */
static void print_v4(char *dst, const uint8_t ip[4])
{
	for (int i = 0; i < 4; i++) {
		unsigned n = ip[i];

		if (n >= 100)
			*dst++ = (char)('0' + n / 100);
		if (n >= 10)
			*dst++ = (char)('0' + n / 10 % 10);
		*dst++ = (char)('0' + n % 10);
		*dst++ = i < 3 ? '.' : '\0';
	}
}

void net_addr_print(const struct net_addr *a, struct conn_addr *out)
{
	memset(out, 0, sizeof(*out));
	switch (a->u.sa.sa_family) {
	case AF_INET:
		print_v4(out->host, (const uint8_t *)&a->u.in.sin_addr);
		out->port = ntohs(a->u.in.sin_port);
		break;
	case AF_INET6:
		/* A v4 client of a dual-stack socket is shown as what it is. */
		if (IN6_IS_ADDR_V4MAPPED(&a->u.in6.sin6_addr))
			print_v4(out->host, (const uint8_t *)&a->u.in6.sin6_addr + 12);
		else
			inet_ntop(AF_INET6, &a->u.in6.sin6_addr, out->host, sizeof(out->host));
		out->port = ntohs(a->u.in6.sin6_port);
		break;
	case AF_UNIX:
		out->is_unix = true;
		util_strlcpy(out->host, "unix", sizeof(out->host));
		break;
	default:
		break;
	}
}
