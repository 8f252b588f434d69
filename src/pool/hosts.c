/*
 * A database with several hosts: which one a new connection goes to, which are known to be away,
 * and which have the wrong role for target_session_attrs. A connection that fails goes to the next
 * host before anybody hears of it. Must not know messages. Entry points: hosts_* of pool_int.h.
 */
#include <string.h>

#include "pool/rooms.h"

#define HOSTS_MAX 32 /* bits of server.tried; those behind are not used */

enum host_role { ROLE_UNKNOWN, ROLE_PRIMARY, ROLE_STANDBY };

struct host {
	struct istr *name;
	usec_t down_until; /* after a failure: others are tried first */
	enum host_role role;
};

struct hosts {
	unsigned n, turn;
	bool tell_refused; /* no setting at start-up that they do not know: other poolers */
	struct host list[HOSTS_MAX];
};

void hosts_free(struct hosts **p)
{
	struct hosts *h = *p;

	*p = NULL;
	if (h == NULL)
		return;
	for (unsigned i = 0; i < h->n; i++)
		istr_drop(&h->list[i].name);
	mem_free(h);
}

/* A list of names with commas between; blanks around them do not count. */
struct hosts *hosts_new(const char *text)
{
	struct hosts *h = mem_zalloc(sizeof(*h));
	const char *end;

	if (h == NULL)
		return NULL;
	for (; h->n < HOSTS_MAX; text = end + 1) {
		size_t len;

		text += strspn(text, " ");
		end = text + strcspn(text, ",");
		len = (size_t)(end - text);
		while (len > 0 && text[len - 1] == ' ')
			len--;
		h->list[h->n].name = istr_get(text, len);
		if (h->list[h->n].name == NULL) {
			hosts_free(&h);
			return NULL;
		}
		h->n++;
		if (*end == '\0')
			break;
	}
	return h;
}

static struct host *find(struct hosts *h, const struct istr *name)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->list[i].name == name)
			return &h->list[i];
	return NULL;
}

static bool role_suits(enum target_attrs want, enum host_role role)
{
	switch (want) {
	case TARGET_PRIMARY:
		return role == ROLE_PRIMARY;
	case TARGET_STANDBY:
	case TARGET_PREFER_STANDBY:
		return role == ROLE_STANDBY;
	case TARGET_ANY:
	case TARGET_UNSET:
		break;
	}
	return true;
}

/* The smaller the better. What is not known is tried before what is known to be wrong. */
static unsigned badness(const struct database *db, const struct host *h, usec_t now)
{
	unsigned bad = h->down_until > now ? 4 : 0;

	if (h->role != ROLE_UNKNOWN && !role_suits(db->target, h->role))
		bad += 2;
	else if (db->target > TARGET_ANY && h->role == ROLE_UNKNOWN)
		bad += 1;
	return bad;
}

/* The next host for this connection; NULL: it has tried them all. */
const char *hosts_next(struct server *s)
{
	struct database *db = s->pool->db;
	struct hosts *h = db->hosts;
	unsigned first = db->balance == BALANCE_DISABLE ? 0 : h->turn++, best = h->n, least = 0;

	CHECK_SERVER(s);
	for (unsigned i = 0; i < h->n; i++) {
		unsigned at = (first + i) % h->n, bad;

		if (s->tried & (1u << at))
			continue;
		bad = badness(db, &h->list[at], loop_now());
		if (best == h->n || bad < least) {
			best = at;
			least = bad;
		}
	}
	if (best == h->n)
		return NULL;
	s->tried |= 1u << best;
	istr_drop(&s->host);
	s->host = istr_ref(h->list[best].name);
	return istr_text(s->host);
}

static bool is_away(const char *sqlstate)
{
	return strncmp(sqlstate, "08", 2) == 0 || strncmp(sqlstate, "57P", 3) == 0 ||
	       strncmp(sqlstate, "53", 2) == 0;
}

/* Its host is not to be had. Are there others for it? is_new: that was not known of the host. */
bool hosts_failed(struct server *s, const char *sqlstate, bool *is_new)
{
	struct database *db = s->pool->db;
	struct host *h = find(db->hosts, s->host);

	CHECK_SERVER(s);
	*is_new = true;
	if (db->hosts->n < 2 || !is_away(sqlstate))
		return false;
	if (h != NULL) {
		*is_new = h->down_until <= loop_now();
		h->down_until = loop_now() + conf_current()->p.server_login_retry;
	}
	return hosts_left(s);
}

bool hosts_take_tell(const struct database *db)
{
	return !db->hosts->tell_refused;
}

bool hosts_refused_tell(struct server *s)
{
	bool is_new = !s->pool->db->hosts->tell_refused;

	CHECK_SERVER(s);
	s->pool->db->hosts->tell_refused = true;
	s->tried = 0;
	return is_new;
}

bool hosts_left(const struct server *s)
{
	unsigned n = s->pool->db->hosts->n;

	CHECK_SERVER(s);
	return s->tried != (n < 32 ? (1u << n) - 1 : UINT32_MAX);
}

/* It has logged in; standby: what it says of itself, -1 for nothing. */
enum hosts_verdict hosts_judge(struct server *s, int standby)
{
	struct database *db = s->pool->db;
	struct host *h = find(db->hosts, s->host);
	enum host_role role = standby < 0    ? ROLE_UNKNOWN
			      : standby == 0 ? ROLE_PRIMARY
					     : ROLE_STANDBY;

	CHECK_SERVER(s);
	if (h != NULL) {
		h->down_until = 0;
		h->role = role;
	}
	if (role_suits(db->target, role))
		return HOSTS_GOOD;
	if (db->target == TARGET_PREFER_STANDBY) {
		if (s->last_resort)
			return HOSTS_GOOD;
		if (!hosts_left(s)) {
			/* no standby anywhere: once more, and whoever answers will do */
			s->last_resort = true;
			s->tried = 0;
		}
	}
	return hosts_left(s) ? HOSTS_NEXT : HOSTS_NONE;
}

/* A server says that its role has changed: after a promotion it may not be what is wanted. */
void hosts_role_changed(struct server *s, const char *value)
{
	bool standby = strcmp(value, "on") == 0;
	struct host *h = find(s->pool->db->hosts, s->host);

	CHECK_SERVER(s);
	if (h != NULL)
		h->role = standby ? ROLE_STANDBY : ROLE_PRIMARY;
	if (!role_suits(s->pool->db->target, standby ? ROLE_STANDBY : ROLE_PRIMARY))
		s->close_needed = true;
}
